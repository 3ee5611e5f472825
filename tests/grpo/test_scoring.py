"""How the reward functions of a generation are called."""

import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.grpo.batch import Group
from helpers.grpo.scoring import score
from helpers.rollout.completion import Completion
from helpers.runtime import UserError

TEXTS = ("a", "bb", "ccc", "dddd")


def scored(*rewards):
    completions = [Completion.of_text(text) for text in TEXTS]
    asked = [[{"role": "user", "content": text}] for text in "pq"]
    groups = [Group(asked[0], completions[:2]), Group(asked[1], completions[2:])]
    rows = [{"prompt": asked[0], "tags": ["x"]}, {"prompt": asked[1], "tags": ["y"]}]
    return score(rewards, rows, groups, None, 5.0).rewards


def empties_messages(completions, **_):
    for messages in completions:
        messages.clear()
    return [0.0] * 4


def reverses(completions, **_):
    completions.reverse()
    return [0.0] * 4


def changes_the_data_set(tags, **_):
    tags[0].append("z")
    return [0.0] * 4


@pytest.mark.parametrize(
    ("reward", "argument"),
    [(empties_messages, "completions"), (reverses, "completions"), (changes_the_data_set, "tags")],
)
def test_a_reward_that_changes_its_arguments_is_named(reward, argument):
    """The rows belong to the data set: every later step, and every other reward, would get what one reward left."""
    with pytest.raises(UserError, match=f"^Reward '{reward.__name__}' changes its argument '{argument}', which other"):
        scored(reward)


def test_a_text_asks_for_texts():
    """As in TRL: `len(completion)` of TRL's own example is 1 for every message list, and nothing would be learnt."""
    seen = []

    def keeps(prompts, completions, **_):
        seen.extend(zip(prompts, completions, strict=True))
        return [0.0] * 2

    prompts = ["p", [{"role": "user", "content": "p"}]]
    groups = [Group(prompt, [Completion.of_text("answer")]) for prompt in prompts]
    score([keeps], [{"prompt": prompt} for prompt in prompts], groups, None, 5.0)
    message = {"role": "assistant", "content": "answer", "thinking": ""}
    assert seen == [("p", "answer"), (prompts[1], [message])]


def test_a_reward_that_calls_exit_is_named():
    def leaves(completions, **_):
        sys.exit(3)

    with pytest.raises(UserError, match="^Reward 'leaves' raised RuntimeError: it calls exit"):
        scored(leaves)


NAN = float("nan")


@pytest.mark.parametrize(
    "returned",
    [[1, True, 0.5, None], [np.float32(1), np.int64(1), np.float64(0.5), NAN], np.array([1, 1, 0.5, NAN]),
     torch.tensor([1, 1, 0.5, NAN], requires_grad=True), [torch.tensor(1), 1, Fraction(1, 2), torch.tensor(NAN)],
     (1, 1, 0.5, None)],
)  # fmt: skip
def test_values_of_numpy_and_torch_and_nan_for_none(returned):
    """TRL takes NaN for None, too."""
    assert scored(lambda completions, **_: returned).tolist()[:3] == [[1.0], [1.0], [0.5]]
    assert scored(lambda completions, **_: returned)[3].isnan().all()


@pytest.mark.parametrize(
    "returned",
    [None, 1.0, {}, "1111", [1, 2, 3], np.ones((4, 1)), np.ones(3), [1, 2, 3, "4"], [1, 2, 3, np.inf], [[1]] * 4,
     [1, 2, 3, 1j], [1, 2, 3, np.ones(2)]],
)  # fmt: skip
def test_other_values_are_one_sentence(returned):
    with pytest.raises(UserError, match="^Reward '<lambda>' returned .*: return a (list of 4|finite number)"):
        scored(lambda completions, **_: returned)


def test_a_text_of_nothing_has_a_token():
    """A completion that was drawn has at least its end; means over tokens rely on it."""
    assert len(Completion.of_text("").token_ids) == 1
