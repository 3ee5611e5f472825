"""Callbacks in transformers' words: when they are called, with what, and what they may ask for."""

import json

import pytest
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback
from transformers.utils.notebook import NotebookProgressCallback

from helpers import TokenWatch, UserError, read_metrics
from helpers.grpo.callbacks import EVENTS
from helpers.grpo.folders import checkpoint_folders
from helpers.grpo.metrics import mean_of_rows
from tests.grpo.small import trainer_in

SHORT = {"max_completion_length": 8}


class Listener:
    """Notes every event but the progress, and the step at which it came."""

    def __init__(self):
        self.heard = []
        self.keywords = {}

    def __getattr__(self, event):
        if event not in EVENTS or event == "on_progress":
            raise AttributeError(event)

        def note(args, state, control, **keywords):
            self.heard.append((event, state.global_step))
            self.keywords[event] = keywords

        return note


def test_the_events_of_a_run_come_in_transformers_order(tmp_path, prompts):
    """Four of seven events never came, so a callback that people bring with them did nothing, silently."""
    listener = Listener()
    settings = {"max_steps": 2, "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, **SHORT}
    trainer = trainer_in(tmp_path, prompts, callbacks=[listener], eval_dataset=prompts.select([0]), **settings)
    trainer.train()
    assert listener.heard == [
        ("on_init_end", 0),
        ("on_train_begin", 0),
        ("on_epoch_begin", 0),
        ("on_step_begin", 0),
        ("on_step_end", 1),
        ("on_log", 1),
        ("on_step_begin", 1),
        ("on_step_end", 2),
        ("on_log", 2),
        ("on_log", 2),
        ("on_evaluate", 2),
        ("on_save", 2),
        ("on_train_end", 2),
    ]
    assert listener.keywords["on_step_end"]["model"] is trainer.model
    assert listener.keywords["on_evaluate"]["metrics"]["eval_reward"] is not None
    logs = listener.keywords["on_log"]["logs"]
    assert logs["step"] == 2 and "eval_reward" in logs and len(listener.keywords["on_log"]["completions"]) == 8


def test_epochs_are_told(tmp_path, prompts):
    """A callback for the end of an epoch was never called. Three steps of two prompts are one pass over six."""
    listener = Listener()
    trainer_in(tmp_path, prompts.select(range(6)), callbacks=[listener], max_steps=7, save_steps=10, **SHORT).train()
    epochs = [(event, step) for event, step in listener.heard if "epoch" in event]
    assert epochs == [
        ("on_epoch_begin", 0), ("on_epoch_end", 3), ("on_epoch_begin", 3), ("on_epoch_end", 6), ("on_epoch_begin", 6),
    ]  # fmt: skip
    assert listener.keywords["on_log"]["logs"]["epoch"] == 7 / 3


def test_a_checkpoint_an_epoch_by_a_callback(tmp_path, prompts):
    """What a callback asked for at the end of an epoch was forgotten before anybody looked."""

    class Ask(TrainerCallback):
        def on_epoch_end(self, args, state, control, **_):
            control.should_save = True

    settings = {"max_steps": 4, "save_steps": 10, "save_total_limit": None, **SHORT}
    trainer_in(tmp_path, prompts.select(range(6)), callbacks=[Ask()], **settings).train()
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-0", "checkpoint-3", "checkpoint-4"]


def test_a_run_that_ends_early_tells_the_rest(tmp_path, prompts):
    """Steps since the last `on_log` were never shown, nor the checkpoint of the last step."""
    listener = Listener()

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 3

    settings = {"max_steps": 9, "save_steps": 10, "logging_steps": 5, **SHORT}
    trainer_in(tmp_path, prompts, callbacks=[Stop(), listener], **settings).train()
    assert listener.heard[-3:] == [("on_log", 3), ("on_save", 3), ("on_train_end", 3)]


def test_a_callback_gets_what_its_method_names(tmp_path, prompts):
    """transformers passes everything to `**kwargs`; one that names what it wants must not be a TypeError."""
    seen = []

    class Named:
        def on_log(self, args, state, control, logs):
            seen.append(logs["step"])

    trainer_in(tmp_path, prompts, callbacks=[Named()], max_steps=1, **SHORT).train()
    assert seen == [1]


@pytest.mark.parametrize("event", ["on_step_begin", "on_step_end", "on_log"])
def test_a_callback_may_end_the_run(tmp_path, prompts, capsys, event):
    """The step under way is finished and saved, whenever it was asked for."""

    class Stop(TrainerCallback):
        pass

    def ask(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= 1
        return control

    setattr(Stop, event, ask)
    state = trainer_in(tmp_path, prompts, callbacks=[Stop()], max_steps=4, save_steps=10, **SHORT).train()
    last = 2 if event == "on_step_begin" else 1
    assert state.global_step == last and checkpoint_folders(tmp_path)[-1].name == f"checkpoint-{last}"
    assert f"Stopped after step {last} of 4" in capsys.readouterr().out


def test_a_callback_may_ask_for_a_checkpoint_and_an_evaluation(tmp_path, prompts):
    """Once: a request counts for the step in which it was made."""
    heard = Listener()

    class Ask(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_save = control.should_evaluate = state.global_step == 1

    settings = {"max_steps": 3, "save_steps": 10, "save_total_limit": None, **SHORT}
    callbacks = [Ask(), heard]
    trainer_in(tmp_path, prompts, callbacks=callbacks, eval_dataset=prompts.select([0]), **settings).train()
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["checkpoint-0", "checkpoint-1", "checkpoint-3"]
    assert [step for event, step in heard.heard if event == "on_evaluate"] == [1]


def test_early_stopping_of_transformers(tmp_path, prompts):
    """It reads best_metric of the state and greater_is_better of the settings; both were missing."""
    settings = {
        "max_steps": 5,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "metric_for_best_model": "eval_completions/mean_length",
        "load_best_model_at_end": True,
        "learning_rate": 0.0,
        **SHORT,
    }
    stopping = EarlyStoppingCallback(early_stopping_patience=2)
    trainer = trainer_in(tmp_path, prompts, callbacks=[stopping], eval_dataset=prompts.select([0]), **settings)
    state = trainer.train()
    assert state.global_step == 3, "the first evaluation is the best, and the two after it are no better"
    assert state.best_global_step == 1 and state.best_metric == 8.0


def test_the_best_value_of_an_earlier_session_counts(tmp_path, prompts):
    """A resumed run would take its first evaluation for the best."""
    settings = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "eval_reward", **SHORT}
    held_out = prompts.select([0])
    first = trainer_in(tmp_path, prompts, eval_dataset=held_out, max_steps=1, **settings).train()
    again = trainer_in(tmp_path, prompts, eval_dataset=held_out, max_steps=1, **settings)
    state = again.train(resume_from_checkpoint=True)
    assert state.best_metric == first.best_metric and state.best_global_step == 1


def test_printers_of_transformers_run_unchanged(tmp_path, prompts, capsys):
    """They change what they are given, which must not be the row that goes to the file."""
    callbacks = [ProgressCallback(), PrinterCallback(), NotebookProgressCallback()]
    settings = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, **SHORT}
    trainer_in(tmp_path, prompts, callbacks=callbacks, eval_dataset=prompts.select([0]), **settings).train()
    assert "'grad_norm'" in capsys.readouterr().out
    assert all(isinstance(row["loss"], float) for row in read_metrics(tmp_path / "metrics.jsonl"))


def test_logging_steps(tmp_path, prompts):
    """`on_log` comes every so many steps with means over them, as in TRL; metrics.jsonl has every step."""
    seen = []

    class Keep(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            seen.append(logs)

    trainer_in(tmp_path, prompts, callbacks=[Keep()], max_steps=5, logging_steps=2, **SHORT).train()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [logs["step"] for logs in seen] == [2, 4, 5] and len(rows) == 5
    assert seen[0]["reward"] == (rows[0]["reward"] + rows[1]["reward"]) / 2
    assert seen[2]["reward"] == rows[4]["reward"]


def test_means_are_over_the_steps_that_have_a_value():
    """A sign is given at one step, and would be lost where the next one is shown."""
    rows = [
        {"step": 1, "kl": None, "reward": 1.0, "signs": ["a"], "learning_rate": 0.2, "mine": 4.0},
        {"step": 2, "kl": 0.5, "reward": 3.0, "signs": [], "learning_rate": 0.1},
    ]
    assert mean_of_rows(rows) == {
        "step": 2, "kl": 0.5, "reward": 2.0, "signs": ["a"], "learning_rate": 0.1, "mine": 4.0,
    }  # fmt: skip
    assert mean_of_rows(rows[:1]) == rows[0]


@pytest.mark.parametrize(("strategy", "steps"), [("no", [0, 5]), ("epoch", [0, 3, 5]), ("steps", [0, 2, 4, 5])])
def test_save_strategy(tmp_path, prompts, strategy, steps):
    """Five steps of two prompts are one pass over six prompts and two thirds of another."""
    settings = {"max_steps": 5, "save_steps": 2, "save_strategy": strategy, "save_total_limit": None, **SHORT}
    trainer_in(tmp_path, prompts.select(range(6)), **settings).train()
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == [f"checkpoint-{step}" for step in steps]


def test_callbacks_hear_the_step_that_a_run_is_resumed_at(tmp_path, prompts):
    """A watched token lost the values of all earlier sessions: `on_train_begin` came while the step was still 0."""
    values = []
    for steps in (2, 3):
        trainer = trainer_in(tmp_path, prompts, max_steps=steps, **SHORT)
        watch = TokenWatch(trainer.model, [1, 2, 3], 4, tmp_path / "token.json")
        trainer.callbacks.append(watch)
        trainer.train(resume_from_checkpoint=True)
        values.append(dict(watch.values))
    assert list(values[1]) == [0, 1, 2, 3] and values[1] == {**values[0], 3: values[1][3]}
    assert len(json.loads((tmp_path / "token.json").read_text())["values"]) == 4


@pytest.mark.parametrize(
    ("callbacks", "words"),
    [
        ([PrinterCallback], "holds the class PrinterCallback: pass an object of it, PrinterCallback()"),
        (PrinterCallback(), "callbacks must be a list of objects; got a PrinterCallback"),
        ([object()], "has none of the methods on_init_end"),
    ],
)
def test_a_callback_that_would_not_be_called_is_one_sentence(tmp_path, prompts, callbacks, words):
    """A class raised a TypeError about `self` in the first step, minutes after the start."""
    with pytest.raises(UserError) as caught:
        trainer_in(tmp_path, prompts, callbacks=callbacks)
    assert words in str(caught.value)
