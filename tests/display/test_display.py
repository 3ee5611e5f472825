import matplotlib
import pytest

from helpers import plot_comparison, plot_lines, plot_masks, plot_rewards, plot_training, text_table
from helpers.evaluation import compare

matplotlib.use("Agg")


def test_table_aligns_text_left_and_numbers_right():
    table = text_table([("a", 1), ("long name", 1234.5)], header=("part", "n"))
    assert table.splitlines() == [
        "part              n",
        "---------  --------",
        "a                 1",
        "long name  1.23e+03",
    ]


def logs(step):
    names = (
        "reward",
        "pass_rate",
        "cheat_rate",
        "completions/mean_length",
        "completions/max_length",
        "entropy",
        "step_time",
    )
    return {"step": step, "completions/clipped_ratio": 0.0, "rewards/f/mean": 0.5, **dict.fromkeys(names, 0.25)}


@pytest.mark.parametrize("correct", [0, 2])
def test_plots_draw(tmp_path, correct):
    """Also where nothing is correct, which is where a first run often ends."""
    rows = [
        {"id": f"q{n}", "correct": n < correct, "cheat": False, "tokens": 9 + n, "speedup": 1.5 * (n < correct)}
        for n in range(4)
    ]
    report = compare(rows, rows).to_dict()
    figures = [
        plot_comparison(report, rows, rows),
        plot_training([logs(1), logs(2)]),
        plot_lines([("a", {"x": ([1, 2], [0.1, 0.2])}), ("b", {"y": ([1, 2], [3, 0.2])})], "x", "y"),
        plot_masks([("a", [[True, False], [True, True]])] * 5),
        plot_rewards(["f", "g"], [("x", {"f": 1.0, "g": -0.5}), ("y", {"f": 0.0, "g": 0.2})]),
    ]
    for n, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{n}.png")
        assert (tmp_path / f"{n}.png").stat().st_size > 3000
