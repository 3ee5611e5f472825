"""Group Relative Policy Optimization."""

from helpers.grpo.checkpoint import read_metrics
from helpers.grpo.config import GRPOConfig
from helpers.grpo.controls import apply_control, check_control
from helpers.grpo.dry_runs import dry_run
from helpers.grpo.recipes import RECIPES, recipe
from helpers.grpo.token_watch import TokenWatch, next_token_probabilities
from helpers.grpo.trainer import GRPOTrainer, TrainStep
