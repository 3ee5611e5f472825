"""What tests of masks and attention share: regimes in plain numbers, and the definition in loops."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

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
    """The definition, in double precision: nothing here is shared with the kernels or the mask."""
    q, k, v, sinks = (x.double() for x in (q, k, v, sinks))
    k, v = (torch.stack([x[:, h // (q.shape[1] // k.shape[1])] for h in range(q.shape[1])], 1) for x in (k, v))
    seen = torch.zeros(regime.batch, 1, regime.q_len, regime.kv_len, dtype=torch.bool)
    for row in range(regime.batch):
        for query in range(regime.q_len):
            seen[row, 0, query, regime.keys(row, query)] = True
    weights = (scale * torch.einsum("bhqd,bhkd->bhqk", q, k)).exp() * seen
    total = weights.sum(-1, keepdim=True) + sinks.exp()[:, None, None]
    return torch.einsum("bhqk,bhkd->bhqd", weights / total, v)


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
def regimes(draw, longest=24):
    batch, kv_len = draw(st.integers(1, 3)), draw(st.integers(1, longest))
    q_len = draw(st.just(kv_len) | st.integers(1, kv_len))
    free = kv_len - q_len
    rows = {"min_size": batch, "max_size": batch}
    return Regime(
        batch, q_len, kv_len,
        window=draw(st.none() | st.integers(1, longest + 6)),
        pads=draw(st.none() | st.lists(st.integers(0, kv_len - 1), **rows)),
        offsets=draw(st.just(free) | st.integers(0, free) | st.lists(st.integers(0, free), **rows)),
        documents=draw(
            st.none() | st.lists(st.lists(st.integers(-3, 3), min_size=kv_len, max_size=kv_len), **rows)
            | st.lists(st.lists(st.integers(0, 2), min_size=kv_len, max_size=kv_len).map(sorted), **rows)
        ),
    )  # fmt: skip
