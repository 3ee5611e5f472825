"""What is known of one program while it is judged, and the verdict."""

from dataclasses import dataclass
from statistics import median

from helpers.sandbox.process import Gone
from helpers.sandbox.products import CONTRACTS, draw_sizes

TIMED_CALLS, MOST_TIMED_CALLS = 3, 7
AGREE = 1.05  # two timings that are no further apart say the same
CLEAN = 1.2  # a machine no slower than that, against its best of late, is left alone: disturbed, it is slower by half
SLOW = 4  # a program that takes that many times as long as the plain way is timed once


@dataclass(frozen=True)
class Verdict:
    """What a program turned out to be. Later fields are false or 0 where an earlier one fails.

    judged: the sandbox itself worked. parsed: it is Python. pure: it keeps to the policy, and the system
    did not have to stop it. ran: none of the calls made raised or ran out of time. correct: every
    call returned the product. speedup: CPU time of the plain way over its own. cpu_seconds: its own, near
    64 x 64 x 64. reason: one sentence fit to be shown, empty if correct. level: of the sandbox.
    """

    judged: bool = True
    parsed: bool = False
    pure: bool = False
    ran: bool = False
    correct: bool = False
    speedup: float = 0.0
    cpu_seconds: float = 0.0
    reason: str = ""
    level: str = "os"


class Program:
    """A text to send, which becomes code when a process has compiled it."""

    def __init__(self, source, policy=True):
        self.text, self.policy, self.is_code = source.encode("utf-8", "surrogatepass"), policy, False
        self.parsed = self.pure = False

    def open(self, call):
        """Send it; raises Gone if it does not compile or breaks the policy."""
        try:
            code = call.compile(self.text, self.policy, self.is_code)
        except Gone as gone:
            self.parsed = self.parsed or gone.kind == b"P"
            raise
        self.parsed = self.pure = True
        if not self.is_code:  # no program has run yet: this is what the text says
            self.text, self.is_code = code, True


class Trial:
    """One program, the calls it has answered, and how long they took.

    What disturbs a machine only ever slows a call down, by half and for seconds at a time where others share
    its processors. So a call counts for what the machine was like around it, and the least of those
    that it left alone is the program's time.
    """

    def __init__(self, source, rng, policy=True, contract="rows"):
        self.program = Program(source, policy)
        self.contract = CONTRACTS[contract]
        self.small, self.timed = draw_sizes(rng)
        self.ended, self.failure = False, {}
        self.calls, self.slow = 0, False
        self.samples = []  # (CPU seconds of a timed call, of the plain way before it, and after it)

    def fail(self, reason, ran=False):
        self.ended, self.failure = True, {"ran": ran, "reason": reason}

    def broke(self, reason):
        """The sandbox failed, which says nothing of the program."""
        self.ended, self.failure = True, {"judged": False, "reason": f"the sandbox failed: {reason}"}

    def stop(self, gone):
        """The program broke off."""
        self.fail(str(gone))
        self.program.pure = self.program.pure and not gone.forbidden

    def count(self, best):
        """One timed call more. best: seconds that the plain way took when the machine was at its best of late."""
        self.calls += 1
        clean = sorted(self._clean(best))
        agree = len(clean) > 1 and clean[1] <= AGREE * clean[0]
        self.ended = self.calls >= (TIMED_CALLS if agree or self.slow else MOST_TIMED_CALLS)

    def _clean(self, best):
        """Seconds of the calls in whose time the machine was left alone; the clock stands still now and then."""
        return [
            taken
            for taken, *around in self.samples
            if taken and best / CLEAN <= min(around) <= max(around) <= CLEAN * best
        ]

    def seconds(self, best):
        """CPU seconds of one timed call on an undisturbed machine; 0: not known."""
        scaled = [taken * best / (max(around) or best) for taken, *around in self.samples]
        return min(self._clean(best) or [median(scaled or [0.0])])

    def verdict(self, level, best, plain):
        """best: as for `count`. plain: CPU seconds of the plain way for the timed sizes, on a machine at its best."""
        found = {"parsed": self.program.parsed, "pure": self.program.pure, "level": level, **self.failure}
        if self.failure:
            return Verdict(**found)
        seconds = self.seconds(best)
        if not seconds or not plain:
            return Verdict(judged=False, reason="the sandbox failed: no time could be taken", level=level)
        return Verdict(**found, ran=True, correct=True, speedup=plain / seconds, cpu_seconds=seconds)
