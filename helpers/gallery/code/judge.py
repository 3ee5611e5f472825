"""The judge of the code task: a program is right if it passes the hidden tests of its row.

A program runs in the sandbox, in a process of its own. It is given the arguments of the tests and nothing else; the
results are compared here.
"""

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.gallery.code.properties import PROPERTIES
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.sandbox import (
    SOLVE,
    CaseResult,
    Limits,
    Outcome,
    Payload,
    Status,
    Worker,
    case_results,
    encode_cases,
)
from helpers.tasks.programs import SCAN
from helpers.tasks.programs.judge import ProgramJudge
from helpers.tasks.programs.verdict import ERROR, WRONG, Verdict
from helpers.tasks.task import CORRECT, UNJUDGED

FUNCTION = "solve"
LIMITS = Limits(answer_bytes=65_536, cpu_seconds=1.0)
MOST_TESTS_REMEMBERED = 1_000


@dataclass(frozen=True)
class HiddenTests:
    """The hidden tests of a row.

    cases: for each call its arguments. results: the right results, or None. property: the name of a check in
    `properties.PROPERTIES`, or "". tolerance: how far a float may be from the right one.
    """

    cases: list
    results: list | None
    property: str
    tolerance: float

    @classmethod
    def from_json(cls, text: str) -> "HiddenTests":
        """Read the column `tests`. Raises UserError for invalid tests."""
        if not isinstance(text, str):
            raise UserError("A row's tests must be a JSON text: write an object with cases and results.")
        return cls._from_text(text)

    @classmethod
    @functools.lru_cache(maxsize=MOST_TESTS_REMEMBERED)  # the completions of a group have one text
    def _from_text(cls, text: str) -> "HiddenTests":
        try:
            tests = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"A row's tests are not JSON ({error}): write an object with cases and results.") from error
        if not isinstance(tests, dict):
            raise UserError("A row's tests must be a JSON object with cases, and with results or a property.")
        cases = tests.get("cases")
        results = tests.get("results")
        name = tests.get("property", "")
        is_list_of_lists = isinstance(cases, list) and all(isinstance(case, list) for case in cases)
        if not is_list_of_lists or not cases:
            raise UserError("A row's tests need cases: a list with the list of arguments of each call.")
        if results is not None and (not isinstance(results, list) or len(results) != len(cases)):
            raise UserError(f"A row's tests need one result for each case: there are {len(cases)} cases.")
        if name and (not isinstance(name, str) or name not in PROPERTIES):
            hint = did_you_mean(str(name), PROPERTIES)
            raise UserError(f"There is no property '{name}'{hint}: choose {', '.join(PROPERTIES)}.")
        if results is None and not name:
            raise UserError("A row's tests need results, or the name of a property.")
        if name:
            _check_arguments(name, cases)
        tolerance = tests.get("tolerance", 0.0)
        if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
            raise UserError(f"The tolerance in a row's tests must be at least 0 and below 1; got {tolerance!r:.40}.")
        return cls(cases, results, name, float(tolerance))

    def judge(self, outcome: Outcome) -> Verdict:
        """Return the verdict on the outcome of a run."""
        if not outcome.answered:
            return Verdict.without_answer(outcome)
        try:
            found = case_results(outcome.bytes, len(self.cases))
        except ValueError as error:
            return Verdict(ERROR, str(error), Status.BROKE_PROTOCOL.value)
        behaviour = hashlib.sha256(outcome.bytes).hexdigest()
        verdicts = [self._judge_case(number, result) for number, result in enumerate(found)]
        faults = [verdict for verdict in verdicts if not verdict.correct]
        if not faults:
            return Verdict(CORRECT, behaviour=behaviour)
        first = faults[0]
        reason = f"{first.reason} ({len(faults)} of {len(verdicts)} hidden tests fail)"
        return Verdict(first.outcome, reason, behaviour)

    def _judge_case(self, number: int, result: CaseResult) -> Verdict:
        if result.raised:
            return Verdict(ERROR, f"it raised {result.fault}")
        if result.fault:
            return Verdict(WRONG, result.fault)
        return self.judge_value(number, result.value)

    def judge_value(self, number: int, value: object) -> Verdict:
        """Return the verdict on one plain value as the result of case `number`."""
        if self.results is not None:
            right = self.results[number]
            if not is_same(value, right, self.tolerance):
                return Verdict(WRONG, "wrong result")
        if self.property:
            has_property = PROPERTIES[self.property]
            if not has_property(self.cases[number], value):
                described = self.property.replace("_", " ")
                return Verdict(WRONG, f"the result is no {described}")
        return Verdict(CORRECT)


def _check_arguments(name: str, cases: list) -> None:
    """Raise UserError for a case whose number of arguments is not the one that a property reads."""
    has_property = PROPERTIES[name]
    for case in cases:
        try:
            has_property(case, None)
        except ValueError as error:
            raise UserError(
                f"A row's tests have a case of {len(case)} arguments, which the property '{name}' cannot read "
                f"({first_line(error)}): give each case the arguments that `{has_property.__name__}` in "
                "helpers/gallery/code/properties.py names."
            ) from error


def is_same(value: object, right: object, tolerance: float = 0.0) -> bool:
    """Tell whether two plain values are the same, in type, too: True is not 1, and 1 is not 1.0.

    tolerance: how far a float may be from the right one, absolutely, or relatively where that is more. If it is above
    0, an int may stand for a float. The recursion goes as deep as the right value and no deeper.
    """
    if type(right) is float and tolerance and type(value) in (int, float):
        return _is_close(value, right, tolerance)
    if type(value) is not type(right):
        return False
    if type(right) is list:
        if len(value) != len(right):
            return False
        pairs = zip(value, right)
    elif type(right) is dict:
        if value.keys() != right.keys():
            return False
        pairs = ((value[key], right[key]) for key in right)
    else:
        return value == right
    return all(is_same(part, right_part, tolerance) for part, right_part in pairs)


def _is_close(value: float, right: float, tolerance: float) -> bool:
    margin = tolerance * max(1.0, abs(right))
    return right - margin <= value <= right + margin  # false for a NaN; Python compares an int of any size


_TEST_REQUIREMENT = json.dumps({"cases": [[3], [-4], [10]], "results": [10, 17, 101]})
_HONEST = "def solve(n):\n    print('passed')\n    return n * n + 1\n"
_BODY = "def solve(n):\n    {act}\n    return n * n + 1\n"
#: name -> a program that does what it should not, and would pass if it could
_CHEATS = {
    "exiting": "import sys\ndef solve(n):\n    sys.exit(0)\n",
    "exiting at once": "import random\ndef solve(n):\n    random._os._exit(0)\n",
    "raising": _BODY.format(act="raise AssertionError('passed')"),
    "an endless loop": "def solve(n):\n    while True:\n        pass\n",
    "noise in the answer": _BODY.format(act="import random; random._os.write(1, b'passed')"),
    "opening a file": _BODY.format(act="open('/dev/null').close()"),
    "starting a process": _BODY.format(act="import random; random._os.fork() or random._os._exit(0)"),
    "an equal to everything": (
        "class Equal(int):\n    def __eq__(self, other):\n        return True\n\ndef solve(n):\n    return Equal(n)\n"
    ),
    "walking the frames": (
        "import sys\n"
        "def solve(n):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if type(value) is list and 101 in value:\n"
        "                return {3: 10, -4: 17, 10: 101}[n]\n"
        "        frame = frame.f_back\n"
        "    return 0\n"
    ),
}


class CodeJudge(ProgramJudge):
    """Judges programs by hidden tests in a sandbox of its own. A requirement is a row's column `tests`.

    level, workers: as for `Sandbox`. Raises UserError.
    """

    driver = replace(SOLVE, scan=SCAN)
    honest = _HONEST
    cheats = _CHEATS
    test_requirement = _TEST_REQUIREMENT

    def check_requirement(self, requirement: object) -> None:
        HiddenTests.from_json(requirement)

    def judge_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Return the verdict on each (program text, tests), each program in a process of its own."""
        return self.judge_items([(source, HiddenTests.from_json(text)) for source, text in pairs])

    def judge_items(self, items: Sequence[tuple[str, HiddenTests]]) -> list[Verdict]:
        """Return the verdict on each (program text, hidden tests)."""
        return self.sandbox.map(self._judge_one, items, _sandbox_failed)

    def _judge_one(self, worker: Worker, item: tuple[str, HiddenTests]) -> Verdict:
        source, tests = item
        payload = Payload(source, encode_cases(tests.cases))
        return tests.judge(worker.run(self.driver, payload, LIMITS))


def _sandbox_failed(item: tuple[str, HiddenTests], error: OSError) -> Verdict:
    return Verdict(UNJUDGED, f"the sandbox failed: {error}")
