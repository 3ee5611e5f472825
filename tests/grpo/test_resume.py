"""A run that is broken off and taken up again."""

import errno
import hashlib
import json

import pytest

from helpers import UserError, read_metrics
from helpers.grpo.checkpoint import ROLLOUT, load_draws, load_rollout, numerics_notes
from helpers.grpo.folders import checkpoint_folders, one_run_in
from helpers.grpo.trainer import ADAPTER_FILES
from tests.disk import full_disk
from tests.grpo.small import adapter, same, timeless, toy_reward, trainer_in


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


@pytest.mark.parametrize(("stop", "checkpoint"), [(1, 0), (3, 2), (4, 2)])
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


# --- nothing finished is lost ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prompts):
    """The folder of an uninterrupted run of three steps, saved at its end."""
    folder = tmp_path_factory.mktemp("whole")
    trainer_in(folder, prompts, save_steps=100).train()
    return folder


def finish(folder, prompts, whole, reward=toy_reward):
    """Resume in `folder` as a new session does, compare with the uninterrupted run, and return the trainer."""
    trainer = trainer_in(folder, prompts, reward=reward, save_steps=100)
    trainer.train(resume_from_checkpoint=True)
    weights = [path / "checkpoint-3" / "adapter_model.safetensors" for path in (folder, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    rows = [timeless(read_metrics(path / "metrics.jsonl")) for path in (folder, whole)]
    assert rows[0] == rows[1]
    return trainer


def failing(spoil, at_step=2):
    """Return the reward of these tests with a fault in one step."""

    def toy_reward(prompts, completions, trainer_state, **_):
        values = right(prompts, completions)
        return spoil(values) if trainer_state.global_step == at_step else values

    right = globals()["toy_reward"]
    return toy_reward


def raises(values):
    raise ZeroDivisionError("float division by zero")


def fail(folder, prompts, spoil=raises, **settings):
    """Train until the reward of step 3 fails."""
    trainer = trainer_in(folder, prompts, reward=failing(spoil), save_steps=100, **settings)
    with pytest.raises(UserError, match="toy_reward"):
        trainer.train()


def test_a_reward_that_raises_loses_no_step(tmp_path, prompts, whole):
    """With rare checkpoints it lost all steps since the last one, though each of them was finished."""
    fail(tmp_path, prompts)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-0", "checkpoint-2"]
    finish(tmp_path, prompts, whole)


def test_a_callback_that_raises_loses_no_step(tmp_path, prompts, whole):
    """So does any other mistake in the code around the trainer."""

    class Broken:
        def on_log(self, args, state, *_, **__):
            if state.global_step == 2:
                raise KeyError("reward")

    with pytest.raises(KeyError):
        trainer_in(tmp_path, prompts, callbacks=[Broken()], save_steps=100).train()
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-2"
    finish(tmp_path, prompts, whole)


def test_weights_between_two_steps_are_not_saved(tmp_path, prompts, whole, monkeypatch):
    """Half a step would have been saved as a whole one: the weights are moved, and its line is not written."""
    trainer = trainer_in(tmp_path, prompts, save_steps=100)
    real = type(trainer.scheduler).step

    def broken(self, *arguments):
        if trainer.state.global_step == 2:
            raise RuntimeError("the schedule is broken")
        real(self, *arguments)

    monkeypatch.setattr(type(trainer.scheduler), "step", broken)
    with pytest.raises(RuntimeError, match="the schedule is broken"):
        trainer.train()
    monkeypatch.undo()
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-0"
    finish(tmp_path, prompts, whole)


def test_the_error_that_broke_a_run_off_is_raised_though_saving_fails(tmp_path, prompts, whole):
    """A full disk made the program fail, and was then all that the user heard of it."""
    with full_disk() as fill:

        def fills_the_disk(values):
            fill(1000)
            raises(values)

        trainer = trainer_in(tmp_path, prompts, reward=failing(fills_the_disk), save_steps=100)
        with pytest.raises(UserError, match="raised ZeroDivisionError: float division by zero"):
            trainer.train()
    assert checkpoint_folders(tmp_path)[-1].name == "checkpoint-0"
    finish(tmp_path, prompts, whole)


FAULTS = {
    "raises": raises,
    "returns nonsense": lambda values: ["high", *values[1:]],
    "returns too few": lambda values: values[1:],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_completions_that_a_reward_failed_on_are_judged_and_not_drawn_again(tmp_path, prompts, whole, fault):
    """A generation takes minutes on a GPU, and rewards fail most often when they are new."""
    fail(tmp_path, prompts, FAULTS[fault])
    kept = json.loads((tmp_path / ROLLOUT).read_text())["content"]
    assert set(kept) == {"step", "settings", "groups"} and kept["step"] == 2
    judged = []

    def toy_reward(prompts, completions, completion_ids, **_):
        judged.extend(completion_ids)
        return globals()["toy_reward"](prompts, completions)

    trainer = trainer_in(tmp_path, prompts, reward=toy_reward, save_steps=100)
    trainer.engine.generate = lambda *_, **__: pytest.fail("the completions were drawn again")
    trainer.train(resume_from_checkpoint=True)
    drawn = [completion["token_ids"] for group in kept["groups"] for completion in group["completions"]]
    assert judged == drawn
    finish(tmp_path, prompts, whole)


def test_damaged_draws_are_drawn_again(tmp_path, prompts, whole, capsys):
    """The seed of the step is the same, and so are the completions."""
    fail(tmp_path, prompts)
    text = (tmp_path / ROLLOUT).read_text()
    (tmp_path / ROLLOUT).write_text(text[: len(text) // 2])
    finish(tmp_path, prompts, whole)
    assert capsys.readouterr().out.count("the completions of step 3 are drawn and judged again") == 1


def test_draws_of_other_settings_are_not_judged(tmp_path, prompts):
    """They would be other completions."""
    fail(tmp_path, prompts)
    trainer = trainer_in(tmp_path, prompts, save_steps=100)
    settings = trainer.settings()
    assert len(load_draws(tmp_path, 2, settings)) == 2
    assert load_draws(tmp_path, 2, settings | {"temperature": 0.5}) is None
    assert load_draws(tmp_path, 1, settings) is None
    assert load_rollout(tmp_path, 2, settings) is None


# --- what a resume notices ---


def test_resuming_with_other_answers_is_refused(tmp_path, prompts):
    """The same prompts with other answers are another task, and nothing said so."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    other = prompts.remove_columns("answer").add_column("answer", [f"{row}" for row in range(len(prompts))])
    with pytest.raises(UserError, match=r"written with answers=.* the other columns of train_dataset \(the answers\)"):
        trainer_in(tmp_path, other).train(resume_from_checkpoint=True)


def test_other_prompts_are_named_in_words(tmp_path, prompts):
    """Two digests beside each other told nobody what had changed."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    with pytest.raises(UserError, match="the prompts of train_dataset are not the same any more") as caught:
        trainer_in(tmp_path, prompts.select(range(11, -1, -1))).train(resume_from_checkpoint=True)
    assert "written with prompts=" in str(caught.value)


NUMERICS = {"threads": 1, "micro_batch": 8, "rewards": {"f": "a", "g": "b"}}
NUMERICS_CASES = {
    "nothing": ({}, []),
    "all": (
        {"threads": 2, "micro_batch": 4},
        ["This run has 2 threads and micro-batches of 4 completions, checkpoint-7 was written with 1 and 8: the last "
         "bits of its results may differ."],
    ),
    "threads": (
        {"threads": 2},
        ["This run has 2 threads, checkpoint-7 was written with 1: the last bits of its results may differ."],
    ),
    "one": (
        {"micro_batch": 1},
        ["This run has micro-batches of 1 completion, checkpoint-7 was written with 8: the last bits of its results "
         "may differ."],
    ),
    "a reward": (
        {"rewards": {"f": "a", "g": "other"}},
        ["Reward 'g' is not the function that paid up to checkpoint-7: later steps are paid by the new one."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NUMERICS_CASES)
def test_what_may_differ_is_one_sentence_each(case):
    """Two threads sum in another order than one: the resumed run was said to end in the same bytes, and did not."""
    changes, sentences = NUMERICS_CASES[case]
    assert numerics_notes(NUMERICS, NUMERICS | changes, "checkpoint-7") == sentences
    assert numerics_notes({}, NUMERICS | changes, "checkpoint-7") == []
    assert numerics_notes(NUMERICS, {}, "checkpoint-7") == []


def test_a_resumed_run_says_what_differs(tmp_path, prompts, capsys):
    """It goes on: a mended reward is a reason to resume."""
    first = trainer_in(tmp_path, prompts, max_steps=1)
    first.numerics = lambda: {"threads": 7, "micro_batch": 4, "rewards": {"toy_reward": "old"}}
    first.train()
    second = trainer_in(tmp_path, prompts, max_steps=2)
    second.numerics = lambda: {"threads": 1, "micro_batch": 4, "rewards": {"toy_reward": "new"}}
    assert second.train(resume_from_checkpoint=True).global_step == 2
    said = capsys.readouterr().out
    assert "This run has 1 thread, checkpoint-1 was written with 7: the last bits" in said
    assert "Reward 'toy_reward' is not the function that paid up to checkpoint-1" in said
    third = trainer_in(tmp_path, prompts, max_steps=2)
    third.numerics = second.numerics
    third.train(resume_from_checkpoint=True)
    assert "checkpoint-2" not in capsys.readouterr().out


def test_a_checkpoint_of_an_older_version_is_gone_on_with(tmp_path, prompts, capsys):
    """It knows nothing of answers and numerics, and nothing in it says that they are others."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    folder = tmp_path / "checkpoint-1"
    state = json.loads((folder / "trainer_state.json").read_text())
    del state["numerics"]
    state["settings"].pop("answers", None)
    (folder / "trainer_state.json").write_text(json.dumps(state))
    digests = json.loads((folder / "digests.json").read_text())
    digests["trainer_state.json"] = hashlib.sha256((folder / "trainer_state.json").read_bytes()).hexdigest()
    (folder / "digests.json").write_text(json.dumps(digests))
    assert trainer_in(tmp_path, prompts, max_steps=2).train(resume_from_checkpoint=True).global_step == 2
    assert "checkpoint-1" not in capsys.readouterr().out


def test_a_model_saved_into_the_folder_of_its_run_leaves_the_run_there(tmp_path, prompts):
    """`trainer.save_model(args.output_dir)` ends the scripts of TRL, and it took checkpoints and metrics away."""
    trainer = trainer_in(tmp_path, prompts, max_steps=1)
    trainer.train()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for folder in (tmp_path, None):
        trainer.save_model(folder)
    added = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert before <= set(tmp_path.rglob("*")) and {path.name for path in added} == ADAPTER_FILES
    assert not list(tmp_path.glob(".*.part"))
    again = trainer_in(tmp_path, prompts, max_steps=2)
    assert again.train(resume_from_checkpoint=True).global_step == 2
    trainer.save_model(tmp_path / "adapter")
    trainer.save_model(tmp_path / "adapter")
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == ADAPTER_FILES
