"""A run followed from another shell."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from helpers import UserError
from helpers.display import watch
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
    with pytest.raises(UserError, match="Say which run to follow.*there are first, second"):
        watch.run_folder_of("", runs)
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
