"""Keys and values of a rollout, and if asked the experts of its tokens, in buffers that never move.

Each layer has one buffer for keys and one for values, [rows, Hkv, places, D]. Place 0 is the sink's: a key and a value
of zeros, whose score is the bias alone (see `helpers.kernels.attention.decode_attention`). In a layer with full
attention, position p lies at place 1 + p. A sliding layer is a ring: position p lies at place 1 + p mod window, so that
after position `pos` was written, place 1 + j holds position pos - (pos - j) mod window. In both, what a query at `pos`
may see lies at the places 1 + j with j <= pos.

The experts of all layers have one buffer, [rows, length, layers, K], which position p has to itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GptOssConfig


@dataclass(frozen=True)
class LayerCache:
    """The buffers of one layer.

    keys, values: [rows, Hkv, 1 + capacity, D]. window: of a sliding layer, None for full attention.
    """

    keys: Tensor
    values: Tensor
    window: int | None

    @property
    def capacity(self) -> int:
        """Positions that a row holds."""
        return self.keys.shape[2] - 1

    def places(self, positions: Tensor) -> Tensor:
        """Where positions lie; int64 of any shape."""
        return 1 + (positions % self.window if self.window else positions)

    def places_of(self, positions: range) -> slice | list[int]:
        """Where consecutive positions lie: a slice where they are in one piece."""
        if not positions:
            return slice(0, 0)
        lap = positions.start // self.window if self.window else 0
        if self.window and (positions.stop - 1) // self.window != lap:
            return [1 + position % self.window for position in positions]
        begin = 1 + positions.start - lap * (self.window or 0)
        return slice(begin, begin + len(positions))

    def filled(self, length: int) -> int:
        """Places to look at when no position is beyond `length` - 1, the sink's among them."""
        return 1 + min(length, self.capacity)


class RolloutCache:
    """The cache of every layer.

    rows: sequences that are decoded together. There is one more, `prompt_row`, for a prompt whose other completions
    start later. length: the most tokens of a row. record_experts: keep `experts`, uint8 [rows + 1, length, layers, K],
    the experts that each layer chose for the token at each position; else it is None.
    """

    def __init__(
        self,
        config: GptOssConfig,
        rows: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        record_experts: bool = False,
    ):
        self.rows = rows
        self.prompt_row = rows
        self.length = length
        self.layers = []
        for kind in config.layer_types:
            window = config.sliding_window if kind == "sliding_attention" else None
            capacity = min(window, length) if window else length
            shape = (rows + 1, config.num_key_value_heads, 1 + capacity, config.head_dim)
            keys = torch.zeros(shape, dtype=dtype, device=device)
            values = torch.zeros(shape, dtype=dtype, device=device)
            self.layers.append(LayerCache(keys, values, capacity if window else None))
        self.experts = None
        if record_experts:
            shape = (rows + 1, length, config.num_hidden_layers, config.num_experts_per_tok)
            self.experts = torch.zeros(shape, dtype=torch.uint8, device=device)

    def copy_row(self, source: int, targets: list[int], length: int) -> None:
        """Copy the first `length` positions of a row to other rows."""
        if not targets:
            return
        rows = torch.tensor(targets, device=self.layers[0].keys.device)
        for layer in self.layers:
            places = layer.filled(length)
            for buffer in (layer.keys, layer.values):
                buffer[rows, :, :places] = buffer[source, :, :places].clone()
        if self.experts is not None:
            self.experts[rows, :length] = self.experts[source, :length].clone()

    def clear(self) -> None:
        """Set everything to zero: a NaN that a rollout has left would reach the next one through hidden places."""
        for buffer in self.buffers():
            buffer.zero_()

    def buffers(self) -> list[Tensor]:
        """Keys and values of every layer, and the experts if they are recorded."""
        keys_and_values = [buffer for layer in self.layers for buffer in (layer.keys, layer.values)]
        return keys_and_values if self.experts is None else [*keys_and_values, self.experts]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers())
