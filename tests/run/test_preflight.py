"""What is said of a run before anything is loaded."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

from helpers.evaluation import SWEEPS, chance_of_win, power
from helpers.evaluation.statistics import mcnemar_exact, paired_interval
from helpers.grpo import recipe
from helpers.grpo.config import GRPOConfig
from helpers.grpo.optimizer import learning_rates
from helpers.grpo.recipes import RECIPES
from helpers.profiles import PROFILES
from helpers.run import preflight as module
from helpers.run.arguments import read_pairs
from helpers.run.opening import make_run
from helpers.run.preflight import KEEPING_A_FLOOR, describe_evaluation, describe_learning_rates, draw_curve, preflight


def test_it_says_what_will_run(capsys):
    shown = preflight(make_run({"max_steps": 10, "logging_first_step": True}))
    assert "profile tiny" in shown and "rewards: " in shown
    assert "10 optimizer steps of 64 completions, on 10 generations of 64 (8 prompts x 8): 0.04 epochs of 2000" in shown
    assert "learning rate: ██████████  0.002 in step 1, at most 0.002 (step 1), 0.002 in step 10." in shown
    assert "memory: " in shown and "GiB predicted, on the CPU" in shown
    assert "logging_first_step" in shown, "it has no effect, and that is said"


def test_the_curve_shows_warm_up_decay_and_floor():
    config = GRPOConfig(
        "out",
        max_steps=100,
        learning_rate=5e-7,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_ratio=0.05,
    )
    sentence = describe_learning_rates(config)
    assert "at most 5e-07 (step 6)" in sentence and "5.01e-08 in step 100" in sentence
    curve = sentence.split()[2]
    top = curve.index("█")
    assert 0 < top < 5 and list(curve[top:]) == sorted(curve[top:], reverse=True) and curve[-1] == "▂"


#: Of the recipe of the pipeline: 3,200 prompts in 1,600 steps.
PIPELINE = {"recipe": "math_pipeline", "task": "math", "train_prompts": 3200}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0.0}, "Nothing will be learned"),
        ({"max_steps": 10, "warmup_steps": 5, "lr_scheduler_type": "linear"}, "The warm-up takes 50% of the run"),
        ({"max_steps": 30, "warmup_steps": 30, "lr_scheduler_type": "linear"}, "The warm-up takes 100% of the run"),
        (PIPELINE | {"learning_rate": 0.0}, "Nothing will be learned"),
        (PIPELINE | {"max_steps": 200, "warmup_steps": 80}, "The warm-up takes 40% of the run"),
        (PIPELINE | {"lr_scheduler_type": "cosine"}, "In 20% of the steps after the warm-up it is below a tenth"),
        (PIPELINE | {"lr_scheduler_kwargs": {"min_lr_rate": 0.0}}, "In 20% of the steps after the warm-up it is below"),
    ],
)
def test_a_schedule_that_teaches_little_is_named(settings, words):
    """Whole runs have been spent at a learning rate of nearly 0."""
    assert words in describe_learning_rates(make_run(settings).config)


def has_no_word(config):
    return describe_learning_rates(config).endswith(f" in step {config.max_steps}.")


def test_the_pipeline_ends_at_a_tenth_of_its_rate():
    config = make_run(PIPELINE).config
    rates = learning_rates(config)
    assert len(rates) == 1600 and rates[-1] / max(rates) == pytest.approx(0.1, abs=1e-4) and min(rates[1:80]) > 0
    assert min(rates[80:]) >= 0.1 * max(rates) and has_no_word(config)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_usual_schedule_gets_no_word(profile):
    """A warning at each start is one that nobody reads."""
    assert has_no_word(GRPOConfig.for_profile(PROFILES[profile], "out"))
    for name in RECIPES:
        assert has_no_word(GRPOConfig.for_profile(PROFILES[profile], "out", **recipe(name)).for_prompts(3200)), name


@pytest.mark.parametrize("steps", [20, 100, 1600])
@pytest.mark.parametrize("warmup_ratio", [0.0, 0.1])
def test_a_linear_fall_gets_no_word_and_a_cosine_without_a_floor_does(steps, warmup_ratio):
    settings = {"max_steps": steps, "warmup_ratio": warmup_ratio}
    assert has_no_word(GRPOConfig("out", **settings, lr_scheduler_type="linear"))
    cosine = GRPOConfig("out", **settings, lr_scheduler_type="cosine")
    assert f"below a tenth of 1e-06: {KEEPING_A_FLOOR} keeps a floor under it" in describe_learning_rates(cosine)


def test_what_keeps_a_floor_can_be_said():
    """The schedule alone was refused: it needs its floor."""
    assert has_no_word(make_run({**read_pairs(shlex.split(KEEPING_A_FLOOR)), "max_steps": 100}).config)


FULL = SWEEPS["full"]


def points_of(sentence):
    """The gain in points that an evaluation is said to see."""
    return int(re.search(r"a true gain of (\d+) points", sentence)[1])


def test_more_prompts_see_smaller_gains():
    points = [points_of(describe_evaluation(replace(FULL, items=items), 0.03)) for items in (64, 200, 500)]
    assert points == sorted(points, reverse=True) and points[0] - points[-1] > 10
    assert points[1] > 15, "an evaluation of 200 prompts is too noisy for the gains that are hoped for"


def test_a_handful_of_prompts_shows_nothing():
    sentence = describe_evaluation(replace(FULL, items=5), 0.0)
    assert sentence == "evaluation: 5 prompts at 6 temperatures, which can show no gain at all: ask more (ITEMS)."


def share_of_wins(items, gain, margin, runs=400):
    """An independent simulation of the verdict, one prompt, one temperature and one comparison after the other."""
    rng = np.random.default_rng(7)
    grid = FULL.temperatures
    wins = 0
    for _ in range(runs):
        base = {temperature: rng.random(items) < 0.5 for temperature in grid}
        tuned = {temperature: rng.random(items) < 0.5 + gain for temperature in grid}
        chosen = at_own_best(tuned)
        bases = base[0.0], base[1.0], at_own_best(base)
        wins += all(is_win(other, chosen, margin) for other in bases)
    return wins / runs


def at_own_best(answers):
    """Each half of the prompts at the temperature that is best on the other."""
    even = np.arange(len(answers[0.0])) % 2 == 0
    of_even = max(sorted(answers), key=lambda temperature: answers[temperature][~even].sum())
    of_odd = max(sorted(answers), key=lambda temperature: answers[temperature][even].sum())
    return np.where(even, answers[of_even], answers[of_odd])


def is_win(base, tuned, margin):
    gained, lost = int((tuned & ~base).sum()), int((base & ~tuned).sum())
    low, _ = paired_interval(gained, lost, len(base))
    return gained > lost and mcnemar_exact(gained, lost) < 0.05 and low > margin


def test_the_gain_is_the_one_that_four_of_five_evaluations_see():
    items, margin = 100, 0.03
    gain = points_of(describe_evaluation(replace(FULL, items=items), margin)) / 100
    assert 0.75 < share_of_wins(items, gain, margin) < 0.89
    assert share_of_wins(items, gain - 0.03, margin) < 0.8


def test_a_verdict_by_one_comparison_alone_would_promise_too_much(monkeypatch):
    """The test above can fail: such a simulation names a gain that the verdict seldom sees."""
    plan, margin = replace(FULL, items=100), 0.03
    honest = points_of(describe_evaluation(plan, margin))

    def by_one_comparison(base, tuned, temperatures, win_margin):
        least = power.least_gains(base.shape[2], win_margin)
        base_greedy, tuned_greedy = base[:, 0], tuned[:, 0]
        gained = (tuned_greedy & ~base_greedy).sum(1)
        lost = (base_greedy & ~tuned_greedy).sum(1)
        return gained >= least[gained + lost]

    monkeypatch.setattr(power, "wins", by_one_comparison)
    promised = points_of(describe_evaluation(plan, margin))
    assert promised < honest and chance_of_win(plan, margin, 0.5, promised / 100) >= 0.8
    assert share_of_wins(100, promised / 100, margin) < 0.75


def test_bars():
    assert draw_curve([0.0, 0.5, 1.0]) == "▁▅█" and draw_curve([0.0]) == "▁"


def test_the_time_is_that_of_an_earlier_run_with_steps_of_this_size(tmp_path, monkeypatch):
    """A figure from steps of another size, or none from one of the same, would mislead."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    run = make_run({"max_steps": 30})
    folder = tmp_path / "runs" / "before" / "grpo"
    folder.mkdir(parents=True)
    (folder.parent / "settings.json").write_text(json.dumps(run.all_settings(), default=str))
    assert "time: not known" in preflight(run)
    lines = [{"step": step, "step_time": seconds} for step, seconds in enumerate((9.0, 4.0, 4.0), 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "about 2.0 minutes of training, by the 4.0 s a step took in runs/before" in preflight(run)
    assert "time: not known" in preflight(make_run({"max_steps": 30, "group_size": 4}))
