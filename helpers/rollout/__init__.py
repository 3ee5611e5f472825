"""Text out of the model."""

from helpers.rollout.engine import Completion, RolloutEngine, SamplingParams
from helpers.rollout.harmony import Harmony

__all__ = ["Completion", "Harmony", "RolloutEngine", "SamplingParams"]
