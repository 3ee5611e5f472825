"""Random numbers that depend on nothing but what they are for: no state, no order, no batch.

Each completion has a stream of its own, named by a key; the number at a place of the stream is a hash of both. So a
completion is the same whatever was drawn beside it or before it, on the CPU, and inside a captured CUDA graph.

The hash is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): the
output function of a generator whose state at place n is key + n * `STRIDE`.
"""

from collections.abc import Sequence

from torch import Tensor

from helpers.runtime import random_seed


def _signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit number."""
    return value - (1 << 64) if value >> 63 else value


STRIDE = _signed(0x9E3779B97F4A7C15)
FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
SECOND_FACTOR = _signed(0x94D049BB133111EB)


def stream_key(seed: int, prompt_ids: Sequence[int], generation: int) -> int:
    """The key of the random numbers of one completion, 0 <= key < 2**63.

    generation: number of the completion among those of the same prompt.
    """
    return random_seed("completion", seed, generation, *prompt_ids)


def uniforms(keys: Tensor, places: Tensor) -> Tensor:
    """The random numbers at places of streams: keys, places int64 [B] -> float64 [B] in [0, 1), multiples of 2**-53."""
    bits = places * STRIDE + keys
    bits = (bits ^ _shifted(bits, 30)) * FIRST_FACTOR
    bits = (bits ^ _shifted(bits, 27)) * SECOND_FACTOR
    bits = bits ^ _shifted(bits, 31)
    return _shifted(bits, 11).double() * 2.0**-53


def _shifted(bits: Tensor, count: int) -> Tensor:
    """Shift unsigned 64-bit numbers to the right; torch's own shift of int64 would copy the sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
