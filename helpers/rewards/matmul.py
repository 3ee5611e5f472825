"""Four rewards for a matmul function, sharing one verdict per completion.

Their sum orders what must be ordered: every correct program above every wrong one, every
wrong one above every cheat, whatever the speed. A function that fails is worth less than one
that runs, and speed counts only where the product is right.
"""

import atexit
import math
import re

from helpers.runtime import UserError
from helpers.sandbox import Sandbox, Verdict

#: Text that is one fenced block, with or without words around it.
FENCE = re.compile(r"```[ \t]*(?:python3?|py3?)?[ \t\r]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
DEAD_ZONE = 0.03  # speedups this close to 1 earn nothing: less than that cannot be told from none
BELIEVED = 4.0  # nothing in pure Python that we have seen is that many times as fast as plain loops


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
    """Judges a batch of completions once and remembers it, so that several rewards can ask.

    Programs of the same text are judged once, so that within a group the clock's noise is not
    taken for a difference.
    """

    def __init__(self):
        self.level, self.started = "os", None
        self.batch, self.verdicts = None, None

    def __call__(self, completions, finish_reasons=None):
        """One `Verdict` a completion, in order. Raises UserError where the sandbox judges no program at all."""
        codes = self.codes(completions, finish_reasons)
        if codes != self.batch:
            different = sorted({code for code in codes if code is not None})
            judged = dict(zip(different, self.sandbox.judge_many(different)))
            if judged and not any(verdict.judged for verdict in judged.values()):
                raise UserError(
                    f"No program could be judged: {judged[different[0]].reason}. Mend that and run this again."
                )
            judged[None] = Verdict(reason="no single fenced block of code in the final channel", level=self.level)
            self.batch, self.verdicts = codes, [judged[code] for code in codes]
        return self.verdicts

    def codes(self, completions, finish_reasons=None):
        """The program of each completion, or None."""
        reasons = finish_reasons or ["stop"] * len(completions)
        return [extract_code(completion, reason) for completion, reason in zip(completions, reasons, strict=True)]

    @property
    def sandbox(self):
        """Started and tested when first needed; a sandbox that fails its test raises UserError."""
        if self.started is None:
            sandbox = Sandbox(level=self.level)
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
            self.level, self.started, self.batch = level, None, None


judge = Judge()


def function_works(prompts, completions, finish_reasons=None, **_):
    """0.5 for a pure program that raises in none of the calls made, else -0.5."""
    return _scores(judge(completions, finish_reasons), lambda verdict: 0.5 if verdict.ran and verdict.pure else -0.5)


def no_cheating(prompts, completions, finish_reasons=None, log_metric=None, log_extra=None, **_):
    """-1 for a program that breaks the policy (numpy, torch, the clock, ...), else 0."""
    verdicts = judge(completions, finish_reasons)
    if log_metric:
        log_metric("cheat_rate", sum(map(is_cheat, verdicts)) / len(completions))
    if log_extra:
        log_extra("refused", [verdict.reason if is_cheat(verdict) else "" for verdict in verdicts])
    return _scores(verdicts, lambda verdict: -1.0 if is_cheat(verdict) else 0.0)


def correctness_check(prompts, completions, finish_reasons=None, log_metric=None, log_extra=None, **_):
    """1 where every call returned the product, else 0."""
    verdicts = judge(completions, finish_reasons)
    if log_metric:
        log_metric("pass_rate", sum(verdict.correct for verdict in verdicts) / len(completions))
    if log_extra:
        log_extra("verdict", [verdict.reason or "correct" for verdict in verdicts])
    return _scores(verdicts, lambda verdict: float(verdict.correct))


def speed_check(prompts, completions, finish_reasons=None, log_extra=None, **_):
    """Between -0.25 and 0.25 by the logarithm of the speedup over the plain way; 0 unless correct.

    A speed that nobody has seen pure Python reach earns nothing either: it is held for a person to look at.
    """
    verdicts = judge(completions, finish_reasons)
    if log_extra:
        log_extra("too_fast", list(map(too_fast, verdicts)))
    return _scores(verdicts, speed_reward)


def heldout_check(prompts, completions, finish_reasons=None, **_):
    """No reward but a probe, to be given weight 0: whether the fastest correct programs of a batch stand a test
    that is no part of any reward; 1 or 0, None for the others.

    Other sizes, numbers of very unlike size, and a reference that is exact and shares nothing with
    the judge's. A model that learnt the test and not the task is found here.
    """
    verdicts, codes = judge(completions, finish_reasons), judge.codes(completions, finish_reasons)
    correct = {code: verdict.speedup for code, verdict in zip(codes, verdicts) if verdict.correct}
    chosen = sorted(correct, key=correct.get, reverse=True)[:2]
    results = dict(zip(chosen, judge.sandbox.check_many(chosen)))
    return [results.get(code) for code in codes]


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
