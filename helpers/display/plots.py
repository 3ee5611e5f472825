"""Figures. Every function takes plain values and returns a matplotlib figure."""

INK, SOFT, GOOD, BAD, THIRD = "#1f2933", "#9aa5b1", "#1b7f5c", "#c2410c", "#3b5b92"


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
    """Draw metrics over steps: reward and its components, pass and cheat rate, lengths, entropy."""
    figure, axes = _figure(4)
    steps = [row["step"] for row in rows]
    parts = [name for name in rows[0] if name.startswith("rewards/")]
    panels = (
        ("reward", [("reward", "all", INK)] + [(name, name.split("/")[1], None) for name in parts]),
        ("share of completions", [("pass_rate", "correct", GOOD), ("cheat_rate", "cheating", BAD)]),
        (
            "tokens a completion",
            [("completions/mean_length", "mean", INK), ("completions/max_length", "longest", SOFT)],
        ),
        ("entropy, nats a token", [("entropy", "", THIRD)]),
    )
    for axis, (title, lines) in zip(axes, panels):
        for name, label, colour in lines:
            values = [row.get(name, float("nan")) for row in rows]
            axis.plot(steps, values, color=colour, alpha=0.25, lw=0.8)
            axis.plot(steps, _smooth(values), color=axis.lines[-1].get_color(), label=label, lw=1.6)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        if len(lines) > 1:
            axis.legend(fontsize=7, frameon=False)
    return figure


def _smooth(values, window=7):
    """Running mean over the last `window` values."""
    return [
        sum(values[max(0, n - window + 1) : n + 1]) / len(values[max(0, n - window + 1) : n + 1])
        for n in range(len(values))
    ]


def plot_comparison(report, base, tuned):
    """Draw pass and cheat rates with 95 % intervals, lengths, and the speed of correct programs."""
    figure, axes = _figure(3)
    rates = (report["base_rate"], report["tuned_rate"])
    bounds = (report["base_interval"], report["tuned_interval"])
    errors = [
        [rate - low for rate, (low, _) in zip(rates, bounds)],
        [high - rate for rate, (_, high) in zip(rates, bounds)],
    ]
    axes[0].bar([0, 1], rates, color=[SOFT, GOOD], width=0.6, yerr=errors, capsize=4)
    axes[0].bar([2, 3], [report["base_cheat_rate"], report["tuned_cheat_rate"]], color=[SOFT, BAD], width=0.6)
    axes[0].set_xticks(range(4), ["base\ncorrect", "tuned\ncorrect", "base\ncheats", "tuned\ncheats"], fontsize=7)
    axes[0].set_ylim(0, 1)
    axes[0].set_title(f"{report['items']} held-out prompts", fontsize=9)
    for records, label, colour in ((base, "base", SOFT), (tuned, "tuned", GOOD)):
        axes[1].hist([r["tokens"] for r in records], bins=24, histtype="step", color=colour, label=label, lw=1.6)
        speeds = sorted(r["speedup"] for r in records if r["correct"])
        axes[2].step(speeds, [(n + 1) / len(speeds) for n in range(len(speeds))], color=colour, label=label, lw=1.6)
    axes[1].set_title("tokens a completion", fontsize=9)
    axes[1].legend(fontsize=7, frameon=False)
    axes[2].axvline(1, color=SOFT, lw=0.8, ls=":")
    axes[2].set_title("correct programs: share that is slower", fontsize=9)
    axes[2].set_xlabel("speed, plain loops = 1", fontsize=8)
    return figure


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
