"""A run that is broken off and taken up again."""

import errno
import json

import pytest

from helpers import UserError, read_metrics
from helpers.grpo.checkpoint import checkpoint_folders, one_run_in
from tests.grpo.small import adapter, same, timeless, trainer_in


class StopAfter:
    """Breaks the run off, as a lost session does, once `step` steps are done."""

    def __init__(self, step):
        self.step = step

    def on_log(self, args, state, control, logs, completions):
        if state.global_step == self.step:
            raise SystemExit


@pytest.mark.parametrize("iterations", [1, 2])
def test_resumed_run_ends_in_the_same_bytes(tmp_path, prompts, iterations):
    """Also when it broke off between two optimizer steps on the same generation."""
    whole = trainer_in(tmp_path / "whole", prompts, num_iterations=iterations)
    whole.train()
    with pytest.raises(SystemExit):
        trainer_in(tmp_path / "cut", prompts, num_iterations=iterations, callbacks=[StopAfter(1)]).train()
    resumed = trainer_in(tmp_path / "cut", prompts, num_iterations=iterations)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3
    assert same(adapter(resumed), adapter(whole))
    rows = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    assert timeless(rows[0]) == timeless(rows[1]) and [row["step"] for row in rows[1]] == [1, 2, 3]


@pytest.mark.parametrize(("stop", "checkpoint"), [(1, 0), (3, 2), (4, 4)])
def test_a_run_cut_off_between_checkpoints_repeats_the_steps_since(tmp_path, prompts, stop, checkpoint):
    """On a GPU four steps of five write none: the metrics are ahead of the checkpoint, and so is the last rollout."""
    settings = {"max_steps": 5, "save_steps": 2}
    whole = trainer_in(tmp_path / "whole", prompts, **settings)
    whole.train()
    with pytest.raises(SystemExit):
        trainer_in(tmp_path / "cut", prompts, callbacks=[StopAfter(stop)], **settings).train()
    assert len(read_metrics(tmp_path / "cut" / "metrics.jsonl")) == stop
    assert checkpoint_folders(tmp_path / "cut")[-1].name == f"checkpoint-{checkpoint}"

    resumed = trainer_in(tmp_path / "cut", prompts, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert same(adapter(resumed), adapter(whole))
    rows = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    assert timeless(rows[0]) == timeless(rows[1]) and [row["step"] for row in rows[1]] == [1, 2, 3, 4, 5]
    saved = [tmp_path / name / "checkpoint-5" / "adapter_model.safetensors" for name in ("whole", "cut")]
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_metrics_after_the_last_checkpoint_are_dropped(tmp_path, prompts):
    """A run that died after writing a line and before its checkpoint repeats the step, not the line."""
    first = trainer_in(tmp_path, prompts, max_steps=1)
    first.train()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 2, "reward": 9.0}) + '\n{"step": 3, "rew')
    again = trainer_in(tmp_path, prompts, max_steps=2)
    again.train(resume_from_checkpoint=True)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2] and rows[1]["reward"] != 9.0


def test_checkpoints_of_other_settings_are_refused(tmp_path, prompts):
    """Going on with another learning rate under the same name would make the metrics a lie."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    with pytest.raises(UserError, match=r"learning_rate=0\.001 and this run has 0\.01"):
        trainer_in(tmp_path, prompts, learning_rate=0.01).train(resume_from_checkpoint=True)


def test_starting_anew_over_a_run_is_refused(tmp_path, prompts):
    """It would have mixed two runs: the new checkpoints are the lowest numbers, and dropped first."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    for value in (None, False):  # transformers' spelling of "do not resume"
        with pytest.raises(UserError, match="holds checkpoints of an earlier run"):
            trainer_in(tmp_path, prompts).train(resume_from_checkpoint=value)


def test_old_checkpoints_are_dropped_and_finished_runs_stay_finished(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, save_total_limit=2)
    trainer.train()
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-2", "checkpoint-3"]
    again = trainer_in(tmp_path, prompts)
    again.train(resume_from_checkpoint=True)
    assert same(adapter(again), adapter(trainer)) and again.state.log_history == []


def test_max_minutes_stops_after_a_whole_step(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, max_minutes=1e-9)
    assert trainer.train().global_step == 1
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-1"


def test_interrupt_keeps_the_last_step(tmp_path, prompts, capsys):
    class Interrupt:
        def on_log(self, args, state, *_, **__):
            raise KeyboardInterrupt

    state = trainer_in(tmp_path, prompts, callbacks=[Interrupt()]).train()
    assert state.global_step == 1 and "goes on from the last step" in capsys.readouterr().out


def test_an_interrupted_step_leaves_nothing_behind(tmp_path, prompts):
    """Gradients of the part that was done would have gone into the step that is done again."""
    whole = trainer_in(tmp_path / "whole", prompts, max_steps=2)
    whole.train()
    cut = trainer_in(tmp_path / "cut", prompts, max_steps=2)
    real, calls = cut.accumulate_gradients, []

    def interrupted(*arguments):
        result = real(*arguments)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return result

    cut.accumulate_gradients = interrupted
    assert cut.train().global_step == 1
    assert cut.train(resume_from_checkpoint=True).global_step == 2
    assert same(adapter(cut), adapter(whole))


def test_resuming_with_another_adapter_or_other_prompts_is_refused(tmp_path, prompts):
    """As many prompts, but not the same ones: the second half would have trained on something else."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    other = trainer_in(tmp_path, prompts)
    other.model.active_peft_config.lora_alpha = 99
    with pytest.raises(UserError, match="lora_alpha=8 and this run has 99"):
        other.train(resume_from_checkpoint=True)
    with pytest.raises(UserError, match="written with prompts="):
        trainer_in(tmp_path, prompts.select(range(11, -1, -1))).train(resume_from_checkpoint=True)


def test_a_missing_checkpoint_folder_is_one_sentence(tmp_path, prompts):
    with pytest.raises(UserError, match="no checkpoint folder"):
        trainer_in(tmp_path, prompts).train(resume_from_checkpoint=tmp_path / "checkpoint-9")


def test_a_new_run_on_a_model_that_was_trained_is_refused(tmp_path, prompts):
    """In the same kernel, with another folder: it would start from the first run's weights, and a control would win."""
    first = trainer_in(tmp_path / "first", prompts, max_steps=1)
    first.train()
    second = trainer_in(tmp_path / "second", prompts)
    second.model = first.model
    with pytest.raises(UserError, match="has been trained in this session already"):
        second.train(resume_from_checkpoint=True)
    assert not checkpoint_folders(tmp_path / "second")


def test_two_runs_in_one_folder_are_refused(tmp_path, prompts):
    """Two kernels on one machine would have written over each other's checkpoints."""
    with one_run_in(tmp_path):
        with pytest.raises(UserError, match="Another process is training in"):
            trainer_in(tmp_path, prompts).train(resume_from_checkpoint=True)
        assert not checkpoint_folders(tmp_path)
    assert trainer_in(tmp_path, prompts, max_steps=1).train(resume_from_checkpoint=True).global_step == 1


def test_a_file_system_without_locks_will_do(tmp_path, prompts, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    assert trainer_in(tmp_path, prompts, max_steps=1).train().global_step == 1


def test_an_older_checkpoint_is_not_resumed_beside_newer_ones(tmp_path, prompts):
    """The next run would have taken the abandoned newer one for its own."""
    trainer_in(tmp_path, prompts, max_steps=2).train()
    with pytest.raises(UserError, match="checkpoint-2 is newer than what you resume from: move it away"):
        trainer_in(tmp_path, prompts).train(resume_from_checkpoint=tmp_path / "checkpoint-1")


def test_a_saved_adapter_says_where_it_comes_from(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, max_steps=1)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    state = json.loads((tmp_path / "adapter" / "trainer_state.json").read_text())
    assert state["step"] == 1 and state["settings"]["reward_funcs"] == ["toy_reward"]
