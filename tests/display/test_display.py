import math

import matplotlib
import pytest

from helpers import plot_comparison, plot_lines, plot_masks, plot_rewards, plot_training, text_table
from helpers.display.plots import MODEL_COLOURS

matplotlib.use("Agg")


def test_table_aligns_text_left_and_numbers_right():
    table = text_table([("a", 1), ("long name", 1234.5)], header=("part", "n"))
    assert table.splitlines() == [
        "part              n",
        "---------  --------",
        "a                 1",
        "long name  1.23e+03",
    ]


def test_a_missing_number_is_a_dash():
    """A metric that has no value turned its column into text, and read "None"."""
    assert text_table([("a", 1.5), ("b", None)]).splitlines() == ["a  1.5", "b    –"]


def logs(step):
    names = (
        "reward",
        "outcomes/correct",
        "outcomes/refused",
        "completions/mean_length",
        "completions/max_length",
        "entropy",
        "step_time",
    )
    return {"step": step, "completions/clipped_ratio": 0.0, "rewards/f/mean": 0.5, **dict.fromkeys(names, 0.25)}


def comparison(speeds=(1.0, 1.5), pass_at_k=True):
    """Arguments of `plot_comparison`."""
    curve = {1: (0.2, (0.1, 0.3)), 16: (0.9, (0.8, 1.0))}
    return {
        "bars": [("base\ngreedy", 0.1, (0.05, 0.2), "base"), ("refused", 0.3, (0.1, 0.6), "refused")],
        "sweeps": {"base": {0.0: 0.1, 1.0: 0.2}, "tuned": {0.0: 0.9, 1.0: 0.8}},
        "best_temperatures": {"base": (1.0, 0.0), "tuned": (0.0, 0.0)},
        "pass_at_k": {"base": curve, "tuned": curve} if pass_at_k else {},
        "tokens": {"base": [80, 90, 150], "tuned": [70, 71]},
        "measure": ("speed, plain loops = 1", {"base": [], "tuned": list(speeds)}),
    }


def test_both_models_share_the_bins():
    """Bins of their own made the heights of two histograms mean different things."""
    axis = plot_comparison(**comparison()).axes[3]
    edges = [sorted({round(x, 6) for x, _ in patch.get_xy()}) for patch in axis.patches]
    assert edges[0] == edges[1] and len(edges[0]) == 25


def test_every_bar_has_its_interval():
    """The bars of refused answers had none."""
    axis = plot_comparison(**comparison()).axes[0]
    drawn = [
        segment for bar in axis.containers if hasattr(bar, "errorbar") for segment in bar.errorbar[2][0].get_segments()
    ]
    ends = [(round(low[1], 6), round(high[1], 6)) for low, high in drawn]
    assert ends == [(0.05, 0.2), (0.1, 0.6)]
    assert len(set(MODEL_COLOURS.values())) == len(MODEL_COLOURS)


def test_each_models_own_best_temperature_is_marked():
    axis = plot_comparison(**comparison()).axes[1]
    marked = [line.get_xydata().tolist() for line in axis.lines if line.get_markerfacecolor() == "none"]
    assert marked == [[[0.0, 0.1]], [[1.0, 0.2]], [[0.0, 0.9]]]


def test_a_task_without_a_measure_has_no_panel_for_it():
    assert len(plot_comparison(**{**comparison(), "measure": None}).axes) == 4


def test_a_small_sweep_says_what_was_not_run():
    assert plot_comparison(**comparison(pass_at_k=False)).axes[2].get_title() == "pass@k: not run here"


def test_curves_have_gaps_where_there_is_no_value():
    """One step in which nothing was judged ended the notebook, or took seven steps out of the running mean."""
    rows = [logs(step) for step in range(1, 6)]
    rows[2] |= {"reward": None, "rewards/f/mean": None}
    rows[0] |= {"rewards/f/std": 0.1}
    axis = plot_training(rows).axes[0]
    single, running = ([float(value) for value in line.get_ydata()] for line in axis.lines[:2])
    assert [math.isnan(value) for value in single] == [False, False, True, False, False]
    assert running == [0.25] * 5
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["all", "f"], "means alone are rewards"
    rows = [row | {"reward": None} for row in rows]
    assert all(math.isnan(value) for value in plot_training(rows).axes[0].lines[1].get_ydata())


@pytest.mark.parametrize("speeds", [(), (1.0, 1.5)])
def test_plots_draw(tmp_path, speeds):
    """Also where nothing is correct, which is where a first run often ends."""
    figures = [
        plot_comparison(**comparison(speeds)),
        plot_training([logs(1), logs(2)]),
        plot_lines([("a", {"x": ([1, 2], [0.1, 0.2])}), ("b", {"y": ([1, 2], [3, 0.2])})], "x", "y"),
        plot_masks([("a", [[True, False], [True, True]])] * 5),
        plot_rewards(["f", "g"], [("x", {"f": 1.0, "g": -0.5}), ("y", {"f": 0.0, "g": 0.2})]),
    ]
    for n, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{n}.png")
        assert (tmp_path / f"{n}.png").stat().st_size > 3000
