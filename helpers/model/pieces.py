"""Move large tensors in pieces, so that it takes no second copy of them."""

import torch
from torch import Tensor

#: The most bytes of a piece.
PIECE_BYTES = 64 * 2**20


def copy_to(tensor: Tensor, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Return a copy of `tensor` on `device` as `dtype`, converted there piece by piece; always a copy."""
    copy = torch.empty(tensor.shape, dtype=dtype, device=device)
    count = PIECE_BYTES // tensor.itemsize
    for piece, place in zip(tensor.flatten().split(count), copy.flatten().split(count)):
        place.copy_(piece.to(device))
    return copy
