import json
import math
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch._inductor.exc import InductorError
from triton.runtime.errors import OutOfResources

from helpers.kernels import attention
from helpers.kernels.attention import BACKENDS, choose_backend, sink_attention
from helpers.kernels.masks import AttentionMask
from helpers.kernels.sdpa_sinks import SINK_KEY, split_sinks
from helpers.runtime import ROOT
from tests.kernels.attention import BOUNDS, SCALE, Regime, both_ways, draw, reference, regimes


def compare(backend, regime, heads, dim, seed):
    """fp32 against float64: 2e-6 forwards, 1e-5 backwards (of the largest value, if that is above 1)."""
    tensors, direction = draw(regime, *heads, dim=dim, seed=seed)
    attend, scale = partial(sink_attention, mask=regime.mask(), backend=backend), dim**-0.5
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors[:3]]  # as transformers hands them over
    ours = both_ways(partial(attend, scale=scale), [*strided, tensors[3]], direction)
    exact = both_ways(lambda *x: reference(regime, *x, scale), [x.double() for x in tensors], direction.double())
    assert (ours[0] - exact[0]).abs().max() <= 2e-6
    for gradient, wanted in zip(ours[1:], exact[1:]):
        assert (gradient - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max())
    for row in range(regime.batch):
        for query in range(regime.q_len):
            if not regime.keys(row, query):
                assert not ours[0][row, :, query].any() and not ours[1][row, :, query].any()


SIZES = {
    "heads": st.sampled_from([(1, 1), (2, 1), (4, 2), (8, 1)]), "dim": st.sampled_from([3, 8, 16, 20, 64]),
    "seed": st.integers(0, 99),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(regime=regimes(), **SIZES)
@example(regime=Regime(2, 5, 9, pads=[8, 0], offsets=0), heads=(4, 2), dim=16, seed=1)  # rows that see nothing
@example(regime=Regime(1, 24, 24), heads=(8, 1), dim=64, seed=2)  # the plain triangle
@example(regime=Regime(2, 24, 24, window=5, pads=[0, 11]), heads=(4, 2), dim=16, seed=3)  # in blocks of a window
@example(regime=Regime(1, 23, 23, window=4, documents=[[0] * 9 + [1] * 14]), heads=(4, 2), dim=16, seed=4)
@example(regime=Regime(1, 9, 9, window=1), heads=(2, 1), dim=8, seed=5)
def test_against_the_definition(backend, regime, heads, dim, seed):
    """Any batch, window, padding, offset and documents, forwards and backwards, in fp32; a query without any key gets
    zeros and gives no gradient."""
    compare(backend, regime, heads, dim, seed)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=6, deadline=None)
@given(regime=regimes(longest=270), **SIZES)
@example(regime=Regime(2, 270, 270, window=60, pads=[0, 131]), heads=(4, 2), dim=16, seed=3)
def test_beyond_one_block(backend, regime, heads, dim, seed):
    """FlexAttention's tables have blocks of 128."""
    compare(backend, regime, heads, dim, seed)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("sink", [0.0, 9.0])
def test_16_bits_stay_within_bounds(backend, dtype, window, sink):
    """The bounds of the docstring, at lengths where sums are long, with sinks that take most of the weight."""
    regime = Regime(2, 150, 150, window=window, pads=[0, 31])
    tensors, direction = draw(regime, 8, 1, dim=64, dtype=dtype)
    tensors[3] = tensors[3] + sink
    mask = regime.mask()
    direction = direction.to(dtype)
    ours = both_ways(lambda *x: sink_attention(*x, mask, scale=SCALE, backend=backend), tensors, direction)
    exact = both_ways(
        lambda *x: sink_attention(*x, mask, scale=SCALE, backend="eager"), [x.double() for x in tensors], direction
    )
    for n, (value, wanted) in enumerate(zip(ours, exact)):
        assert (value.double() - wanted).norm() <= BOUNDS[dtype][n > 0] * wanted.norm(), (n, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_sink_enters_sdpa_whole(dtype):
    """As one number of bf16, 12.3456 would come out 0.3 % away from where it is. What is beyond the dtype's range ends
    at its end: infinity minus infinity was NaN, and the output zeros."""
    sinks = torch.cat([torch.tensor([12.3456, -3.21987, 0.01234, 777.7]), torch.randn(50) * 5])
    pieces = split_sinks(sinks, 0.125, dtype)
    found = pieces.to(dtype).double().sum(-1) * SINK_KEY * 0.125
    assert ((found - sinks).abs() <= 2**-20 * sinks.abs().clamp(min=1)).all()
    for shift in (-1e9, -9000.0, 9000.0, 1e9):
        regime = Regime(1, 4, 4)
        tensors, direction = draw(regime, 2, 1, dtype=dtype)
        tensors[3] = tensors[3].float() + shift
        attend = partial(sink_attention, mask=regime.mask(), scale=0.125)
        ours, exact = (both_ways(partial(attend, backend=name), tensors, direction) for name in ("sdpa", "eager"))
        for value, wanted in zip(ours, exact):
            torch.testing.assert_close(value.float(), wanted.float(), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shift", [0, -5, -10])
def test_sink_gradient_survives_a_small_loss(backend, dtype, shift):
    """Of a mean over many tokens each query gets 1e-4: rounded to fp16 at each, a weak sink got no gradient."""
    regime = Regime(2, 100, 100, pads=[0, 9])
    tensors, direction = draw(regime, 8, 1, dim=64, dtype=dtype)
    tensors[3] = tensors[3].float() + shift
    attend, direction = partial(sink_attention, mask=regime.mask(), scale=0.125), (1e-4 * direction).to(dtype)
    ours = both_ways(partial(attend, backend=backend), tensors, direction)[4]
    exact = both_ways(partial(attend, backend="eager"), [x.double() for x in tensors], direction)[4]
    assert (ours - exact).norm() <= BOUNDS[dtype][1] * exact.norm()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sinks_in_sixteen_bits_and_autocast(backend):
    """A stock model's sinks are bf16: divided by the scale in bf16 they lost a per cent. Autocast rounds the rest."""
    regime = Regime(1, 20, 20)
    (q, k, v, sinks), _ = draw(regime, 4, 2, dim=80)
    attend = partial(sink_attention, q, k, v, mask=regime.mask(), scale=80**-0.5)
    sinks = (sinks + 10).bfloat16()
    exact = attend(sinks.double(), backend="eager")
    for context in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        with context:
            ours = attend(sinks, backend=backend)
        assert ours.dtype == torch.float32 and (ours - exact).norm() < 1e-5 * exact.norm()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shift", [-25, -15, -5, 5, 15])
def test_gradient_of_weak_and_strong_sinks(backend, shift):
    """Where a sink is weak, 1 - sigmoid(lse - sink) has few bits left in fp32: its gradient was off by a tenth."""
    regime = Regime(2, 60, 60)
    tensors, direction = draw(regime, 8, 1, dim=64)
    tensors[3] = tensors[3] + shift
    attend = partial(sink_attention, mask=regime.mask(), scale=0.125)
    ours = both_ways(partial(attend, backend=backend), tensors, direction)[4]
    exact = both_ways(partial(attend, backend="eager"), [x.double() for x in tensors], direction)[4]
    assert (ours - exact).norm() <= 1e-5 * exact.norm()


def test_eager_gradient_by_finite_differences():
    """Without autograd on either side."""
    regime = Regime(1, 3, 5, window=3, offsets=2)
    tensors, _ = draw(regime, 2, 1, dim=4, dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in tensors]
    mask = regime.mask()
    assert torch.autograd.gradcheck(lambda *x: sink_attention(*x, mask, scale=0.5, backend="eager"), leaves, atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "flex"])
def test_lse_is_natural_without_the_sink_and_differentiable(backend):
    """FlexAttention's operator returns it in base 2."""
    regime = Regime(1, 4, 4)
    (q, k, v, sinks), _ = draw(regime, 1, 1)
    q.requires_grad_()
    _, lse = sink_attention(q, k, v, sinks, regime.mask(), scale=SCALE, backend=backend, return_lse=True)
    scores = (q @ k.transpose(-1, -2) * SCALE)[0, 0]
    wanted = torch.stack([scores[i, : i + 1].logsumexp(0) for i in range(4)])
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse[0, 0], wanted)
    ours, theirs = (torch.autograd.grad(x.sum(), q, retain_graph=True)[0] for x in (lse, wanted))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
class TestRegimesAgree:
    """Each regime is a part of one prefill: the same numbers must come out."""

    def attend(self, backend, regime, q, k, v, sinks):
        return sink_attention(q, k, v, sinks, regime.mask(), scale=SCALE, backend=backend)

    @pytest.mark.parametrize("window", [None, 9])
    def test_a_padded_batch_is_its_rows_alone(self, backend, window):
        whole = Regime(3, 30, 30, window=window, pads=[0, 11, 29])
        (q, k, v, sinks), _ = draw(whole, 4, 2)
        together = self.attend(backend, whole, q, k, v, sinks)
        for row, pad in enumerate(whole.pads):
            own = [x[row : row + 1, :, pad:] for x in (q, k, v)]
            alone = self.attend(backend, Regime(1, 30 - pad, 30 - pad, window=window), *own, sinks)
            torch.testing.assert_close(together[row : row + 1, :, pad:], alone, atol=2e-6, rtol=0)

    @pytest.mark.parametrize("window", [None, 9])
    def test_decoding_and_chunks_are_one_prefill(self, backend, window):
        whole = Regime(2, 30, 30, window=window, pads=[0, 7])
        (q, k, v, sinks), _ = draw(whole, 4, 2)
        prefill = self.attend(backend, whole, q, k, v, sinks)
        for first, last in ((0, 13), (13, 20), (20, 29), (29, 30)):
            part = Regime(2, last - first, 30, window=window, pads=whole.pads, offsets=first)
            chunk = self.attend(backend, part, q[:, :, first:last], k, v, sinks)
            torch.testing.assert_close(chunk, prefill[:, :, first:last], atol=2e-6, rtol=0)

    def test_documents_in_one_row_are_documents_alone(self, backend):
        packed = Regime(1, 30, 30, window=9, documents=[[5] * 12 + [7] * 18])
        (q, k, v, sinks), _ = draw(packed, 4, 2)
        together = self.attend(backend, packed, q, k, v, sinks)
        for first, last in ((0, 12), (12, 30)):
            own = [x[:, :, first:last] for x in (q, k, v)]
            alone = self.attend(backend, Regime(1, last - first, last - first, window=9), *own, sinks)
            torch.testing.assert_close(together[:, :, first:last], alone, atol=2e-6, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_that_sees_only_its_sink_is_silent(backend):
    """softmax of nothing is 0 / 0, and a NaN in one padded row reaches every weight."""
    regime = Regime(2, 4, 6, pads=[5, 0], offsets=1)
    attend = partial(sink_attention, mask=regime.mask(), scale=SCALE, backend=backend)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensors, direction = draw(regime, 4, 2, dtype=dtype)
        values = both_ways(attend, tensors, direction)
        assert all(value.isfinite().all() for value in values)
        for value in values[:3]:
            assert not value[0].any()  # output, dq, dk of the row
        assert values[4].any()  # the other row's queries move the sinks


@pytest.mark.parametrize(
    ("card", "dtype", "queries", "backend"),
    [
        (None, torch.float32, 5, "sdpa"), (None, torch.float32, 1, "eager"), (None, torch.float64, 5, "eager"),
        ((7, 5), torch.float16, 5, "sdpa"), ((7, 5), torch.float16, 1, "eager"),
        ((8, 0), torch.bfloat16, 5, "flex"), ((9, 0), torch.bfloat16, 1, "eager"), ((8, 9), torch.float64, 5, "eager"),
    ],
)  # fmt: skip
def test_auto_by_card_and_regime(card, dtype, queries, backend, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    q = SimpleNamespace(is_cuda=card is not None, device="cuda:0", dtype=dtype)
    assert choose_backend(q, AttentionMask(1, queries, 5)) == backend


def compile_errors():
    """What torch.compile raises where its compiler fails, and Triton where a kernel is too large for the card."""
    with torch._inductor.config.patch({"cpp.cxx": ("/bin/false",), "fx_graph_cache": False}):
        try:
            torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
        except Exception as error:
            yield error
    yield OutOfResources(65536, 49152, "shared memory")
    # so Inductor's launcher says that a kernel wants more shared memory than there is
    yield InductorError(torch.OutOfMemoryError("out of resource: shared memory, Required: 65536"), None)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["torch.compile", "triton", "launcher"])
def test_auto_without_a_compiler_takes_sdpa(number, monkeypatch):
    """On an H100 training ended with the compiler's error: no other attention was tried."""
    error = list(compile_errors())[number]
    asked = []

    def refuse(*_):
        asked.append(None)
        raise error

    (q, k, v, sinks), _ = draw(Regime(1, 4, 4), 2, 1)
    mask = AttentionMask(1, 4, 4)
    wanted = sink_attention(q, k, v, sinks, mask, scale=SCALE, backend="sdpa")
    on_a_large_gpu(monkeypatch)
    monkeypatch.setattr(attention, "_flex_cpu", refuse)
    with pytest.warns(UserWarning, match="FlexAttention cannot be compiled here .*takes more memory") as warned:
        for _ in range(3):
            with torch.no_grad():
                assert torch.equal(sink_attention(q, k, v, sinks, mask, scale=SCALE), wanted)
    assert len(warned) == len(asked) == 1 and "\n" not in str(warned[0].message)
    with pytest.raises(type(error)):  # who names flex wants flex
        sink_attention(q, k, v, sinks, mask, scale=SCALE, backend="flex")


def on_a_large_gpu(monkeypatch):
    """Let "auto" choose flex, as on a GPU with tensor cores for Triton, until that is given up."""
    monkeypatch.setattr(attention, "_flex_state", "untried")
    monkeypatch.setattr(
        attention, "choose_backend", lambda *_: "sdpa" if attention._flex_state == "given up" else "flex"
    )


def test_auto_goes_on_with_sdpa_where_flex_was_given_up(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    q = SimpleNamespace(is_cuda=True, device="cuda:0", dtype=torch.bfloat16)
    assert choose_backend(q, AttentionMask(1, 5, 5)) == "flex"
    monkeypatch.setattr(attention, "_flex_state", "given up")
    assert choose_backend(q, AttentionMask(1, 5, 5)) == "sdpa"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("an illegal memory access was encountered"),
        InductorError(torch.OutOfMemoryError("CUDA out of memory."), None),
    ],
    ids=["fault", "memory"],
)
def test_an_error_of_another_kind_gives_nothing_up(monkeypatch, error):
    """sdpa takes more memory: no way out where that is lacking."""

    def wrong(*_):
        raise error

    on_a_large_gpu(monkeypatch)
    monkeypatch.setattr(attention, "_flex_cpu", wrong)
    with torch.no_grad(), pytest.raises(type(error)):
        attend()
    assert attention._flex_state == "in use"


def test_another_kernel_that_cannot_be_compiled_gives_nothing_up(monkeypatch):
    """On a T4, where flex never runs, an MXFP4 kernel that Triton refused was called a fault of FlexAttention."""
    monkeypatch.setattr(attention, "_flex_state", "untried")
    assert not attention.give_up_flex(OutOfResources(65536, 49152, "shared memory"))
    assert attention._flex_state == "untried"


def test_with_gradients_the_error_is_raised(monkeypatch):
    """Layers before may have run with flex, and checkpointing computes them again: with sdpa that failed."""
    error = OutOfResources(65536, 49152, "shared memory")

    def refuse(*_):
        raise error

    on_a_large_gpu(monkeypatch)
    monkeypatch.setattr(attention, "_flex_cpu", refuse)
    q = torch.ones(1, 2, 4, 16, requires_grad=True)
    with pytest.raises(OutOfResources):
        attend(q=q)
    with pytest.warns(UserWarning, match="FlexAttention cannot be compiled"):
        assert attention.give_up_flex(error)
    attend(q=q).sum().backward()


def attend(heads=(2, 1), mask=None, **changes):
    (q, k, v, sinks), _ = draw(Regime(1, 4, 4), *heads)
    arguments = {"q": q, "k": k, "v": v, "sinks": sinks} | {n: x for n, x in changes.items() if n != "backend"}
    return sink_attention(
        *arguments.values(),
        AttentionMask(1, 4, 4) if mask is None else mask,
        scale=1.0,
        backend=changes.get("backend", "auto"),
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: attend((3, 2)), r"heads of k and v must divide those of q.* q \[1, 3, 4, 16\], k \[1, 2, 4, 16\]"),
        (lambda: attend(sinks=torch.zeros(3)), r"sinks be \[Hq\], .* sinks \[3\]"),
        (lambda: attend(v=torch.zeros(1, 1, 5, 16)), r"v \[1, 1, 5, 16\]"),
        (lambda: attend(v=torch.zeros(1, 1, 4, 16).half()), r"q, k and v must have one dtype, got .*float16"),
        (lambda: attend(k=torch.zeros(4, 16)), r"q must be \[B, Hq, Q, D\], k and v \[B, Hkv, K, D\], .* k \[4, 16\]"),
        (lambda: attend(mask=AttentionMask(1, 3, 4)), r"mask is for batch 1, q_len 3 and kv_len 4, got q \[1"),
        (lambda: attend(mask=torch.ones(4, 4)), r"mask must be an AttentionMask, got Tensor"),
        (lambda: attend(backend="x"), r"backend must be auto or one of flex, sdpa, eager, got 'x'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def test_a_torch_whose_operator_changed_is_one_sentence(monkeypatch):
    """The operator behind flex_attention is not public: when it changes, the CPU path must say so."""
    attention._flex_operator.cache_clear()
    monkeypatch.setattr(attention, "FLEX_OPERATOR", ("query", "something else"))
    with pytest.raises(RuntimeError, match="operator is not known in torch .*: on the CPU use backend 'sdpa'"):
        attend(backend="flex")
    attention._flex_operator.cache_clear()


def test_scores_far_apart_do_not_overflow():
    """Scores of several hundred, as a trained model has them, in every backend."""
    regime = Regime(1, 8, 8)
    (q, k, v, sinks), _ = draw(regime, 2, 1)
    values = [
        sink_attention(q * 60, k * 30, v, sinks * 100, regime.mask(), scale=SCALE, backend=backend)
        for backend in BACKENDS
    ]
    exact = sink_attention(
        *(x.double() for x in (q * 60, k * 30, v, sinks * 100)), regime.mask(), scale=SCALE, backend="eager"
    )
    assert math.isfinite(float(exact.sum()))
    for value in values:
        assert (value - exact).abs().max() < 2e-3


def test_the_page_of_the_room_says_what_the_benchmark_measured():
    """How much faster than transformers' eager attention "auto" is depends on the length most of all."""
    results = json.loads((ROOT / "tests/benchmarks/results/attention-cpu.json").read_text())
    taken = {(r["length"], r["layer"], r["pass"], r["attention"]): r.get("ms") for r in results["rows"]}
    lines = []
    for length in (4096, 512):
        for layer in ("full", "sliding"):
            ratios = []
            for step, chosen in (("forward", "sdpa"), ("forward and backward", "sdpa"), ("decode", "eager")):
                ours = taken[length, layer, step, f"{chosen} (ours)"]
                ratios.append(f"{taken[length, layer, step, 'eager (transformers)'] / ours:.1f}")
            lines.append(f"| {length:,} | {layer} | {' | '.join(ratios)} |")
    assert "\n".join(lines) in (ROOT / "helpers/kernels/README.md").read_text(), "\n".join(lines)
