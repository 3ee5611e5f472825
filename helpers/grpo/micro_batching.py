"""How completions are taken through the model in micro-batches, and in smaller ones where memory runs out."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from helpers.grpo.config import GRPOConfig
from helpers.grpo.update import micro_batches
from helpers.kernels.attention import give_up_flex
from helpers.model.gpu_memory import OutOfMemory, is_out_of_memory, release_memory
from helpers.rollout.completion import Completion
from helpers.runtime import first_line

Result = TypeVar("Result")


class MicroBatching:
    """Cuts completions into micro-batches.

    shortages: errors for want of memory so far. halvings: of the micro-batches, for want of memory.
    """

    def __init__(self, args: GRPOConfig, device: torch.device):
        self.args = args
        self.device = device
        self.shortages = 0
        self.halvings = 0

    @property
    def max_tokens(self) -> int:
        """Tokens of one forward and backward pass, prompts and padding counted: those of
        per_device_train_batch_size completions of full length, unless there was no memory for them."""
        planned = self.args.per_device_train_batch_size * self.args.max_length
        return max(1, planned >> self.halvings)

    def cut(self, completions: Sequence[Completion]) -> list[list[int]]:
        """Return places of completions that go through the model together.

        On a GPU each forward pass costs the same launches, however full it is, so short completions fill it up. On the
        CPU that would take memory and save nothing.
        """
        most = None if self.device.type == "cuda" else self.args.per_device_train_batch_size
        return micro_batches(completions, self.max_tokens, most)

    def retry_with_less_memory(self, compute: Callable[[], Result], completions: Sequence[Completion]) -> Result:
        """Return what `compute` returns, which takes `completions` through the model in micro-batches.

        Where the GPU has no memory for it, what can be freed is freed and it is called again, from the second shortage
        on with smaller micro-batches. Where FlexAttention cannot be compiled, it is called again with another
        attention. Raises OutOfMemory if there is no memory for a single completion.
        """
        while True:
            try:
                return compute()
            except Exception as error:
                shortage = first_line(error) if is_out_of_memory(error) else None
                if shortage is None and not give_up_flex(error):
                    raise
            if shortage is not None:
                self._make_room(shortage, completions)
            release_memory()  # not above, where the error still holds the micro-batch's tensors

    def _make_room(self, reason: str, completions: Sequence[Completion]) -> None:
        """After the first shortage of memory say that it will be tried again; after later ones halve the micro-batches.

        Raises OutOfMemory, with what the error said, where they hold a single completion already.
        """
        self.shortages += 1
        if self.shortages == 1:
            print("The GPU had no memory left for a micro-batch: what can be freed is freed, and it is tried again.")
            return
        if not self.cut_smaller(completions):
            raise OutOfMemory(reason, " to take a single completion through the model")
        print(f"The GPU had no memory left for a micro-batch: they have {self.max_tokens} tokens at most from here on.")

    def cut_smaller(self, completions: Sequence[Completion]) -> bool:
        """Halve the micro-batches until these completions are cut otherwise; tell whether that is possible."""
        before = self.cut(completions)
        if max(map(len, before)) == 1:
            return False
        while self.cut(completions) == before:
            self.halvings += 1
        return True
