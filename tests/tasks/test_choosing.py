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
    with pytest.raises(UserError, match="'my_rewards_here:one': .*/my_rewards_here.py has no 'one'"):
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
        ("os:getcvd", r"os.py has no 'getcvd' \(did you mean 'getcwd'\?\)"),
        ("sys:nothing", "the module sys has no 'nothing'"),
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


@pytest.mark.parametrize("name", ["code", "general", "reasoning", "matmul"])
def test_a_reward_that_cannot_read_the_answers_of_a_task(name):
    """It passed the check, and raised in the first step of the training."""
    with pytest.raises(
        UserError, match=f"Reward 'math_answer' cannot read the data of task '{name}' .The right answer"
    ):
        choose_rewards("math_answer", get_task(name))


CALLS = []
MINE = """
from tests.tasks.test_choosing import CALLS


def by_argument(completions, words, **_):
    return [0.0] * len(completions)


def by_keyword(completions, **columns):
    return [float(word in text) for word, text in zip(columns["words"], completions)]


def needs_a_trainer(completions, trainer_state, **_):
    CALLS.append(1)
    return [trainer_state.global_step] * len(completions)


def adds(completions, answer, **_):
    return [1 + right for right in answer]
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A file with rewards, in the folder that the user is in."""
    (tmp_path / "my_file_here.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "my_file_here.py"
    sys.modules.pop("my_file_here", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("by_argument", "Reward 'by_argument' reads the column 'words', and the data of task 'math' have answer"),
        ("by_keyword", "Reward 'by_keyword' reads the column 'words', and the data of task 'math' have answer"),
        ("adds", "Reward 'adds' cannot read the data of task 'math' .TypeError: .*: choose another reward"),
    ],
)
def test_a_reward_of_mine_without_its_column(mine, math, name, words):
    """It was said in the training, with a line of the reward in place of the column."""
    with pytest.raises(UserError, match=words) as caught:
        choose_rewards(f"my_file_here:{name}", math)
    assert "\n" not in str(caught.value) and "line" not in str(caught.value)


def test_what_a_check_cannot_know_is_not_held_against_a_reward(mine, math):
    functions, _ = choose_rewards("my_file_here:needs_a_trainer", math)
    assert functions[0].__name__ == "needs_a_trainer"


def test_a_file_of_mine_by_its_path(mine, math, monkeypatch):
    """Kernels run in the project's folder, and a file may have the name of a module such as math."""
    folder = mine.parent / "sub"
    folder.mkdir()
    (folder / "beside_it.py").write_text("WEIGHT = 3.0\n")
    (folder / "math.py").write_text(
        "from beside_it import WEIGHT\n\ndef mine(completions, **_):\n    return [WEIGHT] * len(completions)\n"
    )
    (found,), _ = choose_rewards("sub/math.py:mine", math)
    assert found(completions=["a"]) == [3.0]
    monkeypatch.chdir("/")
    monkeypatch.setenv("HELPERS_CALLER_DIR", str(mine.parent))
    assert choose_rewards("sub/math.py:mine", math)[0] == [found], "it is imported once"
    assert choose_rewards(f"{folder}/math.py:mine", math)[0] == [found]
    assert choose_rewards("my_file_here:needs_a_trainer", math)[0]
    import math as of_python

    assert of_python.sqrt(4) == 2.0
    with pytest.raises(UserError, match="Cannot import the reward 'sub/none.py:mine' .FileNotFoundError"):
        choose_rewards("sub/none.py:mine", math)
    sys.modules.pop("beside_it", None)


def test_a_module_that_ends_the_program(tmp_path, math):
    """A script without a guard parses its arguments when it is imported, and ended the notebook's cell silently."""
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(2)\n")
    with pytest.raises(UserError, match=r"its module calls sys.exit\(2\)") as caught:
        choose_rewards(f"{tmp_path}/ends.py:f", math)
    assert "\n" not in str(caught.value)
    (tmp_path / "stops.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        choose_rewards(f"{tmp_path}/stops.py:f", math)


def test_a_module_that_changes_where_python_looks(tmp_path, monkeypatch, math):
    """It failed with "x not in list" where a module had taken away what was added for it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = list(sys.path)
    (tmp_path / "changes.py").write_text(
        "import sys\nsys.path = ['/its/own']\n\ndef f(completions, **_):\n    return [0.0] * len(completions)\n"
    )
    choose_rewards(f"{tmp_path}/changes.py:f", math)
    assert sys.path[: len(before)] == before and "/its/own" in sys.path and str(tmp_path) in sys.path
