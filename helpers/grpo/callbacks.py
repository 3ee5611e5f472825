"""What callbacks are told of a run, and what they may ask for, in the words of transformers' `TrainerCallback`."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: What a callback may have a method for, in the order of a step.
EVENTS = (
    "on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_progress", "on_step_end", "on_log",
    "on_evaluate", "on_save", "on_epoch_end", "on_train_end",
)  # fmt: skip


@dataclass
class TrainerState:
    """The state of a run. The fields of transformers' `TrainerState` have their meaning there.

    epoch: passes over the prompts so far. log_history: what this session's `on_log` got. best_metric: the best value
    of `metric_for_best_model` in an evaluation, and best_global_step its step; None before the first one.
    best_model_checkpoint and total_flos are not kept.

    history: the metrics of all steps of the run, earlier sessions included. completions: plain records of the last
    step's completions, one a completion. phase: what the trainer does now, such as "drawing completions"; empty where
    it does nothing. progress: how much of the phase is done, and of how much; None where that is not counted.
    """

    global_step: int = 0
    max_steps: int = 0
    epoch: float = 0.0
    num_train_epochs: float = 0.0
    logging_steps: int = 1
    eval_steps: int | None = None
    save_steps: int = 1
    train_batch_size: int = 0
    log_history: list = field(default_factory=list, repr=False)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    total_flos: float = 0.0
    history: list = field(default_factory=list, repr=False)
    completions: list = field(default_factory=list, repr=False)
    phase: str = ""
    progress: tuple[int, int] | None = None

    def note_evaluation(self, metrics: dict, step: int, metric: str | None, greater_is_better: bool | None) -> None:
        """Keep the value of an evaluation where it is the best so far. metric: metric_for_best_model, or None."""
        if metric is None:
            return
        value = metrics.get(metric)
        if value is None:
            return
        sign = 1 if greater_is_better else -1
        if self.best_metric is None or sign * value > sign * self.best_metric:
            self.best_metric = value
            self.best_global_step = step


@dataclass
class TrainerControl:
    """Requests of callbacks.

    should_training_stop: end the run, saved, after the step under way. should_evaluate, should_save, should_log: do it
    after this step, whether it is due or not. They count in `on_step_begin`, `on_step_end` and `on_epoch_end`, and
    should_save in `on_evaluate`, too. should_epoch_stop has no effect.
    """

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_evaluate: bool = False
    should_save: bool = False
    should_log: bool = False

    def begin_step(self) -> None:
        """Forget what was asked for the step before."""
        self.should_evaluate = False
        self.should_save = False
        self.should_log = False


def tell_callbacks(
    callbacks: Sequence, event: str, args, state: TrainerState, control: TrainerControl, **more
) -> TrainerControl:
    """Call the method `event` of each callback that has one; return the control, which a callback may replace.

    more: keywords, of which a method gets those that it names, or all where it takes `**kwargs`.
    """
    for callback in callbacks:
        method = getattr(callback, event, None)
        if method is None:
            continue
        returned = method(args, state, control, **_accepted(method, more))
        if isinstance(returned, TrainerControl):
            control = returned
    return control


def _accepted(method: Callable, keywords: dict) -> dict:
    """Return the keywords that a method takes."""
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return keywords
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in keywords.items() if name in names}
