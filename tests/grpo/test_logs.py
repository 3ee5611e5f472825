"""What a person reads of a run: one line a step, a file of completions a step, curves; also after a resume."""

import builtins
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from helpers import UserError
from helpers.grpo import logs as logs_module
from helpers.grpo.logs import RunLog, read_completions
from tests.disk import full_disk

NEEDED_BY_CURVES = ("tensorboard", "torch.utils.tensorboard")
PROMPT = [{"role": "user", "content": "What is 1 + 1?"}]


def logs(step=1, **more):
    """A row of metrics."""
    metrics = {"step": step, "reward": 0.45, "outcomes/correct": 0.33, "completions/mean_length": 106.2}
    metrics |= {"completions/clipped_ratio": 0.05, "entropy": 0.066, "grad_norm": 0.5234, "step_time": 4.91}
    metrics |= {"sampling/effective_sample_size": 0.98, "monitor/signs": []}
    return metrics | more


def record(**more):
    """A completion, as `completion_records` gives it."""
    plain = {"prompt": PROMPT, "thinking": "Two.", "completion": "2", "finish_reason": "stop", "advantage": 0.7}
    graded = {"outcome": "correct", "reason": "", "rewards": {"f": 1.0, "g": math.nan}, "reward": 1.0}
    return plain | graded | more


def written(folder):
    return sorted(path.name for path in (folder / "completions").iterdir())


def lines(folder):
    """The lines of train.log without their times."""
    text = (folder / "train.log").read_text()
    return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line) for line in text.splitlines()]


def one_session(folder, steps, last_step=0, max_steps=6):
    log = RunLog(folder, ["f", "g"], max_steps, last_step)
    for step in steps:
        log.write(logs(step), [record()])
    return log


@pytest.fixture
def without(monkeypatch):
    """Returns a function that makes packages look as if they were not installed."""
    real = builtins.__import__

    def hide(*hidden):
        def is_hidden(name):
            return any(f"{name}.".startswith(f"{package}.") for package in hidden)

        def importing(name, *arguments, **keywords):
            if is_hidden(name):
                raise ImportError(f"No module named {name!r}")
            return real(name, *arguments, **keywords)

        for name in list(sys.modules):
            if is_hidden(name):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(builtins, "__import__", importing)

    return hide


def test_a_line_a_step(tmp_path):
    """A run on a machine without a notebook is watched by its log: what matters stands in one line, signs below it."""
    log = RunLog(tmp_path, ["f"], max_steps=30)
    log.write(logs(5), [])
    log.write(logs(6, **{"monitor/signs": ["many copies", "Memory is short."], "reward": None}), [])
    log.write({"step": 7}, [])
    log.close()
    assert lines(tmp_path) == [
        "started after step 0/30",
        "step 5/30  reward +0.450  correct 33%  tokens 106  cut off 5%  entropy 0.066  grad_norm 0.523  ESS 98%  "
        "seconds 4.9",
        "step 6/30  reward –  correct 33%  tokens 106  cut off 5%  entropy 0.066  grad_norm 0.523  ESS 98%  "
        "seconds 4.9",
        "    many copies",
        "    Memory is short.",
        "step 7/30",
        "ended after step 7/30",
    ]


def test_a_hostile_sign_stays_in_its_line(tmp_path):
    """Reasons come from programs that nobody trusts: one could forge a step, or clear the terminal of who reads."""
    log = RunLog(tmp_path, ["f"])
    log.write(logs(1, **{"monitor/signs": ["a\n2026-01-01 00:00:00  step 9/9\x1b[2J\u202e", "b" * 10_000]}), [])
    text = (tmp_path / "train.log").read_text()
    assert len(text.splitlines()) == 4 and len(text) < 1000
    assert all(line.isprintable() for line in text.splitlines())


def test_completions_have_trls_path_and_columns(tmp_path):
    """Tools that read TRL's files, and people's notebooks, find the same columns."""
    records = [record(mine=3), record(mine=4, completion="3", outcome="wrong", rewards={"f": 0.0, "g": 0.5})]
    RunLog(tmp_path, ["f", "g"]).write(logs(7), records)
    table = pyarrow.parquet.read_table(tmp_path / "completions" / "completions_00007.parquet")
    trls = {"step", "prompt", "completion", "f", "g", "advantage", "mine"}
    assert set(table.column_names) == trls | {"thinking", "finish_reason", "outcome", "reason", "reward_total"}
    first, second = read_completions(tmp_path, 7)
    assert first == {
        "step": 7, "prompt": PROMPT, "completion": "2", "thinking": "Two.", "finish_reason": "stop",
        "outcome": "correct", "reason": "", "advantage": 0.7, "reward_total": 1.0, "f": 1.0, "g": None, "mine": 3,
    }  # fmt: skip
    assert second["f"] == 0.0 and second["g"] == 0.5 and second["mine"] == 4


def test_columns_have_the_same_types_in_every_step(tmp_path):
    """Files whose types differ cannot be read together: a reward that judged nothing once made such a file."""
    log = RunLog(tmp_path, ["f", "g"])
    log.write(logs(1), [record()])
    log.write(logs(2), [record(rewards={"f": 1.0, "g": 0.25})])
    files = [tmp_path / "completions" / name for name in written(tmp_path)]
    schemas = [pyarrow.parquet.read_schema(file) for file in files]
    assert schemas[0] == schemas[1] and len(pyarrow.parquet.read_table(files[0].parent)) == 2


def test_names_that_are_taken(tmp_path):
    """A reward function called like a column replaced it, or the other way round."""
    rewards = {"reason": 0.5, "reward": 0.25}
    RunLog(tmp_path, ["reason", "reward"]).write(logs(1), [record(rewards=rewards, reason="too slow", step=9)])
    (found,) = read_completions(tmp_path, 1)
    assert found["reason"] == "too slow" and found["rewards/reason"] == 0.5 and found["reward"] == 0.25
    assert found["step"] == 1 and found["extras/step"] == 9 and found["reward_total"] == 1.0


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_odd_values(tmp_path, without, has_pyarrow):
    """What a model or a user's log_extra gives must not end hours of training."""
    odd = [record(completion="half \ud800", mine=1), record(mine="text", prompt="plain"), record(mine=None)]
    odd.append(record(reward=math.inf, rewards={"f": math.inf}, mine=2**80))
    if not has_pyarrow:
        without("pyarrow")
    RunLog(tmp_path, ["f", "g"]).write(logs(1), odd)
    found = read_completions(tmp_path, 1)
    assert len(found) == 4 and found[0]["completion"].startswith("half ")
    assert found[3]["f"] is None and found[3]["reward_total"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_without_pyarrow_there_are_json_lines(tmp_path, without, capsys):
    """One warning, not one a step, and the completions are not lost."""
    without("pyarrow")
    one_session(tmp_path, [1, 2])
    assert written(tmp_path) == ["completions_00001.jsonl", "completions_00002.jsonl"]
    assert capsys.readouterr().out.count("pip install pyarrow") == 1
    assert read_completions(tmp_path, 2)[0]["g"] is None


def test_no_records_no_file(tmp_path):
    """A run that keeps no completions writes none."""
    RunLog(tmp_path, ["f"]).write(logs(1), [])
    assert not (tmp_path / "completions").exists()


def test_a_step_that_is_not_there_is_one_sentence(tmp_path):
    """A traceback would hide which steps there are."""
    with pytest.raises(UserError, match="no completions of step 3: there are none"):
        read_completions(tmp_path, 3)
    one_session(tmp_path, [1, 2])
    with pytest.raises(UserError, match="no completions of step 3: there are 1 to 2"):
        read_completions(tmp_path, 3)
    (tmp_path / "completions" / "completions_00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="cannot be read"):
        read_completions(tmp_path, 2)


def test_a_resume_drops_what_came_after(tmp_path):
    """A run broken off at step 5 and resumed at 3 had steps 4 and 5 twice in its log, with different rewards."""
    one_session(tmp_path, [1, 2, 3, 4, 5])
    with open(tmp_path / "train.log", "a") as file:
        file.write("2026-11-22 17:00:00  step 6/6  rew")  # cut short by the end of the session
    log = one_session(tmp_path, [4], last_step=3)
    assert written(tmp_path) == [f"completions_0000{step}.parquet" for step in (1, 2, 3, 4)]
    log.close()
    begun = [" ".join(line.split()[:4]) for line in lines(tmp_path)]
    assert begun == [
        "started after step 0/6",
        "step 1/6 reward +0.450",
        "step 2/6 reward +0.450",
        "step 3/6 reward +0.450",
        "resumed after step 3/6",
        "step 4/6 reward +0.450",
        "ended after step 4/6",
    ]


def test_a_sign_is_dropped_with_its_step(tmp_path):
    """The sign of a step that is repeated belongs to nothing."""
    log = one_session(tmp_path, [1])
    log.write(logs(2, **{"monitor/signs": ["odd"]}), [])
    one_session(tmp_path, [], last_step=1)
    assert "    odd" not in lines(tmp_path) and lines(tmp_path)[-1] == "resumed after step 1/6"


@pytest.mark.parametrize(("size", "path"), [(300, "completions/completions_00002"), (0, "train.log")])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(tmp_path, size, path, without):
    """Half a parquet file cannot be read at all; a traceback does not say that the disk is full."""
    without(*NEEDED_BY_CURVES)
    log = one_session(tmp_path, [1])
    with full_disk() as fill, pytest.raises(UserError, match=f"Cannot write to .*{path}.*: make room"):
        fill(size)
        log.write(logs(2), [record()] if size else [])
    assert written(tmp_path) == ["completions_00001.parquet"]
    assert not list(tmp_path.rglob("*.part"))
    assert len(read_completions(tmp_path, 1)) == 1


def test_without_tensorboard_nothing_is_said(tmp_path, without, capsys):
    """It is no requirement, so its absence is no fault."""
    without(*NEEDED_BY_CURVES)
    one_session(tmp_path, [1]).close()
    assert not (tmp_path / "tensorboard").exists() and capsys.readouterr().out == ""


class Curves:
    """Stands in for TensorBoard's writer, and notes what it gets."""

    def __init__(self, folder, purge_step):
        self.folder = Path(folder)
        self.purge_step = purge_step
        self.scalars = {}
        self.histograms = []
        self.flushed = []

    def add_scalar(self, name, value, step):
        self.scalars[name, step] = value

    def add_histogram_raw(self, name, **values):
        self.histograms.append(SimpleNamespace(name=name, **values))

    def flush(self):
        self.flushed.append(len(self.scalars))

    def close(self):
        self.flushed.append("closed")


def test_curves_have_the_names_of_the_metrics(tmp_path, monkeypatch):
    """Sent to the disk after each step, and from the resumed step on what an earlier session drew is dropped."""
    monkeypatch.setattr(logs_module, "_summary_writer", Curves)
    log = RunLog(tmp_path, ["f"], last_step=3)
    histogram = {"edges": [-1.5, -0.5, 0.5, 1.5], "counts": [1, 2, 3]}
    log.write(logs(4, reward=None, **{"advantages/histogram": histogram}), [])
    log.close()
    curves = log.curves
    assert curves.purge_step == 4 and curves.folder == tmp_path / "tensorboard"
    assert curves.scalars["entropy", 4] == 0.066
    assert {name for name, _ in curves.scalars} == set(logs()) - {"step", "reward", "monitor/signs"}
    (drawn,) = curves.histograms
    assert drawn.bucket_limits == [-0.5, 0.5, 1.5] and drawn.bucket_counts == [1, 2, 3] and drawn.num == 6
    assert drawn.sum == 2 and drawn.sum_squares == 4 and drawn.global_step == 4
    assert curves.flushed == [len(curves.scalars), "closed"]


def curves_session(folder, steps, last_step, reward):
    """Write the curves of some steps. reward: what is added to a hundredth of the step."""
    log = RunLog(folder, ["f"], last_step=last_step)
    for step in steps:
        histogram = {"edges": [-0.5, 0.5, 1.5], "counts": [2, step]}
        log.write(logs(step, reward=reward + step / 100, **{"advantages/histogram": histogram}), [])
    return log


def read_curves(folder):
    """Return what TensorBoard's own reader finds: every scalar as {tag: [(step, value)]}, and its whole reader."""
    reader = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0}).Reload()
    curves = {}
    for tag in reader.Tags()["scalars"]:
        curves[tag] = [(event.step, round(event.value, 5)) for event in reader.Scalars(tag)]
    return curves, reader


def test_curves_in_tensorboards_own_words(tmp_path):
    """Each number of each step under its log name, at its step: the step itself, texts and None are no curves."""
    curves_session(tmp_path, (1, 2, 3), last_step=0, reward=0.5).close()
    curves, reader = read_curves(tmp_path)
    constant = logs()
    for name in ("step", "reward", "monitor/signs"):
        del constant[name]
    assert curves.pop("reward") == [(1, 0.51), (2, 0.52), (3, 0.53)]
    assert curves == {tag: [(step, value) for step in (1, 2, 3)] for tag, value in constant.items()}
    assert reader.Tags()["histograms"] == ["advantages/histogram"]
    drawn = reader.Histograms("advantages/histogram")
    assert [(event.step, event.histogram_value.num) for event in drawn] == [(1, 3), (2, 4), (3, 5)]
    assert list(drawn[2].histogram_value.bucket_limit) == [0.5, 1.5]
    assert list(drawn[2].histogram_value.bucket) == [2, 3]


@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
def test_no_step_stands_twice_in_the_curves_after_a_resume(tmp_path, is_killed):
    """Of steps that are repeated a curve had both values, and jumped back and forth between them."""
    sessions = [((1, 2, 3, 4), 0, 0.5), ((3, 4, 5), 2, 0.7), ((5, 6), 4, 0.9)]
    for steps, last_step, reward in sessions:
        log = curves_session(tmp_path, steps, last_step, reward)
        if not is_killed:
            log.close()
    curves, reader = read_curves(tmp_path)
    assert curves["reward"] == [(1, 0.51), (2, 0.52), (3, 0.73), (4, 0.74), (5, 0.95), (6, 0.96)]
    assert [step for step, _ in curves["entropy"]] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in reader.Histograms("advantages/histogram")] == [1, 2, 3, 4, 5, 6]
