"""Who may see whom: one rule for prefill, decoding, chunks, left padding, sliding windows and packed rows."""

from functools import partial

import torch

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

    Raises ValueError for values that fit no mask. What only a GPU knows is not fetched from it to be checked.
    """

    def __init__(self, batch, q_len, kv_len, *, window=None, left_pad=None, q_offset=0, document_ids=None, device=None):
        tensors = [x for x in (left_pad, document_ids, q_offset) if isinstance(x, torch.Tensor)]
        self.batch, self.q_len, self.kv_len, self.window = batch, q_len, kv_len, window
        self.device = torch.device(device if device is not None else tensors[0].device if tensors else "cpu")
        if min(batch, q_len, kv_len) < 1:
            raise ValueError(f"batch, q_len and kv_len must be at least 1, got {batch}, {q_len}, {kv_len}")
        if window is not None and (not isinstance(window, int) or window < 1):
            raise ValueError(f"window must be an int from 1 (a query sees itself), got {window} for kv_len {kv_len}")
        if document_ids is not None:
            self._check("document_ids", document_ids, ((batch, kv_len),), None)
            document_ids = document_ids.to(self.device)
        self.document_ids, self.left_pad = document_ids, None
        # Read by `mask_mod` on the device, where `move` changes them: a compiled kernel sees tensors and no numbers.
        self._offset = torch.zeros(batch, dtype=torch.long, device=self.device)
        self._pad = torch.zeros_like(self._offset)
        self._window = torch.full((), window or NO_WINDOW, device=self.device)
        self.mask_mod = _rule(self._offset, self._pad, self._window, self.document_ids)
        self._derived, self._block_mask = {}, None
        self.move(q_offset, left_pad)

    def move(self, q_offset, left_pad=None):
        """Put the queries at another offset, and the padding elsewhere if given, in place.

        Tensors keep their addresses and the block mask its identity, so that nothing is built or compiled again. Not
        between a forward pass and its backward pass, and not out of or into `torch.inference_mode`. Arguments and
        errors as in the constructor; after an error the mask is where it was.
        """
        rows = ((), (self.batch,))
        self._check("q_offset", q_offset, rows, self.kv_len - self.q_len)
        if left_pad is not None:
            self._check("left_pad", left_pad, rows[1:], self.kv_len - 1)
            self._pad.copy_(left_pad)
            self.left_pad = left_pad
        self._offset.copy_(q_offset) if isinstance(q_offset, torch.Tensor) else self._offset.fill_(q_offset)
        self.q_offset = q_offset
        self._derived.clear()
        if self._block_mask is not None:
            for name, table in self._tables().items():
                getattr(self._block_mask, name).copy_(table)

    def _check(self, name, value, shapes, most):
        """Raise ValueError unless `value` holds integers, in one of `shapes` and from 0 to `most`."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value) if isinstance(value, int) else None
        if tensor is None or tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.shape not in shapes:
            got = f"{tensor.dtype} {list(tensor.shape)}" if tensor is not None else type(value).__name__
            wanted = " or ".join("an int" if shape == () else f"integers {list(shape)}" for shape in shapes)
            raise ValueError(f"{name} must be {wanted} for batch {self.batch} and kv_len {self.kv_len}, got {got}")
        if most is not None and not tensor.is_cuda and not bool(((tensor >= 0) & (tensor <= most)).all()):
            raise ValueError(
                f"{name} must be from 0 to {most} with q_len {self.q_len} and kv_len {self.kv_len}, "
                f"got {tensor.tolist()}"
            )

    def derived(self, name, make):
        """`make()`, kept under that name until the mask moves: the layers of a model share it."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]

    @property
    def plain(self):
        """Nothing but the causal triangle, and known to be so without asking the device."""
        if self.left_pad is not None or self.document_ids is not None or not isinstance(self.q_offset, int):
            return False
        return self.q_len == self.kv_len <= (self.window or NO_WINDOW)

    def dense(self):
        """bool [batch, 1, q_len, kv_len], True where the key is visible."""
        return self.derived("dense", self._dense)

    def _dense(self):
        row, query, key = (torch.arange(n, device=self.device) for n in (self.batch, self.q_len, self.kv_len))
        visible = self.mask_mod(row[:, None, None], None, query[:, None], key)
        return visible.expand(self.batch, self.q_len, self.kv_len).unsqueeze(1)

    def additive(self, dtype):
        """[batch, 1, q_len, kv_len] to add to scores: 0 where visible, else the lowest finite value, as transformers
        has it."""
        zeros = torch.zeros((), dtype=dtype, device=self.device)
        return torch.where(self.dense(), zeros, torch.finfo(dtype).min)

    def block_mask(self):
        """The same for FlexAttention, as a `BlockMask`; built once and kept through `move`.

        It is worked out from the rule's bounds, block by block: no q_len x kv_len matrix is made.
        """
        if self._block_mask is None:
            from torch.nn.attention.flex_attention import BlockMask

            tables = self._tables()
            self._block_mask = BlockMask.from_kv_blocks(
                *(tables[name] for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")),
                BLOCK_SIZE=BLOCK, mask_mod=self.mask_mod, seq_lengths=(self.q_len, self.kv_len),
            )  # fmt: skip
        return self._block_mask

    def _tables(self):
        """BlockMask's eight tensors: for each block of queries those of keys, and the reverse, partial and full."""
        some, full = self._blocks()
        tables = {}
        for prefix, blocks in (("", some & ~full), ("full_", full)):
            for side, grid in (("kv", blocks), ("q", blocks.transpose(-1, -2))):
                tables[f"{prefix}{side}_num_blocks"] = grid.sum(-1, dtype=torch.int32)
                order = torch.argsort(grid.to(torch.int8), dim=-1, descending=True, stable=True)
                tables[f"{prefix}{side}_indices"] = order.to(torch.int32)
        return tables

    def _blocks(self):
        """Two bool [batch, 1, query blocks, key blocks]: something is visible, or may be; everything is."""
        edges = partial(torch.arange, step=BLOCK, device=self.device)
        query, key = edges(0, self.q_len)[:, None], edges(0, self.kv_len)
        offset, pad = (x.reshape(-1, 1, 1, 1) for x in (self._offset, self._pad))
        low, high = offset + query, offset + (query + BLOCK).clamp(max=self.q_len) - 1  # positions in the block
        last = (key + BLOCK).clamp(max=self.kv_len) - 1
        first = torch.maximum(key, pad)
        some = (first <= last) & (high >= first) & (low - last < self._window)
        full = (key >= pad) & (last <= low) & (high - key < self._window)
        full = full & (query + BLOCK <= self.q_len) & (key + BLOCK <= self.kv_len)
        if self.document_ids is not None:
            lowest, highest = _block_range(self.document_ids)
            at = self._offset[:, None] + torch.arange(self.q_len, device=self.device)
            own_lowest, own_highest = _block_range(self.document_ids.gather(1, at))
            own_lowest, own_highest = own_lowest[:, None, :, None], own_highest[:, None, :, None]
            lowest, highest = lowest[:, None, None], highest[:, None, None]
            some = some & (own_lowest <= highest) & (lowest <= own_highest)
            full = full & (own_lowest == highest) & (lowest == own_highest)
        return some, full


def _rule(q_offset, left_pad, window, document_ids):
    """One function for every regime, so that one compiled kernel serves them all."""

    def visible(row, head, query, key):
        position = query + q_offset[row]
        return (key <= position) & (position - key < window) & (key >= left_pad[row])

    def visible_in_document(row, head, query, key):
        same = document_ids[row, query + q_offset[row]] == document_ids[row, key]
        return visible(row, head, query, key) & same

    return visible if document_ids is None else visible_in_document


def _block_range(ids):
    """Lowest and highest id [batch, blocks] in each block of ids [batch, length]."""
    blocks = torch.nn.functional.pad(ids, (0, -ids.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    real = torch.arange(blocks.shape[1] * BLOCK, device=ids.device).view(-1, BLOCK) < ids.shape[1]
    limits = torch.iinfo(ids.dtype)
    return blocks.where(real, limits.max).amin(-1), blocks.where(real, limits.min).amax(-1)
