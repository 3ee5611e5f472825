"""The backup of a run: it loses no row, and a dead or half-written one costs no more than a sentence."""

import builtins
import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from helpers import UserError, read_metrics
from helpers.grpo.backup import back_up, join_records, known_checkpoints, restore_backup
from helpers.grpo.folders import checkpoint_folders
from helpers.grpo.metrics_file import MetricsFile
from tests.grpo.small import timeless, trainer_in

#: Calls by which Python's files and folders are reached.
CALLS = {
    os: ("stat", "lstat", "listdir", "scandir", "open", "mkdir", "rename", "replace", "unlink", "rmdir"),
    builtins: ("open",),
    io: ("open",),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prompts):
    """The folder of an uninterrupted run of two steps; its backup lies beside it."""
    parent = tmp_path_factory.mktemp("whole")
    trainer_in(parent / "run", prompts, max_steps=2, backup_dir=str(parent / "backup")).train()
    return parent / "run"


@pytest.fixture
def run(tmp_path, whole):
    """A copy of the whole run's folder and of its backup."""
    shutil.copytree(whole.parent, tmp_path / "copy")
    return tmp_path / "copy" / "run"


@pytest.fixture
def backup(run):
    return run.parent / "backup"


class Drive:
    """A folder whose disk may die: from then on every access to it fails, as Linux fails when a mount has gone."""

    def __init__(self, folder, monkeypatch):
        self.folder = str(folder)
        self.is_dead = False
        self.number = errno.ENOTCONN
        #: Dies when a file of this name is opened.
        self.dies_at = None
        for module, names in CALLS.items():
            for name in names:
                monkeypatch.setattr(module, name, self.watched(getattr(module, name)))

    def watched(self, real):
        def call(*arguments, **keywords):
            for argument in arguments:
                if isinstance(argument, (str, Path)) and str(argument).startswith(self.folder):
                    self.access(str(argument), real)
            return real(*arguments, **keywords)

        return call

    def access(self, path, real):
        if self.dies_at and real is OPEN and path.endswith(self.dies_at):
            self.is_dead = True
        if self.is_dead:
            raise OSError(self.number, os.strerror(self.number), path)


OPEN = builtins.open


@pytest.fixture
def drive(backup, monkeypatch):
    return Drive(backup, monkeypatch)


def finish(folder, prompts, whole, **settings):
    """Resume in `folder` as a new session does, compare with the uninterrupted run, and return the trainer."""
    trainer = trainer_in(folder, prompts, max_steps=2, **settings)
    trainer.train(resume_from_checkpoint=True)
    weights = [path / "checkpoint-2" / "adapter_model.safetensors" for path in (folder, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    rows = [timeless(read_metrics(path / "metrics.jsonl")) for path in (folder, whole)]
    assert rows[0] == rows[1] and timeless(trainer.history) == rows[1]
    return trainer


def lines_on_the_backup(said):
    return [line for line in said.splitlines() if "backup" in line]


# --- metrics ---


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[30] ^= 0x11
    path.write_bytes(content)


def cut_in_the_middle(path):
    path.write_bytes(path.read_bytes()[:-100])


def cut_at_a_line(path):
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


LOSSES = [flip_a_byte, cut_in_the_middle, cut_at_a_line, empty, remove]


@pytest.mark.parametrize("spoil", LOSSES, ids=lambda function: function.__name__)
def test_spoilt_metrics_do_not_replace_their_copy(run, backup, whole, capsys, spoil):
    """The next save wrote what was left over the only whole copy."""
    spoil(run / "metrics.jsonl")
    assert back_up(run / "checkpoint-2", backup, keep=2)
    said = capsys.readouterr().out
    count = "2 rows" if spoil in (empty, remove) else "1 row"
    assert said.startswith(f"{count} of metrics in {run} w") and said.count("\n") == 1
    assert f"came from the backup in {backup}" in said
    for folder in (run, backup):
        assert timeless(read_metrics(folder / "metrics.jsonl")) == timeless(read_metrics(whole / "metrics.jsonl"))
    was_unreadable = spoil in (flip_a_byte, cut_in_the_middle)
    assert (run / "damaged-metrics.jsonl").exists() == was_unreadable


@pytest.mark.parametrize("spoil", LOSSES, ids=lambda function: function.__name__)
def test_a_resumed_run_takes_rows_from_its_backup(run, backup, prompts, whole, capsys, spoil):
    """They are the history that alarms and curves look at, from the first step on."""
    spoil(run / "metrics.jsonl")
    finish(run, prompts, whole, backup_dir=str(backup))
    assert capsys.readouterr().out.count("metrics") == 1


@pytest.mark.parametrize("spoil", LOSSES, ids=lambda function: function.__name__)
def test_a_spoilt_copy_is_made_whole(run, backup, prompts, whole, spoil):
    """By the rows of the run, at the next save."""
    spoil(backup / "metrics.jsonl")
    finish(run, prompts, whole, backup_dir=str(backup))
    assert back_up(run / "checkpoint-2", backup, keep=2)
    assert timeless(read_metrics(backup / "metrics.jsonl")) == timeless(read_metrics(whole / "metrics.jsonl"))


@pytest.mark.parametrize("spoil", LOSSES, ids=lambda function: function.__name__)
def test_rows_that_no_copy_has_are_named(run, backup, prompts, capsys, spoil):
    """A run restored from half a file went on without a word, and its curves began in the middle."""
    shutil.rmtree(run)
    spoil(backup / "metrics.jsonl")
    trainer_in(run, prompts, max_steps=2, backup_dir=str(backup)).train(resume_from_checkpoint=True)
    lost = 2 if spoil in (empty, remove) else 1
    assert f"metrics.jsonl has no row for {lost} of the 2 steps that are done" in capsys.readouterr().out


def test_the_runs_own_row_wins_and_later_rows_stay_away(tmp_path):
    """Rows beyond the checkpoint are of steps that are done again."""
    own, copy = tmp_path / "run" / "metrics.jsonl", tmp_path / "backup" / "metrics.jsonl"
    for path, rows in {own: [{"step": 2, "reward": 0.5}], copy: [{"step": s, "reward": 9} for s in (1, 2, 3)]}.items():
        path.parent.mkdir()
        file = MetricsFile(path)
        for row in rows:
            file.append(row)
    assert join_records(own.parent, copy.parent, step=2) == 1
    assert read_metrics(own) == [{"step": 1, "reward": 9}, {"step": 2, "reward": 0.5}]
    assert [row["step"] for row in read_metrics(copy)] == [1, 2, 3]


# --- a dead Drive ---


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EIO])
def test_a_run_goes_on_without_a_dead_backup(run, backup, drive, prompts, whole, capsys, number):
    """`Path.exists` raises there, and a resumed run ended in a traceback though its own checkpoints were sound."""
    shutil.rmtree(run / "checkpoint-2")
    drive.is_dead, drive.number = True, number
    finish(run, prompts, whole, backup_dir=str(backup))
    said = capsys.readouterr().out
    assert said.count(f"The backup in {backup} cannot be read (") == 1
    assert "the run goes on from its own checkpoints" in said
    assert said.count("could not be copied to backup_dir") == 1  # that of step 2
    assert len(lines_on_the_backup(said)) == 2
    drive.is_dead = False
    finish(run, prompts, whole, backup_dir=str(backup))
    assert [folder.name for folder in checkpoint_folders(backup)] == ["checkpoint-1", "checkpoint-2"]


def test_a_backup_that_dies_during_the_run_is_one_sentence_a_save(run, backup, drive, prompts, whole, capsys):
    """A Drive that goes away in the night must not end the run."""

    class Die:
        def on_save(self, args, state, *_, **__):
            drive.is_dead = True

    shutil.rmtree(run)
    shutil.rmtree(backup)
    finish(run, prompts, whole, backup_dir=str(backup), callbacks=[Die()])
    (said,) = lines_on_the_backup(capsys.readouterr().out)
    assert said.startswith("checkpoint-2 could not be copied to backup_dir") and os.strerror(errno.ENOTCONN) in said


@pytest.mark.parametrize("where", [True, None])
def test_a_new_run_does_not_begin_over_a_backup_that_cannot_be_read(run, backup, drive, prompts, where):
    """On a new machine the run lies in the backup alone; it began anew, without a word."""
    shutil.rmtree(run)
    drive.is_dead = True
    trainer = trainer_in(run, prompts, max_steps=2, backup_dir=str(backup))
    with pytest.raises(UserError, match="cannot be read .*: mount it again and run this again, or leave backup_dir"):
        trainer.train(resume_from_checkpoint=where)
    assert not checkpoint_folders(run)


def test_a_checkpoint_on_a_dead_drive_that_was_asked_for_is_one_sentence(run, backup, drive, prompts):
    """`Path.is_dir` raises there."""
    drive.is_dead = True
    trainer = trainer_in(run, prompts, max_steps=2, backup_dir=str(backup))
    with pytest.raises(UserError, match="checkpoint-2 cannot be read .*: mount its disk again, or resume from"):
        trainer.train(resume_from_checkpoint=str(backup / "checkpoint-2"))


def test_a_drive_that_is_not_mounted_cannot_be_read(tmp_path):
    """A new Colab session whose Drive was forgotten: its run is there, and nobody would have seen it."""
    with pytest.raises(UserError, match="drive/backup cannot be read .*No such file or directory.*: mount it again"):
        known_checkpoints(tmp_path / "run", tmp_path / "drive" / "backup")
    (tmp_path / "drive").mkdir()
    assert known_checkpoints(tmp_path / "run", tmp_path / "drive" / "backup") == []


def test_a_backup_that_may_not_be_listed_is_not_empty(run, backup, monkeypatch):
    """A glob finds nothing in such a folder, and says nothing. Root may list anything, so it is refused by hand."""
    real = os.scandir

    def refuse(path):
        if str(path) == str(backup):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: [entry.name for entry in refuse(path)])
    shutil.rmtree(run)
    with pytest.raises(UserError, match="cannot be read .*Permission denied"):
        known_checkpoints(run, backup)


@pytest.mark.parametrize("file", ["optimizer.pt", "trainer_state.json", "metrics.jsonl"])
def test_a_copy_that_cannot_be_read_while_it_is_restored_blames_the_backup(run, backup, drive, file):
    """It said "Cannot write to" the run's folder, whose disk was sound."""
    shutil.rmtree(run)
    run.mkdir()
    drive.dies_at = file
    with pytest.raises(UserError, match=f"The backup in {backup} cannot be read .*: mount it again"):
        restore_backup(backup / "checkpoint-2", run)
    assert not checkpoint_folders(run) and not list(run.glob(".*"))


class BadSectors(io.FileIO):
    """A file that opens, and whose content the disk does not give."""

    def read(self, size=-1):
        raise OSError(errno.EIO, "Input/output error")


def test_a_copy_that_opens_and_cannot_be_read_blames_the_backup(run, backup, monkeypatch):
    """A Drive whose quota is used up lists its files, and does not give them."""
    shutil.rmtree(run)
    run.mkdir()
    real = builtins.open

    def opens(path, *arguments, **keywords):
        is_spoilt = str(path) == str(backup / "checkpoint-2" / "optimizer.pt")
        return BadSectors(path) if is_spoilt else real(path, *arguments, **keywords)

    monkeypatch.setattr(builtins, "open", opens)
    with pytest.raises(UserError, match=f"The backup in {backup} cannot be read .*Input/output error"):
        restore_backup(backup / "checkpoint-2", run)
    assert not checkpoint_folders(run) and not list(run.glob(".*"))


def test_a_full_disk_while_a_copy_is_restored_is_that_of_the_run(run, backup, monkeypatch):
    """Blaming the backup for it would send the user to the wrong disk."""
    shutil.rmtree(run)
    run.mkdir()
    real = builtins.open

    def full(path, mode="r", *arguments, **keywords):
        if str(path).startswith(str(run)) and "w" in mode and "checkpoint-2" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, mode, *arguments, **keywords)

    monkeypatch.setattr(builtins, "open", full)
    with pytest.raises(UserError, match=f"Cannot write to {run}/checkpoint-2 .*: make room there"):
        restore_backup(backup / "checkpoint-2", run)


@pytest.mark.parametrize("dies_at", ["checkpoint-2/optimizer.pt", "checkpoint-2/digests.json"])
def test_a_backup_that_dies_while_it_is_read_leaves_the_runs_own_checkpoints(
    run, backup, drive, prompts, whole, capsys, dies_at
):
    """It was called damaged, with the advice to delete it."""
    shutil.rmtree(run / "checkpoint-2")
    drive.dies_at = dies_at
    finish(run, prompts, whole, backup_dir=str(backup))
    said = capsys.readouterr().out
    assert said.count(f"The backup in {backup} cannot be read (") == 1 and "damaged" not in said
    drive.is_dead = False
    drive.dies_at = None
    assert "checkpoint-2" in [folder.name for folder in checkpoint_folders(backup)]


def test_a_restore_that_fails_leaves_the_runs_own_checkpoints(run, backup, prompts, whole, capsys, monkeypatch):
    """The copy was sound when it was loaded, and its disk died before it was copied."""
    shutil.rmtree(run / "checkpoint-2")
    real = Path.iterdir

    def dead(folder):
        if folder == backup / "checkpoint-2":
            raise OSError(errno.EIO, "Input/output error")
        return real(folder)

    monkeypatch.setattr(Path, "iterdir", dead)
    finish(run, prompts, whole, backup_dir=str(backup))
    assert capsys.readouterr().out.count("cannot be read ([Errno 5] Input/output error): the run goes on from") == 1


# --- half-written backups ---


def a_part(backup):
    (backup / "checkpoint-2").rename(backup / ".checkpoint-2.part")


def no_digests(backup):
    (backup / "checkpoint-2" / "digests.json").unlink()


def no_optimizer(backup):
    (backup / "checkpoint-2" / "optimizer.pt").unlink()


def cut_adapter(backup):
    path = backup / "checkpoint-2" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize("spoil", [a_part, no_digests, no_optimizer, cut_adapter], ids=lambda f: f.__name__)
def test_half_a_copy_is_passed_over(run, backup, prompts, whole, capsys, spoil):
    """A Drive that was full, or a session that ended while it copied."""
    shutil.rmtree(run)
    spoil(backup)
    finish(run, prompts, whole, backup_dir=str(backup))
    said = capsys.readouterr().out
    assert said.count("checkpoint-1 was restored from the backup") == 1
    assert said.count("is damaged") == (spoil is not a_part)
    assert not list(backup.glob(".*"))
