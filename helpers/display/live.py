"""Shows a training run while it runs."""

import os
import sys
import time

from helpers.display import page

#: While completions are drawn the display changes at most so often.
SECONDS_BETWEEN = 1.0


class LiveView:
    """A trainer callback: in a notebook one display, updated in place, which stays when the notebook is saved.

    Without a kernel, and where nobody watches (HELPERS_HEADLESS, as `helpers.run` sets it), it prints lines.

    While the completions of a step are drawn, a display that somebody watches says how many are finished.

    every: print, besides the first and the last step, each that many steps.
    """

    def __init__(self, every=5):
        self.every, self.first, self.handle = every, None, None
        self.in_kernel = _in_kernel()
        self.prints = not self.in_kernel or bool(os.environ.get("HELPERS_HEADLESS"))
        self.latest = ({}, [])  # logs and completions of the last step
        self.shown_at = 0.0

    def on_log(self, args, state, control, logs, completions):
        self.first = state.global_step if self.first is None else self.first
        self.latest = (logs, completions)
        if self.in_kernel:
            self._try_to_show(state)
        if self.prints and (state.global_step % self.every == 0 or state.global_step in (self.first, state.max_steps)):
            print(page.line(state, logs), flush=True)

    def on_progress(self, args, state, control):
        is_watched = self.in_kernel and not self.prints
        if is_watched and time.monotonic() - self.shown_at > SECONDS_BETWEEN:
            self._try_to_show(state)

    def _try_to_show(self, state):
        self.shown_at = time.monotonic()
        try:
            self._show(state)
        except Exception as error:  # whatever it is, it must not end hours of training
            print(f"The live view failed: {error!r}", flush=True)

    def _show(self, state):
        from IPython.display import display

        shown = (state, *self.latest)
        bundle = {"text/html": page.page(*shown), "text/plain": page.text(*shown)}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)


def _in_kernel():
    """Whether a notebook kernel runs this, rather than a process that merely imported one."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython and ipython.get_ipython(), "kernel")
