r"""Scripts of TRL's documentation, run here with only the lines of imports, model, adapter and data changed.

The originals are those of TRL 1.16: its GRPO page ("Quick start") and its quickstart page; the latter's script is older
than the trainer and calls reward_funcs "reward_function".
"""

import contextlib
import re
from pathlib import Path

import pytest

from helpers import read_metrics

#: What may be changed: imports, the model and its adapter, and the data.
MAY_DIFFER = re.compile(r"from |import |dataset = |    (model|peft_config|train_dataset)=")

QUICK_START = (
    """
from datasets import load_dataset
from trl import GRPOTrainer
from trl.rewards import accuracy_reward

dataset = load_dataset("trl-lib/DeepMath-103K", split="train")

trainer = GRPOTrainer(
    model="Qwen/Qwen2-0.5B-Instruct",
    reward_funcs=accuracy_reward,
    train_dataset=dataset,
)
trainer.train()
""",
    """
from peft import LoraConfig
from helpers import GRPOTrainer, get_task, load_model
from helpers.gallery.math.rewards import math_answer as accuracy_reward

dataset = get_task("math").dataset("train", 1000)

trainer = GRPOTrainer(
    model=load_model()[0],
    peft_config=LoraConfig(r=8, lora_alpha=16),
    reward_funcs=accuracy_reward,
    train_dataset=dataset,
)
trainer.train()
""",
)
EXAMPLE = (
    """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

dataset = load_dataset("trl-lib/tldr", split="train")

# Define the reward function, which rewards completions that are close to 20 characters
def reward_len(completions, **kwargs):
    return [-abs(20 - len(completion)) for completion in completions]

training_args = GRPOConfig(output_dir="Qwen2-0.5B-GRPO", logging_steps=10)
trainer = GRPOTrainer(
    model="Qwen/Qwen2-0.5B-Instruct",
    reward_funcs=reward_len,
    args=training_args,
    train_dataset=dataset,
)
trainer.train()
""",
    """
from datasets import Dataset
from peft import LoraConfig
from helpers import GRPOConfig, GRPOTrainer, load_model

dataset = Dataset.from_list([{"prompt": "Sum up: Tom has 3 cows and 4 goats."}, {"prompt": "Sum up: it rains."}])

# Define the reward function, which rewards completions that are close to 20 characters
def reward_len(completions, **kwargs):
    return [-abs(20 - len(completion)) for completion in completions]

training_args = GRPOConfig(output_dir="Qwen2-0.5B-GRPO", logging_steps=10)
trainer = GRPOTrainer(
    model=load_model()[0],
    peft_config=LoraConfig(r=8, lora_alpha=16),
    reward_funcs=reward_len,
    args=training_args,
    train_dataset=dataset,
)
trainer.train()
""",
)
README = Path(__file__).parents[2] / "helpers" / "grpo" / "README.md"


def kept_lines(script):
    return [line for line in script.splitlines() if not MAY_DIFFER.match(line)]


@pytest.mark.parametrize("scripts", [QUICK_START, EXAMPLE], ids=["quick start", "example"])
def test_only_such_lines_are_changed(scripts):
    """The promise would be empty if a script had to be rewritten."""
    original, ours = scripts
    assert kept_lines(ours) == kept_lines(original)
    assert len(kept_lines(original)) > 3


def test_the_readme_shows_the_quick_start():
    assert QUICK_START[1].strip() in README.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quick start", "example"])
def test_the_script_runs_to_its_end(tmp_path, name):
    """A hundred steps, as the defaults have it."""
    scripts = {"quick start": (QUICK_START[1], "trainer_output"), "example": (EXAMPLE[1], "Qwen2-0.5B-GRPO")}
    script, folder = scripts[name]
    with contextlib.chdir(tmp_path):
        exec(script, {})
    rows = read_metrics(tmp_path / folder / "metrics.jsonl")
    assert len(rows) == 100


@pytest.mark.parametrize("name", ["quick start", "example"])
def test_the_script_begins_well(tmp_path, name):
    """The first two steps: rewards get strings for prompts that are strings, and differ among completions."""
    script = {"quick start": QUICK_START[1], "example": EXAMPLE[1]}[name]
    steps = {}
    begun = script.replace("trainer.train()", "iterator = trainer.steps()\nfirst = next(iterator), next(iterator)")
    with contextlib.chdir(tmp_path):
        exec(begun, steps)
        steps["iterator"].close()
    assert [step.step for step in steps["first"]] == [1, 2]
    assert any(step.metrics["reward_std"] > 0 for step in steps["first"])
