"""The lessons of a pipeline for competition mathematics (fruitfoxlu/rft, 2026), and the tests of the check of each.

A check is silent on the code as it is, and finds its fault where a test plants it. `LESSONS` says where.
"""

import pytest
import torch

from helpers import add_lora, get_task, load_model
from helpers.model.export import merge_adapter
from helpers.runtime import ROOT
from tests.grpo.copies import CopyingBackend, StaleBackend
from tests.grpo.small import trainer_in

#: Four completions a step.
FEW = {"num_generations": 2, "per_device_train_batch_size": 2, "max_completion_length": 20}
#: Lesson -> the tests of its check, the healthy case first and the planted fault after it.
LESSONS = {
    "an adapter that is applied twice is applied once": [
        "grpo/test_dry_runs.py::test_an_adapter_taken_over_twice_counts_once",
        "grpo/test_dry_runs.py::test_an_adapter_that_is_added_each_time_is_named",
        "grpo/test_posthoc.py::test_a_rollout_that_adds_the_adapter_each_time_is_found_out",
        "run/test_lessons.py::test_merging_twice_writes_the_same_files",
        "run/test_lessons.py::test_a_merge_behind_pefts_own_adds_nothing_more",
        "model/test_export.py::test_merge_in_stock_transformers",
    ],
    "the cut into micro-batches changes nothing": [
        "grpo/test_trainer.py::test_gradient_does_not_depend_on_the_cut",
        "grpo/test_dry_runs.py::test_the_cut_into_micro_batches_changes_no_more_than_rounding",
        "grpo/test_dry_runs.py::test_a_loss_that_averages_over_each_micro_batch_is_named",
    ],
    "the learning rate has a floor, and the preflight looks at it": [
        "run/test_preflight.py::test_the_pipeline_ends_at_a_tenth_of_its_rate",
        "run/test_preflight.py::test_a_usual_schedule_gets_no_word",
        "run/test_preflight.py::test_a_schedule_that_teaches_little_is_named",
    ],
    "what is loaded answers as what was trained": [
        "grpo/test_posthoc.py::test_the_adapter_loaded_again_gives_the_answers_of_the_training",
        "grpo/test_posthoc.py::test_an_adapter_of_another_step_is_another",
        "grpo/test_posthoc.py::test_an_adapter_at_another_scale_is_another",
    ],
    "200 prompts are too noisy": [
        "run/test_preflight.py::test_more_prompts_see_smaller_gains",
        "run/test_preflight.py::test_a_handful_of_prompts_shows_nothing",
        "run/test_preflight.py::test_a_verdict_by_one_comparison_alone_would_promise_too_much",
        "evaluation/test_power.py::test_the_simulation_is_the_verdict",
        "evaluation/test_sets.py::test_what_a_set_shows_it_shows_in_four_of_five_evaluations",
    ],
    "a checkpointed layer computes the same again": [
        "grpo/test_trainer.py::test_gradient_checkpointing_changes_nothing",
        "run/test_lessons.py::test_a_layer_that_computes_otherwise_again_changes_the_gradient",
    ],
    "the rollout has the weights of the trainer": [
        "rollout/test_policy.py::test_an_optimizer_step_shows_in_the_next_rollout",
        "run/test_lessons.py::test_the_rollout_of_the_trainer_reads_its_own_tensors",
        "run/test_lessons.py::test_a_rollout_that_keeps_the_first_weights_raises_the_alarm",
    ],
}


@pytest.fixture(scope="module")
def prompts():
    return get_task("matmul").dataset("train", 12)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_tests_of_a_lesson_are_there(lesson):
    """A test that is renamed would leave its lesson without one, and nobody would see it."""
    for test in LESSONS[lesson]:
        file, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), test


@torch.no_grad()
def train_like(weights, size=0.1):
    """Move the weights of an adapter, the zeros of a fresh one among them."""
    generator = torch.Generator().manual_seed(0)
    for weight in weights:
        weight.add_(torch.randn(weight.shape, generator=generator) * size)


def test_merging_twice_writes_the_same_files(tmp_path):
    """A merge that moved the base would have added the adapter to it again the second time."""
    model, _ = load_model(profile="tiny", dense="fp32")
    model = add_lora(model, r=4, alpha=8)
    train_like([weight for weight in model.parameters() if weight.requires_grad])
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        merge_adapter(model, folder, "float32")
    first, second = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders]
    assert first == second and any(name.endswith(".safetensors") for name in first)
    start, _ = load_model(profile="tiny", dense="fp32")
    merged, _ = load_model(tmp_path / "first", profile="tiny", dense="fp32")
    ids = torch.arange(30)[None]
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, model(ids).logits, atol=1e-3, rtol=1e-3)
        assert (merged(ids).logits - start(ids).logits).abs().max() > 0.1, "an adapter of nothing would show nothing"


def test_a_merge_behind_pefts_own_adds_nothing_more(tmp_path):
    """PEFT's `merge_adapter` changes the weights in place, and the folder once held the adapter twice."""
    model, _ = load_model(profile="tiny", dense="fp32")
    model = add_lora(model, r=4, alpha=8)
    train_like([weight for weight in model.parameters() if weight.requires_grad])
    ids = torch.arange(30)[None]
    with torch.no_grad():
        expected = model(ids).logits
        model.merge_adapter()
        merge_adapter(model, tmp_path / "merged", "float32")
        merged, _ = load_model(tmp_path / "merged", profile="tiny", dense="fp32")
        torch.testing.assert_close(merged(ids).logits, expected, atol=1e-3, rtol=1e-3)


def gradient(trainer):
    trainer.backward(trainer.generate(0))
    return torch.cat([weight.grad.flatten() for weight in trainer.weights])


def add_noise(model):
    """Let a layer compute otherwise each time that it is called, as dropout does whose random state is not kept."""
    generator = torch.Generator().manual_seed(0)

    def noisy(layer, inputs, output):
        noise = torch.randn(output.shape, generator=generator)
        return output + 0.1 * output * noise

    model.get_base_model().model.layers[1].self_attn.o_proj.register_forward_hook(noisy)


@pytest.mark.parametrize("is_noisy", [False, True])
def test_a_layer_that_computes_otherwise_again_changes_the_gradient(tmp_path, prompts, is_noisy):
    """The comparison of gradients with and without checkpointing can fail, and fails for the fault that it is for."""
    found = []
    for kept in (False, True):
        trainer = trainer_in(tmp_path / str(kept), prompts, gradient_checkpointing=kept, **FEW)
        if is_noisy:
            add_noise(trainer.model)
        found.append(gradient(trainer))
    change = (found[1] - found[0]).norm() / found[0].norm()
    assert change > 1e-3 if is_noisy else change < 1e-6


@pytest.mark.parametrize(("backend", "is_stale"), [(CopyingBackend, False), (StaleBackend, True)])
def test_a_rollout_that_keeps_the_first_weights_raises_the_alarm(tmp_path, prompts, backend, is_stale):
    """What is drawn is of another policy, and the metrics say so; a copy that is brought up to date raises none."""
    trainer = trainer_in(tmp_path, prompts, learning_rate=0.0, max_steps=3, **FEW)
    trainer.engine.backend = backend(trainer)
    trainer.generate(0)
    train_like(trainer.weights, 0.2)  # the weights move on
    trainer.train()
    raised = {name for row in trainer.history for name in row["monitor/alarms"]}
    if is_stale:
        assert "sampler and trainer" in raised
    else:
        assert not raised
    for row in trainer.history:
        difference = row["sampling/sampling_logp_difference/mean"]
        assert difference > 1 if is_stale else difference < 1e-4


def test_the_rollout_of_the_trainer_reads_its_own_tensors(tmp_path, prompts):
    """There is nothing to copy, and so no copy to forget: the same weights as above, with the trainer's own engine."""
    trainer = trainer_in(tmp_path, prompts, learning_rate=0.0, max_steps=2, **FEW)
    trainer.generate(0)
    train_like(trainer.weights, 0.2)
    trainer.train()
    assert all(row["sampling/sampling_logp_difference/mean"] < 1e-4 for row in trainer.history)
