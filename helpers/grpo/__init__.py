"""Group Relative Policy Optimization."""

from helpers.grpo.checkpoint import read_metrics
from helpers.grpo.config import GRPOConfig
from helpers.grpo.controls import apply_control, check_control
from helpers.grpo.trainer import GRPOTrainer

__all__ = ["GRPOConfig", "GRPOTrainer", "apply_control", "check_control", "read_metrics"]
