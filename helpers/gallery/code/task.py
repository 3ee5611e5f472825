"""The code task: write a small function that passes hidden tests."""

import json
import random
from collections.abc import Sequence

from helpers.gallery.code.judge import FUNCTION, CodeJudge
from helpers.gallery.code.specs import ALL_SPECS, PROBE_SPECS, SPECS, Case, Parameters, Spec, example_text
from helpers.tasks.drawing import make_row
from helpers.tasks.programs.task import ProgramTask, register_rewards
from helpers.tasks.programs.verdict import Verdict, VerdictReward
from helpers.tasks.split import belongs_to
from helpers.tasks.task import Row, Value
from helpers.tasks.wording import parse_wording_name

FORMAT = "Answer with one Python code block."


def correctness_pay(verdict: Verdict) -> float:
    """Pay 1 for a program whose function solve passes every hidden test of its row, else 0.

    The column `tests` is JSON text: {"cases": [[argument, ...], ...], "results": [...]} for exact results, with
    "property": the name of a check in `properties.PROPERTIES` beside or instead of them, and "tolerance" for floats.
    """
    return float(verdict.correct)


class CodeTask(ProgramTask):
    """Write `solve(...)` in pure Python as the prompt says; hidden tests decide whether it is right.

    The options are those of `ProgramTask`. Beside the usual columns, a row has answer, a right program; tests, as
    `correctness_pay` reads them; and spec, a name in `specs.ALL_SPECS`.
    """

    name = "code"
    function = FUNCTION
    requirement_column = "tests"
    judge_class = CodeJudge
    rewards = (VerdictReward("code_correctness", correctness_pay, (0.0, 1.0), pays_correctness=True),)
    breakdowns = ("spec", "cluster")
    wordings = {name: spec.wordings for name, spec in SPECS.items()}
    probe_wordings = {name: spec.wordings for name, spec in PROBE_SPECS.items()}

    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        name, number = parse_wording_name(wording)
        spec = ALL_SPECS[name]
        text = ""
        # Tests are made only for a prompt that the split may have.
        while not text or not belongs_to(text, split):
            parameters = spec.draw_parameters(rng)
            examples = spec.draw_examples(rng, parameters)
            text = _prompt(spec, spec.wordings.all[number], parameters, examples)
        # One prompt has one set of tests, whatever the seed of the data set.
        hidden = spec.draw_hidden(random.Random(text), parameters, examples)
        tests = _tests(spec, parameters, hidden)
        row = make_row(self.name, text, spec.program(parameters), wording)
        return {**row, "tests": tests, "spec": name}

    def describe_group(self, column: str, value: Value) -> str:
        described = super().describe_group(column, value)
        return described if column == "cluster" else f"{column} {described}"


def _prompt(spec: Spec, sentence: str, parameters: Parameters, examples: Sequence[Case]) -> str:
    shown = [example_text(spec, case, parameters) for case in examples]
    sentences = (
        sentence.format(**parameters),
        f"Write the function solve({spec.signature}) in pure Python, without imports.",
        f"Examples: {', '.join(shown)}.",
        FORMAT,
    )
    return " ".join(sentences)


def _tests(spec: Spec, parameters: Parameters, cases: Sequence[Case]) -> str:
    """Return the column `tests`. Where there are several right results, a property decides, else the result."""
    tests = {"cases": cases}
    if spec.property:
        tests["property"] = spec.property
    else:
        tests["results"] = [spec.result(case, parameters) for case in cases]
    if spec.tolerance:
        tests["tolerance"] = spec.tolerance
    return json.dumps(tests)


register_rewards(CodeTask)
