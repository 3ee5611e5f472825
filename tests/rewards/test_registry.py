"""The registry: what is registered is found under one name, and what cannot work is refused when it is registered."""

import asyncio
import functools
import importlib

import pytest

from helpers.gallery.general import length
from helpers.rewards import registry
from helpers.rewards.calling import name_of
from helpers.rewards.registry import (
    Reward,
    get_reward,
    list_presets,
    list_rewards,
    register_preset,
    register_reward,
    reward_preset,
    reward_spec,
)
from helpers.runtime import UserError

TWO = ([None] * 2, ["a", "bb"])


def letters(prompts, completions, **_):
    """Pay for letters.

    More of this docstring is not shown.
    """
    return [float(len(text)) for text in completions]


def run_cell(source):
    """Define and register what a notebook's cell would."""
    scope = {"__name__": "__main__", "Reward": Reward, "register_reward": register_reward}
    scope["register_preset"] = register_preset
    exec(source, scope)


def test_a_function():
    assert register_reward(value_range=(0, 2), needs=("answer",), pays_correctness=True)(letters) is letters
    spec = reward_spec("letters")
    assert (spec.value_range, spec.needs, spec.pays_correctness) == ((0, 2), ("answer",), True)
    assert spec.summary == "Pay for letters."
    assert get_reward("letters") is letters
    assert spec in list_rewards()
    names = [spec.name for spec in list_rewards()]
    assert names == sorted(names)


class Scaled(Reward):
    """Pay for letters, at a rate."""

    name = "scaled"

    def __init__(self, rate, offset=0.0):
        if rate == "wrong":
            raise UserError("The rate is wrong: give another.")
        self.rate = rate * 1.0
        self.offset = offset + 0.0

    def __call__(self, prompts, completions, **_):
        return [self.offset + self.rate * len(text) for text in completions]


class Plain(Reward):
    """Pay 1."""

    name = "plain"

    def __call__(self, prompts, completions, **_):
        return [1.0] * len(completions)


@pytest.fixture(autouse=True)
def two_classes():
    """Register the two classes above, and take away whatever a test registered."""
    list_rewards()  # imports those of tasks
    rewards = dict(registry._REWARDS)
    presets = dict(registry._PRESETS)
    for reward in (Scaled, Plain):
        register_reward(value_range=(0, 10))(reward)
    yield
    for table, before in ((registry._REWARDS, rewards), (registry._PRESETS, presets)):
        table.clear()
        table.update(before)


def test_a_class_with_options():
    """Each call makes a reward of its own, with its own options, which logs show under the registered name."""
    first, second = get_reward("scaled", rate=2), get_reward("scaled", rate=3, offset=1)
    assert first(*TWO) == [2.0, 4.0] and second(*TWO) == [4.0, 7.0]
    assert name_of(first) == "scaled" == first.__name__


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("scaled", {"rat": 2}, r"has no option 'rat' \(did you mean 'rate'\?\): choose rate, offset"),
        ("scaled", {}, r"needs rate: get_reward\('scaled', rate=\.\.\.\)"),
        ("plain", {"rate": 1}, "'plain' has no option 'rate': it has none"),
        ("plain", {"name": "x"}, "'plain' has no option 'name': it has none"),
        ("scaled", {"rate": "wrong"}, "The rate is wrong: give another"),
    ],
)
def test_options_that_do_not_fit(name, options, words):
    """A misspelt option would otherwise be left out without a word, or end in a traceback of the registry."""
    with pytest.raises(UserError, match=words):
        get_reward(name, **options)


def test_a_function_has_no_options():
    register_reward(value_range=(0, 1))(letters)
    with pytest.raises(UserError, match="'letters' has no options; got rate"):
        get_reward("letters", rate=1)


def test_a_type_error_inside_is_not_blamed_on_the_options():
    """`rate * 1.0` of a list fails within the class: the message must point there, not at the call."""
    with pytest.raises(UserError, match=r"Making reward 'scaled' raised TypeError: .* \(test_registry.py, line \d+\)"):
        get_reward("scaled", rate=[1])


def test_a_reward_that_raises_when_called_raises_its_own_error():
    """get_reward must not wrap the function's own errors."""
    register_reward(value_range=(0, 1))(letters)
    with pytest.raises(TypeError, match="len"):
        get_reward("letters")([None], [3])


def test_names_are_unique():
    """Else the second of two files silently takes the first one's place."""
    register_reward(value_range=(0, 1))(letters)

    with pytest.raises(UserError, match="There is a reward 'letters' already: choose another name"):
        run_cell("@register_reward(value_range=(0, 1))\ndef letters(prompts, completions, **_):\n    'Pay.'")
    with pytest.raises(UserError, match="'length_penalty' already"):
        run_cell("@register_reward(value_range=(0, 1))\ndef length_penalty(prompts, completions, **_):\n    'Pay.'")
    assert get_reward("letters") is letters


CELL = """
@register_reward(value_range=(0, {high}))
def in_a_cell(prompts, completions, **_):
    "Pay {high}."
    return [{high}] * len(completions)

@register_reward(value_range=(0, 1))
class InACell(Reward):
    "Pay."
    name = "class_in_a_cell"
    def __call__(self, prompts, completions, **_):
        return [{high}] * len(completions)

@register_reward(value_range=(0, 1), pays_correctness=True)
def right_in_a_cell(prompts, completions, **_):
    "Pay what is right."

register_preset("of_a_cell", [("right_in_a_cell", {high})])
"""


def test_a_cell_may_run_again():
    """Also after an edit: the newest definition counts."""
    for high in (1, 1, 2):
        run_cell(CELL.format(high=high))
        assert get_reward("in_a_cell")(*TWO) == [high, high]
        assert get_reward("class_in_a_cell")(*TWO) == [high, high]
        assert reward_spec("in_a_cell").value_range == (0, high)
        assert list_presets()["of_a_cell"] == (("right_in_a_cell", high),)


def test_a_second_import_keeps_the_names():
    """A notebook's autoreload runs modules again: their rewards must not be refused."""
    register_reward(value_range=(0, 1))(letters)
    names = [spec.name for spec in list_rewards()]
    importlib.reload(length)
    assert [spec.name for spec in list_rewards()] == names
    assert isinstance(get_reward("length_penalty"), length.LengthPenalty)


@pytest.mark.parametrize(
    "value_range",
    [(1, 1), (2, 1), (0, float("nan")), (0, float("inf")), (0, 10**400), (0,), 1, None, ("a", "b")],
    ids=str,
)
def test_a_range_that_is_none(value_range):
    """A preset is weighed by the ranges."""
    with pytest.raises(UserError, match=r"value_range must be \(lowest, highest\), two finite numbers"):
        register_reward(value_range=value_range)(letters)
    assert "letters" not in registry._REWARDS


@pytest.mark.parametrize("needs", ["answer", (1,), None])
def test_columns_that_are_none(needs):
    """`needs="answer"` would be six columns of one letter each."""
    with pytest.raises(UserError, match="needs must be a tuple of names of columns"):
        register_reward(value_range=(0, 1), needs=needs)(letters)


def test_an_unknown_name_with_a_suggestion():
    with pytest.raises(UserError, match=r"no reward 'lenght_penalty' \(did you mean 'length_penalty'\?\): choose"):
        get_reward("lenght_penalty")
    for name in ("", None, [1], letters):
        with pytest.raises(UserError, match="There is no reward"):
            get_reward(name)
    with pytest.raises(UserError, match="There is no preset 'matth'"):
        reward_preset("matth")


def test_async_functions():
    """A trainer must see that they are async; TRL looks before it calls."""

    async def slow(prompts, completions, **_):
        """Pay slowly."""
        return letters(prompts, completions)

    register_reward(value_range=(0, 10))(slow)
    assert get_reward("slow") is slow
    assert name_of(slow) == "slow"
    assert asyncio.run(slow(*TWO)) == [1.0, 2.0]


class Judge:
    """Pay what the judge says."""

    def __init__(self, value):
        self.value = value

    def opinion(self, prompts, completions, **_):
        """Pay an opinion."""
        return [self.value] * len(completions)

    __call__ = opinion


def test_bound_methods_objects_and_partials():
    """Each is known by the name that logs show."""
    register_reward(value_range=(0, 10))(Judge(3).opinion)
    register_reward(value_range=(0, 10))(Judge(4))
    register_reward(value_range=(0, 10))(functools.partial(letters, answer=3))
    register_reward(value_range=(0, 10))(functools.partial(letters, answer=4))
    assert get_reward("opinion")(*TWO) == [3, 3]
    assert get_reward("Judge")(*TWO) == [4, 4]
    assert get_reward("letters")(*TWO) == [1.0, 2.0]
    assert reward_spec("Judge").summary == "Pay what the judge says."
    assert reward_spec("letters").summary == "Pay for letters."
    for name in ("opinion", "Judge", "letters"):
        assert name_of(get_reward(name)) == name


def test_parentheses_that_are_missing():
    """The commonest slip of a newcomer."""
    with pytest.raises(UserError, match=r"write @register_reward\(value_range=\(0, 1\)\)"):
        register_reward(letters)


def test_a_lambda_has_neither_name_nor_docstring():
    def nameless():
        return lambda prompts, completions, **_: [1.0] * len(completions)

    with pytest.raises(UserError, match="cannot be called '<lambda>': define it with def"):
        register_reward(value_range=(0, 1))(nameless())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("class Wrong:\n    'Pay.'\n    name = 'wrong'", "Wrong is not a reward: derive it"),
        ("class Wrong(Reward):\n    'Pay.'\n    name = 'wrong'", "Wrong cannot be called: define its __call__"),
        ("class Wrong(Reward):\n    'Pay.'\n    def __call__(self, **_): ...", "Wrong has no name: give the class"),
        ("class Wrong(Reward):\n    name = 'wrong'\n    def __call__(self, **_): ...", "'wrong' has no docstring"),
        ("class Wrong(Reward):\n    ' '\n    name = 'wrong'\n    def __call__(self, **_): ...", "no docstring"),
        ("class Wrong(Reward):\n    'Pay.'\n    name = 'a b'\n    def __call__(self, **_): ...", "Wrong has no name"),
        ("def wrong(prompts, completions, **_): ...", "'wrong' has no docstring"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_registered(body, words):
    """And not after minutes, when a run makes the reward."""
    names = set(registry._REWARDS)
    with pytest.raises(UserError, match=words):
        run_cell(f"@register_reward(value_range=(0, 1))\n{body}")
    assert set(registry._REWARDS) == names


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def wrong(prompts, completions): 'Pay.'", "unexpected keyword argument 'completion_ids'"),
        ("def wrong(self, prompts, completions, **_): 'Pay.'", "missing a required argument: 'self'"),
        ("def wrong(prompts, completions, answer, **_): 'Pay.'", "missing a required argument: 'answer'"),
        ("def wrong(*_): 'Pay.'", "unexpected keyword argument 'prompts'"),
        (
            "class Wrong(Reward):\n    'Pay.'\n    name = 'wrong'\n    def __call__(self, prompts, completions): ...",
            "unexpected keyword argument 'completion_ids'",
        ),
    ],
)
def test_what_a_trainer_could_not_call(body, words):
    """A forgotten **_ , the commonest mistake, would end the first step of a run."""
    with pytest.raises(UserError, match=rf"'wrong' cannot be called as trainers do \(.*{words}\): let it take"):
        run_cell(f"@register_reward(value_range=(0, 1))\n{body}")


def test_other_things_that_are_no_rewards():
    for thing in (3, "letters", None):
        with pytest.raises(UserError, match="takes a function or a subclass of Reward"):
            register_reward(value_range=(0, 1))(thing)
    for function in (len, max):
        with pytest.raises(UserError, match="cannot be called as trainers do"):
            register_reward(value_range=(0, 1))(function)


@pytest.fixture
def right():
    """A reward for correctness, of span 1, and one for form, of span 2."""

    @register_reward(value_range=(0, 1), pays_correctness=True)
    def right(prompts, completions, **_):
        """Pay what is right."""
        return [1.0] * len(completions)

    @register_reward(value_range=(-1, 1))
    def form(prompts, completions, **_):
        """Pay for form."""
        return [0.5] * len(completions)

    return right


def test_a_preset(right):
    register_preset("good", [("right", 1.0), ("form", 0.4)])
    functions, weights = reward_preset("good")
    assert functions[0] is right and name_of(functions[1]) == "form" and weights == [1.0, 0.4]
    assert list_presets()["good"] == (("right", 1.0), ("form", 0.4))


@pytest.mark.parametrize(
    ("rewards", "words"),
    [
        ([("right", -2.0), ("form", 0.1)], "has no reward that pays for correctness"),
        ([("form", 1.0)], "has no reward that pays for correctness"),
        ([("right", 0.0)], "has no reward that pays for correctness"),
        ([], "has no reward that pays for correctness"),
        ([("right", 1.0), ("right", 1.0)], "names a reward twice: right, right"),
        ([("rigth", 1.0)], "no reward 'rigth'.*did you mean 'right'"),
        ([("right", float("nan"))], "takes pairs"),
        ([("right", float("inf"))], "takes pairs"),
        ([("right", "1")], "takes pairs"),
        ([("right", 10**400)], "takes pairs"),
        ({"right": 1.0}, "takes a list of pairs"),
        (None, "takes a list of pairs"),
        (["right"], "takes pairs"),
        ([("right", 9.0), ("scaled", 0.1)], "'scaled' needs rate"),
    ],
    ids=str,
)
def test_presets_that_are_refused(right, rewards, words):
    """A preset that does not pay for right answers teaches something else than the task."""
    with pytest.raises(UserError, match=words):
        register_preset("bad", rewards)
    assert "bad" not in list_presets()
