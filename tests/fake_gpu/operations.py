"""Describe the operations of a step, so that two steps can be compared."""

from collections.abc import Collection

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


def tensors_in(*values: object) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def storage_of(tensor: Tensor) -> int:
    """Return the address of a tensor's storage object; it differs between any two storages that are alive."""
    return tensor.untyped_storage()._cdata


def device_type(tensor: Tensor) -> str:
    """Return "cpu" or "cuda". A fake tensor's `device` is an operation of its own, which takes time."""
    device = getattr(tensor, "fake_device", None) or tensor.device
    return device.type


def describe(operation: object, args: tuple, kwargs: dict, buffers: Collection[int]) -> str:
    """Return all of an operation that a CUDA graph repeats: its name, numbers, and the layouts of its tensors.

    buffers: storages that outlive the step. A tensor in one of them is described with its address; where the others lie
    is up to the allocator.
    """

    def layout(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        address = storage_of(value)
        place = address if address in buffers else "anywhere"
        return device_type(value), value.dtype, list(value.shape), value.stride(), value.storage_offset(), place

    return f"{operation} {tree_map(layout, (args, kwargs))}"


class Recorder(TorchDispatchMode):
    """Writes down the operations that run under it, and what `topk` chose.

    buffers: as `describe` takes them.
    """

    def __init__(self, buffers: Collection[int]):
        super().__init__()
        self.buffers = buffers
        self.operations: list[str] = []
        self.chosen: list[list] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.operations.append(describe(func, args, kwargs, self.buffers))
        out = func(*args, **kwargs)
        if func is torch.ops.aten.topk.default:
            self.chosen.append(out[1].tolist())
        return out
