"""Watches a run for rewards that are won otherwise than meant. A sign is for a person to follow up, and no proof."""

from collections import Counter
from collections.abc import Mapping, Sequence

from helpers.tasks import REFUSED, UNJUDGED, Grade

#: From this share of the completions on, copies of another completion are a sign; likewise refused ones.
COPIES = 0.5
REFUSALS = 0.25
#: From this share on, completions that could not be graded are a sign.
UNGRADED = 0.1
#: A rise of the share of copies by so much, against the mean of the run's first steps, is called a mode collapse.
COLLAPSE = 0.25
FIRST_STEPS = 5


def watch(
    texts: Sequence[str],
    grades: Sequence[Grade] = (),
    alarms: Mapping[str, str] | None = None,
    first_copies: Sequence[float] = (),
    watch_copies: bool = True,
) -> dict:
    """Return {"monitor/...": value} for one batch; "monitor/signs" are sentences, and an empty list is the good case.

    texts: of the completions. grades: one a completion, or none where the run has no task. alarms: tag of a grade ->
    what is wrong where it is True. first_copies: the share of copies in each of the run's first steps. watch_copies:
    whether many copies are a sign.
    """
    answers = [text for text in texts if text]
    copies = (len(answers) - len(set(answers))) / len(texts)
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
        "monitor/signs": signs,
    }


def _alarm_signs(asked: Counter, raised: Counter, alarms: Mapping[str, str]) -> list[str]:
    return [f"{raised[tag]} of {asked[tag]} answers {what}" for tag, what in alarms.items() if raised[tag]]


def _copy_signs(copies: float, first_copies: Sequence[float], completions: str) -> list[str]:
    sentence = copy_sentence(copies, first_copies, completions)
    return [] if sentence is None else [sentence]


def copy_sentence(copies: float, first_copies: Sequence[float], completions: str = "completions") -> str | None:
    """Return what is wrong with a share of copies, None where nothing is.

    first_copies: the shares of the run's first steps. completions: how the sentence names them.
    """
    at_first = sum(first_copies) / len(first_copies) if first_copies else copies
    share = f"{copies:.0%} of the {completions} are copies of another"
    if copies >= at_first + COLLAPSE:
        return f"mode collapse: {share}, {at_first:.0%} at the start"
    if copies >= COPIES:
        return share
    return None


def _refusal_signs(reasons: Counter, count: int) -> list[str]:
    share = reasons.total() / count
    if share < REFUSALS:
        return []
    most_often = reasons.most_common(1)[0][0]
    return [f"{share:.0%} of the {count} completions were refused, most often: {most_often}"]


def _ungraded_signs(grades: Sequence[Grade]) -> list[str]:
    reasons = Counter(grade.reason for grade in grades if grade.outcome == UNJUDGED)
    if not reasons or reasons.total() < UNGRADED * len(grades):
        return []
    most_often = reasons.most_common(1)[0][0]
    return [f"{reasons.total()} of {len(grades)} answers could not be graded, most often: {most_often}"]
