"""The speed of programs: told apart, charged from load on, and not a matter of luck."""

import statistics

import numpy as np
import pytest

from helpers.tasks.matmul.speed import BASELINE, SpeedModel, TimedCall, median_probes
from helpers.tasks.matmul.trial import Trial
from tests.sandbox.suite import REFERENCE, load_exploits, load_honest

HONEST = load_honest()


def test_speed_is_told_apart(matmul_judge):
    """A program that does needless work is slower; the clock is the process's own."""
    slow = BASELINE.replace("s += A[i][t] * B[t][j]", "s += A[i][t] * B[t][j] + 0 * t * t * t")
    verdicts = matmul_judge.judge_many([slow, HONEST["op_mul"]] * 4)
    assert max(v.speedup for v in verdicts[::2]) < min(v.speedup for v in verdicts[1::2])
    assert all(1e-4 < v.cpu_seconds < 1 for v in verdicts)


def test_the_baseline_is_as_fast_as_itself(matmul_judge):
    """Else a program earns or pays for being the baseline."""
    speeds = [verdict.speedup for verdict in matmul_judge.judge_many([BASELINE] * 48)]
    assert 0.9 < statistics.median(speeds) < 1.1, speeds


#: Work that could be done before the clock starts.
EARLY = {
    "module level": "for _ in range(10**6): pass\n{}",
    "decorator": "def work(f):\n  for _ in range(10**6): pass\n  return f\n{}".replace("{}", "@work\n{}"),
    "default argument": "def work():\n  for _ in range(10**6): pass\ndef other(x=work()): pass\n{}",
    "class body": "class Work:\n  for _ in range(10**6): pass\n{}",
    "annotation": "def work():\n  for _ in range(10**6): pass\ndef other(x: work()): pass\n{}",
}


@pytest.mark.parametrize("early", EARLY)
def test_work_at_load_is_charged(matmul_judge, early):
    """A million empty rounds, several times as long as the product takes: uncharged, tables are made there."""
    late, reference = matmul_judge.judge_many([EARLY[early].format(REFERENCE.strip()), REFERENCE])
    assert late.correct and late.speedup < 0.7 * reference.speedup


def test_a_slow_program_is_timed_once(matmul_judge):
    """Its reward is at the floor anyway; five calls of it are checked all the same."""
    slow = REFERENCE.replace(
        "    return", "    for _ in range(6): [[x * y for x in row for y in range(64)] for row in A]\n    return"
    )
    (trial,) = matmul_judge._try([(slow, "rows")], policy=True)
    assert trial.calls_made == 3 and len(trial.timed_calls) == 1 and not trial.failure


@pytest.mark.slow
def test_a_process_that_keeps_running_is_charged_for_what_it_did(matmul_judge):
    """Its clock, read from outside, is up to date only at a tick: the luckiest read was a third too low."""
    (spins,) = [exploit.source for exploit in load_exploits() if exploit.id == "H90"]
    speeds = [v.speedup for v in matmul_judge.judge_many([spins] * 12 + [REFERENCE] * 12, policy=False)]
    assert sorted(speeds[:12])[9] < 1.12 * sorted(speeds[12:])[6], speeds


def calls_of(*ratios, probe=0.001):
    return [TimedCall(ratio * probe, probe, probe) for ratio in ratios]


def test_a_disturbed_machine_gives_the_same_speed():
    """Its slowness is divided out, by the slower of the two probes; a clock that stood still says nothing."""
    assert median_probes([*calls_of(10), *calls_of(10.2, probe=0.0015), *calls_of(9.9, probe=0.003)]) == 10
    assert TimedCall(0.030, 0.001, 0.003).probes == pytest.approx(10)
    assert median_probes([TimedCall(0.010, 0.0, 0.001), TimedCall(0.0, 0.001, 0.001)]) == 0
    assert median_probes([TimedCall(0.010, 0.0, 0.001), *calls_of(7)]) == pytest.approx(7)


def test_a_program_is_timed_until_three_calls_agree():
    """Three calls where they agree or the program is slow; else seven, and then there is an end."""
    speed = SpeedModel()
    agreeing, differing = calls_of(10.0, 10.4, 10.2), calls_of(10.0, 10.4, 11.0, 12.0)
    assert not speed.is_settled(agreeing[:2], is_slow=False, calls_made=2)
    assert speed.is_settled(agreeing, is_slow=False, calls_made=3)
    assert not speed.is_settled(differing, is_slow=False, calls_made=6)
    assert speed.is_settled([*differing, *calls_of(10.1)], is_slow=False, calls_made=5)
    assert speed.is_settled(differing, is_slow=False, calls_made=7)
    assert speed.is_settled(differing[:1], is_slow=True, calls_made=3)


def test_the_baseline_is_measured_in_probes():
    """Its speed is known for any sizes; a new zygote asks for a new calibration."""
    speed = SpeedModel()
    sizes = (10, 10, 10)
    speed.calibrate([(calls_of(20), sizes), (calls_of(10, 10, 30), sizes), ([], sizes)])
    assert speed.speedup(calls_of(10), sizes) == pytest.approx(1)
    assert speed.speedup(calls_of(5), sizes) == pytest.approx(2)
    assert speed.speedup(calls_of(10), (20, 10, 10)) == pytest.approx(2)
    speed.forget_calibration()
    assert speed.speedup(calls_of(10), sizes) == 0.0


def test_without_a_time_there_is_no_verdict():
    """A speedup of a time that is not known would be a guess."""
    speed = SpeedModel()
    speed.baseline_probes_per_step = 1.0
    trial = Trial("", np.random.default_rng(0))
    assert trial.verdict("os", speed).judged is False
    trial.timed_calls = calls_of(10)
    assert trial.verdict("os", speed).judged is True
    speed.forget_calibration()
    assert trial.verdict("os", speed).judged is False
