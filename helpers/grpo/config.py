"""Settings of a GRPO run, in TRL's names."""

from dataclasses import asdict, dataclass, fields

from helpers.grpo.losses import NORMALIZERS
from helpers.grpo.trl_settings import NEUTRAL, check_trl_settings
from helpers.model.memory import PROMPT, micro_batch_size, rollout_length
from helpers.runtime import UserError

SCALES = ("group", "batch", "none")
SCHEDULES = ("constant", "linear", "cosine")
#: Settings that are whole numbers from 1 on.
COUNTS = (
    "max_steps", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations",
    "max_prompt_length", "max_completion_length", "save_steps", "save_total_limit",
)  # fmt: skip


@dataclass(frozen=True, init=False)
class GRPOConfig:
    """Settings of a GRPO run: `GRPOConfig(output_dir, max_steps=30, ...)`, in TRL's names and with TRL's meanings.

    Defaults are those of TRL 1.16, except for four: max_steps is 100 (TRL: -1, three epochs), save_steps 1 (TRL: 500)
    and save_total_limit 2 (TRL: None, all), as a step is long and a session short; and every step is logged
    (logging_steps, TRL: 10).

    output_dir: everything the run writes. Batch sizes count completions, lengths tokens.
    per_device_train_batch_size * gradient_accumulation_steps completions are generated and
    make one optimizer step; that many must be a multiple of num_generations.
    num_iterations: optimizer steps on each generation. epsilon_high: None means epsilon.
    gradient_checkpointing: keep only each layer's input for the backward pass and compute the rest anew.
    loss_type: "dapo" or "dr_grpo". scale_rewards: "group" (or True), "batch" or "none" (or False).
    max_prompt_length (ours): a longer prompt is refused, not cut; memory is planned for both lengths together.
    max_minutes (ours): stop cleanly, checkpoint written, when they are over; None: never.
    reward_timeout (ours): seconds that one call of a reward function may take.
    backup_dir (ours): a folder, on Drive for instance, that checkpoints and metrics are copied to; None: no copies.
    metric_for_best_model: the name of a logged metric by which the best checkpoint is known; that one is never dropped.
    greater_is_better: None means True, unless that name ends in "loss".
    load_best_model_at_end: end with the adapter of the best checkpoint, not with that of the last step.

    A setting of TRL that is not listed here, such as beta, may be given with a value that asks for what this trainer
    does anyway, such as 0.0. It is not kept. Raises UserError for any other value of it, and for an unknown name;
    `helpers.grpo.trl_settings` has the table. Where TRL's default is not such a value (router_aux_loss_coef=None takes
    the model's own coefficient, bf16=None means True), this trainer still does what the table says: it has no
    load-balancing loss, and `load_model` decides the dtype.
    """

    output_dir: str = "trainer_output"
    max_steps: int = 100
    learning_rate: float = 1e-6
    lr_scheduler_type: str = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    num_generations: int = 8
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: bool = True
    num_iterations: int = 1
    max_prompt_length: int = PROMPT
    max_completion_length: int = 512
    temperature: float = 1.0
    epsilon: float = 0.2
    epsilon_high: float | None = None
    loss_type: str = "dapo"
    scale_rewards: str = "group"
    mask_truncated_completions: bool = False
    reward_weights: tuple | None = None
    chat_template_kwargs: dict | None = None
    seed: int = 42
    save_steps: int = 1
    save_total_limit: int = 2
    max_minutes: float | None = None
    reward_timeout: float = 600.0
    backup_dir: str | None = None
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    load_best_model_at_end: bool = False

    def __init__(self, output_dir: str = "trainer_output", **settings):
        values = {field.name: field.default for field in fields(self)}
        foreign = {name: value for name, value in settings.items() if name not in values}
        values["output_dir"] = output_dir
        values |= {name: value for name, value in settings.items() if name in values}
        if isinstance(values["scale_rewards"], bool):
            values["scale_rewards"] = "group" if values["scale_rewards"] else "none"
        vars(self).update(values)  # a frozen dataclass allows no assignment to its fields
        self._check()
        check_trl_settings(foreign, self._neutral(), own=values)

    def _neutral(self):
        """`NEUTRAL` with the two settings of TRL whose neutral value depends on others."""
        why = (
            "each generation makes one optimizer step, or num_iterations of them, of "
            "per_device_train_batch_size * gradient_accumulation_steps completions"
        )
        return NEUTRAL | {
            "generation_batch_size": ((self.generation_batch_size, None), why),
            "steps_per_generation": ((self.gradient_accumulation_steps, None), why),
        }

    def _check(self):
        """Raise UserError where the values cannot make a run."""
        choices = {"loss_type": tuple(NORMALIZERS), "scale_rewards": SCALES, "lr_scheduler_type": SCHEDULES}
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise UserError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")
        for name in COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"{name} must be a whole number from 1 on; got {value!r}.")
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise UserError(f"warmup_steps must be a whole number from 0 on; got {self.warmup_steps!r}.")
        if self.num_generations < 2:
            raise UserError("num_generations must be at least 2: an advantage compares a completion with its group.")
        if self.generation_batch_size % self.num_generations:
            batch = self.generation_batch_size
            fitting = [str(n) for n in range(2, batch + 1) if batch % n == 0]
            raise UserError(
                f"num_generations (GROUP_SIZE) must divide the batch of {batch} completions, that is "
                f"per_device_train_batch_size * gradient_accumulation_steps; {self.num_generations} does not: take "
                f"{', '.join(fitting)}, or change the batch."
            )
        if self.reward_timeout <= 0:
            raise UserError(f"reward_timeout must be positive; got {self.reward_timeout}.")
        if self.temperature <= 0:
            raise UserError(f"temperature must be positive, the policy is what is sampled; got {self.temperature}.")

    @classmethod
    def for_profile(cls, profile, output_dir, **settings):
        """The profile's defaults; `settings` that are not None replace them.

        By default a micro-batch is as large as fits the memory, and as many make a step as give the profile's
        generation batch. gradient_accumulation_steps alone changes the number of completions of a step.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        lengths = {name: given[name] for name in ("max_completion_length", "max_prompt_length") if name in given}
        micro = given.get("per_device_train_batch_size") or micro_batch_size(profile, **lengths)
        defaults = {
            "max_steps": profile.max_steps,
            "learning_rate": profile.learning_rate,
            "lr_scheduler_type": "constant",
            "num_generations": profile.num_generations,
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": max(1, profile.generation_batch_size // micro),
            "gradient_checkpointing": profile.device == "cuda",
            "max_completion_length": profile.max_completion_length,
            "save_steps": profile.save_steps,
            "chat_template_kwargs": {"reasoning_effort": profile.reasoning_effort},
        }
        return cls(output_dir, **{**defaults, **given})

    @property
    def max_length(self) -> int:
        """Tokens of the longest prompt and completion together."""
        return rollout_length(self.max_completion_length, self.max_prompt_length)

    @property
    def generation_batch_size(self):
        """Completions of one generation."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    to_dict = asdict
