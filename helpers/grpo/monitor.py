"""Watches a run for rewards that are won otherwise than meant. A sign is for a person to follow up, and no proof."""

from collections import Counter
from collections.abc import Mapping, Sequence

from helpers.tasks import REFUSED, Grade

#: From this share of the completions on, copies of another completion are a sign; likewise refused ones.
COPIES = 0.5
REFUSALS = 0.25
#: A rise of the share of copies by so much, against the mean of the run's first steps, is called a mode collapse.
COLLAPSE = 0.25
FIRST_STEPS = 5


def watch(
    texts: Sequence[str],
    grades: Sequence[Grade] = (),
    alarms: Mapping[str, str] | None = None,
    first_copies: Sequence[float] = (),
) -> dict:
    """Return {"monitor/...": value} for one batch; "monitor/signs" are sentences, and an empty list is the good case.

    texts: of the completions. grades: one a completion, or none where the run has no task. alarms: tag of a grade ->
    what is wrong with an answer that has it. first_copies: the share of copies in each of the run's first steps.
    """
    answers = [text for text in texts if text]
    copies = (len(answers) - len(set(answers))) / len(texts)
    reasons = Counter(grade.reason for grade in grades if grade.outcome == REFUSED)
    tags = Counter(tag for grade in grades for tag, value in grade.tags.items() if value is True)
    signs = [
        *_alarm_signs(tags, alarms or {}, len(texts)),
        *_copy_signs(copies, first_copies, len(texts)),
        *_refusal_signs(reasons, len(texts)),
    ]
    return {
        "monitor/duplicate_ratio": copies,
        "monitor/refused": dict(reasons.most_common(3)),
        "monitor/refused_ratio": reasons.total() / len(texts),
        "monitor/tags": dict(tags),
        "monitor/signs": signs,
    }


def _alarm_signs(tags: Counter, alarms: Mapping[str, str], count: int) -> list[str]:
    return [f"{tags[tag]} of the {count} completions {what}" for tag, what in alarms.items() if tags[tag]]


def _copy_signs(copies: float, first_copies: Sequence[float], count: int) -> list[str]:
    at_first = sum(first_copies) / len(first_copies) if first_copies else copies
    share = f"{copies:.0%} of the {count} completions are copies of another"
    if copies >= at_first + COLLAPSE:
        return [f"mode collapse: {share}, {at_first:.0%} at the start"]
    if copies >= COPIES:
        return [share]
    return []


def _refusal_signs(reasons: Counter, count: int) -> list[str]:
    share = reasons.total() / count
    if share < REFUSALS:
        return []
    most_often = reasons.most_common(1)[0][0]
    return [f"{share:.0%} of the {count} completions were refused, most often: {most_often}"]
