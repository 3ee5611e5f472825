import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention import sink_attention
from helpers.kernels.masks import AttentionMask
from tests.kernels.attention import SCALE, Regime, draw


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
    assert not mask._derived


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: AttentionMask(1, 4, 3), r"q_offset must be from 0 to -1 with q_len 4 and kv_len 3"),
        (lambda: AttentionMask(1, 4, 8, q_offset=5), r"q_offset must be from 0 to 4 .* got 5"),
        (lambda: AttentionMask(2, 4, 8, q_offset=torch.tensor([4, 5])), r"q_offset must be .* got \[4, 5\]"),
        (lambda: AttentionMask(1, 4, 8, q_offset=-1), r"q_offset must be from 0"),
        (lambda: AttentionMask(1, 4, 8, q_offset=1.5), r"q_offset must be an int or integers \[1\] .*, got float"),
        (lambda: AttentionMask(2, 4, 8, q_offset=torch.tensor([1, 2, 3])), r"q_offset must be .*\[2\].* got .*\[3\]"),
        (lambda: AttentionMask(1, 4, 4, window=0), r"window must be an int from 1 .* got 0 for kv_len 4"),
        (lambda: AttentionMask(1, 4, 4, window=2.5), r"window must be an int from 1 .* got 2.5"),
        (lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([1])), r"left_pad must be integers \[2\].* got .*\[1\]"),
        (lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([0, 4])), r"left_pad must be from 0 to 3 .*\[0, 4\]"),
        (lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([0, 1.7])), r"left_pad must be .*float32"),
        (lambda: AttentionMask(2, 4, 4, left_pad=[0, 1]), r"left_pad must be integers \[2\] .*, got list"),
        (lambda: AttentionMask(1, 4, 4, document_ids=torch.zeros(1, 3).int()), r"document_ids must be integers"),
        (lambda: AttentionMask(1, 4, 4, document_ids=torch.zeros(1, 4)), r"document_ids must be integers .*float32"),
        (lambda: AttentionMask(0, 4, 4), r"batch, q_len and kv_len must be at least 1, got 0, 4, 4"),
    ],
)  # fmt: skip
def test_what_fits_no_mask_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def test_integers_of_any_width_and_sign():
    """A tokenizer's or numpy's int32; ids that are not sorted, or negative."""
    ids = torch.tensor([[-1, 5, 5, -1, 5]])
    for kind in (torch.int16, torch.int32, torch.int64):
        pad, at = torch.tensor([1], dtype=kind), torch.tensor(1, dtype=kind)
        mask = AttentionMask(1, 4, 5, left_pad=pad, q_offset=at, document_ids=ids.to(kind))
        assert mask.dense()[0, 0].sum(-1).tolist() == [1, 2, 1, 3]
        assert mask.block_mask().to_dense().all()


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

    def test_a_refused_move_moves_nothing(self):
        mask = AttentionMask(1, 1, 8, q_offset=2)
        mask.dense()
        with pytest.raises(ValueError, match="left_pad"):
            mask.move(6, torch.tensor([99]))
        assert mask.q_offset == 2 and mask.dense().sum() == 3
        assert mask.mask_mod(torch.tensor(0), 0, torch.tensor(0), torch.arange(8)).sum() == 3

    def test_nothing_is_compiled_again_over_a_thousand_steps(self):
        """Dynamo's guards are the same on every device; on a GPU a recompilation takes seconds, in each step."""
        from torch._dynamo.testing import CompileCounter
        from torch.nn.attention.flex_attention import AuxRequest, flex_attention

        counter = CompileCounter()
        attend = torch.compile(flex_attention, backend=counter)
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
        from torch.nn.attention.flex_attention import flex_attention

        counter = CompileCounter()
        attend = torch.compile(flex_attention, backend=counter)
        for regime in (Regime(2, 20, 20), Regime(2, 20, 20, window=3), Regime(2, 20, 20, window=5, pads=[0, 4])):
            (q, k, v, _), _ = draw(regime, 4, 2)
            with torch.no_grad():
                attend(q, k, v, block_mask=regime.mask().block_mask(), scale=SCALE, enable_gqa=True)
        assert counter.frame_count == 1
