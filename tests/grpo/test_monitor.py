"""Signs that a reward is won otherwise than meant: each appears where it should, and nowhere else."""

from helpers.grpo.monitor import watch

TEXTS = [f"program {n}" for n in range(8)]
NAN = float("nan")


def signs(texts=TEXTS, rewards=None, extras=None):
    return watch(texts, rewards or {}, extras or {})["monitor/signs"]


def test_a_good_batch_has_none():
    found = watch(TEXTS, {"heldout_check": [1.0, 1.0] + [NAN] * 6}, {"refused": [""] * 8, "too_fast": [False] * 8})
    assert found["monitor/signs"] == [] and found["monitor/duplicate_ratio"] == 0
    assert found["monitor/heldout_checked"] == 2 and found["monitor/heldout_wrong"] == 0


def test_rewards_without_extras_are_watched_too():
    assert signs() == [] and signs(texts=["same"] * 8) == ["88% of the 8 completions are copies of another"]


def test_paid_for_something_else():
    (sign,) = signs(rewards={"heldout_check": [0.0, 1.0] + [NAN] * 6})
    assert sign.startswith("1 of the 2 best-paid programs fail the held-out check")


def test_too_fast():
    assert signs(extras={"too_fast": [True] + [False] * 7}) == ["1 of 8 are faster than they can be: read them"]


def test_refusals_by_reason():
    refused = ["numpy is not pure Python"] * 2 + ["eval is not allowed"] + [""] * 5
    found = watch(TEXTS, {}, {"refused": refused})
    assert found["monitor/refused"] == {"numpy is not pure Python": 2, "eval is not allowed": 1}
    assert found["monitor/signs"] == ["38% of 8 were refused, most often: numpy is not pure Python"]
    assert signs(extras={"refused": refused[2:] + ["", ""]}) == []


def test_a_mode_collapse_is_named():
    """Copies rose from 3 to 42 % of a run's answers, and "steps with a sign: none" was printed under it."""
    texts = [f"program {n}" for n in range(37)] + ["program 0"] * 27
    (sign,) = watch(texts, {}, {}, first_copies=[0.03, 0.05, 0.02, 0.03, 0.02])["monitor/signs"]
    assert sign == "mode collapse: 42% of the 64 completions are copies of another, 3% at the start"
    assert watch(texts, {}, {}, first_copies=[0.3, 0.32])["monitor/signs"] == []
    assert watch(texts, {}, {})["monitor/signs"] == []
