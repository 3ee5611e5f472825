"""The splits of a run, made of several data sets: a pool to train on, and what must not be in it.

The procedure is that of a published pipeline for competition mathematics, with three corrections. There, evaluation
problems were removed only where training had an exact copy; the prompts that chose a checkpoint were a part of those
that judged it; and sets were shuffled by a generator of random numbers. Here near copies are removed, too, no prompt is
in two splits, and the order of a hash decides, which is the same in every version of Python and for any order of rows.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from helpers.gallery.sources.overlap import describe_overlaps, find_overlaps, masked, normalized
from helpers.gallery.sources.questions import Question
from helpers.gallery.sources.reading import Provenance, Reading
from helpers.gallery.sources.table import SOURCES
from helpers.runtime import UserError, did_you_mean
from helpers.tasks.drawing import text_digest
from helpers.tasks.split import PROBE, SPLITS
from helpers.tasks.task import Row

#: The name of the probe that is drawn from the pool.
IN_DISTRIBUTION = "ID"
#: Of a small pool at most this share becomes the probe, and of few prompts to confirm with this share the monitor.
MOST_OF_POOL = 0.25
MOST_FOR_MONITOR = 0.2


@dataclass(frozen=True)
class Plan:
    """Which sources become which splits, and how large.

    train: the source of the pool. pool: the most questions in it; None: all. in_distribution: how many of the pool are
    kept out of training, as the probe "ID". confirm_set: the name of the set that decides. whole: sources that it takes
    all of; fill: those that fill it to confirm_rows. monitor_rows: of the same sources, to choose a checkpoint and a
    temperature by. probes: further sets that are asked at the end: name -> source.
    """

    train: str
    confirm_set: str
    fill: tuple[str, ...]
    whole: tuple[str, ...] = ()
    pool: int | None = None
    in_distribution: int = 200
    confirm_rows: int = 1000
    monitor_rows: int = 200
    probes: dict[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """The sources that are read."""
        return [self.train, *self.whole, *self.fill, *self.probes.values()]

    @property
    def task(self) -> str:
        """The task whose rewards judge the answers."""
        return SOURCES[self.train].task


_AIME = {"AIME 2024": "aime_2024"}
PLANS = {
    "numinamath": Plan("numinamath", "OOD", fill=("math_train", "math_test"), whole=("apex",), pool=3200, probes=_AIME),
    "dapo_math": Plan("dapo_math", "MATH-500", fill=("math_500",), probes=_AIME),
    "math_train": Plan("math_train", "MATH-500", fill=("math_500",), probes=_AIME),
    "gsm8k": Plan("gsm8k", "GSM8K test", fill=("gsm8k_test",)),
    "mbpp": Plan("mbpp", "MBPP test", fill=("mbpp_test",), in_distribution=0),
}


@dataclass(frozen=True)
class Splits:
    """The rows of each split, and how they came about.

    pool_sha256: of the normalized problems of the pool, in their order. removed: what was left out because two sets
    shared it, a sentence for each pair of sets. sources: source -> where it was read.
    """

    rows: dict[str, list[Row]]
    pool_sha256: str
    removed: dict[str, str]
    sources: dict[str, Provenance]


def find_plan(name: str) -> Plan:
    """Return the plan of a name. Raises UserError for an unknown one."""
    if name not in PLANS:
        raise UserError(f"There is no data set '{name}'{did_you_mean(name, PLANS)}: choose {', '.join(PLANS)}.")
    return PLANS[name]


def make_splits(plan: Plan, read: Callable[[str], Reading], seed: int, pool: int | None = None) -> Splits:
    """Read the sources of a plan and divide their questions into train, monitor, confirm and probe.

    read: f(name of a source) -> its `Reading`. seed: of the pool and of the probe "ID"; what else is asked is the same
    for every seed, but for what it shares with the pool. pool: in place of the plan's.

    No question is in two splits. None of the training shares a problem, exactly, but for its numbers, or by eight words
    in a row, with one that is asked in an evaluation. Where there are fewer questions than a plan asks for, the probe
    "ID" gets at most a quarter of the pool, and the monitor a fifth of what it shares with the set that decides.

    Raises UserError where nothing is left for training, the monitor or the set that decides.
    """
    readings = {name: read(name) for name in plan.sources}
    comparison = _Comparison()
    probes = {}
    for name, source in plan.probes.items():
        probes[name] = _in_order_of_hash(readings[source].questions, name)
    asked_at_the_end = [question for questions in probes.values() for question in questions]

    usable = readings[plan.train].questions
    clean = comparison.without(usable, asked_at_the_end, f"{plan.train} and the probes")
    pooled = _in_order_of_hash(clean, f"{seed} pool")[: pool or plan.pool]
    in_distribution, train = _divide_pool(pooled, plan, seed, comparison)
    confirm, monitor = _draw_held_out(readings, plan, asked_at_the_end, pooled, comparison)

    rows = {
        "train": _rows(train, plan.train),
        "monitor": _rows(monitor, "monitor"),
        "confirm": _rows(confirm, plan.confirm_set),
        PROBE: _rows(in_distribution, IN_DISTRIBUTION),
    }
    for name, questions in probes.items():
        rows[PROBE] += _rows(questions, name)
    if not rows[PROBE]:
        del rows[PROBE]
    _check_splits(rows, plan, comparison.sentences)
    sources = {name: reading.provenance for name, reading in readings.items()}
    return Splits(rows, _digest_of_problems(pooled), comparison.sentences, sources)


class _Comparison:
    """Leaves out what two sets share.

    sentences: pair of sets -> a sentence on what they shared.
    """

    def __init__(self):
        self.sentences: dict[str, str] = {}

    def without(self, questions: Sequence[Question], others: Sequence[Question], pair: str) -> list[Question]:
        """Return the questions that `others` do not have. pair: a name for the two sets."""
        if not others:
            return list(questions)
        overlaps = find_overlaps(_problems(questions), _problems(others))
        self.sentences[pair] = describe_overlaps(overlaps, len(questions))
        shared = {overlap.place for overlap in overlaps}
        return [question for place, question in enumerate(questions) if place not in shared]


def _divide_pool(
    pooled: Sequence[Question], plan: Plan, seed: int, comparison: _Comparison
) -> tuple[list[Question], list[Question]]:
    """Return the probe that is drawn from the pool, and what is left to train on."""
    count = min(plan.in_distribution, int(MOST_OF_POOL * len(pooled)))
    in_distribution = _in_order_of_hash(pooled, f"{seed} in distribution")[:count]
    probed = {normalized(question.problem) for question in in_distribution}
    rest = [question for question in pooled if normalized(question.problem) not in probed]
    return in_distribution, comparison.without(rest, in_distribution, "the rest of the pool and the probe ID")


def _draw_held_out(
    readings: Mapping[str, Reading],
    plan: Plan,
    asked_at_the_end: Sequence[Question],
    pooled: Sequence[Question],
    comparison: _Comparison,
) -> tuple[list[Question], list[Question]]:
    """Return the set that decides, and the monitor, which gets what follows it."""
    candidates = []
    for names in (plan.whole, plan.fill):
        questions = [question for name in names for question in readings[name].questions]
        candidates += _in_order_of_hash(questions, "confirm")
    candidates = _each_once(candidates)
    candidates = comparison.without(candidates, asked_at_the_end, f"{plan.confirm_set} and the probes")
    candidates = comparison.without(candidates, pooled, f"{plan.confirm_set} and the pool")
    count = min(plan.confirm_rows, len(candidates) - int(MOST_FOR_MONITOR * len(candidates)))
    confirm = candidates[:count]
    monitor = comparison.without(candidates[count:], confirm, f"the monitor and {plan.confirm_set}")
    return confirm, monitor[: plan.monitor_rows]


def _check_splits(rows: Mapping[str, Sequence[Row]], plan: Plan, removed: Mapping[str, str]) -> None:
    """Raise UserError for a split that has no row, of those that every task has."""
    for split in SPLITS:
        if not rows[split]:
            found = "; ".join(f"{pair}: {sentence}".rstrip(".") for pair, sentence in removed.items())
            raise UserError(
                f"The sources of '{plan.train}' leave no question for the split '{split}': give them more rows, and "
                f"name the split of each where one file has several ({found})."
            )


def _in_order_of_hash(questions: Iterable[Question], salt: str) -> list[Question]:
    """Return questions in an order that depends on their normalized problems and on `salt` alone."""
    return sorted(questions, key=lambda question: _digest([salt, normalized(question.problem)]))


def _each_once(questions: Iterable[Question]) -> list[Question]:
    """Return the first question of each problem."""
    by_problem: dict[str, Question] = {}
    for question in questions:
        by_problem.setdefault(normalized(question.problem), question)
    return list(by_problem.values())


def _rows(questions: Iterable[Question], set_name: str) -> list[Row]:
    """Return rows of a task. Problems that differ in their numbers alone are in one cluster."""
    rows = []
    for question in questions:
        cluster = text_digest(masked(question.problem))
        rows.append({**question.row, "set": set_name, "cluster": cluster})
    return rows


def _problems(questions: Iterable[Question]) -> list[str]:
    return [question.problem for question in questions]


def _digest_of_problems(questions: Iterable[Question]) -> str:
    return _digest(normalized(question.problem) for question in questions)


def _digest(texts: Iterable[str]) -> str:
    """Return the SHA-256 of some texts, in hexadecimal digits."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()
