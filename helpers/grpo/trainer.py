"""GRPO on one device: generate, reward, compare within the group, step, record.

What is left out of the paper's algorithm (DeepSeekMath, 2024): the KL term and with it the
reference model (beta = 0, as in DAPO and TRL's default). Old log-probabilities are the
sampler's own, so the ratio corrects for what was really sampled.
"""

import gc
import hashlib
import json
import math
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import get_scheduler

from helpers.grpo.advantages import combine_rewards, group_advantages
from helpers.grpo.batch import Generation, prompt_indices
from helpers.grpo.checkpoint import (
    MetricsFile,
    back_up,
    known_checkpoints,
    load_checkpoint,
    load_newest,
    load_rollout,
    monitor_of,
    one_run_in,
    read_metrics,
    restore_backup,
    save_checkpoint,
    save_rollout,
    saving_to,
    step_of,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.guards import interrupts_held
from helpers.grpo.logprobs import policy_logprobs
from helpers.grpo.losses import loss_normalizer, policy_loss
from helpers.grpo.metrics import completion_records, outcome_metrics, rollout_metrics
from helpers.grpo.monitor import FIRST_STEPS, watch
from helpers.grpo.scoring import grade, score
from helpers.model.attention import check_attention
from helpers.model.identity import base_settings
from helpers.model.lora import adapter_norm, check_trainable, checkpoint_layers, save_adapter
from helpers.rewards.calling import name_of
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import UserError, random_seed, whole_folder
from helpers.tasks import Grade, Task

TEMPLATE_TOKENS = 256  # more than a chat template adds to a prompt
#: Models that a trainer of this process has changed: starting a new run on one is a mistake, a control's above all.
_moved = weakref.WeakSet()


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
    ):
        check_trainable(model)
        check_attention(model)
        if not len(train_dataset) or "prompt" not in train_dataset.column_names:
            raise UserError("train_dataset needs at least one row and a column 'prompt'.")
        self.model = model
        self.args = args
        self.train_dataset = train_dataset
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
        )
        self._check_prompts()
        self.prompts_digest = hashlib.sha256(json.dumps(train_dataset["prompt"][:]).encode()).hexdigest()[:16]
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, args.learning_rate, weight_decay=args.weight_decay)
        self.scheduler = get_scheduler(args.lr_scheduler_type, self.optimizer, args.warmup_steps, args.max_steps)
        if args.gradient_checkpointing:
            checkpoint_layers(model)
        self.state = TrainerState(max_steps=args.max_steps)
        self.generation = None  # where optimizer steps on it are still to come
        self.halvings = 0  # of the micro-batches, for want of memory
        self.saved_step = None
        self.last_completions = []  # of the last step, as the callbacks get them
        self.first_copies = []  # shares of copies in the run's first steps

    def _check_rewards(self) -> None:
        if len(set(self.reward_names)) < len(self.reward_names):
            raise UserError(
                f"Two rewards have one name in {self.reward_names}: give each function a __name__ of its own."
            )
        weights = self.args.reward_weights
        if weights is not None and len(weights) != len(self.reward_funcs):
            raise UserError(f"{len(weights)} reward_weights for {len(self.reward_funcs)} reward functions.")

    def _check_prompts(self) -> None:
        """Raise UserError for a prompt that is too long, before hours of training lead to it.

        A token takes at least one byte, so only prompts of many bytes are rendered.
        """
        room = self.engine.max_length - self.args.max_completion_length
        for number, prompt in enumerate(self.train_dataset["prompt"], 1):
            if len(json.dumps(prompt)) < room - TEMPLATE_TOKENS:
                continue
            length = self.engine.prompt_length(prompt)
            if length > room:
                raise UserError(
                    f"The prompt of row {number} of train_dataset has {length} tokens and there is room for {room}: "
                    "shorten it, leave it out, or raise max_prompt_length."
                )

    def train(self, resume_from_checkpoint=None):
        """Run to `max_steps`, `max_minutes` or an interrupt; returns the `TrainerState`.

        resume_from_checkpoint: a folder, True for the newest in output_dir (none: start anew),
        or None to start anew, where output_dir holds no checkpoint. A resumed run continues as
        the uninterrupted one would have, from its last checkpoint. Where that is of the step before
        the one it broke off in, what the rewards said of that step stands.
        """
        with one_run_in(self.args.output_dir):
            self.generation = self._resume(resume_from_checkpoint)
            self._run()
        return self.state

    def _run(self):
        metrics_file = MetricsFile(f"{self.args.output_dir}/metrics.jsonl", self.state.global_step)
        earlier = read_metrics(metrics_file.path)[:FIRST_STEPS]
        self.first_copies = [row["monitor/duplicate_ratio"] for row in earlier]
        deadline = time.monotonic() + 60 * (self.args.max_minutes or float("inf"))
        done = self.state.global_step >= self.args.max_steps
        try:
            while not done:
                self._notify(*self._train_step(metrics_file))
                done = self.state.global_step >= self.args.max_steps or time.monotonic() > deadline
        except KeyboardInterrupt:
            print("Interrupted: train(resume_from_checkpoint=True) goes on from the last step done.")
        with interrupts_held():
            if self.saved_step != self.state.global_step:
                self._save()

    def _train_step(self, metrics_file):
        """One optimizer step; returns `(logs, Generation)`."""
        started, generation = time.monotonic(), self.generation
        if generation is None:
            generation = self.generate(self.state.global_step)
            save_rollout(self.args.output_dir, self.state.global_step, self._settings(), generation)
        generated = time.monotonic()
        sums = self.backward(generation)
        with interrupts_held():  # the step, its line and its checkpoint: all of them or none
            updated = self.step(sums)
            step, now = self.state.global_step, time.monotonic()
            self.generation = generation if step % self.args.num_iterations else None
            seconds = {"time/update": now - generated, "step_time": now - started}
            logs = {"step": step, **generation.metrics, **updated, **seconds}
            metrics_file.append(logs)
            if len(self.first_copies) < FIRST_STEPS:
                self.first_copies.append(logs["monitor/duplicate_ratio"])
            if step % self.args.save_steps == 0:
                self._save()
        return logs, generation

    def save_model(self, folder):
        """Write the adapter as PEFT does, and `trainer_state.json` with its steps and settings; whole or not at all."""
        with saving_to(folder), interrupts_held(), whole_folder(folder) as part:
            save_adapter(self.model, part)
            state = {
                "step": self.state.global_step,
                "settings": self._settings(),
                "adapter_norm": adapter_norm(self.model),
            }
            (part / "trainer_state.json").write_text(json.dumps(state, indent=2))

    def generate(self, step: int) -> Generation:
        """Return the `Generation` that optimizer steps from `step` on use; the same for the same weights."""
        args = self.args
        started = time.monotonic()
        count = args.generation_batch_size // args.num_generations
        chosen = prompt_indices(step // args.num_iterations, count, len(self.train_dataset), args.seed)
        prompts = self.train_dataset.select(chosen)
        seed = random_seed("training", args.seed, step)
        params = SamplingParams(args.max_completion_length, args.temperature, seed=seed)
        self._note_progress(0, len(prompts) * args.num_generations)
        try:
            completions = self.engine.generate(prompts["prompt"], params, args.num_generations, self._note_progress)
        finally:
            self.state.drawing = None
        generated = time.monotonic()
        rows = [row for row in prompts for _ in range(args.num_generations)]
        columns = {name: [row[name] for row in rows] for name in prompts.column_names}
        rewards, logged, extras = score(self.reward_funcs, columns, completions, self.state, args.reward_timeout)
        grades = self._grade(rows, completions, rewards) if self.task else []
        metrics = rollout_metrics(completions, rewards, self.reward_names, args.reward_weights, args.num_generations)
        metrics |= logged | self._observe(completions, grades)
        metrics["time/generate"] = generated - started
        metrics["time/reward"] = time.monotonic() - generated
        return Generation(list(prompts["prompt"]), completions, rewards, metrics, extras, grades)

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
        if self.task is None:
            return watch(texts, first_copies=self.first_copies)
        signs = watch(texts, grades, self.task.alarms, self.first_copies, watch_copies=self.task.watch_copies)
        return outcome_metrics(grades, self.task.outcomes) | signs

    def advantages(self, generation):
        """float32 [B]."""
        total = combine_rewards(generation.rewards, self.args.reward_weights)
        return group_advantages(total, self.args.num_generations, self.args.scale_rewards)

    def backward(self, generation):
        """The gradient of one optimizer step, from nothing; returns sums over its tokens.

        Where the GPU has no memory for a micro-batch, they are halved for the rest of the run, which changes no more
        than rounding. Raises UserError if there is none for a single completion.
        """
        self.model.train()
        advantages = self.advantages(generation)
        while True:
            self.optimizer.zero_grad()  # an interrupted step may have left a part
            try:
                return self.accumulate_gradients(generation.completions, advantages)
            except torch.OutOfMemoryError as error:
                self._halve_micro_batches(error)
            # not above, where the error still holds the micro-batch's tensors
            gc.collect()
            torch.cuda.empty_cache()

    def _halve_micro_batches(self, error: torch.OutOfMemoryError) -> None:
        if self.micro_batch_size == 1:
            raise UserError(
                "The GPU has no memory left for the update of a single completion: restart the kernel, and lower "
                "max_completion_length or max_prompt_length."
            ) from error
        self.halvings += 1
        print(f"The GPU has no memory left for the update: {self.micro_batch_size} completions at a time from here on.")

    @property
    def micro_batch_size(self) -> int:
        """Completions of one forward and backward pass."""
        return max(1, self.args.per_device_train_batch_size >> self.halvings)

    def step(self, sums):
        """Move the weights along the gradient that `backward` left; returns the step's metrics."""
        grad_norm = torch.nn.utils.clip_grad_norm_(self.weights, self.args.max_grad_norm).item()
        if not math.isfinite(grad_norm):
            raise UserError(
                f"The gradient is {grad_norm}, so no step was taken: look at the rewards and the dtype, and start in a "
                "new run folder with a lower learning_rate."
            )
        learning_rate = self.scheduler.get_last_lr()[0]
        _moved.add(self.model)
        self.optimizer.step()
        self.scheduler.step()
        self.state.global_step += 1
        tokens = sums["tokens"]
        return {
            "loss": sums["loss"],
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
            "entropy": sums["entropy"] / tokens,
            "clip_ratio/low_mean": sums["clipped_low"] / tokens,
            "clip_ratio/high_mean": sums["clipped_high"] / tokens,
            "sampling/sampling_logp_difference/mean": sums["difference"] / tokens,
            "sampling/sampling_logp_difference/max": sums["largest_difference"],
        }

    def accumulate_gradients(self, completions, advantages):
        """Backward over all completions in micro-batches; returns sums over tokens.

        The normaliser is that of the whole step, so the cut makes no difference: rows of like
        length go together, to pad less.
        """
        args = self.args
        kept = [not (args.mask_truncated_completions and c.finish_reason == "length") for c in completions]
        tokens = sum(len(c.token_ids) for c, keep in zip(completions, kept) if keep)
        normalizer = loss_normalizer(args.loss_type, tokens, len(completions), args.max_completion_length)
        order = sorted(
            range(len(completions)), key=lambda n: len(completions[n].prompt_ids) + len(completions[n].token_ids)
        )
        names = ("loss", "entropy", "tokens", "clipped_low", "clipped_high", "difference", "largest_difference")
        # on the device: reading a value would wait for the micro-batch
        sums = {name: torch.zeros((), dtype=torch.float64, device=self.weights[0].device) for name in names}
        for start in range(0, len(order), self.micro_batch_size):
            chosen = order[start : start + self.micro_batch_size]
            batch = [completions[n] for n in chosen]
            logprobs_BT, entropy_BT, mask_BT = policy_logprobs(self.model, batch, args.temperature)
            old_BT = pad_sequence([torch.tensor(c.logprobs) for c in batch], batch_first=True).to(mask_BT.device)
            keep_B1 = torch.tensor([[float(kept[n])] for n in chosen], device=mask_BT.device)
            loss, (low, high) = policy_loss(
                logprobs_BT, old_BT, advantages[chosen].to(mask_BT.device), mask_BT * keep_B1,
                normalizer=1, epsilon=args.epsilon, epsilon_high=args.epsilon_high,
            )  # fmt: skip
            loss.backward()  # of the sum: a mean's gradient, thousands of times smaller, would vanish in fp16
            difference_BT = (logprobs_BT.detach() - old_BT).abs() * mask_BT
            sums["loss"] += loss.detach() / normalizer
            sums["entropy"] += (entropy_BT * mask_BT).sum()
            sums["tokens"] += mask_BT.sum()
            sums["clipped_low"] += low
            sums["clipped_high"] += high
            sums["difference"] += difference_BT.sum()
            largest = sums["largest_difference"]
            torch.maximum(largest, difference_BT.max().to(largest.dtype), out=largest)
        for weight in self.weights:
            if weight.grad is not None:
                weight.grad /= normalizer
        return {name: value.item() for name, value in sums.items()}

    def _notify(self, logs, generation):
        self.state.log_history.append(logs)
        advantages = self.advantages(generation)
        self.last_completions = completion_records(generation, self.reward_names, self.args.reward_weights, advantages)
        for callback in self.callbacks:
            callback.on_log(self.args, self.state, None, logs=logs, completions=self.last_completions)

    def _settings(self):
        """What a resumed run must share with the one that wrote the checkpoint, as it reads back from JSON."""
        free = {"output_dir", "max_minutes", "save_steps", "save_total_limit", "reward_timeout"}
        free |= {"gradient_checkpointing", "max_prompt_length"}  # they change memory, not a bit of the gradient
        # how the completions of a step are cut into micro-batches follows the memory, and changes no more than rounding
        free |= {"per_device_train_batch_size", "gradient_accumulation_steps"}
        free |= {"backup_dir", "metric_for_best_model", "greater_is_better", "load_best_model_at_end"}
        free |= {"max_steps"} if self.args.lr_scheduler_type == "constant" else set()
        settings = {name: value for name, value in self.args.to_dict().items() if name not in free}
        settings["generation_batch_size"] = self.args.generation_batch_size
        lora = self.model.active_peft_config
        settings |= {"lora_r": lora.r, "lora_alpha": lora.lora_alpha, "prompts": self.prompts_digest}
        settings |= base_settings(self.model, self.args.output_dir)
        if self.task is not None:
            settings |= self.task.settings()
        return json.loads(json.dumps({**settings, "reward_funcs": self.reward_names}))

    def _resume(self, where):
        args = self.args
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
            return generation or load_rollout(args.output_dir, step, settings)
        if self.model in _moved:
            raise UserError(
                "This model has been trained in this session already, and a new run would go on from there: load it "
                "again (run the cell with load_model) before you start another."
            )
        self._save()  # a full disk shows now, and running again starts from these weights
        return None

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
