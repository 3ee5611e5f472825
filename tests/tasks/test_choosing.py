"""REWARDS, as notebooks and `make run` read it."""

import sys

import pytest

from helpers import UserError, get_task
from helpers.tasks.choosing import choose_rewards


@pytest.fixture(scope="module")
def math():
    return get_task("math")


def names_of(chosen):
    functions, weights = chosen
    return dict(zip([function.__name__ for function in functions], weights, strict=True))


def test_nothing_is_the_tasks_own(math):
    assert choose_rewards("", math) == (list(math.reward_funcs), list(math.reward_weights))
    assert choose_rewards("  ", math) == choose_rewards("", math)


def test_names_and_weights(math):
    chosen = choose_rewards("math_answer, length_penalty=0.1,math_format = 0.2", math)
    assert names_of(chosen) == {"math_answer": 1.0, "length_penalty": 0.1, "math_format": 0.2}


def test_a_preset(math):
    assert names_of(choose_rewards("math", math)) == names_of(choose_rewards("", math))
    assert names_of(choose_rewards("math", math))["math_answer"] == 1.0


def test_a_tasks_own_reward_is_the_tasks_own():
    """Another object would judge every program a second time, in a sandbox of its own."""
    task = get_task("matmul")
    functions, weights = choose_rewards("correctness_check,no_cheating=0.5", task)
    assert functions == [task.reward_funcs[2], task.reward_funcs[1]] and weights == [1.0, 0.5]


def test_one_of_mine(tmp_path, monkeypatch, math):
    (tmp_path / "my_rewards_here.py").write_text("def zero(completions, **_):\n    return [0.0] * len(completions)\n")
    monkeypatch.syspath_prepend(tmp_path)
    functions, weights = choose_rewards("my_rewards_here:zero=2", math)
    assert functions[0](completions=["a", "b"]) == [0.0, 0.0] and weights == [2.0]
    with pytest.raises(UserError, match="Cannot import the reward 'my_rewards_here:one'"):
        choose_rewards("my_rewards_here:one", math)
    del sys.modules["my_rewards_here"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("math_anwser", "There is no reward 'math_anwser' .did you mean 'math_answer'"),
        ("math_answer=much", "The weight of reward 'math_answer' must be a finite number; got 'much'"),
        ("math_answer=nan", "The weight of reward 'math_answer' must be a finite number; got 'nan'"),
        ("math_answer=", "The weight of reward 'math_answer' must be a finite number; got ''"),
        ("math_answer,math_answer=2", "REWARDS names 'math_answer' twice"),
        ("math_answer,", "has an empty name: leave out the comma"),
        ("math,math_format", "'math' in REWARDS is a preset: give it alone"),
        ("math_answer=0", "All weights in REWARDS are 0"),
        ("os:getcwd", "'getcwd' cannot be called as trainers do"),
        (":f", "Cannot import the reward ':f'"),
        ("no.such.module:f", "Cannot import the reward"),
        ("code_correctness", "reads the column 'tests', and the data of task 'math' have answer"),
        ("os:sep", "'os:sep' is a str: a reward is a function"),
    ],
)
def test_a_mistake_is_one_sentence(math, text, message):
    with pytest.raises(UserError, match=message) as caught:
        choose_rewards(text, math)
    assert "\n" not in str(caught.value)
