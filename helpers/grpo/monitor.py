"""Watches a run for rewards that are won otherwise than meant. A sign is for a person to follow up, and no proof."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helpers.tasks import REFUSED, UNJUDGED, Grade

#: From this share of the completions on, copies of another completion are a sign; likewise refused ones.
COPIES = 0.5
REFUSALS = 0.25
#: From this share on, completions that could not be graded are a sign.
UNGRADED = 0.1
#: A rise of the share of copies by so much, against the mean of the run's first steps, is called a mode collapse.
COLLAPSE = 0.35
FIRST_STEPS = 5
#: Characters of a text that is long enough to be a copy: two right answers "42" are equal by themselves.
SHORTEST_COPY = 40


class Sign(NamedTuple):
    """Something to follow up. name: a short label. size: how much of it there is. sentence: for a person."""

    name: str
    size: float
    sentence: str


def watch(
    texts: Sequence[str],
    grades: Sequence[Grade] = (),
    alarms: Mapping[str, str] | None = None,
    first_copies: Sequence[float] = (),
    watch_copies: bool = True,
) -> dict:
    """Return {"monitor/...": value} for one batch.

    "monitor/signs" are sentences on this batch, and an empty list is the good case. "monitor/found" is {name: size} of
    the same signs, in their order.

    texts: of the completions. grades: one a completion, or none where the run has no task. alarms: tag of a grade ->
    what is wrong where it is True. first_copies: the share of copies in each of the run's first steps. watch_copies:
    whether many copies are a sign.
    """
    long_texts = [text for text in texts if len(text) >= SHORTEST_COPY]
    copies = (len(long_texts) - len(set(long_texts))) / len(texts)
    reasons = Counter(grade.reason for grade in grades if grade.outcome == REFUSED)
    flags = [(tag, value) for grade in grades for tag, value in grade.tags.items() if isinstance(value, bool)]
    asked = Counter(tag for tag, _ in flags)
    raised = Counter(tag for tag, value in flags if value)
    signs = [
        *_alarm_signs(asked, raised, alarms or {}),
        *(_copy_signs(copies, first_copies, f"{len(texts)} completions") if watch_copies else []),
        *_refusal_signs(reasons, len(texts)),
        *_ungraded_signs(grades),
    ]
    return {
        "monitor/duplicate_ratio": copies,
        "monitor/refused": dict(reasons.most_common(3)),
        "monitor/refused_ratio": reasons.total() / len(texts),
        "monitor/tags_asked": dict(asked),
        "monitor/tags_raised": dict(raised),
        "monitor/signs": [sign.sentence for sign in signs],
        "monitor/found": {sign.name: sign.size for sign in signs},
    }


def _alarm_signs(asked: Counter, raised: Counter, alarms: Mapping[str, str]) -> list[Sign]:
    """Return a sign for each tag that stands for something wrong. One answer is enough: no chance is in it."""
    return [
        Sign(f"tag {tag}", raised[tag] / asked[tag], f"{raised[tag]} of {asked[tag]} answers {what}")
        for tag, what in alarms.items()
        if raised[tag]
    ]


def _copy_signs(copies: float, first_copies: Sequence[float], completions: str) -> list[Sign]:
    """Return what is wrong with a share of copies.

    first_copies: the shares of the run's first steps. completions: how the sentence names them.
    """
    at_first = sum(first_copies) / len(first_copies) if first_copies else copies
    share = f"{copies:.0%} of the {completions} are copies of another"
    if copies >= at_first + COLLAPSE:
        return [Sign("mode collapse", copies, f"mode collapse: {share}, {at_first:.0%} at the start")]
    if copies >= COPIES:
        return [Sign("copies", copies, share)]
    return []


def _refusal_signs(reasons: Counter, count: int) -> list[Sign]:
    share = reasons.total() / count
    if share < REFUSALS:
        return []
    most_often = reasons.most_common(1)[0][0]
    sentence = f"{share:.0%} of the {count} completions were refused, most often: {most_often}"
    return [Sign("refusals", share, sentence)]


def _ungraded_signs(grades: Sequence[Grade]) -> list[Sign]:
    reasons = Counter(grade.reason for grade in grades if grade.outcome == UNJUDGED)
    if not reasons or reasons.total() < UNGRADED * len(grades):
        return []
    most_often = reasons.most_common(1)[0][0]
    sentence = f"{reasons.total()} of {len(grades)} answers could not be graded, most often: {most_often}"
    return [Sign("ungraded", reasons.total() / len(grades), sentence)]
