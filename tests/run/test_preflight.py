"""What is said of a run before anything is loaded."""

import json

import pytest

from helpers.grpo.config import GRPOConfig
from helpers.run import preflight as module
from helpers.run.opening import make_run
from helpers.run.preflight import describe_learning_rates, draw_curve, preflight


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


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0.0}, "Nothing will be learned"),
        ({"max_steps": 10, "warmup_steps": 5, "lr_scheduler_type": "linear"}, "The warm-up takes 50% of the run"),
    ],
)
def test_a_schedule_that_teaches_little_is_named(settings, words):
    """Whole runs have been spent at a learning rate of nearly 0."""
    assert words in describe_learning_rates(GRPOConfig("out", **settings))


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
