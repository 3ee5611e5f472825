"""The live view: what it shows, that it stays in a saved notebook, and that nothing it gets can harm."""

import io
import json
import math
import re
from types import SimpleNamespace

import nbformat
import pytest

from helpers import LiveView
from helpers.display import page
from helpers.runtime import ROOT
from tests.timing import assert_linear, assert_quick

CELL = """
import sys; sys.path.insert(0, {root!r})
from types import SimpleNamespace
from helpers.display import LiveView
view, state = LiveView(every=5), SimpleNamespace(global_step=0, max_steps=12, log_history=[], drawing=None)
for step in range(1, 13):
    state.global_step = step
    logs = {{"step": step, "reward": step / 10, "rewards/f/mean": 0.5, "step_time": 30.0}}
    state.log_history.append(logs)
    row = {{"prompt": "Why?", "completion": f"answer {{step}}", "rewards": {{"f": 0.5}}, "reward": 0.5}}
    view.on_log(None, state, None, logs=logs, completions=[row])
"""


def logs(step=1, **more):
    rates = dict.fromkeys(("outcomes/correct", "outcomes/refused", "completions/clipped_ratio"), 0.25)
    lengths = {"completions/mean_length": 80.0, "completions/max_length": 140.0, "entropy": 0.125}
    times = {"time/generate": 20.5, "time/reward": 3.5, "time/update": 6.5, "step_time": 31.5}
    return {"step": step, "reward": 0.5, "rewards/f/mean": 0.75, **rates, **lengths, **times, **more}


def state_at(step, max_steps=100, history=None):
    return SimpleNamespace(global_step=step, max_steps=max_steps, log_history=history or [logs(step)], drawing=None)


def row(completion="answer", prompt="question", reward=1.0, **rewards):
    return {"prompt": prompt, "completion": completion, "rewards": rewards or {"f": 1.0}, "reward": reward}


def cells(shown, heading):
    """The texts in the row of that heading."""
    found = re.search(f"<tr[^>]*><th[^>]*>{heading}</th>(.*?)</tr>", shown)
    return re.findall("<td[^>]*>([^<]*)", found[1])


def points(shown, heading):
    found = re.search(f'<th[^>]*>{heading}</th>.*?points="(.*?)"', shown)
    return [tuple(map(float, pair.split(","))) for pair in found[1].split()]


@pytest.fixture
def bundles(monkeypatch):
    """What a view in a kernel sends, in order."""
    sent = []
    handle = SimpleNamespace(update=lambda bundle, raw: sent.append(bundle))
    monkeypatch.setattr("helpers.display.live._in_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, display_id: sent.append(bundle) or handle)
    return sent


@pytest.mark.parametrize("headless", [False, True])
def test_saved_notebook_keeps_one_display_of_the_last_step(tmp_path, monkeypatch, headless):
    """A real kernel, as `make run` and a reader start it."""
    from papermill import execute_notebook

    monkeypatch.delenv("HELPERS_HEADLESS")
    if headless:
        monkeypatch.setenv("HELPERS_HEADLESS", "1")
    source, saved, stdout = tmp_path / "in.ipynb", tmp_path / "out.ipynb", io.StringIO()
    code = nbformat.v4.new_code_cell(CELL.format(root=str(ROOT)))
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), source)
    execute_notebook(str(source), str(saved), kernel_name="python3", progress_bar=False, stdout_file=stdout)
    notebook = nbformat.read(saved, 4)
    shown, *streams = notebook.cells[0].outputs
    assert shown.output_type == "display_data" and set(shown.data) == {"text/html", "text/plain"}
    for text in shown.data.values():
        assert "step 12 of 12" in text and "+1.20" in text and "answer 12" in text and "answer 11" not in text
    assert "widgets" not in notebook.metadata and all(output.output_type == "stream" for output in streams)
    steps = re.findall(r"^step (\S+)  reward", stdout.getvalue(), re.M)
    assert steps == (["1/12", "5/12", "10/12", "12/12"] if headless else [])
    assert bool(streams) == headless


def test_prints_lines_where_there_is_no_kernel(capsys, monkeypatch):
    """Also in a process that has imported one, and from a resumed run's first step on."""
    import ipykernel  # noqa: F401
    import IPython  # noqa: F401

    monkeypatch.delenv("HELPERS_HEADLESS")
    view = LiveView(every=4)
    for step in range(3, 11):
        view.on_log(None, state_at(step, 10), None, logs=logs(step), completions=[row()])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 3/10", "step 4/10", "step 8/10", "step 10/10"]
    assert lines[-1] == (
        "step 10/10  reward +0.500  correct 25%  refused 25%  tokens 80  cut off 25%  entropy 0.125  seconds 31.5"
        "  0.0 min left"
    )


def test_one_display_is_updated(bundles):
    view = LiveView()
    for step in (1, 2):
        view.on_log(None, state_at(step), None, logs=logs(step), completions=[])
    assert ["step 1 of" in b["text/html"] for b in bundles] == [True, False]
    assert view.handle is not None


@pytest.mark.parametrize(
    "heading, latest",
    [
        ("reward", "+0.50"),
        ("f", "+0.75"),
        ("correct", "25%"),
        ("refused", "25%"),
        ("tokens a completion", "80"),
        ("longest", "140"),
        ("cut off", "25%"),
        ("entropy", "0.125"),
        ("seconds a step", "31.5"),
        ("generate", "20.5"),
        ("update", "6.5"),
    ],
)
def test_every_metric_is_shown(heading, latest):
    assert cells(page.page(state_at(1), logs(), []), heading)[0] == latest
    line = next(line for line in page.text(state_at(1), logs(), []).splitlines() if line.strip().startswith(heading))
    assert latest in line


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "x", 10**400])
def test_what_is_no_number_is_a_dash(value):
    """A metric may be missing at one step, at all of them, or never have been a number."""
    broken = {**dict.fromkeys(logs(), value), "step": 2}
    for history in ([broken, broken], [logs(1), broken], [{}, broken], [broken, {}]):
        state = state_at(2, history=history)
        shown = page.page(state, history[-1], [])
        assert cells(shown, "f")[0] == cells(shown, "generate")[0] == "–"
        assert "nan" not in shown and "inf" not in shown
        assert "nan" not in page.line(state, history[-1])
    assert page.line(state_at(2, history=[broken]), broken).endswith("seconds –  – min left")
    assert "– so far, – left" in page.page(state_at(2, history=[broken]), broken, [])


def test_change_compares_the_ends():
    history = [logs(n, **{"reward": float(n), "outcomes/correct": n / 100}) for n in range(1, 21)]
    shown = page.page(state_at(20, history=history), history[-1], [])
    assert cells(shown, "reward")[:2] == ["+20.00", "+15.00"] and cells(shown, "correct")[:2] == ["20%", "+15 pt"]
    assert "mean of the last 5 against the first 5" in shown
    alone = page.page(state_at(1), logs(), [])
    assert cells(alone, "reward")[1] == "–" and "from the second step on" in alone


def test_time_left_after_a_resume():
    """90 of 100 steps were done by earlier sessions: the pace is that of the two done here."""
    state = state_at(92, history=[logs(91, step_time=50.0), logs(92, step_time=70.0)])
    assert "2 min so far, 8 min left" in page.text(state, logs(), [])
    assert "2 min so far, 8 min left" in page.page(state, logs(), [])
    assert page.line(state, logs()).endswith("8.0 min left")
    assert "width:92.0%" in page.page(state, logs(), [])
    assert "curves from step 91" in page.page(state, logs(), [])


def test_durations():
    assert [page._duration(s) for s in (0.4, 89, 95, 3600, 5400, 40000)] == [
        "0 s",
        "89 s",
        "2 min",
        "60 min",
        "1 h 30 min",
        "11 h 07 min",
    ]


def test_curves_rise_with_the_values_and_are_thinned():
    history = [logs(n, reward=float(n), entropy=0.5) for n in range(1, 1001)]
    shown = page.page(state_at(1000, 1000, history), history[-1], [])
    curve = points(shown, "reward")
    assert 100 <= len(curve) <= 120
    assert all(x < y and high > low for (x, high), (y, low) in zip(curve, curve[1:]))  # y grows downwards
    assert len({y for _, y in points(shown, "entropy")}) == 1


def many_steps(count):
    """Return what the page shows after so many steps, with eight rewards."""
    rewards = {f"rewards/f{n}/mean": 0.1 for n in range(8)}
    history = [{**logs(n, reward=math.sin(n)), **rewards} for n in range(1, count + 1)]
    return state_at(count, 2 * count, history), history[-1], [row()]


def draw(given):
    page.page(*given)
    page.text(*given)


def test_a_thousand_steps_are_quick_and_small():
    """It is drawn at every step. Writing all of the history as JSON takes about as long."""
    given = many_steps(1000)
    state, *_ = given
    assert_quick(lambda: draw(given), lambda: json.dumps(state.log_history), factor=8)
    assert len(page.page(*given).encode()) < 60_000


def test_the_time_is_linear():
    assert_linear(draw, many_steps(500), many_steps(8000), times=16)


@pytest.mark.parametrize(
    "text",
    [
        "</pre><script>x</script><img src=x onerror=y>",
        "\x1b[31mred\x1b[0m\x00\x9b",
        "\ud800 \udfff",
        "&" * 10**6,
        "é\n" * 500_000,
    ],
    ids=["html", "ansi", "surrogates", "line", "lines"],
)
def test_a_hostile_completion_is_harmless(bundles, text, capsys):
    """Nobody trusts what a model writes, nor the name of a reward, nor a prompt from a data set."""
    prompt = [{"role": "user", "content": text}]
    state, metrics = state_at(1), logs(**{f"rewards/{text}/mean": 0.5})
    LiveView().on_log(None, state, None, logs=metrics, completions=[row(text, prompt, **{text: 1.0})])
    for shown in bundles[0].values():
        assert len(shown.encode("utf-8")) < 60_000
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert not re.search("<script|<img", bundles[0]["text/html"])
    assert "best completion" in bundles[0]["text/html"] and "failed" not in capsys.readouterr().out


def test_signs_of_hacking_are_shown(bundles, capsys):
    """Wherever one looks: the page, its text, and the printed line. Reasons come from hostile programs."""
    metrics = logs(**{"monitor/signs": ["2 of 8 are faster than they can be", "refused: <script>\x1b[31m"]})
    view = LiveView()
    view.prints = True
    view.on_log(None, state_at(1), None, logs=metrics, completions=[row()])
    for shown in (*bundles[0].values(), capsys.readouterr().out):
        assert "watch: 2 of 8 are faster than they can be" in shown and "\x1b" not in shown
    assert "<script" not in bundles[0]["text/html"] and "watch" not in page.line(state_at(1), logs())


def test_long_texts_say_what_is_left_out():
    shown = page.text(state_at(1), logs(), [row("a" * 5000, "\n".join("abcdefghij"))])
    assert "a" * 2000 + "\n… 3,000 more characters" in shown and "f\n… 8 more characters" in shown


def test_the_page_cannot_change_the_notebook_around_it():
    shown = page.page(state_at(1), logs(), [row()])
    assert not re.search(r"<style|<script|<link|\bclass=|\bid=|https?:|url\(", shown)
    assert shown.count("<div") == shown.count("</div") and shown.count("<table") == shown.count("</table") == 2


def test_best_completion():
    """By the reward that the trainer added up; a row that nothing judged is never the best."""
    rows = [row("none", reward=None), row("broken", reward=math.nan), row("low", reward=-3.0), row("high", reward=-0.5)]
    assert page.best_of(rows)["completion"] == "high" and page.best_of([]) is None
    assert "f –, g -0.50" in page.page(state_at(1), logs(), [row("high", f=None, g=-0.5)])


def test_the_prompt_reaches_the_page(bundles):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is 1 < 2?"}]
    rows = [row("first", messages, reward=1.0), row("second", messages, reward=1.8)]
    LiveView().on_log(None, state_at(1), None, logs=logs(), completions=rows)
    assert "Be brief.\nIs 1 &lt; 2?" in bundles[0]["text/html"] and "Be brief.\nIs 1 < 2?" in bundles[0]["text/plain"]
    assert "second" in bundles[0]["text/html"] and "first<" not in bundles[0]["text/html"]


def test_a_broken_display_does_not_stop_training(bundles, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("the front end is gone")

    monkeypatch.setattr("IPython.display.display", broken)
    LiveView().on_log(None, state_at(1), None, logs=logs(), completions=[])
    lines = capsys.readouterr().out.splitlines()
    assert "the front end is gone" in lines[0] and lines[1].startswith("step 1/100  reward")
