import random

import pytest

from helpers import UserError, load_task
from helpers.tasks.math import FAMILIES, draw_problem
from helpers.tasks.programs import FAULTS, STYLES, draw_program
from helpers.tasks.split import is_heldout


@pytest.mark.parametrize("name", ["matmul", "math"])
def test_train_and_heldout_are_disjoint_and_repeatable(name):
    train, heldout = load_task(name, "train", 600, seed=1), load_task(name, "heldout", 200, seed=2)
    texts = [{row["prompt"][0]["content"] for row in split} for split in (train, heldout)]
    assert len(texts[0]) == 600 and len(texts[1]) == 200 and not texts[0] & texts[1]
    assert all(map(is_heldout, texts[1])) and not any(map(is_heldout, texts[0]))
    assert load_task(name, "train", 600, seed=1).to_list() == train.to_list()
    assert load_task(name, "train", 600, seed=3).to_list() != train.to_list()
    assert set(train.column_names) == {"prompt", "answer", "task", "id", "cluster"}
    assert len(set(train["id"])) == 600


def test_answers_of_matmul_are_correct_programs(sandbox):
    answers = load_task("matmul", "heldout", 40)["answer"]
    assert all(verdict.correct for verdict in sandbox.judge_many(answers))
    assert all(map(is_heldout, answers))


def test_answers_of_math_are_right():
    """Worked out again from the numbers in the text, by another way than the generator's."""
    rules = {
        "more": lambda a, b: a + b,
        "less": lambda a, b: a - b,
        "bags": lambda a, b: a * b,
        "bags_and": lambda a, b, c: a * b + c,
        "two_days": lambda a, b, c: a + b - c,
        "twice": lambda a, b: a * (b + 1),
    }
    assert set(rules) == set(FAMILIES)
    rng = random.Random(0)
    for _ in range(300):
        text, family, steps, answer = draw_problem(rng)
        numbers = [int(word) for word in text.replace(".", " ").replace(",", " ").split() if word.isdigit()]
        assert rules[family](*numbers) == answer >= 0 and steps[-1].endswith(f"= {answer}.")


@pytest.mark.parametrize("style", STYLES)
def test_programs_without_faults_are_correct(sandbox, style):
    rng = random.Random(style)
    programs = [draw_program(rng, style=style) for _ in range(12)]
    assert all(program.faults == () for program in programs)
    verdicts = sandbox.judge_many([program.source for program in programs])
    assert all(verdict.correct for verdict in verdicts), [v.reason for v in verdicts]


def test_styles_differ_in_speed(sandbox):
    """Speed can only be learned if there is something to choose."""
    rng = random.Random(0)
    programs = [draw_program(rng, style=style).source for style in STYLES for _ in range(3)]
    speeds = [verdict.speedup for verdict in sandbox.judge_many(programs)]
    assert max(speeds) > 1.25 * min(speeds)


def test_faults_are_many_independent_and_mostly_fatal(sandbox):
    """Every kind occurs, several in one program, and most programs with a fault are wrong."""
    rng = random.Random(5)
    programs = [draw_program(rng, 0.1, 0.1) for _ in range(1500)]
    kinds = {kind for program in programs for kind in program.faults}
    assert kinds == set(FAULTS)
    assert any(len(set(program.faults)) >= 2 for program in programs)
    faulty = [program for program in programs if program.faults][:150]
    verdicts = sandbox.judge_many([program.source for program in faulty])
    assert sum(verdict.correct for verdict in verdicts) < 0.15 * len(faulty)


@pytest.mark.parametrize(("size", "words"), [(0, "at least 1"), (10**6, "ask for fewer")])
def test_impossible_sizes_are_one_sentence(size, words):
    """More prompts than there are once meant a loop without end."""
    with pytest.raises(UserError, match=words):
        load_task("math", "heldout", size)


@pytest.mark.parametrize(("name", "split"), [("matmull", "train"), ("matmul", "test")])
def test_unknown_names_are_one_sentence(name, split):
    with pytest.raises(UserError, match="There is no"):
        load_task(name, split)
