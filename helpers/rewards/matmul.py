"""Four rewards for a matmul function, sharing one verdict per completion.

Their sum orders what must be ordered: every correct program above every wrong one, every
wrong one above every cheat, whatever the speed. A function that fails is worth less than one
that runs, and speed counts only where the product is right.
"""

import atexit
import math
import re

from helpers.runtime import UserError
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.trial import Verdict

#: Text that is one fenced block, with or without words around it.
FENCE = re.compile(r"```[ \t]*(?:python3?|py3?)?[ \t\r]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
DEAD_ZONE = 0.03  # speedups this close to 1 earn nothing: less than that cannot be told from none
BELIEVED = 4.0  # nothing in pure Python that we have seen is that many times as fast as plain loops
MOST_REMEMBERED = 20_000  # verdicts
CHECKED = 2  # programs of a batch that are put to the held-out check


def extract_code(completion, finish_reason="stop"):
    """The program in a completion, or None.

    completion: a message list, of which only the final channel counts, or a plain string.
    There must be exactly one fenced block, closed, in a completion that was not cut off.
    """
    text = completion if isinstance(completion, str) else completion[-1]["content"] or ""
    if finish_reason != "stop" or text.count("```") != 2:
        return None
    match = FENCE.search(text)
    return match.group(1) if match else None


class Judge:
    """Judges completions and remembers the verdicts, so that several rewards can ask for the same one.

    A verdict is remembered under the program's text and its contract: the same text can be right under one contract
    and wrong under another. Equal programs are judged once, so that within a group the clock's noise is not taken
    for a difference. A verdict is kept with its measured speed for as long as the process lives: a program that many
    steps repeat costs no time again, and an error of its one measurement stays, too.
    """

    def __init__(self):
        self.level = "os"
        self.started = None
        self.forget()

    def __call__(self, completions, finish_reasons=None, contracts=None):
        """One `Verdict` a completion, in order. Raises UserError where the sandbox judges no program at all.

        contracts: for each completion a name in `helpers.tasks.matmul.contracts.CONTRACTS`; default: all "rows".
        """
        programs = self.programs(completions, finish_reasons, contracts)
        if programs != self.batch:
            self._judge_new(programs)
            self.batch = programs
        no_program = Verdict(reason="no single fenced block of code in the final channel", level=self.level)
        return [no_program if program is None else self.verdicts[program] for program in programs]

    def programs(self, completions, finish_reasons=None, contracts=None):
        """For each completion `(contract, code)`, or None where there is no program."""
        finish_reasons = finish_reasons or ["stop"] * len(completions)
        contracts = contracts or ["rows"] * len(completions)
        codes = [extract_code(*answer) for answer in zip(completions, finish_reasons, strict=True)]
        return [None if code is None else (contract, code) for contract, code in zip(contracts, codes, strict=True)]

    def forget(self):
        """Judge everything anew from now on."""
        self.verdicts = {}
        self.batch = None

    def _judge_new(self, programs):
        """Judge the programs of a batch that have no verdict yet."""
        remembered = [item for item in self.verdicts.items() if item[1].judged]
        self.verdicts = dict(remembered[-MOST_REMEMBERED:])
        present = set(programs) - {None}
        new = sorted(present - set(self.verdicts))
        codes = [code for _, code in new]
        contracts = [contract for contract, _ in new]
        self.verdicts |= dict(zip(new, self.sandbox.judge_many(codes, contracts=contracts)))
        if present and not any(self.verdicts[program].judged for program in present):
            raise UserError(f"No program could be judged: {self.verdicts[new[0]].reason}. Fix that and run this again.")

    @property
    def sandbox(self):
        """Started and tested when first needed; a sandbox that fails its test raises UserError."""
        if self.started is None:
            sandbox = MatmulJudge(level=self.level)
            try:
                sandbox.self_test()
            except BaseException:
                sandbox.close()
                raise
            atexit.register(sandbox.close)
            self.started = sandbox
        return self.started

    def use_level(self, level):
        """Judge at this level of `Sandbox` from now on; "os" is the one for training."""
        if level != self.level:
            if self.started:
                self.started.close()
            self.level = level
            self.started = None
            self.forget()


judge = Judge()


def function_works(prompts, completions, finish_reasons=None, contract=None, **_):
    """0.5 for a pure program that raises in none of the calls made, else -0.5."""
    return _scores(
        judge(completions, finish_reasons, contract), lambda verdict: 0.5 if verdict.ran and verdict.pure else -0.5
    )


def no_cheating(prompts, completions, finish_reasons=None, contract=None, log_metric=None, log_extra=None, **_):
    """-1 for a program that breaks the policy (numpy, torch, the clock, ...), else 0."""
    verdicts = judge(completions, finish_reasons, contract)
    if log_metric:
        log_metric("cheat_rate", sum(map(is_cheat, verdicts)) / len(completions))
    if log_extra:
        log_extra("refused", [verdict.reason if is_cheat(verdict) else "" for verdict in verdicts])
    return _scores(verdicts, lambda verdict: -1.0 if is_cheat(verdict) else 0.0)


def correctness_check(prompts, completions, finish_reasons=None, contract=None, log_metric=None, log_extra=None, **_):
    """1 where every call returned the product, else 0."""
    verdicts = judge(completions, finish_reasons, contract)
    if log_metric:
        log_metric("pass_rate", sum(verdict.correct for verdict in verdicts) / len(completions))
    if log_extra:
        log_extra("verdict", [verdict.reason or "correct" for verdict in verdicts])
    return _scores(verdicts, lambda verdict: float(verdict.correct))


def speed_check(prompts, completions, finish_reasons=None, contract=None, log_extra=None, **_):
    """Between -0.25 and 0.25 by the logarithm of the speedup over the plain way; 0 unless correct.

    A speed that nobody has seen pure Python reach earns nothing either: it is held for a person to look at.
    """
    verdicts = judge(completions, finish_reasons, contract)
    if log_extra:
        log_extra("too_fast", list(map(too_fast, verdicts)))
    return _scores(verdicts, speed_reward)


def heldout_check(prompts, completions, finish_reasons=None, contract=None, **_):
    """Test the fastest correct programs of a batch on inputs that are part of no reward: 1 or 0, None for the others.

    This is no reward but a check, to be given weight 0. It asks for other sizes, numbers of very unlike size, and
    compares with a reference that is exact and shares nothing with the judge's. A model that learnt the test and not
    the task is found here. A program that several completions have in common is tested, and counted, once.
    """
    programs = judge.programs(completions, finish_reasons, contract)
    verdicts = judge(completions, finish_reasons, contract)
    first_places = {}
    for place, (program, verdict) in enumerate(zip(programs, verdicts)):
        if verdict.correct:
            first_places.setdefault(program, place)
    fastest = sorted(first_places, key=lambda program: judge.verdicts[program].speedup, reverse=True)[:CHECKED]
    results = judge.sandbox.check_many([code for _, code in fastest], [contract for contract, _ in fastest])
    values = [None] * len(completions)
    for program, result in zip(fastest, results):
        values[first_places[program]] = result
    return values


def behaviours(prompts, completions, finish_reasons=None, contract=None, **_):
    """For each completion a text that says what its program does with fixed inputs, right or wrong.

    Two texts are equal where two programs return the same results or fail alike; None: the sandbox failed. This is
    for the control "majority".
    """
    programs = judge.programs(completions, finish_reasons, contract)
    different = sorted(set(programs) - {None})
    texts = judge.sandbox.behaviours([code for _, code in different], [contract for contract, _ in different])
    found = dict(zip(different, texts))
    return ["no program" if program is None else found[program] for program in programs]


def _scores(verdicts, score):
    """One value a verdict; None where the sandbox failed, which says nothing of the program."""
    return [score(verdict) if verdict.judged else None for verdict in verdicts]


def is_cheat(verdict):
    """Whether a program was refused by the policy, or stopped by the system."""
    return verdict.parsed and not verdict.pure


def too_fast(verdict):
    """Whether a program is faster than anything in pure Python that we have seen."""
    return verdict.correct and verdict.speedup > BELIEVED


def speed_reward(verdict):
    """0.25 * log2(speedup), clipped to a factor of two either way."""
    if not verdict.correct or too_fast(verdict) or abs(verdict.speedup - 1) <= DEAD_ZONE:
        return 0.0
    return 0.25 * max(-1.0, min(1.0, math.log2(verdict.speedup)))


def _depends_on():
    """What a run that uses these rewards must name: kept in its checkpoints and adapters."""
    return {"sandbox": judge.level}


MATMUL_REWARDS = [function_works, no_cheating, correctness_check, speed_check]
for _reward in (*MATMUL_REWARDS, heldout_check):
    _reward.settings = _depends_on
