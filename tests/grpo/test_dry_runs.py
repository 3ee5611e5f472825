"""A run tried out before it is started: what it says of the groups, of weights that are taken over twice, and of the
cut into micro-batches. What it leaves alone: test_evaluate.py."""

import pytest

from helpers import RolloutEngine, dry_run
from helpers.grpo.dry_runs import change_by_micro_batches, drift_of_sync, try_step
from helpers.grpo.losses import OBJECTIVES
from tests.grpo.copies import AccumulatingBackend, CopyingBackend
from tests.grpo.small import adapter, constant_reward, same, trainer_in


def only_the_first_group(prompts, completions, **_):
    """Different rewards in the first of the groups of four, equal ones in the others."""
    return [float(place == 0) for place in range(len(completions))]


def only_the_last_two_groups(prompts, completions, **_):
    return [float(place in (8, 12)) for place in range(len(completions))]


#: Four short completions a step, where their number does not matter.
FEW = {"num_generations": 2, "per_device_train_batch_size": 2, "max_completion_length": 20}


@pytest.fixture
def prompts(task):
    return task.dataset("train", 12)


@pytest.mark.parametrize(
    ("reward", "share", "is_advised"),
    [(only_the_first_group, "75%", True), (only_the_last_two_groups, "50%", False)],
)
def test_what_to_do_where_most_groups_teach_nothing(tmp_path, prompts, capsys, reward, share, is_advised):
    """A number alone was read over, and the run it warned of learnt nothing for hours."""
    dry_run(trainer_in(tmp_path, prompts, reward=reward, gradient_accumulation_steps=4))
    printed = capsys.readouterr().out
    assert f"; {share} of the groups teach nothing; " in printed
    advice = [line for line in printed.splitlines() if "choose easier or harder prompts" in line]
    assert len(advice) == is_advised
    for line in advice:
        assert f"{share} of the groups" in line and "num_generations" in line and "temperature" in line


def with_backend(trainer, name):
    """Let the trainer draw with the backend of that name."""
    sizes = {"max_batch_size": trainer.args.generation_batch_size, "max_length": trainer.args.max_length}
    trainer.engine = RolloutEngine(trainer.model, trainer.processing_class, backend=name, **sizes)
    return trainer


@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("backend", ["captured", "transformers"])
def test_an_adapter_taken_over_twice_counts_once(tmp_path, prompts, backend, is_fresh):
    """And the weights are left as they were."""
    trainer = with_backend(trainer_in(tmp_path, prompts, **FEW), backend)
    if not is_fresh:
        trainer.step(trainer.backward(trainer.generate(0)))
    before = adapter(trainer)
    assert drift_of_sync(trainer) < 1e-5
    assert same(before, adapter(trainer))


def test_weights_of_its_own_do_not_make_a_backend_suspect(tmp_path, prompts):
    trainer = trainer_in(tmp_path, prompts, **FEW)
    trainer.engine.backend = CopyingBackend(trainer)
    assert drift_of_sync(trainer) < 1e-5


def test_an_adapter_that_is_added_each_time_is_named(tmp_path, prompts, capsys):
    """The rollout is of another policy then, and the run reports what its adapter never does. At the learning rate 0,
    as in the first step of a warm-up, the adapter added nothing, and the check saw nothing."""
    trainer = trainer_in(tmp_path, prompts, learning_rate=0.0, **FEW)
    trainer.engine.backend = AccumulatingBackend(trainer)
    try_step(trainer)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Taking over the weights")]
    assert line.endswith(" nats, which rounding does not explain: the backend adds the adapter to weights that hold it "
                         "already.")  # fmt: skip


@pytest.fixture
def averaging_loss(monkeypatch):
    """A loss with the usual mistake: it averages over the completions of each micro-batch."""
    clip = OBJECTIVES["clip"]

    def averaged(ratios, clipping):
        found = clip(ratios, clipping)
        return found._replace(loss=found.loss / len(found.loss))

    monkeypatch.setitem(OBJECTIVES, "clip", averaged)


def line_of_micro_batches(trainer, capsys):
    """What a dry run says of the cut."""
    capsys.readouterr()
    try_step(trainer)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Smaller micro-batches")]
    return line


def test_the_cut_into_micro_batches_changes_no_more_than_rounding(tmp_path, prompts, capsys):
    line = line_of_micro_batches(trainer_in(tmp_path, prompts, **FEW), capsys)
    assert "of its norm." in line and "rounding" not in line


def test_a_loss_that_averages_over_each_micro_batch_is_named(tmp_path, prompts, capsys, averaging_loss):
    """Such a loss trains otherwise wherever the memory is smaller."""
    line = line_of_micro_batches(trainer_in(tmp_path, prompts, **FEW), capsys)
    assert "a loss of yours may average over each micro-batch, and should use the weights of the whole step" in line


def test_the_cut_is_that_of_the_step_and_not_of_its_generation(tmp_path, prompts, averaging_loss):
    """Halving the micro-batches of a generation may leave those of one of its steps as they were: nothing was tried
    then, and a change of 0 was reported."""
    trainer = trainer_in(tmp_path, prompts, steps_per_generation=4, **FEW)
    generation = trainer.generate(0)
    for completion in generation.completions[::2]:  # those of the first of two steps, shorter than the others
        completion.token_ids = completion.token_ids[:2]
        completion.logprobs = completion.logprobs[:2]
    assert change_by_micro_batches(trainer, generation) > 0.1
    assert trainer.micro_batching.halvings == 0
    trainer.micro_batching.halvings = 12
    assert change_by_micro_batches(trainer, generation) is None, "each has one completion already"


def test_a_cut_that_cannot_be_tried_is_said(tmp_path, prompts, capsys):
    line = line_of_micro_batches(trainer_in(tmp_path, prompts, reward=constant_reward, **FEW), capsys)
    assert line == "Smaller micro-batches were not tried: there is no gradient, or each has one completion already."
