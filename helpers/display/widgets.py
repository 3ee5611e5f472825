"""What a reader can move and press: a slider over a picture, and the controls of a running training.

Widgets are shown only where somebody watches. A notebook that was run headlessly holds pictures and no widgets.
"""

import html
from collections.abc import Callable, Sequence

from helpers.display import kernel, page

#: Completions of so many steps can be picked.
STEPS_TO_PICK = 3
STOP = "Stop after this step"


def slider(draw: Callable[[float], str], label: str, lowest: float, highest: float, value: float, step: float) -> None:
    """Show a picture with a slider that draws it anew.

    draw: returns HTML, such as an inline SVG, for a value. label: what the value is, as text. lowest, highest, step: of
    the slider. value: where it begins. Where nobody watches, or ipywidgets is missing, the picture of `value` is shown.
    """
    from IPython.display import display

    widgets = _ipywidgets() if kernel.is_watched() else None
    if widgets is None:
        caption = f"{label}: {value:g}"
        picture = f"<div>{html.escape(caption)}</div>{draw(value)}"
        display({"text/html": picture, "text/plain": caption}, raw=True)
        return
    handle = widgets.FloatSlider(
        value=value,
        min=lowest,
        max=highest,
        step=step,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "min(100%, 480px)"},
    )
    picture = widgets.HTML(draw(value))

    def redraw(change: dict) -> None:
        picture.value = draw(change["new"])

    handle.observe(redraw, "value")
    display(widgets.VBox([handle, picture]))


class Controls:
    """A Stop button, and a picker of recent completions, for a training that runs in a cell.

    A cell that runs keeps the kernel from handling clicks: `handle_messages` lets it, and is to be called often.

    Attributes:
        stop_is_asked: whether the button was pressed.
    """

    def __init__(self):
        """Raises ImportError where ipywidgets is missing."""
        import ipywidgets

        self.stop_is_asked = False
        self._rows = {}  # (step, rank by reward) -> the record of a completion
        self._button = ipywidgets.Button(description=STOP, layout={"width": "auto"})
        self._button.on_click(self._ask_to_stop)
        self._picker = ipywidgets.Dropdown(layout={"width": "auto", "max_width": "100%", "display": "none"})
        self._picker.observe(self._show_picked, "value")
        self._picked = ipywidgets.HTML()
        row = ipywidgets.HBox([self._button, self._picker], layout={"flex_flow": "row wrap"})
        self._box = ipywidgets.VBox([row, self._picked])

    def show(self) -> None:
        """Display the controls in the running cell."""
        from IPython.display import display

        display(self._box)

    def add(self, step: int, completions: Sequence[dict]) -> None:
        """Offer the completions of a step, the best first, and those of the steps before it."""
        if not completions:
            return
        steps = sorted({step, *(known for known, _ in self._rows)})[-STEPS_TO_PICK:]
        rows = {(step, rank): row for rank, row in enumerate(page.best_first(completions), 1)}
        rows |= {key: row for key, row in self._rows.items() if key[0] in steps and key[0] != step}
        picked = self._picker.value
        self._rows = rows
        options = [(_label(key, row), key) for key, row in rows.items()]
        self._picker.options = [("read a completion …", None), *options]
        self._picker.layout.display = None
        if picked in rows:
            self._picker.value = picked

    def handle_messages(self) -> None:
        """Handle what was pressed and picked since. Raises AttributeError in a kernel that cannot do that."""
        kernel.handle_messages((self._button.model_id, self._picker.model_id))

    def end(self) -> None:
        """Take the button away: there is nothing to stop any more. Completions can still be picked."""
        self._button.layout.display = "none"

    def close(self) -> None:
        """Take all of it away."""
        self._box.close()

    def _ask_to_stop(self, _) -> None:
        self.stop_is_asked = True
        self._button.description = "Stopping after this step …"
        self._button.disabled = True

    def _show_picked(self, change: dict) -> None:
        row = self._rows.get(change["new"])
        if row is not None:
            step, rank = change["new"]
            self._picked.value = page.completion_html(row, f"step {step}, rank {rank}")


def _label(key: tuple[int, int], row: dict) -> str:
    """Return one line that says which completion it is, its reward and how it was graded."""
    step, rank = key
    outcome = row.get("outcome")
    graded = f", {page.cut(str(outcome), 1, 32)}" if outcome else ""
    return f"step {step}, rank {rank}: reward {page.show('{:+.2f}', row.get('reward'))}{graded}"


def _ipywidgets():
    """Return the package; None where it is missing."""
    try:
        import ipywidgets
    except ImportError:
        return None
    return ipywidgets
