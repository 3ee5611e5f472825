"""Whatever breaks a run off, it resumes to the bytes it would have reached; nothing half-written counts."""

import multiprocessing
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

from helpers import UserError, load_model, read_metrics
from helpers.grpo.checkpoint import load_rollout
from helpers.grpo.folders import checkpoint_folders
from helpers.grpo.metrics_file import MetricsFile
from tests.disk import full_disk
from tests.grpo.small import adapter, same, timeless, toy_reward, trainer_in


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prompts):
    """The uninterrupted run: its adapter, its metrics and its seconds."""
    folder, started = tmp_path_factory.mktemp("whole"), time.monotonic()
    trainer = trainer_in(folder, prompts)
    trainer.train()
    return adapter(trainer), timeless(read_metrics(folder / "metrics.jsonl")), time.monotonic() - started


def finish(folder, prompts, whole, reward=toy_reward):
    """Resume in `folder`, as a new session does, and compare with the uninterrupted run."""
    trainer = trainer_in(folder, prompts, reward=reward)
    trainer.train(resume_from_checkpoint=True)
    assert same(adapter(trainer), whole[0])
    assert timeless(read_metrics(folder / "metrics.jsonl")) == whole[1]


def train_from_the_last(folder, prompts):
    trainer_in(folder, prompts).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("seed", range(5))
def test_sigkill_at_a_random_instant(tmp_path, prompts, whole, seed):
    """Also while a checkpoint is being written: the rename makes it count or not."""
    process = multiprocessing.get_context("fork").Process(target=train_from_the_last, args=(tmp_path, prompts))
    process.start()
    time.sleep(random.Random(seed).uniform(0.3, 1.4) * whole[2])
    process.kill()
    process.join()
    assert process.exitcode in (-signal.SIGKILL, 0)
    finish(tmp_path, prompts, whole)


def test_stop_button_at_random_instants(tmp_path, prompts, whole):
    """In one session: the weights in memory are those of a whole step whenever the interrupt comes."""
    trainer, rng, interrupted = trainer_in(tmp_path, prompts), random.Random(1), 0
    for _ in range(12):
        timer = threading.Timer(rng.uniform(0.05, 0.5) * whole[2], os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            trainer.train(resume_from_checkpoint=True)
            timer.cancel()
            timer.join()
        except KeyboardInterrupt:  # while it was loading, or just after the end
            timer.join()
        assert not list(tmp_path.glob(".checkpoint*")), "a part was left behind"
        if trainer.state.global_step == 3:
            break
        interrupted += 1
    assert interrupted
    finish(tmp_path, prompts, whole)


def interrupt_at(monkeypatch, target, name, trainer, step):
    """Press the stop button whenever `target.name` is called with the trainer at `step`."""
    real = getattr(target, name)

    def interrupted(*arguments, **keywords):
        if trainer.state.global_step == step:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return real(*arguments, **keywords)

    monkeypatch.setattr(target, name, interrupted)


@pytest.mark.parametrize("place", ["the schedule", "the line of metrics", "the checkpoint"])
def test_an_interrupt_within_the_last_act_of_a_step_waits_for_its_end(tmp_path, prompts, whole, monkeypatch, place):
    """Weights, line and checkpoint are of one step; half of it would have been saved as the whole."""
    trainer = trainer_in(tmp_path, prompts)
    target, name = {
        "the schedule": (type(trainer.scheduler), "step"),
        "the line of metrics": (MetricsFile, "append"),
        "the checkpoint": (type(trainer.model), "save_pretrained"),
    }[place]
    interrupt_at(monkeypatch, target, name, trainer, step=1 if place == "the schedule" else 2)
    state = trainer.train()
    monkeypatch.undo()
    assert state.global_step == 2 and [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-2"
    finish(tmp_path, prompts, whole)


def test_an_interrupt_while_the_last_checkpoint_is_written(tmp_path, prompts, whole, monkeypatch):
    """With rare checkpoints the one at the end holds most of the run."""
    trainer = trainer_in(tmp_path, prompts, save_steps=10)
    interrupt_at(monkeypatch, trainer.model, "save_pretrained", trainer, step=3)
    assert trainer.train().global_step == 3
    monkeypatch.undo()
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-3"
    finish(tmp_path, prompts, whole)


@pytest.mark.parametrize(
    ("limit", "file"),
    [(200, "rollout.json"), (100_000, "checkpoint-2"), (600_000, "checkpoint-2"), (0, "metrics.jsonl")],
)
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path, prompts, whole, limit, file, monkeypatch):
    """Writes that the system refuses: the rollout, the adapter, the optimizer's state; and the line of metrics, which
    is smaller than all of them, by hand."""
    with full_disk() as fill:
        append = MetricsFile.append

        def full(self, row):
            if not limit and row["step"] == 2:
                fill(100)
            append(self, row)

        class Fill:
            def on_save(self, args, state, *_, **__):
                if limit:
                    fill(limit)

        monkeypatch.setattr(MetricsFile, "append", full)
        trainer = trainer_in(tmp_path, prompts, callbacks=[Fill()])
        with pytest.raises(UserError, match=rf"Cannot write to .*/{file} .*: make room there") as caught:
            trainer.train()
    monkeypatch.undo()
    assert "\n" not in str(caught.value)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-0", "checkpoint-1"]
    assert not list(tmp_path.glob(".*.part")), "a part was left behind"
    trainer.callbacks = []
    trainer.train(resume_from_checkpoint=True)  # in the same session, with a model that is a step ahead
    assert same(adapter(trainer), whole[0])
    finish(tmp_path, prompts, whole)


def test_a_disk_that_is_full_from_the_start_says_so_before_any_work(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts)
    with full_disk() as fill, pytest.raises(UserError, match="Cannot write to"):
        fill(1000)
        trainer.train()
    assert trainer.state.global_step == 0 and not checkpoint_folders(tmp_path)


def raises(values):
    raise ZeroDivisionError("float division by zero")


def hangs(values):
    while True:
        try:
            time.sleep(60)
        except Exception:  # swallows what would stop it, as rewards do
            continue


def hangs_on(values):
    try:
        time.sleep(60)
    except BaseException:  # even this, once: the alarm comes again
        time.sleep(60)


def times_out(values):
    raise TimeoutError("the read operation timed out")


FAULTS = {
    "raises": (raises, r"raised ZeroDivisionError: float division by zero \(test_faults.py, line \d+\): fix it"),
    "hangs": (hangs, "no answer within reward_timeout=0.5 seconds"),
    "hangs on": (hangs_on, "no answer within reward_timeout=0.5 seconds"),
    "times out by itself": (times_out, "raised TimeoutError: the read operation timed out"),
    "infinite": (lambda values: [float("inf"), *values[1:]], "returned inf: return a finite number"),
    "text": (lambda values: ["high", *values[1:]], "returned 'high': return a finite number"),
    "short": (lambda values: values[1:], "returned 7 values: return a list of 8"),
    "none": (lambda values: None, "returned a NoneType: return a list of 8"),
    "table": (lambda values: np.array([values]), "returned a ndarray: return a list of 8"),
    "huge": (lambda values: [10**400, *values[1:]], "returned 1000.*0: return a finite number"),
}


def spoiled(spoil, step):
    """The reward of the uninterrupted run, under its name, with its values spoiled at one step."""
    right = globals()["toy_reward"]

    def toy_reward(prompts, completions, trainer_state, **_):
        values = right(prompts, completions)
        return spoil(values) if trainer_state.global_step == step else values

    return toy_reward


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reward_that_fails_is_one_sentence_and_the_run_goes_on_when_it_is_mended(tmp_path, prompts, whole, fault):
    spoil, words = FAULTS[fault]
    trainer = trainer_in(tmp_path, prompts, reward=spoiled(spoil, step=1), reward_timeout=0.5)
    with pytest.raises(UserError, match=words) as caught:
        trainer.train()
    assert "goes on from the last checkpoint" in str(caught.value) and "\n" not in str(caught.value)
    assert "'toy_reward'" in str(caught.value)
    assert trainer.state.global_step == 1
    finish(tmp_path, prompts, whole)


def test_a_measured_reward_is_replayed_and_not_measured_again(tmp_path, prompts):
    """A run killed after judging and before its checkpoint: what was measured is what counts."""
    calls = []

    def measured(prompts, completions, **_):
        calls.append(1)
        return [random.random() for _ in completions]

    trainer = trainer_in(tmp_path, prompts, reward=measured)
    trainer.backward = lambda generation: (_ for _ in ()).throw(SystemExit)
    with pytest.raises(SystemExit):
        trainer.train()
    kept = load_rollout(tmp_path, 0, trainer.settings())
    resumed = trainer_in(tmp_path, prompts, reward=measured, max_minutes=1e-9)
    resumed.train(resume_from_checkpoint=True)
    assert len(calls) == 1 and resumed.state.global_step == 1
    assert read_metrics(tmp_path / "metrics.jsonl")[0]["reward"] == kept.metrics["reward"]
    assert load_rollout(tmp_path, 1, trainer.settings()) is None, "it was for step 0"
    other = trainer_in(tmp_path / "other", prompts, reward=measured, learning_rate=5e-4)
    assert load_rollout(tmp_path, 0, other.settings()) is None, "it was of another run"


def test_a_destroyed_policy_stops_the_run_and_names_the_way_back(tmp_path, prompts):
    """At a learning rate of 1 the run went on to its last step, and by then every checkpoint was worthless."""
    trainer = trainer_in(tmp_path, prompts, max_steps=10, learning_rate=1.0, max_completion_length=60)
    before = adapter(trainer)
    with pytest.raises(UserError, match="The policy is destroyed") as caught:
        trainer.train()
    step = trainer.state.global_step
    assert step <= 5 and f"Training stopped after step {step}, which is saved." in str(caught.value)
    good = tmp_path / "checkpoint-0"
    assert f"The last good checkpoint is {good}: load_model(adapter={str(good)!r})" in str(caught.value)
    model, _ = load_model(profile="tiny", dense="fp32", adapter=good)
    loaded = {name: weight for name, weight in model.named_parameters() if "lora_" in name}
    assert same(loaded, before)
    again = trainer_in(tmp_path, prompts, max_steps=10, learning_rate=1.0, max_completion_length=60)
    with pytest.raises(UserError, match="The policy is destroyed"):
        again.train(resume_from_checkpoint=True)
    assert again.state.global_step == step + 1, "resumed unchanged, it stops at once"


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_a_reward_that_fails_loses_no_step_and_no_completion(tmp_path, prompts, whole, fault):
    """With rare checkpoints a reward that raised in step 8 threw seven steps away, and what was just drawn."""
    spoil, _ = FAULTS[fault]
    trainer = trainer_in(tmp_path, prompts, reward=spoiled(spoil, step=2), reward_timeout=0.5, save_steps=100)
    with pytest.raises(UserError):
        trainer.train()
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-2"
    resumed = trainer_in(tmp_path, prompts, save_steps=100)
    draw = resumed.engine.generate
    draws = []
    resumed.engine.generate = lambda *arguments: draws.append(1) or draw(*arguments)
    resumed.train(resume_from_checkpoint=True)
    assert not draws and len(resumed.state.log_history) == 1
    assert same(adapter(resumed), whole[0])
    assert timeless(read_metrics(tmp_path / "metrics.jsonl")) == whole[1]
