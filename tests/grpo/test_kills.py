"""A run that is killed between any two of its writes ends in the bytes of the uninterrupted one."""

import multiprocessing
import os
import signal

import pytest

from helpers import read_metrics
from tests.grpo.small import adapter, same, timeless, trainer_in

#: Two optimizer steps on each generation, evaluations, a best checkpoint and a backup: all that a run can write.
SETTINGS = {
    "max_steps": 3,
    "num_iterations": 2,
    "eval_strategy": "steps",
    "eval_steps": 1,
    "metric_for_best_model": "eval_reward",
    "max_completion_length": 12,
}
#: Calls that make what was written last.
WRITES = ("replace", "fsync")


def trainer_of(folder, prompts):
    evaluated = prompts.select([11])
    return trainer_in(folder / "run", prompts, eval_dataset=evaluated, backup_dir=str(folder / "backup"), **SETTINGS)


def count_writes(on_write):
    """Call `on_write(number)` before each call that makes a write last, in this process, for good."""
    numbers = iter(range(1, 1_000_000))

    def counted(real):
        def call(*arguments, **keywords):
            on_write(next(numbers))
            return real(*arguments, **keywords)

        return call

    for name in WRITES:
        setattr(os, name, counted(getattr(os, name)))


def train_and_die(folder, prompts, last, counter):
    """Train in this process; die before its write number `last`. counter: gets the number of writes so far."""

    def on_write(number):
        counter.value = number
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer = trainer_of(folder, prompts)
    count_writes(on_write)
    trainer.train(resume_from_checkpoint=True)


def run_apart(folder, prompts, last=0):
    """Train in a process of its own; return how many writes it began."""
    context = multiprocessing.get_context("fork")
    counter = context.Value("i", 0)
    process = context.Process(target=train_and_die, args=(folder, prompts, last, counter))
    process.start()
    process.join()
    assert process.exitcode == (-signal.SIGKILL if last else 0)
    return counter.value


def state_of(folder):
    rows = {name: timeless(read_metrics(folder / "run" / name)) for name in ("metrics.jsonl", "evaluations.jsonl")}
    best = (folder / "run" / "best_checkpoint.json").read_text()
    backed_up = timeless(read_metrics(folder / "backup" / "metrics.jsonl"))
    weights = (folder / "run" / "checkpoint-3" / "adapter_model.safetensors").read_bytes()
    copied = (folder / "backup" / "checkpoint-3" / "adapter_model.safetensors").read_bytes()
    return rows, best, backed_up, weights, copied


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prompts):
    """The uninterrupted run: how many writes it takes, and what it leaves."""
    folder = tmp_path_factory.mktemp("whole")
    writes = run_apart(folder, prompts)
    return writes, state_of(folder)


def check_kill(folder, prompts, whole, last):
    assert run_apart(folder, prompts, last) == last
    trainer = trainer_of(folder, prompts)
    trainer.train(resume_from_checkpoint=True)
    assert state_of(folder) == whole[1], f"killed before write {last} of {whole[0]}"
    again = trainer_of(folder, prompts)
    again.train(resume_from_checkpoint=True)  # a finished run stays as it is
    assert same(adapter(again), adapter(trainer))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_killed_before_some_writes(tmp_path, prompts, whole, share):
    """A line without its checkpoint, a checkpoint without its copy, an evaluation without its line."""
    check_kill(tmp_path, prompts, whole, round(share * whole[0]))


@pytest.mark.slow
def test_killed_before_every_write(tmp_path, prompts, whole):
    """All of them."""
    for last in range(1, whole[0] + 1):
        check_kill(tmp_path / str(last), prompts, whole, last)
