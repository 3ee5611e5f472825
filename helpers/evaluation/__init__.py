"""Scoring runs, statistics, verdicts."""

from helpers.evaluation.compare import Report, compare, mcnemar_exact, paired_difference, wilson_interval
from helpers.evaluation.records import evaluate, load_records, save_records

__all__ = [
    "Report",
    "compare",
    "evaluate",
    "load_records",
    "mcnemar_exact",
    "paired_difference",
    "save_records",
    "wilson_interval",
]
