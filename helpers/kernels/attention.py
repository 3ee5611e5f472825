"""Attention with sinks, three ways to compute it.

gpt-oss gives every query head a learned logit, the sink, that joins the softmax and has no
value: it lets a head attend to nothing. With lse = log sum exp of the visible scores,

    output = softmax(scores) V * sigmoid(lse - sink)

which is how a kernel without sinks can serve (gpt-oss model card, 2025, section 2.2).
"""

import inspect
import math
import warnings
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.kernels.linear import WIDE
from helpers.kernels.masks import AttentionMask
from helpers.kernels.sdpa_sinks import sdpa_with_sinks

BACKENDS = ("flex", "sdpa", "eager")
#: What the operator behind FlexAttention takes in the versions of PyTorch that this was tested with.
FLEX_OPERATOR = (
    "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
    "mask_mod_other_buffers",
)  # fmt: skip
#: Where the exceptions of torch.compile are defined, and those of Triton.
COMPILERS = ("torch._dynamo", "torch._inductor", "triton")
#: What "auto" knows of FlexAttention in this process: "untried", "in use", or "given up".
_flex_state = "untried"


def sink_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor,
    mask: AttentionMask,
    *,
    scale: float,
    backend: str = "auto",
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention whose softmax has one extra, valueless entry per head.

    Args:
        q: [B, Hq, Q, D].
        k, v: [B, Hkv, K, D], Hkv dividing Hq.
        sinks: [Hq].
        mask: which query sees which key.
        scale: factor on the scores, usually D ** -0.5.
        backend: "eager" (the definition, any dtype), "sdpa" (exact, PyTorch's fused kernels), "flex"
            (FlexAttention, memory linear in the length on a GPU), or "auto": see `choose_backend`.
        return_lse: also return lse fp32 [B, Hq, Q], natural log, sink not included; not with sdpa.

    Returns: [B, Hq, Q, D] in q's dtype, and differentiable, as is lse. A query that may see no key gets zeros, and
    gives no gradient. Against float64: 2e-6 and gradients 1e-5 in fp32; in norm 0.5 % and 2 % in bf16, 0.07 % and
    0.3 % in fp16. Raises ValueError for shapes that do not fit each other.
    """
    _check_shapes(q, k, v, sinks, mask)
    if backend == "auto":
        backend = choose_backend(q, mask)
        if backend == "flex":
            return _attend_with_flex_or_sdpa(q, k, v, sinks, mask, scale, return_lse)
    return _attend(q, k, v, sinks, mask, scale, backend, return_lse)


def _attend_with_flex_or_sdpa(q, k, v, sinks, mask, scale, return_lse):
    """`sink_attention` with flex, or with sdpa where flex cannot be compiled.

    Where a gradient is wanted the error is raised instead. Layers that have run already may be checkpointed, and the
    backward pass must compute them in the same way again: whoever runs both passes calls `give_up_flex` and begins
    anew.
    """
    global _flex_state
    if _flex_state == "untried":
        _flex_state = "in use"
    try:
        return _attend(q, k, v, sinks, mask, scale, "flex", return_lse)
    except Exception as error:
        wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v, sinks))
        if wants_gradient or not give_up_flex(error):
            raise
    return _attend(q, k, v, sinks, mask, scale, "sdpa", return_lse)


def _attend(q, k, v, sinks, mask, scale, backend, return_lse):
    """`sink_attention` with a backend that is decided."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be auto or one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "sdpa" and return_lse:
        raise ValueError("backend 'sdpa' has no lse to return: use 'flex' or 'eager'")
    with torch.autocast(q.device.type, enabled=False):  # it would round what is fp32 here
        if backend == "sdpa":
            return sdpa_with_sinks(q, k, v, sinks, mask, scale)
        if backend == "flex":
            output, lse = _flex(q, k, v, sinks, mask, scale)
        else:
            output, lse = _eager(q, k, v, sinks, mask, scale, return_lse)
    return (output, lse.float()) if return_lse else output


def choose_backend(q: Tensor, mask: AttentionMask) -> str:
    """Choose the backend for a regime on q's device.

    One query a row, or float64: eager, two products that read keys and values where they lie. Else flex on a GPU with
    tensor cores that Triton can use (compute capability 8.0 on; on a T4 it has none), for the memory; else sdpa, and
    where flex could not be compiled.
    """
    if mask.q_len == 1 or q.dtype == torch.float64:
        return "eager"
    if q.is_cuda and torch.cuda.get_device_capability(q.device) >= (8, 0) and _flex_state != "given up":
        return "flex"
    return "sdpa"


def give_up_flex(error: BaseException) -> bool:
    """Let "auto" choose sdpa from here on if this error says that FlexAttention cannot be compiled here, and warn.

    Returns False for any other error, and unless "auto" has chosen flex before. The kernel of a backward pass may be
    compiled when the forward pass has long returned: whoever runs that pass calls this, and then runs both again.
    """
    global _flex_state
    if _flex_state != "in use" or not _is_of_a_compiler(error):
        return False
    _flex_state = "given up"
    reason = str(error).strip().partition("\n")[0]
    warnings.warn(
        f"FlexAttention cannot be compiled here ({reason}): attention runs on PyTorch's fused kernels from here on, "
        "which gives the same results and takes more memory.",
        stacklevel=2,
    )
    return True


def _is_of_a_compiler(error: BaseException) -> bool:
    """Tell whether torch.compile or Triton raised an exception, and not because the GPU has no memory left."""
    is_compilers = any(kind.__module__.startswith(COMPILERS) for kind in type(error).__mro__)
    return is_compilers and "out of memory" not in str(error)


def _check_shapes(q, k, v, sinks, mask):
    """Raise ValueError unless queries, keys, values, sinks and mask fit each other."""
    if not isinstance(mask, AttentionMask):
        raise ValueError(f"mask must be an AttentionMask, got {type(mask).__name__}")
    tensors = {"q": q, "k": k, "v": v, "sinks": sinks}
    shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
    if {q.dim(), k.dim(), v.dim()} != {4} or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q must be [B, Hq, Q, D], k and v [B, Hkv, K, D], got {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype} for {shapes}")
    query_rows, query_heads, queries, _ = q.shape
    key_rows, key_heads, keys, _ = k.shape
    if query_heads % key_heads or sinks.shape != (query_heads,):
        raise ValueError(f"the heads of k and v must divide those of q, and sinks be [Hq], got {shapes}")
    if (query_rows, key_rows, queries, keys) != (mask.batch, mask.batch, mask.q_len, mask.kv_len):
        raise ValueError(f"mask is for batch {mask.batch}, q_len {mask.q_len} and kv_len {mask.kv_len}, got {shapes}")


def _eager(q, k, v, sinks, mask, scale, return_lse):
    """By the definition: append the sink to the scores, softmax, drop it. Returns `(output, lse or None)`.

    The query heads of a key head stand below each other, so that keys and values are read once and never copied.
    """
    batch, heads, queries, dim = q.shape
    key_heads, keys = k.shape[1:3]
    grouped = q.reshape(batch, key_heads, -1, dim)  # [B, Hkv, Hq / Hkv * Q, D]
    products = _wide_bmm(grouped, k.transpose(-1, -2))
    scores = products.view(batch, heads, queries, keys) * scale
    scores = scores.masked_fill(~mask.dense(), -math.inf)

    sink = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(batch, heads, queries, 1)
    with_sink = torch.cat([scores, sink], -1).softmax(-1)
    weights = with_sink[..., :-1].reshape(batch, key_heads, -1, keys)
    output = _wide_bmm(weights.to(v.dtype), v).view_as(q).to(q.dtype)
    lse = scores.logsumexp(-1) if return_lse else None
    return output, lse


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attention of one query a row over a cache whose place 0 is the sink's.

    Args:
        q: [B, Hkv, G, D], the G query heads of a key head next to each other.
        keys, values: [B, Hkv, K, D]; place 0 holds zeros.
        bias: fp32 [B, Hkv, G, K], added to the scores: the sink at place 0, 0 where a key is visible, else -inf.
        scale: factor on the scores.

    Returns: [B, Hkv, G, D] in q's dtype. A key of zeros has the score 0, so the bias alone is the sink's logit; its
    value of zeros adds nothing. No gradient.
    """
    batch, key_heads, group, dim = q.shape
    queries = q.flatten(0, 1)  # [B * Hkv, G, D]
    keys = keys.flatten(0, 1)  # [B * Hkv, K, D]
    values = values.flatten(0, 1)
    bias = bias.flatten(0, 1)
    if q.dtype in WIDE:
        scores = torch.baddbmm(bias, queries, keys.mT, alpha=scale)
    else:
        scores = torch.add(bias, _wide_products(queries, keys.mT), alpha=scale)
    weights = scores.softmax(-1)  # [B * Hkv, G, K]
    if q.dtype in WIDE:
        output = torch.bmm(weights, values)
    else:
        output = _wide_products(weights.to(values.dtype), values)
    return output.view(batch, key_heads, group, dim).to(q.dtype)


def _wide_products(a: Tensor, b: Tensor) -> Tensor:
    """16-bit [N, Q, D] @ [N, D, K], summed and returned in fp32."""
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _wide_bmm(a: Tensor, b: Tensor) -> Tensor:
    """a @ b with sums in fp32 (fp64 for fp64), batched over two axes."""
    if a.dtype in WIDE:
        return a @ b
    needs_gradient = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if a.is_cuda and not needs_gradient:
        product = torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out_dtype=torch.float32)
        return product.unflatten(0, a.shape[:2])
    return a.float() @ b.float()


def _flex(q, k, v, sinks, mask, scale):
    """FlexAttention without the sink, rescaled by sigmoid(lse - sink); lse stays in fp32 (fp64 in fp64)."""
    attend = _flex_cuda if q.is_cuda else _flex_cpu
    output, lse = attend(q, k, v, mask, scale)
    # Not sigmoid: its gradient takes 1 - sigmoid, of which fp32 leaves little where the sink is weak.
    kept = F.logsigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1)).exp()  # [B, Hq, Q]; 0 where nothing is visible
    return (output * kept.unsqueeze(-1)).to(q.dtype), lse


def _flex_cuda(q, k, v, mask, scale):
    """FlexAttention's compiled kernel: `(output, lse)`, lse with natural logarithm."""
    from torch.nn.attention.flex_attention import AuxRequest

    options = kernel_options(torch.cuda.get_device_capability(q.device), mask.q_len)
    attend = _compiled_flex()
    output, extra = attend(
        q,
        k,
        v,
        block_mask=mask.block_mask(),
        scale=scale,
        enable_gqa=True,
        kernel_options=options,
        return_aux=AuxRequest(lse=True),
    )
    return output, extra.lse


@cache
def _compiled_flex() -> Callable:
    """`flex_attention`, compiled on first use and again for another dtype, for gradients, for a batch or length of one
    and once more when lengths begin to vary; offset, window and padding change nothing."""
    from torch.nn.attention.flex_attention import flex_attention

    # training, scoring, prefill and decoding are together more than PyTorch's default of 8
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        return torch.compile(flex_attention, recompile_limit=64)
    return torch.compile(flex_attention)


def kernel_options(capability: tuple[int, int], queries: int) -> dict[str, int | bool]:
    """FlexAttention's options for so many queries on a GPU of this compute capability.

    Before 8.0 Triton has no tensor cores and little shared memory (64 KiB on a T4), and PyTorch's tiles spill 5 KB of
    every thread. These fit the registers, in prefill, decoding and the backward pass; `tests/kernels/test_flex_aot.py`
    compiles PyTorch's kernels with them.
    """
    options = {}
    if capability < (8, 0):
        options = {
            "fwd_BLOCK_N": 16, "fwd_num_stages": 1, "fwd_num_warps": 4,
            "bwd_BLOCK_M1": 16, "bwd_BLOCK_N1": 16, "bwd_BLOCK_M2": 16, "bwd_BLOCK_N2": 16,
            "bwd_num_stages": 1, "bwd_num_warps": 4,
        }  # fmt: skip
    if queries > 1:
        # PyTorch's kernel for few queries has no tiles for 17 to 127 of them with eight query heads to a key head,
        # and takes another number of rows than its own for safe (torch 2.13)
        options["FORCE_USE_FLEX_ATTENTION"] = True
        if capability < (8, 0):
            options["fwd_BLOCK_M"] = 32
    return options


@torch.compiler.disable  # the operator by itself cannot be traced
def _flex_cpu(q, k, v, mask, scale):
    """The operator behind `flex_attention`, unfused: on the CPU only it has a backward pass."""
    options = {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}
    block_mask = mask.block_mask().as_tuple()
    operator = _flex_operator()
    output, lse = operator(q, k, v, _identity, block_mask, scale, options, (), ())[:2]
    return output, lse * math.log(2)  # the operator's lse is in base 2


@cache
def _flex_operator() -> Callable:
    """PyTorch's operator, which is not public: raise RuntimeError where it does not take what it took before."""
    try:
        from torch._higher_order_ops.flex_attention import flex_attention as operator
    except ImportError:
        parameters = None
    else:
        parameters = tuple(inspect.signature(operator.__call__).parameters)
    if parameters != FLEX_OPERATOR:
        raise RuntimeError(
            f"FlexAttention's operator is not known in torch {torch.__version__}: on the CPU use backend 'sdpa' or "
            "'eager', or a torch that constraints.txt names."
        )
    return operator


def _identity(score, row, head, query, key):
    """The change that FlexAttention makes to the scores: none."""
    return score
