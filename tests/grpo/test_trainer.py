import hashlib
import json

import pytest
import torch

from helpers import GRPOConfig, GRPOTrainer, UserError, add_lora, load_model, load_task, read_metrics, weights_digest
from helpers.grpo.checkpoint import checkpoint_folders
from helpers.grpo.losses import policy_loss
from helpers.runtime import PROFILES


def toy_reward(prompts, completions, **_):
    """A fixed pseudo-random number for each text: deterministic, and different within groups."""
    return [hashlib.sha256(c[0]["content"].encode() + c[0]["thinking"].encode()).digest()[0] / 255 for c in completions]


def constant_reward(prompts, completions, **_):
    return [0.1] * len(completions)


@pytest.fixture(scope="module")
def prompts():
    return load_task("matmul", "train", 12)


def trainer_in(folder, prompts, reward=toy_reward, dense="fp32", callbacks=None, **settings):
    torch.manual_seed(0)
    model, tokenizer = load_model(profile="tiny", dense=dense)
    model = add_lora(model, r=4, alpha=8)
    defaults = {
        "max_steps": 3,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 24,
    }
    config = GRPOConfig(str(folder), **{**defaults, **settings})
    return GRPOTrainer(model, reward, config, prompts, processing_class=tokenizer, callbacks=callbacks)


def adapter(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad}


def same(a, b):
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def timeless(rows):
    return [{key: value for key, value in row.items() if "time" not in key} for row in rows]


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


def test_base_weights_never_change_and_the_adapter_does(tmp_path, prompts):
    """With NF4 layers, after rollouts and optimizer steps: rollout-then-backward must work, too."""
    trainer = trainer_in(tmp_path, prompts, dense="nf4", max_steps=2)
    digest, before = weights_digest(trainer.model), adapter(trainer)
    trainer.train()
    assert weights_digest(trainer.model) == digest
    moved = [name for name, weight in adapter(trainer).items() if not torch.equal(weight, before[name])]
    assert any("self_attn" in name for name in moved) and any("experts" in name for name in moved)


def gradients(trainer, generation):
    trainer.optimizer.zero_grad()
    trainer.accumulate_gradients(generation.completions, trainer.advantages(generation))
    return torch.cat([weight.grad.flatten() for weight in trainer.weights])


@pytest.mark.parametrize("loss_type", ["dapo", "dr_grpo"])
def test_gradient_does_not_depend_on_the_cut(tmp_path, prompts, loss_type):
    """Normalising each micro-batch by itself is the usual mistake; the long and the short weigh wrongly."""
    trainer = trainer_in(tmp_path, prompts, loss_type=loss_type, max_completion_length=110)
    generation = trainer.generate(0)
    assert len({len(c.token_ids) for c in generation.completions}) > 1
    results = []
    for size, steps in ((8, 1), (4, 2), (1, 8)):
        args = GRPOConfig(
            **{**trainer.args.to_dict(), "per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        )
        trainer.args = args
        results.append(gradients(trainer, generation))
    for other in results[1:]:
        assert (other - results[0]).norm() < 1e-5 * results[0].norm()


def test_gradient_against_one_completion_at_a_time(tmp_path, prompts):
    """Stock forward, one row, no padding, no tiles: the formula with nothing of ours but the loss."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=40)
    generation = trainer.generate(0)
    ours = gradients(trainer, generation)
    trainer.optimizer.zero_grad()
    tokens = sum(len(c.token_ids) for c in generation.completions)
    for completion, advantage in zip(generation.completions, trainer.advantages(generation)):
        ids = torch.tensor([completion.prompt_ids + completion.token_ids])
        start = len(completion.prompt_ids)
        scores = trainer.model(ids).logits[0, start - 1 : -1].log_softmax(-1).gather(1, ids[0, start:, None])[:, 0]
        (-(scores - scores.detach()).exp() * advantage / tokens).sum().backward()
    theirs = torch.cat([weight.grad.flatten() for weight in trainer.weights])
    assert (ours - theirs).norm() < 1e-3 * theirs.norm() and theirs.norm() > 0


def test_equal_rewards_give_exactly_no_gradient(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, reward=constant_reward)
    assert not gradients(trainer, trainer.generate(0)).any()


def test_training_raises_what_is_rewarded(tmp_path, prompts):
    """The loop as a whole points uphill: the drawn tokens of better completions become likelier."""
    trainer = trainer_in(tmp_path, prompts)
    generation = trainer.generate(0)
    advantages = trainer.advantages(generation)

    def objective():
        from helpers.grpo.logprobs import policy_logprobs

        with torch.no_grad():
            logprobs, _, mask = policy_logprobs(trainer.model, generation.completions)
        return float((logprobs * mask * advantages[:, None]).sum())

    before = objective()
    trainer.update(generation)
    assert objective() > before


def test_truncated_completions_can_be_left_out(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, mask_truncated_completions=True, max_completion_length=8)
    generation = trainer.generate(0)
    assert all(c.finish_reason == "length" for c in generation.completions)
    assert not gradients(trainer, generation).any()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (lambda n: [float("nan")] * n, "returned nan: return a finite number"),
        (lambda n: [float("inf")] * n, "returned inf"),
        (lambda n: [1.0] * (n - 1), "returned 7 values: return a list of 8"),
        (lambda n: None, "returned None: return a list of 8"),
        (lambda n: ["high"] * n, "returned 'high': return a finite number"),
    ],
)
def test_a_bad_reward_is_one_sentence(tmp_path, prompts, values, words):
    def odd(prompts, completions, **_):
        return values(len(completions))

    with pytest.raises(UserError, match=words) as caught:
        trainer_in(tmp_path, prompts, reward=odd).train()
    assert "'odd'" in str(caught.value)


def test_rewards_are_called_as_trl_calls_them(tmp_path, prompts):
    seen = {}

    def spy(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        columns["log_metric"]("spied", 1.0)
        return [None, *range(len(completions) - 1)]

    trainer = trainer_in(tmp_path, prompts, reward=[spy, toy_reward], max_steps=1)
    trainer.train()
    assert {"answer", "task", "cluster", "completion_ids", "finish_reasons", "trainer_state"} <= set(seen)
    assert len(seen["prompts"]) == len(seen["completions"]) == len(seen["answer"]) == 8
    assert seen["prompts"][0] == seen["prompts"][3] != seen["prompts"][4]
    row = read_metrics(tmp_path / "metrics.jsonl")[0]
    assert row["spied"] == 1.0 and row["rewards/spy/mean"] == pytest.approx(3.0)
    assert len(trainer.last_completions) == 8


def test_checkpoints_of_other_settings_are_refused(tmp_path, prompts):
    """Going on with another learning rate under the same name would make the metrics a lie."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    with pytest.raises(UserError, match=r"learning_rate=0\.001 and this run has 0\.01"):
        trainer_in(tmp_path, prompts, learning_rate=0.01).train(resume_from_checkpoint=True)


def test_a_damaged_checkpoint_is_one_sentence(tmp_path, prompts):
    trainer_in(tmp_path, prompts, max_steps=1).train()
    (checkpoint_folders(tmp_path)[-1] / "trainer_state.json").write_text("{")
    with pytest.raises(UserError, match="delete it, to go on from the one before"):
        trainer_in(tmp_path, prompts).train(resume_from_checkpoint=True)


def test_starting_anew_over_a_run_is_refused(tmp_path, prompts):
    """It would have mixed two runs: the new checkpoints are the lowest numbers, and dropped first."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    with pytest.raises(UserError, match="holds checkpoints of an earlier run"):
        trainer_in(tmp_path, prompts).train()


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
    assert state.global_step == 1 and "goes on from the last checkpoint" in capsys.readouterr().out


def test_saved_adapter_loads_and_says_the_same(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, max_steps=1)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    loaded, _ = load_model(profile="tiny", dense="fp32", adapter=tmp_path / "adapter")
    ids = torch.arange(30)[None]
    with torch.no_grad():
        trainer.model.eval()
        torch.testing.assert_close(loaded(ids).logits, trainer.model(ids).logits)
        with loaded.disable_adapter():
            assert not torch.equal(loaded(ids).logits, trainer.model(ids).logits)


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_damaged_or_foreign_adapter_is_one_sentence(tmp_path, prompts, file):
    trainer_in(tmp_path, prompts).save_model(tmp_path / "adapter")
    (tmp_path / "adapter" / file).write_text("{")
    with pytest.raises(UserError, match="cannot be put on this model") as caught:
        load_model(profile="tiny", dense="fp32", adapter=tmp_path / "adapter")
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("change", ["alpha", "missing"])
def test_resuming_what_is_not_the_same_run_is_refused(tmp_path, prompts, change):
    trainer_in(tmp_path, prompts, max_steps=1).train()
    other = trainer_in(tmp_path, prompts)
    if change == "alpha":
        other.model.active_peft_config.lora_alpha = 99
    where = True if change == "alpha" else tmp_path / "checkpoint-9"
    with pytest.raises(
        UserError, match="lora_alpha=8 and this run has 99" if change == "alpha" else "no checkpoint folder"
    ):
        other.train(resume_from_checkpoint=where)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_type": "grpo"}, "loss_type must be one of dapo, dr_grpo"),
        ({"num_generations": 1}, "at least 2"),
        (
            {"num_generations": 3, "per_device_train_batch_size": 8},
            "3 does not: take 2, 4, 8, or change",
        ),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"temperature": 0}, "temperature must be positive"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(tmp_path, settings, words):
    with pytest.raises(UserError, match=words):
        GRPOConfig(str(tmp_path), **settings)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_makes_a_config(name):
    profile = PROFILES[name]
    config = GRPOConfig.for_profile(profile, "runs/x", max_steps=None, num_generations=None, seed=3)
    assert (config.max_steps, config.num_generations, config.seed) == (profile.max_steps, profile.num_generations, 3)
    assert config.generation_batch_size == profile.generation_batch_size


def test_policy_loss_is_what_the_trainer_minimises(tmp_path, prompts):
    """The logged loss at ratio one is minus the token-weighted mean advantage."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=60)
    generation = trainer.generate(0)
    advantages = trainer.advantages(generation)
    lengths = torch.tensor([len(c.token_ids) for c in generation.completions], dtype=torch.float32)
    logged = trainer.update(generation)["loss"]
    assert logged == pytest.approx(-(advantages * lengths).sum().item() / lengths.sum().item(), abs=1e-4)
    flat = torch.zeros(len(lengths), int(lengths.max()))
    mask = (torch.arange(flat.shape[1]) < lengths[:, None]).float()
    loss, _ = policy_loss(flat, flat, advantages, mask, normalizer=lengths.sum())
    assert logged == pytest.approx(loss.item(), abs=1e-4)
