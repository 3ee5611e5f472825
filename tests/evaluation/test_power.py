"""What an evaluation can see, and how often a verdict is a win where nothing was learned."""

from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pytest

from helpers.evaluation import SWEEPS, TEMPERATURES, Evaluation, chance_of_win, chances_of_win, compare, exact_power
from helpers.evaluation.power import simulate_answers, wins
from helpers.evaluation.statistics import mcnemar_exact, paired_interval
from helpers.profiles import PROFILES


@pytest.mark.parametrize(("items", "gained_rate", "lost_rate", "margin"), [(30, 0.4, 0.1, 0.0), (18, 0.5, 0.05, 0.1)])
def test_exact_power_by_enumeration(items, gained_rate, lost_rate, margin):
    """Every pair of counts with its probability, and the test and the interval of the verdict themselves."""
    power = 0.0
    for gained, lost in product(range(items + 1), repeat=2):
        same = items - gained - lost
        if same < 0:
            continue
        ways = comb(items, gained) * comb(items - gained, lost)
        probability = ways * gained_rate**gained * lost_rate**lost * (1 - gained_rate - lost_rate) ** same
        low, _ = paired_interval(gained, lost, items)
        if gained > lost and mcnemar_exact(gained, lost) < 0.05 and low > margin:
            power += probability
    assert exact_power(items, gained_rate, lost_rate, margin) == pytest.approx(power, abs=1e-10)


def as_evaluation(name, answers):
    """answers: bool [temperatures, items]."""
    records = {
        temperature: [
            {"id": number, "cluster": number, "correct": bool(correct), "outcome": "correct" if correct else "wrong"}
            for number, correct in enumerate(row)
        ]
        for temperature, row in zip(TEMPERATURES, answers)
    }
    return Evaluation(name, records)


def test_the_simulation_is_the_verdict():
    """Sixty evaluations that are neither all wins nor none, each by `compare` as well."""
    rng = np.random.default_rng(1)
    plan = replace(SWEEPS["small"], items=90)
    base, tuned = (simulate_answers(rng, 60, plan, rate) for rate in (0.5, 0.72))
    expected = [
        compare(as_evaluation("base", one), as_evaluation("tuned", other), 0.03).verdict == "win"
        for one, other in zip(base, tuned)
    ]
    assert 10 < sum(expected) < 50
    # `Evaluation` deals prompts into halves in the order of their clusters, as text; one item a cluster here.
    order = np.array(sorted(range(90), key=str))
    assert wins(base[:, :, order], tuned[:, :, order], TEMPERATURES, 0.03).tolist() == expected


def test_a_t4_sees_little_by_default():
    """What the notebook says before it asks a model anything."""
    profile = PROFILES["t4"]
    small, large = chances_of_win(SWEEPS[profile.sweep], profile.win_margin, base_rate=0.5)
    assert small.gain == 0.08 and small.chance < 0.1 and small.items > 500
    assert large.gain == 0.15 and 0.05 < large.chance < 0.3 and 150 < large.items < small.items
    plan = replace(SWEEPS[profile.sweep], items=large.items)
    assert chance_of_win(plan, profile.win_margin, 0.5, 0.15) > 0.75


def test_no_number_of_prompts_shows_less_than_the_margin():
    (only,) = chances_of_win(SWEEPS["full"], 0.1, base_rate=0.5, gains=(0.08,))
    assert only.items is None and only.chance < 0.01


#: name -> (log-odds of the decisive choice where the base is right when greedy, and where it is wrong; log-odds of each
#: of some other choices, at which it slips; their number; share of prompts on which it is right when greedy)
BASES = {
    "half known, many slips": (3, -0.2, 3, 15, 0.5),
    "half known, no slips": (1, -0.2, 9, 1, 0.5),
    "half known, nearly even": (3, -0.1, 4, 40, 0.5),
    "little known": (3, -0.1, 3, 20, 0.2),
    "unsure of all": (0.5, -0.1, 9, 1, 0.5),
}
RUNS = 1000


def rates_at(temperature, log_odds, slip_log_odds, slips):
    """The probability of a right answer to each prompt when the logits are divided by a temperature."""
    if not temperature:
        return (log_odds > 0).astype(float)
    decisive = 1 / (1 + np.exp(-log_odds / temperature))
    return decisive * (1 + np.exp(-slip_log_odds / temperature)) ** -slips


def cooled_wins(base, spread, cooling, items, margin, runs=RUNS):
    """Share of the evaluations that call a win what is the base with its logits divided by `cooling`."""
    known, misconceived, slip_log_odds, slips, share = BASES[base]
    rng = np.random.default_rng(0)
    log_odds = np.where(rng.random((runs, items)) < share, known, misconceived)
    log_odds = log_odds + rng.normal(0, spread, (runs, items))

    def answers(factor):
        rates = [rates_at(factor * one, log_odds, slip_log_odds, slips) for one in TEMPERATURES]
        return np.stack([rng.random((runs, items)) < rate for rate in rates], axis=1)

    return wins(answers(1.0), answers(cooling), TEMPERATURES, margin).mean()


@pytest.mark.parametrize("name", ["tiny", "t4"])
def test_a_base_that_was_merely_cooled_rarely_wins(name):
    """Under each profile's own grid, margin and number of prompts."""
    profile = PROFILES[name]
    items = SWEEPS[profile.sweep].items
    worst = max(
        (cooled_wins(base, spread, cooling, items, profile.win_margin), base, spread, cooling)
        for base in BASES
        for spread in (0.05, 0.3)
        for cooling in (0.6, 0.4)
    )
    assert worst[0] <= 0.05, worst


def test_without_the_low_temperatures_it_often_wins(monkeypatch):
    """So the simulation can fail, and the grid is what prevents it."""
    monkeypatch.setattr("tests.evaluation.test_power.TEMPERATURES", (0.0, 0.6, 0.8, 1.0))
    assert cooled_wins("half known, many slips", 0.3, 0.6, 320, 0.0, runs=200) > 0.25
