"""Compiled FlexAttention, the fused kernels and the mask's tensors on a GPU; skipped without one."""

import statistics
from dataclasses import replace
from functools import partial

import pytest
import torch

from helpers import AttentionMask, load_model, probe_layers, set_attention, sink_attention, synthetic_inputs
from helpers.kernels.attention import choose_backend
from helpers.model.memory import released_config
from helpers.profiles import PROFILES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

HEADS, KEY_HEADS, DIM, WINDOW = 64, 8, 64, 128
SIXTEEN = (
    torch.bfloat16 if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0) else torch.float16
)
#: Relative distance in norm from float64: output, gradients.
BOUNDS = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (1e-2, 3e-2), torch.float16: (2e-3, 6e-3)}
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if SIXTEEN == torch.bfloat16 else [])


def draw(mask, heads=HEADS, key_heads=KEY_HEADS, dtype=SIXTEEN, grad=True):
    generator = torch.Generator("cuda").manual_seed(0)
    keys = (mask.batch, key_heads, mask.kv_len, DIM)
    shapes = [(mask.batch, heads, mask.q_len, DIM), keys, keys]
    tensors = [torch.randn(shape, generator=generator, device="cuda").to(dtype) for shape in shapes]
    tensors.append(torch.randn(heads, generator=generator, device="cuda"))
    return [tensor.requires_grad_(grad) for tensor in tensors]


REGIMES = {
    "prefill": {"q_len": 160}, "chunk": {"q_len": 40, "q_offset": 120}, "decode": {"q_len": 1, "q_offset": 159},
    "packed": {"q_len": 160, "document_ids": (torch.arange(160) >= 70).long().expand(2, -1)},
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("window", [None, 40, WINDOW])
@pytest.mark.parametrize("pads", [None, [0, 40], [159, 0]], ids=str)
@pytest.mark.parametrize("regime", REGIMES)
def test_against_float64(regime, pads, window, backend, dtype):
    """Forward and backward, with rows that see nothing: a NaN in one reaches every weight."""
    options = dict(REGIMES[regime])
    if "document_ids" in options:
        options["document_ids"] = options["document_ids"].cuda()
    left_pad = None if pads is None else torch.tensor(pads, device="cuda")
    mask = AttentionMask(2, kv_len=160, window=window, left_pad=left_pad, device="cuda", **options)
    leaves = draw(mask, 8, 1, dtype)
    direction = torch.randn(leaves[0].shape, device="cuda").to(dtype)
    results = []
    for name, tensors in ((backend, leaves), ("eager", [leaf.detach().double().requires_grad_() for leaf in leaves])):
        output = sink_attention(*tensors, mask, scale=0.125, backend=name)
        results.append([output, *torch.autograd.grad((output * direction.to(output.dtype)).sum(), tensors)])
    for n, (ours, exact) in enumerate(zip(*results)):
        assert ours.isfinite().all()
        assert (ours.double() - exact).norm() <= BOUNDS[dtype][n > 0] * exact.norm(), n


def peak(length, window, backend):
    mask = AttentionMask(1, length, length, window=window, device="cuda")
    leaves = draw(mask)
    for _ in range(2):  # the first compiles
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(sink_attention(*leaves, mask, scale=0.125, backend=backend).float().sum(), leaves)
        torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.skipif(SIXTEEN == torch.float16, reason="flex is not used on this card")
@pytest.mark.parametrize("window", [None, WINDOW])
def test_memory_is_linear_in_the_length(window):
    """gpt-oss-20b's heads, forward and backward: all scores of 8,192 tokens would be 16 GiB in fp32."""
    assert choose_backend(draw(AttentionMask(1, 8, 8, device="cuda"))[0], AttentionMask(1, 8, 8)) == "flex"
    assert peak(8192, window, "flex") <= 4.4 * peak(2048, window, "flex")


@pytest.mark.essential
def test_sliding_sdpa_is_linear_too():
    """What a T4 uses."""
    assert peak(8192, WINDOW, "sdpa") <= 4.4 * peak(2048, WINDOW, "sdpa")


@pytest.mark.skipif(SIXTEEN == torch.float16, reason="flex is not used on this card")
@pytest.mark.parametrize("window", [None, WINDOW])
def test_flex_is_sdpa_at_8192_tokens(window):
    """gpt-oss-20b's heads, forward and backward: the two that fit, against each other."""
    mask = AttentionMask(1, 8192, 8192, window=window, left_pad=torch.tensor([100], device="cuda"), device="cuda")
    leaves, results = draw(mask), []
    for backend in ("flex", "sdpa"):
        output = sink_attention(*leaves, mask, scale=0.125, backend=backend)
        results.append([output, *torch.autograd.grad(output.float().square().sum(), leaves)])
    for ours, theirs in zip(*results):
        assert (ours.float() - theirs.float()).norm() < 2 * BOUNDS[SIXTEEN][1] * theirs.float().norm()


def test_flex_is_one_compiled_kernel():
    """Not the unfused fallback, which materialises all scores: a Triton kernel named after the template runs."""
    mask = AttentionMask(1, 8192, 8192, device="cuda")
    leaves = draw(mask, grad=False)
    attend = partial(sink_attention, *leaves, mask, scale=0.125, backend="flex")
    attend()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        attend()
    names = [event.key for event in profile.key_averages()]
    assert any("flex_attention" in name and name.startswith("triton") for name in names), names


def test_a_thousand_decoding_steps_compile_and_build_nothing():
    from torch._dynamo.utils import counters

    mask = AttentionMask(
        8, 1, 8192, window=WINDOW, left_pad=torch.arange(8, device="cuda"), q_offset=600, device="cuda"
    )
    leaves = draw(mask, grad=False)
    attend = partial(sink_attention, *leaves, mask, scale=0.125, backend="flex")
    with torch.no_grad():
        for step in (600, 601):
            mask.move(step)
            attend()
        blocks, address = mask.block_mask(), mask.block_mask().kv_indices.data_ptr()
        compiled = counters["stats"]["unique_graphs"]
        for step in range(1000):
            mask.move(torch.full((8,), 602 + step, device="cuda"))
            output = attend()
    assert counters["stats"]["unique_graphs"] == compiled
    assert mask.block_mask() is blocks and blocks.kv_indices.data_ptr() == address
    exact = sink_attention(*(x.double() for x in leaves), mask, scale=0.125, backend="eager")
    assert (output.double() - exact).norm() < 1e-2 * exact.norm()


@pytest.mark.essential
def test_decoding_reads_keys_where_they_lie():
    """Eager decoding of eight rows at 8,192 tokens: no copy of keys or values, spread over 64 heads or in fp32."""
    mask = AttentionMask(8, 1, 8192, q_offset=8191, device="cuda")
    leaves = draw(mask, grad=False)
    with torch.no_grad():
        sink_attention(*leaves, mask, scale=0.125)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        sink_attention(*leaves, mask, scale=0.125)
    keys = leaves[1].numel() * leaves[1].element_size()
    assert torch.cuda.max_memory_allocated() - before < 1.5 * keys  # in fp32 they are two, spread over heads eight


@pytest.mark.parametrize("attention", ["flex", pytest.param("sdpa", marks=pytest.mark.essential)])
def test_24_layers_of_the_released_shape(attention):
    """Random activations with log-sum-exps near 20, sinks from 2 to 98 % of the attention."""
    config = released_config("20b")
    for sink in (-4, 0, 4):
        rows = probe_layers(synthetic_inputs(config, 512, score=4, sink=sink, device="cuda"), attention, (SIXTEEN,))
        assert len(rows) == 24 and statistics.median(row["output"] for row in rows) > 0
        assert max(row["output"] for row in rows) <= BOUNDS[SIXTEEN][0]
        assert max(row[name] for row in rows for name in ("dq", "dk", "dv", "dsinks")) <= 2 * BOUNDS[SIXTEEN][1]


@pytest.mark.parametrize("backend", ["auto", "sdpa", "flex"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_is_transformers_own(backend, cache):
    """The embedded model in fp32: greedy tokens under left padding, across the window."""
    model, tokenizer = load_model(profile=replace(PROFILES["tiny"], needs_gib=1, dense="fp32", experts="fp32"))
    model.cuda()
    texts = ["<|start|>user<|message|>Use zip.", "<|start|>user<|message|>" + "Use nested loops. " * 30]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt").to("cuda")
    options = {"max_new_tokens": 150, "do_sample": False, "eos_token_id": None, "disable_compile": True}
    model.set_attn_implementation("eager")
    wanted = model.generate(**batch, **options, output_scores=True, return_dict_in_generate=True)
    set_attention(model, backend)
    drawn = model.generate(**batch, **options, cache_implementation=cache)
    top = torch.stack(wanted.scores, 1).topk(2).values  # [B, steps, 2]
    parted = 0
    for row, (ours, theirs) in enumerate(zip(drawn, wanted.sequences)):
        differ = (ours != theirs)[batch.input_ids.shape[1] :].nonzero()
        if len(differ):  # only where the second choice was as good
            near, far = top[row, int(differ[0, 0])]
            assert near - far < 1e-3
            parted += 1
    assert parted <= 1
