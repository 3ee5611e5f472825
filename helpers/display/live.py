"""Shows a training run while it runs."""

import html
import os
import sys
import time

#: What a step's line shows: log name, heading, format.
COLUMNS = (
    ("reward", "reward", "{:+.2f}"),
    ("pass_rate", "pass", "{:.0%}"),
    ("cheat_rate", "cheat", "{:.0%}"),
    ("completions/mean_length", "tokens", "{:.0f}"),
    ("completions/clipped_ratio", "cut off", "{:.0%}"),
    ("entropy", "entropy", "{:.2f}"),
    ("step_time", "seconds", "{:.1f}"),
)


class LiveView:
    """A trainer callback. In a notebook one table is updated in place; elsewhere it prints lines.

    every: print, where nothing can be updated, each that many steps.
    """

    def __init__(self, every=5):
        self.every, self.started, self.first = every, time.monotonic(), None
        self.handle = None
        self.interactive = _has_front_end()

    def on_log(self, args, state, control, logs, completions):
        self.first = state.global_step - 1 if self.first is None else self.first
        if self.interactive:
            self._show(state, completions)
        elif state.global_step % self.every == 0 or state.global_step in (1, state.max_steps):
            print(self._line(state, logs), flush=True)

    def _left(self, state):
        """Minutes to go at the mean pace so far."""
        done = state.global_step - self.first
        return (time.monotonic() - self.started) / done * (state.max_steps - state.global_step) / 60

    def _line(self, state, logs):
        shown = [f"{heading} {form.format(logs[name])}" for name, heading, form in COLUMNS if name in logs]
        return f"step {state.global_step}/{state.max_steps}  {'  '.join(shown)}  {self._left(state):.1f} min left"

    def _show(self, state, completions):
        from IPython.display import display

        best = max(completions, key=lambda row: sum(row["rewards"].values()))
        columns = [column for column in COLUMNS if column[0] in state.log_history[-1]]
        rows = state.log_history[-10:]
        head = "".join(f"<th>{heading}</th>" for heading in ["step"] + [column[1] for column in columns])
        body = "".join(
            f"<tr><td>{row['step']}</td>"
            + "".join(f"<td>{form.format(row[name])}</td>" for name, _, form in columns)
            + "</tr>"
            for row in rows
        )
        text = "\n".join(self._line(state, row) for row in rows[-1:])
        page = (
            f"<b>step {state.global_step} of {state.max_steps}</b>, {self._left(state):.1f} min left"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"best completion of this step:<pre>{html.escape(best['completion'])}</pre>"
        )
        bundle = {"text/html": page, "text/plain": text}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)


def _has_front_end():
    """Whether somebody may watch: a notebook kernel that was not started headlessly (`helpers.run`)."""
    return "ipykernel" in sys.modules and not os.environ.get("HELPERS_HEADLESS")
