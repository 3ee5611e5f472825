from types import SimpleNamespace

import matplotlib
import pytest

from helpers import LiveView, plot_comparison, plot_masks, plot_rewards, plot_training, text_table
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


def test_live_view_prints_lines_where_nobody_watches(capsys):
    view, state = LiveView(every=2), SimpleNamespace(global_step=0, max_steps=5, log_history=[])
    for step in range(1, 6):
        state.global_step = step
        view.on_log(None, state, None, logs(step), [])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["1/5", "2/5", "4/5", "5/5"]
    assert "pass 25%" in lines[0] and lines[-1].endswith("0.0 min left")


def test_live_view_updates_one_display_and_escapes_html(monkeypatch):
    """A completion is text that nobody trusts; shown as HTML it must stay text."""
    shown = []
    handle = SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, display_id: shown.append(bundle) or handle)
    view, state = LiveView(), SimpleNamespace(global_step=0, max_steps=2, log_history=[])
    view.interactive = True
    for step in (1, 2):
        state.global_step = step
        state.log_history.append(logs(step))
        view.on_log(None, state, None, logs(step), [{"rewards": {"f": 1.0}, "completion": "<script>x</script>"}])
    assert len(shown) == 2 and "<script>" not in shown[1]["text/html"] and "step 2/2" in shown[1]["text/plain"]


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
        plot_masks([("a", [[True, False], [True, True]])] * 5),
        plot_rewards(["f", "g"], [("x", {"f": 1.0, "g": -0.5}), ("y", {"f": 0.0, "g": 0.2})]),
    ]
    for n, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{n}.png")
        assert (tmp_path / f"{n}.png").stat().st_size > 3000
