"""Signs that a reward is won otherwise than meant: each appears where it should, and nowhere else."""

import json
from dataclasses import asdict

import numpy as np

from helpers.grpo.monitor import watch
from helpers.tasks import Grade
from helpers.tasks.matmul.task import MatmulTask

TEXTS = [f"program {n}" for n in range(8)]


def grades(**tags):
    """Eight grades, the first of which has the tags."""
    return [Grade(0.0, False, "wrong", "", tags if n == 0 else {}) for n in range(8)]


def signs(texts=TEXTS, found=()):
    return watch(texts, found, MatmulTask.alarms)["monitor/signs"]


def test_a_good_batch_has_none():
    found = watch(TEXTS, grades(failed_heldout_check=False, too_fast=False, speedup=1.5), MatmulTask.alarms)
    assert found["monitor/signs"] == [] and found["monitor/duplicate_ratio"] == 0
    assert found["monitor/tags_asked"] == {"failed_heldout_check": 1, "too_fast": 1}
    assert found["monitor/tags_raised"] == {}


def test_a_run_without_a_task_is_watched_too():
    copies = ["the same program again, letter by letter"] * 8
    assert signs() == [] and signs(texts=copies) == ["88% of the 8 completions are copies of another"]


def test_paid_for_something_else():
    """Counted among the answers that were put to the check, not among all."""
    checked = grades(failed_heldout_check=True)
    checked[1] = Grade(0.0, False, "wrong", "", {"failed_heldout_check": False})
    (sign,) = signs(found=checked)
    assert sign.startswith("1 of 2 answers fail the held-out check")


def test_too_fast():
    assert signs(found=grades(too_fast=True)) == ["1 of 1 answers are faster than they can be: read them"]


def test_a_tag_without_an_alarm_is_only_counted():
    found = watch(TEXTS, grades(odd=True), {"other": "are strange"})
    assert found["monitor/signs"] == [] and found["monitor/tags_raised"] == {"odd": 1}


def test_refusals_by_reason():
    reasons = ["numpy is not pure Python"] * 2 + ["eval is not allowed"]
    refused = [Grade(0.0, False, "refused", reason) for reason in reasons]
    found = watch(TEXTS, refused + grades()[3:])
    assert found["monitor/refused"] == {"numpy is not pure Python": 2, "eval is not allowed": 1}
    assert found["monitor/signs"] == ["38% of the 8 completions were refused, most often: numpy is not pure Python"]
    assert signs(found=refused[2:] + grades()[1:]) == []


def test_a_mode_collapse_is_named():
    """Copies rose from 3 to 42 % of a run's answers, and "steps with a sign: none" was printed under it."""
    program = "def matmul(A, B): return [[0]]  # program"
    texts = [f"{program} {n}" for n in range(37)] + [f"{program} 0"] * 27
    (sign,) = watch(texts, first_copies=[0.03, 0.05, 0.02, 0.03, 0.02])["monitor/signs"]
    assert sign == "mode collapse: 42% of the 64 completions are copies of another, 3% at the start"
    assert watch(texts, first_copies=[0.3, 0.32])["monitor/signs"] == []
    assert watch(texts)["monitor/signs"] == []


def test_short_answers_may_be_alike():
    """Eight right answers to a word problem are equal, and nothing is wrong, also where the run has no task."""
    assert watch([r"\boxed{7}"] * 8)["monitor/signs"] == []
    assert watch([r"\boxed{7}"] * 8, watch_copies=False)["monitor/signs"] == []


def test_what_could_not_be_graded_is_a_sign():
    """Every answer of a run was once unjudged, and the log showed only shares of 0."""
    unjudged = [Grade(0.0, False, "unjudged", "the sandbox failed")] * 2
    assert signs(found=unjudged + grades()[2:]) == [
        "2 of 8 answers could not be graded, most often: the sandbox failed"
    ]
    assert signs(texts=[f"{n}" for n in range(40)], found=unjudged + [grades()[1]] * 38) == []


def test_numpy_values_of_a_grade_count():
    """`np.True_ is True` is false, and an alarm was silent."""
    grade = Grade(np.float32(1), np.bool_(True), "correct", "", {"too_fast": np.bool_(True), "speed": np.float64(2)})
    assert signs(found=[grade]) == ["1 of 1 answers are faster than they can be: read them"]
    assert json.loads(json.dumps(asdict(grade)))["tags"] == {"too_fast": True, "speed": 2.0}
