"""Rewards written for TRL in this project's trainer, and this project's rewards in TRL's.

The first are imported from TRL, or have the signatures of the examples in its documentation. Nothing stands between a
reward and the trainer that it was not written for.
"""

import asyncio
import math
import re
from pathlib import Path

import pytest
import torch

trl = pytest.importorskip("trl", reason="TRL is not installed here: make test-trl sets up an environment with it.")

import pandas  # noqa: E402
from datasets import concatenate_datasets  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import PrinterCallback  # noqa: E402
from trl.chat_template_utils import gptoss_template  # noqa: E402
from trl.rewards import (  # noqa: E402
    accuracy_reward,
    get_repetition_penalty_reward,
    get_soft_overlong_punishment,
    think_format_reward,
)

from helpers import get_task, read_metrics  # noqa: E402
from helpers.gallery.general.length import LengthPenalty  # noqa: E402
from helpers.gallery.general.preference import Preference  # noqa: E402
from helpers.gallery.math.rewards import math_answer  # noqa: E402
from helpers.grpo.batch import Group  # noqa: E402
from helpers.grpo.logs import read_completions  # noqa: E402
from helpers.grpo.scoring import score  # noqa: E402
from helpers.model.load import ATTENTION_PROJECTIONS  # noqa: E402
from helpers.profiles import PROFILES  # noqa: E402
from helpers.rewards.calling import call_reward, name_of  # noqa: E402
from helpers.rewards.registry import Reward, get_reward, register_reward  # noqa: E402
from helpers.rollout.completion import Completion  # noqa: E402
from tests.benchmarks.models import embedded_tokenizer  # noqa: E402
from tests.benchmarks.rollout import stock_model  # noqa: E402
from tests.grpo.small import trainer_in  # noqa: E402

GROUP = 4


@pytest.fixture(scope="module")
def problems():
    """A row of each of two tasks, so that every step has both."""
    math_rows = get_task("math").dataset("train", 1).select_columns(["prompt", "answer", "task"])
    other_rows = get_task("matmul").dataset("train", 1).select_columns(["prompt", "answer", "task"])
    rows = concatenate_datasets([math_rows, other_rows])
    solutions = [rf"\boxed{{{row['answer']}}}" for row in rows]
    return rows.add_column("solution", solutions)


def completion_of(text, tokens=5, finish_reason="stop"):
    return Completion([1], list(range(tokens)), [-1.0] * tokens, text, "", finish_reason)


# Rewards with the signatures of the examples in TRL's documentation.


def length_reward(completion_ids, **kwargs):
    """Pay for tokens."""
    return [float(len(ids)) for ids in completion_ids]


def format_reward(completions, **kwargs):
    """Look for a pattern in conversational completions."""
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if re.search(r"\\boxed\{\d+\}", content) else 0.0 for content in contents]


def math_only_reward(prompts, completions, task, answer, **kwargs):
    """Pay the rows of one task, and leave the others to other rewards."""
    rewards = []
    for completion, of_task, right in zip(completions, task, answer):
        if of_task == "math":
            rewards.append(1.0 if right in completion[0]["content"] else -1.0)
        else:
            rewards.append(None)
    return rewards


async def async_reward(prompts, completions, **kwargs):
    """Ask a service about all completions at once."""

    async def ask(completion):
        await asyncio.sleep(0.001)
        return float(len(completion[0]["content"]))

    return await asyncio.gather(*(ask(completion) for completion in completions))


class AsyncJudge:
    """The same, as an object, which TRL awaits since 1.16."""

    async def __call__(self, completions, log_metric, log_extra, **kwargs):
        values = [len(completion[0]["content"]) / 10 for completion in completions]
        log_metric("judge/mean_letters", sum(values))
        log_extra("letters", values)
        return values


FROM_TRL = [
    think_format_reward,
    get_soft_overlong_punishment(max_completion_len=40, soft_punish_cache=30),
    get_repetition_penalty_reward(ngram_size=2),
]
AS_DOCUMENTED = [length_reward, format_reward, math_only_reward, async_reward, AsyncJudge()]


def test_trls_own_rewards_on_known_texts():
    """What TRL's documentation says of them, by the way our trainer calls them."""
    completions = [
        completion_of("<think>\nSix times seven.\n</think>\n42", 10),
        completion_of("<think>\nSix times seven.\n42", 25),
        completion_of("42", 60),
    ]
    rewards, _, _ = score(FROM_TRL, [{"prompt": "p", "answer": "42"}], [Group("p", completions)], None, 10.0)
    assert rewards[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert rewards[:, 1].tolist() == [0.0, -0.5, -1.0]
    assert rewards[:, 2].tolist() == [0.0, 0.0, 0.0]
    repeated = completion_of("aaaaa")
    repeated.token_ids = [5] * 5
    rewards, _, _ = score(FROM_TRL, [{"prompt": "p"}], [Group("p", [repeated])], None, 10.0)
    assert rewards[0, 2].item() == -0.75


def test_trls_accuracy_reward():
    """It needs math-verify, which is in neither environment by default."""
    pytest.importorskip("math_verify", reason="math-verify is not installed here.")
    texts = [r"\boxed{42}", r"\boxed{41}", "", r"\boxed{\frac{84}{2}}"]
    completions = [completion_of(text) for text in texts]
    row = {"prompt": "p", "solution": r"\boxed{42}", "answer": "42"}
    rewards, _, extras = score([accuracy_reward, math_answer], [row], [Group("p", completions)], None, 60.0)
    assert rewards[:, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert rewards[:3, 1].tolist() == rewards[:3, 0].tolist()
    assert extras


class Recorder(Reward):
    """Keep what TRL passes to a reward; pays nothing."""

    name = "recorder"

    def __init__(self):
        self.calls = []

    def __call__(self, prompts, completions, **columns):
        self.calls.append({"prompts": prompts, "completions": completions, **columns})
        return [0.0] * len(completions)


def test_in_our_trainer(tmp_path, problems):
    """All of them train one run together, and the logs have what a direct call on its completions gives."""
    recorder = Recorder()
    rewards = FROM_TRL + AS_DOCUMENTED
    trainer = trainer_in(
        tmp_path,
        problems,
        reward=[*rewards, recorder],
        max_steps=2,
        num_generations=GROUP,
        max_completion_length=60,
        temperature=1.5,
    )
    trainer.train()
    metrics = read_metrics(tmp_path / "metrics.jsonl")
    assert len(metrics) == len(recorder.calls) == 2 and all(row["grad_norm"] > 0 for row in metrics)
    assert [name_of(reward) for reward in rewards] == [
        "think_format_reward", "soft_overlong_punishment_reward", "repetition_penalty_reward", "length_reward",
        "format_reward", "math_only_reward", "async_reward", "AsyncJudge",
    ]  # fmt: skip
    for step, (row, call) in enumerate(zip(metrics, recorder.calls), 1):
        records = read_completions(tmp_path, step)
        assert [record["completion"] for record in records] == [message["content"] for [message] in call["completions"]]
        assert set(call["task"]) == {"math", "matmul"}
        assert "judge/mean_letters" in row and "letters" in records[0]
        for reward in rewards:
            values = call_reward(reward, **call)
            assert [record[name_of(reward)] for record in records] == pytest.approx(values)
            known = [value for value in values if value is not None]
            assert row[f"rewards/{name_of(reward)}/mean"] == pytest.approx(sum(known) / len(known))
            assert len(known) == (GROUP if reward is math_only_reward else 2 * GROUP)


def prefer_longer(prompt, first, second):
    """Judge two texts by their length."""
    if len(first) == len(second):
        return 0.5
    return float(len(first) > len(second))


def train_with_trl(folder, rewards, rows, parses_channels, temperature, **settings):
    """Let TRL's trainer take two steps; returns its log and what the rewards were called with.

    parses_channels: whether the tokenizer knows gpt-oss's channels. If not, TRL puts all of them into one text.
    """
    recorder = Recorder()
    tokenizer = embedded_tokenizer()
    if parses_channels:
        tokenizer.response_template = gptoss_template
    config = trl.GRPOConfig(
        str(folder), per_device_train_batch_size=2 * GROUP, num_generations=GROUP, max_completion_length=200,
        temperature=temperature, learning_rate=1e-3, max_steps=2, use_cpu=True, bf16=False, report_to="none",
        save_strategy="no", logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, log_completions=True,
        router_aux_loss_coef=0.0, gradient_checkpointing=False, seed=1,
        chat_template_kwargs={"reasoning_effort": PROFILES["tiny"].reasoning_effort}, **settings,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer = trl.GRPOTrainer(
        stock_model("eager", None),
        [*rewards, recorder],
        config,
        rows,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, lora_alpha=8, target_modules=list(ATTENTION_PROJECTIONS)),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [row for row in trainer.state.log_history if "reward" in row], recorder.calls


def check_logs(folder, rewards, history, calls):
    """Compare TRL's means, and its table of completions, with direct calls. Returns name -> all values."""
    assert len(history) == len(calls) == 2
    found = {name_of(reward): [] for reward in rewards}
    for step, (row, call) in enumerate(zip(history, calls), 1):
        table = pandas.read_parquet(Path(folder) / "completions" / f"completions_{step:05d}.parquet")
        logged = [list(messages) for messages in table["completion"]]
        assert logged == call["completions"], "the table has other completions than the rewards were called with"
        arguments = {**call, "completions": logged, "prompts": [list(messages) for messages in table["prompt"]]}
        for reward in rewards:
            name = name_of(reward)
            values = call_reward(reward, **arguments)
            known = [value for value in values if value is not None]
            assert row[f"rewards/{name}/mean"] == pytest.approx(sum(known) / len(known), abs=1e-6)
            in_table = [None if math.isnan(value) else value for value in table[name]]
            assert in_table == pytest.approx(values, abs=1e-6)
            found[name] += values
    return found


@register_reward(value_range=(0.0, 1000.0))
async def async_letters_of_a_test(prompts, completions, **_):
    """Pay for letters, from another thread."""
    await asyncio.sleep(0.001)
    return [float(len(completion[-1]["content"])) for completion in completions]


@pytest.mark.parametrize("parses_channels", [True, False])
def test_ours_in_trls_trainer(tmp_path, parses_channels):
    """Answers to problems, lengths, preferences and an async reward, by TRL's own training."""
    rewards = [
        math_answer,
        LengthPenalty(free_tokens=20, max_tokens=40),
        Preference(judge=prefer_longer),
        get_reward("async_letters_of_a_test"),
    ]
    rows = get_task("math").dataset("train", 8)
    history, calls = train_with_trl(
        tmp_path, rewards, rows, parses_channels, 1.5, reward_weights=[1.0, 0.2, 0.2, 0.0, 0.0]
    )
    found = check_logs(tmp_path, rewards, history, calls)
    assert set(found) == {"math_answer", "length_penalty", "preference", "async_letters_of_a_test"}
    for name, values in found.items():
        assert len(set(values)) > 1, f"{name} paid all completions the same: the comparison shows nothing"
    assert any(row["grad_norm"] > 0 for row in history)
    first_text = calls[0]["completions"][0][0]["content"]
    assert first_text.startswith("analysis") != parses_channels
    assert all("finish_reasons" not in call for call in calls)


def test_matmul_in_trls_trainer(tmp_path, task):
    """Programs, run in the sandbox.

    The tokenizer must know the channels: where TRL puts them into one text, no line begins with the program's fence.
    """
    rewards = [task.reward_funcs[2], LengthPenalty()]
    history, calls = train_with_trl(tmp_path, rewards, task.dataset("train", 8), parses_channels=True, temperature=1.0)
    found = check_logs(tmp_path, rewards, history, calls)
    assert set(found["correctness_check"]) == {0.0, 1.0}, "the comparison shows nothing where all are the same"
