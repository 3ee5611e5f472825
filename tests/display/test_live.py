"""The live view: what it shows, that it stays in a saved notebook, and that nothing it gets can harm."""

import io
import json
import math
import re
from types import SimpleNamespace

import nbformat
import pytest

from helpers import LiveView, plot_training, read_metrics
from helpers.display import page
from helpers.runtime import ROOT
from tests.grpo.small import trainer_in
from tests.timing import assert_linear, assert_quick

CELL = """
import sys; sys.path.insert(0, {root!r})
from types import SimpleNamespace
from helpers.display import LiveView
view = LiveView(every=5)
control = SimpleNamespace(should_training_stop=False)
history = []
state = SimpleNamespace(
    global_step=0, max_steps=12, log_history=history, history=history, completions=[], phase="starting", progress=None
)
view.on_train_begin(None, state, control)
for step in range(1, 13):
    state.phase = "drawing completions"
    view.on_progress(None, state, control)
    state.phase = ""
    state.global_step = step
    logs = {{"step": step, "reward": step / 10, "rewards/f/mean": 0.5, "step_time": 30.0}}
    history.append(logs)
    row = {{"prompt": "Why?", "completion": f"answer {{step}}", "rewards": {{"f": 0.5}}, "reward": 0.5}}
    state.completions = [row]
    view.on_log(None, state, control, logs=logs, completions=[row])
view.on_train_end(None, state, control)
"""


def logs(step=1, **more):
    rates = dict.fromkeys(("outcomes/correct", "outcomes/refused", "completions/clipped_ratio"), 0.25)
    lengths = {"completions/mean_length": 80.0, "completions/max_length": 140.0, "entropy": 0.125}
    times = {"time/generate": 20.5, "time/reward": 3.5, "time/update": 6.5, "step_time": 31.5}
    return {"step": step, "reward": 0.5, "rewards/f/mean": 0.75, **rates, **lengths, **times, **more}


def state_at(step, max_steps=100, history=None, completions=(), **more):
    """A trainer's state after a step. history: the metrics of all steps."""
    history = [logs(step)] if history is None else history
    known = {"log_history": history, "history": history, "completions": completions, "phase": "", "progress": None}
    return SimpleNamespace(global_step=step, max_steps=max_steps, **{**known, **more})


def note_step(view, state):
    """Tell a view of a step as the trainer does."""
    view.on_log(None, state, SimpleNamespace(), logs=state.history[-1], completions=state.completions)


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
    monkeypatch.setattr("helpers.display.kernel.in_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, display_id: sent.append(bundle) or handle)
    return sent


@pytest.mark.parametrize("headless", [False, True])
def test_saved_notebook_keeps_one_display_of_the_last_step(tmp_path, monkeypatch, headless):
    """A real kernel, as `make run` and a reader start it. Headless there is no widget: it would be dead."""
    from papermill import execute_notebook

    monkeypatch.delenv("HELPERS_HEADLESS")
    if headless:
        monkeypatch.setenv("HELPERS_HEADLESS", "1")
    source, saved, stdout = tmp_path / "in.ipynb", tmp_path / "out.ipynb", io.StringIO()
    code = nbformat.v4.new_code_cell(CELL.format(root=str(ROOT)))
    nbformat.write(nbformat.v4.new_notebook(cells=[code]), source)
    execute_notebook(str(source), str(saved), kernel_name="python3", progress_bar=False, stdout_file=stdout)
    notebook = nbformat.read(saved, 4)
    outputs = notebook.cells[0].outputs
    displays = [output for output in outputs if output.output_type == "display_data"]
    streams = [output for output in outputs if output.output_type == "stream"]
    *controls, shown = displays
    assert set(shown.data) == {"text/html", "text/plain"}
    for text in shown.data.values():
        assert "12 of 12 steps done" in text and "+1.20" in text and "answer 12" in text and "answer 11" not in text
        assert "drawing" not in text and "starting" not in text
    assert len(controls) == (0 if headless else 1) and len(outputs) == len(displays) + len(streams)
    assert ("widgets" in notebook.metadata) == bool(controls)
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
        note_step(view, state_at(step, 10))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 3/10", "step 4/10", "step 8/10", "step 10/10"]
    assert lines[-1] == (
        "step 10/10  reward +0.500  correct 25%  refused 25%  tokens 80  cut off 25%  entropy 0.125  seconds 31.5"
        "  0.0 min left"
    )


def test_a_run_that_was_finished_before_is_one_line(capsys):
    """The cell that trains, run again, printed nothing at all."""
    view = LiveView()
    state = state_at(3, 3, [logs(1), logs(2), logs(3)])
    view.on_train_begin(None, state, None)
    view.on_train_end(None, state, None)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["step 3/3"]


def test_one_display_is_updated(bundles):
    view = LiveView()
    for step in (1, 2):
        note_step(view, state_at(step))
    assert ["1 of 100 steps done" in b["text/html"] for b in bundles] == [True, False]
    assert view.handle is not None


@pytest.fixture
def watched(monkeypatch, bundles):
    """A view that somebody watches, in a kernel that handles no click while a cell runs."""
    monkeypatch.delenv("HELPERS_HEADLESS")
    return LiveView()


def test_the_view_is_there_before_the_first_step(watched, bundles):
    """It stayed empty until the first step had ended: two minutes on a busy machine, hours with a large model."""
    state = state_at(0, history=[], phase="starting")
    watched.on_train_begin(None, state, None)
    state.phase, state.progress = "drawing completions", (0, 64)
    watched.on_progress(None, state, None)
    state.phase, state.progress = "judging 64 completions", None
    watched.on_progress(None, state, None)
    for kind in ("text/html", "text/plain"):
        starting, drawing, judging = [bundle[kind] for bundle in bundles]
        assert "0 of 100 steps done" in starting and "starting" in starting
        assert "drawing completions: 0 of 64" in drawing and "judging 64 completions" in judging


def test_within_a_phase_the_display_changes_once_a_second(watched, bundles, monkeypatch):
    """64 completions that are finished at once were 64 pages; a new phase is shown at once."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("helpers.display.live.time", SimpleNamespace(monotonic=lambda: clock.now))
    state = state_at(0, history=[], phase="drawing completions")
    watched.on_train_begin(None, state, None)
    for finished in range(64):
        clock.now += 0.25
        state.progress = (finished, 64)
        watched.on_progress(None, state, None)
    assert 10 < len(bundles) < 16


def test_a_cell_that_is_run_again_gets_another_display(bundles, monkeypatch):
    """Its output is cleared first, and with it the display that was updated until then."""
    shown = []
    handle = SimpleNamespace(update=lambda bundle, raw: None)
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, display_id: shown.append(bundle) or handle)
    view = LiveView()
    finished = state_at(2, 2, [logs(1), logs(2)], [row("the last answer")])
    for _ in range(2):
        view.on_train_begin(None, finished, None)
        view.on_train_end(None, finished, None)
    assert len(shown) == 2
    assert "2 of 2 steps done" in shown[1]["text/html"] and "the last answer" in shown[1]["text/html"]


def test_nothing_is_shown_of_a_step_outside_of_training(watched, bundles):
    """A dry run and `evaluate` tell the callbacks, too; their display would stand in the wrong cell."""
    watched.on_progress(None, state_at(0, history=[], phase="drawing completions"), None)
    assert bundles == []


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
    assert cells(page.page(state_at(1)), heading)[0] == latest
    line = next(line for line in page.text(state_at(1)).splitlines() if line.strip().startswith(heading))
    assert latest in line


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "x", 10**400])
def test_what_is_no_number_is_a_dash(value):
    """A metric may be missing at one step, at all of them, or never have been a number."""
    broken = {**dict.fromkeys(logs(), value), "step": 2}
    for history in ([broken, broken], [logs(1), broken], [{}, broken], [broken, {}]):
        state = state_at(2, history=history)
        shown = page.page(state)
        assert cells(shown, "f")[0] == cells(shown, "generate")[0] == "–"
        assert "nan" not in shown and "inf" not in shown
        assert "nan" not in page.line(state)
    assert page.line(state_at(2, history=[broken])).endswith("seconds –  – min left")
    assert "– so far, – left" in page.page(state_at(2, history=[broken]))


def test_change_compares_the_ends():
    history = [logs(n, **{"reward": float(n), "outcomes/correct": n / 100}) for n in range(1, 21)]
    shown = page.page(state_at(20, history=history))
    assert cells(shown, "reward")[:2] == ["+20.00", "+15.00"] and cells(shown, "correct")[:2] == ["20%", "+15 pt"]
    assert "mean of the last 5 against the first 5" in shown
    alone = page.page(state_at(1))
    assert cells(alone, "reward")[1] == "–" and "from the second step on" in alone


def test_a_resumed_run_shows_all_of_it():
    """90 of 100 steps were done by earlier sessions. "so far" and the curves are theirs, too; the pace is of now."""
    earlier = [logs(step, step_time=10.0) for step in range(1, 91)]
    now = [logs(91, step_time=50.0), logs(92, step_time=70.0)]
    state = state_at(92, history=earlier + now, log_history=now)
    assert "17 min so far, 8 min left" in page.text(state)
    shown = page.page(state)
    assert "17 min so far, 8 min left" in shown and "width:92.0%" in shown
    assert page.line(state).endswith("8.0 min left")
    assert "curves from step 1;" in shown and len(points(shown, "reward")) == 92


def test_before_its_first_step_a_resumed_run_goes_on_at_the_old_pace():
    state = state_at(90, history=[logs(step, step_time=12.0) for step in range(1, 91)], log_history=[])
    assert "18 min so far, 2 min left" in page.page(state)


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
    shown = page.page(state_at(1000, 1000, history))
    curve = points(shown, "reward")
    assert 100 <= len(curve) <= 120
    assert all(x < y and high > low for (x, high), (y, low) in zip(curve, curve[1:]))  # y grows downwards
    assert len({y for _, y in points(shown, "entropy")}) == 1


def many_steps(count):
    """Return the state after so many steps, with eight rewards."""
    rewards = {f"rewards/f{n}/mean": 0.1 for n in range(8)}
    history = [{**logs(n, reward=math.sin(n)), **rewards} for n in range(1, count + 1)]
    return state_at(count, 2 * count, history, [row()])


def draw(state):
    page.page(state)
    page.text(state)


def test_a_thousand_steps_are_quick_and_small():
    """It is drawn at every step. Writing all of the history as JSON takes about as long."""
    state = many_steps(1000)
    assert_quick(lambda: draw(state), lambda: json.dumps(state.history), factor=8)
    assert len(page.page(state).encode()) < 60_000


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
    metrics = logs(**{f"rewards/{text}/mean": 0.5})
    note_step(LiveView(), state_at(1, history=[metrics], completions=[row(text, prompt, **{text: 1.0})]))
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
    note_step(view, state_at(1, history=[metrics]))
    for shown in (*bundles[0].values(), capsys.readouterr().out):
        assert "watch, step 1: 2 of 8 are faster than they can be" in shown and "\x1b" not in shown
    assert "<script" not in bundles[0]["text/html"] and "watch" not in page.line(state_at(1))


def test_a_sign_of_an_earlier_step_is_still_shown(bundles, capsys):
    """Each is given once. Whoever looks a minute later must see it, and where steps are printed it must be printed."""
    view = LiveView(every=5)
    view.prints = True
    history = [logs(), logs(), logs(**{"monitor/signs": ["Entropy rises"]})]
    for count in (1, 2, 3):
        note_step(view, state_at(count, history=history[:count]))
    assert "Entropy rises" in capsys.readouterr().out
    note_step(view, state_at(4, history=[*history, logs()]))
    assert all("Entropy rises" in shown for shown in bundles[-1].values())
    assert "Entropy rises" not in capsys.readouterr().out


def test_long_texts_say_what_is_left_out():
    shown = page.text(state_at(1, completions=[row("a" * 5000, "\n".join("abcdefghij"))]))
    assert "a" * 2000 + "\n… 3,000 more characters" in shown and "f\n… 8 more characters" in shown


def test_the_page_cannot_change_the_notebook_around_it():
    shown = page.page(state_at(1, completions=[row()]))
    assert not re.search(r"<style|<script|<link|\bclass=|\bid=|https?:|url\(", shown)
    assert shown.count("<div") == shown.count("</div") and shown.count("<table") == shown.count("</table") == 2


def test_best_completion():
    """By the reward that the trainer added up; a row that nothing judged is never the best."""
    rows = [row("none", reward=None), row("broken", reward=math.nan), row("low", reward=-3.0), row("high", reward=-0.5)]
    assert page.best_of(rows)["completion"] == "high" and page.best_of([]) is None
    assert "f –, g -0.50" in page.page(state_at(1, completions=[row("high", f=None, g=-0.5)]))


def test_the_prompt_reaches_the_page(bundles):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is 1 < 2?"}]
    rows = [row("first", messages, reward=1.0), row("second", messages, reward=1.8)]
    note_step(LiveView(), state_at(1, completions=rows))
    assert "Be brief.\nIs 1 &lt; 2?" in bundles[0]["text/html"] and "Be brief.\nIs 1 < 2?" in bundles[0]["text/plain"]
    assert "second" in bundles[0]["text/html"] and "first<" not in bundles[0]["text/html"]


def test_a_broken_display_does_not_stop_training(bundles, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("the front end is gone")

    monkeypatch.setattr("IPython.display.display", broken)
    note_step(LiveView(), state_at(1))
    lines = capsys.readouterr().out.splitlines()
    assert "the front end is gone" in lines[0] and lines[1].startswith("step 1/100  reward")


class BrokenControls:
    """Controls in a frontend that has gone."""

    stop_is_asked = False

    def show(self):
        pass

    def close(self):
        raise RuntimeError("the front end is gone")

    def handle_messages(self):
        raise RuntimeError("the front end is gone")


def test_broken_controls_do_not_stop_training(watched, bundles, monkeypatch, capsys):
    monkeypatch.setattr("helpers.display.kernel.handle_messages", lambda comm_ids: None)
    monkeypatch.setattr("helpers.display.live.Controls", BrokenControls)
    state = state_at(0, history=[], phase="starting")
    watched.on_train_begin(None, state, None)
    for _ in range(3):
        watched.on_progress(None, state, None)
    note_step(watched, state_at(1))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and "interrupt the kernel to stop" in lines[0]
    assert "1 of 100 steps done" in bundles[-1]["text/html"]


class Recorder:
    """A callback that notes what it is told, and asks to stop after a step."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.phases = []
        self.shown = []  # the steps that the view has rows of, at each phase

    def on_train_begin(self, args, state, control):
        self.on_progress(args, state, control)

    def on_progress(self, args, state, control):
        if not self.phases or self.phases[-1] != state.phase:
            self.phases.append(state.phase)
            self.shown.append([row["step"] for row in state.history])

    def on_log(self, args, state, control, logs, completions):
        control.should_training_stop = state.global_step == self.stop_after

    def on_train_end(self, args, state, control):
        self.on_progress(args, state, control)


@pytest.fixture
def prompts(task):
    return task.dataset("train", 12)


def test_a_run_that_was_stopped_goes_on_and_shows_its_history(tmp_path, prompts, capsys):
    """Stop acts after the step: it is saved, and one sentence says how to go on."""
    first = Recorder(stop_after=1)
    trainer = trainer_in(tmp_path, prompts, callbacks=[first])
    assert trainer.train().global_step == 1
    drawn = trainer.last_completions
    assert "Stopped after step 1 of 3, which is saved; to go on, run this again" in capsys.readouterr().out
    step = ["drawing completions", "judging 8 completions", "computing the gradient", "saving"]
    assert first.phases == ["starting", *step, ""]

    again = Recorder()
    resumed = trainer_in(tmp_path, prompts, callbacks=[again])
    resumed.train(resume_from_checkpoint=True)
    assert again.phases == ["starting", *step, *step, ""]
    assert again.shown[1] == [1] and again.shown[-1] == [1, 2, 3] and len(resumed.state.log_history) == 2
    assert "Stopped" not in capsys.readouterr().out

    finished = trainer_in(tmp_path, prompts)
    finished.train(resume_from_checkpoint=True)
    texts = [row["completion"] for row in resumed.last_completions]
    assert [row["completion"] for row in finished.last_completions] == texts and len(texts) == len(drawn) == 8
    assert finished.last_completions[0]["rewards"] == resumed.last_completions[0]["rewards"]
    page_of_the_end = page.page(finished.state)
    assert "3 of 3 steps done" in page_of_the_end and "best completion" in page_of_the_end


def test_the_curves_of_a_resumed_run_have_all_of_its_steps(tmp_path, prompts, bundles):
    """They began at the step that was resumed, so what the sessions before had gained could not be seen."""
    trainer_in(tmp_path, prompts, callbacks=[Recorder(stop_after=1)]).train()
    resumed = trainer_in(tmp_path, prompts, callbacks=[LiveView()])
    resumed.train(resume_from_checkpoint=True)
    pages = [bundle["text/html"] for bundle in bundles if "<polyline" in bundle["text/html"]]
    assert {len(points(shown, "reward")) for shown in pages} == {1, 2, 3} and "curves from step 1;" in pages[-1]
    rewards = [row["reward"] for row in read_metrics(tmp_path / "metrics.jsonl")]
    lowest_point = max(range(3), key=lambda place: points(pages[-1], "reward")[place][1])  # y grows downwards
    assert lowest_point == rewards.index(min(rewards)), "the points are not those of the run's steps"

    figure = plot_training(read_metrics(tmp_path / "metrics.jsonl")).figure
    for axis in figure.axes[:1]:
        assert [list(line.get_xdata()) for line in axis.lines] == [[1, 2, 3], [1, 2, 3]]


def test_callbacks_hear_of_the_end_of_a_run_that_failed(tmp_path, prompts):
    """A Stop button that outlives the run stops nothing."""
    recorder = Recorder()
    trainer = trainer_in(tmp_path, prompts, reward=lambda prompts, completions, **_: 1 / 0, callbacks=[recorder])
    with pytest.raises(Exception, match="division by zero"):
        trainer.train()
    assert recorder.phases == ["starting", "drawing completions", "judging 8 completions", ""]
