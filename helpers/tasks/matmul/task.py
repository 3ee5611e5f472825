"""The matmul task: rewards and grades that rest on one verdict per program.

The sum of the rewards orders what must be ordered: every correct program above every wrong one, every wrong one above
that is not allowed here, that one above or beside every failing one, and every failing one above every cheat, whatever
the speed. Speed counts only where the product is right.
"""

import atexit
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count

from helpers.rewards.code import extract_code
from helpers.rewards.text import known_finish_reasons
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.drawing import draw_dataset, make_row
from helpers.tasks.matmul.driver import FUNCTION
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.programs import STYLES, draw_program
from helpers.tasks.matmul.prompts import CONTRACT_WORDINGS, WISHES, Prompt, draw_prompt
from helpers.tasks.matmul.trial import Verdict
from helpers.tasks.split import belongs_to
from helpers.tasks.task import CORRECT, REFUSED, UNJUDGED, Grade, Measure, Rewards, Row, Task
from helpers.tasks.wording import wording_sentence

#: Speedups this close to 1 earn nothing: the clock cannot tell less than that from no difference.
DEAD_ZONE = 0.03
#: Nothing in pure Python that we have seen is that many times as fast as plain loops.
BELIEVED_SPEEDUP = 4.0
MOST_REMEMBERED = 20_000  # verdicts
HELDOUT_CHECKED = 2  # programs of a batch that are put to the held-out check

#: The outcome of a program that needs a harmless thing which the policy does not offer.
NOT_ALLOWED = "not allowed"
NO_PROGRAM = f"no closed block of code that defines {FUNCTION} in the final channel"

#: A contract and a program's text; None: the completion holds no program.
Program = tuple[str, str] | None
# What a reward function gets: columns of a batch, with one value a completion.
Prompts = Sequence[str | list[dict]]
Completions = Sequence[str | list[dict]]
Texts = Sequence[str] | None


class MatmulTask(Task):
    """Write `matmul(A, B)` in pure Python, as fast as possible, with operands and result as the prompt says.

    level: of the sandbox, "os" for training, or "policy" for a host without seccomp. speed: whether speed is paid; if
    not, one seed gives one adapter, byte for byte. workers: programs judged at a time; None: one a core.

    The sandbox starts, and tests itself, when it is first needed. Verdicts are remembered under the program's text and
    its contract, since the same text can be right under one contract and wrong under another. Equal programs are judged
    once, so that within a group the clock's noise is not taken for a difference. A verdict keeps its measured speed for
    as long as the task lives: a program that many steps repeat costs no time again, and an error of its one measurement
    stays, too.
    """

    name = "matmul"
    outcomes = (CORRECT, "wrong", "error", NOT_ALLOWED, REFUSED)
    alarms = {
        "failed_heldout_check": "fail the held-out check: the reward pays for something else than the task",
        "too_fast": "are faster than they can be: read them",
    }
    measures = (Measure("speedup", "speed, plain loops = 1", resolution=DEAD_ZONE),)
    breakdowns = ("contract", "cluster")

    def __init__(self, level: str = "os", speed: bool = True, workers: int | None = None):
        self.level = level
        self.speed = speed
        self.workers = workers
        self.reward_funcs = [self.function_works, self.no_cheating, self.correctness_check]
        if speed:
            self.reward_funcs.append(self.speed_check)
        self.reward_weights = [1.0] * len(self.reward_funcs)
        self._judge = None
        self._remembered = OrderedDict()  # program -> verdict, the most recently used last

    @property
    def judge(self) -> MatmulJudge:
        """The judge of programs, tested when it is first needed. Raises UserError if it fails its test."""
        if self._judge is None:
            judge = MatmulJudge(level=self.level, workers=self.workers)
            try:
                judge.self_test()
            except BaseException:
                judge.close()
                raise
            atexit.register(judge.close)
            self._judge = judge
        return self._judge

    def close(self) -> None:
        """End the sandbox's processes."""
        if self._judge is not None:
            atexit.unregister(self._judge.close)
            self._judge.close()
            self._judge = None

    def settings(self) -> dict:
        return {"task": self.name, "sandbox": self.level}

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Draw prompts. Beside the usual columns: contract (a name in `contracts.CONTRACTS`) and answer (a program)."""
        return draw_dataset(self.name, CONTRACT_WORDINGS, _draw_row, split, size, seed)

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        messages = [completion.message for completion in completions]
        finish_reasons = [completion.finish_reason for completion in completions]
        contracts = [row["contract"] for row in rows]
        programs = self.programs(messages, finish_reasons, contracts)
        verdicts = self._verdicts_on(programs)
        return list(map(grade_of, verdicts, self._check_fastest(programs, verdicts)))

    def reference_answer(self, row: Row) -> str:
        return f"```python\n{row['answer']}\n```"

    def describe_group(self, column: str, value: str) -> str:
        if column != "cluster":
            return f"{column} {value}"
        return wording_sentence(CONTRACT_WORDINGS, value)

    # Rewards, in TRL's signature.

    def function_works(self, prompts: Prompts, completions: Completions, **columns) -> list[float | None]:
        """Pay 0.5 for a pure program that raises in none of the calls made, 0 for one not allowed here, else -0.5."""
        return self._score(works_reward, completions, **columns)

    def no_cheating(self, prompts: Prompts, completions: Completions, **columns) -> list[float | None]:
        """Take 1 from a cheat by the policy (numpy, torch, the clock, ...)."""
        return self._score(policy_reward, completions, **columns)

    def correctness_check(self, prompts: Prompts, completions: Completions, **columns) -> list[float | None]:
        """Pay 1 where every call returned the product, else 0."""
        return self._score(correctness_reward, completions, **columns)

    def speed_check(self, prompts: Prompts, completions: Completions, **columns) -> list[float | None]:
        """Pay between -0.25 and 0.25 by the logarithm of the speedup over plain loops; 0 unless correct.

        A speed that nobody has seen pure Python reach earns nothing either: a person should look at it.
        """
        return self._score(speed_reward, completions, **columns)

    def heldout_check(
        self,
        prompts: Prompts,
        completions: Completions,
        finish_reasons: Texts = None,
        contract: Texts = None,
        **_,
    ) -> list[float | None]:
        """Test the fastest correct programs of a batch on inputs that no reward uses: 1 or 0, None for the others.

        This is a check and no reward. It asks for other sizes and for numbers of other magnitudes, and its
        reference is exact and shares nothing with the judge's. It finds a model that learnt the test and not the task.
        A program that several completions have in common is tested, and counted, once.
        """
        programs = self.programs(completions, finish_reasons, contract)
        return self._check_fastest(programs, self._verdicts_on(programs))

    def _check_fastest(self, programs: Sequence[Program], verdicts: Sequence[Verdict]) -> list[float | None]:
        first_places = {}
        for place, (program, verdict) in enumerate(zip(programs, verdicts, strict=True)):
            if verdict.correct:
                first_places.setdefault(program, place)
        by_speed = sorted(first_places, key=lambda program: self._remembered[program].speedup, reverse=True)
        fastest = by_speed[:HELDOUT_CHECKED]
        contracts = [contract for contract, _ in fastest]
        results = self.judge.check_many([code for _, code in fastest], contracts)
        values = [None] * len(programs)
        for program, result in zip(fastest, results, strict=True):
            values[first_places[program]] = result
        return values

    def _score(
        self,
        reward: Callable[[Verdict], float],
        completions: Completions,
        /,  # a data set may have a column of any name
        finish_reasons: Texts = None,
        contract: Texts = None,
        **_,
    ) -> list[float | None]:
        """Score each completion's verdict; None where the sandbox failed, which says nothing of the program."""
        verdicts = self.verdicts(completions, finish_reasons, contract)
        return [reward(verdict) if verdict.judged else None for verdict in verdicts]

    def behaviours(
        self,
        prompts: Prompts,
        completions: Completions,
        finish_reasons: Texts = None,
        contract: Texts = None,
        **_,
    ) -> list[str | None]:
        """Describe what each program does with fixed inputs, right or wrong.

        Two texts are equal where two programs return the same results or fail alike. None: the sandbox failed.
        """
        programs = self.programs(completions, finish_reasons, contract)
        different = sorted(set(programs) - {None})
        contracts = [contract_name for contract_name, _ in different]
        codes = [code for _, code in different]
        behaviour_of = dict(zip(different, self.judge.behaviours(codes, contracts), strict=True))
        behaviour_of[None] = "no program"
        return [behaviour_of[program] for program in programs]

    # Verdicts.

    def verdicts(
        self, completions: Completions, finish_reasons: Texts = None, contracts: Texts = None
    ) -> list[Verdict]:
        """Return one verdict a completion. Raises UserError where the sandbox could judge no program at all.

        contracts: for each completion a name in `contracts.CONTRACTS`; default: all "rows".
        """
        return self._verdicts_on(self.programs(completions, finish_reasons, contracts))

    def _verdicts_on(self, programs: Sequence[Program]) -> list[Verdict]:
        present = sorted(set(programs) - {None})
        self._forget_least_recent()
        self._judge_new(present)
        for program in present:
            self._remembered.move_to_end(program)
        no_program = Verdict(reason=NO_PROGRAM, level=self.level)
        return [no_program if program is None else self._remembered[program] for program in programs]

    def programs(
        self, completions: Completions, finish_reasons: Texts = None, contracts: Texts = None
    ) -> list[Program]:
        """Return the contract and the program of each completion, None where there is no program."""
        finish_reasons = known_finish_reasons(finish_reasons, completions)
        contracts = contracts or ["rows"] * len(completions)
        programs = []
        for completion, finish_reason, contract in zip(completions, finish_reasons, contracts, strict=True):
            code = extract_code(completion, finish_reason, FUNCTION)
            programs.append(None if code is None else (contract, code))
        return programs

    def _judge_new(self, programs: Sequence[tuple[str, str]]) -> None:
        """Judge the programs that have no verdict yet, and again those where the sandbox failed."""
        new = [program for program in programs if not self._is_judged(program)]
        if not new:
            return
        contracts = [contract for contract, _ in new]
        verdicts = self.judge.judge_many([code for _, code in new], contracts=contracts)
        self._remembered.update(zip(new, verdicts, strict=True))
        if not any(self._is_judged(program) for program in programs):
            raise UserError(f"No program could be judged: {verdicts[0].reason}. Fix that and run this again.")

    def _is_judged(self, program: tuple[str, str]) -> bool:
        return program in self._remembered and self._remembered[program].judged

    def _forget_least_recent(self) -> None:
        """Keep the memory from growing without end in a run of days."""
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


def grade_of(verdict: Verdict, passed_heldout_check: float | None = None) -> Grade:
    """Return the grade that a verdict stands for. passed_heldout_check: 1, 0, or None where it was not asked."""
    tags = {"speedup": verdict.speedup, "too_fast": too_fast(verdict)}
    if passed_heldout_check is not None:
        tags["failed_heldout_check"] = not passed_heldout_check
    return Grade(float(verdict.correct), verdict.correct, outcome_of(verdict), verdict.reason, tags)


def outcome_of(verdict: Verdict) -> str:
    """Return the outcome of a verdict: "wrong" answered with something else than the product, "error" not at all."""
    if not verdict.judged:
        return UNJUDGED
    if verdict.correct:
        return CORRECT
    if is_refused(verdict):
        return REFUSED
    if is_not_allowed(verdict):
        return NOT_ALLOWED
    return "wrong" if verdict.ran else "error"


def is_refused(verdict: Verdict) -> bool:
    """Tell whether a program was refused as a cheat by the policy, or stopped by the system."""
    return verdict.parsed and not verdict.pure


def is_not_allowed(verdict: Verdict) -> bool:
    """Tell whether a program, without being a cheat, needs something that the policy does not offer."""
    return verdict.pure and not verdict.allowed


def too_fast(verdict: Verdict) -> bool:
    """Tell whether a program is faster than anything in pure Python that we have seen."""
    return verdict.correct and verdict.speedup > BELIEVED_SPEEDUP


def works_reward(verdict: Verdict) -> float:
    """Return 0.5 for a pure program that raises in none of the calls made, 0 for one that is not allowed, else -0.5."""
    if is_not_allowed(verdict):
        return 0.0
    return 0.5 if verdict.ran and verdict.pure else -0.5


def policy_reward(verdict: Verdict) -> float:
    """Return -1 for a cheat, else 0."""
    return -1.0 if is_refused(verdict) else 0.0


def correctness_reward(verdict: Verdict) -> float:
    """Return 1 where every call returned the product, else 0."""
    return float(verdict.correct)


def speed_reward(verdict: Verdict) -> float:
    """Return 0.25 * log2(speedup), clipped to a factor of two either way; 0 unless correct and believed."""
    if not verdict.correct or too_fast(verdict):
        return 0.0
    if abs(verdict.speedup - 1) <= DEAD_ZONE:
        return 0.0
    doublings = math.log2(verdict.speedup)
    return 0.25 * max(-1.0, min(1.0, doublings))


def _draw_row(rng: random.Random, wording: str, split: str) -> Row:
    prompt = draw_prompt(rng, wording)
    program = _answer(rng, prompt, split)
    return {**make_row("matmul", prompt.text, program, wording), "contract": prompt.contract}


def _answer(rng: random.Random, prompt: Prompt, split: str) -> str:
    """Draw a correct program that is on the same side of the split as the prompt."""
    for attempt in count():
        # A style with few variants may have none on this side of the split; then any style will do.
        wished = WISHES[prompt.wish] if attempt < 50 else None
        style = rng.choice(wished or tuple(STYLES))
        program = draw_program(rng, contract=prompt.contract, style=style).source
        if belongs_to(program, split):
            return program
