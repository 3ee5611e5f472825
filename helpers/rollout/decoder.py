"""The forward pass of a rollout over `DecoderWeights` and `RolloutCache`: a prefill of prompts, and one decoding step.

`decode_step` draws the next token of every row. All it reads and writes lies in buffers that were allocated before, and
neither its operations nor their order depend on a value on the device: so it can be captured once as a CUDA graph and
replayed. On the CPU the same function runs as it stands.

Letters of shapes: B rows, T tokens, H hidden size, V vocabulary, D head size, Hq and Hkv query and key heads.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.kernels.attention import decode_attention, sink_attention
from helpers.kernels.experts import routed_forward
from helpers.kernels.masks import AttentionMask
from helpers.rollout.cache import LayerCache, RolloutCache
from helpers.rollout.sampling import DeviceParams, draw
from helpers.rollout.weights import DecoderWeights, LayerWeights

if TYPE_CHECKING:
    from helpers.kernels.mxfp4_triton import Workspace


@dataclass(frozen=True)
class Rows:
    """What the sequences that are decoded together have reached.

    Attributes, one entry a row where nothing else is said:
        tokens: int64, the last token of each row, which the next step reads.
        positions: int64, where it stands.
        is_live: bool, the row is not finished.
        counts: int64, tokens drawn.
        keys: int64, streams of random numbers.
        drawn: int64 [B, length + 1], the tokens drawn; a finished row goes on writing behind its last.
        logprobs: fp32 [B, length + 1].
        is_stop: bool [V], the tokens that end a completion; the same for all rows.
        places: int64 [1 + length], what position lies at each place of the cache: -1 for the sink's, then 0, 1, ...;
            the same for all rows.
        row_numbers: int64, numbers from 0.
        params: the same for all rows.
    """

    tokens: Tensor
    positions: Tensor
    is_live: Tensor
    counts: Tensor
    keys: Tensor
    drawn: Tensor
    logprobs: Tensor
    is_stop: Tensor
    places: Tensor
    row_numbers: Tensor
    params: DeviceParams

    @classmethod
    def empty(cls, rows: int, length: int, vocabulary: int, device: torch.device) -> "Rows":
        """Allocate the buffers."""

        def whole_numbers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(
            tokens=whole_numbers(rows),
            positions=whole_numbers(rows),
            is_live=torch.zeros(rows, dtype=torch.bool, device=device),
            counts=whole_numbers(rows),
            keys=whole_numbers(rows),
            drawn=whole_numbers(rows, length + 1),
            logprobs=torch.zeros(rows, length + 1, device=device),
            is_stop=torch.zeros(vocabulary, dtype=torch.bool, device=device),
            places=torch.arange(-1, length, device=device),
            row_numbers=torch.arange(rows, device=device),
            params=DeviceParams.on(device),
        )

    def first(self, count: int) -> "Rows":
        """The first `count` rows, as views."""
        shared = ("is_stop", "places", "params")
        views = {field.name: getattr(self, field.name)[:count] for field in fields(self) if field.name not in shared}
        return replace(self, **views)

    def copy_row(self, source: int, target: int) -> None:
        """Copy what one row has reached to another."""
        for buffer in (self.tokens, self.positions, self.is_live, self.counts, self.keys, self.drawn, self.logprobs):
            buffer[target] = buffer[source]

    def state(self) -> list[Tensor]:
        """Copies of what `decode_step` changes, for `restore`."""
        return [buffer.clone() for buffer in self.changing()]

    def restore(self, state: list[Tensor]) -> None:
        """Go back to a `state`."""
        for buffer, value in zip(self.changing(), state, strict=True):
            buffer.copy_(value)

    def inputs(self) -> list[Tensor]:
        """Every tensor here whose values may change between two steps."""
        return [*self.changing(), self.keys, self.is_stop, *self.params]

    def changing(self) -> list[Tensor]:
        """What `decode_step` changes."""
        return [self.tokens, self.positions, self.is_live, self.counts, self.drawn, self.logprobs]


def decode_step(
    weights: DecoderWeights, cache: RolloutCache, rows: Rows, length: int, trims: bool, workspace: "Workspace | None"
) -> None:
    """Draw the next token of every row that is live, in place.

    rows: the first B of the cache's. length: no row is beyond position `length` - 1; the host knows this by counting.
    trims: `SamplingParams.trims`. workspace: `workspace_for` B tokens. A cache with `experts` gets those of the tokens
    that were read.
    """
    batch = rows.tokens.shape[0]
    heads = (batch, weights.key_heads, -1, weights.head_dim)
    angles = _angles(weights, rows.positions)
    bias = _score_bias(weights, rows, length)
    chosen = None if cache.experts is None else []  # the experts [B, K] of every layer

    x = weights.embed(rows.tokens)  # the residual stream, fp32 [B, H]
    for layer, buffers in zip(weights.layers, cache.layers):
        # attention
        normed = F.rms_norm(x, [weights.hidden_size], layer.attention_norm, weights.eps)
        qkv = layer.qkv(normed).unflatten(-1, (-1, weights.head_dim))  # [B, Hq + 2 Hkv, D]
        q = _rotate_and_cache(weights, qkv, angles, buffers, rows)  # [B, Hq, D]
        filled = buffers.filled(length)
        keys = buffers.keys[:batch, :, :filled]
        values = buffers.values[:batch, :, :filled]
        bias[..., 0] = layer.sinks.view(weights.key_heads, -1)
        attended = decode_attention(q.view(heads), keys, values, bias[..., :filled], layer.scale)
        x = x + layer.output(attended.view(batch, -1))

        # experts
        normed = F.rms_norm(x, [weights.hidden_size], layer.expert_norm, weights.eps)
        x = x + _routed_experts(weights, layer, normed, workspace, chosen)

    if chosen is not None:
        experts_BLK = torch.stack(chosen, 1).to(torch.uint8)  # L layers
        cache.experts[rows.row_numbers, rows.positions] = experts_BLK  # all layers in one write
    normed = F.rms_norm(x, [weights.hidden_size], weights.norm, weights.eps)
    logits = weights.head(normed)  # fp32 [B, V]
    tokens, logprobs = draw(logits, rows.keys, rows.positions, rows.params, trims)
    _record(rows, tokens, logprobs)


def _score_bias(weights: DecoderWeights, rows: Rows, length: int) -> Tensor:
    """What is added to the scores of each place of the cache: fp32 [B, Hkv, Hq / Hkv, 1 + length].

    0 where a row may look, -inf where it may not. Place 0 takes the sinks of each layer in turn. A sliding layer has
    the first places of a layer with full attention.
    """
    is_hidden = rows.places[: 1 + length] > rows.positions[:, None]  # [B, 1 + length]
    bias = is_hidden.float().masked_fill(is_hidden, -torch.inf)
    group = weights.heads // weights.key_heads
    return bias[:, None, None].repeat(1, weights.key_heads, group, 1)


def _angles(weights: DecoderWeights, positions: Tensor) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines [B, 1, D] of positions [B], for all layers; None on a GPU, where a kernel reads the tables."""
    if positions.is_cuda:
        return None
    return weights.cos[positions][:, None], weights.sin[positions][:, None]


def _rotate_and_cache(
    weights: DecoderWeights, qkv: Tensor, angles: tuple[Tensor, Tensor] | None, buffers: LayerCache, rows: Rows
) -> Tensor:
    """Write the rotated keys and the values of one token a row to the cache; return the rotated queries [B, Hq, D].

    qkv: [B, Hq + 2 Hkv, D]. angles: of `_angles`.
    """
    if angles is None:
        from helpers.kernels.decode_triton import rotate_and_cache

        tables = (weights.cos, weights.sin)
        return rotate_and_cache(qkv, *tables, rows.positions, buffers.keys, buffers.values, weights.heads)
    q, k, v = _rotate(weights, qkv, *angles)
    places = buffers.places(rows.positions)
    buffers.keys[rows.row_numbers, :, places] = k
    buffers.values[rows.row_numbers, :, places] = v
    return q


def _rotate(weights: DecoderWeights, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [N, Hq, D] and keys [N, Hkv, D], and values [N, Hkv, D], of qkv [N, Hq + 2 Hkv, D].

    cos, sin: [N, 1, D].
    """
    turned = weights.heads + weights.key_heads
    qk = qkv[:, :turned]
    exchanged = qk.roll(weights.head_dim // 2, -1)  # the halves of each head
    qk = qk * cos + exchanged * sin
    return qk[:, : weights.heads], qk[:, weights.heads :], qkv[:, turned:]


def _routed_experts(
    weights: DecoderWeights,
    layer: LayerWeights,
    normed: Tensor,
    workspace: "Workspace | None",
    chosen: list[Tensor] | None,
) -> Tensor:
    """The mixture of experts: fp32 [N, H] -> [N, H].

    chosen: a list that the experts of each token, int64 [N, K], are appended to; None where nobody asks for them.
    """
    router_logits = F.linear(normed, layer.router_weight, layer.router_bias)  # [N, E]
    largest, indices = router_logits.topk(weights.top_k, -1)  # [N, K]
    shares = largest.softmax(-1)
    if chosen is not None:
        chosen.append(indices)
    return routed_forward(normed, indices, shares, layer.experts, layer.expert_lora, workspace)


def _record(rows: Rows, tokens: Tensor, logprobs: Tensor) -> None:
    """Write down what was drawn. A finished row stays where it is and goes on overwriting the place behind its end."""
    column = rows.counts[:, None]
    rows.drawn.scatter_(1, column, tokens[:, None])
    rows.logprobs.scatter_(1, column, logprobs[:, None])
    rows.tokens.copy_(tokens)
    rows.counts.add_(rows.is_live)
    rows.positions.add_(rows.is_live)
    goes_on = (rows.counts < rows.params.max_new_tokens) & ~rows.is_stop[tokens]
    rows.is_live.logical_and_(goes_on)


def prefill(
    weights: DecoderWeights, cache: RolloutCache, rows: list[int], tokens: Tensor, lengths: list[int], start: int
) -> None:
    """Write keys and values of a piece of some prompts into their rows of the cache, and the experts if it has them.

    tokens: int64 [n, T], the tokens of each prompt at positions start to start + T - 1, with anything behind the end of
    a prompt; the positions before are in the cache already. lengths: of the prompts.
    """
    count, width = tokens.shape
    new = range(start, start + width)
    cos = weights.cos[new.start : new.stop].repeat(count, 1)[:, None]  # [n * T, 1, D]
    sin = weights.sin[new.start : new.stop].repeat(count, 1)[:, None]
    masks = {}  # window -> the mask that all layers with that window share
    chosen = None if cache.experts is None else []  # the experts [n * T, K] of every layer

    x = weights.embed(tokens.flatten())  # fp32 [n * T, H]
    for layer, buffers in zip(weights.layers, cache.layers):
        normed = F.rms_norm(x, [weights.hidden_size], layer.attention_norm, weights.eps)
        qkv = layer.qkv(normed).unflatten(-1, (-1, weights.head_dim))  # [n * T, Hq + 2 Hkv, D]
        rotated = _rotate(weights, qkv, cos, sin)
        q, k, v = (part.unflatten(0, (count, width)).transpose(1, 2) for part in rotated)  # [n, heads, T, D]
        seen = _seen_before(buffers, start)
        earlier = buffers.places_of(seen)
        keys = torch.cat([_at(buffers.keys, rows, earlier), k], 2)  # [n, Hkv, seen + T, D]
        values = torch.cat([_at(buffers.values, rows, earlier), v], 2)
        if buffers.window not in masks:
            masks[buffers.window] = AttentionMask(
                count, width, len(seen) + width, window=buffers.window, q_offset=len(seen), device=tokens.device
            )
        mask = masks[buffers.window]
        attended = sink_attention(q, keys, values, layer.sinks, mask, scale=layer.scale, backend="sdpa")
        x = x + layer.output(attended.transpose(1, 2).flatten(0, 1).flatten(1))
        for row, length, row_keys, row_values in zip(rows, lengths, k, v, strict=True):
            _keep(buffers, row, range(start, min(new.stop, length)), row_keys, row_values)

        normed = F.rms_norm(x, [weights.hidden_size], layer.expert_norm, weights.eps)
        x = x + _routed_experts(weights, layer, normed, None, chosen)

    if chosen is not None:
        experts_nTLK = torch.stack(chosen, 1).to(torch.uint8).unflatten(0, (count, width))  # L layers
        for row, length, experts_TLK in zip(rows, lengths, experts_nTLK, strict=True):
            stop = min(new.stop, length)
            cache.experts[row, start:stop] = experts_TLK[: max(0, stop - start)]


def _at(buffer: Tensor, rows: list[int], places: slice | list[int]) -> Tensor:
    """Some places of some rows, [n, Hkv, places, D]."""
    return torch.stack([buffer[row][:, places] for row in rows])


def _seen_before(buffers: LayerCache, start: int) -> range:
    """The positions before `start` that a token from there on may see in this layer, and that the cache still has."""
    if buffers.window is None:
        return range(start)
    return range(max(0, start - buffers.window + 1), start)


def _keep(buffers: LayerCache, row: int, positions: range, k: Tensor, v: Tensor) -> None:
    """Write keys and values into a row; of a sliding layer only the last window of them.

    k, v: [Hkv, T, D], those of `positions` first.
    """
    kept = positions[-buffers.capacity :]
    skipped = len(positions) - len(kept)
    places = buffers.places_of(kept)
    buffers.keys[row][:, places] = k[:, skipped : len(positions)]
    buffers.values[row][:, places] = v[:, skipped : len(positions)]
