"""How a Triton kernel is launched: the types of its arguments and its constants, for run time and for tests."""

from typing import NamedTuple

import torch

#: Triton's names of the pointer types.
POINTERS = {
    torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32",
    torch.uint8: "*u8", torch.int32: "*i32", torch.int64: "*i64",
}  # fmt: skip


class Launch(NamedTuple):
    """One compiled form of a kernel: types of its run-time arguments, its constants, warps and stages."""

    kernel: object
    types: dict
    constants: dict
    warps: int = 4
    stages: int = 1  # there is no asynchronous copy on a T4

    def __call__(self, grid: tuple, *arguments) -> None:
        self.kernel[grid](*arguments, **self.constants, num_warps=self.warps, num_stages=self.stages)


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`: sizes of Triton's tiles are powers of two."""
    return 1 << max(number - 1, 0).bit_length()
