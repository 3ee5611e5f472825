"""Shows a training run while it runs."""

import time
from contextlib import suppress

from helpers.display import kernel, page
from helpers.display.widgets import Controls

#: While a phase of a step goes on, the display changes at most so often.
SECONDS_BETWEEN = 1.0


class LiveView:
    """A trainer callback: in a notebook one display, updated in place, which stays when the notebook is saved.

    Above it stand a Stop button and a picker of recent completions. Without a kernel, and where nobody watches
    (HELPERS_HEADLESS, as `helpers.run` sets it), there are no controls, and lines are printed.

    every: print each that many steps, and also the first and the last one, and those with a sign of the monitor.
    """

    def __init__(self, every: int = 5):
        self.every = every
        self.in_kernel = kernel.in_kernel()
        self.is_watched = kernel.is_watched()
        self.prints = not self.is_watched
        self._begin()

    def _begin(self) -> None:
        """Forget the session before. A cell that is run again has lost its output, and gets another display."""
        self.handle = None
        self.controls = None
        self.offered = None  # the completions that the picker got last
        self.first_step = None  # of this session
        self.phase_shown = ""
        self.shown_at = 0.0

    def on_train_begin(self, args, state, control, **_):
        self._begin()
        if self.is_watched:
            self._show_controls()
        self._show(state)

    def on_progress(self, args, state, control, **_):
        is_training = self.handle is not None
        if not (self.is_watched and is_training):
            return
        self._obey(control)
        is_new_phase = state.phase != self.phase_shown
        if is_new_phase or time.monotonic() - self.shown_at > SECONDS_BETWEEN:
            self._show(state)

    def on_log(self, args, state, control, logs, **_):
        step = state.global_step
        if self.first_step is None:
            self.first_step = step
        self._obey(control)
        self._show(state)
        is_evaluation = "reward" not in logs
        if is_evaluation:  # its step has been printed
            return
        is_due = step % self.every == 0 or step in (self.first_step, state.max_steps)
        if self.prints and (is_due or logs.get("monitor/signs")):
            print(page.line(state), flush=True)

    def on_train_end(self, args, state, control, **_):
        self._use_controls("end")
        self._show(state)
        was_finished_before = state.history and self.first_step is None
        if self.prints and was_finished_before:
            print(page.line(state), flush=True)
        self.handle = None

    def _show_controls(self) -> None:
        """Show the controls, unless ipywidgets is missing or the kernel is of another kind."""
        try:
            kernel.handle_messages(())
            self.controls = Controls()
            self.controls.show()
        except Exception:  # whatever it is, training can do without
            self.controls = None

    def _obey(self, control) -> None:
        """Handle what was pressed and picked since, and ask the trainer to stop where the Stop button was."""
        self._use_controls("handle_messages")
        if self.controls is not None and self.controls.stop_is_asked:
            control.should_training_stop = True

    def _use_controls(self, method: str, *arguments) -> None:
        """Call a method of the controls, where there are any. Where it fails there are none from here on."""
        if self.controls is None:
            return
        try:
            getattr(self.controls, method)(*arguments)
        except Exception as error:  # it must not end hours of training
            print(f"The Stop button failed, so interrupt the kernel to stop: {error!r}", flush=True)
            broken, self.controls = self.controls, None
            with suppress(Exception):
                broken.close()

    def _show(self, state) -> None:
        """Show the run as it is now, where there is a kernel."""
        self.phase_shown = state.phase
        self.shown_at = time.monotonic()
        if not self.in_kernel:
            return
        if state.completions is not self.offered:
            self.offered = state.completions
            self._use_controls("add", state.global_step, state.completions)
        try:
            self._update_display(state)
        except Exception as error:  # it must not end hours of training
            print(f"The live view failed: {error!r}", flush=True)

    def _update_display(self, state) -> None:
        from IPython.display import display

        bundle = {"text/html": page.page(state), "text/plain": page.text(state)}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)
