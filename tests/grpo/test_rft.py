"""The baseline: the right answers of the model as it is, imitated."""

import json
import math

import pytest
import torch

from helpers import CustomTask, Grade, UserError
from helpers.grpo.logprobs import policy_logprobs
from helpers.grpo.loop import add_gradient
from helpers.grpo.rft import draw_correct, imitation_batch, train_rft
from tests.grpo.small import adapter, same, toy_reward, trainer_in

ROWS = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(6) for b in range(6)]


class SomeRight(CustomTask):
    """A task that finds some of the answers right, by their tokens alone."""

    share = 0.5

    def grade(self, rows, completions, rewards=None):
        rights = [sum(completion.token_ids) % 100 < 100 * self.share for completion in completions]
        return [Grade(float(right), right, "correct" if right else "wrong") for right in rights]


def trainer_for(folder, share, **settings):
    """share: of the answers that are right."""
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    task = SomeRight(path, [toy_reward])
    task.share = share
    return trainer_in(folder / "run", task.dataset("train"), task.reward_funcs, task=task, **settings)


def test_correct_answers_become_likelier(tmp_path):
    trainer = trainer_for(tmp_path, 0.4, max_steps=4)
    before = adapter(trainer)
    kept, drawn = draw_correct(trainer, trainer.args)
    assert drawn == 4 * 8 and 4 < len(kept) < 28

    @torch.no_grad()
    def mean_logprob():
        logprobs, _, mask = policy_logprobs(trainer.model, kept)
        return float((logprobs * mask).sum() / mask.sum())

    first = mean_logprob()
    result = train_rft(trainer)
    assert (result.drawn, result.kept, result.steps) == (drawn, len(kept), 4)
    assert mean_logprob() > first + 0.01 and not same(adapter(trainer), before)


def test_the_gradient_is_that_of_the_mean_log_probability(tmp_path):
    trainer = trainer_for(tmp_path, 0.4, loss_type="dapo")
    kept, _ = draw_correct(trainer, trainer.args)
    kept = kept[:8]
    weights = [weight for weight in trainer.model.parameters() if weight.requires_grad]
    add_gradient(trainer.model, imitation_batch(kept, trainer.args), trainer.args)
    found = [weight.grad.clone() for weight in weights]
    trainer.model.zero_grad()
    trainer.model.train()
    logprobs, _, mask = policy_logprobs(trainer.model, kept)
    (-(logprobs * mask).sum() / mask.sum()).backward()
    for ours, weight in zip(found, weights, strict=True):
        assert torch.allclose(ours, weight.grad, atol=1e-6, rtol=1e-4)


def test_what_was_trained_says_how(tmp_path):
    trainer = trainer_for(tmp_path, 0.5, max_steps=1)
    train_rft(trainer)
    trainer.save_model(tmp_path / "adapter")
    state = json.loads((tmp_path / "adapter" / "trainer_state.json").read_text())
    assert state["method"] == "rejection sampling" and state["step"] == 1 and state["adapter_norm"] > 0


def test_nothing_to_imitate_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="None of 24 completions is correct"):
        train_rft(trainer_for(tmp_path, 0.0))


def test_without_a_task_there_are_no_right_answers(tmp_path, prompts):
    with pytest.raises(UserError, match="give GRPOTrainer a task"):
        train_rft(trainer_in(tmp_path, prompts))


def test_every_token_of_a_completion_counts(tmp_path):
    """Each with an advantage of 1, and against no older policy."""
    trainer = trainer_for(tmp_path, 0.5)
    kept, _ = draw_correct(trainer, trainer.args)
    batch = imitation_batch(kept[:3], trainer.args)
    assert batch.tokens == [len(completion.token_ids) for completion in kept[:3]]
    assert math.isclose(float(batch.advantages.sum()), 3.0) and batch.old_logprobs is None
