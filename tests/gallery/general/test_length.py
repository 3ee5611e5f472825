import pytest

from helpers.gallery.general.length import FREE_TOKENS, MAX_TOKENS, LengthPenalty
from helpers.profiles import PROFILES
from helpers.rewards.registry import get_reward
from helpers.runtime import UserError


def penalties(reward, lengths):
    """What completions of so many tokens get; their texts say nothing of it."""
    return reward([None] * len(lengths), ["x" * 9] * len(lengths), completion_ids=[[7] * length for length in lengths])


def test_known_values():
    reward = get_reward("length_penalty", free_tokens=100, max_tokens=300)
    lengths = [0, 1, 100, 101, 150, 200, 299, 300, 301, 100_000]
    assert penalties(reward, lengths) == [-1, -0.8, 0, -0.005, -0.25, -0.5, -0.995, -1, -1, -1]
    assert penalties(reward, [4, 5]) == pytest.approx([-0.2, 0.0])


def test_no_length_earns_anything():
    """A reward that pays for brevity is won by an empty text."""
    values = penalties(LengthPenalty(free_tokens=0, max_tokens=10, min_tokens=0), range(20))
    assert max(values) == values[0] == 0.0
    assert max(penalties(LengthPenalty(free_tokens=8, max_tokens=10), range(20))) == 0.0
    assert values == sorted(values, reverse=True)


def test_what_is_too_short_loses_too():
    """An empty text says nothing, and was not taken for better than a long one."""
    reward = LengthPenalty(free_tokens=8, max_tokens=10)
    assert reward([None] * 2, [[], ""]) == [-1.0, -1.0]
    assert reward([None] * 3, ["a" * 10, "a" * 20, "a" * 32]) == [-0.5, 0.0, 0.0]


def test_the_defaults_fit_the_profiles():
    """A price that is flat over all that a profile can reach would teach nothing there."""
    longest = [profile.max_completion_length for profile in PROFILES.values()]
    assert max(longest) == MAX_TOKENS and FREE_TOKENS <= min(longest) / 2
    lost = penalties(LengthPenalty(), [200, 768, 4096])
    assert lost == pytest.approx([-0.025, -0.167, -1.0], abs=0.001)
    for limit in longest:
        just_below, limit_value = penalties(LengthPenalty(), [limit - 1, limit])
        assert limit_value < just_below < 0


def test_a_completion_is_not_paid_for_its_neighbours():
    reward = LengthPenalty()
    alone = penalties(reward, [500])
    assert penalties(reward, [500, 4000, 1])[0] == alone[0] == penalties(reward, [3, 500])[1]


def test_without_token_ids_characters_count():
    """Thinking is a part of the completion: else a policy moves its words there."""
    reward = LengthPenalty(free_tokens=10, max_tokens=20)
    message = [{"role": "assistant", "content": "a" * 20, "thinking": "b" * 40}]
    of_others = [{"role": "assistant", "content": "a" * 20, "reasoning_content": "b" * 40}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "a" * 30}, {"type": "text", "text": "b" * 30}]}]
    assert reward([None] * 5, ["a" * 60, message, of_others, parts, "a" * 40]) == [-0.5, -0.5, -0.5, -0.5, 0.0]
    empty = [{"role": "assistant", "content": None, "thinking": None}]
    assert reward([None] * 2, [empty, [{"role": "assistant"}]]) == [-1.0, -1.0]


@pytest.mark.parametrize("text", ["a" * 1_000_000, "\0" * 1_000_000, "\u202e" * 1_000_000, "\ud800" * 1_000_000])
def test_a_million_characters_get_the_minimum(text):
    assert LengthPenalty()([None], [text]) == [-1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"free_tokens": -1}, "min_tokens must be from 0 to free_tokens, .*; got 5, -1 and 4096"),
        ({"free_tokens": 300, "max_tokens": 300}, "less than max_tokens; got 5, 300 and 300"),
        ({"max_tokens": 100}, "less than max_tokens; got 5, 100 and 100"),
        ({"max_tokens": "200"}, "max_tokens must be an integer; got '200'"),
        ({"max_tokens": 200.0}, "max_tokens must be an integer; got 200.0"),
        ({"free_tokens": True}, "free_tokens must be an integer; got True"),
        ({"tokens": 3}, r"no option 'tokens' \(did you mean '\w+_tokens'\?\): choose free_tokens, max_tokens"),
    ],
)
def test_options_that_make_no_penalty(options, words):
    with pytest.raises(UserError, match=words):
        get_reward("length_penalty", **options)
