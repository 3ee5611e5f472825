"""Visibility: one rule for prefill, decoding, chunks, left padding, sliding windows and packed rows."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

#: Queries and keys in a block of FlexAttention's table, PyTorch's own default.
BLOCK = 128
#: Window of a layer that has none.
NO_WINDOW = 2**31 - 1


class AttentionMask:
    """Causal visibility for `batch` rows of `q_len` queries and `kv_len` keys.

    Query i of a row stands at position q_offset + i, key j at position j. The query at p sees key j if

        left_pad <= j <= p    and, with a window,    p - j < window    and, with documents,    both are of one document

    so a window of 128 means 128 keys, the query's own among them. `mask_mod` is that rule as a function
    (row, head, query, key) -> bool on indices that broadcast.

    Args:
        window: keys a query may see, at least 1; None: all.
        left_pad: LongTensor [batch], keys at the start of each row that nobody sees.
        q_offset: int, or a LongTensor [] or [batch] on the mask's device.
        document_ids: LongTensor [batch, kv_len], equal within a document, for several documents in one row.
        device: default: that of the tensors given, else the CPU.

    Attributes:
        q_offset, left_pad: int64 [batch] on the mask's device, whatever form they were given in. `move` writes into
            them, and `mask_mod` reads them there: a compiled kernel sees tensors and no numbers.

    Raises ValueError for values that fit no mask. Values that only a GPU knows are not fetched from it to be checked.
    """

    def __init__(
        self,
        batch: int,
        q_len: int,
        kv_len: int,
        *,
        window: int | None = None,
        left_pad: Tensor | None = None,
        q_offset: int | Tensor = 0,
        document_ids: Tensor | None = None,
        device: torch.device | str | None = None,
    ):
        if min(batch, q_len, kv_len) < 1:
            raise ValueError(f"batch, q_len and kv_len must be at least 1, got {batch}, {q_len}, {kv_len}")
        if window is not None and (not isinstance(window, int) or window < 1):
            raise ValueError(f"window must be an int from 1 (a query sees itself), got {window} for kv_len {kv_len}")
        self.batch = batch
        self.q_len = q_len
        self.kv_len = kv_len
        self.window = window
        self.device = _device_of(device, left_pad, document_ids, q_offset)

        self.document_ids = None
        if document_ids is not None:
            self._check("document_ids", document_ids, shapes=((batch, kv_len),), most=None)
            self.document_ids = document_ids.to(self.device)
        self.q_offset = torch.zeros(batch, dtype=torch.long, device=self.device)
        self.left_pad = torch.zeros(batch, dtype=torch.long, device=self.device)
        window_on_device = torch.full((), window or NO_WINDOW, device=self.device)
        self.mask_mod = _rule(self.q_offset, self.left_pad, window_on_device, self.document_ids)

        # known without asking the device
        self._has_left_pad = False
        self._offset_is_a_number = False
        self._derived = {}
        self._block_mask = None
        self.move(q_offset, left_pad)

    def move(self, q_offset: int | Tensor, left_pad: Tensor | None = None) -> None:
        """Put the queries at another offset, and the padding elsewhere if given, in place.

        Tensors keep their addresses and the block mask its identity, so that nothing is built or compiled again. Not
        between a forward pass and its backward pass, and not out of or into `torch.inference_mode`. Arguments and
        errors as in the constructor; after an error the mask is where it was.
        """
        self._check("q_offset", q_offset, shapes=((), (self.batch,)), most=self.kv_len - self.q_len)
        if left_pad is not None:
            self._check("left_pad", left_pad, shapes=((self.batch,),), most=self.kv_len - 1)
            self.left_pad.copy_(left_pad)
            self._has_left_pad = True
        self._offset_is_a_number = isinstance(q_offset, int)
        if self._offset_is_a_number:
            self.q_offset.fill_(q_offset)
        else:
            self.q_offset.copy_(q_offset)
        self._derived.clear()
        if self._block_mask is not None:
            for name, table in self._tables().items():
                getattr(self._block_mask, name).copy_(table)

    def _check(self, name: str, value: int | Tensor, shapes: tuple, most: int | None) -> None:
        """Raise ValueError unless `value` holds integers, in one of `shapes` and from 0 to `most`."""
        tensor = torch.tensor(value) if isinstance(value, int) else value
        if not isinstance(tensor, Tensor):
            got = type(value).__name__
        elif tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.shape not in shapes:
            got = f"{tensor.dtype} {list(tensor.shape)}"
        else:
            got = ""
        if got:
            wanted = " or ".join("an int" if shape == () else f"integers {list(shape)}" for shape in shapes)
            raise ValueError(f"{name} must be {wanted} for batch {self.batch} and kv_len {self.kv_len}, got {got}")
        if most is None or tensor.is_cuda:
            return
        inside = (tensor >= 0) & (tensor <= most)
        if not bool(inside.all()):
            raise ValueError(
                f"{name} must be from 0 to {most} with q_len {self.q_len} and kv_len {self.kv_len}, "
                f"got {tensor.tolist()}"
            )

    def derived(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return `make()`, kept under that name until the mask moves: the layers of a model share it."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]

    @property
    def plain(self) -> bool:
        """True if the mask is nothing but the causal triangle, and known to be so without asking the device."""
        is_triangle = self.q_len == self.kv_len <= (self.window or NO_WINDOW)
        return is_triangle and self._offset_is_a_number and not self._has_left_pad and self.document_ids is None

    def dense(self) -> Tensor:
        """bool [batch, 1, q_len, kv_len], True where the key is visible."""
        return self.derived("dense", self._dense)

    def _dense(self) -> Tensor:
        row = torch.arange(self.batch, device=self.device)[:, None, None]
        query = torch.arange(self.q_len, device=self.device)[:, None]
        key = torch.arange(self.kv_len, device=self.device)
        visible = self.mask_mod(row, None, query, key)
        return visible.expand(self.batch, self.q_len, self.kv_len).unsqueeze(1)

    def additive(self, dtype: torch.dtype) -> Tensor:
        """[batch, 1, q_len, kv_len] to add to scores: 0 where visible, else the lowest finite value, as transformers
        has it."""
        zero = torch.zeros((), dtype=dtype, device=self.device)
        return torch.where(self.dense(), zero, torch.finfo(dtype).min)

    def block_mask(self):
        """The same rule for FlexAttention, as a `BlockMask`; built once and kept through `move`.

        It is worked out from the rule's bounds, block by block: no q_len x kv_len matrix is made.
        """
        if self._block_mask is None:
            from torch.nn.attention.flex_attention import BlockMask

            tables = self._tables()
            self._block_mask = BlockMask.from_kv_blocks(
                tables["kv_num_blocks"],
                tables["kv_indices"],
                tables["full_kv_num_blocks"],
                tables["full_kv_indices"],
                BLOCK_SIZE=BLOCK,
                mask_mod=self.mask_mod,
                seq_lengths=(self.q_len, self.kv_len),
            )
        return self._block_mask

    def _tables(self) -> dict[str, Tensor]:
        """BlockMask's eight tensors: for each block of queries those of keys, and the reverse, partial and full."""
        some, full = self._blocks()
        tables = {}
        for prefix, blocks in (("", some & ~full), ("full_", full)):
            for side, grid in (("kv", blocks), ("q", blocks.transpose(-1, -2))):
                tables[f"{prefix}{side}_num_blocks"] = grid.sum(-1, dtype=torch.int32)
                order = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True)
                tables[f"{prefix}{side}_indices"] = order.to(torch.int32)
        return tables

    def _blocks(self) -> tuple[Tensor, Tensor]:
        """Two bool [batch, 1, query blocks, key blocks]: something is visible, or may be; everything is."""
        window = self.window or NO_WINDOW
        edges = partial(torch.arange, step=BLOCK, device=self.device)
        query = edges(0, self.q_len)[:, None]  # the first query of each block
        key = edges(0, self.kv_len)  # the first key of each block
        last = (key + BLOCK).clamp(max=self.kv_len) - 1
        offset = self.q_offset.reshape(-1, 1, 1, 1)
        pad = self.left_pad.reshape(-1, 1, 1, 1)

        # positions of the first and the last query of a block, and its first key that is no padding
        low = offset + query
        high = offset + (query + BLOCK).clamp(max=self.q_len) - 1
        first = torch.maximum(key, pad)

        some = (first <= last) & (high >= first) & (low - last < window)
        full = (key >= pad) & (last <= low) & (high - key < window)
        full &= (query + BLOCK <= self.q_len) & (key + BLOCK <= self.kv_len)
        if self.document_ids is not None:
            may_share, must_share = self._blocks_of_one_document()
            some &= may_share
            full &= must_share
        return some, full

    def _blocks_of_one_document(self) -> tuple[Tensor, Tensor]:
        """Two bool [batch, 1, query blocks, key blocks]: some pair may be of one document; every pair is."""
        position = self.q_offset[:, None] + torch.arange(self.q_len, device=self.device)
        query_low, query_high = _block_range(self.document_ids.gather(1, position))
        key_low, key_high = _block_range(self.document_ids)
        query_low = query_low[:, None, :, None]
        query_high = query_high[:, None, :, None]
        key_low = key_low[:, None, None]
        key_high = key_high[:, None, None]
        may_share = (query_low <= key_high) & (key_low <= query_high)
        must_share = (query_low == key_high) & (key_low == query_high)
        return may_share, must_share


def _device_of(device: torch.device | str | None, *values: int | Tensor | None) -> torch.device:
    """The device that was asked for, else that of the first tensor among `values`, else the CPU."""
    if device is not None:
        return torch.device(device)
    for value in values:
        if isinstance(value, Tensor):
            return value.device
    return torch.device("cpu")


def _rule(q_offset: Tensor, left_pad: Tensor, window: Tensor, document_ids: Tensor | None) -> Callable:
    """One function for every regime, so that one compiled kernel serves them all."""

    def visible(row, head, query, key):
        position = query + q_offset[row]
        return (key <= position) & (position - key < window) & (key >= left_pad[row])

    def visible_in_document(row, head, query, key):
        same = document_ids[row, query + q_offset[row]] == document_ids[row, key]
        return visible(row, head, query, key) & same

    return visible if document_ids is None else visible_in_document


def _block_range(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Lowest and highest id [batch, blocks] in each block of ids [batch, length]."""
    length = ids.shape[1]
    blocks = F.pad(ids, (0, -length % BLOCK)).unflatten(1, (-1, BLOCK))
    place = torch.arange(blocks.shape[1] * BLOCK, device=ids.device).view(-1, BLOCK)
    is_real = place < length
    limits = torch.iinfo(ids.dtype)
    lowest = blocks.where(is_real, limits.max).amin(-1)
    highest = blocks.where(is_real, limits.min).amax(-1)
    return lowest, highest
