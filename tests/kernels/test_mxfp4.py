import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.mxfp4 import E2M1, dequantize, quantize


def random_bytes(experts=3, out=8, groups=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (experts, out, groups, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(100, 140, (experts, out, groups), dtype=torch.uint8, generator=generator)
    return blocks, scales


def test_equal_to_transformers_bit_for_bit():
    """Transformers' own unpacking is an independent implementation of the format: every code, every scale."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks, scales = random_bytes(experts=255, out=16, groups=2)
    scales[:] = torch.arange(255, dtype=torch.uint8)[:, None, None]
    blocks[:, :, 0] = torch.arange(256, dtype=torch.uint8).view(16, 16)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        theirs = convert_moe_packed_tensors(blocks, scales, dtype=dtype)
        # transformers multiplies in the 16-bit type; both are exact where that type has the value
        exact = dequantize(blocks, scales)
        held = exact.to(dtype).double() == exact.double()
        assert torch.equal(dequantize(blocks, scales, dtype)[held], theirs[held])
        if dtype != torch.float16:
            assert held.all()


def test_by_the_table():
    """The low half of a byte comes first, and the scale has bias 127."""
    blocks, scales = random_bytes(1, 1, 1)
    values = dequantize(blocks, scales)[0, :, 0].tolist()
    for n, byte in enumerate(blocks.flatten().tolist()):
        factor = 2.0 ** (int(scales) - 127)
        assert values[2 * n : 2 * n + 2] == [E2M1[byte & 15] * factor, E2M1[byte >> 4] * factor]


def test_scale_255_is_refused():
    """It stands for NaN, which would spread through a run of hours."""
    blocks, _ = random_bytes(1, 1, 1)
    with pytest.raises(ValueError, match="scale byte is 255"):
        dequantize(blocks, torch.full((1, 1, 1), 255, dtype=torch.uint8))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(-30, 30))
def test_packing_what_is_on_the_grid_changes_nothing(seed, exponent):
    """The released bytes survive a round trip: this is what "keeps the released bytes" rests on."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 64, 3, generator=generator) * 2.0**exponent
    once = dequantize(*quantize(weight))
    assert torch.equal(dequantize(*quantize(once)), once)


def test_rounding_is_to_the_nearest():
    """No other code at the same scale is nearer."""
    weight = torch.randn(1, 32, 4, generator=torch.Generator().manual_seed(1))
    blocks, scales = quantize(weight)
    grid = torch.tensor(E2M1)[:, None, None, None] * 2.0 ** (scales.int() - 127).transpose(1, 2)
    nearest = (grid - weight).abs().amin(0)
    assert torch.allclose((dequantize(blocks, scales) - weight).abs(), nearest, atol=1e-7)


@pytest.mark.parametrize("weight", [torch.zeros(1, 32, 2), torch.full((1, 32, 1), 1e-38), torch.full((1, 32, 1), 3e38)])
def test_extremes_stay_finite(weight):
    assert dequantize(*quantize(weight)).isfinite().all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: quantize(torch.zeros(1, 33, 2)), "multiple of 32"),
        (lambda: quantize(torch.full((1, 32, 2), torch.inf)), "not finite"),
        (
            lambda: dequantize(torch.zeros(1, 2, 1, 8, dtype=torch.uint8), torch.zeros(1, 2, 1, dtype=torch.uint8)),
            "blocks must",
        ),
        (lambda: dequantize(torch.zeros(1, 2, 1, 16), torch.zeros(1, 2, 1)), "uint8"),
    ],
)
def test_shapes_are_checked(call, words):
    with pytest.raises(ValueError, match=words):
        call()
