"""The best checkpoint: which one it is, that it stays, and that whoever reads its adapter is told."""

import json

import pytest

from helpers import UserError, read_metrics
from helpers.evaluation import selection_warning, trained_on
from helpers.grpo.backup import back_up, restore_backup
from helpers.grpo.best import best_first, choice_of
from helpers.grpo.checkpoint import load_best
from helpers.grpo.folders import checkpoint_folders, drop_old_checkpoints
from tests.grpo.small import adapter, same, toy_reward, trainer_in


def write_states(parent, values, metric="reward", greater_is_better=True):
    """Checkpoint folders with a state each, and no more. values: of the metric, by step from 0 on."""
    count = 0
    for step, value in enumerate(values):
        count += value is not None
        kept = {"metric": metric, "greater_is_better": greater_is_better, "value": value, "step": step}
        folder = parent / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"step": step, "monitor": kept | {"checkpoints": count}}))
    return checkpoint_folders(parent)


@pytest.mark.parametrize(
    ("values", "greater_is_better", "best"),
    [
        ([None, 0.1, 0.3, 0.2], True, "checkpoint-2"),
        ([None, 0.1, 0.3, 0.2], False, "checkpoint-1"),
        ([None, 0.3, 0.3, 0.2], True, "checkpoint-1"),
        ([None, 0.1, None, None], True, "checkpoint-1"),
    ],
)
def test_the_best_is_by_value_and_of_equal_ones_the_first(tmp_path, values, greater_is_better, best):
    """As in transformers, where a later one must be better to take its place."""
    folders = write_states(tmp_path, values, greater_is_better=greater_is_better)
    assert best_first(folders)[0].name == best
    assert choice_of(folders)["checkpoints"] == sum(value is not None for value in values)


def test_the_best_is_never_dropped(tmp_path):
    """Two checkpoints are kept; the best of a long run is older than both."""
    write_states(tmp_path, [None, 0.9, 0.2, 0.3, 0.4])
    drop_old_checkpoints(tmp_path, keep=2)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-1", "checkpoint-3", "checkpoint-4"]
    assert choice_of(checkpoint_folders(tmp_path))["checkpoints"] == 4


@pytest.mark.parametrize(("good_step", "kept"), [(None, [3, 4]), (2, [2, 3, 4]), (3, [3, 4]), (9, [3, 4])])
def test_the_last_good_checkpoint_is_not_dropped(tmp_path, good_step, kept):
    """While an alarm builds up, the two newest are the ones in doubt."""
    write_states(tmp_path, [None] * 5)
    drop_old_checkpoints(tmp_path, 2, good_step)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == [f"checkpoint-{step}" for step in kept]


def test_of_steps_without_a_checkpoint_the_one_before_is_the_last_good(tmp_path):
    """With rare checkpoints the last good step has none of its own."""
    for step in (0, 10, 20, 30):
        (tmp_path / f"checkpoint-{step}").mkdir()
    drop_old_checkpoints(tmp_path, 1, good_step=17)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-10", "checkpoint-30"]


def test_a_run_keeps_the_checkpoint_before_an_alarm_began(tmp_path, prompts, monkeypatch):
    """The advice to go back to it was of no use: it was dropped before the alarm stopped the run."""
    doubts = "helpers.grpo.session.last_good_step"
    monkeypatch.setattr(doubts, lambda history: 1 if len(history) >= 3 else None)
    settings = {"save_total_limit": 2, "backup_dir": str(tmp_path / "backup")}
    trainer = trainer_in(tmp_path / "run", prompts, max_steps=4, **settings)
    trainer.train()
    assert trainer.session.last_good_checkpoint() == tmp_path / "run" / "checkpoint-1"
    resumed = trainer_in(tmp_path / "run", prompts, max_steps=5, **settings)
    resumed.train(resume_from_checkpoint=True)
    names = ["checkpoint-1", "checkpoint-4", "checkpoint-5"]
    for parent in (tmp_path / "run", tmp_path / "backup"):
        assert [folder.name for folder in checkpoint_folders(parent)] == names
    monkeypatch.setattr(doubts, lambda history: None)
    assert resumed.session.last_good_checkpoint() is None


def test_states_that_cannot_be_read_are_no_candidates(tmp_path):
    folders = write_states(tmp_path, [None, 0.9, 0.2])
    for content in ("", "[]", '{"monitor": 3}', '{"monitor": {"metric": "reward"}}', "{}"):
        (folders[1] / "trainer_state.json").write_text(content)
        assert [folder.name for folder in best_first(folders)] == ["checkpoint-2"]


def test_a_run_without_a_metric_chooses_nothing(tmp_path, prompts):
    trainer_in(tmp_path, prompts, max_steps=1).train()
    assert choice_of(checkpoint_folders(tmp_path)) is None
    assert not (tmp_path / "best_checkpoint.json").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory, prompts):
    """A run of four steps that keeps its last checkpoint and its best one, its trainer, and its rewards by step."""
    parent = tmp_path_factory.mktemp("best")
    trainer = trainer_in(
        parent / "run", prompts, max_steps=4, save_total_limit=1, backup_dir=str(parent / "backup"),
        metric_for_best_model="entropy", greater_is_better=False,
    )  # fmt: skip
    trainer.train()
    values = {row["step"]: row["entropy"] for row in read_metrics(parent / "run" / "metrics.jsonl")}
    return parent / "run", trainer, values


def test_a_run_keeps_and_records_its_best_checkpoint(run):
    """The number of checkpoints it was chosen among tells how much of its value is luck."""
    folder, _, values = run
    best = min(values, key=values.get)
    expected = {"metric": "entropy", "greater_is_better": False, "value": values[best], "step": best, "checkpoints": 4}
    assert json.loads((folder / "best_checkpoint.json").read_text()) == expected
    for parent in (folder, folder.parent / "backup"):
        assert {kept.name for kept in checkpoint_folders(parent)} == {f"checkpoint-{best}", "checkpoint-4"}
    assert choice_of(checkpoint_folders(folder)) == expected


def test_the_best_adapter_is_loaded_and_a_damaged_one_is_not(run, tmp_path, prompts, capsys):
    """A damaged best would be an adapter that nobody trained."""
    folder, trainer, values = run
    best = min(values, key=values.get)
    other = trainer_in(tmp_path / "any", prompts)
    assert load_best(folder, other.model)["step"] == best
    resumed = trainer_in(tmp_path / "one", prompts, metric_for_best_model="entropy", max_steps=best)
    resumed.train()
    assert same(adapter(other), adapter(resumed))

    back_up(folder / f"checkpoint-{best}", tmp_path / "copy", keep=9)
    back_up(folder / "checkpoint-4", tmp_path / "copy", keep=9)
    (tmp_path / "copy" / f"checkpoint-{best}" / "optimizer.pt").write_text("")
    if best != 4:
        assert load_best(tmp_path / "copy", other.model)["step"] == 4
        assert f"checkpoint-{best} is damaged (optimizer.pt" in capsys.readouterr().out
        assert same(adapter(other), adapter(trainer))
    (tmp_path / "copy" / "checkpoint-4" / "optimizer.pt").write_text("")
    with pytest.raises(UserError, match="set load_best_model_at_end=False to keep"):
        load_best(tmp_path / "copy", other.model)


def test_the_best_checkpoint_is_restored_with_the_newest(run, tmp_path):
    """Else a run that lost its disk would choose among what came after."""
    folder, _, _ = run
    restore_backup(folder.parent / "backup" / "checkpoint-4", tmp_path)
    assert choice_of(checkpoint_folders(tmp_path)) == choice_of(checkpoint_folders(folder))


def test_a_metric_that_is_not_logged_is_one_sentence(tmp_path, prompts):
    """At the first step, not at the end of the night."""
    trainer = trainer_in(tmp_path, prompts, metric_for_best_model="rewrd")
    with pytest.raises(UserError, match=r"'rewrd' is not among the metrics of step 1 \(did you mean 'reward'\?\)"):
        trainer.train()
    assert trainer.state.global_step == 1
    trainer_in(tmp_path, prompts, max_steps=1, metric_for_best_model="reward").train(resume_from_checkpoint=True)
    assert choice_of(checkpoint_folders(tmp_path))["metric"] == "reward"


def test_evaluation_warns_of_a_choice():
    """The best of six values is better than its checkpoint; the prompts of the choice cannot show that."""
    origin = {"step": 20, "settings": {"reward_funcs": ["works"], "learning_rate": 1e-3}}
    assert selection_warning(origin) == "" and trained_on(origin) == "20 steps, learning rate 0.001, on works"
    choice = {"metric": "reward", "greater_is_better": True, "value": 0.5, "step": 20, "checkpoints": 6}
    words = "step 20 was chosen of 6 checkpoints by reward on training prompts: its value there is partly luck"
    assert selection_warning(origin | {"chosen_by": choice}) == words
    assert trained_on(origin | {"chosen_by": choice}).endswith(f"; {words}")
    on_monitor = selection_warning(origin | {"chosen_by": choice | {"metric": "eval_reward"}})
    assert on_monitor.endswith("by eval_reward, so the prompts of eval_dataset must not decide")
    assert selection_warning(origin | {"chosen_by": choice | {"checkpoints": 1}}) == ""


class Rewarding:
    """A reward of 1 in the second step and of 0 in all others."""

    __name__ = "rewarding"

    def __call__(self, prompts, completions, trainer_state, **_):
        return [float(trainer_state.global_step == 1)] * len(completions)


def test_a_run_may_end_with_its_best_checkpoint_and_go_on(tmp_path, prompts):
    """The adapter that is saved is that of the best step and says so; a resumed run goes on from the last step."""
    settings = {"metric_for_best_model": "reward", "load_best_model_at_end": True, "beta": 0.1}
    whole = trainer_in(tmp_path / "whole", prompts, reward=[toy_reward, Rewarding()], max_steps=4, **settings)
    whole.train()
    first = trainer_in(tmp_path / "cut", prompts, reward=[toy_reward, Rewarding()], max_steps=3, **settings)
    first.train()
    assert first.chosen["step"] == 2 and first.chosen["checkpoints"] == 3
    first.save_model(tmp_path / "adapter")
    saved = json.loads((tmp_path / "adapter" / "trainer_state.json").read_text())
    assert saved["step"] == 2 and saved["chosen_by"]["metric"] == "reward"
    best = tmp_path / "cut" / "checkpoint-2" / "adapter_model.safetensors"
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() == best.read_bytes()

    resumed = trainer_in(tmp_path / "cut", prompts, reward=[toy_reward, Rewarding()], max_steps=4, **settings)
    resumed.train(resume_from_checkpoint=True)
    last = [tmp_path / name / "checkpoint-4" / "adapter_model.safetensors" for name in ("whole", "cut")]
    assert last[0].read_bytes() == last[1].read_bytes()
    assert resumed.chosen == whole.chosen


def test_a_last_step_that_nobody_chose_is_not_called_chosen(tmp_path, prompts):
    """Whether it happens to be the best is luck, and no choice."""
    trainer = trainer_in(tmp_path / "run", prompts, max_steps=1, metric_for_best_model="reward")
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "trainer_state.json").read_text())["chosen_by"] is None
