"""Signs that a reward is won otherwise than meant: each appears where it should, and nowhere else."""

from helpers.grpo.monitor import watch
from helpers.tasks import Grade, MatmulTask

TEXTS = [f"program {n}" for n in range(8)]


def grades(**tags):
    """Eight grades, the first of which has the tags."""
    return [Grade(0.0, False, "wrong", "", tags if n == 0 else {}) for n in range(8)]


def signs(texts=TEXTS, found=()):
    return watch(texts, found, MatmulTask.alarms)["monitor/signs"]


def test_a_good_batch_has_none():
    found = watch(TEXTS, grades(passed_heldout_check=True, too_fast=False, speedup=1.5), MatmulTask.alarms)
    assert found["monitor/signs"] == [] and found["monitor/duplicate_ratio"] == 0
    assert found["monitor/tags"] == {"passed_heldout_check": 1}


def test_a_run_without_a_task_is_watched_too():
    assert signs() == [] and signs(texts=["same"] * 8) == ["88% of the 8 completions are copies of another"]


def test_paid_for_something_else():
    (sign,) = signs(found=grades(failed_heldout_check=True))
    assert sign.startswith("1 of the 8 completions fail the held-out check")


def test_too_fast():
    assert signs(found=grades(too_fast=True)) == ["1 of the 8 completions are faster than they can be: read them"]


def test_a_tag_without_an_alarm_is_only_counted():
    found = watch(TEXTS, grades(odd=True), {"other": "are strange"})
    assert found["monitor/signs"] == [] and found["monitor/tags"] == {"odd": 1}


def test_refusals_by_reason():
    reasons = ["numpy is not pure Python"] * 2 + ["eval is not allowed"]
    refused = [Grade(0.0, False, "refused", reason) for reason in reasons]
    found = watch(TEXTS, refused + grades()[3:])
    assert found["monitor/refused"] == {"numpy is not pure Python": 2, "eval is not allowed": 1}
    assert found["monitor/signs"] == ["38% of the 8 completions were refused, most often: numpy is not pure Python"]
    assert signs(found=refused[2:] + grades()[1:]) == []


def test_a_mode_collapse_is_named():
    """Copies rose from 3 to 42 % of a run's answers, and "steps with a sign: none" was printed under it."""
    texts = [f"program {n}" for n in range(37)] + ["program 0"] * 27
    (sign,) = watch(texts, first_copies=[0.03, 0.05, 0.02, 0.03, 0.02])["monitor/signs"]
    assert sign == "mode collapse: 42% of the 64 completions are copies of another, 3% at the start"
    assert watch(texts, first_copies=[0.3, 0.32])["monitor/signs"] == []
    assert watch(texts)["monitor/signs"] == []
