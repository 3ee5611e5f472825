"""Files that a disk, a copy or a hand has damaged: noticed, named, and gone around where something sound is left."""

import errno
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import time
import zlib

import pytest
from safetensors import SafetensorError

from helpers import UserError, add_lora, load_model, read_metrics, weights_digest
from helpers.grpo.backup import back_up, known_checkpoints
from helpers.grpo.checkpoint import ROLLOUT, load_rollout
from helpers.grpo.folders import checkpoint_folders, find_damage, saving_to
from helpers.grpo.metrics_file import MetricsFile
from helpers.model.files import base_identity
from helpers.model.identity import base_settings
from helpers.profiles import PROFILES
from tests.disk import full_disk
from tests.grpo.small import adapter, same, timeless, trainer_in

FILES = (
    "README.md", "adapter_config.json", "adapter_model.safetensors", "digests.json", "optimizer.pt",
    "trainer_state.json",
)  # fmt: skip
CONTENT = set(FILES) - {"digests.json"}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, prompts):
    """One trainer for all tests of this module; `reset` gives it a folder and the weights of the start."""
    return trainer_in(tmp_path_factory.mktemp("any"), prompts, max_steps=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prompts):
    """The folder of an uninterrupted run of two steps with a backup, and its seconds."""
    parent, started = tmp_path_factory.mktemp("whole"), time.monotonic()
    trainer_in(parent / "run", prompts, max_steps=2, backup_dir=str(parent / "backup")).train()
    return parent / "run", time.monotonic() - started


@pytest.fixture
def run(tmp_path, whole):
    """A copy of the whole run's folder, to be damaged; its backup lies beside it."""
    shutil.copytree(whole[0].parent, tmp_path / "copy")
    return tmp_path / "copy" / "run"


def last_bytes(folder, step=2):
    """The files of a run's last checkpoint, and its metrics without seconds."""
    files = {name: (folder / f"checkpoint-{step}" / name).read_bytes() for name in FILES}
    return files, timeless(read_metrics(folder / "metrics.jsonl"))


def finish(folder, prompts, whole, **settings):
    """Resume in `folder` as a new session does, and compare with the uninterrupted run."""
    state = trainer_in(folder, prompts, max_steps=2, **settings).train(resume_from_checkpoint=True)
    assert state.global_step == 2
    assert last_bytes(folder) == last_bytes(whole[0])


def flip(path, offset):
    """Change one byte of a file, at an offset from its start or, if negative, from its end."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x11
    path.write_bytes(content)


# --- checkpoints ---


def test_every_file_of_a_checkpoint_has_a_digest(whole):
    """A file left out of the digests could be damaged unnoticed."""
    newest = checkpoint_folders(whole[0])[-1]
    assert sorted(file.name for file in newest.iterdir()) == sorted(FILES)
    assert set(json.loads((newest / "digests.json").read_text())) == CONTENT
    assert find_damage(newest) == ""


@pytest.mark.parametrize("name", FILES)
def test_damage_to_any_file_is_noticed(run, name):
    """One flipped byte in the optimizer's moments trains on, to other weights, without a word."""
    newest = run / "checkpoint-2"
    sound = (newest / name).read_bytes()
    rng = random.Random(name)
    for offset in [0, -1, *(rng.randrange(len(sound)) for _ in range(8))]:
        flip(newest / name, offset)
        assert find_damage(newest), f"byte {offset} of {name}"
        (newest / name).write_bytes(sound)
    for size in (0, 1, len(sound) // 2, len(sound) - 1):
        (newest / name).write_bytes(sound[:size])
        assert find_damage(newest), f"{name} cut to {size} bytes"
    (newest / name).write_bytes(sound + b"\0")
    assert find_damage(newest)
    (newest / name).unlink()
    assert find_damage(newest) == f"{name} is missing"
    (newest / name).mkdir()
    assert find_damage(newest)


@pytest.mark.parametrize("content", ["[]", "null", "{}", "3", '"x"', "[" * 100_000, '{"\\u0000": ""}', "\xff"])
def test_digests_of_any_content_are_no_traceback(run, content):
    (run / "checkpoint-2" / "digests.json").write_text(content, encoding="latin-1")
    assert find_damage(run / "checkpoint-2")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt", "digests.json"])
def test_a_run_goes_on_from_the_newest_sound_checkpoint(run, prompts, whole, capsys, name):
    """Also without digests. The damaged one is kept, and no longer counts as newer."""
    if name == "digests.json":
        (run / "checkpoint-2" / name).unlink()
    else:
        flip(run / "checkpoint-2" / name, 1000)
    finish(run, prompts, whole)
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "damaged" in line]
    assert f"checkpoint-2 is damaged ({name} is" in said and f"goes on from {run / 'checkpoint-1'}" in said
    assert (run / "damaged-checkpoint-2").is_dir()


def test_a_checkpoint_damaged_twice_is_kept_twice(run, prompts, whole):
    for _ in range(2):
        flip(run / "checkpoint-2" / "optimizer.pt", 99)
        finish(run, prompts, whole)
    assert (run / "damaged-checkpoint-2").is_dir() and (run / "damaged-checkpoint-2-2").is_dir()


def test_without_a_sound_checkpoint_the_run_does_not_start(run, prompts):
    """Starting anew by itself would throw away what a person might still save."""
    for folder in checkpoint_folders(run):
        flip(folder / "trainer_state.json", 5)
    with pytest.raises(UserError, match=r"no checkpoint is sound: delete them to start anew") as caught:
        trainer_in(run, prompts, max_steps=2).train(resume_from_checkpoint=True)
    assert "\n" not in str(caught.value)
    assert len(checkpoint_folders(run)) == 2


def test_a_damaged_checkpoint_that_was_asked_for_is_refused(run, prompts):
    flip(run / "checkpoint-2" / "README.md", 5)
    with pytest.raises(UserError, match=r"checkpoint-2 is damaged \(README.md is not what was written\): go on from"):
        trainer_in(run, prompts, max_steps=2).train(resume_from_checkpoint=run / "checkpoint-2")
    assert (run / "checkpoint-2").is_dir()


def test_a_checkpoint_with_the_number_of_another_step_is_damaged(run, prompts, whole, capsys):
    """A folder that was renamed counted as the newest, and the run repeated steps under the wrong numbers."""
    (run / "checkpoint-2").rename(run / "checkpoint-9")
    finish(run, prompts, whole)
    assert "checkpoint-9 is damaged (its state is of step 2): the run goes on from" in capsys.readouterr().out
    assert (run / "damaged-checkpoint-9").is_dir()


def test_a_checkpoint_under_a_name_of_its_own_may_be_resumed(run, prompts, whole):
    """A person who keeps a copy under another name has damaged nothing."""
    shutil.rmtree(run / "checkpoint-2")
    (run / "checkpoint-1").rename(run / "my-copy")
    trainer_in(run, prompts, max_steps=2).train(resume_from_checkpoint=run / "my-copy")
    assert last_bytes(run)[0] == last_bytes(whole[0])[0]


# --- base model ---


def test_other_base_weights_are_refused(tmp_path, prompts):
    """An adapter that goes on over other weights is an adapter of neither model."""
    model = tmp_path / "model"
    shutil.copytree(PROFILES["tiny"].model, model)
    trainer_in(tmp_path / "run", prompts, path=model, max_steps=1).train()
    trainer_in(tmp_path / "run", prompts, path=model, max_steps=1).train(resume_from_checkpoint=True)
    flip(model / "model-00002-of-00002.safetensors", -1)
    with pytest.raises(UserError, match=r"was written with base_model='\w{16}' and this run has '\w{16}'"):
        trainer_in(tmp_path / "run", prompts, path=model).train(resume_from_checkpoint=True)


def test_another_storage_of_the_base_weights_is_refused(whole, prompts):
    """Four bits and 32 are two models, and the metrics would be of both."""
    with pytest.raises(UserError, match=r"was written with dense='fp32' and this run has 'nf4'"):
        trainer_in(whole[0], prompts, dense="nf4", max_steps=2).train(resume_from_checkpoint=True)


def test_files_of_the_hubs_cache_are_known_by_their_names(tmp_path, monkeypatch):
    """Reading the 14 GB of gpt-oss-20b took a minute of a Colab session; the cache names each by its SHA-256."""
    local = tmp_path / "local"
    snapshot = tmp_path / "cache" / "snapshots" / "main"
    blobs = tmp_path / "cache" / "blobs"
    for folder in (local, snapshot, blobs):
        folder.mkdir(parents=True)
    for name, content in {"config.json": b"{}", "model.safetensors": b"weights"}.items():
        (local / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        (snapshot / name).symlink_to(blobs / digest)
    wanted = base_identity(local, tmp_path / "one")
    monkeypatch.setattr("helpers.model.files.file_digest", lambda path: pytest.fail(f"{path} was read"))
    assert base_identity(snapshot, tmp_path / "two") == wanted


def test_the_digest_of_the_base_model_is_kept_and_renewed(tmp_path, monkeypatch):
    """14 GB are read once a run folder, and again when a file is another one, or the record itself is damaged."""
    model = tmp_path / "model"
    shutil.copytree(PROFILES["tiny"].model, model)
    read = []
    monkeypatch.setattr("helpers.model.files.file_digest", lambda path: read.append(path.name) or f"digest {len(read)}")
    first = base_identity(model, tmp_path)
    assert read == ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert base_identity(model, tmp_path) == first and len(read) == 3
    os.utime(model / "config.json", ns=(1, 1))
    assert base_identity(model, tmp_path) != first and read[3:] == ["config.json"]
    for damage in (b"", b"[]", b"\xff", (tmp_path / "base_model.json").read_bytes().replace(b"digest 3", b"digest 7")):
        del read[:]
        (tmp_path / "base_model.json").write_bytes(damage)
        base_identity(model, tmp_path)
        assert len(read) == 3
    shutil.copytree(model, tmp_path / "other")
    base_identity(tmp_path / "other", tmp_path)
    assert len(read) == 6


def test_a_model_that_no_loader_made_is_told_by_its_weights(tmp_path):
    """It has no files; "unknown" would be the same for every one of them."""
    model = add_lora(load_model(profile="tiny", experts="mxfp4")[0], r=4, alpha=8)
    told = base_settings(model, tmp_path)
    assert (told["dtype"], told["experts"], told["dense"], told["embedding"]) == ("float32", "mxfp4", "nf4", "device")
    assert told["base_model"] == base_identity(PROFILES["tiny"].model, tmp_path)
    other = add_lora(load_model(profile="tiny", dense="fp32")[0], r=4, alpha=8)
    del other.get_base_model().loaded_from
    assert base_settings(other, tmp_path)["base_model"] == weights_digest(other.get_base_model())[:16]


# --- the last rollout ---

ROLLOUT_DAMAGE = {
    "empty": lambda text: b"",
    "list": lambda text: b"[]",
    "null": lambda text: b"null",
    "number": lambda text: b"3",
    "no UTF-8": lambda text: b"\xff",
    "cut": lambda text: text[: len(text) // 2],
    "deep": lambda text: b"[" * 100_000,
    "a digit": lambda text: text.replace(b'"rewards": [[0.', b'"rewards": [[1.'),
    "keys missing": lambda text: b'{"sha256": "", "content": {}}',
    "wrong types": lambda text: b'{"sha256": 3, "content": {"step": 1, "settings": [], "generation": 2}}',
    "directory": None,
}


@pytest.mark.parametrize("damage", ROLLOUT_DAMAGE)
def test_a_damaged_rollout_is_drawn_and_judged_again(run, trainer, capsys, damage):
    """It is there to save work: without it the run goes on, and with half of it another run would."""
    path = run / ROLLOUT
    settings = trainer.settings()
    assert load_rollout(run, 1, settings) is not None
    spoil = ROLLOUT_DAMAGE[damage]
    if spoil is None:
        path.unlink()
        path.mkdir()
    else:
        spoilt = spoil(path.read_bytes())
        assert spoilt != path.read_bytes()
        path.write_bytes(spoilt)
    assert load_rollout(run, 1, settings) is None
    (said,) = capsys.readouterr().out.splitlines()
    assert "cannot be read (" in said and said.endswith("the completions of step 2 are drawn and judged again.")
    assert (run / "damaged-rollout.json").exists() and not path.exists()


def test_a_run_with_a_damaged_rollout_ends_in_the_same_bytes(run, prompts, whole):
    shutil.rmtree(run / "checkpoint-2")
    (run / ROLLOUT).unlink()
    (run / ROLLOUT).mkdir()
    finish(run, prompts, whole)


# --- metrics ---

GOOD = [b'{"step": 1, "reward": 0.5}', b'{"step": 2, "reward": NaN}', b'{"step": 3, "reward": 0.25}']
METRICS_DAMAGE = {
    "cut": b'{"step": 2, "rew',
    "list": b"[]",
    "null": b"null",
    "no step": b'{"reward": 1}',
    "step is text": b'{"step": "2"}',
    "step is true": b'{"step": true}',
    "step is a fraction": b'{"step": 2.0}',
    "no UTF-8": b'{"step": 2, "reward": "\xff"}',
    "zeros": b"\0" * 40,
    "deep": b"[" * 100_000,
    "two in a line": b'{"step": 2}{"step": 3}',
}


@pytest.mark.parametrize("damage", METRICS_DAMAGE)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_bad_line_of_metrics_costs_that_line_only(tmp_path, capsys, damage, place):
    """One bad byte in the middle once hid every later step, and a resume then deleted them."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([*GOOD[:place], METRICS_DAMAGE[damage], *GOOD[place:]]) + b"\n")
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]
    (said,) = capsys.readouterr().out.splitlines()
    assert said == f"1 line of {path} cannot be read and is left out: the other 3 are kept."
    MetricsFile(path, last_step=2)
    assert path.read_bytes().splitlines() == GOOD[:2]
    assert METRICS_DAMAGE[damage] in (tmp_path / "damaged-metrics.jsonl").read_bytes()
    assert capsys.readouterr().out.count("cannot be read") == 1
    read_metrics(path)
    assert not capsys.readouterr().out


def test_metrics_have_one_row_a_step(tmp_path):
    """A file put together from two copies would be plotted twice; of a repeated step the later row is of the run."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "reward": 1}\n{"step": 1}\n\n{"step": 2, "reward": 2}\n')
    assert read_metrics(path) == [{"step": 1}, {"step": 2, "reward": 2}]


ROWS = [{"step": 1, "reward": 0.5, "sign": "x"}, {"step": 2, "reward": None}, {"step": 3, "reward": 0.25}]


def write_rows(path, rows):
    """Write rows as a run does, one after the other."""
    file = MetricsFile(path)
    for row in rows:
        file.append(row)


@pytest.mark.parametrize("count", [1, 3])
def test_a_flipped_byte_of_metrics_is_noticed(tmp_path, capsys, count):
    """A reward of 0.5 that became 1.5 is a good row of JSON, and a curve that nobody measured."""
    path = tmp_path / "metrics.jsonl"
    write_rows(path, ROWS[:count])
    sound = path.read_bytes()
    for offset in range(len(sound)):
        flip(path, offset)
        rows = read_metrics(path)
        assert len(rows) < count and all(row in ROWS for row in rows), f"byte {offset}"
        assert capsys.readouterr().out.count(f"of {path} cannot be read") == 1
        path.write_bytes(sound)
    assert read_metrics(path) == ROWS[:count]


def test_the_checksum_is_the_last_key_of_a_line(tmp_path):
    """Other programs read these lines, and can check them."""
    write_rows(tmp_path / "metrics.jsonl", ROWS)
    for line, row in zip((tmp_path / "metrics.jsonl").read_text().splitlines(), ROWS, strict=True):
        *names, last = json.loads(line)
        checksum = zlib.crc32(json.dumps(row).encode())
        assert names == list(row) and last == "checksum" and json.loads(line)[last] == f"{checksum:08x}"


def test_metrics_of_an_older_version_are_gone_on_with(tmp_path, capsys):
    """They have no checksums; beside the first line with one, all others would count as damaged."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join(GOOD) + b"\n")
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]
    file = MetricsFile(path, last_step=2)
    file.append(ROWS[2])
    assert all(b'"checksum"' in line for line in path.read_bytes().splitlines())
    assert [row["reward"] for row in read_metrics(path)] == [0.5, None, 0.25]
    assert not capsys.readouterr().out


def test_a_line_without_a_checksum_among_others_is_damaged(tmp_path, capsys):
    """Cut off at its end, a row may be good JSON with its checksum gone."""
    path = tmp_path / "metrics.jsonl"
    write_rows(path, ROWS[:2])
    with open(path, "a") as file:
        file.write('{"step": 3, "reward": 9.0}\n')
    assert read_metrics(path) == ROWS[:2]
    assert "1 line of" in capsys.readouterr().out


def test_damaged_metrics_are_named_once_in_a_session(run, prompts, capsys):
    """The file is read for the history, and opened: two sentences sounded like two faults."""
    flip(run / "metrics.jsonl", 20)
    trainer = trainer_in(run, prompts, max_steps=2)
    trainer.train(resume_from_checkpoint=True)
    assert [row["step"] for row in trainer.history] == [2]
    said = capsys.readouterr().out
    assert said.count("metrics.jsonl") == 1 and "1 line of" in said
    assert (run / "damaged-metrics.jsonl").exists()


def test_steps_without_a_row_are_named(run, prompts, capsys):
    """A file that was cut at the end of a line looks sound, and its curves begin late."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(lines[1])
    trainer_in(run, prompts, max_steps=2).train(resume_from_checkpoint=True)
    assert "metrics.jsonl has no row for 1 of the 2 steps that are done" in capsys.readouterr().out


def test_metrics_that_are_a_folder_are_one_sentence(tmp_path):
    with pytest.raises(UserError, match="Cannot read .*move it away"):
        read_metrics(tmp_path)


# --- what cannot be written ---

NO_ROOM = "make room there and run this again"
NOT_ALLOWED = "you may not write there; choose another output_dir, or change its permissions"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), NO_ROOM),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), NO_ROOM),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), NO_ROOM),
        (PermissionError(errno.EACCES, "Permission denied"), NOT_ALLOWED),
        (PermissionError(errno.EPERM, "Operation not permitted"), NOT_ALLOWED),
        (OSError(errno.EROFS, "Read-only file system"), NOT_ALLOWED),
        (SafetensorError("Error while serializing: I/O error: Permission denied (os error 13)"), NOT_ALLOWED),
        (OSError(errno.EIO, "Input/output error"), "check the disk and run this again"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_the_advice_fits_what_cannot_be_written(error, advice):
    """Making room does not help who may not write."""
    with pytest.raises(UserError) as caught, saving_to("/runs/a"):
        raise error
    assert f"Cannot write to /runs/a ({error}): {advice}" in str(caught.value)


# --- the backup ---


def test_a_backup_holds_the_same_files(whole):
    backup = whole[0].parent / "backup"
    assert [folder.name for folder in checkpoint_folders(backup)] == ["checkpoint-1", "checkpoint-2"]
    assert last_bytes(backup) == last_bytes(whole[0])
    assert not find_damage(backup / "checkpoint-2")


@pytest.mark.parametrize("loss", ["everything", "the last step", "the checkpoints"])
def test_a_lost_run_is_restored_from_its_backup(run, prompts, whole, capsys, loss):
    """A Colab session takes its disk with it."""
    backup = run.parent / "backup"
    if loss == "the last step":
        shutil.rmtree(backup / "checkpoint-2")
    if loss == "the checkpoints":
        for folder in checkpoint_folders(run):
            flip(folder / "optimizer.pt", 999)
    else:
        shutil.rmtree(run)
    (backup / "checkpoint-1" / ".ipynb_checkpoints").mkdir()  # of a person who looked at it
    finish(run, prompts, whole, backup_dir=str(backup))
    assert f"restored from the backup in {backup}" in capsys.readouterr().out
    assert last_bytes(backup) == last_bytes(whole[0])


def test_a_damaged_backup_falls_back_too(run, prompts, whole, capsys):
    backup = run.parent / "backup"
    shutil.rmtree(run)
    flip(backup / "checkpoint-2" / "trainer_state.json", 99)
    (backup / "metrics.jsonl").write_bytes(b"\xff\n" + (backup / "metrics.jsonl").read_bytes())
    finish(run, prompts, whole, backup_dir=str(backup))
    assert "kept as damaged-checkpoint-2" in capsys.readouterr().out
    assert (backup / "damaged-checkpoint-2").is_dir()


def test_a_checkpoint_of_the_backup_can_be_asked_for(run, prompts, whole):
    """Its metrics come with it; without them the next copy would have cut the backup's own."""
    shutil.rmtree(run)
    backup = run.parent / "backup"
    trainer = trainer_in(run, prompts, max_steps=2, backup_dir=str(backup))
    trainer.train(resume_from_checkpoint=str(backup / "checkpoint-2"))
    assert last_bytes(run) == last_bytes(whole[0])


def test_a_new_run_over_a_backup_is_refused(run, prompts):
    shutil.rmtree(run)
    with pytest.raises(UserError, match="backup holds checkpoints of an earlier run"):
        trainer_in(run, prompts, max_steps=2, backup_dir=str(run.parent / "backup")).train()


def test_another_runs_backup_is_neither_used_nor_changed(run, prompts):
    shutil.rmtree(run)
    backup = run.parent / "backup"
    before = sorted(backup.rglob("*"))
    trainer = trainer_in(run, prompts, max_steps=2, learning_rate=0.1, backup_dir=str(backup))
    with pytest.raises(UserError, match=r"backup/checkpoint-2 was written with learning_rate=0\.001"):
        trainer.train(resume_from_checkpoint=True)
    assert not checkpoint_folders(run)
    assert sorted(backup.rglob("*")) == before


def file_instead(backup):
    backup.write_text("")


def not_mounted(backup):
    backup.parent.rmdir()


def newer_run(backup):
    (backup / "checkpoint-9").mkdir(parents=True)


def folder_of_metrics(backup):
    (backup / "metrics.jsonl").mkdir(parents=True)


@pytest.mark.parametrize("spoil", [file_instead, not_mounted, newer_run, folder_of_metrics], ids=lambda f: f.__name__)
def test_a_backup_that_fails_is_one_sentence(run, tmp_path, capsys, spoil):
    """A full Drive must not end a run whose own disk is sound."""
    backup = tmp_path / "drive" / "backup"
    backup.parent.mkdir()
    spoil(backup)
    assert not back_up(run / "checkpoint-2", backup, keep=2)
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"checkpoint-2 could not be copied to backup_dir {backup} (") and "the run goes on" in said
    assert not (backup / "checkpoint-2").exists()


def test_training_goes_on_when_the_backup_fails(tmp_path, prompts, whole, capsys, monkeypatch):
    """One sentence a save; here the disk of the backup is full, and then it is not any more."""
    real = shutil.copyfile

    def copy_once_full(source, target):
        if "checkpoint-1" in str(target):
            raise OSError(28, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_once_full)
    finish(tmp_path / "run", prompts, whole, backup_dir=str(tmp_path / "backup"))
    assert capsys.readouterr().out.count("checkpoint-1 could not be copied") == 1
    assert [folder.name for folder in checkpoint_folders(tmp_path / "backup")] == ["checkpoint-0", "checkpoint-2"]
    assert not list((tmp_path / "backup").glob(".*"))


def test_a_full_disk_of_the_backup_leaves_no_part(run, tmp_path, capsys):
    with full_disk() as fill:
        fill(100_000)
        assert not back_up(run / "checkpoint-2", tmp_path / "backup", keep=2)
    assert "File too large" in capsys.readouterr().out
    assert not checkpoint_folders(tmp_path / "backup") and not list((tmp_path / "backup").glob(".*"))
    assert back_up(run / "checkpoint-2", tmp_path / "backup", keep=2)


def test_a_read_only_backup_still_restores(run, prompts, whole, monkeypatch):
    """Root may write anywhere, so the refusal is made by hand."""
    shutil.rmtree(run)
    backup = run.parent / "backup"
    flip(backup / "checkpoint-2" / "optimizer.pt", 99)
    real = os.rename

    def refuse(source, target, **keywords):
        if str(backup) in str(target):
            raise OSError(30, "Read-only file system")
        return real(source, target, **keywords)

    monkeypatch.setattr(os, "rename", refuse)
    finish(run, prompts, whole, backup_dir=str(backup))


def test_a_run_and_its_backup_in_one_folder(run):
    """Each checkpoint is known once, or a damaged one would be moved away twice."""
    assert known_checkpoints(run, run) == checkpoint_folders(run)


# --- kills ---


def train_with_backup(folder, prompts):
    trainer = trainer_in(folder / "run", prompts, max_steps=2, backup_dir=str(folder / "backup"))
    trainer.train(resume_from_checkpoint=True)


def kill_at(seconds, folder, prompts):
    process = multiprocessing.get_context("fork").Process(target=train_with_backup, args=(folder, prompts))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()


INSTANTS = [pytest.param(n, marks=pytest.mark.slow if n % 6 else ()) for n in range(30)]


@pytest.mark.parametrize("number", INSTANTS)
def test_sigkill_at_any_instant(tmp_path, prompts, whole, number):
    """Thirty instants over the whole run. Then the run's own disk is lost, or not."""
    kill_at((0.2 + number / 30) * whole[1], tmp_path, prompts)
    if number % 2:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    finish(tmp_path / "run", prompts, whole, backup_dir=str(tmp_path / "backup"))


@pytest.mark.parametrize("file", ["optimizer.pt", "README.md"])
def test_sigkill_while_a_backup_is_copied(tmp_path, prompts, whole, monkeypatch, file):
    """The copy counts when it is complete; what was copied of it is gone with the next one."""
    real = shutil.copyfile

    def die(source, target):
        real(source, target)
        if f"checkpoint-1{os.sep}{file}" in str(source):
            os.kill(os.getpid(), 9)

    monkeypatch.setattr(shutil, "copyfile", die)
    kill_at(60, tmp_path, prompts)
    monkeypatch.undo()
    assert [folder.name for folder in checkpoint_folders(tmp_path / "run")] == ["checkpoint-0", "checkpoint-1"]
    assert [folder.name for folder in checkpoint_folders(tmp_path / "backup")] == ["checkpoint-0"]
    assert list((tmp_path / "backup").glob(".checkpoint-1.part"))
    if file == "README.md":
        shutil.rmtree(tmp_path / "run")
    finish(tmp_path / "run", prompts, whole, backup_dir=str(tmp_path / "backup"))
    assert not list((tmp_path / "backup").glob(".*"))


def test_the_uninterrupted_run_is_what_one_without_a_backup_is(tmp_path, prompts, whole):
    """A backup must not change the run."""
    trainer = trainer_in(tmp_path, prompts, max_steps=2)
    trainer.train()
    assert last_bytes(tmp_path) == last_bytes(whole[0])
    again = trainer_in(tmp_path, prompts, max_steps=2)
    again.train(resume_from_checkpoint=True)
    assert same(adapter(again), adapter(trainer))
