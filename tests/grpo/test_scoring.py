"""How the reward functions of a generation are called."""

from helpers.grpo.batch import Group
from helpers.grpo.scoring import score
from helpers.rollout.completion import Completion


def test_a_function_that_changes_its_completions_does_not_change_the_next_ones():
    def emptying(completions, **_):
        for messages in completions:
            messages.clear()
        completions.reverse()
        return [0.0] * 4

    def length(completions, **_):
        return [float(len(messages[0]["content"])) for messages in completions]

    texts = ("a", "bb", "ccc", "dddd")
    completions = [Completion.of_text(text) for text in texts]
    groups = [Group("p", completions[:2]), Group("q", completions[2:])]
    rows = [{"prompt": "p"}, {"prompt": "q"}]
    scores = score([emptying, length], rows, groups, None, 5.0)
    assert scores.rewards[:, 1].tolist() == [1, 2, 3, 4]


def test_a_text_of_nothing_has_a_token():
    """A completion that was drawn has at least its end; means over tokens rely on it."""
    assert len(Completion.of_text("").token_ids) == 1
