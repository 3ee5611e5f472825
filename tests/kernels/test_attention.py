import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.attention import AttentionMask, sink_attention


def reference(q, k, v, sinks, mask, scale):
    """The definition in loops, in double precision: nothing here is shared with the kernels."""
    output = torch.zeros_like(q, dtype=torch.float64)
    per_key_head = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                position = mask.q_offset + i
                first = int(mask.left_pad[b]) if mask.left_pad is not None else 0
                if mask.window is not None:
                    first = max(first, position - mask.window + 1)
                keys = range(first, position + 1)
                scores = [scale * (q[b, h, i].double() @ k[b, h // per_key_head, j].double()) for j in keys]
                total = sum(math.exp(s) for s in scores) + math.exp(sinks[h])
                for j, s in zip(keys, scores):
                    output[b, h, i] += math.exp(s) / total * v[b, h // per_key_head, j].double()
    return output


def draw(batch, heads, key_heads, mask, dim=16, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (batch, heads, mask.q_len, dim),
        (batch, key_heads, mask.kv_len, dim),
        (batch, key_heads, mask.kv_len, dim),
        (heads,),
    ]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@st.composite
def masks(draw):
    batch = draw(st.integers(1, 3))
    kv_len = draw(st.integers(1, 24))
    q_len = draw(st.integers(1, kv_len))
    window = draw(st.none() | st.integers(1, 30))
    pads = draw(st.none() | st.lists(st.integers(0, kv_len - 1), min_size=batch, max_size=batch))
    left_pad = None if pads is None else torch.tensor(pads)
    return AttentionMask(batch, q_len, kv_len, window=window, left_pad=left_pad, q_offset=kv_len - q_len)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
@settings(max_examples=25, deadline=None)
@given(mask=masks(), heads=st.sampled_from([(2, 1), (4, 2), (8, 1)]), seed=st.integers(0, 99))
def test_against_the_definition(backend, mask, heads, seed):
    """Any batch, window, padding and offset; a query without any key gets zeros."""
    q, k, v, sinks = draw(mask.batch, *heads, mask, seed=seed)
    ours = sink_attention(q, k, v, sinks, mask, scale=0.25, backend=backend)
    torch.testing.assert_close(ours.double(), reference(q, k, v, sinks, mask, 0.25), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "flex"])
@pytest.mark.parametrize("window", [None, 7])
def test_gradients_against_the_definition(backend, window):
    """A kernel may be right forward and drop the sink's, or the log-sum-exp's, gradient."""
    mask = AttentionMask(2, 9, 14, window=window, left_pad=torch.tensor([0, 3]), q_offset=5)
    leaves = [tensor.requires_grad_() for tensor in draw(2, 4, 2, mask)]
    direction = torch.randn(leaves[0].shape, generator=torch.Generator().manual_seed(5))
    ours = torch.autograd.grad((sink_attention(*leaves, mask, scale=0.25, backend=backend) * direction).sum(), leaves)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    value = (sink_attention(*doubles, mask, scale=0.25, backend="eager") * direction).sum()
    theirs = torch.autograd.grad(value, doubles)
    for gradient, wanted in zip(ours, theirs):
        torch.testing.assert_close(gradient.double(), wanted, atol=2e-5, rtol=1e-4)
    assert all(gradient.abs().sum() > 0 for gradient in ours)


def test_eager_gradient_by_finite_differences():
    """The reference of the test above, checked without autograd."""
    mask = AttentionMask(1, 3, 5, window=3, q_offset=2)
    leaves = [tensor.requires_grad_() for tensor in draw(1, 2, 1, mask, dim=4, dtype=torch.float64)]
    assert torch.autograd.gradcheck(
        lambda *tensors: sink_attention(*tensors, mask, scale=0.5, backend="eager"), leaves, atol=1e-6
    )


@pytest.mark.parametrize("backend", ["eager", "flex"])
def test_lse_is_natural_and_without_the_sink(backend):
    """FlexAttention's operator returns it in base 2."""
    mask = AttentionMask(1, 4, 4)
    q, k, v, sinks = draw(1, 1, 1, mask)
    _, lse = sink_attention(q, k, v, sinks, mask, scale=0.25, backend=backend, return_lse=True)
    scores = (q @ k.transpose(-1, -2) * 0.25)[0, 0]
    wanted = torch.stack([scores[i, : i + 1].logsumexp(0) for i in range(4)])
    torch.testing.assert_close(lse[0, 0], wanted)


def test_block_mask_agrees_with_dense():
    mask = AttentionMask(2, 40, 60, window=13, left_pad=torch.tensor([0, 31]), q_offset=20)
    row, query, key = torch.meshgrid(torch.arange(2), torch.arange(40), torch.arange(60), indexing="ij")
    assert torch.equal(mask.block_mask().mask_mod(row, 0, query, key), mask.dense()[:, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AttentionMask(1, 4, 3),
        lambda: AttentionMask(1, 4, 4, window=0),
        lambda: AttentionMask(2, 4, 4, left_pad=torch.tensor([1])),
        lambda: sink_attention(*draw(1, 3, 2, AttentionMask(1, 4, 4)), AttentionMask(1, 4, 4), scale=1.0),
        lambda: sink_attention(*draw(1, 2, 1, AttentionMask(1, 4, 4)), AttentionMask(1, 3, 4), scale=1.0),
        lambda: sink_attention(*draw(1, 2, 1, AttentionMask(1, 4, 4)), AttentionMask(1, 4, 4), scale=1.0, backend="x"),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(ValueError):
        wrong()
