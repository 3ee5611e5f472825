import math
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.kernels.attention import BACKENDS, choose_backend, compiled_flex, sink_attention
from helpers.kernels.masks import AttentionMask

SCALE = 0.25
#: Relative distance (Frobenius) from float64 on the same inputs that 16 bits may take: output, gradients.
BOUNDS = {torch.bfloat16: (5e-3, 2e-2), torch.float16: (7e-4, 3e-3)}


@dataclass
class Regime:
    """What an `AttentionMask` was made from, as plain numbers: the reference reads these, never the mask."""

    batch: int
    q_len: int
    kv_len: int
    window: int | None = None
    pads: list | None = None
    offsets: int | list = 0
    documents: list | None = None

    def mask(self):
        pads, documents = (None if x is None else torch.tensor(x) for x in (self.pads, self.documents))
        offsets = torch.tensor(self.offsets) if isinstance(self.offsets, list) else self.offsets
        return AttentionMask(
            self.batch, self.q_len, self.kv_len, window=self.window, left_pad=pads, q_offset=offsets,
            document_ids=documents,
        )  # fmt: skip

    def keys(self, row, query):
        """Positions that a query sees, by the words of the definition."""
        position = query + (self.offsets[row] if isinstance(self.offsets, list) else self.offsets)
        seen = []
        for key in range(self.kv_len):
            hidden = key > position or (self.pads is not None and key < self.pads[row])
            hidden = hidden or (self.window is not None and position - key >= self.window)
            if self.documents is not None and self.documents[row][key] != self.documents[row][position]:
                hidden = True
            if not hidden:
                seen.append(key)
        return seen


def reference(regime, q, k, v, sinks, scale):
    """The definition in loops, in double precision: nothing here is shared with the kernels."""
    q, k, v, sinks = (x.double() for x in (q, k, v, sinks))
    per_key_head = q.shape[1] // k.shape[1]
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                keys = regime.keys(b, i)
                scores = scale * (k[b, h // per_key_head, keys] @ q[b, h, i])
                weights = scores.exp() / (scores.exp().sum() + sinks[h].exp())
                rows.append(weights @ v[b, h // per_key_head, keys] if keys else 0 * q[b, h, i])
    return torch.stack(rows).view_as(q)


def draw(regime, heads, key_heads, dim=16, seed=0, dtype=torch.float32):
    """q, k, v, sinks that fit, and a direction to differentiate along."""
    generator = torch.Generator().manual_seed(seed)
    keys = (regime.batch, key_heads, regime.kv_len, dim)
    shapes = [(regime.batch, heads, regime.q_len, dim), keys, keys, (heads,)]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return tensors, torch.randn(shapes[0], generator=generator)


def both_ways(function, tensors, direction):
    """Output and gradients of q, k, v, sinks."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    return [
        output.detach(),
        *torch.autograd.grad((output * direction.to(output.dtype)).sum(), leaves, materialize_grads=True),
    ]


@st.composite
def regimes(draw):
    batch, kv_len = draw(st.integers(1, 3)), draw(st.integers(1, 24))
    q_len = draw(st.integers(1, kv_len))
    free = kv_len - q_len
    rows = {"min_size": batch, "max_size": batch}
    return Regime(
        batch, q_len, kv_len,
        window=draw(st.none() | st.integers(1, 30)),
        pads=draw(st.none() | st.lists(st.integers(0, kv_len - 1), **rows)),
        offsets=draw(st.just(free) | st.integers(0, free) | st.lists(st.integers(0, free), **rows)),
        documents=draw(
            st.none()
            | st.lists(st.lists(st.integers(0, 2), min_size=kv_len, max_size=kv_len).map(sorted), **rows)
        ),
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(
    regime=regimes(), heads=st.sampled_from([(1, 1), (2, 1), (4, 2), (8, 1)]), dim=st.sampled_from([8, 16, 64]),
    seed=st.integers(0, 99),
)  # fmt: skip
@example(regime=Regime(2, 5, 9, pads=[8, 0], offsets=0), heads=(4, 2), dim=16, seed=1)  # rows that see nothing
@example(regime=Regime(1, 24, 24), heads=(8, 1), dim=64, seed=2)  # the plain triangle
@example(regime=Regime(2, 24, 24, window=5, pads=[0, 11]), heads=(4, 2), dim=16, seed=3)  # in blocks of a window
@example(regime=Regime(1, 23, 23, window=4, documents=[[0] * 9 + [1] * 14]), heads=(4, 2), dim=16, seed=4)
@example(regime=Regime(1, 9, 9, window=1), heads=(2, 1), dim=8, seed=5)
def test_against_the_definition(backend, regime, heads, dim, seed):
    """Any batch, window, padding, offset and documents, forwards and backwards, in fp32; a query without any key gets
    zeros and gives no gradient."""
    tensors, direction = draw(regime, *heads, dim=dim, seed=seed)
    mask = regime.mask()
    scale = dim**-0.5
    ours = both_ways(lambda *x: sink_attention(*x, mask, scale=scale, backend=backend), tensors, direction)
    exact = both_ways(lambda *x: reference(regime, *x, scale), [x.double() for x in tensors], direction.double())
    assert (ours[0] - exact[0]).abs().max() <= 2e-6
    for gradient, wanted in zip(ours[1:], exact[1:]):
        assert (gradient - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max())
    for row in range(regime.batch):
        for query in range(regime.q_len):
            if not regime.keys(row, query):
                assert not ours[0][row, :, query].any() and not ours[1][row, :, query].any()


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


def test_sinks_beyond_sixteen_bits():
    """A sink enters sdpa as a key: rounded to bf16, 12.3456 would come out 0.3 % away from where it is."""
    regime = Regime(1, 3, 3)
    (q, k, v, _), _ = draw(regime, 4, 1, dtype=torch.bfloat16)
    sinks = torch.tensor([12.3456, -3.21987, 0.01234, 7.777])
    ours, exact = (
        sink_attention(*(x.to(kind) for x in (q, k, v)), sinks.to(torch.promote_types(kind, torch.float32)),
                       regime.mask(), scale=SCALE, backend=backend)
        for backend, kind in (("sdpa", torch.bfloat16), ("eager", torch.float64))
    )  # fmt: skip
    for head in range(4):
        assert (ours[:, head] - exact[:, head]).norm() <= 4e-3 * exact[:, head].norm()


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


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 400), st.integers(0, 300)), window=st.none() | st.integers(1, 500),
    pad=st.integers(0, 250), documents=st.booleans(), data=st.data(),
)  # fmt: skip
def test_block_mask_is_pytorchs(lengths, window, pad, documents, data):
    """Worked out from bounds; PyTorch makes it from all pairs. A block left out is attention lost without a word."""
    from torch.nn.attention.flex_attention import create_block_mask

    q_len, kv_len = lengths[0], sum(lengths)
    ids = None
    if documents:
        cuts = data.draw(st.lists(st.integers(0, kv_len), max_size=4))
        ids = sum((torch.arange(kv_len) >= cut).long() for cut in cuts) + torch.zeros(2, kv_len, dtype=torch.long)
    mask = AttentionMask(
        2, q_len, kv_len, window=window, left_pad=torch.tensor([0, min(pad, kv_len - 1)]), document_ids=ids,
        q_offset=torch.tensor([kv_len - q_len, data.draw(st.integers(0, kv_len - q_len))]),
    )  # fmt: skip
    ours, theirs = mask.block_mask(), create_block_mask(mask.mask_mod, 2, None, q_len, kv_len, device="cpu")
    for side in ("kv", "q"):
        full, some = (
            [listed(getattr(blocks, f"{kind}{side}_num_blocks"), getattr(blocks, f"{kind}{side}_indices"))
             for blocks in (ours, theirs)] for kind in ("full_", "")
        )  # fmt: skip
        if documents:  # bounds of ids may take a block along that holds nothing: slower, never wrong
            assert full[0] <= full[1] and full[1] | some[1] <= full[0] | some[0]
        else:
            assert full[0] == full[1] and some[0] == some[1]


def listed(counts, indices):
    """{(row, block, other block)} of one of BlockMask's pairs of tables."""
    return {
        (row, block, int(other))
        for row in range(counts.shape[0])
        for block in range(counts.shape[2])
        for other in indices[row, 0, block, : counts[row, 0, block]]
    }


def test_dense_additive_and_rule_agree():
    mask = AttentionMask(2, 40, 60, window=13, left_pad=torch.tensor([0, 31]), q_offset=20)
    row, query, key = torch.meshgrid(torch.arange(2), torch.arange(40), torch.arange(60), indexing="ij")
    assert mask.dense().shape == (2, 1, 40, 60)
    assert torch.equal(mask.mask_mod(row, 0, query, key), mask.dense()[:, 0])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        wanted = torch.zeros(2, 1, 40, 60, dtype=dtype).masked_fill(~mask.dense(), torch.finfo(dtype).min)
        assert torch.equal(mask.additive(dtype), wanted)


def test_a_window_counts_the_query_itself():
    """128 means 128 keys; `<=` would give 129."""
    assert AttentionMask(1, 300, 300, window=128).dense()[0, 0, -1].sum() == 128


def test_a_long_mask_is_small():
    """131,072 tokens: all pairs would be 16 GiB, the blocks are a few MiB."""
    mask = AttentionMask(1, 131_072, 131_072, window=128)
    blocks = mask.block_mask()
    assert int(blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum()) == 2 * 1024 - 1
    assert mask._dense is None


class TestMoving:
    """A decoding step moves the mask of the step before."""

    def test_is_a_new_mask_in_the_old_ones_place(self):
        moved = AttentionMask(2, 1, 512, window=100, left_pad=torch.tensor([0, 3]), q_offset=7)
        blocks = moved.block_mask()
        tensors = {name: getattr(blocks, name).data_ptr() for name in ("kv_num_blocks", "kv_indices", "q_indices")}
        for offset, pads in ((8, [0, 3]), (140, [5, 3]), ([300, 511], [0, 200])):
            there = torch.tensor(offset) if isinstance(offset, list) else offset
            moved.move(there, torch.tensor(pads))
            fresh = AttentionMask(2, 1, 512, window=100, left_pad=torch.tensor(pads), q_offset=there)
            assert torch.equal(moved.dense(), fresh.dense())
            assert moved.block_mask() is blocks
            for name in ("kv", "full_kv", "q", "full_q"):
                pairs = (
                    (getattr(x, f"{name}_num_blocks"), getattr(x, f"{name}_indices"))
                    for x in (blocks, fresh.block_mask())
                )
                assert len({frozenset(listed(*pair)) for pair in pairs}) == 1
            assert tensors == {name: getattr(blocks, name).data_ptr() for name in tensors}

    def test_nothing_is_compiled_again_over_a_thousand_steps(self):
        """Dynamo's guards are the same on every device; on a GPU a recompilation takes seconds, in each step."""
        from torch._dynamo.testing import CompileCounter
        from torch.nn.attention.flex_attention import AuxRequest

        counter = CompileCounter()
        attend = compiled_flex(counter)
        mask = AttentionMask(2, 1, 1024, window=128, left_pad=torch.tensor([0, 9]), q_offset=10)
        blocks = mask.block_mask()
        (q, k, v, _), _ = draw(Regime(2, 1, 1024), 4, 2)
        with torch.no_grad():
            for step in range(1000):
                mask.move(torch.tensor([11 + step, 20 + step]))
                assert mask.block_mask() is blocks
                output, _ = attend(
                    q, k, v, block_mask=blocks, scale=SCALE, enable_gqa=True, return_aux=AuxRequest(lse=True)
                )
        assert counter.frame_count == 1
        exact = sink_attention(q, k, v, torch.full((4,), -1e4), mask, scale=SCALE, backend="eager")
        torch.testing.assert_close(output, exact)

    def test_other_windows_and_padding_are_the_same_kernel(self):
        from torch._dynamo.testing import CompileCounter

        counter = CompileCounter()
        attend = compiled_flex(counter)
        for regime in (Regime(2, 20, 20), Regime(2, 20, 20, window=3), Regime(2, 20, 20, window=5, pads=[0, 4])):
            (q, k, v, _), _ = draw(regime, 4, 2)
            with torch.no_grad():
                attend(q, k, v, block_mask=regime.mask().block_mask(), scale=SCALE, enable_gqa=True)
        assert counter.frame_count == 1


def test_auto_by_regime():
    (q, *_), _ = draw(Regime(1, 5, 5), 2, 1)
    assert choose_backend(q[:, :, :1], AttentionMask(1, 1, 5)) == "eager"
    assert choose_backend(q, AttentionMask(1, 5, 5)) == "sdpa"


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
        (lambda: AttentionMask(1, 4, 3), r"q_offset must be from 0 to -1 with q_len 4 and kv_len 3"),
        (lambda: AttentionMask(1, 4, 8, q_offset=5), r"q_offset must be from 0 to 4 .* got 5"),
        (lambda: AttentionMask(2, 4, 8, q_offset=torch.tensor([4, 5])), r"q_offset must be .* got \[4, 5\]"),
        (lambda: AttentionMask(1, 4, 8, q_offset=-1), r"q_offset must be from 0"),
        (lambda: AttentionMask(2, 4, 8, q_offset=torch.tensor([1, 2, 3])), r"q_offset must be .*\[2\].* got \[3\]"),
        (lambda: AttentionMask(1, 4, 4, window=0), r"window must be at least 1 .* got 0 for kv_len 4"),
        (lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([1])), r"left_pad must be .*\[2\].* got \[1\]"),
        (lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([0, 4])), r"left_pad must be from 0 to 3 .*\[0, 4\]"),
        (lambda: AttentionMask(1, 4, 4, document_ids=torch.zeros(1, 3)), r"document_ids must be \[1, 4\]"),
        (lambda: AttentionMask(0, 4, 4), r"batch, q_len and kv_len must be at least 1, got 0, 4, 4"),
        (lambda: attend((3, 2)), r"heads of k and v must divide those of q.* q \[1, 3, 4, 16\], k \[1, 2, 4, 16\]"),
        (lambda: attend(sinks=torch.zeros(3)), r"sinks be \[Hq\], .* sinks \[3\]"),
        (lambda: attend(v=torch.zeros(1, 1, 5, 16)), r"v \[1, 1, 5, 16\]"),
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
    from helpers.kernels import attention

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
