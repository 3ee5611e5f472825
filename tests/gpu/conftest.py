"""Where PyTorch has a GPU, kernels run on it, also in a sandbox that hides the files of the driver."""

import os

import torch

if torch.cuda.is_available():
    os.environ.pop("TRITON_INTERPRET", None)
