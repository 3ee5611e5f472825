"""A run followed from another shell."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from helpers import UserError
from helpers.display import watch
from helpers.processes import write_process_file
from helpers.runtime import ROOT

TIME = "2026-11-22 17:00:00  "


def line(text):
    return f"{TIME}{text}\n"


class Watcher:
    """`make watch` as a process of its own, and the lines that it has printed."""

    def __init__(self, run):
        command = [sys.executable, "-m", "helpers.display.watch", str(run)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for text in self.process.stdout:
            self.lines.append(text.rstrip("\n").removeprefix(TIME))

    def wait_for(self, text, seconds=20):
        """Return the number of lines once one of them begins with a text."""
        deadline = time.monotonic() + seconds
        while not any(shown.startswith(text) for shown in self.lines):
            assert time.monotonic() < deadline, f"no line {text!r} in {self.lines}"
            time.sleep(0.02)
        return len(self.lines)

    def end(self, seconds=20):
        """Return the exit status and what was printed to stderr."""
        status = self.process.wait(seconds)
        self.reader.join(seconds)
        return status, self.process.stderr.read()


@pytest.fixture
def watcher():
    started = []

    def start(run):
        started.append(Watcher(run))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_follows_a_growing_log_to_its_end(tmp_path, watcher):
    """Waits for a run that has not begun, shows what comes, and ends with the run."""
    following = watcher(tmp_path)
    following.wait_for("Waiting for the run")
    log = tmp_path / "grpo" / "train.log"
    log.parent.mkdir()
    with open(log, "a", buffering=1) as file:
        file.write(line("started after step 0/3"))
        file.write(line("step 1/3  reward +0.1"))
        following.wait_for("step 1/3")
        file.write(line("step 2/3  reward +0.2") + "    a sign\n" + TIME + "step 3/3  rew")
        count = following.wait_for("    a sign")
        time.sleep(2 * watch.SECONDS_BETWEEN)
        assert len(following.lines) == count, "half a line was shown"
        file.write("ard +0.3\n")
    assert following.end() == (0, "")
    assert following.lines[1:] == [
        "started after step 0/3",
        "step 1/3  reward +0.1",
        "step 2/3  reward +0.2",
        "    a sign",
        "step 3/3  reward +0.3",
    ]


def test_ctrl_c_stops_the_watching_alone(tmp_path, watcher):
    """A traceback of twenty lines looked as if the run had failed."""
    (tmp_path / "train.log").write_text(line("step 1/3"))
    following = watcher(tmp_path)
    following.wait_for("step 1/3")
    following.process.send_signal(signal.SIGINT)
    status, said = following.end()
    assert status == 0 and said.strip() == "Stopped watching; the run goes on."


def test_a_run_that_does_not_exist_is_one_sentence(watcher):
    """Waiting for ever for a name that was mistyped helps nobody."""
    status, said = watcher("no-such-run").end()
    assert status == 1 and said.startswith("Error: There is no run 'no-such-run'") and said.count("\n") == 1


def test_a_run_is_found_by_name_or_folder(tmp_path):
    """A name means a folder under runs/, as in make run NAME=...; a near miss is named."""
    runs = tmp_path / "runs"
    (runs / "first").mkdir(parents=True)
    (runs / "second" / "grpo").mkdir(parents=True)
    assert watch.run_folder_of("first", runs) == runs / "first"
    assert watch.run_folder_of(str(tmp_path), runs) == tmp_path
    with pytest.raises(UserError, match=r"no run 'secnd' \(did you mean 'second'\?\).*there are first, second\."):
        watch.run_folder_of("secnd", runs)
    with pytest.raises(UserError, match="there are none under runs/ yet"):
        watch.run_folder_of("x", tmp_path / "none")


def test_only_the_latest_lines_of_what_is_there(tmp_path):
    """A run of a thousand steps would fill the terminal before the first new line."""
    texts = [line(f"step {step}/100") for step in range(1, 100)]
    (tmp_path / "train.log").write_text("".join(texts) + line("ended after step 99/100"))
    shown = list(watch.follow(tmp_path, seconds_between=0))
    assert len(shown) == watch.LATEST and shown[0].endswith("step 81/100") and shown[-1].endswith("step 99/100")


def test_a_run_that_is_resumed_is_followed_on(tmp_path):
    """The trainer drops the steps that it repeats, so the file changes in the middle; nothing is shown twice."""
    log = tmp_path / "train.log"
    kept = line("started after step 0/9") + line("step 1/9  first")
    log.write_text(kept + line("step 2/9  first") + line("step 3/9  first"))
    following = watch.follow(tmp_path, seconds_between=0)
    assert [next(following).removeprefix(TIME) for _ in range(4)][-1] == "step 3/9  first"
    part = tmp_path / "part"
    part.write_text(kept + line("resumed after step 1/9") + line("step 2/9  second") + line("ended after step 2/9"))
    part.replace(log)
    assert [text.removeprefix(TIME) for text in following] == [
        "resumed after step 1/9",
        "step 2/9  second",
        "ended after step 2/9",
    ]


def test_an_ended_run_that_was_taken_up_again_has_not_ended(tmp_path):
    """Its log holds an end already, and watching it stopped at once."""
    log = tmp_path / "train.log"
    log.write_text(line("step 2/9") + line("ended after step 2/9") + line("resumed after step 2/9"))
    following = watch.follow(tmp_path, seconds_between=0)
    for _ in range(3):
        next(following)
    log.write_text(log.read_text() + line("step 3/9"))
    assert next(following).endswith("step 3/9")


def test_the_log_of_a_real_run_is_understood(tmp_path):
    """Writer and reader live in different rooms and must agree on the lines."""
    from helpers.grpo.logs import RunLog

    log = RunLog(tmp_path, ["f"], max_steps=5)
    log.write({"step": 1, "reward": 0.5, "monitor/signs": ["odd"]}, [])
    log.close()
    shown = [text[len(TIME) :] for text in watch.follow(tmp_path, seconds_between=0)]
    assert shown[:2] == ["started after step 0/5", "step 1/5  reward +0.500"] and shown[-1] == "ended after step 1/5"


def test_starts_at_once_and_without_torch():
    """Loading torch beside a run takes seconds and memory that the run needs: it brings thousands of modules."""
    code = "import sys; import helpers.display.watch; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = run.stdout.split()
    assert not {"torch", "numpy", "matplotlib"} & set(modules) and len(modules) < 170


CLOSING_TABLE = "verdict  win\nminutes  5.1\nreport   /runs/a/05_evaluate.html\n"


@pytest.fixture
def sleeper():
    """A process that does nothing, in the place of a run's."""
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def detached_run(folder, process, printed):
    """Make the folder of a run that goes on without its terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    write_process_file(folder, process.pid)
    (folder / "output.log").write_text(printed)
    return folder


def end(process):
    process.kill()
    process.wait()


def test_a_detached_run_is_followed_until_its_process_ends(tmp_path, watcher, sleeper):
    """The end of its training, which ended the watching, is not the end of the run: an evaluation comes after it."""
    printed = "".join(f"cell {number}\n" for number in range(1, 31))
    run = detached_run(tmp_path, sleeper, printed)
    (run / "train.log").write_text(line("step 3/3") + line("ended after step 3/3"))
    following = watcher(run)
    following.wait_for("cell 30")
    with open(run / "output.log", "a", buffering=1) as file:
        file.write("cell 31\n")
        following.wait_for("cell 31")
        time.sleep(2 * watch.SECONDS_BETWEEN)
        assert following.process.poll() is None, "the watching ended before the run"
        file.write(CLOSING_TABLE)
    end(sleeper)
    assert following.end() == (0, "")
    assert following.lines[0] == "cell 11" and following.lines[-4:] == ["cell 31", *CLOSING_TABLE.splitlines()]


@pytest.mark.parametrize(
    "last",
    [
        CLOSING_TABLE,
        "Error: The disk is full.\n",
        "Interrupted; make run with the same NAME goes on from the last checkpoint.\n",
        "The dry run of task 'math' came to its end in 0.5 minutes: runs/a/*.html\n\n",
        "All of notebooks/deeper ran, in 9.0 minutes: runs/a/*.html\n",
    ],
    ids=lambda last: last.split()[0],
)
def test_a_detached_run_that_came_to_its_end(tmp_path, sleeper, last):
    """Advice to go on with a run that is finished, or that said itself what is wrong, would mislead."""
    run = detached_run(tmp_path, sleeper, "one\n" + last)
    end(sleeper)
    assert list(watch.follow(run, seconds_between=0)) == ["one", *last.split("\n")[:-1]]


@pytest.mark.parametrize("last", ["", "step 3/9  reward +0.1\n", "step 3/9  rew", "Error: old\nstep 1/9\n"], ids=repr)
def test_a_detached_run_whose_process_died(tmp_path, sleeper, last):
    """Its lines just stopped, as if it were busy; what was cut short is shown, too."""
    run = detached_run(tmp_path, sleeper, last)
    end(sleeper)
    *lines, said = watch.follow(run, seconds_between=0)
    assert lines == last.splitlines()
    assert said.endswith("make run with the same NAME goes on from the last checkpoint.") and "\n" not in said


def test_the_closing_table_ends_in_a_closing_line(tmp_path):
    """Writer and reader live in different rooms: a closing table that the watcher does not know looks like a death."""
    from helpers.evaluation import compare
    from helpers.run.closing import closing_table
    from tests.evaluation.test_compare import evaluation

    report = compare(evaluation({0.0: 20, 1.0: 40}), evaluation({0.0: 190, 1.0: 170}))
    origin = {"step": 1, "settings": {"learning_rate": 1e-5, "reward_funcs": ["f"]}}
    (tmp_path / "report.json").write_text(json.dumps({**report.to_dict(), "origin": origin}))
    assert watch.CLOSING.match(closing_table(tmp_path, 1.0).splitlines()[-1])


def test_a_later_session_in_the_folder_of_a_dead_run_is_followed(tmp_path, sleeper):
    """Whoever went on with a run that had died, in a terminal or a notebook, was told again that it had died."""
    run = detached_run(tmp_path, sleeper, "step 3/9\n")
    end(sleeper)
    an_hour_ago = time.time() - 3600
    os.utime(run / "output.log", (an_hour_ago, an_hour_ago))
    now = time.strftime("%Y-%m-%d %H:%M:%S  ")
    (run / "train.log").write_text(f"{now}resumed after step 3/9\n{now}ended after step 3/9\n")
    assert [text.removeprefix(now) for text in watch.follow(run, seconds_between=0)] == [
        "resumed after step 3/9",
        "ended after step 3/9",
    ]


def test_without_a_name_the_newest_run_is_followed(tmp_path, sleeper):
    """Of those that run the one started last, however much older ones and finished ones have written since."""
    runs = tmp_path / "runs"
    with pytest.raises(UserError, match="no run to follow under runs/ yet: start one with make run"):
        watch.run_folder_of("", runs)
    for age, name in enumerate(("newest", "new", "old", ".new.part")):
        log = runs / name / "grpo" / "train.log"
        log.parent.mkdir(parents=True)
        log.write_text("")
        changed = time.time() - 100 * (age + 1)
        for path in (log, runs / name):
            os.utime(path, (changed, changed))
    os.utime(runs / "new" / "grpo" / "train.log")
    assert watch.run_folder_of("", runs).name == "new", "a folder keeps its time while a log in it grows"
    detached_run(runs / "running first", sleeper, "")
    detached_run(runs / "running second", sleeper, "")
    (runs / "running first" / "output.log").write_text("cell 1\n")
    os.utime(runs / "old" / "grpo" / "train.log")
    assert watch.run_folder_of("", runs).name == "running second"
    end(sleeper)
    os.utime(runs / "old" / "grpo" / "train.log", (time.time() + 9, time.time() + 9))
    assert watch.run_folder_of("", runs).name == "old", "neither of the others runs"


@pytest.mark.parametrize(("lives", "state"), [(True, "which is running"), (False, "the newest of those under runs/")])
def test_it_says_which_run_it_follows(tmp_path, sleeper, monkeypatch, capsys, lives, state):
    """Lines of another run than one thinks are worse than none."""
    monkeypatch.setattr(watch, "RUNS", tmp_path)
    monkeypatch.setattr(watch, "is_running", lambda folder: lives)
    monkeypatch.setattr(watch, "newest_run", lambda runs: tmp_path / "first")
    monkeypatch.setattr(watch, "follow", lambda folder: iter([f"lines of {folder.name}"]))
    assert watch.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [f"Following the run 'first', {state}.", "lines of first"]
