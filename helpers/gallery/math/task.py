"""The math task: word problems whose answer is one integer in a box."""

import random
from collections.abc import Sequence

import helpers.gallery.math.rewards  # noqa: F401  # registers the rewards
from helpers.gallery.math.problems import FAMILIES, TWO_STEPS, Problem, draw_problem
from helpers.gallery.math.stories import MOST_STEPS, PROBE_STORIES, STORIES, draw_story, is_story, story_wordings
from helpers.profiles import Profile
from helpers.rewards.arguments import rows_of
from helpers.rewards.numbers import boxed_number, right_number
from helpers.rewards.registry import register_preset, reward_preset
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.drawing import make_row
from helpers.tasks.generated import GeneratedTask
from helpers.tasks.split import PROBE
from helpers.tasks.task import CORRECT, Grade, Rewards, Row, Value
from helpers.tasks.wording import Wordings, parse_wording_name

register_preset("math", [("math_answer", 1.0), ("math_format", 0.1)])

LONGEST_FAMILY = 2  # steps of the problems in `FAMILIES`
SMALL_DEPTH = 2  # what the embedded model has learned
LARGE_DEPTH = 6  # for large models; not measured on any


class MathTask(GeneratedTask):
    r"""Solve a word problem and give its answer, one integer, in `\boxed{}` in the final channel.

    depth: the most steps that a problem takes, from 2 to 10; each takes half as many or more. The embedded model
    learned problems of one and two steps; large models solve those without any training. With a depth of 2, training
    asks for one step, and "confirm" for two steps, which are other families of problems with other numbers. The split
    "probe" has other stories, and problems that take one and two steps more. Beside the usual columns, a row has
    answer, the integer as text; unit, which the answer may name; and depth, its steps.

    Raises UserError for another depth.
    """

    name = "math"
    outcomes = (CORRECT, "wrong", "unanswered")
    watch_copies = False  # many problems have the same small answer
    breakdowns = ("depth", "cluster")
    options = {"depth": "the most steps of a problem, from 2 to 10; 2 for the embedded model, 6 for others"}

    def __init__(self, depth: int = SMALL_DEPTH):
        if not isinstance(depth, int) or not 2 <= depth <= MOST_STEPS - 2:
            raise UserError(f"depth must be a whole number from 2 to {MOST_STEPS - 2}; got {depth!r}.")
        self.depth = depth
        shallowest = (depth + 1) // 2
        self.wordings = _wordings(shallowest, depth)
        self.probe_wordings = _probe_wordings(shallowest, depth)
        self.reward_funcs, self.reward_weights = reward_preset("math")

    def wordings_of(self, split: str) -> list[str]:
        """Return the names of the wordings of a split.

        Where no problem has more than two steps, training and monitoring ask for one step, and "confirm" for two.
        """
        names = super().wordings_of(split)
        if self.depth > LONGEST_FAMILY or split == PROBE:
            return names
        takes_two_steps = split == "confirm"
        return [name for name in names if (parse_wording_name(name)[0] in TWO_STEPS) == takes_two_steps]

    @classmethod
    def options_for(cls, profile: Profile) -> dict[str, Value]:
        return {"depth": SMALL_DEPTH if profile.name == "tiny" else LARGE_DEPTH}

    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        problem = _draw_problem(rng, wording, split)
        row = make_row(self.name, problem.text, str(problem.answer), wording)
        return {**row, "unit": problem.unit, "depth": len(problem.steps)}

    def settings(self) -> dict:
        return {"task": self.name, "depth": self.depth}

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        return [_grade(row, completion) for row, completion in zip(rows, completions, strict=True)]

    def behaviours(
        self,
        prompts: Sequence,
        completions: Sequence,
        unit: Sequence[str],
        finish_reasons: Sequence[str] | None = None,
        **_,
    ) -> list[str | None]:
        """Return the number that each completion answers with, as text, whatever way it was written."""
        rows = rows_of(self.name, completions, finish_reasons, unit=unit)
        return [str(boxed_number(*row)) for row in rows]

    def reference_answer(self, row: Row) -> str:
        return rf"\boxed{{{row['answer']}}}"

    def describe_group(self, column: str, value: str) -> str:
        return f"{value} steps" if column == "depth" else super().describe_group(column, value)


def _wordings(shallowest: int, deepest: int) -> dict[str, Wordings]:
    """Return the wordings of each kind of problem that takes so many steps, outside the probe."""
    families = {
        name: family.wordings for name, family in FAMILIES.items() if shallowest <= len(family.operations) <= deepest
    }
    story_depths = range(max(shallowest, LONGEST_FAMILY + 1), deepest + 1)
    return families | story_wordings(STORIES, story_depths)


def _probe_wordings(shallowest: int, deepest: int) -> dict[str, Wordings]:
    """Return the wordings of other stories, and of all stories with one and two steps more."""
    new_stories = story_wordings(PROBE_STORIES, range(shallowest, deepest + 1))
    deeper = story_wordings(STORIES | PROBE_STORIES, range(deepest + 1, deepest + 3))
    return new_stories | deeper


def _grade(row: Row, completion: Completion) -> Grade:
    value = boxed_number(completion.text, completion.finish_reason, row["unit"])
    if value is None:
        return Grade(0.0, False, "unanswered", "no single number in the last box of the final channel")
    if value != right_number(row["answer"], row["unit"]).value:
        return Grade(0.0, False, "wrong", "wrong number")
    return Grade(1.0, True, CORRECT)


def _draw_problem(rng: random.Random, wording: str, split: str) -> Problem:
    if is_story(wording):
        return draw_story(rng, wording)
    while True:
        problem = draw_problem(rng, wording, heldout=split != "train")
        if problem.answer > 0:
            return problem
