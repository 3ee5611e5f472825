"""What an evaluation can see, and how often a verdict is a win where nothing was learned."""

from dataclasses import dataclass, replace
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
    assert small.gain == 0.08 and small.chance < 0.05 and small.items > 500
    assert large.gain == 0.15 and 0.08 < large.chance < 0.2 and 150 < large.items < small.items
    plan = replace(SWEEPS[profile.sweep], items=large.items)
    assert chance_of_win(plan, profile.win_margin, 0.5, 0.15) > 0.75


def test_no_number_of_prompts_shows_less_than_the_margin():
    (only,) = chances_of_win(SWEEPS["full"], 0.1, base_rate=0.5, gains=(0.08,))
    assert only.items is None and only.chance < 0.01


@dataclass(frozen=True)
class Base:
    """A model that answers right where its decisive choice is right and none of its other choices slips.

    known, misconceived: log-odds of the decisive choice of prompts on which it is right, and wrong, when greedy; they
    spread by `spread` from prompt to prompt. share: of the prompts that it knows. slip: log-odds of each other choice.
    """

    known: float
    misconceived: float
    spread: float
    share: float
    slip: float
    slips: int

    @classmethod
    def draw(cls, rng):
        return cls(
            known=rng.uniform(0.2, 4),
            misconceived=-rng.uniform(0.05, 3),
            spread=rng.choice((0.05, 0.3)),
            share=rng.uniform(0.05, 0.8),
            slip=rng.uniform(1, 9),
            slips=int(rng.integers(1, 40)),
        )

    def log_odds(self, rng, runs, items):
        """Of the decisive choice on each prompt: [runs, items]."""
        means = np.where(rng.random((runs, items)) < self.share, self.known, self.misconceived)
        return means + rng.normal(0, self.spread, (runs, items))

    def rates(self, log_odds, temperature):
        """The probability of a right answer to each prompt."""
        if not temperature:
            return (log_odds > 0).astype(float)
        decisive = 1 / (1 + np.exp(-log_odds / temperature))
        return decisive * (1 + np.exp(-self.slip / temperature)) ** -self.slips


#: Of the answers at temperature 1. Bases that are hardly ever right there may have their best in a gap of the grid.
LEAST_RIGHT = 0.08
COOLINGS = (0.3, 0.45, 0.6, 0.8)


def some_bases(count):
    """Bases drawn at random, of those that are right often enough."""
    rng = np.random.default_rng(0)
    found = []
    while len(found) < count:
        base = Base.draw(rng)
        if base.rates(base.log_odds(rng, 20, 100), 1.0).mean() >= LEAST_RIGHT:
            found.append(base)
    return found


def cooled_wins(base, cooling, items, margin, runs, grid=TEMPERATURES):
    """Share of the evaluations that call a win what is the base with its logits divided by `cooling`."""
    rng = np.random.default_rng(0)
    log_odds = base.log_odds(rng, runs, items)

    def answers(factor):
        rates = [base.rates(log_odds, factor * temperature) for temperature in grid]
        return np.stack([rng.random((runs, items)) < rate for rate in rates], axis=1)

    return wins(answers(1.0), answers(cooling), grid, margin).mean()


#: (sweep, margin) -> a profile that has them
PLANS = {(profile.sweep, profile.win_margin): name for name, profile in PROFILES.items()}


@pytest.mark.parametrize(("sweep", "margin"), PLANS, ids=list(PLANS.values()))
def test_a_base_that_was_merely_cooled_rarely_wins(sweep, margin):
    """Under each profile's own grid, margin and number of prompts. The worst of many bases is tried again, as the
    largest of many shares is large by luck."""
    plan = SWEEPS[sweep]
    tried = [
        (cooled_wins(base, cooling, plan.items, margin, 100, plan.temperatures), number, base, cooling)
        for number, base in enumerate(some_bases(40))
        for cooling in COOLINGS
    ]
    _, _, worst, cooling = max(tried)
    assert cooled_wins(worst, cooling, plan.items, margin, 2000, plan.temperatures) <= 0.05, (worst, cooling)


def test_without_the_low_temperatures_it_often_wins():
    """So the simulation can fail, and the grid is what prevents it."""
    base = Base(known=3, misconceived=-0.2, spread=0.3, share=0.5, slip=3, slips=15)
    assert cooled_wins(base, 0.6, 320, 0.0, 200, grid=(0.0, 0.6, 0.8, 1.0)) > 0.25
    assert cooled_wins(base, 0.6, 320, 0.03, 200) < 0.05
