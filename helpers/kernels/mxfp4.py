"""MXFP4, the format of gpt-oss's expert weights: 4-bit E2M1 values, one power-of-two scale per 32.

A matrix [E, out, in] is stored as `blocks` uint8 [E, out, in/32, 16], two values a byte, the
even one in the low four bits, and `scales` uint8 [E, out, in/32], an exponent with bias 127
(OCP Microscaling Formats v1.0, 2023, section 5.3). In memory transformers keeps the
transpose, [E, in, out]; both functions here speak that orientation.
"""

import torch

GROUP = 32
#: What the sixteen codes stand for: bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BIAS = 127
_MAX_EXPONENT = 2  # 6.0 = 1.5 * 2**2
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbouring magnitudes


def dequantize(blocks, scales, dtype=torch.float32):
    """Unpack to a dense weight.

    Args:
        blocks: uint8 [E, out, in/32, 16].
        scales: uint8 [E, out, in/32]; the byte 255 means NaN.
        dtype: of the result. Every value is exact in bfloat16 and float32.

    Returns: `dtype` [E, in, out].
    """
    assert blocks.dtype == scales.dtype == torch.uint8, (blocks.dtype, scales.dtype)
    assert blocks.shape[:-1] == scales.shape and blocks.shape[-1] * 2 == GROUP, (blocks.shape, scales.shape)
    values = torch.tensor(E2M1, dtype=torch.float32, device=blocks.device)
    pairs = torch.stack([values[(blocks & 15).int()], values[(blocks >> 4).int()]], -1)
    exponents = scales.int() - _BIAS
    weight = torch.ldexp(pairs.flatten(-2), exponents[..., None])  # [E, out, in/32, 32]
    weight = weight.masked_fill((scales == 255)[..., None], float("nan"))
    return weight.flatten(-2).transpose(1, 2).to(dtype).contiguous()


def quantize(weight):
    """Pack a dense weight: the largest magnitude of each group of 32 sets the scale.

    Args:
        weight: float [E, in, out], finite, `in` a multiple of 32.

    Returns: `(blocks, scales)` as described at the top. `dequantize` of the result is the
    nearest representable weight for that scale; packing it again changes nothing.
    """
    assert weight.ndim == 3 and weight.shape[1] % GROUP == 0, weight.shape
    groups = weight.float().transpose(1, 2).unflatten(-1, (-1, GROUP))  # [E, out, in/32, 32]
    # frexp gives |w| = mantissa * 2**exponent with mantissa in [0.5, 1): floor(log2) is exponent - 1.
    exponents = torch.frexp(groups.abs().amax(-1)).exponent - 1 - _MAX_EXPONENT
    exponents = exponents.clamp(-_BIAS, 254 - _BIAS)
    scaled = torch.ldexp(groups, -exponents[..., None])
    codes = torch.bucketize(scaled.abs().contiguous(), torch.tensor(_MIDPOINTS, device=weight.device))
    codes = (codes + 8 * torch.signbit(scaled)).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + _BIAS).to(torch.uint8)
