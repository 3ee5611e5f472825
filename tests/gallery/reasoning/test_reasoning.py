"""The reasoning task: its puzzles are solved again from the text of the prompts, and guesses are counted."""

import json
import math
import re
from collections import Counter
from itertools import permutations, product

import pytest

from helpers import UserError
from helpers.gallery.reasoning.task import ReasoningTask
from helpers.rollout.completion import Completion
from helpers.tasks.split import is_heldout
from tests.conftest import CHECKPOINT
from tests.gallery.reasoning import solvers

SIZES = {"train": 300, "monitor": 120, "confirm": 240, "probe": 81}
SPLITS = pytest.mark.parametrize("split", SIZES)


#: SHA-256 of the first sixty rows of each split, seed 0.
@pytest.fixture(scope="module")
def task():
    return ReasoningTask()


@pytest.fixture(scope="module")
def rows(task):
    """Split -> rows, seed 0."""
    return {split: task.dataset(split, size).to_list() for split, size in SIZES.items()}


def text_of(row):
    return row["prompt"][0]["content"]


def of_kind(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def completion(text, finish_reason="stop"):
    return Completion([], [], [], text, "", finish_reason)


def pay(task, rows, texts):
    """Return what the task's rewards pay in all, one number a row."""
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    prompts = [row["prompt"] for row in rows]
    values = [reward(prompts=prompts, completions=texts, **columns) for reward in task.reward_funcs]
    totals = []
    for of_row in zip(*values, strict=True):
        (value,) = (value for value in of_row if value is not None)
        totals.append(value)
    return totals


# What is right


@SPLITS
def test_countdown_is_solvable_and_its_answer_right(rows, split):
    for row in of_kind(rows[split], "countdown"):
        text = text_of(row)
        numbers, target = solvers.read_countdown(text)
        assert (json.loads(row["numbers"]), row["target"]) == (numbers, target)
        assert solvers.countdown_is_right(text, row["answer"]), text
        assert len(numbers) in ((5, 6) if split == "probe" else (3, 4))
        if len(numbers) < 6:
            assert solvers.countdown_is_solvable(text), text
        sums = {sum(map(math.prod, zip(signs, numbers))) for signs in product((1, -1), repeat=len(numbers))}
        assert target not in {*numbers, math.prod(numbers), *sums}, "one fixed pattern would solve many puzzles"


@SPLITS
def test_knights_have_one_solution_and_it_is_the_answer(rows, split):
    for row in of_kind(rows[split], "knights"):
        (solution,) = solvers.knight_solutions(text_of(row))
        assert solution == json.loads(row["solution"])
        assert row["answer"] == ", ".join(f"{name}: {kind}" for name, kind in solution.items())
        assert len(solution) in ((4, 5) if split == "probe" else (2, 3))


@SPLITS
def test_few_orders_satisfy_the_rules_and_the_rewards_agree_which(task, rows, split):
    """The probe's orders are too many to pay each one: there the right ones are paid, and a sample of the others."""
    for row in of_kind(rows[split], "planning")[:60]:
        letters, rules = solvers.read_planning(text_of(row))
        assert len(rules) == len(json.loads(row["rules"])) and set(json.loads(row["steps"])) == set(letters)
        right = solvers.planning_solutions(text_of(row))
        assert 2 <= len(right) <= 4
        assert row["answer"].replace(", ", "") in right
        swapped = [order[1:] + order[0] for order in right] + [order[::-1] for order in right]
        orders = right + swapped
        paid = pay(task, [row] * len(orders), [rf"\boxed{{{', '.join(order)}}}" for order in orders])
        assert paid == [float(order in right) for order in orders]


def test_the_solvers_solve_known_puzzles():
    """A solver that accepts everything would confirm everything."""
    assert solvers.countdown_is_solvable("Make 24 from the numbers 3, 3, 8, 8.")
    assert not solvers.countdown_is_solvable("Make 24 from the numbers 1, 1, 1, 1.")
    assert not solvers.countdown_is_right("Make 24 from 3, 8.", "3 + 8")
    liar = 'Ann says: "Ben is a knave." Ben says: "Ann and I are of the same kind."'
    assert solvers.knight_solutions(liar) == [{"Ann": "knight", "Ben": "knave"}]
    assert len(solvers.knight_solutions('Ann says: "Ben is a knave." Ben says: "Ann is a knave."')) == 2
    steps = "A: bake bread, B: call Sam, C: wash the car"
    assert solvers.planning_solutions(f"{steps}. Rules: A comes before B and C comes after B.") == ["ABC"]
    assert solvers.planning_solutions(f"{steps}. A is not next to C, A is not first.") == ["CBA"]


@SPLITS
def test_the_reference_answer_is_paid_and_graded_correct(task, rows, split):
    answers = [task.reference_answer(row) for row in rows[split]]
    assert set(pay(task, rows[split], answers)) == {1.0}
    grades = task.grade(rows[split], list(map(completion, answers)))
    assert all(grade.correct and grade.score == 1.0 and grade.outcome == "correct" for grade in grades)


# Splits


def test_splits_share_no_prompt_and_no_puzzle(task, rows):
    """A puzzle in another wording, or with other names, is still the same puzzle."""
    seen_texts, seen_puzzles = Counter(), Counter()
    for split, found in rows.items():
        assert len({row["id"] for row in found}) == SIZES[split]
        assert all(is_heldout(text_of(row)) == (split != "train") == task.is_heldout(row) for row in found)
        seen_texts.update({text_of(row) for row in found})
        seen_puzzles.update({_puzzle(row) for row in found})
    assert set(seen_texts.values()) == {1} and set(seen_puzzles.values()) == {1}


def _puzzle(row):
    """Return what a prompt asks, whatever its wording, the names of the persons and the letters of the steps."""
    if row["kind"] == "countdown":
        return (*sorted(json.loads(row["numbers"])), row["target"])
    if row["kind"] == "knights":
        statements = solvers.SAYS.findall(text_of(row))
        persons = [person for person, _ in statements]
        return min(_renamed(statements, persons, numbers) for numbers in permutations("12345"[: len(persons)]))
    steps = list(json.loads(row["steps"]))
    rules = json.loads(row["rules"])
    if len(steps) > 5:  # those of the probe are larger than all others
        return (len(steps), *sorted(map(tuple, rules)))
    return min(_relettered(rules, steps, numbers) for numbers in permutations(range(len(steps))))


def _renamed(statements, persons, numbers):
    """Return the statements with a number for each person, in an order of their own."""
    number_of = dict(zip(persons, numbers))
    renamed = []
    for person, said in statements:
        for name, number in number_of.items():
            said = re.sub(rf"\b{name}\b", number, said)
        renamed.append((number_of[person], said))
    return tuple(sorted(renamed))


def _relettered(rules, steps, numbers):
    number_of = dict(zip(steps, numbers))
    return (len(steps), *sorted(tuple(str(number_of.get(part, part)) for part in rule) for rule in rules))


def test_wordings_of_confirm_are_its_own(rows):
    clusters = {split: Counter(row["cluster"] for row in found) for split, found in rows.items()}
    assert len(clusters["confirm"]) == 15 and not set(clusters["confirm"]) & set(clusters["train"])
    assert set(clusters["train"]) == set(clusters["monitor"]) and len(clusters["train"]) == 12
    for counts in clusters.values():
        assert max(counts.values()) - min(counts.values()) <= 1
    others = {cluster.rpartition("-")[0] for split in ("train", "monitor", "confirm") for cluster in clusters[split]}
    assert not others & {cluster.rpartition("-")[0] for cluster in clusters["probe"]}


def test_the_probe_has_kinds_of_statements_and_rules_that_are_nowhere_else(rows):
    def kinds(split):
        said = [sentence for row in rows[split] for _, sentence in solvers.SAYS.findall(text_of(row))]
        rules = {
            re.sub("[A-G]", "", " ".join(rule[1:2]))
            for row in of_kind(rows[split], "planning")
            for rule in solvers.read_planning(text_of(row))[1]
        }
        return {solvers.statement_form(sentence) for sentence in said}, rules

    train = [kinds(split) for split in ("train", "monitor", "confirm")]
    statements = set.union(*(found for found, _ in train))
    rules = set.union(*(found for _, found in train))
    new_statements, new_rules = kinds("probe")
    assert len(statements) >= 4 and rules == {"comes before", "comes after"}
    assert new_statements and not new_statements & statements
    assert new_rules - rules == {"comes directly before", "comes directly after", "is not next to", "first", "last"}
    for row in of_kind(rows["probe"], "planning"):
        assert {words for _, words, _ in solvers.read_planning(text_of(row))[1]} - rules


@SPLITS
def test_the_same_seed_gives_the_same_rows(task, split):
    """A resumed run must train on the same prompts."""
    rows = task.dataset(split, 60).to_list()
    assert task.dataset(split, 60).to_list() == rows
    assert task.dataset(split, 60, seed=1).to_list() != rows


@pytest.mark.parametrize(("split", "size"), [("train", 2000), ("monitor", 200), ("confirm", 500)])
def test_the_notebooks_sizes_exist(task, split, size):
    assert len(task.dataset(split, size, seed=7)) == size


def test_unknown_splits_are_one_sentence(task):
    with pytest.raises(UserError, match="There is no split 'confrm'"):
        task.dataset("confrm", 3)


# Prompts


def test_prompts_say_how_to_answer_and_are_short(rows):
    pytest.importorskip("transformers")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    for split, found in rows.items():
        lengths = [len(tokenizer(text_of(row))["input_ids"]) for row in found]
        assert max(lengths) < (400 if split == "probe" else 250)
    how = {
        "countdown": "exactly once, with only + - * / between them",
        "knights": "everyone once",
        "planning": "commas",
    }
    for row in rows["confirm"]:
        assert how[row["kind"]] in text_of(row) and r"in \boxed{}" in text_of(row)


def test_columns_are_plain(rows):
    for row in rows["train"]:
        assert set(row) == set(rows["probe"][0])
        for name, value in row.items():
            assert name == "prompt" or value is None or isinstance(value, (str, int))


# Answers that know nothing


def test_guesses_are_rarely_right(task, rows):
    """An answer that is often right without reading the puzzle is what training would find first."""
    found = rows["train"] + rows["monitor"] + rows["confirm"]
    rates = {name: rate for kind in _GUESSES for name, rate in _guess_rates(task, of_kind(found, kind), kind).items()}
    assert max(rates.values()) < 0.2, rates


def _knights_guess(pattern):
    def guess(row):
        people = json.loads(row["solution"])
        return ", ".join(f"{name}: {pattern[place % len(pattern)]}" for place, name in enumerate(people))

    return guess


def _countdown_guess(signs, order):
    def guess(row):
        numbers = json.loads(row["numbers"])
        if order:
            numbers.sort(reverse=order == "falling")
        first, *others = numbers
        return str(first) + "".join(f" {sign} {number}" for sign, number in zip(signs, others))

    return guess


def _guess_rates(task, rows, kind):
    rates = {}
    for name, guess in _GUESSES[kind].items():
        paid = pay(task, rows, [rf"\boxed{{{guess(row)}}}" for row in rows])
        rates[name] = sum(paid) / len(paid)
    others = pay(task, rows, [task.reference_answer(row) for row in rows[1:] + rows[:1]])
    rates[f"another row's ({kind})"] = sum(others) / len(others)
    return rates


_GUESSES = {
    "countdown": {
        f"{''.join(signs)} {order}": _countdown_guess(signs, order)
        for signs in product("+-*", repeat=3)
        for order in ("", "falling", "rising")
    },
    "knights": {
        " ".join(pattern): _knights_guess(pattern)
        for pattern in (
            ("knight",),
            ("knave",),
            ("knight", "knave"),
            ("knave", "knight"),
            ("knight", "knave", "knave"),
            ("knave", "knight", "knight"),
            ("knight", "knight", "knave"),
            ("knave", "knave", "knight"),
        )
    },
    "planning": {
        "alphabetical": lambda row: ", ".join(sorted(json.loads(row["steps"]))),
        "backwards": lambda row: ", ".join(sorted(json.loads(row["steps"]), reverse=True)),
        "by name": lambda row: ", ".join(sorted(json.loads(row["steps"]).values())),
        "as mentioned": lambda row: ", ".join(
            dict.fromkeys(step for rule in json.loads(row["rules"]) for step in rule[::2])
        ),
    },
}


@SPLITS
def test_careless_answers_earn_less_than_the_reference(task, rows, split):
    found = rows[split][:150]
    texts = {
        "empty": [""] * len(found),
        "prompt": [text_of(row) for row in found],
        "constant": [r"\boxed{42}"] * len(found),
        "format": [r"\boxed{}"] * len(found),
        "code": ["```python\nprint(r'\\boxed{8}')\n```"] * len(found),
        "unboxed": [row["answer"] for row in found],
        "thinking only": [[{"content": "", "thinking": task.reference_answer(row)}] for row in found],
        "many boxes": [" ".join(rf"\boxed{{{number}}}" for number in range(200))] * len(found),
        "both kinds": [rf"\boxed{{{row['answer']}, {row['answer']}}}" for row in found],
        "the answer in code": [rf"\boxed{{eval('{row['answer']}')}}" for row in found],
    }
    for name, answers in texts.items():
        assert set(pay(task, found, answers)) == {0.0}, name


# Grades


def test_grades_agree_with_rewards(task, rows):
    """Training by one rule and evaluation by another would measure neither."""
    for row in rows["confirm"][:60]:
        right = task.reference_answer(row)
        somebody = next(iter(json.loads(row["solution"] or "{}")), "")
        wrong = {
            "countdown": r"\boxed{1 + 1}",
            "knights": rf"\boxed{{{somebody}: knight}}",
            "planning": r"\boxed{A, A}",
        }
        texts = [right, wrong[row["kind"]], "I do not know.", r"\boxed{[}"]
        grades = task.grade([row] * 4, list(map(completion, texts)))
        assert [grade.outcome for grade in grades] == ["correct", "wrong", "unanswered", "unanswered"]
        assert pay(task, [row] * 4, texts) == [grade.score for grade in grades] == [1.0, 0.0, 0.0, 0.0]
        assert [bool(grade.reason) for grade in grades] == [False, True, True, True]
        (cut_off,) = task.grade([row], [completion(right, "length")])
        assert cut_off.outcome == "unanswered" and not cut_off.correct
    assert {"correct", "wrong", "unanswered"} == set(task.outcomes)


def test_the_trainer_sums_the_one_reward_that_applies(task, rows):
    """None is no 0: a row has one reward, and its sum is that reward's value."""
    torch = pytest.importorskip("torch")
    from helpers.grpo.advantages import combine_rewards

    found = rows["train"][:30]
    answers = [task.reference_answer(row) if place % 2 else "" for place, row in enumerate(found)]
    columns = {name: [row[name] for row in found] for name in found[0] if name != "prompt"}
    values = [reward(prompts=[None] * 30, completions=answers, **columns) for reward in task.reward_funcs]
    assert [sum(value is None for value in of_row) for of_row in zip(*values)] == [2] * 30
    not_applicable = float("nan")
    rewards = [[not_applicable if value is None else value for value in of_row] for of_row in zip(*values)]
    totals = combine_rewards(torch.tensor(rewards), task.reward_weights)
    assert totals.tolist() == [float(place % 2) for place in range(30)]


def test_what_the_control_majority_compares(task, rows):
    """Answers that amount to the same must have one text, or no majority is found."""
    by_kind = {kind: of_kind(rows["monitor"], kind)[0] for kind in ("countdown", "knights", "planning")}
    by_kind["countdown"] = {**by_kind["countdown"], "numbers": "[3, 5, 8]", "target": 16}
    by_kind["knights"] = {**by_kind["knights"], "solution": '{"Ann": "knight", "Ben": "knave"}'}
    steps = {"steps": '{"A": "call Sam", "B": "bake bread"}', "rules": '[["A", "before", "B"]]'}
    by_kind["planning"] = {**by_kind["planning"], **steps}
    pairs = [
        ("countdown", r"\boxed{3 + 5 + 8}", "16 from 3, 5, 8"),
        ("countdown", r"\boxed{(8 + 3) + 5}", "16 from 3, 5, 8"),
        ("countdown", r"\boxed{8 / (3 - 3)}", "None from 3, 3, 8"),
        ("countdown", "sixteen", "None"),
        ("knights", r"\boxed{Ben is a Knave; Ann: knight}", "Ann: knight, Ben: knave"),
        ("knights", r"\boxed{Ann: knight, Ben: knave}", "Ann: knight, Ben: knave"),
        ("planning", r"\boxed{call Sam -> B}", "A, B"),
        ("planning", r"\boxed{b, a}", "B, A"),
    ]
    found = [by_kind[kind] for kind, _, _ in pairs]
    columns = {name: [row[name] for row in found] for name in found[0] if name != "prompt"}
    texts = [text for _, text, _ in pairs]
    described = task.behaviours([None] * len(pairs), texts, **columns)
    assert described == [expected for _, _, expected in pairs]
    cut_off = task.behaviours([None] * len(pairs), texts, **columns, finish_reasons=["length"] * len(pairs))
    assert set(cut_off) == {"None"}


def test_groups_are_described(task):
    assert task.describe_group("kind", "planning") == "planning"
    assert task.describe_group("cluster", "countdown-0").startswith("Make {target}")
    assert task.describe_group("cluster", "knights_more-1").startswith("Everyone here is a knight")


def test_the_task_says_what_it_is(task):
    assert task.name == task.settings()["task"] == "reasoning"
    assert task.breakdowns == ("kind", "cluster") and task.splits[-1] == "probe"
    assert [reward.__name__ for reward in task.reward_funcs] == ["countdown", "knights_and_knaves", "step_order"]
