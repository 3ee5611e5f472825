"""Widgets in a real kernel, driven as a browser does, while a cell keeps the kernel busy.

`make test-browser` runs the same tests with the kernel of Colab's image: OTHER_KERNEL is its Python.
"""

import os
import sys

import pytest

from helpers.display import kernel as kernel_module
from helpers.display import widgets
from helpers.runtime import ROOT
from tests.display.kernel_driver import kernel_of

PYTHON = os.environ.get("OTHER_KERNEL", sys.executable)
#: The cell's module is imported by its own name: other Pythons have installed packages called `tests`.
START = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests/display')]!r}; from training_cell import train"
TRAIN = "print('steps:', train(1000))"


@pytest.fixture
def frontend():
    """A kernel in which somebody watches, with the function `train`."""
    environment = {name: value for name, value in os.environ.items() if name != "HELPERS_HEADLESS"}
    with kernel_of(PYTHON, **environment) as frontend:
        start = frontend.run(START)
        frontend.wait_until_done(start)
        assert frontend.printed(start) == ""
        yield frontend


def steps_of(printed):
    return int(printed.split("steps:")[1].split()[0])


def test_stop_ends_training_after_the_step(frontend):
    """While a cell runs, a kernel keeps clicks waiting until it has ended."""
    cell = frontend.run(TRAIN)
    button = frontend.wait_for_widget("ButtonModel")
    click = frontend.click(button)
    frontend.wait_for_state(button, lambda state: "Stopping" in state.get("description", ""), "the answer")
    frontend.wait_until_done(cell)
    assert steps_of(frontend.printed(cell)) < 100
    frontend.wait_until_done(click)
    hidden = [state for state in states(frontend) if state.get("display") == "none"]
    assert len(hidden) == 1, "the button is hidden at the end"


def states(frontend):
    """All states of widgets that the kernel told the browser."""
    updates = [message for message in frontend.heard if message["msg_type"] == "comm_msg"]
    return [message["content"]["data"].get("state", {}) for message in updates]


def test_a_completion_can_be_read_while_training_goes_on(frontend):
    """The best of a step stands first; what was picked stays picked when the next step comes."""
    cell = frontend.run(TRAIN)
    picker = frontend.wait_for_widget("DropdownModel")
    text = frontend.wait_for_widget("HTMLModel")
    offered = frontend.wait_for_state(picker, lambda state: len(state.get("_options_labels", ())) == 5, "four")
    assert offered["_options_labels"][1] == "step 1, rank 1: reward +3.00, correct"
    change = frontend.change(picker, index=2)
    shown = frontend.wait_for_state(text, lambda state: "answer 2 of step" in state.get("value", ""), "the text")
    assert "Why?" in shown["value"]
    frontend.wait_until_done(change)  # before it, a browser sends no second change
    busy = [message for message in frontend.heard if message["msg_type"] == "status"][-1]
    frontend.wait_for_state(picker, lambda state: (state.get("index") or 0) > 4, "the place of the one that was picked")
    assert busy["content"]["execution_state"] == "idle" and cell not in ids_of_replies(frontend)
    frontend.click(frontend.wait_for_widget("ButtonModel"))
    frontend.wait_until_done(cell)
    later = frontend.change(picker, index=1)  # the kernel is free: it handles the message by itself
    frontend.wait_until_done(later)


def ids_of_replies(frontend):
    """The cells whose end the kernel has published."""
    idle = [message for message in frontend.heard if message["content"].get("execution_state") == "idle"]
    return {message["parent_header"]["msg_id"] for message in idle}


def test_other_messages_keep_their_order(frontend):
    """Cells that a reader has queued, and changes of a widget that is not ours, wait until the cell has ended."""
    code = """
import contextvars, ipywidgets
seen = []
variable = contextvars.ContextVar("variable", default="lost")
other = ipywidgets.IntSlider()
other.observe(lambda change: seen.append(change["new"]), "value")
"""
    frontend.wait_until_done(frontend.run(code))
    other = frontend.wait_for_widget("IntSliderModel")
    cell = frontend.run(TRAIN)
    button = frontend.wait_for_widget("ButtonModel")
    frontend.run("seen.append('first cell'); token = variable.set('kept')")
    frontend.change(other, value=7)
    frontend.run("seen.append('second cell')")
    frontend.wait_for_widget("DropdownModel")
    frontend.click(button)
    last = frontend.run("print(seen, variable.get())")
    frontend.wait_until_done(last)
    assert steps_of(frontend.printed(cell)) < 100
    assert frontend.printed(last).endswith("['first cell', 7, 'second cell'] kept\n")


def test_an_interrupt_loses_no_message(frontend):
    """It stops the cell at once, as ever. A queued cell runs, where the interrupted one has caught the interrupt."""
    code = f"try:\n    {TRAIN}\nexcept KeyboardInterrupt:\n    print('interrupted')"
    cell = frontend.run(code)
    frontend.wait_for_widget("ButtonModel")
    queued = [frontend.run(f"print('cell {number}')") for number in range(5)]
    frontend.process.send_signal(2)
    frontend.wait_until_done(queued[-1])
    assert "interrupted" in frontend.printed(cell)
    assert [frontend.printed(message).splitlines()[-1] for message in queued] == [f"cell {n}" for n in range(5)]


def test_the_slider_redraws_its_picture(frontend):
    code = """
from helpers.display.widgets import slider
slider(lambda value: f"<svg><title>{value:.1f}</title></svg>", "sink", 0, 2, 0.5, 0.1)
"""
    frontend.wait_until_done(frontend.run(code))
    handle = frontend.wait_for_widget("FloatSliderModel")
    picture = frontend.wait_for_widget("HTMLModel")
    frontend.wait_until_done(frontend.change(handle, value=1.5))
    drawn = frontend.wait_for_state(picture, lambda state: "1.5" in state.get("value", ""), "the picture of 1.5")
    assert drawn["value"] == "<svg><title>1.5</title></svg>"


@pytest.mark.parametrize("reason", ["headless", "no ipywidgets"])
def test_without_widgets_the_slider_is_a_picture(monkeypatch, reason):
    """A notebook that was run headlessly shows it; a widget in it would be dead."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr(kernel_module, "in_kernel", lambda: True)
    if reason == "no ipywidgets":
        monkeypatch.delenv("HELPERS_HEADLESS")
        monkeypatch.setitem(sys.modules, "ipywidgets", None)
    widgets.slider(lambda value: f"<svg>{value}</svg>", "a < b", 0, 2, 0.5, 0.1)
    assert shown == [{"text/html": "<div>a &lt; b: 0.5</div><svg>0.5</svg>", "text/plain": "a < b: 0.5"}]
