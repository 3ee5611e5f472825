"""GRPO on one device: generate, reward, compare within the group, step, record.

The ratio compares the policy with itself at the time of the generation, both computed by the trainer, so it is exactly
1 in the first optimizer step on a generation. How far the sampler's own log-probabilities are from the trainer's goes
into truncated importance weights (`helpers.grpo.correction`).
"""

import hashlib
import json
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.nn.utils.rnn import pad_sequence

from helpers.grpo.alarms import Alarm, AlarmLimits, check_alarms
from helpers.grpo.batch import Generation
from helpers.grpo.checkpoint import (
    EVALUATIONS,
    METRICS,
    MetricsFile,
    back_up,
    known_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    load_rollout,
    monitor_of,
    one_run_in,
    read_metrics,
    record_best,
    restore_backup,
    save_checkpoint,
    save_rollout,
    saving_to,
    step_of,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.dry_run import try_rewards, try_step
from helpers.grpo.guards import interrupts_held
from helpers.grpo.logprobs import recorded_experts
from helpers.grpo.logs import RunLog
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
from helpers.grpo.metrics import completion_records, outcome_metrics, rollout_metrics
from helpers.grpo.monitor import FIRST_STEPS, watch
from helpers.grpo.optimizer import make_optimizer, make_schedule
from helpers.grpo.scoring import grade, score
from helpers.grpo.update import UpdateBatch, UpdateRows, UpdateStatistics, micro_batches
from helpers.kernels.attention import give_up_flex
from helpers.model.attention import check_attention
from helpers.model.gpu_memory import OutOfMemory, is_out_of_memory, memory_errors_explained, release_memory
from helpers.model.identity import base_settings
from helpers.model.lora import adapter_norm, check_trainable, checkpoint_layers, save_adapter
from helpers.model.routing import Routing, flip_rate, load_balancing_loss, watched_routers
from helpers.rewards.calling import name_of
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.runtime import GIB, UserError, first_line, random_seed, whole_folder
from helpers.tasks import Grade, Task

Result = TypeVar("Result")
TEMPLATE_TOKENS = 256  # more than a chat template adds to a prompt
#: Models that a trainer of this process has changed: starting a new run on one is a mistake, a control's above all.
_moved = weakref.WeakSet()


def _check_dataset(name: str, dataset) -> None:
    """Raise UserError unless a data set can be trained on."""
    if not len(dataset) or "prompt" not in dataset.column_names:
        raise UserError(f"{name} needs at least one row and a column 'prompt'.")


def _gpu_memory() -> dict[str, float]:
    """The most memory that tensors took in this step, in GiB and as a share of the GPU's; {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    peak = torch.cuda.max_memory_allocated()
    _, total = torch.cuda.mem_get_info()
    return {"memory/peak_GiB": peak / GIB, "memory/peak_share": peak / total}


@dataclass
class TrainerState:
    """Where the run is.

    log_history: the metrics of this session's steps. drawing: while completions are drawn, how many are finished and
    how many it will be.
    """

    global_step: int = 0
    max_steps: int = 0
    log_history: list = field(default_factory=list)
    drawing: tuple[int, int] | None = None


@dataclass(frozen=True)
class TrainStep:
    """One optimizer step, as `GRPOTrainer.steps` yields it.

    step: its number, from 1. generation: what it learnt from. advantages: float32 [B], of all completions of the
    generation. metrics: the line of metrics.jsonl. completions: plain records, one a completion.
    """

    step: int
    generation: Generation
    advantages: torch.Tensor
    metrics: dict
    completions: list[dict]


class GRPOTrainer:
    """Train the LoRA adapter of a model with Group Relative Policy Optimization.

    Args:
        model: a `PeftModel` from `add_lora`.
        reward_funcs: functions f(prompts, completions, **columns) -> list[float or None], called
            with keywords as TRL does: also completion_ids, logprobs (the sampler's), finish_reasons, trainer_state,
            log_metric, log_extra.
        args: `GRPOConfig`.
        train_dataset: rows with `prompt`; other columns go to the rewards.
        processing_class: the tokenizer.
        callbacks: objects with `on_log(args, state, control, logs, completions)`, called after
            every step; `completions` are plain dicts, one a completion. Where they have `on_progress(args, state,
            control)`, it is called whenever a completion of a step is finished.
        task: grades the completions for the log and the monitor; its `settings()` are kept with checkpoints and
            adapters. None: no grades. The gradient depends on the rewards alone.
        engine: what generates; default: a `RolloutEngine` for the lengths and batch of `args`.
        eval_dataset: rows like those of train_dataset, held out from it, for `evaluate`.
    """

    def __init__(
        self,
        model,
        reward_funcs: Callable | Sequence[Callable],
        args: GRPOConfig,
        train_dataset,
        processing_class,
        callbacks: Sequence | None = None,
        task: Task | None = None,
        engine: RolloutEngine | None = None,
        eval_dataset=None,
    ):
        check_trainable(model)
        check_attention(model)
        _check_dataset("train_dataset", train_dataset)
        if eval_dataset is not None:
            _check_dataset("eval_dataset", eval_dataset)
        elif args.eval_strategy != "no":
            raise UserError(f"eval_strategy='{args.eval_strategy}' needs an eval_dataset: give GRPOTrainer one.")
        self.model = model
        self.args = args
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.callbacks = callbacks or []
        self.task = task
        self.reward_funcs = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
        self.reward_names = [name_of(function) for function in self.reward_funcs]
        if args.reward_weights is None and self._pays_the_tasks_rewards():
            args = self.args = replace(args, reward_weights=tuple(self.task.reward_weights))
        self._check_rewards()
        self.engine = engine or RolloutEngine(
            model,
            processing_class,
            max_batch_size=args.generation_batch_size,
            max_length=args.max_length,
            chat_template_kwargs=args.chat_template_kwargs,
            record_experts=args.router_replay != "off",
        )
        self._check_prompts("train_dataset", train_dataset)
        if eval_dataset is not None:
            self._check_prompts("eval_dataset", eval_dataset)
        self.prompts_digest = hashlib.sha256(json.dumps(train_dataset["prompt"][:]).encode()).hexdigest()[:16]
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = make_optimizer(self.weights, args)
        self.scheduler = make_schedule(self.optimizer, args)
        if args.gradient_checkpointing:
            checkpoint_layers(model)
        self.state = TrainerState(max_steps=args.max_steps)
        self.generation = None  # where optimizer steps on it are still to come
        self.shortages = 0  # errors for want of memory so far
        self.halvings = 0  # of the micro-batches, for want of memory
        self._is_moving_weights = False  # until the step's records are written
        self.saved_step = None
        self.last_completions = []  # of the last step, as the callbacks get them
        self.chosen = None  # how the adapter was chosen, where it is not the last step's
        self.history = []  # the metrics of the whole run, earlier sessions included
        self.evaluations = []  # likewise

    def _check_rewards(self) -> None:
        if len(set(self.reward_names)) < len(self.reward_names):
            raise UserError(
                f"Two rewards have one name in {self.reward_names}: give each function a __name__ of its own."
            )
        weights = self.args.reward_weights
        if weights is not None and len(weights) != len(self.reward_funcs):
            raise UserError(f"{len(weights)} reward_weights for {len(self.reward_funcs)} reward functions.")

    def _check_prompts(self, name: str, dataset) -> None:
        """Raise UserError for a prompt that is too long, before hours of training lead to it.

        A token takes at least one byte, so only prompts of many bytes are rendered.
        """
        room = self.engine.max_length - self.args.max_completion_length
        for number, prompt in enumerate(dataset["prompt"], 1):
            if len(json.dumps(prompt)) < room - TEMPLATE_TOKENS:
                continue
            length = self.engine.prompt_length(prompt)
            if length > room:
                raise UserError(
                    f"The prompt of row {number} of {name} has {length} tokens and there is room for {room}: "
                    "shorten it, leave it out, or raise max_prompt_length."
                )

    def train(self, resume_from_checkpoint: bool | str | Path | None = None, dry_run: bool = False) -> TrainerState:
        """Run to `max_steps`, `max_minutes` or an interrupt; return the `TrainerState`.

        resume_from_checkpoint: a folder, True for the newest in output_dir (none: start anew),
        or None to start anew, where output_dir holds no checkpoint. A resumed run continues as
        the uninterrupted one would have, from its last checkpoint. Where that is of the step before
        the one it broke off in, what the rewards said of that step stands.
        dry_run: try the data, the rewards and one step, as `try_step` does, and train nothing.
        """
        if dry_run:
            try_rewards(self)
            try_step(self)
            return self.state
        try:
            for _ in self.steps(resume_from_checkpoint):
                pass
        except KeyboardInterrupt:
            print("Interrupted: train(resume_from_checkpoint=True) goes on from the last step done.")
        return self.state

    def steps(self, resume_from_checkpoint: bool | str | Path | None = None) -> Iterator[TrainStep]:
        """Yield each optimizer step when it is done, logged, and saved where a checkpoint is due.

        `train` without the loop: `for step in trainer.steps(): ...` runs the same steps. Leaving the loop ends the run
        with a checkpoint of the last step. resume_from_checkpoint: as for `train`.
        """
        with one_run_in(self.args.output_dir), memory_errors_explained():
            self.generation = self._resume(resume_from_checkpoint)
            self._is_moving_weights = False
            self._open_files()
            deadline = time.monotonic() + 60 * (self.args.max_minutes or math.inf)
            is_done = self.state.global_step >= self.args.max_steps
            try:
                # an interrupt may have come before it was, when the checkpoint was written without its metrics
                if self._evaluate_if_due() and self.args.metric_for_best_model:
                    self._save()
                while not is_done:
                    yield self._train_step()
                    is_done = self.state.global_step >= self.args.max_steps or time.monotonic() > deadline
            except (KeyboardInterrupt, GeneratorExit):
                self._save_last_step()
                raise
            except Exception as error:
                if is_out_of_memory(error) and not self._is_moving_weights:
                    self._save_last_step()
                raise
            finally:
                with suppress(UserError):  # a full disk: what filled it has said so
                    self.run_log.close()
            self._save_last_step()
            if self.args.load_best_model_at_end:
                self.chosen = load_best(self.args.output_dir, self.model)
                if self.chosen is None:
                    metric = self.args.metric_for_best_model
                    print(f"No checkpoint has a value of {metric}, so the adapter is that of the last step.")

    def _open_files(self) -> None:
        """Open the run's metrics, without lines of steps that are to be done again."""
        folder = Path(self.args.output_dir)
        step = self.state.global_step
        self.metrics_file = MetricsFile(folder / METRICS, step)
        self.evaluations_file = MetricsFile(folder / EVALUATIONS, step)
        self.history = read_metrics(self.metrics_file.path)
        self.evaluations = read_metrics(self.evaluations_file.path)
        self.run_log = RunLog(folder, self.reward_names, self.args.max_steps, step)

    def _save_last_step(self) -> None:
        """Write a checkpoint of the last step, unless there is one."""
        with interrupts_held():
            if self.saved_step != self.state.global_step:
                self._save()

    def _train_step(self) -> TrainStep:
        """One optimizer step: its generation, unless an earlier step has drawn it, its gradient, and its records."""
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.monotonic()
        is_first = self.state.global_step % self.args.steps_on_a_generation == 0
        generation = self.generation
        if generation is None:
            generation = self.generate(self.state.global_step)
            save_rollout(self.args.output_dir, self.state.global_step, self._settings(), generation)
        generated = time.monotonic()
        statistics = self.backward(generation)
        with interrupts_held():  # the step and its records: all of them or none
            updated = self.step(statistics)
            step = self.state.global_step
            now = time.monotonic()
            is_used_up = step % self.args.steps_on_a_generation == 0
            self.generation = None if is_used_up else generation
            seconds = {"time/update": now - generated, "step_time": now - started}
            if not is_first:
                seconds |= dict.fromkeys(("time/generate", "time/reward", "time/score"), 0.0)
            logs = {"step": step, **generation.metrics, **updated, **seconds, **_gpu_memory()}
            alarms = check_alarms([*self.history, logs], self._alarm_limits())
            logs["monitor/signs"] = [*logs["monitor/signs"], *(alarm.sentence for alarm in alarms)]
            self.metrics_file.append(logs)
            self.history.append(logs)
            self._remember_completions(generation)
            self.run_log.write(logs, self.last_completions if is_first else [])
            self._is_moving_weights = False
        evaluated = self._evaluate_if_due()
        with interrupts_held():
            if step % self.args.save_steps == 0:
                self._save()
        done = self._report(logs | evaluated, generation)
        self._stop_for(alarms)
        return done

    def _alarm_limits(self) -> AlarmLimits:
        """What alarms are raised at. One generation that teaches nothing is one, however many steps it serves."""
        generations = self.args.no_signal_steps
        steps = None if generations is None else generations * self.args.steps_on_a_generation
        return AlarmLimits(no_signal_steps=steps)

    def _stop_for(self, alarms: Sequence[Alarm]) -> None:
        """Raise UserError with the first alarm that says that going on is of no use; nothing is lost."""
        for alarm in alarms:
            if alarm.stops:
                self._save_last_step()
                raise UserError(
                    f"{alarm.sentence} Training stopped after step {self.state.global_step}, which is saved."
                )

    def _evaluate_if_due(self) -> dict[str, float]:
        """Evaluate after a step for which that is due and not done; return the metrics, or {}."""
        step = self.state.global_step
        args = self.args
        is_due = args.eval_strategy == "steps" and step and step % (args.eval_steps or args.save_steps) == 0
        is_done = self.evaluations and self.evaluations[-1]["step"] == step
        if not is_due or is_done:
            return {}
        metrics = self.evaluate()
        row = {"step": step, **metrics}
        self.evaluations_file.append(row)
        self.evaluations.append(row)
        return metrics

    def _remember_completions(self, generation: Generation) -> None:
        """Keep the plain records of a step's completions, for files and callbacks."""
        advantages = self.advantages(generation)
        self.last_completions = completion_records(generation, self.reward_names, self.args.reward_weights, advantages)

    def _report(self, logs: dict, generation: Generation) -> TrainStep:
        """Show a step to the callbacks."""
        self.state.log_history.append(logs)
        for callback in self.callbacks:
            callback.on_log(self.args, self.state, None, logs=logs, completions=self.last_completions)
        return TrainStep(logs["step"], generation, self.advantages(generation), logs, self.last_completions)

    def evaluate(self) -> dict[str, float]:
        """Draw and judge completions of eval_dataset; return the metrics with "eval_" before their names.

        The same completions are drawn for the same weights, whenever it is called. Training is not changed by it.
        """
        if self.eval_dataset is None:
            raise UserError("There is nothing to evaluate on: give GRPOTrainer an eval_dataset.")
        args = self.args
        started = time.monotonic()
        num_generations = args.num_generations_eval or args.num_generations
        seed = random_seed("evaluation", args.seed)
        completions = self._draw(self.eval_dataset["prompt"], num_generations, seed)
        metrics = self.judge(self.eval_dataset, completions, num_generations).metrics
        metrics["runtime"] = time.monotonic() - started
        return {f"eval_{name}": value for name, value in metrics.items() if isinstance(value, (int, float))}

    def save_model(self, folder):
        """Write the adapter as PEFT does, and `trainer_state.json` with its steps and settings; whole or not at all."""
        with saving_to(folder), interrupts_held(), whole_folder(folder) as part:
            save_adapter(self.model, part)
            step = self.chosen["step"] if self.chosen else self.state.global_step
            state = {
                "step": step,
                "settings": self._settings(),
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
        prompts = prompts_of_step(self.train_dataset, step, args)
        seed = random_seed("training", args.seed, step)
        completions = self._draw(prompts["prompt"], args.num_generations, seed)
        generated = time.monotonic()
        generation = self.judge(prompts, completions, args.num_generations)
        generation.metrics |= self._training_metrics(generation)
        judged = time.monotonic()
        self._score_generation(generation)
        generation.metrics["time/generate"] = generated - started
        generation.metrics["time/reward"] = judged - generated
        generation.metrics["time/score"] = time.monotonic() - judged
        return generation

    def _draw(self, prompts: Sequence, num_generations: int, seed: int) -> list[Completion]:
        """Draw completions of prompts, and tell the callbacks how far it is."""
        self._note_progress(0, len(prompts) * num_generations)
        try:
            completions = draw(self.engine, prompts, num_generations, seed, self.args, self._note_progress)
        finally:
            self.state.drawing = None
        if self.args.router_replay != "off" and any(completion.experts is None for completion in completions):
            raise UserError(
                f"router_replay='{self.args.router_replay}' needs the experts that the sampler chose, and this engine "
                "does not record them: make it with record_experts=True, or leave router_replay out."
            )
        return completions

    def judge(self, prompts, completions: list[Completion], num_generations: int) -> Generation:
        """Reward and grade completions. prompts: rows of a data set, one a group."""
        args = self.args
        rows = [row for row in prompts for _ in range(num_generations)]
        columns = {name: [row[name] for row in rows] for name in prompts.column_names}
        rewards, logged, extras = score(self.reward_funcs, columns, completions, self.state, args.reward_timeout)
        grades = self._grade(rows, completions, rewards) if self.task else []
        metrics = rollout_metrics(completions, rewards, self.reward_names, args.reward_weights, num_generations)
        metrics |= logged | self._observe(completions, grades)
        return Generation(list(prompts["prompt"]), completions, rewards, metrics, extras, grades)

    def _training_metrics(self, generation: Generation) -> dict:
        """What `rollout_metrics` says of a generation that is trained on."""
        args = self.args
        return rollout_metrics(
            generation.completions,
            generation.rewards,
            self.reward_names,
            args.reward_weights,
            args.num_generations,
            self.advantages(generation),
            mask_truncated=args.mask_truncated_completions,
            tokens_before=self.history[-1].get("num_tokens", 0) if self.history else 0,
        )

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
        return self._retry_with_less_memory(partial(self._score_in_micro_batches, completions), completions)

    def _score_in_micro_batches(self, completions: Sequence[Completion]) -> list[list[float]]:
        """`_logprobs_now`, with micro-batches as large as they are."""
        found = [[]] * len(completions)
        for places in self._micro_batches(completions):
            batch = [completions[place] for place in places]
            with self._watched_routers(self._recorded_experts(batch)):
                scored = score_completions(self.model, batch, self.args)
            for place, logprobs in zip(places, scored, strict=True):
                found[place] = logprobs
        return found

    def _note_progress(self, finished: int, count: int) -> None:
        """Tell the callbacks how far the completions of a step are."""
        self.state.drawing = (finished, count)
        for callback in self.callbacks:
            if hasattr(callback, "on_progress"):
                callback.on_progress(self.args, self.state, None)

    def _grade(self, rows: Sequence[dict], completions: Sequence[Completion], rewards: torch.Tensor) -> list[Grade]:
        """Return the task's grades. rewards: float64 [B, R], NaN for None."""
        paid = rewards.tolist() if self._pays_the_tasks_rewards() else None
        return grade(self.task, rows, completions, paid, self.args.reward_timeout)

    def _pays_the_tasks_rewards(self) -> bool:
        """Tell whether the rewards are the task's own, and not a control's."""
        return self.task is not None and self.reward_funcs == list(self.task.reward_funcs)

    def _observe(self, completions: Sequence[Completion], grades: Sequence[Grade]) -> dict:
        """Return what the task's grades and the monitor say of a generation."""
        texts = [completion.text for completion in completions]
        first_copies = [row.get("monitor/duplicate_ratio") or 0.0 for row in self.history[:FIRST_STEPS]]
        if self.task is None:
            return watch(texts, first_copies=first_copies)
        signs = watch(texts, grades, self.task.alarms, first_copies, watch_copies=self.task.watch_copies)
        return outcome_metrics(grades, self.task.outcomes) | signs

    def advantages(self, generation: Generation) -> torch.Tensor:
        """float32 [B], of all completions of a generation."""
        return advantages_of(generation.rewards, self.args)

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

        statistics, logprobs = self._retry_with_less_memory(accumulate, batch.completions)
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
        for places in self._micro_batches(batch.completions):
            rows = batch.rows(places, device)
            logprobs_BT = self._backward_rows(rows, scale, statistics, kept)
            if is_needed_later:
                for place, row in zip(places, logprobs_BT.tolist(), strict=True):
                    logprobs[place] = row[: len(batch.completions[place].token_ids)]
        for weight in self.weights:
            if weight.grad is not None:
                weight.grad /= scale
        return statistics, logprobs

    def _backward_rows(self, rows: UpdateRows, scale: float, statistics: UpdateStatistics, kept: int) -> torch.Tensor:
        """The forward and backward pass of one micro-batch; return its log-probabilities, float32 [B, T].

        kept: completions of the whole step that count.
        """
        args = self.args
        experts = self._recorded_experts(rows.completions)
        with self._watched_routers(experts) as routing:
            found = micro_batch_loss(self.model, rows, args, scale)
            loss = found.policy.loss
            if args.router_aux_loss_coef:
                aux_loss = load_balancing_loss(routing, self._routed_tokens(rows)).sum() / kept
                statistics.add(aux_loss=aux_loss.detach())
                loss = loss + scale * args.router_aux_loss_coef * aux_loss
            loss.backward()
        statistics.add_micro_batch(found, rows.sampler_BT, scale)
        if experts is not None:
            statistics.add_flips(flip_rate(routing.choices, experts, self._routed_tokens(rows)))
        return found.logprobs.detach()

    def _recorded_experts(self, completions: Sequence[Completion]) -> torch.Tensor | None:
        """The sampler's experts on the device, int64 [B, L, layers, K], or None where nobody asks for them."""
        if self.args.router_replay == "off":
            return None
        return recorded_experts(completions).to(self.weights[0].device)

    def _watched_routers(self, experts: torch.Tensor | None) -> AbstractContextManager[Routing | None]:
        """Watch the routers of a forward and backward pass, where something is asked of them. experts: recorded."""
        args = self.args
        if args.router_replay == "off" and not args.router_aux_loss_coef:
            return nullcontext()
        return watched_routers(self.model, experts if args.router_replay == "replay" else None)

    def _routed_tokens(self, rows: UpdateRows) -> torch.Tensor:
        """float32 [B, L], 1 for the tokens of prompts and completions that count in the loss."""
        lengths = [len(completion.prompt_ids) + len(completion.token_ids) for completion in rows.completions]
        mask_BL = pad_sequence([torch.ones(length) for length in lengths], batch_first=True)
        return mask_BL.to(rows.is_kept_B.device) * rows.is_kept_B[:, None]

    def _retry_with_less_memory(self, compute: Callable[[], Result], completions: Sequence[Completion]) -> Result:
        """Return what `compute` returns, which takes `completions` through the model in micro-batches.

        Where the GPU has no memory for it, what can be freed is freed and it is called again, from the trainer's second
        shortage on with smaller micro-batches. Where FlexAttention cannot be compiled, it is called again with another
        attention. Raises OutOfMemory if there is no memory for a single completion.
        """
        while True:
            try:
                return compute()
            except Exception as error:
                shortage = first_line(error) if is_out_of_memory(error) else None
                if shortage is None and not give_up_flex(error):
                    raise
            if shortage is not None:
                self._make_room(shortage, completions)
            release_memory()  # not above, where the error still holds the micro-batch's tensors

    def _make_room(self, reason: str, completions: Sequence[Completion]) -> None:
        """After the trainer's first shortage of memory say that it will be tried again, then halve the micro-batches.

        Raises OutOfMemory, with what the error said, where they hold a single completion already.
        """
        self.shortages += 1
        if self.shortages == 1:
            print("The GPU had no memory left for a micro-batch: what can be freed is freed, and it is tried again.")
            return
        cut = self._micro_batches(completions)
        if max(map(len, cut)) == 1:
            raise OutOfMemory(reason, " to take a single completion through the model")
        while self._micro_batches(completions) == cut:
            self.halvings += 1
        print(
            f"The GPU had no memory left for a micro-batch: they have {self.micro_batch_tokens} tokens at most from "
            "here on."
        )

    def _micro_batches(self, completions: Sequence[Completion]) -> list[list[int]]:
        """Places of completions that go through the model together.

        On a GPU each forward pass costs the same launches, however full it is, so short completions fill it up. On the
        CPU that would take memory and save nothing.
        """
        most = None if self.weights[0].is_cuda else self.args.per_device_train_batch_size
        return micro_batches(completions, self.micro_batch_tokens, most)

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens of one forward and backward pass, prompts and padding counted: those of
        per_device_train_batch_size completions of full length, unless there was no memory for them."""
        return max(1, self.args.per_device_train_batch_size * self.args.max_length >> self.halvings)

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

    def _settings(self):
        """What a resumed run must share with the one that wrote the checkpoint, as it reads back from JSON."""
        free = {"output_dir", "max_minutes", "save_steps", "save_total_limit", "reward_timeout"}
        free |= {"gradient_checkpointing", "max_prompt_length"}  # they change memory, not a bit of the gradient
        # how the completions of a step are cut into micro-batches follows the memory, and changes no more than rounding
        free |= {"gradient_accumulation_steps", "steps_per_generation"}
        free |= {"per_device_train_batch_size"} if self.args.loss_type != "bnpo" else set()
        free |= {"backup_dir", "metric_for_best_model", "greater_is_better", "load_best_model_at_end"}
        free |= {"eval_strategy", "eval_steps", "num_generations_eval", "no_signal_steps", "optim"}
        free |= {"max_steps"} if self.args.lr_scheduler_type == "constant" else set()
        settings = {name: value for name, value in self.args.to_dict().items() if name not in free}
        settings["step_batch_size"] = self.args.step_batch_size
        settings["generation_batch_size"] = self.args.generation_batch_size
        lora = self.model.active_peft_config
        settings |= {"lora_r": lora.r, "lora_alpha": lora.lora_alpha, "prompts": self.prompts_digest}
        settings |= base_settings(self.model, self.args.output_dir)
        if self.task is not None:
            settings |= self.task.settings()
        settings["optimizer"] = type(self.optimizer).__name__
        return json.loads(json.dumps({**settings, "reward_funcs": self.reward_names}))

    def _resume(self, where):
        args = self.args
        where = None if where is False else where
        folders = known_checkpoints(args.output_dir, args.backup_dir)
        if folders and where is None:
            raise UserError(
                f"{folders[-1].parent} holds checkpoints of an earlier run: go on with "
                "train(resume_from_checkpoint=True), or use another output_dir (backup_dir)."
            )
        settings = self._settings()
        if folders or where not in (None, True):
            restored = (self.model, self.optimizer, self.scheduler, settings)
            if where is True:
                step, generation = load_newest(folders, args.output_dir, *restored)
            elif not Path(where).is_dir():
                raise UserError(f"There is no checkpoint folder {where} to resume from.")
            else:
                step, generation = load_checkpoint(where, *restored)
                newer = [other for other in folders if step_of(other) > step]
                if newer:
                    raise UserError(
                        f"{newer[-1]} is newer than what you resume from: move it away first, or two runs would mix."
                    )
                if args.backup_dir and Path(where).resolve().parent == Path(args.backup_dir).resolve():
                    restore_backup(where, args.output_dir)
            self.state.global_step = self.saved_step = step
            self._finish_save(step)
            return generation or load_rollout(args.output_dir, step, settings)
        if self.model in _moved:
            raise UserError(
                "This model has been trained in this session already, and a new run would go on from there: load it "
                "again (run the cell with load_model) before you start another."
            )
        self._save()  # a full disk shows now, and running again starts from these weights
        return None

    def _finish_save(self, step: int) -> None:
        """Do what is left of saving the checkpoint that a run resumes from, where it died in the middle of it."""
        args = self.args
        record_best(args.output_dir, args.save_total_limit)
        folder = Path(args.output_dir) / f"checkpoint-{step}"
        if args.backup_dir and folder.is_dir() and not (Path(args.backup_dir) / folder.name).exists():
            back_up(folder, args.backup_dir, args.save_total_limit)

    def _save(self):
        args, step = self.args, self.state.global_step
        state = {
            "step": step,
            "settings": self._settings(),
            "generation": self.generation and self.generation.to_dict(),
            "monitor": monitor_of(args, step),
        }
        folder = save_checkpoint(
            args.output_dir, state, self.model, self.optimizer, self.scheduler, args.save_total_limit
        )
        if args.backup_dir:
            back_up(folder, args.backup_dir, args.save_total_limit)
        self.saved_step = step
