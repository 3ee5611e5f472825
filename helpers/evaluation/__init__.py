"""Scoring runs, statistics, verdicts."""

from helpers.evaluation.breakdown import (
    diversity,
    entropy_per_token,
    fault_changes,
    gains_by,
    measure_change,
    measured,
    pass_at_k_curve,
    transition_matrix,
)
from helpers.evaluation.compare import (
    Report,
    compare,
    compare_records,
    outcome_rates,
    show_difference,
    show_p,
    show_temperature,
    show_temperatures,
)
from helpers.evaluation.fork import Fork, find_fork
from helpers.evaluation.power import Chance, chance_of_win, chances_of_win, exact_power, smallest_visible
from helpers.evaluation.records import (
    SWEEPS,
    TEMPERATURES,
    Evaluation,
    SweepPlan,
    accuracy,
    best_temperature,
    check_task,
    evaluate,
    load_records,
    sample_records,
    save_records,
    selection_warning,
    sweep_plan,
    trained_on,
)
from helpers.evaluation.sets import SETS_HEADER, describe_sets, standard_error
from helpers.evaluation.statistics import (
    clustered_interval,
    difference,
    distinct_share,
    mcnemar_exact,
    paired_difference,
    pass_at_k,
    rate_interval,
    sign_flip_test,
    wilson_interval,
)
