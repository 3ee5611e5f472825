"""What the matmul task pays for a verdict.

The sum of the rewards orders what must be ordered: every correct program above every wrong one, every wrong one above
one that needs what is not here, that one above every failing one, and every failing one above every cheat that the scan
sees, whatever the speed. Speed counts only where the product is right.
"""

import math

from helpers.tasks.programs.verdict import UNAVAILABLE, WRONG, Verdict, VerdictReward
from helpers.tasks.task import CORRECT, REFUSED

#: Speedups this close to 1 earn nothing: the clock cannot tell less than that from no difference.
DEAD_ZONE = 0.03
#: The fastest programs that people ordinarily write are 1.56 to 1.67 times as fast as plain loops, with Python 3.13 and
#: 3.12. Less than the least of these is paid the most, so that an honest program can have it on every Python.
FASTEST_HONEST = 1.5
#: Numbers packed into integers, which is honest and not ordinary, are 2.5 times as fast as plain loops
#: (`tests/sandbox/exploits/M_one_wall.py`, M46). Beyond that a C routine does the work.
BELIEVED_SPEEDUP = 2.75


def too_fast(verdict: Verdict) -> bool:
    """Tell whether a program is faster than anything in pure Python that we have seen."""
    return verdict.correct and verdict.speedup > BELIEVED_SPEEDUP


def works_pay(verdict: Verdict) -> float:
    """Pay 0.5 for a program that answers every call asked of it, 0 for one that needs what is not here, else -0.5."""
    if verdict.outcome == UNAVAILABLE:
        return 0.0
    return 0.5 if verdict.outcome in (CORRECT, WRONG) else -0.5


def honesty_pay(verdict: Verdict) -> float:
    """Take 1 from a program that uses numpy, torch, ctypes or the clock."""
    return -1.0 if verdict.outcome == REFUSED else 0.0


def correctness_pay(verdict: Verdict) -> float:
    """Pay 1 where every call returned the product, else 0."""
    return float(verdict.correct)


def speed_pay(verdict: Verdict) -> float:
    """Pay between -0.25 and 0.25 by the logarithm of the speedup over plain loops; 0 unless correct.

    The most is paid from `FASTEST_HONEST` on, and the least for its inverse. A speed that nobody has seen pure Python
    reach earns nothing: a person should look at it.
    """
    if not verdict.correct or too_fast(verdict):
        return 0.0
    if abs(verdict.speedup - 1) <= DEAD_ZONE:
        return 0.0
    share = math.log(verdict.speedup) / math.log(FASTEST_HONEST)
    return 0.25 * max(-1.0, min(1.0, share))


REWARDS = (
    VerdictReward("function_works", works_pay, (-0.5, 0.5)),
    VerdictReward("no_cheating", honesty_pay, (-1.0, 0.0)),
    VerdictReward("correctness_check", correctness_pay, (0.0, 1.0), pays_correctness=True),
    VerdictReward("speed_check", speed_pay, (-0.25, 0.25)),
)
