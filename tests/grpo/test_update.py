"""What an optimizer step learns from: ratios, references, several steps on one generation."""

import math
from dataclasses import replace

import pytest
import torch

from helpers import UserError, read_metrics
from helpers.grpo.batch import Generation, into_groups
from helpers.grpo.logprobs import policy_logprobs
from helpers.grpo.loop import places_of_step, score_completions
from helpers.rollout.sampling import SamplingParams
from tests.grpo.small import adapter, same, timeless, trainer_in


def test_on_policy_the_ratio_is_exactly_one(tmp_path, prompts):
    """Also in 16 bits, where sampler and trainer differ: what is left of that belongs into the importance weights."""
    trainer = trainer_in(tmp_path, prompts, dense="nf4", max_completion_length=40)
    generation = trainer.generate(0)
    for completion in generation.completions:
        completion.logprobs = [value - 0.3 for value in completion.logprobs]  # a sampler that is far off
    metrics = trainer.step(trainer.backward(generation))
    assert metrics["ratio/min"] == metrics["ratio/max"] == 1
    assert metrics["clip_ratio/region_mean"] == 0
    assert metrics["sampling/sampling_logp_difference/mean"] == pytest.approx(0.3, abs=1e-3)
    assert metrics["sampling/importance_sampling_ratio/mean"] == pytest.approx(2.718281828**0.3, rel=1e-3)


def test_importance_weights_scale_the_gradient(tmp_path, prompts):
    """A sampler that gives every token half of its probability: each counts twice, up to the bound."""
    found = {}
    for clip_max in (3.0, 1.5):
        trainer = trainer_in(tmp_path / str(clip_max), prompts, importance_sampling_clip_max=clip_max)
        generation = trainer.generate(0)
        trainer.backward(generation)
        plain = torch.cat([weight.grad.flatten() for weight in trainer.weights])
        for completion in generation.completions:
            completion.logprobs = [value - 0.6931472 for value in completion.logprobs]
        statistics = trainer.backward(generation)
        weighted = torch.cat([weight.grad.flatten() for weight in trainer.weights])
        torch.testing.assert_close(weighted, min(2.0, clip_max) * plain, rtol=1e-3, atol=1e-7)
        found[clip_max] = statistics.metrics()
    assert found[3.0]["sampling/kept_ratio"] == 1 and found[1.5]["sampling/kept_ratio"] == 0
    assert found[3.0]["sampling/effective_sample_size"] == pytest.approx(1, abs=1e-6)


def test_without_correction_no_weight_is_applied(tmp_path, prompts):
    """And none is logged."""
    trainer = trainer_in(tmp_path, prompts, importance_sampling_correction=False)
    metrics = trainer.step(trainer.backward(trainer.generate(0)))
    assert "sampling/effective_sample_size" not in metrics and "sampling/sampling_logp_difference/mean" in metrics


def test_several_steps_on_one_generation(tmp_path, prompts):
    """Twelve steps on two generations of three parts, gone through twice: each part has its own completions, and the
    old log-probabilities stay those from before the first step."""
    settings = {"steps_per_generation": 6, "num_iterations": 2, "max_steps": 12, "learning_rate": 3e-3}
    trainer = trainer_in(tmp_path, prompts, **settings)
    drawn_at = []
    generate = trainer.generate

    def watched(step):
        drawn_at.append(step)
        return generate(step)

    trainer.generate = watched
    parts = []
    for step in trainer.steps():
        before_first = [value for row in step.generation.old_logprobs if row for value in row]
        assert len(step.generation.completions) == 24
        parts.append(tuple(places_of_step(step.step - 1, trainer.args)))
        assert before_first
    assert drawn_at == [0, 6]
    assert parts[:3] == parts[3:6] and sorted(sum(parts[:3], ())) == list(range(24))
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[0]["ratio/max"] == rows[6]["ratio/max"] == 1  # before the first step on a generation
    assert all(row["ratio/max"] != 1 for number, row in enumerate(rows) if number not in (0, 6))


def test_old_logprobs_are_those_of_the_policy_that_drew(tmp_path, prompts):
    """Recorded in passing by the first step, computed beforehand for the others."""
    trainer = trainer_in(tmp_path, prompts, steps_per_generation=4, num_iterations=2, max_completion_length=40)
    generation = trainer.generate(0)
    with torch.no_grad():
        wanted, _, mask = policy_logprobs(trainer.model, generation.completions)
    trainer.step(trainer.backward(generation))
    for row, completion, counted, found in zip(wanted, generation.completions, mask, generation.old_logprobs):
        assert len(found) == len(completion.token_ids) == int(counted.sum())
        torch.testing.assert_close(torch.tensor(found), row[: len(found)], atol=2e-5, rtol=0)


@pytest.mark.parametrize("settings", [{"num_iterations": 2}, {"steps_per_generation": 4}, {"beta": 0.1}])
def test_a_run_cut_within_a_generation_ends_in_the_same_bytes(tmp_path, prompts, settings):
    """The old log-probabilities cannot be computed again: the weights have moved."""

    class StopAfterTheFirst:
        def on_log(self, *_, **__):
            raise SystemExit

    settings = {**settings, "max_steps": 4, "learning_rate": 3e-3}
    whole = trainer_in(tmp_path / "whole", prompts, **settings)
    whole.train()
    with pytest.raises(SystemExit):
        trainer_in(tmp_path / "cut", prompts, callbacks=[StopAfterTheFirst()], **settings).train()
    resumed = trainer_in(tmp_path / "cut", prompts, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert same(adapter(resumed), adapter(whole))
    rows = [timeless(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("whole", "cut")]
    assert rows[0] == rows[1]


def test_the_reference_is_the_model_without_its_adapter(tmp_path, prompts):
    """At the first step the KL divergence is exactly 0; later it is not, and it pulls the policy back."""
    settings = {"max_steps": 4, "learning_rate": 3e-3, "max_completion_length": 80}
    free = trainer_in(tmp_path / "free", prompts, beta=1e-9, **settings)
    free.train()
    held = trainer_in(tmp_path / "held", prompts, beta=100.0, **settings)
    held.train()
    of_free = [row["kl"] for row in read_metrics(tmp_path / "free" / "metrics.jsonl")]
    of_held = [row["kl"] for row in read_metrics(tmp_path / "held" / "metrics.jsonl")]
    assert of_free[0] == of_held[0] == 0
    assert 0 < of_held[-1] < 0.5 * of_free[-1]


def test_sampler_and_trainer_are_compared_on_the_policy_that_drew(tmp_path, prompts):
    """Compared with the policy as it is now, every step that learns looks as if the two drifted apart."""
    settings = {"num_iterations": 3, "max_steps": 3, "learning_rate": 2e-2}
    trainer_in(tmp_path, prompts, **settings).train()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert rows[2]["ratio/max"] > 1.1
    assert all(row["sampling/sampling_logp_difference/max"] < 1e-3 for row in rows)
    assert [row["time/generate"] > 0 for row in rows] == [True, False, False]


def test_a_generation_survives_json(tmp_path, prompts):
    """With all that optimizer steps need of it."""
    trainer = trainer_in(tmp_path, prompts, steps_per_generation=4, beta=0.1)
    generation = trainer.generate(0)
    again = Generation.from_dict(generation.to_dict())
    assert again.old_logprobs == generation.old_logprobs and again.ref_logprobs == generation.ref_logprobs
    assert again.completions == generation.completions


def test_the_loop_in_the_open(tmp_path, prompts):
    """`for step in trainer.steps()` does what `train` does, and leaving it loses nothing."""
    trained = trainer_in(tmp_path / "trained", prompts)
    trained.train()
    looped = trainer_in(tmp_path / "looped", prompts, save_steps=10)
    for step in looped.steps():
        assert step.metrics["step"] == step.step and len(step.completions) == len(step.generation.advantages) == 8
        if step.step == 2:
            break
    again = trainer_in(tmp_path / "looped", prompts, save_steps=10)
    assert [step.step for step in again.steps(resume_from_checkpoint=True)] == [3]
    assert same(adapter(again), adapter(trained))


def test_eight_bit_moments_resume_to_the_same_bytes(tmp_path, prompts):
    """bitsandbytes keeps its state in a form of its own."""
    settings = {"optim": "adamw_8bit", "max_steps": 3}
    whole = trainer_in(tmp_path / "whole", prompts, **settings)
    whole.train()
    first = trainer_in(tmp_path / "cut", prompts, **settings)
    for step in first.steps():
        if step.step == 2:
            break
    resumed = trainer_in(tmp_path / "cut", prompts, **settings)
    resumed.train(resume_from_checkpoint=True)
    assert same(adapter(resumed), adapter(whole))
    assert type(whole.optimizer).__name__ == "AdamW8bit"


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"lr_scheduler_type": "constant"}, [1, 1, 1, 1]),
        ({"lr_scheduler_type": "linear"}, [1, 0.75, 0.5, 0.25]),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_ratio": 0.5}, [0, 0.5, 1, 1]),
        ({"lr_scheduler_type": "cosine"}, [1, 0.8536, 0.5, 0.1464]),
        (
            {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
            [1, 0.8682, 0.55, 0.2318],
        ),
    ],
)
def test_schedules(tmp_path, prompts, settings, rates):
    """In optimizer steps, warm-up included."""
    trainer = trainer_in(tmp_path, prompts, max_steps=4, learning_rate=1.0, **settings)
    found = []
    for _ in range(4):
        found.append(trainer.scheduler.get_last_lr()[0])
        trainer.optimizer.step()
        trainer.scheduler.step()
    assert found == pytest.approx(rates, abs=1e-4)


def disturb_routers(trainer, size):
    """Let the trainer's routers choose otherwise, as other kernels would; not the sampler's."""
    generator = torch.Generator().manual_seed(0)

    def other_choice(router, inputs, output):
        logits, _, _ = output
        noise = size * torch.randn(logits.shape, generator=generator)
        _, experts = (logits + noise).topk(router.top_k, dim=-1)
        return logits, logits.gather(1, experts).softmax(-1), experts

    layers = trainer.model.get_base_model().model.layers
    for layer in layers:
        layer.mlp.router.register_forward_hook(other_choice)


def test_replay_restores_what_noise_in_the_routers_took(tmp_path, prompts):
    """Without replay the flips are seen, and sampler and trainer are apart; with it they agree, ratio 1."""
    found = {}
    for mode in ("measure", "replay"):
        trainer = trainer_in(tmp_path / mode, prompts, router_replay=mode, max_completion_length=40)
        generation = trainer.generate(0)
        disturb_routers(trainer, size=5.0)
        found[mode] = trainer.step(trainer.backward(generation))
    assert found["measure"]["router/flip_rate"] > 0.02 and found["replay"]["router/flip_rate"] > 0.02
    ratios = "sampling/importance_sampling_ratio"
    assert found["measure"][f"{ratios}/max"] > 1.1
    assert found["replay"][f"{ratios}/max"] == pytest.approx(1, abs=1e-3)
    assert found["replay"][f"{ratios}/min"] == pytest.approx(1, abs=1e-3)


def test_nothing_flips_where_sampler_and_trainer_compute_alike(tmp_path, prompts):
    """And recording and replaying change no more of a run than rounding."""
    plain = trainer_in(tmp_path / "plain", prompts)
    plain.train()
    replayed = trainer_in(tmp_path / "replayed", prompts, router_replay="replay")
    replayed.train()
    rows = read_metrics(tmp_path / "replayed" / "metrics.jsonl")
    assert all(row["router/flip_rate"] < 1e-3 for row in rows)
    for name, weight in adapter(plain).items():
        torch.testing.assert_close(adapter(replayed)[name], weight, atol=1e-4, rtol=1e-3)


def test_an_engine_that_records_no_experts_is_one_sentence(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, router_replay="replay")
    other = trainer_in(tmp_path, prompts)
    trainer.engine = other.engine
    with pytest.raises(UserError, match="this engine does not record them: make it with record_experts=True"):
        trainer.generate(0)


def test_the_balancing_loss_is_added_and_does_not_depend_on_the_cut(tmp_path, prompts):
    """TRL takes 0.9 from the model's config, which drowns the policy gradient; here it is asked for."""
    trainer = trainer_in(tmp_path, prompts, router_aux_loss_coef=0.9, max_completion_length=60)
    generation = trainer.generate(0)
    gradients = []
    for halvings in (0, 12):
        trainer.micro_batching.halvings = halvings
        statistics = trainer.backward(generation)
        gradients.append(torch.cat([weight.grad.flatten() for weight in trainer.weights]))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[0].norm()
    trainer.args = replace(trainer.args, router_aux_loss_coef=0.0)
    trainer.backward(generation)
    plain = torch.cat([weight.grad.flatten() for weight in trainer.weights])
    assert torch.cosine_similarity(plain, gradients[0], dim=0) < 0.9
    assert 2 <= statistics.metrics()["aux_loss"] <= 8
    # completions that are left out count in neither the sum nor the number
    trainer.args = replace(trainer.args, router_aux_loss_coef=0.9, mask_truncated_completions=True)
    for number, completion in enumerate(generation.completions):
        completion.finish_reason = "length" if number % 2 else "stop"
    assert 2 <= trainer.backward(generation).metrics()["aux_loss"] <= 8


def surprise(trainer, temperature):
    """Of the trainer's policy by completions that were drawn at a temperature and are reported at its own."""
    generation = trainer.generate(0)
    params = SamplingParams(trainer.args.max_completion_length, temperature, seed=1)
    prompts = [group.prompt for group in generation.groups]
    drawn = trainer.engine.generate(prompts, params, trainer.args.num_generations)
    for completion, logprobs in zip(drawn, score_completions(trainer.model, drawn, trainer.args), strict=True):
        completion.logprobs = logprobs
    generation.groups = into_groups(prompts, drawn)
    generation.advantages = torch.linspace(-1, 1, len(drawn))
    return trainer.backward(generation).metrics()


def test_tokens_that_the_policy_would_not_draw_are_a_surprise(tmp_path, prompts):
    """A sampler that draws at another temperature and reports the trainer's log-probabilities differs by nothing: each
    ratio is 1, and only the draws themselves tell."""
    settings = {"max_completion_length": 100, "num_generations": 8, "per_device_train_batch_size": 32}
    trainer = trainer_in(tmp_path, prompts, **settings)
    right, hot = surprise(trainer, 1.0), surprise(trainer, 1.5)
    for metrics in (right, hot):
        assert metrics["sampling/sampling_logp_difference/mean"] < 1e-4
    assert abs(right["sampling/surprise_z"]) < 4 and abs(right["sampling/surprise"]) < 0.02
    assert hot["sampling/surprise_z"] > 5 and hot["sampling/surprise"] > 0.05


def test_only_the_policy_that_drew_can_be_surprised(tmp_path, prompts):
    """Once it has moved, the mean is not 0. Completions that are left out of the loss were drawn by it, too, and a mean
    without them would be one of the short ones."""
    trainer = trainer_in(tmp_path, prompts, num_iterations=2, max_steps=2)
    first, second = (step.metrics for step in trainer.steps())
    assert first["sampling/surprise"] is not None and "sampling/surprise" not in second
    surprises = []
    for is_masked in (False, True):
        trainer = trainer_in(tmp_path / str(is_masked), prompts, mask_truncated_completions=is_masked)
        surprises.append(trainer.backward(trainer.generate(0)).metrics()["sampling/surprise"])
    assert surprises[0] == pytest.approx(surprises[1])


def test_the_raw_sample_size_is_not_bounded(tmp_path, prompts):
    """Bounded at 3, weights of 20 looked harmless: half of the samples were said to count, and a tenth did."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=40)
    generation = trainer.generate(0)
    for completion in generation.completions[:1]:
        completion.logprobs = [value - 5.0 for value in completion.logprobs]
    metrics = trainer.backward(generation).metrics()
    counts = [len(completion.token_ids) for completion in generation.completions]
    ratios = torch.tensor([math.exp(5)] * counts[0] + [1.0] * sum(counts[1:]), dtype=torch.float64)
    expected = ratios.sum() ** 2 / (len(ratios) * ratios.square().sum())
    assert metrics["sampling/raw_effective_sample_size"] == pytest.approx(expected.item(), rel=1e-3)
    assert metrics["sampling/raw_effective_sample_size"] < 0.2 < metrics["sampling/effective_sample_size"]
