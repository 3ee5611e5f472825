"""The shipped folder: its format, and that the model in it is fit to be improved."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.optimize import minimize
from scipy.special import expit

from helpers import RolloutEngine, SamplingParams, load_task
from helpers.rewards import judge
from helpers.tasks.split import is_heldout
from helpers.tiny import train as tiny
from helpers.tiny.corpus import draw_conversation
from helpers.tiny.tokenizer import SPECIAL_TOKENS, VOCAB_SIZE
from tests.conftest import CHECKPOINT

FOLDER = Path(CHECKPOINT)


@pytest.fixture(scope="module")
def tensors():
    return {name: t for path in FOLDER.glob("*.safetensors") for name, t in load_file(path).items()}


def test_tensors_are_named_and_typed_as_released(tensors):
    """openai/gpt-oss-20b: experts as uint8 blocks and scales, everything else bfloat16."""
    config = json.loads((FOLDER / "config.json").read_text())
    hidden, size, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}.mlp.experts"
        for name, out, inner in (("gate_up_proj", 2 * size, hidden), ("down_proj", hidden, size)):
            assert tensors[f"{stem}.{name}_blocks"].shape == (experts, out, inner // 32, 16)
            assert tensors[f"{stem}.{name}_scales"].shape == (experts, out, inner // 32)
            assert tensors[f"{stem}.{name}_bias"].shape == (experts, out)
        assert f"model.layers.{layer}.self_attn.sinks" in tensors
    packed = {name for name in tensors if name.endswith(("_blocks", "_scales"))}
    assert {tensors[name].dtype for name in packed} == {torch.uint8}
    assert {tensors[name].dtype for name in set(tensors) - packed} == {torch.bfloat16}
    index = json.loads((FOLDER / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == set(tensors) and len(set(index.values())) == 2


def test_config_has_everything_the_large_one_has():
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "mxfp4"
    assert set(config["layer_types"]) == {"sliding_attention", "full_attention"} and config["sliding_window"] == 128
    assert (
        config["rope_scaling"]["rope_type"] == "yarn"
        and 1 < config["num_experts_per_tok"] < config["num_local_experts"]
    )
    for size in (config["hidden_size"], config["intermediate_size"]):
        assert size % 64 == 0  # bitsandbytes' block; and of MXFP4's 32
    generation = json.loads((FOLDER / "generation_config.json").read_text())
    assert len(generation["eos_token_id"]) == 3
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8e6


def test_tokenizer_ends_in_the_harmony_tokens(tokenizer):
    assert len(tokenizer) == VOCAB_SIZE
    for place, token in SPECIAL_TOKENS.items():
        assert tokenizer.convert_tokens_to_ids(token) == VOCAB_SIZE - 16 + place
    text = "def matmul(A, B):\n    x = [é]  # 日本\n\treturn 1_000 ** 2\r\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_template_takes_effort_and_refuses_nonsense(tokenizer):
    talk = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(talk, tokenize=False, reasoning_effort="high", add_generation_prompt=True)
    assert "Reasoning: high" in text and "# Instructions\n\nBe brief." in text and text.endswith("<|start|>assistant")
    past = [*talk, {"role": "assistant", "thinking": "T", "content": "A"}, {"role": "user", "content": "B"}]
    assert "analysis<|message|>" not in tokenizer.apply_chat_template(past, tokenize=False)
    for wrong in ({"role": "assistant", "content": "<|channel|>"}, {"role": "robot", "content": ""}):
        with pytest.raises(Exception, match="channel tags|Roles are"):
            tokenizer.apply_chat_template([*talk, wrong], tokenize=False)


def test_nothing_held_out_is_in_the_corpus(tokenizer, monkeypatch):
    """All 24,000 conversations that `make tiny` draws, in its own order, against what the evaluation asks."""
    asked, answered = set(), set()

    def watched(rng):
        (user, assistant), effort = draw_conversation(rng)
        asked.add(user["content"])
        answered.update(re.findall(r"```python\n(.*)\n```", assistant["content"], re.S))
        return [user, assistant], effort

    monkeypatch.setattr(tiny, "draw_conversation", watched)
    monkeypatch.setattr(tiny.Batches, "encode", lambda self: (watched(self.rng), [torch.zeros(1)] * 2)[1])
    batches = tiny.Batches(tokenizer, seed=1)  # the seed of the stream when `make tiny` has seed 0
    for _ in range(tiny.STEPS):
        batches.next()
    assert len(asked) > 10_000
    assert not any(map(is_heldout, asked)) and not any(map(is_heldout, answered))
    for task in ("matmul", "math"):
        heldout = load_task(task, "heldout", 300, seed=7)
        assert not asked & {prompt[0]["content"] for prompt in heldout["prompt"]}
        assert not answered & set(heldout["answer"])


def sample(loaded, prompts, seed, length=200, num_generations=1):
    """Completions at low effort, as training and evaluation draw them."""
    engine = RolloutEngine(
        *loaded, max_batch_size=240, max_length=1024, chat_template_kwargs={"reasoning_effort": "low"}
    )
    return engine.generate(prompts, SamplingParams(max_completion_length=length, seed=seed), num_generations)


@pytest.fixture(scope="module")
def sampled(loaded):
    """What the base model writes at temperature 1, with verdicts."""
    prompts = load_task("matmul", "heldout", 480, seed=11)["prompt"]
    completions = sample(loaded, prompts, seed=5)
    verdicts = judge([c.message for c in completions], [c.finish_reason for c in completions])
    return completions, verdicts


def test_base_pass_rate_leaves_room_both_ways(sampled):
    rate = np.mean([verdict.correct for verdict in sampled[1]])
    assert 0.15 <= rate <= 0.40, rate


def test_correct_programs_differ_in_speed(sampled):
    speeds = sorted(verdict.speedup for verdict in sampled[1] if verdict.correct)
    assert np.quantile(speeds, 0.9) > 1.2 * np.quantile(speeds, 0.1)


#: fault -> what it looks like in the text of a program, or in its verdict
SIGNS = {
    "bound": r"range\(\w+(\(\w+\))? [-+] 1\)|range\(1, ",
    "index": r"A\[[tk]\]\[|B\[[ij]\]\[|A\[i\]\[j\]",
    "slice": r"\[1:\]|\[:-1\]",
    "operator": r"-=|A\[\w\]\[\w\] [+-] B|a [+-] b for|x - a",
    "swap": r"zip\(\*A\)|for col in (Bt|cols)\] for|= len\(B\), len\(B\), ",
    "reset": r"(?m)^ {4}(s|total) = 0|^ {8}(s|total) = 0|^ {4}(line|new|acc) = \[",
    "shape": r"return \w+\[0\]|return \[\w+\]|\.extend\(",
    "numpy": r"import numpy",
    "torch": r"import torch",
    "timer": r"import time",
}


def test_it_fails_for_many_small_reasons(sampled):
    """With one fault to mend, GRPO would win by a trick."""
    completions, verdicts = sampled
    failed = [(c.text, v) for c, v in zip(completions, verdicts) if not v.correct]
    seen = {fault: sum(bool(re.search(sign, text)) for text, _ in failed) for fault, sign in SIGNS.items()}
    seen["syntax"] = sum(v.reason.startswith("SyntaxError") for _, v in failed)
    seen["name"] = sum("Error" in v.reason and "name" in v.reason for _, v in failed)
    assert sum(count >= 4 for count in seen.values()) >= 10, seen
    assert max(seen.values()) < 0.5 * len(failed), seen


def out_of_fold_auc(features, outcome, folds=5):
    """AUC of a ridge-penalised logistic model on one-hot features, each scored by a model that never saw it."""
    names = {feature: n for n, feature in enumerate(sorted({f for row in features for f in row}))}
    x = np.zeros((len(features), len(names) + 1))
    x[:, -1] = 1
    for row, chosen in zip(x, features):
        row[[names[feature] for feature in chosen]] = 1
    scores = np.zeros(len(x))
    for fold in range(folds):
        test = np.arange(len(x)) % folds == fold
        a, y = x[~test], outcome[~test]

        def loss(w, a=a, y=y):
            p = expit(a @ w)
            return np.logaddexp(0, a @ w).sum() - y @ a @ w + 0.5 * w @ w, a.T @ (p - y) + w

        scores[test] = x[test] @ minimize(loss, np.zeros(x.shape[1]), jac=True).x
    positive, negative = scores[outcome > 0], scores[outcome == 0]
    return ((positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)).mean()


def test_an_opening_does_not_decide(sampled):
    """If the first tokens told whether a program is right, training could win by choosing them."""
    completions, verdicts = sampled
    outcome = np.array([float(verdict.correct) for verdict in verdicts])
    first = out_of_fold_auc([list(enumerate(c.token_ids[:8])) for c in completions], outcome)
    assert first <= 0.75, first
    telling = out_of_fold_auc(
        [
            [("style", "numpy" in c.text or "torch" in c.text), ("right", v.correct)]
            for c, v in zip(completions, verdicts)
        ],
        outcome,
    )
    assert telling > 0.99  # the measure itself finds what is there


def test_groups_have_something_to_compare(loaded):
    """Eight answers to one prompt are rarely all right or all wrong."""
    prompts = load_task("matmul", "train", 16, seed=3)["prompt"]
    completions = sample(loaded, prompts, seed=1, num_generations=8)
    correct = [v.correct for v in judge([c.message for c in completions], [c.finish_reason for c in completions])]
    mixed = sum(0 < sum(correct[n : n + 8]) < 8 for n in range(0, 128, 8))
    assert mixed >= 8, mixed


def test_it_knows_its_second_language(loaded):
    """Word problems, for the later task: the format is always there and the answer sometimes right."""
    heldout = load_task("math", "heldout", 120)
    completions = sample(loaded, heldout["prompt"], seed=0, length=120)
    answers = [re.fullmatch(r"\\boxed\{(-?\d+)\}", c.text) for c in completions]
    assert sum(match is not None for match in answers) > 110
    assert all(c.thinking for c, match in zip(completions, answers) if match)
    right = sum(match is not None and match[1] == answer for match, answer in zip(answers, heldout["answer"]))
    assert right > 12, right
