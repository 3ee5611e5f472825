"""The reward for programs that pass hidden tests.

A program runs in the sandbox, in a process of its own. It is given the arguments of the tests and nothing else; the
results are compared here.
"""

import atexit
import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.rewards.code import extract_code
from helpers.rewards.properties import PROPERTIES
from helpers.rewards.registry import Reward, register_reward
from helpers.rewards.text import known_finish_reasons
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.sandbox import (
    SOLVE,
    CaseResult,
    Limits,
    Outcome,
    Payload,
    Program,
    Sandbox,
    Status,
    Worker,
    case_results,
    encode_cases,
)

FUNCTION = "solve"
LIMITS = Limits(answer_bytes=65_536, cpu_seconds=1.0)
MOST_REMEMBERED = 20_000  # verdicts
NO_PROGRAM = f"no closed block of code that defines {FUNCTION} in the final channel"

CORRECT = "correct"
WRONG = "wrong"
ERROR = "error"
NOT_ALLOWED = "not allowed"
REFUSED = "refused"
UNJUDGED = "unjudged"
#: how a run without an answer ended -> its outcome; any other way is an error
_OUTCOMES = {
    Status.NOT_ALLOWED: NOT_ALLOWED,
    Status.CHEAT: REFUSED,
    Status.FORBIDDEN_CALL: REFUSED,
    Status.BROKE_PROTOCOL: REFUSED,
    Status.SANDBOX_FAILED: UNJUDGED,
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of the hidden tests on a program.

    outcome: "correct"; "wrong": a result is; "error": it gave no result; "not allowed": it needs something harmless
    that the sandbox does not offer; "refused": it reached for what could do the work for it; "unjudged": the sandbox
    itself failed. reason: one sentence, empty if correct. behaviour: a text that is equal where two programs did the
    same on the same tests, right or wrong.
    """

    outcome: str
    reason: str = ""
    behaviour: str = ""

    @property
    def correct(self) -> bool:
        return self.outcome == CORRECT

    @property
    def judged(self) -> bool:
        return self.outcome != UNJUDGED


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
        try:
            tests = json.loads(text)
        except (TypeError, ValueError) as error:
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
            return Verdict(_OUTCOMES.get(outcome.status, ERROR), outcome.reason, outcome.status.value)
        try:
            found = case_results(outcome.bytes, len(self.cases))
        except ValueError as error:
            return Verdict(REFUSED, str(error), Status.BROKE_PROTOCOL.value)
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
                "helpers/rewards/properties.py names."
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


@register_reward(value_range=(0.0, 1.0), needs=("tests",), pays_correctness=True)
class CodeCorrectness(Reward):
    """Pay 1 for a program whose function solve passes every hidden test of its row, else 0.

    level: of the sandbox, "os" for training, or "policy" for a host without seccomp. workers: programs judged at a
    time; None: one a core. The value is None where the sandbox itself failed.

    The column `tests` is JSON text: {"cases": [[argument, ...], ...], "results": [...]} for exact results, with
    "property": the name of a check in `properties.PROPERTIES` beside or instead of them, and "tolerance" for floats.

    The sandbox starts, and tests itself, when it is first needed. Verdicts are remembered.
    """

    name = "code_correctness"

    def __init__(self, level: str = "os", workers: int | None = None):
        self.level = level
        self.workers = workers
        self._sandbox = None
        self._remembered = OrderedDict()  # (program, tests) -> verdict, the most recently used last

    def __call__(
        self,
        prompts: Sequence,
        completions: Sequence,
        tests: Sequence[str],
        finish_reasons: Sequence[str] | None = None,
        **_,
    ) -> list[float | None]:
        verdicts = self.verdicts(completions, tests, finish_reasons)
        return [float(verdict.correct) if verdict.judged else None for verdict in verdicts]

    def verdicts(
        self, completions: Sequence, tests: Sequence[str], finish_reasons: Sequence[str] | None = None
    ) -> list[Verdict]:
        """Return one verdict a completion.

        Raises UserError for invalid tests, and where the sandbox could judge no program at all.
        """
        finish_reasons = known_finish_reasons(finish_reasons, completions)
        keys = []
        for completion, text, finish_reason in zip(completions, tests, finish_reasons, strict=True):
            program = extract_code(completion, finish_reason, FUNCTION)
            keys.append(None if program is None else (program, text))
        present = list(dict.fromkeys(key for key in keys if key is not None))
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        self._judge_new(present)
        for key in present:
            self._remembered.move_to_end(key)
        no_program = Verdict(ERROR, NO_PROGRAM, "no program")
        return [no_program if key is None else self._remembered[key] for key in keys]

    def close(self) -> None:
        """End the sandbox's processes. The next use starts a new one."""
        if self._sandbox is not None:
            atexit.unregister(self._sandbox.close)
            self._sandbox.close()
            self._sandbox = None

    def _judge_new(self, keys: Sequence[tuple[str, str]]) -> None:
        """Judge the programs that have no verdict yet, and again those where the sandbox failed."""
        new = [key for key in keys if not self._is_judged(key)]
        if not new:
            return
        items = [(program, HiddenTests.from_json(text)) for program, text in new]
        verdicts = judge_programs(self._tested_sandbox(), items)
        self._remembered.update(zip(new, verdicts, strict=True))
        if not any(self._is_judged(key) for key in keys):
            raise UserError(f"No program could be judged: {verdicts[0].reason}. Fix that and run this again.")

    def _is_judged(self, key: tuple[str, str]) -> bool:
        return key in self._remembered and self._remembered[key].judged

    def _tested_sandbox(self) -> Sandbox:
        """Return the sandbox, tested when it is first needed. Raises UserError if it fails its test."""
        if self._sandbox is None:
            sandbox = Sandbox(drivers=(SOLVE,), workers=self.workers, level=self.level)
            try:
                self_test(sandbox)
            except BaseException:
                sandbox.close()
                raise
            atexit.register(sandbox.close)
            self._sandbox = sandbox
        return self._sandbox


def judge_programs(sandbox: Sandbox, items: Sequence[tuple[str, HiddenTests]], policy: bool = True) -> list[Verdict]:
    """Return the verdict on each (program text, tests), each program in a process of its own.

    policy: False gives the programs all of Python, so that the system's wall is tried alone.
    """

    def run(worker: Worker, item: tuple[str, HiddenTests]) -> Verdict:
        source, tests = item
        payload = Payload(Program(source, policy), encode_cases(tests.cases))
        return tests.judge(worker.run(SOLVE, payload, LIMITS))

    def failed(item: tuple[str, HiddenTests], error: OSError) -> Verdict:
        return Verdict(UNJUDGED, f"the sandbox failed: {error}")

    return sandbox.map(run, items, failed)


_SELF_TEST = HiddenTests(cases=[[3], [-4], [10]], results=[10, 17, 101], property="", tolerance=0.0)
_HONEST = "def solve(n):\n    print('passed')\n    return n * n + 1\n"
_BODY = "def solve(n):\n    {act}\n    return n * n + 1\n"
#: name -> a program that does what it should not, and would pass if it could
_CHEATS = {
    "exiting": "import sys\ndef solve(n):\n    sys.exit(0)\n",
    "exiting at once": "import os\ndef solve(n):\n    os._exit(0)\n",
    "raising": _BODY.format(act="raise AssertionError('passed')"),
    "an endless loop": "def solve(n):\n    while True:\n        pass\n",
    "noise in the answer": _BODY.format(act="import os; os.write(1, b'passed')"),
    "opening a file": _BODY.format(act="open('/dev/null').close()"),
    "starting a process": _BODY.format(act="import os; os.fork() or os._exit(0)"),
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


def self_test(sandbox: Sandbox) -> None:
    """Try an honest program and some cheats in a sandbox, before it decides on any reward.

    At level "os" the cheats have all of Python, so that the system's wall is tried alone. Raises UserError if one gets
    through, if the honest program does not, or if this host lacks what is needed.
    """
    (honest,) = judge_programs(sandbox, [(_HONEST, _SELF_TEST)])
    if not honest.judged:
        advice = "fix that, or use another host"
        if "seccomp" in honest.reason:
            advice += ', or level="policy" where you can trust the programs'
        raise UserError(f"The sandbox does not work on this host: {honest.reason}: {advice}.")
    cheats = [(program, _SELF_TEST) for program in _CHEATS.values()]
    verdicts = judge_programs(sandbox, cheats, policy=sandbox.level == "policy")
    through = [name for name, verdict in zip(_CHEATS, verdicts) if verdict.correct or not verdict.judged]
    problem = ""
    if through:
        problem = f"lets through: {', '.join(through)}"
    elif not honest.correct:
        problem = f"fails an honest program: {honest.reason}"
    if problem:
        raise UserError(
            f"The sandbox is not safe on this host, so nothing was run: it {problem}. Use another host, "
            f"and report this one: {sandbox.host()}"
        )
