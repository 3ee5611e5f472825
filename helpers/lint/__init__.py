"""What rewards pay to completions that deserve nothing."""

from helpers.lint.rewards import LintReport, lint_rewards
from helpers.lint.tasks import describe_lint, lint_task
