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
DEAD_ZONE = 0.03  # speedups this close to 1 earn nothing: less than that cannot be told from none


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
    """Judges a batch of completions once and remembers it, so that several rewards can ask.

    Programs of the same text are judged once, so that within a group the clock's noise is not
    taken for a difference.
    """

    def __init__(self):
        self.sandbox = None
        self.batch, self.verdicts = None, None

    def __call__(self, completions, finish_reasons=None):
        """One `Verdict` a completion, in order."""
        reasons = finish_reasons or ["stop"] * len(completions)
        codes = [extract_code(completion, reason) for completion, reason in zip(completions, reasons, strict=True)]
        if codes != self.batch:
            different = sorted({code for code in codes if code is not None})
            judged = dict(zip(different, self._sandbox().judge_many(different)))
            judged[None] = Verdict(reason="no single fenced block of code in the final channel")
            self.batch, self.verdicts = codes, [judged[code] for code in codes]
        return self.verdicts

    def _sandbox(self):
        """Started and tested when first needed; a sandbox that fails its test raises UserError."""
        if self.sandbox is None:
            sandbox = Sandbox()
            atexit.register(sandbox.close)
            sandbox.self_test()
            self.sandbox = sandbox
        return self.sandbox


judge = Judge()


def function_works(prompts, completions, finish_reasons=None, **_):
    """0.5 for a pure program that raises in none of the calls made, else -0.5."""
    return _scores(completions, finish_reasons, lambda verdict: 0.5 if verdict.ran and verdict.pure else -0.5)


def no_cheating(prompts, completions, finish_reasons=None, log_metric=None, **_):
    """-1 for a program that breaks the policy (numpy, torch, the clock, ...), else 0."""
    if log_metric:
        log_metric("cheat_rate", sum(map(is_cheat, judge(completions, finish_reasons))) / len(completions))
    return _scores(completions, finish_reasons, lambda verdict: -1.0 if is_cheat(verdict) else 0.0)


def correctness_check(prompts, completions, finish_reasons=None, log_metric=None, **_):
    """1 where every call returned the product, else 0."""
    if log_metric:
        log_metric("pass_rate", sum(v.correct for v in judge(completions, finish_reasons)) / len(completions))
    return _scores(completions, finish_reasons, lambda verdict: float(verdict.correct))


def speed_check(prompts, completions, finish_reasons=None, **_):
    """Between -0.25 and 0.25 by the logarithm of the speedup over the plain way; 0 unless correct."""
    return _scores(completions, finish_reasons, speed_reward)


def _scores(completions, finish_reasons, score):
    """One value a completion; None where the sandbox failed, which says nothing of the program."""
    return [score(verdict) if verdict.judged else None for verdict in judge(completions, finish_reasons)]


def is_cheat(verdict):
    """Whether a program was refused by the policy."""
    return verdict.parsed and not verdict.pure


def speed_reward(verdict):
    """0.25 * log2(speedup), clipped to a factor of two either way."""
    if not verdict.correct or abs(verdict.speedup - 1) <= DEAD_ZONE:
        return 0.0
    return 0.25 * max(-1.0, min(1.0, math.log2(verdict.speedup)))


MATMUL_REWARDS = [function_works, no_cheating, correctness_check, speed_check]
