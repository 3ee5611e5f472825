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

from helpers import RolloutEngine, SamplingParams, get_task
from helpers.gallery.math.problems import FAMILIES, are_heldout
from helpers.tasks.matmul.contracts import COMBINATION, CONTRACTS, PRETRAINED
from helpers.tasks.matmul.names import Signature
from helpers.tasks.matmul.prompts import WISHES
from helpers.tasks.matmul.statements import statements
from helpers.tasks.split import is_heldout
from helpers.tiny import train as tiny
from helpers.tiny.corpus import FAULTS, CorpusFaults, draw_conversation
from helpers.tiny.tokenizer import SPECIAL_TOKENS, VOCAB_SIZE
from tests.conftest import CHECKPOINT
from tests.tasks.nameless import nameless

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
    """Every conversation that `make tiny` draws, in its own order, against what is asked later: no text of another
    split is in it, and no sentence, name, number or contract that decides."""
    asked, answered, corpus_faults = set(), set(), []

    def watched(rng, faults):
        (user, assistant), effort = draw_conversation(rng, faults)
        asked.add(user["content"])
        programs = re.findall(r"```python\n(.*)\n```", assistant["content"], re.S)
        answered.update(program for program in map(nameless, programs) if program)
        corpus_faults.append(faults)
        return [user, assistant], effort

    monkeypatch.setattr(tiny, "draw_conversation", watched)
    monkeypatch.setattr(
        tiny.Batches, "encode", lambda self: (watched(self.rng, self.faults)[1], [torch.zeros(1)] * 2)[1]
    )
    batches = tiny.Batches(tokenizer, seed=1)  # the seed of the stream when `make tiny` has seed 0
    for step in range(tiny.STEPS):
        batches.prepare(step, tiny.STEPS)
        batches.next()
    assert len(asked) > 10_000
    assert not any(is_heldout(question) for question in asked if "Practise" not in question)
    assert len(answered) > 3000 and not any(map(is_heldout, answered))
    assert corpus_faults[0] == CorpusFaults() and corpus_faults[-1] == FAULTS
    assert 0.4 < corpus_faults.count(FAULTS) / len(corpus_faults) < 0.6
    for task in map(get_task, ("matmul", "math")):
        for split in set(task.splits) - {"train"}:
            rows = task.dataset(split, 200, seed=7)
            assert not asked & {prompt[0]["content"] for prompt in rows["prompt"]}
            assert not answered & set(map(nameless, rows["answer"]))
    programs = [question for question in asked if "Python" in question]
    _check_programs(programs)
    _check_problems({question for question in asked if "Python" not in question and "Practise" not in question})


def _check_programs(questions):
    """No name and no sentence that is held out."""
    known = {sentence: contract for contract in CONTRACTS for sentence in statements(contract).all}
    unseen = {sentence for contract in CONTRACTS for sentence in statements(contract).unseen}
    signatures, stated = set(), set()
    for question in questions:
        signature = Signature(*re.search(r"(\w+)\((\w+), (\w+)\)", question).groups())
        signatures.add(signature)
        # The sentence behind the request, with the names taken out again.
        nameless = re.sub(rf"\b{signature.first}\b", "{A}", re.sub(rf"\b{signature.second}\b", "{B}", question))
        stated |= {sentence for sentence in _sentences(nameless) if sentence in known}
    assert len(signatures) > 5000 and not any(signature.is_heldout for signature in signatures)
    assert not stated & unseen
    assert COMBINATION not in {known[sentence] for sentence in stated}
    assert len(stated) > 0.9 * sum(len(statements(contract).seen) for contract in PRETRAINED)


def _sentences(text):
    """Every run of one, two or three sentences of a text."""
    parts = re.split(r"(?<=[.]) ", text)
    return {" ".join(parts[start:end]) for start in range(len(parts)) for end in range(start + 1, start + 4)}


def _check_problems(questions):
    """No numbers that are held out, in whatever order, and no wording of the final evaluation."""
    numbers = {tuple(map(int, re.findall(r"\d+", question))) for question in questions}
    assert len(numbers) > 2000 and not any(map(are_heldout, numbers))
    seen = {family: family_.wordings.seen for family, family_ in FAMILIES.items()}
    patterns = [_pattern(sentence) for sentences in seen.values() for sentence in sentences]
    assert all(any(pattern.match(question) for pattern in patterns) for question in questions)


def _pattern(sentence):
    """Matches a problem in this wording."""
    return re.compile(re.sub(r"\\{\w+\\}", r"\\w+", re.escape(sentence)))


def sample(loaded, prompts, seed, temperature=1.0, num_generations=1):
    """Completions at low effort, as training and evaluation draw them."""
    engine = RolloutEngine(
        *loaded, max_batch_size=128, max_length=1024, chat_template_kwargs={"reasoning_effort": "low"}
    )
    return engine.generate(prompts, SamplingParams(200, temperature, seed=seed), num_generations)


def judged(task, completions, rows, num_generations=1):
    """The verdicts on completions, `num_generations` of each row."""
    columns = {name: [value for value in rows[name] for _ in range(num_generations)] for name in task.columns}
    return task.verdicts([c.message for c in completions], [c.finish_reason for c in completions], **columns)


def without_wish(rows):
    """The rows whose prompt leaves the style of the program open."""
    wishes = [wish for wish in WISHES if wish]
    return rows.filter(lambda row: not any(wish in row["prompt"][0]["content"] for wish in wishes))


def share_correct(loaded, task, rows, temperature, seed=5):
    verdicts = judged(task, sample(loaded, rows["prompt"], seed, temperature), rows)
    return np.mean([verdict.correct for verdict in verdicts])


#: The answers of the embedded model, which only `make tiny` changes.
of_the_checkpoint = pytest.mark.slow


@pytest.fixture(scope="module")
def sampled(loaded, task):
    """What the base model writes at temperature 1 to prompts without a wish, with verdicts and the prompts' rows."""
    rows = get_task("matmul").dataset("monitor", 3000, seed=11)
    rows = without_wish(rows).select(range(400))
    completions = sample(loaded, rows["prompt"], seed=5)
    return completions, judged(task, completions, rows), rows


@of_the_checkpoint
def test_base_is_wrong_when_greedy_and_sometimes_right_when_not(loaded, task):
    """So that a gain cannot be had by lowering the temperature. The bounds leave room for the number of prompts; the
    figures proper are `make test-slow`'s."""
    for split in ("confirm", "monitor"):
        rows = get_task("matmul").dataset(split, 128, seed=3)
        assert share_correct(loaded, task, rows, temperature=0.0) <= 0.2
        assert 0.1 <= share_correct(loaded, task, rows, temperature=1.0) <= 0.3
        assert share_correct(loaded, task, rows, temperature=0.6) <= 0.4


@of_the_checkpoint
def test_correct_programs_differ_in_speed(sampled):
    speeds = sorted(verdict.speedup for verdict in sampled[1] if verdict.correct)
    assert np.quantile(speeds, 0.9) > 1.2 * np.quantile(speeds, 0.1)


#: fault -> what it looks like in the text of a program
SIGNS = {
    "contract": r"\[list\(x\) for x in [A-Za-z]+\]",
    "order": r"\[j\]\[i\] = |for col in (Bt|cols)\] for|for i in range\(\w+\)\] for j",
    "update": r"\] = \w+ [*+-] B|-=| - a \* y",
    "index": r"A\[[tk]\]\[|B\[[ij]\]\[|A\[i\]\[j\]",
    "product": r"import (add|sub)|[a-z\]] [+-] (b|B\[)",
    "columns": r"= zip\(\*|list\(B\)|zip\(\*A\)\)\n",
    "width": r"(range\(|\* )len\((A\[0\]|B)\)",
    "range": r"range\(\w+(\(\w+\))? [-+] 1\)|range\(1, ",
    "slice": r"\[1:\]|\[:-1\]",
    "returned": r"return \w+\[0\]|return \[\w+\]",
    "cheat": r"import (numpy|torch|time)",
}


@of_the_checkpoint
def test_it_fails_for_many_reasons(sampled):
    """With one fault to fix, GRPO would win by a trick."""
    completions, verdicts, _ = sampled
    failed = [c.text for c, v in zip(completions, verdicts) if not v.correct]
    seen = {fault: sum(bool(re.search(sign, text)) for text in failed) for fault, sign in SIGNS.items()}
    assert sum(count >= 3 for count in seen.values()) >= 8, seen
    assert max(seen.values()) < 0.65 * len(failed), seen


FOLDS = 5


def out_of_fold_scores(features, outcome):
    """Scores of a ridge-penalised logistic model on one-hot features, each by a model that never saw the row."""
    names = {feature: n for n, feature in enumerate(sorted({f for row in features for f in row}))}
    x = np.zeros((len(features), len(names) + 1))
    x[:, -1] = 1
    for row, chosen in zip(x, features):
        row[[names[feature] for feature in chosen]] = 1
    scores = np.zeros(len(x))
    for fold in range(FOLDS):
        test = np.arange(len(x)) % FOLDS == fold
        a, y = x[~test], outcome[~test]

        def loss(w, a=a, y=y):
            p = expit(a @ w)
            return np.logaddexp(0, a @ w).sum() - y @ a @ w + 0.5 * w @ w, a.T @ (p - y) + w

        scores[test] = x[test] @ minimize(loss, np.zeros(x.shape[1]), jac=True).x
    return scores


def auc_within(types, scores, outcome):
    """Probability that a right answer has a higher score than a wrong one to a prompt of the same type.

    Only answers of the same fold are compared. A model that never saw a fold with many right answers scores all of
    its rows lower, so pairs across folds would give less than 0.5 where nothing can be told.
    """
    fold_of = np.arange(len(scores)) % FOLDS
    won = pairs = 0.0
    for kind in set(types):
        for fold in range(FOLDS):
            here = (fold_of == fold) & np.array([other == kind for other in types])
            right, wrong = scores[here & (outcome > 0)], scores[here & (outcome == 0)]
            won += (right[:, None] > wrong).sum() + 0.5 * (right[:, None] == wrong).sum()
            pairs += len(right) * len(wrong)
    return won / pairs


FIRST_TOKENS = 32  # a reading of the contract, and a sentence that names the style


def auc_of_first_tokens(completions, verdicts, types):
    """How well the first tokens tell right programs from wrong ones within a type of prompt; 0.5 is chance."""
    outcome = np.array([float(verdict.correct) for verdict in verdicts])
    features = [[("type", kind), *enumerate(c.token_ids[:FIRST_TOKENS])] for kind, c in zip(types, completions)]
    features = [[str(feature) for feature in row] for row in features]
    return auc_within(types, out_of_fold_scores(features, outcome), outcome)


@of_the_checkpoint
def test_the_first_tokens_do_not_decide(sampled):
    """If the first tokens of an answer, which name the style, told whether a program is right, training could win by
    choosing them. Only prompts without a wish leave the style open; their types are the contracts."""
    completions, verdicts, rows = sampled
    types = rows["contract"][:]
    assert auc_of_first_tokens(completions, verdicts, types) <= 0.6


@of_the_checkpoint
def test_the_auc_finds_what_is_there(sampled):
    _, verdicts, rows = sampled
    outcome = np.array([float(verdict.correct) for verdict in verdicts])
    telling = [[str(("right", verdict.correct))] for verdict in verdicts]
    assert auc_within(rows["contract"][:], out_of_fold_scores(telling, outcome), outcome) > 0.99


@of_the_checkpoint
def test_groups_have_something_to_compare(loaded, task):
    """Eight answers to one prompt are rarely all right or all wrong."""
    rows = get_task("matmul").dataset("train", 16, seed=3)
    completions = sample(loaded, rows["prompt"], seed=1, num_generations=8)
    correct = [verdict.correct for verdict in judged(task, completions, rows, num_generations=8)]
    mixed = sum(0 < sum(correct[n : n + 8]) < 8 for n in range(0, 128, 8))
    assert mixed >= 8, mixed


def test_it_knows_its_second_language(loaded):
    """Word problems, for the task that is to come: the format is there, and the answer is right sometimes, but not
    where an operation is confused and the model answers greedily."""
    rows = get_task("math").dataset("monitor", 120)

    def right(temperature):
        completions = sample(loaded, rows["prompt"], seed=0, temperature=temperature)
        answers = [re.fullmatch(r"\\boxed\{(-?\d+)\}", c.text) for c in completions]
        assert sum(match is not None for match in answers) > 110
        assert all(c.thinking for c, match in zip(completions, answers) if match)
        return np.mean([match is not None and match[1] == gold for match, gold in zip(answers, rows["answer"])])

    assert 0.2 < right(1.0) < 0.6 and right(0.0) < 0.4
