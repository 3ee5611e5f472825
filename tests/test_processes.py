"""Which process carries out a run, and whether it still lives."""

import json
import os
import subprocess
import sys

import pytest

from helpers.processes import PROCESS_FILE, is_running, read_process_file, write_process_file


@pytest.fixture
def start(tmp_path):
    """Returns a function that starts a process that does nothing; its program has a name of one's choice."""
    started = []

    def start(name="sleeper"):
        program = tmp_path / name
        program.symlink_to("/bin/sleep")
        started.append(subprocess.Popen([str(program), "600"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_this_process_runs(tmp_path):
    """What another program reads of the file are plain numbers under these names."""
    assert not is_running(tmp_path)
    write_process_file(tmp_path)
    assert is_running(tmp_path)
    saved = json.loads((tmp_path / PROCESS_FILE).read_text())
    assert set(saved) == {"pid", "started", "start_ticks"} and saved["pid"] == os.getpid()
    assert saved["start_ticks"] == read_process_file(tmp_path).start_ticks > 0


def test_a_process_that_was_killed_does_not_run(tmp_path, start):
    """Also before its parent has waited for it: the system keeps its entry in /proc until then."""
    process = start()
    write_process_file(tmp_path, process.pid)
    assert is_running(tmp_path)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert os.path.exists(f"/proc/{process.pid}/stat") and not is_running(tmp_path)
    process.wait()
    assert not is_running(tmp_path)


def test_another_process_with_the_same_id_is_not_taken_for_it(tmp_path):
    """Process ids are given out again: after a reboot most of all, a watcher would wait for a stranger's end."""
    write_process_file(tmp_path)
    path = tmp_path / PROCESS_FILE
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"start_ticks": saved["start_ticks"] - 1}))
    assert not is_running(tmp_path)


def test_a_program_may_have_any_name(tmp_path, start):
    """The name stands between the process id and all else, with its blanks and brackets: counted from the left, they
    shift every field."""
    process = start("a) R (b 1 2")
    write_process_file(tmp_path, process.pid)
    own = read_process_file(tmp_path).start_ticks
    write_process_file(tmp_path)
    assert own >= read_process_file(tmp_path).start_ticks > 1000


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"pid": 1}', '{"pid": "1", "started": 1.0, "start_ticks": 1}', b"\xff"],
    ids=repr,
)
def test_a_file_that_nobody_can_read_names_no_process(tmp_path, content):
    """A traceback in the place of the lines of a run that is well."""
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / PROCESS_FILE).write_bytes(data)
    assert read_process_file(tmp_path) is None and not is_running(tmp_path)


def test_a_process_that_is_not_there_cannot_be_noted(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError, match=f"there is no process {process.pid}"):
        write_process_file(tmp_path, process.pid)
    assert not (tmp_path / PROCESS_FILE).exists()
