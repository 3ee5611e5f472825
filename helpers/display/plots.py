"""Figures. Every function takes plain values and returns a `Plot`.

The title of a figure states its finding. Few curves are labelled at their ends, many by a legend. The colours are
those of Okabe and Ito, which colour-blind readers tell apart, and every shape has a second cue: a label, a marker or a
style.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

INK, GREY = "#1f2933", "#6b7280"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#8a4f7d", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "x")
#: Colours of outcomes that mean the same in every task.
OUTCOME_COLOURS = {"correct": BLUE, "wrong": ORANGE, "error": GREY, "refused": PURPLE}
#: Colour and marker of the two models that are compared, the same in every figure.
MODEL_STYLES = {"base": (ORANGE, "s"), "tuned": (BLUE, "o")}

Interval = tuple[float, float]


class Plot:
    """A matplotlib figure with a text for readers who cannot see it.

    A notebook shows it as a picture with that text, and no widget or script is stored with it.
    """

    def __init__(self, figure, alt: str):
        self.figure = figure
        self.alt = alt

    def __repr__(self):
        return self.alt

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = io.BytesIO()
        self.figure.savefig(picture, format="png", dpi=100, facecolor="white")
        return {"image/png": picture.getvalue(), "text/plain": self.alt}, {"image/png": {"alt": self.alt}}

    def savefig(self, path: str | Path, dpi: int = 110) -> None:
        """Write the figure as a file of the kind that the name ends with."""
        self.figure.savefig(path, dpi=dpi, facecolor="white")


def _axes(columns: int = 1, rows: int = 1, width: float = 7.0, height: float = 3.2) -> tuple:
    """Return a figure and its axes in one list. width, height: of one panel, in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=10, labelcolor=INK, color=GREY)
    return figure, list(axes.flat)


def _finish(figure, axes: Sequence, description: str = "") -> Plot:
    """Return the `Plot`; its text is the titles of its panels and the description."""
    titles = [axis.get_title(loc=side) for axis in axes for side in ("left", "center") if axis.get_title(loc=side)]
    return Plot(figure, ". ".join([*titles, *filter(None, [description])]))


def plot_masks(masks: Sequence[tuple[str, Sequence]], columns: int = 4) -> Plot:
    """Draw visibility masks. masks: (title, 2-D array of bool), queries down and keys across, dark where seen."""
    rows = -(-len(masks) // columns)
    figure, axes = _axes(columns, rows, width=2.4, height=2.5)
    for axis, (title, mask) in zip(axes, masks):
        axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4, aspect="equal", interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("key", fontsize=9)
        axis.set_ylabel("query", fontsize=9)
        axis.set_xticks(range(0, len(mask[0]), 4))
        axis.set_yticks(range(0, len(mask), 4))
    for axis in axes[len(masks) :]:
        axis.set_visible(False)
    return _finish(figure, axes[: len(masks)], "Each square is dark where the query may see the key.")


def plot_lines(panels: Sequence[tuple[str, Mapping]], xlabel: str, ylabel: str) -> Plot:
    """Draw curves on logarithmic heights. panels: (title, {label: (xs, ys)}), at most six curves in each."""
    figure, axes = _axes(len(panels), width=3.8)
    for axis, (title, lines) in zip(axes, panels):
        for (label, (xs, ys)), colour, marker in zip(lines.items(), COLOURS, MARKERS):
            axis.plot(xs, ys, color=colour, label=label, lw=1.8, marker=marker, ms=4)
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(xlabel, fontsize=9)
        axis.set_ylabel(ylabel, fontsize=9)
    axes[-1].legend(fontsize=8, frameon=False)
    return _finish(figure, axes, f"{ylabel} against {xlabel}.")


def plot_probability(curves: Mapping[str, Mapping[int, float]], title: str, ylabel: str) -> Plot:
    """Draw probabilities over optimizer steps, each labelled at its end. curves: label -> {step: probability}."""
    figure, (axis,) = _axes()
    for (label, by_step), colour, marker in zip(curves.items(), COLOURS, MARKERS):
        steps = sorted(by_step)
        values = [by_step[step] for step in steps]
        axis.plot(steps, values, color=colour, lw=2, marker=marker, ms=4)
        place = (steps[-1], values[-1])
        axis.annotate(label, place, (8, 0), textcoords="offset points", color=colour, va="center")
    axis.axhline(0.5, color=GREY, lw=0.8, ls=":")
    axis.set_ylim(-0.02, 1.02)
    last_step = max(max(by_step) for by_step in curves.values())
    axis.set_xlim(0, 1.22 * last_step + 0.1)  # room for the labels
    axis.set_xticks(range(0, last_step + 1, max(1, last_step // 6)))
    axis.set_xlabel("optimizer step")
    axis.set_ylabel(ylabel)
    axis.set_title(title, fontsize=12, loc="left")
    ends = [f"{label}: {by_step[min(by_step)]:.2f} to {by_step[max(by_step)]:.2f}" for label, by_step in curves.items()]
    return _finish(figure, [axis], ", ".join(ends))


def plot_training(rows: Sequence[Mapping]) -> Plot:
    """Draw a run from its metrics: the mean reward, and the share of completions with each outcome."""
    figure, (reward, outcomes) = _axes(2, width=4.8)
    steps = [row["step"] for row in rows]
    _draw_metric(reward, steps, [row.get("reward") for row in rows], BLUE, "")
    ends = _ends([row.get("reward") for row in rows])
    reward.set_title("mean reward of a step" if ends is None else f"mean reward: {ends[0]:+.2f} → {ends[1]:+.2f}")
    names = [name for name in rows[0] if name.startswith("outcomes/")]
    for name, spare in zip(names, (SKY, GREEN, INK, *COLOURS)):
        outcome = name.split("/")[1]
        colour = OUTCOME_COLOURS.get(outcome, spare)
        _draw_metric(outcomes, steps, [row.get(name) for row in rows], colour, outcome)
    ends = _ends([row.get("outcomes/correct") for row in rows])
    outcomes.set_title("share of completions" if ends is None else f"correct: {ends[0]:.0%} → {ends[1]:.0%}")
    outcomes.set_ylim(-0.02, 1.02)
    for axis in (reward, outcomes):
        axis.set_xlabel("optimizer step")
    if names:
        outcomes.legend(fontsize=9, frameon=False, loc="center right")
    return _finish(figure, [reward, outcomes], "Thin lines are single steps, thick lines running means.")


def _draw_metric(axis, steps: Sequence[int], values: Sequence[float | None], colour: str, label: str) -> None:
    """Draw single steps and their running mean; a value that is missing leaves a gap."""
    known = [math.nan if value is None else value for value in values]
    axis.plot(steps, known, color=colour, alpha=0.3, lw=0.8)
    axis.plot(steps, _smooth(known), color=colour, label=label, lw=2)


def _smooth(values: Sequence[float], window: int = 5) -> list[float]:
    """Return running means over those of the last `window` values that are not NaN; NaN where all of them are."""
    means = []
    for end in range(1, len(values) + 1):
        latest = values[max(0, end - window) : end]
        known = [value for value in latest if not math.isnan(value)]
        means.append(sum(known) / len(known) if known else math.nan)
    return means


def _ends(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the first and the last value that are there, or None."""
    known = [value for value in values if value is not None]
    return (known[0], known[-1]) if known else None


def plot_temperatures(shares: Mapping[str, Mapping[float, tuple[float, Interval]]], title: str) -> Plot:
    """Draw the share of prompts that each model solves at each temperature, with 95 % intervals.

    shares: model -> {temperature: (share, (low, high))}; temperature 0 is greedy decoding.
    """
    figure, (axis,) = _axes()
    for name, by_temperature in shares.items():
        colour, marker = MODEL_STYLES.get(name, (GREY, "^"))
        temperatures = sorted(by_temperature)
        values = [by_temperature[t][0] for t in temperatures]
        below = [by_temperature[t][0] - by_temperature[t][1][0] for t in temperatures]
        above = [by_temperature[t][1][1] - by_temperature[t][0] for t in temperatures]
        axis.errorbar(temperatures, values, yerr=[below, above], color=colour, lw=2, marker=marker, capsize=3)
        place = (temperatures[-1], values[-1])
        axis.annotate(name, place, (10, 0), textcoords="offset points", color=colour, va="center")
    axis.set_ylim(-0.02, 1.05)
    axis.set_xlim(-0.04, 1.18)
    axis.set_xlabel("temperature (0: always the likeliest token)")
    axis.set_ylabel("share of prompts solved")
    axis.set_title(title, fontsize=12, loc="left")
    return _finish(figure, [axis], "Bars are 95 % intervals.")


def plot_dumbbells(rows: Sequence[tuple[str, float, float]], title: str, xlabel: str) -> Plot:
    """Draw a line from one share to another for each row. rows: (label, before, after)."""
    figure, (axis,) = _axes(height=0.28 * len(rows) + 1.2)
    for place, (_, before, after) in enumerate(rows):
        axis.plot([before, after], [place, place], color=GREY, lw=1.2, zorder=1)
        for name, share in (("base", before), ("tuned", after)):
            colour, marker = MODEL_STYLES[name]
            axis.scatter(share, place, color=colour, marker=marker, s=34, zorder=2)
    axis.set_yticks(range(len(rows)), [label for label, *_ in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(-0.03, 1.03)
    axis.set_xlabel(f"{xlabel} (square: base, circle: tuned)")
    axis.set_title(title, fontsize=12, loc="left")
    return _finish(figure, [axis], f"Each line leads from the base to the tuned model: {xlabel}.")


def plot_forest(rows: Sequence[tuple[str, float, Interval]], title: str, xlabel: str) -> Plot:
    """Draw a difference and its 95 % interval for each row. rows: (label, difference, (low, high)), in points."""
    figure, (axis,) = _axes(height=0.32 * len(rows) + 1.2)
    for place, (_, value, (low, high)) in enumerate(rows):
        colour = BLUE if low > 0 else ORANGE if high < 0 else GREY
        axis.plot([low, high], [place, place], color=colour, lw=2)
        axis.scatter(value, place, color=colour, marker="o" if low > 0 else "s", s=34, zorder=2)
    axis.axvline(0, color=INK, lw=0.8)
    axis.set_yticks(range(len(rows)), [label for label, *_ in rows], fontsize=10)
    axis.invert_yaxis()
    axis.set_xlabel(xlabel)
    axis.set_title(title, fontsize=12, loc="left")
    return _finish(figure, [axis], "Lines are 95 % intervals.")


def plot_payments(rows: Sequence[tuple[str, Mapping[str, float]]], title: str) -> Plot:
    """Draw what each reward pays to each program, on one axis. rows: (program, {reward: paid})."""
    figure, (axis,) = _axes(height=0.42 * len(rows) + 1.2)
    rewards = list(rows[0][1])
    height = 0.8 / len(rewards)
    for number, (reward, colour, hatch) in enumerate(zip(rewards, (ORANGE, BLUE, GREEN), ("///", "", ".."))):
        places = [place + (number - (len(rewards) - 1) / 2) * height for place in range(len(rows))]
        paid = [payments[reward] for _, payments in rows]
        axis.barh(places, paid, height=height, color=colour, hatch=hatch, edgecolor="white", label=reward)
    axis.axvline(0, color=INK, lw=0.8)
    axis.set_yticks(range(len(rows)), [program for program, _ in rows], fontsize=10)
    axis.invert_yaxis()
    axis.set_xlabel("reward")
    axis.legend(fontsize=10, frameon=False, loc="lower right")
    axis.set_title(title, fontsize=12, loc="left")
    return _finish(figure, [axis])
