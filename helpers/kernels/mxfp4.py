"""MXFP4, the format of gpt-oss's expert weights: pack and unpack.

A matrix [E, out, in] is stored as `blocks` uint8 [E, out, in/32, 16], two 4-bit E2M1 values a
byte, the even one in the low four bits, and `scales` uint8 [E, out, in/32], a power of two with
bias 127 for every 32 values (OCP Microscaling Formats v1.0, 2023, section 5.3). In memory
transformers keeps the transpose, [E, in, out]; the functions here speak that orientation.
"""

import torch
from torch import Tensor

#: Values that share a scale.
GROUP = 32
#: What the sixteen codes stand for: bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BIAS = 127
_MAX_EXPONENT = 2  # 6.0 = 1.5 * 2**2
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbouring magnitudes


def check_packed(blocks: Tensor, scales: Tensor) -> None:
    """Raise ValueError unless the two are a packed matrix without NaN (the scale byte 255)."""
    if blocks.dtype != torch.uint8 or scales.dtype != torch.uint8:
        raise ValueError(f"packed weights are uint8, got blocks {blocks.dtype} and scales {scales.dtype}")
    if blocks.shape[:-1] != scales.shape or blocks.shape[-1] * 2 != GROUP:
        raise ValueError(
            f"blocks must be [E, out, in/32, 16] and scales [E, out, in/32], "
            f"got {list(blocks.shape)} and {list(scales.shape)}"
        )
    if bool((scales == 255).any()):
        raise ValueError("a scale byte is 255, which stands for NaN: the weights are damaged")


def dequantize(blocks: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unpack to a dense weight.

    Args:
        blocks: uint8 [E, out, in/32, 16].
        scales: uint8 [E, out, in/32].
        dtype: of the result. Every value is exact in bfloat16 and float32.

    Returns: `dtype` [E, in, out]. Raises ValueError as `check_packed`.
    """
    check_packed(blocks, scales)
    return unpack(blocks, scales, dtype).transpose(1, 2).contiguous()


def unpack(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Unpack blocks [..., out, in/32, 16] and scales [..., out, in/32] to dense [..., out, in], unchecked."""
    values = torch.tensor(E2M1, dtype=torch.float32, device=blocks.device)
    pairs = torch.stack([values[(blocks & 15).int()], values[(blocks >> 4).int()]], -1)
    mantissas = pairs.flatten(-2)  # [..., out, in/32, 32]
    exponents = scales.int() - _BIAS
    groups = torch.ldexp(mantissas, exponents[..., None])
    return groups.flatten(-2).to(dtype)


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Pack a dense weight: the largest magnitude of each group of 32 sets the scale.

    Args:
        weight: float [E, in, out], finite, `in` a multiple of 32.

    Returns: `(blocks, scales)` as described at the top. `dequantize` of the result is the
    nearest representable weight for that scale; packing it again changes nothing.
    Raises ValueError for another shape or a weight that is not finite.
    """
    if weight.ndim != 3 or weight.shape[1] % GROUP:
        raise ValueError(f"weight must be [E, in, out] with in a multiple of {GROUP}, got {list(weight.shape)}")
    if not bool(weight.isfinite().all()):
        raise ValueError("a weight that is not finite cannot be packed")
    rows = weight.float().transpose(1, 2)  # [E, out, in]
    groups = rows.unflatten(-1, (-1, GROUP))  # [E, out, in/32, 32]

    # frexp gives |w| = mantissa * 2**exponent with mantissa in [0.5, 1): floor(log2) is exponent - 1.
    largest = groups.abs().amax(-1)
    exponents = torch.frexp(largest).exponent - 1 - _MAX_EXPONENT
    exponents = exponents.clamp(-_BIAS, 254 - _BIAS)
    scales = (exponents + _BIAS).to(torch.uint8)

    scaled = torch.ldexp(groups, -exponents[..., None])
    midpoints = torch.tensor(_MIDPOINTS, device=weight.device)
    magnitudes = torch.bucketize(scaled.abs().contiguous(), midpoints)
    sign_bits = 8 * torch.signbit(scaled)
    codes = (magnitudes + sign_bits).to(torch.uint8)
    low = codes[..., 0::2]
    high = codes[..., 1::2]
    return low | high << 4, scales
