import errno
import os
import stat
import subprocess
import sys

import pytest

from helpers import GRPOConfig, UserError, get_profile, run_folder, write_whole
from helpers.profiles import PROFILES
from helpers.run.__main__ import main
from helpers.runtime import ROOT, command, did_you_mean, random_seed, recover_folder, recover_folders, whole_folder
from tests.disk import full_disk


@pytest.fixture
def no_gpu(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_auto_without_gpu_is_tiny_and_says_why(no_gpu):
    profile = get_profile("auto")
    assert profile.name == "tiny" and profile.why == "There is no GPU, so this is the embedded model."


def test_a_gpu_profile_without_gpu_says_what_to_do(no_gpu):
    with pytest.raises(UserError, match="Runtime > Change runtime type") as caught:
        get_profile("t4")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "meant"), [("tinny", "tiny"), ("T4", "t4"), ("a1000", "a100")])
def test_unknown_profile_suggests_the_nearest(name, meant):
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        get_profile(name)


@pytest.mark.parametrize("memory_gib", [13.0, 14.6, 22.0, 39.4, 79.1, 139.0])
def test_auto_takes_the_largest_profile_that_fits(monkeypatch, memory_gib):
    """With a GPU that is too small it must fall back and not run out of memory an hour later."""
    monkeypatch.setattr("helpers.profiles.find_gpu", lambda: ("Some GPU", memory_gib))
    profile = get_profile("auto")
    assert profile.needs_gib <= memory_gib and "Some GPU" in profile.why
    assert not any(profile.needs_gib < other.needs_gib <= memory_gib for other in PROFILES.values())


def test_on_a_gpu_not_every_step_writes_a_checkpoint():
    """555 MB after every step on a T4, most often to a mounted Google Drive."""
    steps = {name: profile.save_steps for name, profile in PROFILES.items()}
    assert steps.pop("tiny") == 1
    assert set(steps.values()) == {5}
    assert GRPOConfig.for_profile(PROFILES["t4"], "out").save_steps == 5
    assert GRPOConfig.for_profile(PROFILES["tiny"], "out").save_steps == 1


def test_no_two_steps_of_any_runs_share_a_seed():
    """Torch's CPU generator takes the low 32 bits. With `seed << 20` seeds 3 and 4099 drew the same completions, and
    seeds 42 and 1 shared 13 of 40 steps; training with seed 0 began step 7 as the evaluation did."""
    used = [
        random_seed("rollout", random_seed("training", seed, step), start) % 2**32
        for seed in (0, 1, 2, 3, 7, 42, 4099, 3407)
        for step in range(100)
        for start in (0, 64)
    ]
    used += [random_seed("rollout", random_seed("evaluation", seed, t), 0) % 2**32 for seed in range(9) for t in "0168"]
    assert len(set(used)) == len(used)
    assert random_seed("training", 3, 5) == random_seed("training", 3, 5) < 2**63
    assert random_seed("a", 1, 23) != random_seed("a", 12, 3) and random_seed("a", 1) != random_seed("b", 1)


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (None, 0, ""),
        (UserError("No room: make some."), 1, "Error: No room: make some.\n"),
        (KeyboardInterrupt(), 130, "\nIt goes on.\n"),
    ],
)
def test_a_command_ends_with_a_sentence_and_its_status(capsys, end, status, said):
    """A traceback hides what a user should do."""

    @command(interrupted="It goes on.")
    def main():
        if end is not None:
            raise end
        return 0

    assert main() == status and capsys.readouterr().err == said


def test_did_you_mean_stays_silent_for_far_names():
    assert did_you_mean("xyz", ["tiny", "t4"]) == ""


def test_write_whole_replaces_or_leaves_alone(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two" and os.listdir(path.parent) == ["file.txt"]


def test_whole_folder_appears_only_when_finished(tmp_path):
    """A checkpoint cut short by a lost session must not be taken for a whole one."""
    target = tmp_path / "checkpoint-1"
    with pytest.raises(RuntimeError), whole_folder(target) as part:
        (part / "half").write_text("x")
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with whole_folder(target) as part:
        (part / "a").write_text("1")
        assert not target.exists()
    with whole_folder(target) as part:
        (part / "b").write_text("2")
    assert os.listdir(target) == ["b"] and os.listdir(tmp_path) == ["checkpoint-1"]


#: Replaces the folder that is its argument, and dies as by SIGKILL when it renames the new one into place.
KILLED_BETWEEN_RENAMES = """
import os, sys
from helpers.runtime import whole_folder

rename = os.replace

def rename_or_die(source, target):
    if str(source).endswith(".part"):
        os._exit(9)
    rename(source, target)

os.replace = rename_or_die
with whole_folder(sys.argv[1]) as part:
    (part / "new").write_text("2")
"""


def killed_between_renames(target):
    target.mkdir()
    (target / "old").write_text("1")
    run = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_RENAMES, str(target)], cwd=ROOT)
    assert run.returncode == 9 and not target.exists()


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    """The old adapter was left under a hidden name only, and 05 would have trained its fallback instead."""
    target = tmp_path / "adapter"
    killed_between_renames(target)
    assert recover_folder(target) == target and os.listdir(target) == ["old"]
    assert recover_folder(target) == target and recover_folder(tmp_path / "none") == tmp_path / "none"
    with whole_folder(target) as part:
        (part / "new").write_text("2")
    assert os.listdir(target) == ["new"] and os.listdir(tmp_path) == ["adapter"]


def test_a_second_kill_still_leaves_the_first_folder(tmp_path):
    """The next writer removed the hidden folder before it had another to put in its place."""
    target = tmp_path / "adapter"
    killed_between_renames(target)
    with pytest.raises(RuntimeError), whole_folder(target):
        assert os.listdir(target) == ["old"]
        raise RuntimeError
    assert os.listdir(target) == ["old"] and os.listdir(tmp_path) == ["adapter"]


def test_an_error_between_the_two_renames_leaves_the_old_folder(tmp_path, monkeypatch):
    """A full disk or Ctrl-C can strike there as well."""
    target = tmp_path / "adapter"
    target.mkdir()
    (target / "old").write_text("1")
    rename = os.replace

    def refuse(source, to):
        if str(source).endswith(".part"):
            raise KeyboardInterrupt
        rename(source, to)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(KeyboardInterrupt), whole_folder(target) as part:
        (part / "new").write_text("2")
    assert os.listdir(target) == ["old"] and os.listdir(tmp_path) == ["adapter"]


def test_a_reader_that_recovers_too_early_does_not_stop_the_writer(tmp_path, monkeypatch):
    """An evaluation that looks between the renames of a training would have ended the training."""
    target = tmp_path / "adapter"
    target.mkdir()
    rename, looks = os.replace, []

    def look_first(source, to):
        if str(source).endswith(".part") and not looks:
            looks.append(recover_folder(target))
            assert target.exists()
            (target / "old").write_text("1")
        rename(source, to)

    monkeypatch.setattr(os, "replace", look_first)
    with whole_folder(target) as part:
        (part / "new").write_text("2")
    assert looks and os.listdir(target) == ["new"] and os.listdir(tmp_path) == ["adapter"]


def test_folders_of_one_kind_are_recovered_together(tmp_path):
    for step in (4, 8):
        killed_between_renames(tmp_path / f"checkpoint-{step}")
    (tmp_path / ".other.old").mkdir()
    recover_folders(tmp_path, "checkpoint-*")
    assert sorted(os.listdir(tmp_path)) == [
        ".checkpoint-4.part",
        ".checkpoint-8.part",
        ".other.old",
        "checkpoint-4",
        "checkpoint-8",
    ]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    """On a full disk the part that was written would have kept the room that is needed."""
    write_whole(tmp_path / "file.txt", "old")
    with full_disk() as fill, pytest.raises(OSError):
        fill(100)
        write_whole(tmp_path / "file.txt", "x" * 1000)
    assert (tmp_path / "file.txt").read_text() == "old" and os.listdir(tmp_path) == ["file.txt"]


def test_a_file_system_that_cannot_sync_folders_will_do(tmp_path, monkeypatch):
    """A mounted Google Drive is such a one, and the place where Colab runs are kept."""
    real = os.fsync

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file.txt", "one")
    with whole_folder(tmp_path / "folder") as part:
        (part / "a").write_text("1")
    assert sorted(os.listdir(tmp_path)) == ["file.txt", "folder"]


def test_run_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="set RUN_DIR"):
        run_folder(tmp_path / "file" / "below")


NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}),
        ({"PYTORCH_ALLOC_CONF": ""}, {"PYTORCH_ALLOC_CONF": ""}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}),
    ],
    ids=str,
)
def test_segments_of_gpu_memory_can_grow_unless_the_user_says_otherwise(given, expected):
    """A T4 with memory enough in sum had no place for the next step of a growing cache."""
    code = f"import helpers, os; print({{name: os.environ[name] for name in {NAMES} if name in os.environ}})"
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == str(expected), run.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "tinny"], "did you mean 'tiny'"),
        (["MAX_STEP=3"], "did you mean 'MAX_STEPS'"),
        (["MAX_STEPS"], "write NAME=value"),
        (["MAX_STEPS=many"], "max_steps must be a whole number"),
        (["NUM_GENERATIONS=7"], "7 does not: take 2, 4, 8, 16, 32, 64"),
        (["ITEMS=1"], "items must be a whole number from 2 on"),
        (["PROFILE=t5"], "no profile 't5'"),
        (["DRY_RUN=no"], "dry_run must be True or False; got 'no'"),
        (["TASK_OPTIONS=sped=False"], "has no option 'sped' (did you mean 'speed'?)"),
        (["TASK_OPTIONS=speed"], "write name=value"),
        (["TASK_OPTIONS=speed=no"], "speed in TASK_OPTIONS must be True or False; got 'no'"),
        (["TASK_OPTIONS=embedded_model=True"], "has no option 'embedded_model'"),
        (["TASK=os:sep"], "'os:sep' gives a str: name a function or class"),
        (["CONTROL=shufle"], "did you mean 'shuffle'"),
        (["TASK=mathh"], "no task 'mathh' (did you mean 'math'?)"),
    ],
)
def test_make_run_answers_a_mistake_with_one_sentence(capsys, arguments, words):
    """Before minutes of work, and without a traceback."""
    status = main(["--name", "never-made", *arguments])
    shown = capsys.readouterr().err
    assert status == 1 and words in shown
    assert shown.count("\n") == 1 and "Traceback" not in shown
    assert not (ROOT / "runs" / "never-made").exists()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("MAX_STEP=3", "did you mean 'MAX_STEPS'"),
        pytest.param("CONTROL=shufle", "did you mean 'shuffle'", marks=pytest.mark.slow),  # after all imports
    ],
)
def test_the_command_itself_prints_only_the_sentence(argument, words):
    """What a package writes when it is imported must not stand beside it."""
    command = [sys.executable, "-m", "helpers.run", "--name", "never-made", argument]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1 and words in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (ROOT / "runs" / "never-made").exists()


def test_user_errors_show_one_line_in_a_notebook():
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    with capture_output() as captured:
        shell.run_cell("from helpers import get_profile; get_profile('t5')")
    InteractiveShell.clear_instance()
    shown = captured.stdout + captured.stderr
    assert "UserError: There is no profile 't5'" in shown and "Traceback" not in shown
