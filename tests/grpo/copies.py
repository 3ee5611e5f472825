"""Backends with weights of their own, as an inference server beside a trainer has: a sound one and two faults."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from helpers import GRPOTrainer, load_model
from helpers.model.experts import LoraExperts
from helpers.rollout.backends.captured import CapturedBackend


def adapted_weights(trained: nn.Module, copy: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each adapted weight of a copy of the base, and what the adapter of the trained model adds to it.

    trained, copy: causal LMs with dense weights, the first with an adapter inside.
    """
    for name, module in trained.named_modules():
        if isinstance(module, LoraExperts):
            lora = module.adapter()
            stacks = copy.get_submodule(name).weights()
            yield stacks.gate_up, lora.scaling * (lora.gate_up_B @ lora.gate_up_A).transpose(1, 2)
            yield stacks.down, lora.scaling * (lora.down_B @ lora.down_A).transpose(1, 2)
        elif hasattr(module, "get_delta_weight"):
            yield copy.get_submodule(name).weight, module.get_delta_weight("default")


class CopyingBackend(CapturedBackend):
    """Draws from a copy of the base, to which each `sync` adds the adapter, and does it rightly."""

    def __init__(self, trainer: GRPOTrainer):
        copy, _ = load_model(profile="tiny", dense="fp32")
        super().__init__(copy, max_batch_size=trainer.args.generation_batch_size, max_length=trainer.args.max_length)
        self.trained = trainer.model.get_base_model()
        self.base = [weight.clone() for weight, _ in adapted_weights(self.trained, copy)]

    @torch.no_grad()
    def sync(self) -> None:
        for start, (weight, update) in zip(self.base, adapted_weights(self.trained, self.model), strict=True):
            weight.copy_(start + update)
        super().sync()


class AccumulatingBackend(CopyingBackend):
    """Adds the whole adapter to weights that hold it already."""

    @torch.no_grad()
    def sync(self) -> None:
        for weight, update in adapted_weights(self.trained, self.model):
            weight.add_(update)
        CapturedBackend.sync(self)


class StaleBackend(CopyingBackend):
    """Never takes over the weights after the first time."""

    def sync(self) -> None:
        if self._decoder is None:
            super().sync()
