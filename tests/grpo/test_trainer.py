import json

import numpy as np
import pytest
import torch
from torch._inductor.exc import InductorError
from triton.runtime.errors import OutOfResources

from helpers import MatmulTask, UserError, dry_run, load_model, read_metrics, weights_digest
from helpers.grpo import loop
from helpers.grpo.losses import policy_loss
from helpers.grpo.session import Session
from helpers.grpo.update import UpdateStatistics, micro_batches
from helpers.kernels import attention
from tests.grpo.small import adapter, constant_reward, same, timeless, toy_reward, trainer_in, weighted_logprob


def test_base_weights_never_change_and_the_adapter_does(tmp_path, prompts):
    """With NF4 layers, after rollouts and optimizer steps: rollout-then-backward must work, too."""
    trainer = trainer_in(tmp_path, prompts, dense="nf4", max_steps=2)
    digest, before = weights_digest(trainer.model), adapter(trainer)
    trainer.train()
    assert weights_digest(trainer.model) == digest
    moved = [name for name, weight in adapter(trainer).items() if not torch.equal(weight, before[name])]
    assert any("self_attn" in name for name in moved) and any("experts" in name for name in moved)


def gradients(trainer, generation):
    trainer.backward(generation)
    return torch.cat([weight.grad.flatten() for weight in trainer.weights])


def test_no_two_steps_draw_with_the_same_seed(tmp_path, prompts, monkeypatch):
    """Seeds 42 and 1 once shared the random numbers of 13 of 40 steps."""
    drawn_with = []
    for seed in (42, 1):
        trainer = trainer_in(tmp_path / str(seed), prompts, seed=seed, max_completion_length=2)
        generate = trainer.engine.generate

        def watched(prompts, params, *rest, generate=generate):
            drawn_with.append(params.seed % 2**32)
            return generate(prompts, params, *rest)

        monkeypatch.setattr(trainer.engine, "generate", watched)
        for step in (0, 1, 7):
            trainer.generate(step)
    assert len(drawn_with) == len(set(drawn_with)) == 6


LOSSES = {
    "dapo": {},
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "kl": {"beta": 0.1, "mask_truncated_completions": True},
}


@pytest.mark.parametrize("settings", LOSSES.values(), ids=LOSSES)
def test_gradient_does_not_depend_on_the_cut(tmp_path, prompts, settings):
    """Normalising each micro-batch by itself is the usual mistake; the long and the short weigh wrongly."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=110, **settings)
    generation = trainer.generate(0)
    assert len({len(c.token_ids) for c in generation.completions}) > 1
    results = []
    for halvings in (0, 3, 12):
        trainer.micro_batching.halvings = halvings
        results.append(gradients(trainer, generation))
    for other in results[1:]:
        assert (other - results[0]).norm() < 1e-5 * results[0].norm()


def test_micro_batches_follow_the_tokens(tmp_path, prompts):
    """Two rows of full length are six short ones: on a GPU each micro-batch costs the same launches, however full."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=110)
    completions = trainer.generate(0).completions
    lengths = [len(c.prompt_ids) + len(c.token_ids) for c in completions]
    for most in (1, max(lengths), 2 * max(lengths), 10_000):
        cut = micro_batches(completions, most)
        assert sorted(place for places in cut for place in places) == list(range(len(completions)))
        for places in cut:
            assert len(places) == 1 or len(places) * max(lengths[place] for place in places) <= most
    assert len(cut) == 1 and len(micro_batches(completions, 1)) == len(completions)
    assert [len(places) for places in micro_batches(completions, 10_000, max_completions=3)] == [3, 3, 2]


def test_a_micro_batch_that_does_not_fit_is_halved(tmp_path, prompts, monkeypatch, capsys):
    """The plan foresees a run's memory, not what else happens on the card: an update that fails after a rollout of
    minutes is done again with less at a time, and no half of a gradient is left."""
    trainer = trainer_in(tmp_path, prompts, max_prompt_length=120, max_completion_length=40)
    generation = trainer.generate(0)
    trainer.backward(generation)
    wanted = torch.cat([weight.grad.flatten() for weight in trainer.weights])
    real = loop.policy_logprobs
    sizes = []

    def small_memory(model, completions, *others):
        sizes.append(len(completions))
        if len(completions) > 2 or (len(completions) == 2 and len(sizes) > 2):  # the second of two, after a gradient
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(model, completions, *others)

    monkeypatch.setattr(loop, "policy_logprobs", small_memory)
    trainer.backward(generation)
    gradient = torch.cat([weight.grad.flatten() for weight in trainer.weights])
    assert (gradient - wanted).norm() < 1e-5 * wanted.norm()
    assert sizes[0] > 2 and 2 in sizes and set(sizes[-8:]) == {1}
    first, *others = [line for line in capsys.readouterr().out.splitlines() if line.startswith("The GPU")]
    assert "it is tried again" in first and all("tokens at most from here on" in line for line in others) and others
    sizes.clear()
    trainer.backward(generation)  # remembers
    assert set(sizes) == {1}

    def no_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(loop, "policy_logprobs", no_memory)
    with pytest.raises(UserError, match=r"no memory left to take a single completion through the model \(CUDA out of"):
        trainer.backward(generation)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("Triton Error [CUDA]: out of memory")],
    ids=["torch", "triton"],
)
@pytest.mark.parametrize("pass_of", ["update", "reference"])
def test_memory_that_lacks_once_is_collected(tmp_path, prompts, monkeypatch, capsys, error, pass_of):
    """Triton loads a kernel when it first runs, and raises an error of another kind; the update knew PyTorch's alone,
    and the pass of the reference none."""
    trainer = trainer_in(tmp_path, prompts, beta=0.1)
    generation = trainer.generate(0)
    wanted = gradients(trainer, generation)
    capsys.readouterr()
    real = loop.policy_logprobs
    calls = []

    def fails_once(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise error
        return real(*arguments)

    monkeypatch.setattr(loop, "policy_logprobs", fails_once)
    if pass_of == "reference":
        known = generation.ref_logprobs
        trainer._score_generation(generation)
        assert generation.ref_logprobs == known
    else:
        assert torch.equal(gradients(trainer, generation), wanted)
    said = "The GPU had no memory left for a micro-batch: what can be freed is freed, and it is tried again.\n"
    assert len(calls) > 2 and trainer.micro_batching.halvings == 0 and capsys.readouterr().out == said


@pytest.mark.parametrize("place", ["generate", "backward", "clip_gradient", "metrics", "optimizer", "records"])
def test_a_run_that_ends_for_want_of_memory_goes_on(tmp_path, prompts, monkeypatch, place):
    """Where nothing smaller can be tried, one sentence, and no step is lost that was done: checkpoints are rarer."""
    settings = {"max_steps": 3, "save_steps": 5, "num_iterations": 2}
    whole = trainer_in(tmp_path / "whole", prompts, **settings)
    whole.train()
    trainer = trainer_in(tmp_path / "run", prompts, **settings)
    owners = {
        "optimizer": (trainer.optimizer, "step"),
        "metrics": (UpdateStatistics, "metrics"),
        "records": (Session, "note_step"),
    }
    owner, name = owners.get(place, (trainer, place))
    real = getattr(owner, name)

    def fails_in_the_third(*arguments):
        if trainer.state.global_step < (3 if place == "records" else 2):
            return real(*arguments)
        if place == "optimizer":
            with torch.no_grad():
                trainer.weights[0].zero_()  # some are moved, others not
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later.")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails_in_the_third)
        with pytest.raises(UserError, match=r"no memory left \(CUDA error: out of memory\): restart the") as caught:
            trainer.train()
    assert "\n" not in str(caught.value)
    resumed = trainer_in(tmp_path / "run", prompts, **settings)
    steps = [step.step for step in resumed.steps(resume_from_checkpoint=True)]
    assert steps == ([1, 2, 3] if place in ("optimizer", "records") else [3])  # half a step is none
    assert same(adapter(resumed), adapter(whole))
    assert [row["num_tokens"] for row in resumed.history] == [row["num_tokens"] for row in whole.history]


def test_a_checkpoint_is_not_damaged_where_memory_is_lacking(tmp_path, prompts, monkeypatch):
    """It was moved aside, and the run went on from the one before; or the advice was to delete it."""
    trainer_in(tmp_path, prompts, max_steps=1).train()
    before = sorted(path.name for path in tmp_path.iterdir())

    def no_memory(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr("helpers.grpo.checkpoint.torch.load", no_memory)
        with pytest.raises(UserError, match="no memory left"):
            trainer_in(tmp_path, prompts, max_steps=2).train(resume_from_checkpoint=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert trainer_in(tmp_path, prompts, max_steps=2).train(resume_from_checkpoint=True).global_step == 2


def test_a_dry_run_says_that_memory_is_lacking(tmp_path, prompts, monkeypatch):
    trainer = trainer_in(tmp_path, prompts)
    before = adapter(trainer)

    def no_memory():
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trainer.optimizer, "step", no_memory)
    with pytest.raises(UserError, match="no memory left"):
        dry_run(trainer)
    assert same(adapter(trainer), before)


def test_a_backward_pass_that_cannot_be_compiled(tmp_path, prompts, monkeypatch):
    """FlexAttention's backward kernel may be compiled, and refused, when the forward pass has long returned."""
    trainer = trainer_in(tmp_path, prompts)
    generation = trainer.generate(0)
    wanted = gradients(trainer, generation)
    backward = torch.Tensor.backward
    monkeypatch.setattr(attention, "_flex_state", "in use")

    def refused(*arguments):
        if attention._flex_state != "given up":
            raise InductorError(RuntimeError("out of resource: shared memory"), None)
        return backward(*arguments)

    monkeypatch.setattr(torch.Tensor, "backward", refused)
    with pytest.warns(UserWarning, match="FlexAttention cannot be compiled here .*shared memory"):
        found = gradients(trainer, generation)
    assert torch.equal(found, wanted)
    monkeypatch.setattr(attention, "_flex_state", "untried")
    with pytest.raises(InductorError):
        gradients(trainer, generation)


def test_a_second_layer_that_cannot_be_compiled(tmp_path, prompts, monkeypatch):
    """Sliding and full layers compile apart. The first had run with flex, and checkpointing computed it with sdpa."""
    trainer = trainer_in(tmp_path, prompts, gradient_checkpointing=True)
    generation = trainer.generate(0)
    wanted = gradients(trainer, generation)
    calls = []
    flex = attention._flex_cpu

    def refuses_the_second(*arguments):
        calls.append(None)
        if len(calls) == 2:
            raise OutOfResources(65536, 49152, "shared memory")
        return flex(*arguments)

    monkeypatch.setattr(attention, "_flex_cpu", refuses_the_second)
    monkeypatch.setattr(attention, "_flex_state", "untried")
    monkeypatch.setattr(
        attention, "choose_backend", lambda *_: "sdpa" if attention._flex_state == "given up" else "flex"
    )
    with pytest.warns(UserWarning, match="FlexAttention cannot be compiled"):
        found = gradients(trainer, generation)
    assert len(calls) == 2
    assert (found - wanted).norm() < 1e-5 * wanted.norm()


def test_gradient_against_one_completion_at_a_time(tmp_path, prompts):
    """Stock forward, one row, no padding, no tiles: the formula with nothing of ours but the loss."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=40)
    generation = trainer.generate(0)
    ours = gradients(trainer, generation)
    trainer.optimizer.zero_grad()
    tokens = sum(len(c.token_ids) for c in generation.completions)
    for completion, advantage in zip(generation.completions, generation.advantages):
        ids = torch.tensor([completion.prompt_ids + completion.token_ids])
        start = len(completion.prompt_ids)
        scores = trainer.model(ids).logits[0, start - 1 : -1].log_softmax(-1).gather(1, ids[0, start:, None])[:, 0]
        (-(scores - scores.detach()).exp() * advantage / tokens).sum().backward()
    theirs = torch.cat([weight.grad.flatten() for weight in trainer.weights])
    assert (ours - theirs).norm() < 1e-3 * theirs.norm() and theirs.norm() > 0


def test_gradient_checkpointing_changes_nothing(tmp_path, prompts):
    """On a GPU every layer is computed again in the backward pass, its experts unpacked again."""
    results = []
    for kept in (False, True):
        trainer = trainer_in(tmp_path / str(kept), prompts, gradient_checkpointing=kept)
        flags = {layer.gradient_checkpointing for layer in trainer.model.get_base_model().model.layers}
        assert flags == {kept}
        results.append(gradients(trainer, trainer.generate(0)))
    assert (results[0] - results[1]).norm() < 1e-6 * results[0].norm()


def test_attention_without_a_gradient_for_the_sinks_is_refused(tmp_path, prompts):
    """Whoever switches the attention after add_lora hears of it before the first step."""
    trainer = trainer_in(tmp_path, prompts)
    trainer.model.config._attn_implementation_internal = "kernels-community/vllm-flash-attn3"
    with pytest.raises(UserError, match="FlashAttention 3 computes sinks forwards only"):
        type(trainer)(trainer.model, toy_reward, trainer.args, trainer.train_dataset, trainer.engine.harmony.tokenizer)


def test_equal_rewards_give_exactly_no_gradient(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, reward=constant_reward)
    assert not gradients(trainer, trainer.generate(0)).any()


def test_training_raises_what_is_rewarded(tmp_path, prompts):
    """The loop as a whole points uphill: the drawn tokens of better completions become likelier."""
    trainer = trainer_in(tmp_path, prompts)
    generation = trainer.generate(0)
    advantages = generation.advantages

    before = weighted_logprob(trainer, generation.completions, advantages)
    trainer.step(trainer.backward(generation))
    assert weighted_logprob(trainer, generation.completions, advantages) > before


def test_truncated_completions_can_be_left_out(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, mask_truncated_completions=True, max_completion_length=8)
    generation = trainer.generate(0)
    assert all(c.finish_reason == "length" for c in generation.completions)
    assert not gradients(trainer, generation).any()


@pytest.mark.parametrize(("name", "value"), [("step", 99), ("rewards/mine", 1.0), ("time/mine", 1.0)])
def test_a_reward_may_not_log_under_the_trainers_names(tmp_path, prompts, name, value):
    """A step of 99 in the first line would have made the metrics of a resumed run another's."""

    def logging(prompts, completions, log_metric, **_):
        log_metric(name, value)
        return [0.0] * len(completions)

    with pytest.raises(UserError, match="the trainer logs under that name"):
        trainer_in(tmp_path, prompts, reward=logging).train()


def test_metrics_of_any_number_type_can_be_logged(tmp_path, prompts):
    def logging(prompts, completions, log_metric, **_):
        log_metric("half", np.float32(0.5))
        return [float(n) for n in range(len(completions))]

    trainer_in(tmp_path, prompts, reward=logging, max_steps=1).train()
    assert read_metrics(tmp_path / "metrics.jsonl")[0]["half"] == 0.5


def test_what_a_reward_says_of_each_completion_is_kept(tmp_path, prompts):
    """In the records that callbacks get, and over an interruption; a number of numpy's once broke a checkpoint."""

    def saying(prompts, completions, log_extra, **_):
        log_extra("note", [f"note {n}" for n in range(len(completions))])
        log_extra("odd", [np.bool_(n == 3) for n in range(len(completions))])
        return toy_reward(prompts, completions)

    trainer = trainer_in(tmp_path, prompts, reward=saying, max_steps=1)
    trainer.train()
    assert [row["note"] for row in trainer.last_completions] == [f"note {n}" for n in range(8)]
    assert [row["odd"] for row in trainer.last_completions] == [n == 3 for n in range(8)]
    generation = trainer.generate(1)
    assert type(generation).from_dict(json.loads(json.dumps(generation.to_dict()))).extras == generation.extras


def test_one_extra_for_each_completion(tmp_path, prompts):
    def short(prompts, completions, log_extra, **_):
        log_extra("note", ["only one"])
        return [0.0] * len(completions)

    with pytest.raises(UserError, match="got 1 values for 8 completions"):
        trainer_in(tmp_path, prompts, reward=short).train()


def test_an_extra_does_not_overwrite_the_record(tmp_path, prompts):
    def rewriting(prompts, completions, log_extra, **_):
        log_extra("advantage", [1.0] * len(completions))
        return [0.0] * len(completions)

    with pytest.raises(UserError, match="record has that already"):
        trainer_in(tmp_path, prompts, reward=rewriting).train()


def test_a_record_carries_the_reward_that_was_paid(tmp_path, prompts):
    """04_grpo added up a record's values itself. One of them was NaN, so its "worst" answer beat its "best"."""

    def checked(prompts, completions, **_):
        return [None if n % 2 else 100.0 for n in range(len(completions))]

    trainer = trainer_in(tmp_path, prompts, reward=[toy_reward, checked], reward_weights=(1.0, 0.0), max_steps=1)
    trainer.train()
    rows = trainer.last_completions
    assert [row["reward"] for row in rows] == [row["rewards"]["toy_reward"] for row in rows]
    ranked = sorted(rows, key=lambda row: row["reward"])
    assert ranked[-1]["reward"] == max(row["rewards"]["toy_reward"] for row in rows) > ranked[0]["reward"]


def test_what_nothing_judged_has_no_reward(tmp_path, prompts):
    """NaN cannot be sorted, and is no JSON."""

    def half(prompts, completions, **_):
        return [None if n % 2 else float(n) for n in range(len(completions))]

    trainer = trainer_in(tmp_path, prompts, reward=half, max_steps=1)
    trainer.train()
    assert [row["reward"] for row in trainer.last_completions] == [0.0, None, 2.0, None, 4.0, None, 6.0, None]


def test_a_resumed_run_knows_how_varied_its_first_steps_were(tmp_path, prompts):
    """Else a run that was resumed after its collapse would find nothing changed."""
    first = trainer_in(tmp_path, prompts, max_steps=2)
    first.train()
    second = trainer_in(tmp_path, prompts, max_steps=3)
    second.train(resume_from_checkpoint=True)
    assert len(first.history) == 2 and timeless(second.history[:2]) == timeless(first.history)
    assert len(second.history) == 3


def test_a_run_is_not_resumed_at_another_level(tmp_path, prompts):
    """What judged half of a run must be what judges the other half, or be named."""
    task = MatmulTask()
    trainer = trainer_in(tmp_path / "run", prompts, max_steps=1, task=task)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    saved = json.loads((tmp_path / "adapter" / "trainer_state.json").read_text())
    assert saved["settings"]["sandbox"] == "os" and saved["settings"]["task"] == "matmul"
    with pytest.raises(UserError, match="written with sandbox='os' and this run has 'process'"):
        task = MatmulTask(level="process")
        trainer_in(tmp_path / "run", prompts, max_steps=2, task=task).train(resume_from_checkpoint=True)


def test_two_rewards_of_one_name_are_refused(tmp_path, prompts):
    """Logged under one name, one of them would have vanished from every table."""
    with pytest.raises(UserError, match="Two rewards have one name"):
        trainer_in(tmp_path, prompts, reward=[toy_reward, toy_reward])


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


def test_policy_loss_is_what_the_trainer_minimises(tmp_path, prompts):
    """The logged loss at ratio one is minus the token-weighted mean advantage."""
    trainer = trainer_in(tmp_path, prompts, max_completion_length=60)
    generation = trainer.generate(0)
    advantages = generation.advantages
    lengths = torch.tensor([len(c.token_ids) for c in generation.completions], dtype=torch.float32)
    logged = trainer.step(trainer.backward(generation))["loss"]
    assert logged == pytest.approx(-(advantages * lengths).sum().item() / lengths.sum().item(), abs=1e-4)
    flat = torch.zeros(len(lengths), int(lengths.max()))
    mask = (torch.arange(flat.shape[1]) < lengths[:, None]).float()
    found = policy_loss(flat, flat, advantages, mask / lengths.sum())
    assert logged == pytest.approx(found.loss.item(), abs=1e-4)
