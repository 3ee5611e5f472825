"""The speed of programs: told apart, charged from load on, and not a matter of luck."""

import statistics

import numpy as np
import pytest

from helpers.tasks.matmul.speed import BASELINE, SpeedModel, TimedCall, probes_per_step
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
}


@pytest.mark.parametrize("early", EARLY)
def test_work_at_load_is_charged(matmul_judge, early):
    """A million empty rounds, several times as long as the product takes: uncharged, tables are made there."""
    late, reference = matmul_judge.judge_many([EARLY[early].format(REFERENCE.strip()), REFERENCE])
    assert late.correct and late.speedup < 0.7 * reference.speedup


@pytest.mark.slow
def test_a_process_that_keeps_running_is_charged_for_what_it_did(matmul_judge):
    """Its clock, read from outside, is up to date only at a tick: the luckiest read was a third too low."""
    (spins,) = [exploit.source for exploit in load_exploits() if exploit.id == "H90"]
    speeds = [v.speedup for v in matmul_judge.judge_many([spins] * 12 + [REFERENCE] * 12)]
    assert sorted(speeds[:12])[9] < 1.12 * sorted(speeds[12:])[6], speeds


def calls_of(*ratios, probe=0.001):
    return [TimedCall(ratio * probe, probe, probe, steps=1) for ratio in ratios]


def test_a_disturbed_machine_gives_the_same_speed():
    """A disturbance that lasts slows down the probe as well, a short one not the least times; a clock that stood still
    says nothing.
    """
    assert probes_per_step(calls_of(10, probe=0.003)) == pytest.approx(10)
    assert probes_per_step([*calls_of(10), *calls_of(10.2, probe=0.0015)]) == pytest.approx(10)
    assert probes_per_step([TimedCall(0.015, 0.001, 0.0015, 1), *calls_of(10)]) == pytest.approx(10)
    assert probes_per_step([TimedCall(0.010, 0.0, 0.001, 1), TimedCall(0.0, 0.001, 0.001, 1)]) == 0
    assert probes_per_step([TimedCall(0.010, 0.0, 0.001, 1), *calls_of(7)]) == pytest.approx(7)


def test_a_program_is_timed_until_its_two_least_times_agree():
    """And those of the probe, which may have been slow for all but one."""
    speed = SpeedModel()
    assert not speed.is_settled(calls_of(10.0))
    assert speed.is_settled(calls_of(10.0, 10.4))
    assert not speed.is_settled(calls_of(10.0, 11.5, 12.9))
    assert speed.is_settled(calls_of(10.0, 11.5, 12.9, 10.1))
    slow_before = TimedCall(0.010, 0.002, 0.001, 1)
    assert not speed.is_settled([slow_before, TimedCall(0.010, 0.001, 0.0015, 1)])
    assert speed.is_settled([slow_before, TimedCall(0.010, 0.001, 0.00105, 1)])


def test_the_baseline_is_measured_in_probes():
    """Its speed is known for calls of any size; a new zygote asks for a new calibration."""
    speed = SpeedModel()
    speed.calibrate([calls_of(20), calls_of(10, 10, 30), []])
    assert speed.speedup(calls_of(10)) == pytest.approx(1)
    assert speed.speedup(calls_of(5)) == pytest.approx(2)
    assert speed.speedup([TimedCall(0.08, 0.001, 0.001, steps=8)]) == pytest.approx(1)
    speed.forget_calibration()
    assert speed.speedup(calls_of(10)) == 0.0


def test_without_a_time_there_is_no_verdict():
    """A speedup of a time that is not known would be a guess."""
    speed = SpeedModel()
    speed.baseline_probes_per_step = 1.0
    trial = Trial("", "rows", np.random.default_rng(0))
    assert trial.verdict(speed).judged is False
    trial.timed_calls = calls_of(10)
    assert trial.verdict(speed).judged is True
    speed.forget_calibration()
    assert trial.verdict(speed).judged is False
