"""Each alarm is raised by a run that has the fault, with the right reason, and by no healthy run."""

import json

import pytest

from helpers.grpo.alarms import NO_SIGNAL, STEPS_BETWEEN, check_alarms, no_signal_reason

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


def names(history, no_signal_steps=10):
    return [alarm.name for alarm in alarms(history, no_signal_steps)]


@pytest.mark.parametrize("steps", [0, 1, 4, 8, 100])
def test_a_healthy_run_has_none(steps):
    """An alarm that cries in good runs is switched off, and is not there when it is needed."""
    assert alarms(run(steps)) == []


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
    found = alarms(run(3, 10, **fault))
    if reason is None:
        assert not found
    else:
        assert [(alarm.name, alarm.stops) for alarm in found] == [("no signal", True)]
        assert found[0].sentence == f"Nothing could be learnt in the last 10 steps because {NO_SIGNAL[reason]}."


def test_every_reason_can_occur():
    """A reason that no row leads to would be dead text."""
    assert {reason for _, reason in REASONS} == {*NO_SIGNAL, None}


def test_cut_off_completions_ask_for_longer_ones():
    """The most common case of all: it must name the setting to change."""
    (alarm,) = alarms(run(0, 10, **EQUAL, completions__clipped_ratio=1.0))
    assert "raise max_completion_length" in alarm.sentence


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
    ("effective sample size", 1, {"sampling__effective_sample_size": 0.3}, ["30%", "router_replay"]),
    ("sampler and trainer", 3, {DIFFERENCE: 0.05}, ["0.05 nats", "0.004 in the first", "learning_rate 0 too"]),
    ("ratio", 1, {"ratio__max": 40.0}, ["40 times", "lower learning_rate"]),
    ("memory", 1, {"memory__peak_share": 0.97}, ["97%", "per_device_train_batch_size"]),
]


@pytest.mark.parametrize(("name", "steps", "fault", "words"), WARNINGS)
def test_warnings(name, steps, fault, words):
    """Each begins when its bound has been passed for as many steps as chance may not explain, and says what to do."""
    assert alarms(run(8, steps - 1, **fault)) == []
    (alarm,) = alarms(run(8, steps, **fault))
    assert alarm.name == name and not alarm.stops
    for word in words:
        assert word in alarm.sentence


@pytest.mark.parametrize(("name", "steps", "fault", "words"), WARNINGS)
def test_a_warning_is_repeated_every_ten_steps_while_it_lasts(name, steps, fault, words):
    """The same line under each step hides the next warning; a line said once, hours ago, is forgotten."""
    history = [*run(8, 25 + steps, **fault), *run(2), *run(0, steps, **fault)]
    given = [count for count in range(1, len(history) + 1) if alarms(history[:count])]
    begin = 8 + steps
    assert given == [begin, begin + STEPS_BETWEEN, begin + 2 * STEPS_BETWEEN, len(history)]


def test_single_steps_and_slow_changes_are_no_collapse():
    """Entropy falls in every run that learns, and one step of easy prompts has little of it."""
    assert alarms(run(8, 20, entropy=0.2)) == []
    history = run(20)
    for place in (9, 12, 15):
        history[place]["entropy"] = 0.01
    assert all(not alarms(history[:count]) for count in range(21))


def test_a_tiny_difference_may_grow():
    """On the CPU in fp32 sampler and trainer differ by rounding alone, and noise grows tenfold by chance."""
    history = run(8, 5)
    for place, row_ in enumerate(history):
        row_[DIFFERENCE] = 1e-7 if place < 8 else 1e-5
    assert alarms(history) == []


def test_a_resumed_run_warns_as_the_uninterrupted_one():
    """What is known only in memory is lost with the session: everything must follow from the file."""
    history = run(8, 30, entropy=0.05, **{"ratio/max": 40.0})
    uninterrupted = [alarms(history[:count]) for count in range(1, len(history) + 1)]
    for stop in (3, 12, 25):
        kept = [json.loads(json.dumps(row_)) for row_ in history[:stop]]
        resumed = [alarms(kept + history[stop:count]) for count in range(stop + 1, len(history) + 1)]
        assert resumed == uninterrupted[stop:]


def test_a_stopped_run_that_is_resumed_unchanged_stops_again():
    """Resumed, it would otherwise go on for ten more steps, or for ever."""
    history = run(5, 10, **EQUAL)
    assert names(history) == names([*history, row(16, **EQUAL)]) == ["no signal"]
    assert names([*history, row(16)]) == []
