"""The probability of one token, followed through a run."""

import json
from types import SimpleNamespace

import torch

from helpers import TokenWatch, load_model, next_token_probabilities


def test_probabilities_are_those_of_a_forward_pass():
    model, _ = load_model(profile="tiny", dense="fp32")
    ids = [5, 6, 7, 8]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    found = next_token_probabilities(model, ids)
    assert torch.allclose(found, expected, atol=1e-6) and abs(found.sum().item() - 1) < 1e-5


def test_values_of_earlier_sessions_are_kept(tmp_path):
    """A resumed run showed a curve that began in its middle."""
    model, _ = load_model(profile="tiny", dense="fp32")
    path = tmp_path / "grpo" / "belief.json"
    first = TokenWatch(model, [5, 6], 7, path)
    model.lm_head.weight.data[7] += 0.5  # a step that moves the token
    model.train()
    first.on_step_end(None, SimpleNamespace(global_step=1), None)
    assert model.training, "measuring must leave the mode of the update as it was"
    resumed = TokenWatch(model, [5, 6], 7, path)
    assert resumed.values == first.values and set(resumed.values) == {0, 1}
    assert resumed.values[0] != resumed.values[1]
    saved = json.loads(path.read_text())["values"]
    assert saved == {str(step): value for step, value in first.values.items()}


def test_a_file_of_another_token_is_started_anew(tmp_path):
    """The curve of one token went on with the values of another."""
    model, _ = load_model(profile="tiny", dense="fp32")
    path = tmp_path / "belief.json"
    TokenWatch(model, [5, 6], 7, path).measure(1)
    assert set(TokenWatch(model, [5, 6], 8, path).values) == {0}


def test_steps_that_are_done_again_are_forgotten_and_missing_ones_measured(tmp_path):
    """A kill between two checkpoints, and an interrupt between a step and its measurement."""
    model, _ = load_model(profile="tiny", dense="fp32")
    watch = TokenWatch(model, [5, 6], 7, tmp_path / "belief.json")
    for step in (1, 2, 3):
        watch.measure(step)
    watch.on_train_begin(None, SimpleNamespace(global_step=1), None)
    assert set(watch.values) == {0, 1}
    watch.on_train_end(None, SimpleNamespace(global_step=2), None)
    assert set(watch.values) == {0, 1, 2}
