"""Notebooks in JupyterLab, in a headless browser: `make test-browser` sets up an environment with playwright.

What a reader does is done here: run the cells, watch, press Stop, run the cell again, move the slider.
"""

import json
import os
import platform
import subprocess
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed here: make test-browser sets it up.")

from helpers.runtime import ROOT, write_whole
from tests.browser.lab import opened, running_browser, running_lab
from tests.browser.notebooks import SMALL, place_of, write_notebook

#: Seconds from the start of the training cell until the live view must be there.
LIVE_VIEW_WITHIN = 5.0
STEPS = 3
TRAINING = "trainer.train("
SLIDER = "slider("
PACKAGES = ("ipykernel", "ipywidgets", "ipython", "jupyterlab", "jupyter_client", "playwright", "torch", "transformers")


@pytest.fixture(scope="session")
def measured():
    """What the tests measure. It is written to the file that BROWSER_RESULT names, with the versions."""
    values = {}
    yield values
    path = os.environ.get("BROWSER_RESULT")
    if path:
        write_whole(path, json.dumps(description() | {"measured": values}, indent=1) + "\n")


def description():
    """Where the tests ran."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    return {"date": str(date.today()), "commit": described.stdout.strip(), "versions": versions}


@pytest.fixture(scope="session")
def folder():
    """Inside the project, where the notebooks' set-up cell finds `helpers`."""
    runs = ROOT / "runs"
    runs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="browser-", dir=runs) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def address(folder):
    with running_lab(folder) as address:
        yield address
    log = (folder / ".lab" / "log").read_text()
    assert "Traceback" not in log, log[-5000:]


@pytest.fixture(scope="session")
def browser(measured):
    with running_browser() as browser:
        measured["browser"] = browser.version
        yield browser


@pytest.mark.parametrize("name", [SMALL, "04_grpo"])
def test_training_is_shown_stopped_and_resumed(name, folder, address, browser, measured):
    """The view is there at once, Stop ends the run after a step, and the cell run again goes on from there."""
    parameters = {"PROFILE": "tiny", "MAX_STEPS": STEPS, "RUN_DIR": str(folder / f"run-{name}")}
    sources = write_notebook(name, folder, **parameters)
    place = place_of(TRAINING, sources)
    with opened(browser, address, name) as notebook:
        notebook.run_to_end(range(place))
        output = notebook.output(place)

        started = time.monotonic()
        notebook.run(place)
        output.get_by_text(f"0 of {STEPS} steps done").wait_for(timeout=1000 * LIVE_VIEW_WITHIN)
        measured[f"{name}: seconds to the live view"] = round(time.monotonic() - started, 2)
        output.get_by_text("drawing completions:").wait_for()

        pressed = time.monotonic()
        output.get_by_role("button", name="Stop after this step").click()
        output.get_by_role("button", name="Stopping after this step").wait_for()
        measured[f"{name}: seconds from the click to the button's answer"] = round(time.monotonic() - pressed, 2)
        output.get_by_text(f"Stopped after step 1 of {STEPS}, which is saved").wait_for()
        notebook.wait_until_done(place)
        assert output.get_by_role("button").count() == 0, "there is nothing to stop any more"

        notebook.run(place)
        output.get_by_text("drawing completions:").wait_for()
        assert output.get_by_text(f"1 of {STEPS} steps done").is_visible()
        assert output.get_by_text("tokens a completion").is_visible(), "the history of the step before"
        output.get_by_text(f"2 of {STEPS} steps done").wait_for()
        pick_a_completion(output)
        output.get_by_text(f"{STEPS} of {STEPS} steps done").wait_for()
        notebook.wait_until_done(place)
        assert output.get_by_text("curves from step 1;").is_visible()

        notebook.run(place)  # finished already
        output.get_by_text(f"{STEPS} of {STEPS} steps done").wait_for()
        notebook.wait_until_done(place)
        assert output.get_by_text("best completion of the last step").is_visible()

        notebook.run_to_end(range(place + 1, len(sources)))
        assert notebook.errors == []


def pick_a_completion(output):
    """Choose the best completion of the second step while the third goes on, and read it."""
    picker = output.locator("select")
    label = picker.locator("option", has_text="step 2, rank 1:").first.inner_text()
    picker.select_option(label=label)
    output.get_by_text("step 2, rank 1", exact=True).wait_for()


@pytest.mark.parametrize("name", [SMALL, "02_attention"])
def test_the_slider_moves(name, folder, address, browser, measured):
    sources = write_notebook(name, folder, PROFILE="tiny")
    place = place_of(SLIDER, sources)
    with opened(browser, address, name) as notebook:
        needed = range(1) if name == SMALL else range(place)
        notebook.run_to_end([*needed, place])
        picture = notebook.output(place).locator(".widget-html-content")
        before = picture.inner_html()
        assert before
        pressed = time.monotonic()
        notebook.output(place).get_by_role("slider").press("ArrowRight")
        while picture.inner_html() == before and time.monotonic() < pressed + 10:
            notebook.page.wait_for_timeout(20)
        assert picture.inner_html() not in ("", before)
        measured[f"{name}: seconds from the key to the picture"] = round(time.monotonic() - pressed, 2)
        assert notebook.errors == []
