"""What one line says of a training step, in a terminal and in train.log alike."""

from collections.abc import Mapping

from helpers.runtime import finite_or_none

#: Log name, heading, format.
COLUMNS = (
    ("reward", "reward", "{:+.3f}"),
    ("outcomes/correct", "correct", "{:.0%}"),
    ("outcomes/refused", "refused", "{:.0%}"),
    ("completions/mean_length", "tokens", "{:.0f}"),
    ("completions/clipped_ratio", "cut off", "{:.0%}"),
    ("entropy", "entropy", "{:.3f}"),
    ("grad_norm", "grad_norm", "{:.3g}"),
    ("sampling/effective_sample_size", "ESS", "{:.0%}"),
    ("step_time", "seconds", "{:.1f}"),
)


def step_line(metrics: Mapping) -> str:
    """Return those of the columns that a row of metrics has, with a dash for a value that is no number."""
    shown = []
    for name, heading, form in COLUMNS:
        if name in metrics:
            value = finite_or_none(metrics[name])
            shown.append(f"{heading} {'–' if value is None else form.format(value)}")
    return "  ".join(shown)
