"""A cell that trains nothing, and tells a live view of it as the trainer does; the kernel tests run it."""

import time
from types import SimpleNamespace

from helpers.display.live import LiveView


def train(max_steps: int) -> int:
    """Run steps of a tenth of a second until the last one or Stop; return how many."""
    view = LiveView()
    control = SimpleNamespace(should_training_stop=False)
    history = []
    state = SimpleNamespace(
        global_step=0,
        max_steps=max_steps,
        log_history=history,
        history=history,
        completions=[],
        phase="starting",
        progress=None,
    )
    view.on_train_begin(None, state, control)
    while state.global_step < max_steps and not control.should_training_stop:
        for finished in range(5):
            state.phase, state.progress = "drawing completions", (finished, 5)
            view.on_progress(None, state, control)
            time.sleep(0.02)
        state.phase = ""
        state.global_step += 1
        step = state.global_step
        state.completions = [record(step, number) for number in range(4)]
        history.append({"step": step, "reward": 1.5, "rewards/f/mean": 1.5, "step_time": 0.1})
        view.on_log(None, state, control, logs=history[-1], completions=state.completions)
    view.on_train_end(None, state, control)
    return state.global_step


def record(step: int, number: int) -> dict:
    text = f"answer {number} of step {step}"
    return {"prompt": "Why?", "completion": text, "rewards": {"f": number}, "reward": number, "outcome": "correct"}
