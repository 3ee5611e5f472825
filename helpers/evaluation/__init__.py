"""Scoring runs, statistics, verdicts."""

from helpers.evaluation.breakdown import fault_changes, gains_by, speed_change, transition_matrix
from helpers.evaluation.compare import Report, compare, mcnemar_exact, paired_difference, wilson_interval
from helpers.evaluation.records import evaluate, load_records, save_records, trained_on

__all__ = [
    "Report",
    "compare",
    "evaluate",
    "fault_changes",
    "gains_by",
    "load_records",
    "mcnemar_exact",
    "paired_difference",
    "save_records",
    "speed_change",
    "trained_on",
    "transition_matrix",
    "wilson_interval",
]
