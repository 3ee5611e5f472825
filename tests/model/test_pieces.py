"""Tensors that are placed or hashed piece by piece: the same values, and no second copy of a large one."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import add_lora, load_model, weights_digest
from helpers.model import load
from helpers.profiles import PROFILES

MIB = 2**20
#: A matrix is kept in the operands' dtype, a norm in fp32, packed bytes as they are.
MATRIX, NORM, BYTES = "lm_head.weight", "norm.weight", "experts.down_proj_blocks"
SHAPES = [(5,), (0, 4), (7, 33), (3, 5, 11), (2, 3, 4, 16)]


def placed(name, tensor, profile):
    """What the loader makes of a tensor."""
    part, _, attribute = name.rpartition(".")
    model = nn.ModuleDict({part: nn.Module()})
    load._place(model, name, tensor, profile)
    return getattr(model[part], attribute)


def released(shape, dtype):
    """Random numbers, among them such that fp16 rounds to nothing, to denormals and to infinity."""
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator).to(dtype)
    exponents = torch.randint(-30, 18, shape, generator=generator)
    return (torch.randn(shape, generator=generator) * 2.0**exponents).to(dtype)


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 64 bytes, so that small tensors have several, and a last one that is shorter."""
    monkeypatch.setattr("helpers.model.pieces.PIECE_BYTES", 64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("name", "stored", "operands", "kept"),
    [
        (MATRIX, torch.bfloat16, "float16", torch.float16),
        (MATRIX, torch.bfloat16, "bfloat16", torch.bfloat16),
        (MATRIX, torch.bfloat16, "float32", torch.float32),
        (MATRIX, torch.float32, "float16", torch.float16),
        (NORM, torch.bfloat16, "float16", torch.float32),
        (NORM, torch.float32, "float32", torch.float32),
        (BYTES, torch.uint8, "float16", torch.uint8),
    ],
)
def test_pieces_make_the_same_bytes_and_no_view(small_pieces, shape, name, stored, operands, kept):
    """A view would keep the file open, and change with it."""
    tensor = released(shape, stored)
    expected = tensor.clone().to(kept)
    weight = placed(name, tensor, replace(PROFILES["tiny"], dtype=operands))
    tensor.zero_()
    assert weight.dtype == kept and weight.shape == shape and weight.is_contiguous()
    assert torch.equal(weight.view(torch.uint8), expected.view(torch.uint8))


class Sizes(TorchDispatchMode):
    """Records the bytes of every tensor that is made."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("empty", "_to_copy", "clone", "empty_strided"):
            self.made.append(result.nbytes)
        return result


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_matrix_is_never_on_the_device_in_two_dtypes(monkeypatch, device):
    """The head was there in bf16 and in fp16, 1.2 GB each, on a card that has no such room to spare.

    "meta" stands for a GPU: what is copied there is made anew.
    """
    monkeypatch.setattr("helpers.model.pieces.PIECE_BYTES", MIB)
    profile = SimpleNamespace(dtype="float16", embedding="device", device=device)
    matrix = torch.zeros(4 * MIB + 1000, dtype=torch.bfloat16)
    with Sizes() as sizes:
        placed(MATRIX, matrix, profile)
    beside = [size for size in sizes.made if size != matrix.nbytes]
    assert len(sizes.made) - len(beside) == 1, "the weight itself"
    assert sum(beside) <= matrix.nbytes and max(beside, default=0) <= MIB


def digest_of_whole_tensors(model):
    """What `weights_digest` was when it took each tensor at once."""
    digest = hashlib.sha256()
    tensors = {name: weight for name, weight in model.named_parameters() if not weight.requires_grad}
    tensors.update(model.named_buffers())
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("dense", ["fp32", "nf4"])
def test_the_digest_of_pieces_is_that_of_whole_tensors(monkeypatch, dense):
    """Digests are compared over sessions. Pieces of 1,000 bytes end in the middle of numbers, too."""
    model, _ = load_model(profile="tiny", dense=dense, experts="mxfp4")
    model = add_lora(model, r=2, alpha=4)
    model.register_buffer("number", torch.tensor(1.5))
    model.register_buffer("nothing", torch.empty(0, 3))
    model.register_buffer("turned", torch.arange(6000.0).view(60, 100).T)
    monkeypatch.setattr("helpers.model.lora.PIECE_BYTES", 1000, raising=False)
    assert weights_digest(model) == digest_of_whole_tensors(model)


def test_the_digest_takes_64_mib_at_a_time_and_copies_none(monkeypatch):
    """Each tensor came to the host twice, as an array and as bytes: 2.3 GB for the head alone."""
    taken = []
    digest = SimpleNamespace(update=taken.append, hexdigest=str)
    monkeypatch.setattr("helpers.model.lora.hashlib", SimpleNamespace(sha256=lambda: digest))
    model = nn.Module()
    model.register_buffer("head", torch.zeros(150 * MIB, dtype=torch.uint8))
    weights_digest(model)
    name, *pieces = taken
    assert name == b"head" and [memoryview(piece).nbytes // MIB for piece in pieces] == [64, 64, 22]
    assert not any(isinstance(piece, bytes) for piece in pieces)
