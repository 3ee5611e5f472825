"""Runs with one planted fault each: which alarm came, and at which step; and healthy runs, which must raise none.

    python -m tests.benchmarks.planted_faults [--faults a,b] [--seeds 3] [--healthy] [--healthy-lr0] [--rows folder]

`GRPOTrainer` trains the embedded model on the matmul task without a clock, 4 prompts with 8 completions each, for 18
steps. Each fault is planted by what a user could pass to the trainer: an engine, a reward, or a setting. A fault is
noticed where one of its right alarms comes; an alarm before it that is not among them is a wrong one. An error that
ends the run and is no alarm counts as one of the name "error".

--faults: names of `FAULTS` with commas between them, "" for none. --healthy: also healthy runs of 30 steps, as the
profile "tiny" makes them. --healthy-lr0: also a run of 20 steps whose weights never move. --rows: keep the metrics of
each run there, so that the limits of the alarms can be studied; runs then go on after they were noticed.

The reward of "raising reward" raises in step 8, and no checkpoint is due before. The run is then gone on with, with a
sound reward: the table says how many steps were taken again and how many generations were drawn again.
"""

import argparse
import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from helpers import GRPOConfig, GRPOTrainer, UserError, add_lora, load_model, read_metrics
from helpers.rewards.calling import call_reward
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.sampling import SamplingParams
from helpers.run.opening import Run, make_run
from helpers.runtime import ROOT
from tests.benchmarks.record import Record

RESULTS = ROOT / "tests" / "benchmarks" / "results" / "planted-faults-cpu.json"
#: Of every run with a fault: no clock is in the rewards, so a seed gives one run.
FAULTY = {
    "profile": "tiny",
    "task": "matmul",
    "task_options": "speed=False",
    "generation_batch_size": 32,
    "max_steps": 18,
}
#: Of every healthy run.
HEALTHY = {"profile": "tiny", "max_steps": 30}
#: Temperature of a sampler that draws at another one than it should.
HOT = 1.5
#: Standard deviation of a Gaussian over its mean absolute value.
SIGMA_OVER_MEAN = math.sqrt(math.pi / 2)
#: The steps from which on a reward pays NaN, sleeps, and raises.
FIRST_NAN, FIRST_SLEEP, FIRST_RAISE = 3, 4, 8
#: Seconds that a reward may take, and that the sleeping one takes.
TIMEOUT, SLEEP = 0.5, 5.0
#: Of an event: the run ended with an error that is no alarm.
ERROR = "error"


# Samplers


class HotEngine(RolloutEngine):
    """Draws at temperature `HOT`, and reports the log-probabilities at that temperature."""

    def generate(self, prompts: Sequence, params: SamplingParams, *arguments, **keywords) -> list[Completion]:
        return super().generate(prompts, replace(params, temperature=HOT), *arguments, **keywords)


class NoisyEngine(RolloutEngine):
    """Adds Gaussian noise to every log-probability that it reports.

    level: mean absolute value of the noise in the first draw, in nats. growth: what each later draw adds to it.
    """

    def __init__(self, *arguments, level: float, growth: float = 0.0, **keywords):
        super().__init__(*arguments, **keywords)
        self.level = level
        self.growth = growth

    def generate(self, prompts: Sequence, params: SamplingParams, *arguments, **keywords) -> list[Completion]:
        completions = super().generate(prompts, params, *arguments, **keywords)
        rng = random.Random(params.seed)
        sigma = SIGMA_OVER_MEAN * self.level
        for completion in completions:
            completion.logprobs = [logprob + rng.gauss(0.0, sigma) for logprob in completion.logprobs]
        self.level += self.growth
        return completions


class StaleEngine(RolloutEngine):
    """Draws with the adapter as it was when the engine was made."""

    def __init__(self, model: torch.nn.Module, *arguments, **keywords):
        super().__init__(model, *arguments, **keywords)
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.stale = self._copies()

    def generate(self, *arguments, **keywords) -> list[Completion]:
        current = self._copies()
        self._take(self.stale)
        try:
            return super().generate(*arguments, **keywords)
        finally:
            self._take(current)

    def _copies(self) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def _take(self, values: Sequence[torch.Tensor]) -> None:
        """Write values into the adapter, where its matrices lie."""
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)


class CopyingEngine(RolloutEngine):
    """Gives the first completion of each group to the whole group."""

    def generate(
        self, prompts: Sequence, params: SamplingParams, num_generations: int = 1, *arguments, **keywords
    ) -> list[Completion]:
        completions = super().generate(prompts, params, num_generations, *arguments, **keywords)
        firsts = completions[::num_generations]
        return [replace(first) for first in firsts for _ in range(num_generations)]


class CountingEngine(RolloutEngine):
    """Counts the draws in `draws`."""

    draws = 0

    def generate(self, *arguments, **keywords) -> list[Completion]:
        self.draws += 1
        return super().generate(*arguments, **keywords)


# Rewards. Each is made of a run, and has one name, whatever it does: a resumed run must have the reward of the first.


class PlantedReward:
    """The weighted sum of a run's rewards, as one reward function."""

    __name__ = "planted"

    def __init__(self, run: Run):
        self.functions, self.weights = run.chosen_rewards

    def __call__(self, completions: Sequence, **arguments) -> list[float]:
        totals = [0.0] * len(completions)
        for function, weight in zip(self.functions, self.weights, strict=True):
            values = call_reward(function, completions=completions, **arguments)
            for place, value in enumerate(values):
                totals[place] += weight * (value or 0.0)
        return totals


class ConstantReward(PlantedReward):
    """Pays 0.1 for everything."""

    def __call__(self, completions: Sequence, **arguments) -> list[float]:
        return [0.1] * len(completions)


class NanReward(PlantedReward):
    """Pays NaN for every third completion from step `FIRST_NAN` on."""

    def __call__(self, completions: Sequence, trainer_state, **arguments) -> list[float]:
        totals = super().__call__(completions, trainer_state=trainer_state, **arguments)
        if trainer_state.global_step + 1 >= FIRST_NAN:
            for place in range(0, len(totals), 3):
                totals[place] = math.nan
        return totals


class SleepingReward(PlantedReward):
    """Pays the number of distinct characters, which takes no time, and sleeps from step `FIRST_SLEEP` on."""

    def __call__(self, completions: Sequence, trainer_state, **arguments) -> list[float]:
        if trainer_state.global_step + 1 >= FIRST_SLEEP:
            time.sleep(SLEEP)
        return [float(len(set(completion[0]["content"]))) for completion in completions]


class RaisingReward(PlantedReward):
    """Raises in step `FIRST_RAISE`."""

    def __call__(self, completions: Sequence, trainer_state, **arguments) -> list[float]:
        if trainer_state.global_step + 1 >= FIRST_RAISE:
            raise KeyError("a column that is not there")
        return super().__call__(completions, trainer_state=trainer_state, **arguments)


# The runs


class Event(NamedTuple):
    """An alarm that a run gave. step: of the row, or the one under way when an error came."""

    step: int
    name: str
    sentence: str


@dataclass(frozen=True)
class Planted:
    """One run: what differs in it from a healthy one, and which alarms notice that.

    right: names of the alarms. says, says_not: regular expressions that the sentence of a right alarm must match, and
    must not. settings: of the run. engine: makes what draws, with the arguments of `RolloutEngine`. reward: makes the
    reward; None: the task's own. has_task: whether the trainer gets the task.
    """

    name: str
    right: tuple[str, ...] = ()
    says: str = ""
    says_not: str | None = None
    settings: Mapping = field(default_factory=dict)
    engine: Callable[..., RolloutEngine] = RolloutEngine
    reward: Callable[[Run], Callable] | None = None
    has_task: bool = True

    def is_right(self, event: Event) -> bool:
        """Tell whether an event notices the fault."""
        if event.name not in self.right or not re.search(self.says, event.sentence):
            return False
        return self.says_not is None or not re.search(self.says_not, event.sentence)


DRIFT = ("sampler and trainer", "effective sample size")
DESTRUCTION = ("entropy rise", "gradient norm", "reward collapse", "destroyed policy")
FAULTS = (
    Planted("sampler at T=1.5", (*DRIFT, "draws"), engine=HotEngine),
    Planted("noise 0.24", DRIFT, engine=partial(NoisyEngine, level=0.24)),
    Planted("noise 0.8", DRIFT, engine=partial(NoisyEngine, level=0.8)),
    Planted("learning rate 0.02", DESTRUCTION, settings={"learning_rate": 0.02}),
    Planted("learning rate 0.05", DESTRUCTION, settings={"learning_rate": 0.05}),
    Planted("learning rate 1", DESTRUCTION, settings={"learning_rate": 1.0}),
    Planted("stale sampler", DRIFT, engine=StaleEngine),
    Planted("growing noise", ("sampler and trainer",), engine=partial(NoisyEngine, level=0.0, growth=0.02)),
    Planted("all cut off", ("no signal",), says="cut off", settings={"max_completion_length": 8}),
    Planted("constant reward", ("no signal",), says="same reward", says_not="cut off", reward=ConstantReward),
    Planted("NaN reward", ("nan rewards",), reward=NanReward),
    Planted("copies", ("copies",), engine=CopyingEngine),
    Planted(
        "sleeping reward",
        (ERROR,),
        says="reward_timeout",
        settings={"reward_timeout": TIMEOUT},
        reward=SleepingReward,
        has_task=False,  # its grader would be held to the same limit
    ),
    Planted("raising reward", (ERROR,), says="raised", settings={"save_steps": 100}, reward=RaisingReward),
)
#: Healthy runs, and the number of seeds of each.
HEALTHY_RUNS = (
    (Planted("math", settings={"task": "math"}), 2),
    (Planted("math without a task", settings={"task": "math"}, has_task=False), 1),
    (
        Planted("math without a task, 2 iterations", settings={"task": "math", "num_iterations": 2}, has_task=False),
        1,
    ),
    (Planted("rows of one's own", settings={"task": "custom"}), 1),
    (Planted("math, beta 0.04", settings={"task": "math", "beta": 0.04}), 1),
    (Planted("math, one prompt a step", settings={"task": "math", "generation_batch_size": 8}), 1),
    (Planted("math, truncated ones masked", settings={"task": "math", "mask_truncated_completions": True}), 1),
    (Planted("matmul, 2 iterations", settings={"task": "matmul", "num_iterations": 2}), 1),
    (Planted("matmul", settings={"task": "matmul"}), 2),
)
UNMOVED = Planted("matmul, learning rate 0", settings={"task": "matmul", "learning_rate": 0.0, "max_steps": 20})


def own_rows() -> list[dict]:
    """Return sums as a user would write them, with their answers."""
    pairs = [(first, second) for first in range(2, 10) for second in range(2, 8)]
    return [
        {"prompt": f"What is {first} + {second}? Put the answer in \\boxed{{}}.", "answer": str(first + second)}
        for first, second in pairs
    ]


def run_of(planted: Planted, base: Mapping, seed: int, folder: Path) -> Run:
    """Return the run of a fault or a healthy one. base: settings of all runs of its kind."""
    settings = {**base, **planted.settings, "seed": seed, "run_dir": str(folder)}
    if settings["task"] == "custom":
        data = folder / "own.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in own_rows()))
        settings["data"] = str(data)
    return make_run(settings)


def trainer_of(planted: Planted, run: Run) -> GRPOTrainer:
    """Load the model anew, and return the trainer of a run with its fault."""
    config = run.config
    rewards = run.reward_funcs
    if planted.reward is not None:
        rewards = [planted.reward(run)]
        config = replace(config, reward_weights=None)
    profile = run.profile
    model, tokenizer = load_model(profile=profile, plan=config.memory_plan(profile))
    model = add_lora(model, r=profile.lora_r, alpha=profile.lora_alpha, targets=profile.lora_targets, seed=run.seed)
    engine = engine_of(planted.engine, model, tokenizer, config)
    task = run.task if planted.has_task else None
    return GRPOTrainer(model, rewards, config, run.train_dataset, tokenizer, task=task, engine=engine)


def engine_of(make: Callable[..., RolloutEngine], model: torch.nn.Module, tokenizer, config: GRPOConfig):
    """Return an engine for the lengths and the batch of a run, as the trainer makes its own."""
    return make(
        model,
        tokenizer,
        max_batch_size=config.generation_batch_size,
        max_length=config.max_length,
        chat_template_kwargs=config.chat_template_kwargs,
    )


def events_of(rows: Sequence[dict], error: str | None) -> list[Event]:
    """Return what a run said. rows: its metrics. error: what it ended with, None where it ended well."""
    events = []
    for row in rows:
        alarms = zip(row["monitor/alarms"], row["monitor/signs"], strict=True)
        events += [Event(row["step"], name, sentence) for name, sentence in alarms]
    if error is None:
        return events
    last = rows[-1]["step"] if rows else 0
    is_of_an_alarm = any(event.step == last and error.startswith(event.sentence) for event in events)
    return events if is_of_an_alarm else [*events, Event(last + 1, ERROR, error)]


def train(planted: Planted, base: Mapping, seed: int, rows_to: Path | None) -> dict:
    """Run one fault, or a healthy run, with one seed; return what came of it. rows_to: keeps its metrics there."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = run_of(planted, base, seed, Path(folder))
        error = error_of(planted, trainer_of(planted, run), to_the_end=rows_to is not None)
        metrics = Path(run.config.output_dir) / "metrics.jsonl"
        rows = read_metrics(metrics)
        if rows_to is not None:
            shutil.copy(metrics, rows_to / f"{planted.name.replace(' ', '-')}-{seed}.jsonl")
        resumed = resume_with_a_sound_reward(planted, run) if planted.reward is RaisingReward else {}
    seconds = time.monotonic() - started
    return verdict(planted, events_of(rows, error)) | {
        "name": planted.name,
        "seed": seed,
        "steps": len(rows),
        "seconds": round(seconds, 1),
        **resumed,
    }


def error_of(planted: Planted, trainer: GRPOTrainer, to_the_end: bool) -> str | None:
    """Train, and return the sentence of the error that ended it, None where there was none.

    to_the_end: go on after a right alarm.
    """
    try:
        with closing(trainer.steps()) as steps:
            for step in steps:
                is_noticed = any(map(planted.is_right, events_of([step.metrics], error=None)))
                if is_noticed and not to_the_end:
                    break
    except UserError as error:
        return str(error)
    return None


def resume_with_a_sound_reward(planted: Planted, run: Run) -> dict[str, int]:
    """Take the step that a reward broke off; return how many steps were taken for it, and generations drawn."""
    sound = replace(planted, engine=CountingEngine, reward=PlantedReward)
    trainer = trainer_of(sound, replace(run, grpo={**run.grpo, "max_steps": FIRST_RAISE}))
    trainer.train(resume_from_checkpoint=True)
    return {"steps_taken_again": len(trainer.state.log_history), "draws_again": trainer.engine.draws}


def verdict(planted: Planted, events: Sequence[Event]) -> dict:
    """Return the first right alarm, the wrong ones before it, and all of them, as plain values."""
    right = next((event for event in events if planted.is_right(event)), None)
    before = events if right is None else [event for event in events if event.step < right.step]
    wrong = [event for event in before if not planted.is_right(event)]
    return {
        "right": right and right._asdict(),
        "wrong": [event._asdict() for event in wrong],
        "events": [event._asdict() for event in events],
    }


# The table


def table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def fault_table(results: Sequence[dict]) -> str:
    """Return one row a fault: the steps of the first right alarm for each seed, wrong alarms, and the sentence."""
    rows = []
    for name in dict.fromkeys(result["name"] for result in results):
        of_the_fault = [result for result in results if result["name"] == name]
        rights = [result["right"] for result in of_the_fault]
        steps = ", ".join(str(right["step"]) if right else "never" for right in rights)
        alarms = dict.fromkeys(right["name"] for right in rights if right)
        sentence = next((right["sentence"] for right in rights if right), "")
        again = [f" Taken again: {result['steps_taken_again']} steps, drawn again: {result['draws_again']}."
                 for result in of_the_fault if "draws_again" in result][:1]  # fmt: skip
        rows.append((name, steps, ", ".join(alarms), in_short(of_the_fault, "wrong"), sentence + "".join(again)))
    return table(("fault", "noticed in step", "by", "wrong alarms before", "sentence"), rows)


def healthy_table(results: Sequence[dict]) -> str:
    """Return one row a run: its alarms, of which there should be none."""
    rows = [(result["name"], result["seed"], result["steps"], in_short([result], "events")) for result in results]
    return table(("healthy run", "seed", "steps", "alarms"), rows)


def in_short(results: Sequence[dict], kind: str) -> str:
    """Return the names of the events of a kind, "wrong" or "events", with the first step and seed of each."""
    firsts = {}
    for result in results:
        for event in result[kind]:
            what = event["sentence"] if event["name"] == ERROR else event["name"]
            firsts.setdefault(what, f"{what} (step {event['step']}, seed {result['seed']})")
    return "; ".join(firsts.values()) or "none"


def chosen_faults(names: str | None) -> list[Planted]:
    """Return the faults of some names with commas between them; all of them for None, none for ""."""
    if names is None:
        return list(FAULTS)
    by_name = {fault.name: fault for fault in FAULTS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in by_name:
            raise SystemExit(f"There is no fault '{name}': choose from {', '.join(by_name)}.")
    return [by_name[name] for name in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--healthy-lr0", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--out", default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.rows is not None:
        arguments.rows.mkdir(parents=True, exist_ok=True)
    faults = chosen_faults(arguments.faults)
    healthy = [*HEALTHY_RUNS] if arguments.healthy else []
    if arguments.healthy_lr0:
        healthy.append((UNMOVED, 1))
    record = Record(arguments.out, threads=torch.get_num_threads())
    with redirect_stdout(sys.stderr):  # what loading and training say is no part of the table
        for fault in faults:
            for seed in range(arguments.seeds):
                record.add({"kind": "fault", **train(fault, FAULTY, seed, arguments.rows)})
        for planted, seeds in healthy:
            for seed in range(min(seeds, arguments.seeds)):
                record.add({"kind": "healthy", **train(planted, HEALTHY, seed, arguments.rows)})
    if faults:
        print(fault_table([row for row in record.rows if row["kind"] == "fault"]))
    if healthy:
        print(healthy_table([row for row in record.rows if row["kind"] == "healthy"]))


if __name__ == "__main__":
    main()
