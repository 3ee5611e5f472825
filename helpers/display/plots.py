"""Figures. Every function takes plain values and returns a matplotlib figure."""

import math

INK, SOFT, GOOD, BAD, THIRD = "#1f2933", "#9aa5b1", "#1b7f5c", "#c2410c", "#3b5b92"

#: Colours of outcomes that mean the same in every task.
OUTCOME_COLOURS = {"outcomes/correct": GOOD, "outcomes/refused": BAD}


def _figure(columns, rows=1, width=3.2, height=2.6):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, color=SOFT)
    return figure, list(axes.flat)


def plot_masks(masks, columns=4):
    """Draw visibility masks: `masks` is a list of (title, 2-D array of bool), queries down, keys across."""
    rows = -(-len(masks) // columns)
    figure, axes = _figure(columns, rows, width=2.2, height=2.2)
    for axis, (title, mask) in zip(axes, masks):
        axis.imshow(mask, cmap="Greys", vmin=0, vmax=1.6, aspect="equal", interpolation="nearest")
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("key", fontsize=7)
        axis.set_ylabel("query", fontsize=7)
        axis.set_xticks([])
        axis.set_yticks([])
    for axis in axes[len(masks) :]:
        axis.set_visible(False)
    return figure


def plot_lines(panels, xlabel, ylabel):
    """Draw curves on logarithmic heights: `panels` is a list of (title, {label: (xs, ys)})."""
    figure, axes = _figure(len(panels), width=3.6)
    for axis, (title, lines) in zip(axes, panels):
        for (label, (xs, ys)), colour in zip(lines.items(), (BAD, THIRD, GOOD, SOFT)):
            axis.plot(xs, ys, color=colour, label=label, lw=1.6, marker="o", ms=3)
        axis.set_yscale("log")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(xlabel, fontsize=8)
        axis.set_ylabel(ylabel, fontsize=8)
        axis.legend(fontsize=7, frameon=False)
    return figure


def plot_training(rows):
    """Draw metrics over steps: reward and its components, outcomes, lengths, entropy."""
    figure, axes = _figure(4)
    steps = [row["step"] for row in rows]
    parts = [name for name in rows[0] if name.startswith("rewards/") and name.endswith("/mean")]
    outcomes = [name for name in rows[0] if name.startswith("outcomes/")]
    panels = (
        ("reward", [("reward", "all", INK)] + [(name, name.split("/")[1], None) for name in parts]),
        ("share of completions", [(name, name.split("/")[1], OUTCOME_COLOURS.get(name)) for name in outcomes]),
        (
            "tokens a completion",
            [("completions/mean_length", "mean", INK), ("completions/max_length", "longest", SOFT)],
        ),
        ("entropy, nats a token", [("entropy", "", THIRD)]),
    )
    for axis, (title, lines) in zip(axes, panels):
        for name, label, colour in lines:
            known = [row.get(name) for row in rows]
            values = [math.nan if value is None else value for value in known]  # a gap in the curve
            axis.plot(steps, values, color=colour, alpha=0.25, lw=0.8)
            axis.plot(steps, _smooth(values), color=axis.lines[-1].get_color(), label=label, lw=1.6)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        if len(lines) > 1:
            axis.legend(fontsize=7, frameon=False)
    return figure


def _smooth(values, window=7):
    """Running mean over those of the last `window` values that are not NaN; NaN where all of them are."""
    means = []
    for end in range(1, len(values) + 1):
        latest = values[max(0, end - window) : end]
        known = [value for value in latest if not math.isnan(value)]
        means.append(sum(known) / len(known) if known else math.nan)
    return means


def plot_comparison(bars, sweeps, best_temperatures, pass_at_k, tokens, measure=None):
    """Draw a base and a tuned model side by side: what they solve, how that depends on the temperature, and how.

    bars: list of (label, share, (low, high), group), in order; groups have colours of their own, and intervals are
    95 %. Of the others each holds "base" and "tuned": sweeps: {temperature: share}. best_temperatures: each model's own
    best, of the two halves of the prompts, marked on its sweep. pass_at_k: {k: (share, (low, high))}, or empty. tokens:
    numbers of tokens of each answer. measure: `(label, values)` of a number measured of each correct answer, or None.
    """
    figure, axes = _figure(4 if measure is None else 5, width=2.9)
    _plot_bars(axes[0], bars)
    _plot_sweeps(axes[1], sweeps, best_temperatures)
    _plot_pass_at_k(axes[2], pass_at_k)
    _plot_lengths(axes[3], tokens)
    if measure is not None:
        label, values = measure
        _plot_measure(axes[4], label, values)
    return figure


MODEL_COLOURS = {"base": SOFT, "tuned": GOOD, "refused": BAD}


def _plot_bars(axis, bars):
    for place, (_, share, (low, high), group) in enumerate(bars):
        errors = [[share - low], [high - share]]
        axis.bar(place, share, color=MODEL_COLOURS[group], width=0.7, yerr=errors, capsize=3, ecolor=INK)
    axis.set_xticks(range(len(bars)), [label for label, *_ in bars], fontsize=6)
    axis.set_ylim(0, 1.05)
    axis.set_title("confirm prompts, share solved", fontsize=9)


def _plot_sweeps(axis, sweeps, best):
    for name, shares in sweeps.items():
        temperatures = sorted(shares)
        values = [shares[temperature] for temperature in temperatures]
        axis.plot(temperatures, values, color=MODEL_COLOURS[name], marker="o", ms=3, lw=1.6, label=name)
        for temperature in sorted(set(best[name])):
            axis.plot(temperature, shares[temperature], marker="o", ms=9, mfc="none", color=MODEL_COLOURS[name])
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("temperature (0: greedy); circles: its best", fontsize=8)
    axis.set_title("share solved, by temperature", fontsize=9)
    axis.legend(fontsize=7, frameon=False)


def _plot_pass_at_k(axis, curves):
    for name, curve in curves.items():
        ks = list(curve)
        values = [curve[k][0] for k in ks]
        lows = [curve[k][1][0] for k in ks]
        highs = [curve[k][1][1] for k in ks]
        axis.plot(ks, values, color=MODEL_COLOURS[name], marker="o", ms=3, lw=1.6, label=name)
        axis.fill_between(ks, lows, highs, color=MODEL_COLOURS[name], alpha=0.2, lw=0)
    axis.set_xscale("log", base=2)
    ks = sorted({k for curve in curves.values() for k in curve})
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("answers k, at temperature 1", fontsize=8)
    axis.set_title("pass@k" if curves else "pass@k: not run here", fontsize=9)


def _plot_lengths(axis, tokens):
    longest = max(max(values) for values in tokens.values())
    edges = [longest * n / 24 for n in range(25)]  # the same for both, so that heights can be compared
    for name, values in tokens.items():
        axis.hist(values, bins=edges, histtype="step", color=MODEL_COLOURS[name], label=name, lw=1.6)
    axis.set_title("tokens of an answer", fontsize=9)


def _plot_measure(axis, label, values_of_models):
    for name, values in values_of_models.items():
        ordered = sorted(values)
        shares = [(n + 1) / len(ordered) for n in range(len(ordered))]
        axis.step(ordered, shares, color=MODEL_COLOURS[name], label=name, lw=1.6)
    axis.set_xlabel(label, fontsize=8)
    axis.set_title("correct answers: share below", fontsize=9)


def plot_rewards(names, rows):
    """Draw stacked rewards of programs: `rows` is a list of (program name, {reward: value})."""
    figure, axes = _figure(1, width=6.4, height=0.34 * len(rows) + 0.9)
    axis, colours = axes[0], [THIRD, BAD, GOOD, "#b7791f", INK]
    for place, (_, rewards) in enumerate(rows):
        ends = {True: 0.0, False: 0.0}
        for name, colour in zip(names, colours):
            value = rewards[name]
            axis.barh(place, value, left=ends[value > 0], color=colour, label=name if place == 0 else None, height=0.7)
            ends[value > 0] += value
    axis.axvline(0, color=INK, lw=0.8)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("reward", fontsize=8)
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    return figure
