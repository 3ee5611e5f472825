"""The figures that a user reports: measured by calls of the right sizes, and said as what they are."""

import math

import pytest
import torch

import helpers
from helpers import RolloutEngine, text_table
from helpers.benchmark import DecodeSpeed, SpeedReport, copy_speed, draw, project_version, random_prompt, speed_report
from helpers.profiles import PROFILES
from helpers.runtime import GIB


@pytest.fixture(scope="module")
def report(loaded):
    return speed_report(*loaded, PROFILES["tiny"])


def test_speeds_of_the_embedded_model(report):
    """On the CPU one row and eight, each with a speed; memory is not measured there, and must not be made up."""
    assert [speed.rows for speed in report.decode] == [1, 8] and report.left_out == ()
    for speed in report.decode:
        assert 0 < speed.step_ms < 1000 and 0 < speed.first_token_s < 60
        assert speed.tokens_per_s == pytest.approx(1e3 * speed.rows / speed.step_ms)
        assert speed.peak_bytes is None and speed.planned_bytes > 0
    assert 1e8 < report.copy_bytes_per_s < 1e13 and report.prefill_tokens_per_s > 0


def test_the_row_to_report(report):
    """One line of Markdown that GitHub shows as a table, with what makes it comparable: machine and versions."""
    header, rule, row = report.markdown().splitlines()
    assert header.count("|") == rule.count("|") == row.count("|")
    for text in (helpers.hardware(), f"torch {torch.__version__}", "triton", f"project {helpers.__version__}"):
        assert text in row
    assert "not measured on the CPU" in row
    table = text_table(report.rows())
    assert helpers.hardware() in table and "decode, 8 rows" in table


def test_a_gpus_row_has_peak_and_plan():
    """The memory beside its plan, and a batch that did not fit, in words instead of a figure."""
    speeds = tuple(DecodeSpeed(rows, 10.0 * rows, 2.5, GIB // 2, GIB / 4) for rows in (1, 8))
    report = SpeedReport("a card", {"torch": "1"}, "a model", 3e11, 1000.0, speeds, (32,))
    assert "| 0.50 GiB, 0.25 planned |" in report.markdown() and "300.0" in report.markdown()
    assert dict(report.rows())["decode, 32 rows"] == "not run: too little memory is free"


def test_every_completion_has_the_length_that_is_timed(loaded):
    """A stop token would cut a completion short, and the machine would look faster than it is."""
    model, tokenizer = loaded
    engine = RolloutEngine(model, tokenizer, max_batch_size=4, max_length=48)
    prompt = random_prompt(model, 16)
    assert len(prompt) == 16 and prompt == random_prompt(model, 16)
    draw(engine, prompt, 4, 32)  # it checks the lengths itself
    plain = RolloutEngine(model, tokenizer, max_batch_size=4, max_length=48, backend="transformers")
    draw(plain, prompt, 4, 32)


def test_copy_speed_is_plausible():
    """Faster than a disk and slower than any memory: bytes were not mistaken for bits, nor milliseconds for seconds."""
    assert 1e8 < copy_speed("cpu") < 1e13 and math.isfinite(copy_speed("cpu"))


def test_version_is_that_of_the_package():
    assert project_version() == helpers.__version__
