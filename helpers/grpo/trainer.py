"""GRPO on one device: generate, reward, compare within the group, step, record.

The functions of `helpers.grpo.loop` do the work; read that page first. `Session` keeps what a run leaves on disk.
"""

import json
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor

from helpers.grpo.batch import Generation, Group
from helpers.grpo.callbacks import TrainerControl, TrainerState, tell_callbacks
from helpers.grpo.checks import (
    check_adapter,
    check_callbacks,
    check_config,
    check_dataset,
    check_device,
    check_model,
    check_prompts,
    check_reward_funcs,
    check_rewards,
    check_tokenizer,
    dataset_digests,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.folders import one_run_in, saving_to
from helpers.grpo.loop import (
    advantages_of,
    draw,
    micro_batch_loss,
    places_of_step,
    prompts_of_step,
    score_completions,
    update_batch,
)
from helpers.grpo.losses import loss_scale
from helpers.grpo.metrics import completion_records, mean_of_rows, outcome_metrics, rollout_metrics
from helpers.grpo.micro_batching import MicroBatching
from helpers.grpo.monitor import FIRST_STEPS, watch
from helpers.grpo.optimizer import make_optimizer, make_schedule
from helpers.grpo.posthoc import draw_evaluation, evaluation_record
from helpers.grpo.routers import check_recorded, watch_routers
from helpers.grpo.scoring import rows_of_completions, score, user_code
from helpers.grpo.session import Session
from helpers.grpo.trl_arguments import apply_peft_config, refuse_arguments
from helpers.grpo.update import UpdateBatch, UpdateRows, UpdateStatistics
from helpers.model.attention import check_attention
from helpers.model.files import read_tokenizer
from helpers.model.gpu_memory import memory_errors_explained
from helpers.model.identity import base_settings
from helpers.model.lora import adapter_norm, check_trainable, checkpoint_layers, save_adapter
from helpers.rewards.calling import name_of, source_digest
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.runtime import GIB, UserError, files_added_to, interrupts_held, random_seed, whole_folder
from helpers.tasks import Grade, Task
from helpers.tasks.grading import grade_answers
from helpers.tasks.task import Row

#: What `save_model` writes.
ADAPTER_FILES = {"README.md", "adapter_config.json", "adapter_model.safetensors", "trainer_state.json"}
#: Models that a trainer of this process has changed: starting a new run on one is a mistake, a control's above all.
_moved = weakref.WeakSet()


def _gpu_memory() -> dict[str, float]:
    """The most memory that tensors took in this step, in GiB and as a share of the GPU's; {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    peak = torch.cuda.max_memory_allocated()
    _, total = torch.cuda.mem_get_info()
    return {"memory/peak_GiB": peak / GIB, "memory/peak_share": peak / total}


@dataclass(frozen=True)
class TrainStep:
    """One optimizer step, as `GRPOTrainer.steps` yields it.

    step: its number, from 1. generation: what it learnt from. metrics: the line of metrics.jsonl, and those of an
    evaluation after it. completions: plain records, one a completion.
    """

    step: int
    generation: Generation
    metrics: dict
    completions: list[dict]


class GRPOTrainer:
    """Train the LoRA adapter of a model with Group Relative Policy Optimization.

    Args:
        model: a `PeftModel` from `add_lora`, or a model from `load_model` with a peft_config.
        reward_funcs: functions f(prompts, completions, **columns) -> list[float or None], called
            with keywords as TRL does: also completion_ids, logprobs (the sampler's), finish_reasons, trainer_state,
            log_metric, log_extra.
        args: `GRPOConfig`; default: `GRPOConfig()`.
        train_dataset: rows with `prompt`; other columns go to the rewards.
        processing_class: the tokenizer; default: the one in the folder that the model was loaded from.
        callbacks: objects with some of the methods in `helpers.grpo.callbacks.EVENTS`, such as transformers' callbacks.
            Each is called as method(args, state, control, **more), with a `TrainerState`, a `TrainerControl`, model,
            processing_class, optimizer and lr_scheduler. `on_train_begin` comes when a run is resumed or begun, and
            `on_train_end` last, however it ended; `on_step_begin` and `on_step_end` around a step; then `on_log` every
            `logging_steps` steps, also with logs, means over these steps, and completions, plain dicts of the last
            step's; `on_evaluate`, also with metrics, after an evaluation, and `on_save` after a checkpoint. The events
            of an epoch come with the steps that complete a pass over the prompts. `on_progress` is ours: it comes
            whenever `state.phase` or `state.progress` has changed.
        task: grades the completions for the log and the monitor; its `settings()` are kept with checkpoints and
            adapters. None: no grades. The gradient depends on the rewards alone.
        engine: what generates; default: a `RolloutEngine` for the lengths and batch of `args`.
        eval_dataset: rows like those of train_dataset, held out from it, for `evaluate`.
        peft_config: a `LoraConfig` of PEFT, by which `add_lora` gives the model its adapter.

    Raises UserError for other arguments of TRL's trainer, with what to do in their place.
    """

    def __init__(
        self,
        model,
        reward_funcs: Callable | Sequence[Callable] | None = None,
        args: GRPOConfig | None = None,
        train_dataset=None,
        processing_class=None,
        callbacks: Sequence | None = None,
        task: Task | None = None,
        engine: RolloutEngine | None = None,
        eval_dataset=None,
        peft_config=None,
        **others,
    ):
        refuse_arguments(others, known=("model", "reward_funcs", "train_dataset", "processing_class", "peft_config"))
        check_model(model)
        args = GRPOConfig() if args is None else args
        check_config(args)
        if peft_config is not None:
            model = apply_peft_config(model, peft_config, args.seed)
        check_adapter(model)
        check_trainable(model)
        check_attention(model)
        check_device(model, args)
        check_dataset("train_dataset", train_dataset)
        if eval_dataset is not None:
            check_dataset("eval_dataset", eval_dataset)
        elif args.eval_strategy != "no":
            raise UserError(f"eval_strategy='{args.eval_strategy}' needs an eval_dataset: give GRPOTrainer one.")
        self.model = model
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.callbacks = check_callbacks(callbacks)
        self.task = task
        self.reward_funcs = check_reward_funcs(reward_funcs)
        self.reward_names = [name_of(function) for function in self.reward_funcs]
        # now, as the values that a function keeps change while it works
        self.reward_digests = dict(zip(self.reward_names, map(source_digest, self.reward_funcs), strict=True))
        self.args = args = self._completed(args)
        check_rewards(self.reward_names, args.reward_weights)
        if processing_class is None and engine is None:
            processing_class = _tokenizer_of(model)
        check_tokenizer(processing_class, engine)
        self.processing_class = processing_class
        self.engine = engine or RolloutEngine(
            model,
            processing_class,
            max_batch_size=args.generation_batch_size,
            max_length=args.max_length,
            chat_template_kwargs=args.chat_template_kwargs,
            record_experts=args.router_replay != "off",
        )
        check_prompts("train_dataset", train_dataset, self.engine, args)
        if eval_dataset is not None:
            check_prompts("eval_dataset", eval_dataset, self.engine, args)
        self.dataset_digests = dataset_digests(train_dataset)
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = make_optimizer(self.weights, args)
        self.scheduler = make_schedule(self.optimizer, args)
        if args.gradient_checkpointing:
            checkpoint_layers(model)
        self.micro_batching = MicroBatching(args, self.weights[0].device)
        self.state = self._new_state()
        self.control = TrainerControl()
        #: How the adapter was trained, for `trainer_state.json`; `train_rft` says otherwise.
        self.method = "GRPO"
        self.session: Session | None = None  # while a run goes on
        self.history = []  # the metrics of the whole run, earlier sessions included
        self.chosen = None  # how the adapter was chosen, where it is not the last step's
        self._is_training = False
        self._is_moving_weights = False  # until the step's records are written
        self._unlogged = []  # metrics of the steps since the last `on_log`
        self._tell_callbacks("on_init_end")

    def add_callback(self, callback) -> None:
        """Add a callback. Raises UserError for one that is a class, or has nothing to call."""
        self.callbacks += check_callbacks([callback])

    def _completed(self, args: GRPOConfig) -> GRPOConfig:
        """Return the settings with numbers for what follows from the data, the task and the model."""
        args = args.for_prompts(len(self.train_dataset))
        if args.reward_weights is None and self._pays_the_tasks_rewards():
            args = replace(args, reward_weights=tuple(self.task.reward_weights))
        if args.router_aux_loss_coef is None:
            args = replace(args, router_aux_loss_coef=self.model.config.router_aux_loss_coef)
        return args

    def _new_state(self) -> TrainerState:
        args = self.args
        return TrainerState(
            max_steps=args.max_steps,
            num_train_epochs=self._epochs(args.max_steps),
            logging_steps=args.logging_steps,
            eval_steps=args.eval_steps or args.save_steps,
            save_steps=args.save_steps,
            train_batch_size=args.per_device_train_batch_size,
        )

    def _epochs(self, steps: int) -> float:
        """Return the passes over the prompts that so many optimizer steps make."""
        generations = steps / self.args.steps_on_a_generation
        return generations * self.args.groups_per_generation / len(self.train_dataset)

    @property
    def last_completions(self) -> list[dict]:
        """Plain records of the last step's completions, as the callbacks get them."""
        return self.state.completions

    def train(self, resume_from_checkpoint: bool | str | Path | None = None) -> TrainerState:
        """Run to `max_steps`, `max_minutes`, an interrupt or until a callback stops it; return the `TrainerState`.

        resume_from_checkpoint: a folder, True for the newest in output_dir (none: start anew),
        or None to start anew, where output_dir holds no checkpoint. A resumed run continues as
        the uninterrupted one would have, from its last checkpoint. Where that is of the step before
        the one it broke off in, what the rewards said of that step stands.
        """
        try:
            for _ in self.steps(resume_from_checkpoint):
                pass
        except KeyboardInterrupt:
            print("Interrupted: train(resume_from_checkpoint=True) goes on from the last step done.")
        else:
            step, last = self.state.global_step, self.state.max_steps
            if self.control.should_training_stop and step < last:
                print(f"Stopped after step {step} of {last}, which is saved; to go on, run this again: "
                      "train(resume_from_checkpoint=True).")  # fmt: skip
        return self.state

    def steps(self, resume_from_checkpoint: bool | str | Path | None = None) -> Iterator[TrainStep]:
        """Yield each optimizer step when it is done, logged, and saved where a checkpoint is due.

        `train` without the loop: `for step in trainer.steps(): ...` runs the same steps. Leaving the loop ends the run
        with a checkpoint of the last step. resume_from_checkpoint: as for `train`.
        """
        with one_run_in(self.args.output_dir), memory_errors_explained():
            session = self._start_session(resume_from_checkpoint)
            deadline = time.monotonic() + 60 * (self.args.max_minutes or math.inf)
            with self._told_to_callbacks(), session.saved_at_the_end(lambda: not self._is_moving_weights):
                # an interrupt may have come before it was, when the checkpoint was written without its metrics
                if self._evaluate_if_due() and self.args.metric_for_best_model:
                    session.save()
                while not (self._is_at_the_end or self.control.should_training_stop):
                    yield self._train_step()
                    if time.monotonic() > deadline:
                        break
                self._log_steps()
                if session.has_unsaved_step:
                    session.save_last_step()
                    self._tell_callbacks("on_save")
            self.chosen = session.load_best()

    @property
    def _is_at_the_end(self) -> bool:
        return self.state.global_step >= self.args.max_steps

    def _start_session(self, resume_from_checkpoint: bool | str | Path | None) -> Session:
        """Resume a run or begin one, whose first checkpoint is written before the first step."""
        self.session = Session(
            self.args,
            self.model,
            self.optimizer,
            self.scheduler,
            self.settings(),
            self.reward_names,
            self.numerics(),
        )
        is_resumed = self.session.resume(resume_from_checkpoint)
        self.state.global_step = self.session.step
        if not is_resumed:
            if self.model in _moved:
                raise UserError(
                    "This model has been trained in this session already, and a new run would go on from there: load "
                    "it again (run the cell with load_model) before you start another."
                )
            self.session.save()  # a full disk shows now, and running again starts from these weights
        self.session.open_files()
        self.history = self.session.history
        self.state.history = self.history
        self.state.completions = self.session.read_last_completions()
        self.state.epoch = self._epochs(self.state.global_step)
        for evaluation in self.session.evaluations:
            self._note_best(evaluation, evaluation["step"])
        self._is_moving_weights = False
        self._unlogged = []
        return self.session

    def _train_step(self) -> TrainStep:
        """One optimizer step: its generation, unless an earlier step has drawn it, its gradient, and its records."""
        session = self.session
        self.control.begin_step()
        self._tell_callbacks("on_step_begin")
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.monotonic()
        is_first = self.state.global_step % self.args.steps_on_a_generation == 0
        generation = session.generation
        if generation is None:
            generation = self.generate(self.state.global_step)
            session.note_generation(generation)
        generated = time.monotonic()
        statistics = self.backward(generation)
        with interrupts_held():  # the step and its records: all of them or none
            updated = self.step(statistics)
            now = time.monotonic()
            seconds = {"time/update": now - generated, "step_time": now - started}
            if not is_first:
                seconds |= dict.fromkeys(("time/generate", "time/reward", "time/score"), 0.0)
            logs = {"step": self.state.global_step, **generation.metrics, **updated, **seconds, **_gpu_memory()}
            records = completion_records(generation, self.reward_names, self.args.reward_weights)
            alarms = session.note_step(logs, generation, records if is_first else [])
            self.state.completions = records
            self.state.epoch = self._epochs(self.state.global_step)
            self._is_moving_weights = False
        self._tell_callbacks("on_step_end")
        completes_a_pass = self.args.completes_a_pass(self.state.global_step, len(self.train_dataset))
        if completes_a_pass:
            self._tell_callbacks("on_epoch_end")
        self._log_if_due(logs, is_last=any(alarm.stops for alarm in alarms))
        logs = logs | self._evaluate_if_due()
        self._save_if_due()
        session.stop_for(alarms)
        if completes_a_pass and not self._is_at_the_end:
            self._tell_callbacks("on_epoch_begin")
        return TrainStep(self.state.global_step, generation, logs, records)

    def _evaluate_if_due(self) -> dict[str, float]:
        """Evaluate after a step for which that is due and not done, or asked for; return the metrics, or {}."""
        is_asked = self.control.should_evaluate and self.eval_dataset is not None
        if not (is_asked or self.session.is_evaluation_due):
            return {}
        metrics, generation = self._evaluate()
        self.session.note_evaluation(metrics, evaluation_record(self.eval_dataset, generation, self.args))
        self._log({"step": self.state.global_step, **metrics})
        self._tell_callbacks("on_evaluate", metrics=dict(metrics))
        self._note_best(metrics, self.state.global_step)
        return metrics

    def _note_best(self, metrics: dict, step: int) -> None:
        """Tell the state of an evaluation of the weights after `step`."""
        self.state.note_evaluation(metrics, step, self.args.monitored_metric, self.args.greater_is_better)

    def _save_if_due(self) -> None:
        """Write a checkpoint after a step for which that is due or asked for, and after the last one."""
        args = self.args
        is_due = args.is_save_due(self.state.global_step, len(self.train_dataset))
        is_last = self._is_at_the_end and args.save_strategy != "no"
        if not (is_due or is_last or self.control.should_save):
            return
        self._note_phase("saving")
        self.session.save_last_step()
        self._tell_callbacks("on_save")

    def _log_if_due(self, logs: dict, is_last: bool) -> None:
        """Show the callbacks the means over the steps since they were shown any, every `logging_steps` steps.

        is_last: whether an alarm ends the run after this step.
        """
        self._unlogged.append(logs)
        is_due = self.state.global_step % self.args.logging_steps == 0
        if is_due or is_last or self._is_at_the_end or self.control.should_log:
            self._log_steps()

    def _log_steps(self) -> None:
        """Show the callbacks the means over the steps since they were shown any, if there are such steps."""
        if self._unlogged:
            shown = mean_of_rows(self._unlogged)
            self._unlogged = []
            self._log(shown)

    def _log(self, logs: dict) -> None:
        """Show the callbacks a row of metrics."""
        logs = {**logs, "epoch": self.state.epoch}
        self.state.phase = ""
        self.state.log_history.append(logs)
        self._tell_callbacks("on_log", logs=dict(logs), completions=self.last_completions)

    @contextmanager
    def _told_to_callbacks(self) -> Iterator[None]:
        """Tell the callbacks when a session begins, and when it ends, however it does."""
        self.control = TrainerControl()
        self.state.phase = "starting"
        self._is_training = True
        try:
            self._tell_callbacks("on_train_begin")
            self._tell_callbacks("on_epoch_begin")
            yield
        finally:
            self._is_training = False
            self.state.phase = ""
            self._tell_callbacks("on_train_end")

    def _note_phase(self, phase: str, finished: int | None = None, count: int | None = None) -> None:
        """Tell the callbacks what the trainer does now, and how much of it is done where that is counted."""
        self.state.phase = phase
        self.state.progress = None if count is None else (finished, count)
        self._tell_callbacks("on_progress")

    def _tell_callbacks(self, event: str, **more) -> None:
        """Call the method of that name of each callback that has one."""
        keywords = {
            "model": self.model,
            "processing_class": self.processing_class,
            "optimizer": self.optimizer,
            "lr_scheduler": self.scheduler,
            "train_dataloader": None,
            "eval_dataloader": None,
            **more,
        }
        self.control = tell_callbacks(self.callbacks, event, self.args, self.state, self.control, **keywords)

    def evaluate(self) -> dict[str, float]:
        """Draw and judge completions of eval_dataset; return the metrics with "eval_" before their names.

        The same completions are drawn for the same weights, whenever it is called. Training is not changed by it.
        """
        metrics, _ = self._evaluate()
        return metrics

    def _evaluate(self) -> tuple[dict[str, float], Generation]:
        """Return the metrics of an evaluation, and what was drawn for it."""
        if self.eval_dataset is None:
            raise UserError("There is nothing to evaluate on: give GRPOTrainer an eval_dataset.")
        started = time.monotonic()
        note_progress = partial(self._note_phase, "drawing completions to evaluate")
        groups = draw_evaluation(self.engine, self.eval_dataset["prompt"], self.args, note_progress)
        generation = self.judge(self.eval_dataset, groups)
        measured = rollout_metrics(generation, self.reward_names, self.args.reward_weights)
        metrics = {**measured, **generation.metrics, "runtime": time.monotonic() - started}
        numbers = {f"eval_{name}": value for name, value in metrics.items() if isinstance(value, (int, float))}
        return numbers, generation

    def save_model(self, folder: str | Path | None = None) -> None:
        """Write the adapter as PEFT does, and `trainer_state.json` with its steps and settings; whole or not at all.

        folder: default: output_dir. A folder that holds more than an adapter, such as that of the run, keeps the rest;
        there each file is written whole, one after the other.
        """
        folder = Path(self.args.output_dir if folder is None else folder)
        with saving_to(folder):
            others = folder.is_dir() and any(file.name not in ADAPTER_FILES for file in folder.iterdir())
        written_to = files_added_to(folder) if others else whole_folder(folder)
        with saving_to(folder), interrupts_held(), written_to as part:
            save_adapter(self.model, part)
            step = self.chosen["step"] if self.chosen else self.state.global_step
            state = {
                "method": self.method,
                "step": step,
                "settings": self.settings(),
                "adapter_norm": adapter_norm(self.model),
                "chosen_by": self.chosen,
            }
            (part / "trainer_state.json").write_text(json.dumps(state, indent=2))

    def generate(self, step: int) -> Generation:
        """Draw and judge the completions that optimizer steps from `step` on use; the same for the same weights.

        step: the first of the optimizer steps on this generation, counted from 0.
        """
        args = self.args
        started = time.monotonic()
        rows = prompts_of_step(self.train_dataset, step, args)
        seed = random_seed("training", args.seed, step)
        session = self.session
        is_next_step = self._is_training and session.step == step and session.generation is None
        groups = session.drawn_groups() if is_next_step else None
        if groups is None:
            groups = self._draw(rows["prompt"], args.num_generations, seed)
            if is_next_step:
                session.note_draws(groups)  # a reward that fails must not cost them
        generated = time.monotonic()
        generation = self.judge(rows, groups)
        generation.advantages = advantages_of(generation, args)
        measured = rollout_metrics(
            generation,
            self.reward_names,
            args.reward_weights,
            mask_truncated=args.mask_truncated_completions,
            tokens_before=self.history[-1].get("num_tokens", 0) if self.history else 0,
        )
        judged = time.monotonic()
        self._score_generation(generation)
        generation.metrics = {
            **measured,
            **generation.metrics,
            "time/generate": generated - started,
            "time/reward": judged - generated,
            "time/score": time.monotonic() - judged,
        }
        return generation

    def _draw(self, prompts: Sequence, num_generations: int, seed: int) -> list[Group]:
        """Draw completions of prompts, and tell the callbacks how far it is."""
        note_progress = partial(self._note_phase, "drawing completions")
        note_progress(0, len(prompts) * num_generations)
        groups = draw(self.engine, prompts, num_generations, seed, self.args, note_progress)
        for group in groups:
            check_recorded(group.completions, self.args)
        return groups

    def judge(self, rows: Sequence[Row], groups: Sequence[Group]) -> Generation:
        """Reward and grade completions, each once. rows: of the data set, one a group.

        The metrics of the result are those of the reward functions, of the grades and of the monitor.
        """
        self._note_phase(f"judging {sum(len(group.completions) for group in groups)} completions")
        scores = score(self.reward_funcs, rows, groups, self.state, self.args.reward_timeout)
        generation = Generation(list(groups), scores.rewards, extras=scores.extras)
        if self.task is not None:
            generation.grades = self._grade(rows, generation)
        generation.metrics = scores.metrics | self._observe(generation)
        return generation

    def _grade(self, rows: Sequence[Row], generation: Generation) -> list[Grade]:
        """Return the task's grades. Rewards that are not its own, such as a control's, tell it nothing."""
        paid = generation.rewards.tolist() if self._pays_the_tasks_rewards() else None
        rows_B = rows_of_completions(rows, generation.groups)
        with user_code(f"The grader of task '{self.task.name}'", self.args.reward_timeout):
            return grade_answers(self.task, rows_B, generation.completions, paid)

    def _pays_the_tasks_rewards(self) -> bool:
        """Tell whether the rewards are the task's own, and not a control's."""
        return self.task is not None and self.reward_funcs == list(self.task.reward_funcs)

    def _observe(self, generation: Generation) -> dict:
        """Return what the task's grades and the monitor say of a generation."""
        texts = [completion.thinking + completion.text for completion in generation.completions]
        first_copies = [row.get("monitor/duplicate_ratio") or 0.0 for row in self.history[:FIRST_STEPS]]
        if self.task is None:
            return watch(texts, first_copies=first_copies)
        grades = generation.grades
        signs = watch(texts, grades, self.task.alarms, first_copies, watch_copies=self.task.watch_copies)
        return outcome_metrics(grades, self.task.outcomes) | signs

    def _score_generation(self, generation: Generation) -> None:
        """Compute the log-probabilities that later optimizer steps need and that no later weights can give.

        Those of the reference, the model without its adapter, and those of the policy now, for the completions of the
        second and later steps on this generation. The first step computes its own.
        """
        completions = generation.completions
        if self.args.beta:
            with self.model.disable_adapter():
                generation.ref_logprobs = self._logprobs_now(completions)
        generation.old_logprobs = [None] * len(completions)
        first_part = places_of_step(0, self.args)
        later = [place for place in range(len(completions)) if place not in first_part]
        scored = self._logprobs_now([completions[place] for place in later])
        for place, logprobs in zip(later, scored, strict=True):
            generation.old_logprobs[place] = logprobs

    def _logprobs_now(self, completions: Sequence[Completion]) -> list[list[float]]:
        """The log-probabilities of completions under the model as it is, one list each."""
        if completions:
            self._note_phase("computing log-probabilities")
        compute = partial(self._score_in_micro_batches, completions)
        return self.micro_batching.retry_with_less_memory(compute, completions)

    def _score_in_micro_batches(self, completions: Sequence[Completion]) -> list[list[float]]:
        """`_logprobs_now`, with micro-batches as large as they are."""
        found = [[]] * len(completions)
        for places in self.micro_batching.cut(completions):
            batch = [completions[place] for place in places]
            with watch_routers(self.model, batch, self.args, self.weights[0].device):
                scored = score_completions(self.model, batch, self.args)
            for place, logprobs in zip(places, scored, strict=True):
                found[place] = logprobs
        return found

    def backward(self, generation: Generation) -> UpdateStatistics:
        """Compute the gradient of the next optimizer step, from nothing; return sums over its tokens.

        Where the GPU has no memory for a micro-batch, they are halved for the rest of the run, which changes no more
        than rounding. Raises UserError if there is none for a single completion.
        """
        batch = update_batch(generation, self.state.global_step, self.args)
        self.model.train()

        def accumulate() -> tuple[UpdateStatistics, list[list[float]]]:
            self.optimizer.zero_grad()  # an interrupted step may have left a part
            return self.accumulate_gradients(batch)

        statistics, logprobs = self.micro_batching.retry_with_less_memory(accumulate, batch.completions)
        if batch.old_logprobs is None and self.args.num_iterations > 1:
            for place, values in zip(places_of_step(self.state.global_step, self.args), logprobs, strict=True):
                generation.old_logprobs[place] = values
        return statistics

    def accumulate_gradients(self, batch: UpdateBatch) -> tuple[UpdateStatistics, list[list[float]]]:
        """Add the gradient of a batch to the weights', in micro-batches.

        The weights of the tokens are those of the whole step, so the cut makes no difference.

        Returns: sums over its tokens, and the log-probabilities of each completion where a later step needs them.
        """
        device = self.weights[0].device
        statistics = UpdateStatistics(device)
        scale = loss_scale(batch.weights, batch.tokens)
        kept = max(1, sum(count > 0 for count in batch.tokens))
        is_needed_later = batch.old_logprobs is None and self.args.num_iterations > 1
        logprobs = [[]] * len(batch.completions)
        finished = 0
        for places in self.micro_batching.cut(batch.completions):
            self._note_phase("computing the gradient", finished, len(batch.completions))
            rows = batch.rows(places, device)
            logprobs_BT = self._backward_rows(rows, scale, statistics, kept)
            if is_needed_later:
                for place, row in zip(places, logprobs_BT.tolist(), strict=True):
                    logprobs[place] = row[: len(batch.completions[place].token_ids)]
            finished += len(places)
        for weight in self.weights:
            if weight.grad is not None:
                weight.grad /= scale
        return statistics, logprobs

    def _backward_rows(self, rows: UpdateRows, scale: float, statistics: UpdateStatistics, kept: int) -> Tensor:
        """The forward and backward pass of one micro-batch; return its log-probabilities, float32 [B, T].

        kept: completions of the whole step that count.
        """
        args = self.args
        with watch_routers(self.model, rows.completions, args, self.weights[0].device) as routers:
            found = micro_batch_loss(self.model, rows, args, scale)
            loss = found.policy.loss
            balancing_loss = routers.balancing_loss(rows)
            if balancing_loss is not None:
                aux_loss = balancing_loss / kept
                statistics.add(aux_loss=aux_loss.detach())
                loss = loss + scale * args.router_aux_loss_coef * aux_loss
            loss.backward()
        policy_drew = rows.old_BT is None
        statistics.add_micro_batch(found, rows.sampler_BT, scale, policy_drew)
        routers.note_flips(rows, statistics)
        return found.logprobs.detach()

    def clip_gradient(self) -> float:
        """Clip the gradient that `backward` left, and return its norm before. Raises UserError if it is not finite."""
        grad_norm = torch.nn.utils.clip_grad_norm_(self.weights, self.args.max_grad_norm or math.inf).item()
        if not math.isfinite(grad_norm):
            raise UserError(
                f"The gradient is {grad_norm}, so no step was taken: look at the rewards and the dtype, and start in a "
                "new run folder with a lower learning_rate."
            )
        return grad_norm

    def step(self, statistics: UpdateStatistics) -> dict[str, float | None]:
        """Move the weights along the gradient that `backward` left; return the step's metrics."""
        grad_norm = self.clip_gradient()
        learning_rate = self.scheduler.get_last_lr()[0]
        metrics = statistics.metrics()
        _moved.add(self.model)
        self._is_moving_weights = True
        self.optimizer.step()
        self.scheduler.step()
        self.state.global_step += 1
        return {**metrics, "grad_norm": grad_norm, "learning_rate": learning_rate}

    def settings(self) -> dict:
        """Return what a resumed run must share with the one that wrote the checkpoint, as it reads back from JSON."""
        lora = self.model.active_peft_config
        settings = {
            **self.args.settings_of_the_run(),
            "lora_r": lora.r,
            "lora_alpha": lora.lora_alpha,
            **self.dataset_digests,
            **base_settings(self.model, self.args.output_dir),
            **(self.task.settings() if self.task else {}),
            "optimizer": type(self.optimizer).__name__,
            "reward_funcs": self.reward_names,
        }
        return json.loads(json.dumps(settings))

    def numerics(self) -> dict:
        """Return what a resumed run may have otherwise than the one that wrote the checkpoint, and is told of."""
        return {
            "threads": torch.get_num_threads(),
            "micro_batch": self.args.per_device_train_batch_size,
            "rewards": self.reward_digests,
        }


def _tokenizer_of(model: PeftModel):
    """Return the tokenizer in the folder that a model was loaded from."""
    folder = getattr(model.get_base_model(), "loaded_from", None)
    if folder is None:
        raise UserError("processing_class is missing: pass the tokenizer that load_model returned.")
    tokenizer, _ = read_tokenizer(folder)
    return tokenizer
