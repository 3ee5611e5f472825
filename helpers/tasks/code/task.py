"""The code task: write a small function that passes hidden tests."""

import json
import random
from collections.abc import Sequence

from helpers.rewards.programs import NOT_ALLOWED, Verdict
from helpers.rewards.registry import reward_preset
from helpers.rollout.completion import Completion
from helpers.tasks.code.specs import ALL_SPECS, PROBE_SPECS, SPECS, Case, Parameters, Spec, example_text
from helpers.tasks.drawing import make_row
from helpers.tasks.generated import GeneratedTask
from helpers.tasks.split import belongs_to
from helpers.tasks.task import CORRECT, REFUSED, Grade, Rewards, Row, Value
from helpers.tasks.wording import parse_wording_name

FORMAT = "Answer with one Python code block."


class CodeTask(GeneratedTask):
    """Write `solve(...)` in pure Python as the prompt says; hidden tests decide whether it is right.

    level: of the sandbox, "os" for training, or "policy" for a host without seccomp. workers: programs judged at a
    time; None: one a core. The sandbox starts when it is first needed.

    Beside the usual columns, a row has answer, a right program; tests, as `CodeCorrectness` reads them; and spec, a
    name in `specs.ALL_SPECS`.
    """

    name = "code"
    outcomes = (CORRECT, "wrong", "error", NOT_ALLOWED, REFUSED)
    breakdowns = ("spec", "cluster")
    wordings = {name: spec.wordings for name, spec in SPECS.items()}
    probe_wordings = {name: spec.wordings for name, spec in PROBE_SPECS.items()}

    def __init__(self, level: str = "os", workers: int | None = None):
        self.level = level
        options = {"code_correctness": {"level": level, "workers": workers}}
        self.reward_funcs, self.reward_weights = reward_preset("code", options)
        self.correctness = self.reward_funcs[0]

    def close(self) -> None:
        self.correctness.close()

    def settings(self) -> dict:
        return {"task": self.name, "sandbox": self.level}

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

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        messages = [completion.message for completion in completions]
        tests = [row["tests"] for row in rows]
        finish_reasons = [completion.finish_reason for completion in completions]
        verdicts = self.correctness.verdicts(messages, tests, finish_reasons)
        return [_grade(verdict) for verdict in verdicts]

    def behaviours(
        self,
        prompts: Sequence,
        completions: Sequence,
        tests: Sequence[str],
        finish_reasons: Sequence[str] | None = None,
        **_,
    ) -> list[str | None]:
        """Describe what each program does with the hidden cases, right or wrong. None: the sandbox failed."""
        verdicts = self.correctness.verdicts(completions, tests, finish_reasons)
        return [verdict.behaviour if verdict.judged else None for verdict in verdicts]

    def reference_answer(self, row: Row) -> str:
        return f"```python\n{row['answer']}\n```"

    def describe_group(self, column: str, value: Value) -> str:
        described = super().describe_group(column, value)
        return described if column == "cluster" else f"{column} {described}"


def _grade(verdict: Verdict) -> Grade:
    return Grade(float(verdict.correct), verdict.correct, verdict.outcome, verdict.reason)


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
