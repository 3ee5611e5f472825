"""GRPO on the CPU: this project's trainer against TRL's, in seconds, in memory, and in what they learn.

    python -m tests.benchmarks.grpo_step [--steps 6] [--threads 2] [--out file.json]
    python -m tests.benchmarks.grpo_step --curves [--seeds 3] [--steps 40] [--threads 2] --out file.json

Needs TRL, which the project does not; `make test-trl` sets up .venv-trl with it.

The same embedded model in fp32, the same prompts in the same order, the same settings and a LoRA adapter of the same
size on attention and experts on both sides. A step draws 64 completions, 8 of each of 8 prompts, rewards them and moves
the adapter once. Neither side logs or saves. Ours is the project as it comes. TRL trains stock transformers under stock
PEFT and draws with `generate`; with its load-balancing loss off, as ours has none.

Seconds. In each round TRL takes one step, then ours, in one process. The reward is the number of distinct characters of
a completion, and its seconds are taken off on both sides, so that only the trainers count. TRL may choose the
implementation of the experts and the cache: in the first rounds it tries each combination twice, the quickest stays,
and those rounds are not counted. The completions are drawn at random and differ, and so does their number of tokens:
seconds for 1,000 tokens allow for that. Ratios are of steps of one round. Processor seconds stand beside the seconds,
as they do not count the work of others on the same machine.

Memory. Each side takes its steps alone, in a process of its own, TRL in its quickest way. When the trainer is made, the
kernel's mark of the largest resident size (VmHWM) is set back by way of /proc/self/clear_refs, so that loading does not
count; after the last step it is read.

Curves. Each side trains alone, once for each seed, on the task's own prompts with the task's own score as the reward.
It is computed from the token ids by one function, as TRL leaves Harmony's channels in the text. The mean score of each
step goes into the file, and a plot beside it, in which all runs share their axes.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

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
from helpers.rollout.completion import Completion
from helpers.rollout.harmony import Harmony
from helpers.runtime import ROOT, write_whole
from helpers.tasks import Task
from tests.benchmarks.models import embedded_tokenizer
from tests.benchmarks.rollout import stock_model
from tests.process import restart_peak, status

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
#: What differs where curves are drawn: a run of a few dozen steps has to learn something.
CURVES = {"learning_rate": PROFILE.learning_rate}
#: Ways of TRL: implementation of the experts and cache of `generate` (None: the growing one). Each is tried so often.
#: "batched_mm" is not among them: its update copies the experts' weights for every token, and a step takes 80 s.
WAYS = tuple(itertools.product(("eager", "grouped_mm"), (None, "static")))
TRIALS = 2
#: Rounds that are not counted.
FIRST = TRIALS * len(WAYS)
#: Steps in which the memory is measured.
MEMORY_STEPS = 3
SIDES = ("trl", "ours")
#: Mean lengths of completions may differ by this share before the report says that the times do not compare.
SIMILAR = 0.1


@dataclass
class Step:
    """What one step took, without the reward. cpu: seconds of processor time. update: all but drawing completions."""

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


class Clock:
    """Seconds and processor seconds since it was made."""

    def __init__(self):
        self.started = time.perf_counter()
        self.worked = time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.started, time.process_time() - self.worked


@dataclass
class Reward:
    """A reward that notes what it saw in the last step.

    lengths: of the completions. seconds, cpu: of the call. mean: of the values.
    """

    lengths: list[int] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    mean: float = 0.0

    def __call__(self, completion_ids: list, **columns) -> list[float]:
        clock = Clock()
        values = self.score(completion_ids=completion_ids, **columns)
        self.lengths = [len(ids) for ids in completion_ids]
        assert len(self.lengths) == PROMPTS * GROUP
        self.mean = statistics.mean(values)
        self.seconds, self.cpu = clock.read()
        return values


class DistinctCharacters(Reward):
    """The number of distinct characters of a completion."""

    __name__ = "distinct_characters"

    def score(self, completions: list, **_) -> list[float]:
        texts = [completion[0]["content"] + completion[0].get("thinking", "") for completion in completions]
        return [float(len(set(text))) for text in texts]


class TaskScore(Reward):
    """A task's score of what the token ids say."""

    __name__ = "task_score"

    def __init__(self, task: Task, names: list[str]):
        """names: the columns of the data set."""
        super().__init__()
        self.task = task
        self.names = [name for name in names if name != "prompt"]
        self.harmony = Harmony(embedded_tokenizer())

    def score(self, prompts: list, completion_ids: list[list[int]], **columns) -> list[float]:
        rows = []
        completions = []
        for number, ids in enumerate(completion_ids):
            row = {name: columns[name][number] for name in self.names}
            rows.append(row | {"prompt": prompts[number]})
            completions.append(Completion([], list(ids), [0.0] * len(ids), *self.harmony.parse(list(ids))))
        return [float(grade.score) for grade in self.task.grade(rows, completions)]


class OurSteps:
    """This project's trainer, a step at a time."""

    def __init__(self, folder: str, steps: int, reward: Reward, rows, **settings):
        settings = SETTINGS | settings
        torch.manual_seed(settings["seed"])
        model, self.tokenizer = load_model(profile=PROFILE)
        self.reward = reward
        config = GRPOConfig(folder, max_steps=steps, no_signal_steps=None, **settings)
        self.trainer = GRPOTrainer(add_lora(model, RANK, ALPHA), reward, config, rows, processing_class=self.tokenizer)

    def take(self, number: int) -> Step:
        """One step, on the prompts of that number."""
        clock = Clock()
        generation = self.trainer.generate(number)
        self.trainer.step(self.trainer.backward(generation))
        drawing = generation.metrics["time/generate"]
        return measured(clock, self.reward, drawing)


def measured(clock: Clock, reward: Reward, drawing: float) -> Step:
    """The step that ends now, without its reward. drawing: seconds that it drew completions."""
    seconds, cpu = clock.read()
    lengths = reward.lengths
    return Step(seconds - reward.seconds, cpu - reward.cpu, drawing, sum(lengths), max(lengths))


@dataclass
class TrlSteps(TrainerCallback):
    """TRL's trainer, with something to do before and after each step.

    way: number of the step -> implementation of the experts and cache. after: called with the number of a step and what
    it took.
    """

    way: Callable[[int], tuple[str, str | None]]
    after: Callable[[int, Step], None]
    reward: Reward
    number: int = 0
    drawing: float = 0.0
    clock: Clock = field(default_factory=Clock)

    def make(self, folder: str, steps: int, rows, **settings):
        """Make the trainer; returns it."""
        from trl import GRPOConfig as TrlConfig
        from trl import GRPOTrainer as TrlTrainer

        settings = SETTINGS | settings
        # the prompts of our steps, in their order
        chosen = []
        for number in range(steps):
            chosen += prompt_indices(number, PROMPTS, len(rows), settings["seed"])
        self.model = stock_model("eager", None)
        torch.manual_seed(settings["seed"])
        lora = LoraConfig(
            r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
            target_modules=list(ATTENTION_PROJECTIONS),
            target_parameters=[f"mlp.experts.{name}" for name in MATRICES],
        )  # fmt: skip
        config = TrlConfig(
            folder, **settings, max_steps=steps, use_cpu=True, bf16=False, use_vllm=False, shuffle_dataset=False,
            router_aux_loss_coef=0.0, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False,
        )  # fmt: skip
        self.trainer = TrlTrainer(
            self.model, self.reward, config, rows.select(chosen), processing_class=embedded_tokenizer(),
            callbacks=[self], peft_config=lora,
        )  # fmt: skip
        self.trainer.remove_callback(PrinterCallback)
        self.trainer._generate = self.time_drawing(self.trainer._generate)
        return self.trainer

    def on_step_begin(self, args, state, control, **_) -> None:
        experts, cache = self.way(self.number)
        self.model.set_experts_implementation(experts)
        assert self.model.config._experts_implementation == experts
        self.trainer.generation_config.cache_implementation = cache
        self.drawing = 0.0
        self.clock = Clock()

    def on_step_end(self, args, state, control, **_) -> None:
        step = measured(self.clock, self.reward, self.drawing)
        self.after(self.number, step)
        self.number += 1

    def time_drawing(self, draw: Callable) -> Callable:
        """Wrap what draws completions."""

        def timed(*arguments):
            started = time.perf_counter()
            drawn = draw(*arguments)
            self.drawing += time.perf_counter() - started
            return drawn

        return timed


class Turns:
    """Rounds in which both take a step. Each is {"way", "trl", "ours"}."""

    def __init__(self, ours: OurSteps):
        self.ours = ours
        self.rounds: list[dict] = []

    def way(self, number: int) -> tuple[str, str | None]:
        """Of TRL's step of that number."""
        return WAYS[number // TRIALS] if number < FIRST else quickest_way(self.rounds)

    def take_ours(self, number: int, trl: Step) -> None:
        """After a step of TRL's: let ours take one."""
        ours = self.ours.take(number)
        way = self.way(number)
        self.rounds.append({"way": way, "trl": trl, "ours": ours})
        print(f"round {number + 1}: TRL ({shown(way)}) {trl.seconds:.1f} s, ours {ours.seconds:.1f} s", flush=True)


def shown(way: tuple[str, str | None]) -> str:
    experts, cache = way
    return f"{experts} experts, {cache or 'growing'} cache"


def quickest_way(rounds: list[dict]) -> tuple[str, str | None]:
    """That of the trial with the fewest processor seconds for a token."""
    return min(rounds[:FIRST], key=lambda done: done["trl"].cpu / done["trl"].tokens)["way"]


def prompts_only():
    return get_task("matmul").dataset("train").select_columns("prompt")


def trainable(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def take_turns(folder: str, steps: int) -> tuple[list[dict], int]:
    """All rounds, and the values in each adapter."""
    count = FIRST + steps
    rows = prompts_only()
    ours = OurSteps(f"{folder}/ours", count, DistinctCharacters(), rows)
    turns = Turns(ours)
    trl = TrlSteps(turns.way, turns.take_ours, DistinctCharacters())
    trainer = trl.make(f"{folder}/trl", count, rows)
    size = trainable(trainer.model)
    assert size == trainable(ours.trainer.model), (size, trainable(ours.trainer.model))
    trainer.train()
    assert len(turns.rounds) == count
    return turns.rounds, size


def train_alone(side: str, steps: int, reward: Reward, rows, way: tuple[str, str | None], **settings) -> dict:
    """Let one side train in this process: bytes before the first step and at the most, and the mean reward of each."""
    rewards = []
    with tempfile.TemporaryDirectory() as folder:
        if side == "trl":
            alone = TrlSteps(lambda number: way, lambda number, step: rewards.append(reward.mean), reward)
            trainer = alone.make(folder, steps, rows, **settings)
        else:
            ours = OurSteps(folder, steps, reward, rows, **settings)
        before = status("VmRSS")
        restart_peak()
        if side == "trl":
            trainer.train()
        else:
            for number in range(steps):
                ours.take(number)
                rewards.append(reward.mean)
    return {"before": before, "peak": status("VmHWM"), "rewards": rewards}


def in_own_process(side: str, steps: int, threads: int, way: tuple[str, str | None], seed: int | None = None) -> dict:
    """`train_alone` in a process of its own. seed: of a run for the curves; None for one that measures memory."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "alone.json"
        command = [sys.executable, "-m", "tests.benchmarks.grpo_step", "--alone", side, "--steps", str(steps)]
        command += ["--threads", str(threads), "--way", json.dumps(way), "--out", str(out)]
        if seed is not None:
            command += ["--seed", str(seed)]
        subprocess.run(command, cwd=ROOT, check=True)
        return json.loads(out.read_text())


def run_alone(side: str, steps: int, way: tuple[str, str | None], seed: int | None) -> dict:
    """What the process of `in_own_process` does."""
    if seed is None:
        return train_alone(side, steps, DistinctCharacters(), prompts_only(), way)
    task = get_task("matmul")
    rows = task.dataset("train")
    try:
        return train_alone(side, steps, TaskScore(task, rows.column_names), rows, way, seed=seed, **CURVES)
    finally:
        task.close()


def summary(rounds: list[dict]) -> dict:
    """Medians of each side over the rounds that count, and TRL's times as multiples of ours."""
    measures = ("seconds", "cpu", "generate", "update", "tokens", "mean_length", "longest", "seconds_per_1000")
    found = {
        side: {name: statistics.median(getattr(done[side], name) for done in rounds) for name in measures}
        for side in SIDES
    }
    for name in ("seconds", "cpu", "generate", "update", "seconds_per_1000"):
        ratios = [getattr(done["trl"], name) / getattr(done["ours"], name) for done in rounds]
        found.setdefault("trl_to_ours", {})[name] = {
            "median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)
        }  # fmt: skip
    means = [statistics.mean(done[side].mean_length for done in rounds) for side in SIDES]
    found["length_ratio"] = means[0] / means[1]
    return found


def about() -> dict:
    """What both kinds of results begin with."""
    return {
        "hardware": hardware(),
        "versions": versions() | {"trl": installed_version("trl")},
        "threads": torch.get_num_threads(),
        "settings": SETTINGS,
    }


def run(steps: int) -> dict:
    """Measure seconds and memory."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rounds, size = take_turns(folder, steps)
    way = quickest_way(rounds)
    memory = {}
    for side in SIDES:
        alone = in_own_process(side, min(steps, MEMORY_STEPS), torch.get_num_threads(), way)
        memory[side] = {"before": alone["before"], "peak": alone["peak"]}
    return {
        **about(),
        "load_before_and_after": [load, os.getloadavg()[0]],
        "reward": DistinctCharacters.__name__,
        "adapter_values": size,
        "trl_way": way,
        "memory": memory,
        "first_rounds": plain(rounds[:FIRST]),
        "rounds": plain(rounds[FIRST:]),
        **summary(rounds[FIRST:]),
    }


def plain(rounds: list[dict]) -> list[dict]:
    """As JSON has it."""
    return [{**done, "trl": asdict(done["trl"]), "ours": asdict(done["ours"])} for done in rounds]


def run_curves(steps: int, seeds: int, out: str | None) -> dict:
    """Train both sides once for each seed; the file is written after each run."""
    result = {**about(), "reward": TaskScore.__name__, "rewards": {side: {} for side in SIDES}}
    result["settings"] = SETTINGS | CURVES
    for seed in range(SETTINGS["seed"], SETTINGS["seed"] + seeds):
        for side in SIDES:
            way = ("grouped_mm", None)
            alone = in_own_process(side, steps, torch.get_num_threads(), way, seed)
            result["rewards"][side][str(seed)] = alone["rewards"]
            if out:
                write_result(out, result)
                plot_curves(result["rewards"], Path(out).with_suffix(".png"))
    return result


def plot_curves(rewards: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Draw the mean reward of each step: thin for a seed, thick for the mean over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for side, colour, label in (("trl", "#c2410c", "TRL 1.16"), ("ours", "#1b7f5c", "this project")):
        runs = list(rewards[side].values())
        for curve in runs:
            axis.plot(range(1, len(curve) + 1), curve, color=colour, alpha=0.35, lw=0.8)
        if runs:
            mean = [statistics.mean(values) for values in zip(*runs)]
            axis.plot(range(1, len(mean) + 1), mean, color=colour, lw=2, label=f"{label}, mean of {len(runs)} seeds")
    axis.set_xlabel("step")
    axis.set_ylabel("mean score of the task")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def show(result: dict) -> None:
    before, after = result["load_before_and_after"]
    print(result["hardware"], result["versions"])
    print(f"{len(result['rounds'])} steps of each, on {result['threads']} thread(s), load {before:.1f} before and "
          f"{after:.1f} after; TRL with {shown(result['trl_way'])}; {result['adapter_values']:,} values in each "
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
        in_words = "{median:.2f} ({lowest:.2f} to {highest:.2f})".format(**ratio) if ratio else ""
        rows.append((label, *(f"{result[side][name]:.2f}" for side in SIDES), in_words))
    for name, label in (("before", "MB before the first step"), ("peak", "MB at the most")):
        sizes = [result["memory"][side][name] for side in SIDES]
        rows.append((label, *(f"{size / 1e6:.0f}" for size in sizes), f"{sizes[0] / sizes[1]:.2f}"))
    print(text_table(rows, ["median", "TRL", "ours", "TRL / ours, median (range)"]))
    similar = abs(result["length_ratio"] - 1) <= SIMILAR
    print(f"TRL's completions are {result['length_ratio']:.2f} times as long as ours on average"
          + ("." if similar else ": compare the seconds for 1,000 tokens, not the seconds a step."))  # fmt: skip


def show_curves(result: dict) -> None:
    """Print the mean score of the first and of the last steps."""
    rows = []
    for side in SIDES:
        for seed, curve in result["rewards"][side].items():
            tenth = max(1, len(curve) // 10)
            rows.append((side, seed, f"{statistics.mean(curve[:tenth]):.3f}", f"{statistics.mean(curve[-tenth:]):.3f}"))
    print(text_table(rows, ["side", "seed", "first tenth of the steps", "last tenth"]))


def write_result(path: str, result: dict) -> None:
    write_whole(path, json.dumps(result, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, help="6; with --curves 40")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out")
    # of the processes that this one starts
    parser.add_argument("--alone", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--way", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if find_spec("trl") is None:
        sys.exit("This benchmark needs TRL, which is not installed here: make test-trl sets up .venv-trl with it.")
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.alone:
        result = run_alone(arguments.alone, arguments.steps, arguments.way, arguments.seed)
    elif arguments.curves:
        result = run_curves(arguments.steps or 40, arguments.seeds, arguments.out)
        show_curves(result)
    else:
        result = run(arguments.steps or 6)
        show(result)
    if arguments.out:
        write_result(arguments.out, result)


if __name__ == "__main__":
    main()
