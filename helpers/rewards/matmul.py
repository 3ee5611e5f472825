"""Four rewards for a matmul function, sharing one verdict per completion.

Their sum orders what must be ordered: every correct program above every wrong one, every
wrong one above every cheat, whatever the speed. A function that fails is worth less than one
that runs, and speed counts only where the product is right.
"""

import atexit
import math
import re

from helpers.sandbox import Sandbox, Verdict

#: Text that is one fenced block, with or without words around it.
FENCE = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
DEAD_ZONE = 0.03  # speedups this close to 1 earn nothing: that is the clock's own noise


def extract_code(completion, finish_reason="stop"):
    """The program in a completion, or None.

    completion: a message list, of which only the final channel counts, or a plain string.
    There must be exactly one fenced block, closed, in a completion that was not cut off.
    """
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    if finish_reason != "stop" or text.count("```") != 2:
        return None
    match = FENCE.search(text)
    return match.group(1) if match else None


class Judge:
    """Judges a batch of completions once and remembers it, so that several rewards can ask."""

    def __init__(self):
        self.sandbox = None
        self.batch, self.verdicts = None, None

    def __call__(self, completions, finish_reasons=None):
        """One `Verdict` a completion, in order."""
        reasons = finish_reasons or ["stop"] * len(completions)
        codes = [extract_code(completion, reason) for completion, reason in zip(completions, reasons, strict=True)]
        if codes != self.batch:
            if self.sandbox is None:
                self.sandbox = Sandbox()
                atexit.register(self.sandbox.close)
            judged = iter(self.sandbox.judge_many([code for code in codes if code is not None]))
            missing = Verdict(reason="no single fenced block of code in the final channel")
            self.verdicts = [missing if code is None else next(judged) for code in codes]
            self.batch = codes
        return self.verdicts


judge = Judge()


def function_works(prompts, completions, finish_reasons=None, **_):
    """0.5 for a pure program that answers every call without an error, else -0.5."""
    return [0.5 if verdict.ran and verdict.pure else -0.5 for verdict in judge(completions, finish_reasons)]


def no_cheating(prompts, completions, finish_reasons=None, log_metric=None, **_):
    """-1 for a program that breaks the policy (numpy, torch, the clock, ...), else 0."""
    cheats = [is_cheat(verdict) for verdict in judge(completions, finish_reasons)]
    if log_metric:
        log_metric("cheat_rate", sum(cheats) / len(cheats))
    return [-1.0 if cheat else 0.0 for cheat in cheats]


def correctness_check(prompts, completions, finish_reasons=None, log_metric=None, **_):
    """1 where every call returned the product, else 0."""
    correct = [verdict.correct for verdict in judge(completions, finish_reasons)]
    if log_metric:
        log_metric("pass_rate", sum(correct) / len(correct))
    return [float(right) for right in correct]


def speed_check(prompts, completions, finish_reasons=None, **_):
    """Between -0.25 and 0.25 by the logarithm of the speedup over the plain way; 0 unless correct."""
    return [speed_reward(verdict) for verdict in judge(completions, finish_reasons)]


def is_cheat(verdict):
    """Whether a program was refused by the policy."""
    return verdict.parsed and not verdict.pure


def speed_reward(verdict):
    """0.25 * log2(speedup), clipped to a factor of two either way."""
    if not verdict.correct or abs(verdict.speedup - 1) <= DEAD_ZONE:
        return 0.0
    return 0.25 * max(-1.0, min(1.0, math.log2(verdict.speedup)))


MATMUL_REWARDS = [function_works, no_cheating, correctness_check, speed_check]
