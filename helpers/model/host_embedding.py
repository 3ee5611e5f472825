"""An embedding that stays in host memory, where the GPU reads the rows that it needs."""

import subprocess
import sys
import weakref
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.runtime import ROOT

#: Seconds for the trial of `gpu_reads_host`: it imports PyTorch and compiles a kernel.
TRIAL_S = 180


class HostEmbedding(nn.Module):
    """An embedding [V, H] that stays in host memory, registered with CUDA: the GPU fetches the rows it needs.

    5.8 kB a token for gpt-oss, no copy by the host and no synchronisation, so it can be captured in
    a CUDA graph. `weight` is a buffer, which leaves `model.device` the GPU. Raises RuntimeError where
    the system refuses to lock the memory.
    """

    def __init__(self, weight: Tensor):
        super().__init__()
        self.register_buffer("weight", weight.contiguous())
        if torch.cuda.is_available():  # in place: `pin_memory` copies, into the next power of two
            error = torch.cuda.cudart().cudaHostRegister(self.weight.data_ptr(), self.weight.nbytes, 0)
            if int(error):
                clear_cuda_error()
                raise RuntimeError(f"cudaHostRegister: error {int(error)}")
            weakref.finalize(self, torch.cuda.cudart().cudaHostUnregister, self.weight.data_ptr())

    def forward(self, ids: Tensor) -> Tensor:
        if not ids.is_cuda:
            return F.embedding(ids, self.weight).float()
        from helpers.kernels.mxfp4_triton import gather_rows

        return gather_rows(self.weight, ids)

    def _apply(self, fn, recurse=True):
        """Stays where it is when the model is moved."""
        return self


def clear_cuda_error() -> None:
    """Clear the error that a failed call of CUDA's runtime leaves pending for the next kernel launch.

    torch does not offer cudaGetLastError. A launch of its own raises the pending error, and that clears it.
    """
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError:
        pass


@cache
def gpu_reads_host(device: str) -> bool:
    """Try on a small table whether the GPU can read registered host memory.

    In a process of its own, since a read that faults leaves its process unable to use CUDA any more.
    """
    if device == "cpu":
        return True
    command = [sys.executable, "-m", __name__]
    try:
        trial = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=TRIAL_S)
    except subprocess.TimeoutExpired:
        return False
    return trial.returncode == 0


def main() -> int:
    """Read a row of a small table; returns the exit status."""
    embedding = HostEmbedding(torch.ones(2, 64, dtype=torch.float16))
    row = embedding(torch.ones(1, dtype=torch.long, device="cuda"))
    return 0 if bool((row == 1).all()) else 1


if __name__ == "__main__":
    sys.exit(main())
