"""Each alarm is raised by a run that has the fault, with the right reason, and by no healthy run."""

import json
import math
import random

import pytest

from helpers.grpo.alarms import check_alarms, last_good_step
from helpers.grpo.monitor import watch
from helpers.grpo.no_signal import NO_SIGNAL, no_signal_reason
from helpers.runtime import ROOT
from tests.benchmarks.planted_faults import FAULTS as PLANTED
from tests.benchmarks.planted_faults import HEALTHY_RUNS, RESULTS, fault_table, healthy_table

DIFFERENCE = "sampling/sampling_logp_difference/mean"


def row(step=1, **more):
    """A healthy step. Names are given with "__" for "/"."""
    healthy = {
        "step": step,
        "reward": 0.4,
        "reward_std": 0.5,
        "frac_reward_zero_std": 0.25,
        "rewards/f/mean": 0.4,
        "rewards/f/std": 0.5,
        "completions/clipped_ratio": 0.1,
        "completions/masked_ratio": 0.1,
        "completions/nonfinite_reward_ratio": 0.0,
        "advantages/nonzero_ratio": 0.7,
        "entropy": 0.5 - 0.002 * step,
        "grad_norm": 0.3,
        DIFFERENCE: 0.004,
        "sampling/sampling_logp_difference/max": 0.5,
        "sampling/importance_sampling_ratio/max": 1.6,
        "sampling/effective_sample_size": 0.97,
        "sampling/kept_ratio": 1.0,
        "ratio/max": 1.5,
        "memory/peak_share": 0.9,
        "monitor/duplicate_ratio": 0.05,
    }
    return healthy | {name.replace("__", "/"): value for name, value in more.items()}


def run(healthy, faulty=0, **fault):
    """A history: healthy steps, then steps with the fault."""
    history = [row(step) for step in range(1, healthy + 1)]
    return history + [row(healthy + step, **fault) for step in range(1, faulty + 1)]


def alarms(history, no_signal_steps=10):
    return check_alarms(history, no_signal_steps)


def given(history):
    """The alarms of each step of a run, as its session writes them down: [[Alarm, ...], ...]."""
    found = []
    for place, row_ in enumerate(history):
        found.append(alarms(history[: place + 1]))
        row_["monitor/alarms"] = {alarm.name: alarm.size for alarm in found[-1]}
    return found


def steps_of(history, name):
    """The steps of a run at which an alarm was given."""
    found = given(history)
    return [place + 1 for place, at_step in enumerate(found) if name in [alarm.name for alarm in at_step]]


def names(history, no_signal_steps=10):
    return [alarm.name for alarm in alarms(history, no_signal_steps)]


@pytest.mark.parametrize("steps", [0, 1, 4, 8, 100])
def test_a_healthy_run_has_none(steps):
    """An alarm that cries in good runs is switched off, and is not there when it is needed."""
    assert not any(given(run(steps)))


def test_rows_without_values_raise_none():
    """A metric may be missing in the rows of an older version, and None where nothing was measured."""
    assert alarms([{"step": step} for step in range(1, 30)]) == []
    rewarded = {"reward", "advantages/nonzero_ratio", "frac_reward_zero_std", "grad_norm"}
    blank = [{name: value if name in rewarded else None for name, value in row(step).items()} for step in range(30)]
    assert alarms(blank) == []


EQUAL = {"advantages__nonzero_ratio": 0.0, "frac_reward_zero_std": 1.0, "grad_norm": 0.0}


REASONS = [
    (EQUAL, "equal rewards"),
    ({"advantages__nonzero_ratio": None, "frac_reward_zero_std": 1.0}, "equal rewards"),
    ({**EQUAL, "completions__clipped_ratio": 1.0}, "cut off"),
    ({**EQUAL, "completions__clipped_ratio": 1.0, "reward_std": 0.0, "reward": 0.0}, "cut off"),
    ({**EQUAL, "completions__clipped_ratio": 1.0, "reward_std": 0.0, "reward": 0.1}, "constant reward"),
    ({**EQUAL, "reward_std": 0.0, "reward": 0.0}, "constant reward"),
    ({**EQUAL, "reward": None, "rewards__f__mean": None}, "no rewards"),
    ({**EQUAL, "reward": None}, "no weights"),
    ({**EQUAL, "completions__clipped_ratio": 1.0, "completions__masked_ratio": 1.0}, "masked"),
    ({"completions__masked_ratio": 1.0}, "masked"),
    ({"advantages__nonzero_ratio": 0.0, "completions__masked_ratio": 0.5}, "advantages masked"),
    ({"sampling__kept_ratio": 0.0, "grad_norm": 0.0}, "discarded"),
    ({"grad_norm": 0.0}, "no gradient"),
    ({"sampling__kept_ratio": 0.0}, None),
    ({}, None),
    ({"completions__clipped_ratio": 1.0}, None),
    ({"frac_reward_zero_std": 0.9, "advantages__nonzero_ratio": 0.1}, None),
]


@pytest.mark.parametrize(("fault", "reason"), REASONS)
def test_the_reason_of_no_signal(fault, reason):
    """Each reason has a cure of its own, and the wrong one sends a person after the wrong thing for hours."""
    assert no_signal_reason(row(**fault)) == reason
    found = [alarm for alarm in alarms(run(3, 10, **fault)) if alarm.stops]
    if reason is None:
        assert not found
    else:
        assert [(alarm.name, alarm.stops) for alarm in found] == [("no signal", True)]
        if reason == "cut off":
            reason = "collapsed"  # the healthy steps before it came to an end
        assert found[0].sentence == f"Nothing could be learnt in the last 10 steps because {NO_SIGNAL[reason]}."


def test_every_reason_can_occur():
    """A reason that no row leads to would be dead text."""
    assert {"collapsed", *(reason for _, reason in REASONS)} == {*NO_SIGNAL, None}


def test_cut_off_completions_ask_for_longer_ones():
    """The most common case of all: it must name the setting to change."""
    (alarm,) = alarms(run(0, 10, **EQUAL, completions__clipped_ratio=1.0))
    assert "raise max_completion_length" in alarm.sentence


def test_completions_that_no_longer_end_are_a_collapse():
    """A policy that wrote noise to the end got the advice to raise max_completion_length."""
    (alarm,) = alarms(run(6, 10, **EQUAL, completions__clipped_ratio=1.0))
    assert "the policy has collapsed" in alarm.sentence and "cut off" in alarm.sentence
    (alarm,) = alarms(run(0, 16, **EQUAL, completions__clipped_ratio=1.0))
    assert "collapsed" not in alarm.sentence


def test_no_signal_stops_after_so_many_steps_in_a_row_and_no_sooner():
    """One lucky group keeps a run alive: it may learn from there."""
    assert names(run(5, 9, **EQUAL)) == []
    assert names(run(5, 10, **EQUAL)) == names(run(5, 11, **EQUAL)) == ["no signal"]
    assert names([*run(5, 9, **EQUAL), row(15), *run(0, 9, **EQUAL)]) == []
    assert names(run(0, 3, **EQUAL), no_signal_steps=3) == ["no signal"]
    assert names(run(0, 100, **EQUAL), no_signal_steps=None) == []


def test_mixed_reasons_name_the_most_common():
    """Steps of a bad run are seldom bad in one way only."""
    history = run(0, 3, **EQUAL) + run(0, 7, **EQUAL, completions__clipped_ratio=1.0)
    (alarm,) = alarms(history)
    assert alarm.sentence.startswith("Nothing could be learnt in the last 10 steps, in 7 of them because all")


@pytest.mark.parametrize(
    "fault",
    [
        {"completions__nonfinite_reward_ratio": 0.25, "reward": None},
        {"reward": float("nan")},
        {"reward": float("inf")},
        {"reward_std": float("nan")},
    ],
)
def test_rewards_that_are_no_numbers_stop_at_once(fault):
    """An infinite advantage ends in weights that are NaN, or in a step of any size."""
    (alarm,) = alarms(run(2, 1, **fault))
    assert alarm.name == "nonfinite reward" and alarm.stops and "reward_weights" in alarm.sentence


WARNINGS = [
    ("entropy", 3, {"entropy": 0.05}, ["0.05 nats", "0.494 in the first steps", "lower learning_rate"]),
    ("entropy rise", 3, {"entropy": 1.6}, ["1.6 nats", "0.498 in the first step", "lower learning_rate"]),
    ("gradient norm", 3, {"grad_norm": 12.0}, ["is 12", "0.3 in the first steps", "max_grad_norm"]),
    ("effective sample size", 3, {"sampling__effective_sample_size": 0.3}, ["30%", "router_replay"]),
    ("effective sample size", 3, {"sampling__raw_effective_sample_size": 0.3}, ["30%", "router_replay"]),
    ("sampler and trainer", 3, {DIFFERENCE: 0.03}, ["0.03 nats", "0.004 in the first", "learning_rate 0 too"]),
    ("sampler and trainer", 3, {DIFFERENCE: 0.06}, ["0.06 nats", "temperature or mask"]),
    ("draws", 3, {"sampling__surprise": 0.09, "sampling__surprise_z": 7.0}, ["0.09 nats less likely", "top_p"]),
    ("draws", 3, {"sampling__surprise": -0.09, "sampling__surprise_z": -7.0}, ["0.09 nats more likely", "top_p"]),
    ("ratio", 3, {"ratio__max": 40.0}, ["40 times", "lower learning_rate"]),
    ("memory", 1, {"memory__peak_share": 0.97}, ["97%", "per_device_train_batch_size"]),
    ("nan rewards", 1, {"completions__nan_reward_ratio": 0.25}, ["25%", "return None where"]),
]


@pytest.mark.parametrize(("name", "steps", "fault", "words"), WARNINGS)
def test_warnings(name, steps, fault, words):
    """Each begins when its bound has been passed for as many steps as chance may not explain, and says what to do."""
    history = run(8, steps, **fault)
    assert steps_of(history, name) == [8 + steps]
    alarm = given(history)[-1][0]
    assert alarm.name == name and not alarm.stops
    for word in words:
        assert word in alarm.sentence


@pytest.mark.parametrize(("name", "steps", "fault", "words"), WARNINGS)
def test_a_warning_is_given_once(name, steps, fault, words):
    """32 lines came in 40 steps of a healthy run, and under them nobody saw the one that counted."""
    history = [*run(8, 25 + steps, **fault), *run(2), *run(0, steps, **fault)]
    assert steps_of(history, name) == [8 + steps]


def test_a_warning_that_has_grown_is_given_again():
    """What was said at 0.06 and is 0.2 now is news."""
    history = run(8, 5, **{DIFFERENCE: 0.06}) + run(0, 5, **{DIFFERENCE: 0.1}) + run(0, 5, **{DIFFERENCE: 0.2})
    assert steps_of(history, "sampler and trainer") == [11, 19]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("sampler and trainer", {DIFFERENCE: 0.24}),
        ("effective sample size", {"sampling__raw_effective_sample_size": 0.3}),
        ("draws", {"sampling__surprise": 0.3, "sampling__surprise_z": 30.0}),
    ],
)
def test_what_is_wrong_from_the_first_step_is_seen(name, fault):
    """A sampler at another temperature raised nothing: each step was compared with the run's own first ones."""
    assert steps_of(run(0, 18, **fault), name) == [3]


def test_surprise_within_chance_is_none():
    """A few hundred tokens may well be off by 0.09 nats; and of a million, 0.01 is far from 0 and harmless."""
    assert alarms(run(8, 5, sampling__surprise=0.09, sampling__surprise_z=2.5)) == []
    assert alarms(run(8, 5, sampling__surprise=0.01, sampling__surprise_z=30.0)) == []


def test_steps_on_one_generation_count_as_one():
    """With two iterations the ratio was 1 in every first step on a generation, and warned of in every second."""
    history = run(0, 8)
    for place, row_ in enumerate(history):
        row_["num_tokens"] = 100 * (place // 2)
        row_["ratio/max"] = 40.0 if place % 2 else 1.0
    assert steps_of(history, "ratio") == [6]
    one = run(0, 8, entropy=3.0, num_tokens=700)
    assert not any(given(run(5) + one)), "eight steps on one generation are one"


DESTROYED = [
    {"entropy": 3.7},
    {"grad_norm": 4e11},
    {"entropy": 1.7, "completions__clipped_ratio": 0.9},
    {"entropy": 1.7, "advantages__nonzero_ratio": 0.0, "grad_norm": 0.0, "reward": -0.5, "reward_std": 0.0},
]


@pytest.mark.parametrize("fault", DESTROYED)
def test_a_destroyed_policy_stops_the_run(fault):
    """At a learning rate of 0.02 the entropy went from 0.1 to 6 nats in 18 steps without a sign."""
    history = run(4, 3, **fault)
    found = given(history)
    assert not any(alarm.stops for at_step in found[:-1] for alarm in at_step)
    (alarm,) = [alarm for alarm in found[-1] if alarm.stops]
    assert alarm.name == "destroyed policy" and alarm.destroys and "lower learning_rate" in alarm.sentence


def test_the_last_good_step():
    """Row 5 tells of the weights after step 4, which step 4 made: those after step 3 are the last good ones."""
    assert last_good_step(run(4)) is None and last_good_step([]) is None
    assert last_good_step(run(4, 1, entropy=3.7)) == last_good_step(run(4, 3, entropy=3.7)) == 3
    assert last_good_step(run(1, 3, grad_norm=1e9)) == 0
    assert last_good_step([*run(4, 2, entropy=3.7), row(7)]) is None


def test_the_last_good_step_is_from_before_the_rise():
    """Entropy passed the limit of an alarm when it was ten times that of the start: what was named had most of it."""
    rising = [0.5, 0.5, 0.52, 0.9, 1.2, 1.6, 2.0, 2.6, 3.1, 3.3]
    history = run(len(rising))
    for row_, entropy in zip(history, rising, strict=True):
        row_["entropy"] = entropy
    assert steps_of(history, "destroyed policy") == [10] and last_good_step(history) == 2


def test_the_last_good_step_with_several_steps_on_a_generation():
    """An alarm asked for any row of a generation, and this for every one: it said that nothing was in doubt."""
    history = run(0, 12)
    for place, row_ in enumerate(history):
        row_["num_tokens"] = place // 2
        row_["entropy"] = 3.7 if place >= 6 and place % 2 == 0 else 0.5
    assert given(history)[-1][0].name == "destroyed policy"
    assert last_good_step(history) == 5, "the generation of steps 7 and 8 is the first in doubt"


def test_a_generation_with_nothing_to_learn_is_no_measure_of_gradients():
    """With beta > 0 and equal rewards the gradient is that of the KL term: 3e-6 was once the measure of all others, and
    a healthy run was stopped at step 6, and again whenever it was resumed."""
    quiet = row(3, advantages__nonzero_ratio=0.0, frac_reward_zero_std=1.0, grad_norm=3e-6)
    history = [*run(2), quiet, *(row(step) for step in range(4, 20))]
    assert not any(given(history)) and last_good_step(history) is None


def test_a_first_step_without_entropy():
    """Where all of its completions were cut off and left out, the alarms were blind for the rest of the run."""
    history = [row(1, entropy=None), *(row(step) for step in range(2, 6)), *run(0, 4, entropy=6.0)]
    assert any(alarm.name == "destroyed policy" for at_step in given(history) for alarm in at_step)


def rewards(*values):
    history = run(len(values))
    for row_, value in zip(history, values, strict=True):
        row_["reward"] = value
    return history


def test_a_reward_that_collapses():
    """A run that had learnt and forgot again went on to its last step, and that adapter was saved."""
    learnt = [0.2, 0.3, 0.25, 0.4, 0.5, 0.6, 0.7, 0.68, 0.72, 0.7, 0.71, 0.69]
    assert steps_of(rewards(*learnt, 0.1, 0.05, 0.1, 0.02, 0.0, 0.01), "reward collapse") == [17]
    assert not any(given(rewards(*learnt, 0.1, 0.05, 0.1, 0.02, *learnt[-4:]))), "four bad steps are no collapse"


def test_a_noisy_reward_is_no_collapse():
    """Batches of two prompts, or one: the mean goes up and down by as much as the rewards of single completions."""
    noise = random.Random(5)
    for _ in range(10):
        assert not any(given(rewards(*(noise.gauss(0.4, 0.3) for _ in range(60)))))
        solved = [noise.betavariate(0.2, 0.2) for _ in range(60)]  # most prompts are solved always or never
        history = rewards(*(sum(noise.random() < share for _ in range(8)) / 8 for share in solved))
        for row_ in history:
            row_["reward_std"] = math.sqrt(row_["reward"] * (1 - row_["reward"]) * 8 / 7)
        assert not any(given(history))


def test_a_solved_task_does_not_collapse():
    """Where all earned 1 for ten steps, one wrong answer of 64 was a collapse."""
    history = rewards(*[1.0] * 10, *[63 / 64] * 6)
    for row_ in history:
        row_["reward_std"] = 0.0 if row_["reward"] == 1.0 else 0.125
    assert not any(given(history))


def test_a_small_first_gradient_is_no_reason_for_doubt():
    """LoRA's first gradient is small, as half of its matrices have none: the whole run was in doubt, and the checkpoint
    of step 0 was called the last good one."""
    history = [row(1, grad_norm=0.03), *(row(step, grad_norm=1.2) for step in range(2, 60))]
    assert last_good_step(history) is None


def test_a_generation_without_rewards_hides_no_collapse():
    """One in which nothing was judged switched the alarm off for ever."""
    history = rewards(*[0.7, 0.72] * 6, 0.1, 0.05, 0.1, 0.02, 0.0, 0.01)
    history[3]["reward"] = history[3]["reward_std"] = None
    assert steps_of(history, "reward collapse") == [17]


def test_signs_of_the_monitor_need_several_generations():
    """A mode collapse was said at step 9 of runs whose weights never moved: one step decided."""
    program = "def matmul(A, B): return A  # the same answer again"
    copied = watch([program] * 8)
    varied = watch([f"{program} {number}" for number in range(8)])

    def step(number, found):
        return {**row(number), **found, "monitor/signs": list(found["monitor/signs"])}

    history = [step(1, varied), step(2, copied), step(3, varied), *(step(number, copied) for number in range(4, 12))]
    assert steps_of(history, "copies") == [6]


def test_a_tag_is_said_at_once():
    """One answer that is faster than it can be is a fact, and no matter of chance."""
    found = {"monitor/found": {"tag too_fast": 0.1}, "monitor/signs": ["1 of 10 answers are faster than they can be"]}
    history = [row(1), *({**row(step), **found} for step in (2, 3, 4))]
    assert steps_of(history, "tag too_fast") == [2]


def test_single_steps_and_slow_changes_are_no_collapse():
    """Entropy falls in every run that learns, and one step of easy prompts has little of it."""
    assert alarms(run(8, 20, entropy=0.2)) == []
    history = run(20)
    for place in (9, 12, 15):
        history[place]["entropy"] = 0.01
    assert not any(given(history))


def test_a_tiny_difference_may_grow():
    """On the CPU in fp32 sampler and trainer differ by rounding alone, and noise grows tenfold by chance."""
    history = run(8, 5)
    for place, row_ in enumerate(history):
        row_[DIFFERENCE] = 1e-7 if place < 8 else 1e-5
    assert alarms(history) == []


def test_a_resumed_run_warns_as_the_uninterrupted_one():
    """What is known only in memory is lost with the session: everything must follow from the file."""
    history = run(8, 30, entropy=0.05, **{"ratio/max": 40.0})
    uninterrupted = given(history)
    for stop in (3, 12, 25):
        kept = [json.loads(json.dumps(row_)) for row_ in history[:stop]]
        later = [{**row_, "monitor/alarms": {}} for row_ in history[stop:]]
        assert given(kept + later)[stop:] == uninterrupted[stop:]


def test_a_stopped_run_that_is_resumed_unchanged_stops_again():
    """Resumed, it would otherwise go on for ten more steps, or for ever."""
    history = run(5, 10, **EQUAL)
    assert names(history) == names([*history, row(16, **EQUAL)]) == ["no signal"]
    assert names([*history, row(16)]) == []


def test_the_tables_of_planted_faults_are_those_of_the_results():
    """A table that is written by hand says what was hoped for."""
    rows = json.loads(RESULTS.read_text())["rows"]
    faulty = [row_ for row_ in rows if row_["kind"] == "fault"]
    healthy = [row_ for row_ in rows if row_["kind"] == "healthy"]
    text = (ROOT / "tests" / "README.md").read_text()
    assert fault_table(faulty) in text and healthy_table(healthy) in text
    assert len(faulty) == 3 * len(PLANTED) == 42
    assert len(healthy) >= sum(seeds for _, seeds in HEALTHY_RUNS) >= 10
