"""One step of GRPO on the CPU: this project's trainer against TRL's.

    python -m tests.benchmarks.trl_step [--steps 6] [--threads 1] [--out file.json]

Needs TRL, which the project does not: pip install trl==1.16.0 -c constraints.txt

The same embedded model in fp32, the same prompts, the same settings and a LoRA adapter of the same size on both sides.
A step draws 64 completions, 8 of each of 8 prompts, rewards them and moves the adapter once. The reward is the number
of distinct characters in a completion, which costs nothing, so that only the trainers count.

Ours is the project as it comes. TRL trains stock transformers under stock PEFT and draws with `generate`; with its
load-balancing loss off, as ours has none. It may choose the implementation of the experts: in the first rounds it tries
each twice, and the quickest stays.

One thread on both sides: with more, a machine that others use, too, is slow in a way that says nothing of a trainer.
Processor seconds stand beside the seconds, as they do not count the work of others.

In each round TRL takes one step, then ours. The first rounds are not counted. Neither side logs or saves. The
completions are drawn at random and differ, and so does their number of tokens: seconds for 1,000 tokens allow for that.
Ratios are of steps of one round.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec

import torch
import transformers
from peft import LoraConfig
from torch import nn
from transformers import PrinterCallback, TrainerCallback

from helpers import GRPOConfig, GRPOTrainer, add_lora, get_task, load_model, text_table
from helpers.environment import hardware, installed_version, versions
from helpers.grpo.batch import prompt_indices
from helpers.model.export import MATRICES
from helpers.model.load import ATTENTION_PROJECTIONS
from helpers.profiles import PROFILES
from helpers.runtime import write_whole
from tests.benchmarks.rollout import stock_model

PROFILE = replace(PROFILES["tiny"], dense="fp32")
RANK, ALPHA = 8, 16
PROMPTS, GROUP = 8, 8
#: In both trainers, under the same names.
SETTINGS = {
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
    "num_generations": GROUP,
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 4,
    "gradient_checkpointing": False,
    "num_iterations": 1,
    "max_completion_length": 200,
    "temperature": 1.0,
    "beta": 0.0,
    "loss_type": "dapo",
    "scale_rewards": "group",
    "chat_template_kwargs": {"reasoning_effort": PROFILE.reasoning_effort},
    "seed": 42,
}
#: Implementations of the experts in transformers that TRL tries, each so many times.
EXPERTS = ("eager", "grouped_mm")
TRIALS = 2
#: Rounds that are not counted.
FIRST = TRIALS * len(EXPERTS)
#: Mean lengths of completions may differ by this share before the report says that the times do not compare.
SIMILAR = 0.1


@dataclass
class Step:
    """What one step took. cpu: seconds of processor time. update: all but drawing the completions."""

    seconds: float
    cpu: float
    generate: float
    tokens: int
    longest: int

    @property
    def update(self) -> float:
        return self.seconds - self.generate

    @property
    def seconds_per_1000(self) -> float:
        return 1e3 * self.seconds / self.tokens

    @property
    def mean_length(self) -> float:
        return self.tokens / (PROMPTS * GROUP)


@dataclass
class DistinctCharacters:
    """The reward: the number of distinct characters of a completion. Notes the lengths of the last completions."""

    __name__ = "distinct_characters"
    lengths: list[int] = field(default_factory=list)

    def __call__(self, completions: list, completion_ids: list, **_) -> list[float]:
        self.lengths = [len(ids) for ids in completion_ids]
        assert len(self.lengths) == PROMPTS * GROUP
        return [float(len(set(c[0]["content"] + c[0].get("thinking", "")))) for c in completions]


class OurSteps:
    """This project's trainer, a step at a time."""

    def __init__(self, folder: str, rounds: int):
        torch.manual_seed(0)
        model, tokenizer = load_model(profile=PROFILE)
        self.reward = DistinctCharacters()
        config = GRPOConfig(folder, max_steps=rounds, **SETTINGS)
        self.trainer = GRPOTrainer(
            add_lora(model, RANK, ALPHA), self.reward, config, dataset(), processing_class=tokenizer
        )
        self.tokenizer = tokenizer

    def take(self, number: int) -> Step:
        """One step, on the prompts of that number."""
        started, worked = time.perf_counter(), time.process_time()
        generation = self.trainer.generate(number)
        self.trainer.step(self.trainer.backward(generation))
        seconds, cpu = time.perf_counter() - started, time.process_time() - worked
        lengths = self.reward.lengths
        return Step(seconds, cpu, generation.metrics["time/generate"], sum(lengths), max(lengths))


@dataclass
class Turns(TrainerCallback):
    """Chooses the experts of TRL's next step, times the step, and then lets ours take one.

    Each of `rounds` is {"experts", "trl", "ours"}. drawing: seconds that TRL has drawn completions in this step.
    """

    model: nn.Module
    ours: OurSteps
    reward: DistinctCharacters
    rounds: list[dict] = field(default_factory=list)
    drawing: float = 0.0
    started: float = 0.0
    worked: float = 0.0

    def next_experts(self) -> str:
        number = len(self.rounds)
        return EXPERTS[number // TRIALS] if number < FIRST else quickest_experts(self.rounds)

    def on_step_begin(self, args, state, control, **_) -> None:
        experts = self.next_experts()
        self.model.set_experts_implementation(experts)
        assert self.model.config._experts_implementation == experts
        self.drawing = 0.0
        self.started, self.worked = time.perf_counter(), time.process_time()

    def on_step_end(self, args, state, control, **_) -> None:
        seconds, cpu = time.perf_counter() - self.started, time.process_time() - self.worked
        trl = Step(seconds, cpu, self.drawing, sum(self.reward.lengths), max(self.reward.lengths))
        ours = self.ours.take(len(self.rounds))
        experts = self.next_experts()
        self.rounds.append({"experts": experts, "trl": trl, "ours": ours})
        print(f"round {len(self.rounds)}: TRL ({experts}) {trl.seconds:.1f} s, ours {ours.seconds:.1f} s", flush=True)

    def time_drawing(self, draw: Callable) -> Callable:
        """Wrap what draws completions."""

        def timed(*arguments):
            started = time.perf_counter()
            drawn = draw(*arguments)
            self.drawing += time.perf_counter() - started
            return drawn

        return timed


def quickest_experts(rounds: list[dict]) -> str:
    """Those of the trial with the fewest processor seconds for a token."""
    return min(rounds[:FIRST], key=lambda done: done["trl"].cpu / done["trl"].tokens)["experts"]


def dataset():
    return get_task("matmul").dataset("train").select_columns("prompt")


def trainable(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def take_turns(folder: str, steps: int) -> tuple[list[dict], int]:
    """All rounds, and the values in each adapter."""
    from trl import GRPOConfig as TrlConfig
    from trl import GRPOTrainer as TrlTrainer

    count = FIRST + steps
    ours = OurSteps(f"{folder}/ours", count)
    rows = dataset()
    # the prompts of our steps, in their order
    chosen = [row for number in range(count) for row in prompt_indices(number, PROMPTS, len(rows), SETTINGS["seed"])]
    model = stock_model("eager", None)
    lora = LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        target_modules=list(ATTENTION_PROJECTIONS), target_parameters=[f"mlp.experts.{name}" for name in MATRICES],
    )  # fmt: skip
    config = TrlConfig(
        f"{folder}/trl", **SETTINGS, max_steps=count, use_cpu=True, bf16=False, use_vllm=False, shuffle_dataset=False,
        router_aux_loss_coef=0.0, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    turns = Turns(model, ours, DistinctCharacters())
    trainer = TrlTrainer(
        model, turns.reward, config, rows.select(chosen), processing_class=ours.tokenizer, callbacks=[turns],
        peft_config=lora,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer._generate = turns.time_drawing(trainer._generate)
    size = trainable(trainer.model)
    assert size == trainable(ours.trainer.model), (size, trainable(ours.trainer.model))
    trainer.train()
    assert len(turns.rounds) == count
    return turns.rounds, size


def summary(rounds: list[dict]) -> dict:
    """Medians of each side over the rounds that count, and TRL's times as multiples of ours."""
    measures = ("seconds", "cpu", "generate", "update", "tokens", "mean_length", "longest", "seconds_per_1000")
    found = {
        side: {name: statistics.median(getattr(done[side], name) for done in rounds) for name in measures}
        for side in ("trl", "ours")
    }
    for name in ("seconds", "cpu", "generate", "update", "seconds_per_1000"):
        ratios = [getattr(done["trl"], name) / getattr(done["ours"], name) for done in rounds]
        found.setdefault("trl_to_ours", {})[name] = {
            "median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)
        }  # fmt: skip
    means = [statistics.mean(done[side].mean_length for done in rounds) for side in ("trl", "ours")]
    found["length_ratio"] = means[0] / means[1]
    return found


def run(steps: int) -> dict:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rounds, size = take_turns(folder, steps)
    return {
        "hardware": hardware(),
        "versions": versions() | {"trl": installed_version("trl")},
        "threads": torch.get_num_threads(),
        "load_before_and_after": [load, os.getloadavg()[0]],
        "settings": SETTINGS,
        "reward": DistinctCharacters().__name__,
        "adapter_values": size,
        "trl_experts": quickest_experts(rounds),
        "first_rounds": plain(rounds[:FIRST]),
        "rounds": plain(rounds[FIRST:]),
        **summary(rounds[FIRST:]),
    }


def plain(rounds: list[dict]) -> list[dict]:
    """As JSON has it."""
    return [{**done, "trl": asdict(done["trl"]), "ours": asdict(done["ours"])} for done in rounds]


def show(result: dict) -> None:
    before, after = result["load_before_and_after"]
    print(result["hardware"], result["versions"])
    print(f"{len(result['rounds'])} steps of each, on {result['threads']} thread(s), load {before:.1f} before and "
          f"{after:.1f} after; TRL with {result['trl_experts']} experts; {result['adapter_values']:,} values in each "
          f"adapter; reward {result['reward']}")  # fmt: skip
    labels = {
        "seconds": "seconds a step", "generate": "of them generating", "update": "of them all else",
        "cpu": "processor seconds a step",
        "tokens": "tokens drawn a step", "mean_length": "mean length", "longest": "longest",
        "seconds_per_1000": "seconds for 1,000 tokens",
    }  # fmt: skip
    rows = []
    for name, label in labels.items():
        ratio = result["trl_to_ours"].get(name)
        shown = "{median:.2f} ({lowest:.2f} to {highest:.2f})".format(**ratio) if ratio else ""
        rows.append((label, *(f"{result[side][name]:.2f}" for side in ("trl", "ours")), shown))
    print(text_table(rows, ["median", "TRL", "ours", "TRL / ours, median (range)"]))
    similar = abs(result["length_ratio"] - 1) <= SIMILAR
    print(f"TRL's completions are {result['length_ratio']:.2f} times as long as ours on average"
          + ("." if similar else ": compare the seconds for 1,000 tokens, not the seconds a step."))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if find_spec("trl") is None:
        sys.exit("This benchmark needs TRL, which is not installed: pip install trl==1.16.0 -c constraints.txt")
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    result = run(arguments.steps)
    show(result)
    if arguments.out:
        write_whole(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
