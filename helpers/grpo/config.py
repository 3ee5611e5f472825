"""Settings of a GRPO run, in TRL's names."""

from dataclasses import asdict, dataclass, fields

from helpers.grpo.checks import (
    check_choice,
    check_count,
    check_flag,
    check_mapping,
    check_number,
    check_numbers,
    check_path,
)
from helpers.grpo.correction import CORRECTION_MODES
from helpers.grpo.losses import LOSS_TYPES, Clipping
from helpers.grpo.trl_settings import NEUTRAL, check_trl_settings
from helpers.model.memory import PROMPT, micro_batch_size, rollout_length
from helpers.runtime import UserError

SCALES = ("group", "batch", "none")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr")
OPTIMIZERS = ("auto", "adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit")
ROUTER_REPLAY = ("off", "measure", "replay")
EVAL_STRATEGIES = ("no", "steps")

CHOICES = {
    "loss_type": tuple(LOSS_TYPES),
    "importance_sampling_level": ("token", "sequence"),
    "importance_sampling_mode": CORRECTION_MODES,
    "scale_rewards": SCALES,
    "lr_scheduler_type": SCHEDULES,
    "optim": OPTIMIZERS,
    "router_replay": ROUTER_REPLAY,
    "eval_strategy": EVAL_STRATEGIES,
}
#: Settings that are whole numbers -> the least.
COUNTS = {
    "max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1,
    "steps_per_generation": 1, "num_iterations": 1, "max_prompt_length": 1, "max_completion_length": 1,
    "save_steps": 1, "save_total_limit": 1, "eval_steps": 1, "num_generations_eval": 1, "warmup_steps": 0, "seed": 0,
    "no_signal_steps": 1,
}  # fmt: skip
#: Settings that are numbers -> the least, and whether it is allowed itself.
NUMBERS = {
    "learning_rate": (0, True), "warmup_ratio": (0, True), "weight_decay": (0, True), "max_grad_norm": (0, True),
    "temperature": (0, False), "beta": (0, True), "epsilon": (0, True), "epsilon_high": (0, True), "delta": (1, False),
    "sapo_temperature_neg": (0, False), "sapo_temperature_pos": (0, False), "importance_sampling_clip_max": (0, False),
    "importance_sampling_clip_min": (0, True), "router_aux_loss_coef": (0, True), "max_minutes": (0, False),
    "reward_timeout": (0, False),
}  # fmt: skip
FLAGS = (
    "gradient_checkpointing", "use_bias_correction_kl", "mask_truncated_completions", "importance_sampling_correction",
    "load_best_model_at_end",
)  # fmt: skip
#: Settings of TRL that have another name here, as vLLM is not used.
RENAMED = {
    "vllm_importance_sampling_correction": "importance_sampling_correction",
    "vllm_importance_sampling_mode": "importance_sampling_mode",
    "vllm_importance_sampling_clip_max": "importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min": "importance_sampling_clip_min",
}
#: Settings that may be None.
OPTIONAL = {
    "max_grad_norm", "steps_per_generation", "epsilon_high", "delta", "importance_sampling_clip_min", "max_minutes",
    "eval_steps", "num_generations_eval", "no_signal_steps", "save_total_limit",
}  # fmt: skip


@dataclass(frozen=True, init=False)
class GRPOConfig:
    """Settings of a GRPO run: `GRPOConfig(output_dir, max_steps=30, ...)`, in TRL's names and with TRL's meanings.

    Defaults are those of TRL 1.16, except for these: max_steps is 100 (TRL: -1, three epochs), save_steps 1 (TRL: 500)
    and save_total_limit 2 (TRL: None, all), as a step is long and a session short; every step is logged (logging_steps,
    TRL: 10); optim is "auto" (TRL: "adamw_torch_fused"); and importance_sampling_mode is "token_truncate" (TRL:
    "sequence_mask", which leaves long completions out).

    Batches. Sizes count completions, lengths count tokens. per_device_train_batch_size * gradient_accumulation_steps
    completions make one optimizer step. per_device_train_batch_size * steps_per_generation completions are generated
    together, a multiple of num_generations; steps_per_generation is a multiple of gradient_accumulation_steps, and by
    default equal to it. num_iterations: times that each generation is gone through. So a generation serves
    num_iterations * steps_per_generation / gradient_accumulation_steps optimizer steps; where that is one, the run is
    on-policy and every ratio is 1. A micro-batch has per_device_train_batch_size completions, on a GPU more where they
    are shorter than the longest that may be.

    Loss. loss_type: a name in `helpers.grpo.losses.LOSS_TYPES`. With "cispo", epsilon_high must be given and is the cap
    of the ratio itself, 5.0 say. importance_sampling_level="sequence" is GSPO. beta: factor of the KL divergence from
    the model without its adapter. scale_rewards: "group" (or True), "batch" or "none" (or False). max_grad_norm: 0 or
    None for no clipping. router_aux_loss_coef: factor of a loss that balances the experts. Its default is 0, where
    TRL's None takes the model's own coefficient, 0.9 for gpt-oss, which drowns the policy gradient.

    importance_sampling_correction and the settings that begin so are TRL's with "vllm_" before them, which may stand
    there: the weights that correct for the difference between sampler and trainer (`helpers.grpo.correction`).

    Schedule. lr_scheduler_type and lr_scheduler_kwargs: as in transformers. "cosine_with_min_lr" takes
    {"min_lr_rate": 0.1}. warmup_steps or warmup_ratio, of max_steps; "constant" has no warm-up, "constant_with_warmup"
    has. optim: "adamw_torch", "adamw_8bit" (bitsandbytes), TRL's other name of either, or "auto": 8 bits on a GPU where
    bitsandbytes is installed.

    gradient_checkpointing: keep only each layer's input for the backward pass and compute the rest anew.
    eval_strategy, eval_steps: with "steps", evaluate on eval_dataset after each eval_steps steps (None: save_steps).
    num_generations_eval: completions of each of its prompts; None: num_generations.
    metric_for_best_model, greater_is_better, load_best_model_at_end: keep the best checkpoint by a logged metric, and
    end with it. greater_is_better: None is True unless the name ends in "loss".

    Settings of ours:
    max_prompt_length: a longer prompt is refused, not cut; memory is planned for both lengths together.
    max_minutes: stop cleanly, checkpoint written, when they are over; None: never.
    reward_timeout: seconds that one call of a reward function may take.
    router_replay: "measure" logs how often the trainer's routers choose other experts than the sampler's did, and
    "replay" makes the trainer use the sampler's experts (R3, 2025).
    backup_dir: a folder, on Drive say, that gets a copy of every checkpoint.
    no_signal_steps: stop after so many generations in a row from which nothing could be learnt; None: never.

    A setting of TRL that is not listed here may be given with a value that asks for what this trainer does anyway, such
    as top_p=1.0. It is not kept. Raises UserError for any other value of it, and for an unknown name;
    `helpers.grpo.trl_settings` has the table. Where TRL's default is not such a value (bf16=None means True), this
    trainer still does what the table says: `load_model` decides the dtype.
    """

    output_dir: str = "trainer_output"
    # length of the run, and the optimizer
    max_steps: int = 100
    learning_rate: float = 1e-6
    lr_scheduler_type: str = "linear"
    lr_scheduler_kwargs: dict | None = None
    warmup_steps: int = 0
    warmup_ratio: float = 0.0
    optim: str = "auto"
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    # batches
    num_generations: int = 8
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    steps_per_generation: int | None = None
    num_iterations: int = 1
    gradient_checkpointing: bool = True
    # generation
    max_prompt_length: int = PROMPT
    max_completion_length: int = 512
    temperature: float = 1.0
    chat_template_kwargs: dict | None = None
    seed: int = 42
    # rewards and loss
    reward_weights: tuple | None = None
    scale_rewards: str = "group"
    loss_type: str = "dapo"
    importance_sampling_level: str = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    sapo_temperature_neg: float = 1.05
    sapo_temperature_pos: float = 1.0
    beta: float = 0.0
    use_bias_correction_kl: bool = True
    mask_truncated_completions: bool = False
    importance_sampling_correction: bool = True
    importance_sampling_mode: str = "token_truncate"
    importance_sampling_clip_max: float = 3.0
    importance_sampling_clip_min: float | None = None
    router_replay: str = "off"
    router_aux_loss_coef: float = 0.0
    # checkpoints and evaluation
    save_steps: int = 1
    save_total_limit: int | None = 2
    backup_dir: str | None = None
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    load_best_model_at_end: bool = False
    eval_strategy: str = "no"
    eval_steps: int | None = None
    num_generations_eval: int | None = None
    # limits
    max_minutes: float | None = None
    reward_timeout: float = 600.0
    no_signal_steps: int | None = 10

    def __init__(self, output_dir: str = "trainer_output", **settings):
        values = {field.name: field.default for field in fields(self)}
        settings = {RENAMED.get(name, name): value for name, value in settings.items()}
        foreign = {name: value for name, value in settings.items() if name not in values}
        values["output_dir"] = output_dir
        values |= {name: value for name, value in settings.items() if name in values}
        if isinstance(values["scale_rewards"], bool):
            values["scale_rewards"] = "group" if values["scale_rewards"] else "none"
        if isinstance(values["reward_weights"], list):
            values["reward_weights"] = tuple(values["reward_weights"])
        vars(self).update(values)  # a frozen dataclass allows no assignment to its fields
        self._check_values()
        if self.steps_per_generation is None and foreign.get("generation_batch_size") is not None:
            vars(self)["steps_per_generation"] = self._steps_that_make(foreign["generation_batch_size"])
        self._check_batches()
        self._check_loss()
        self._check_schedule()
        self._check_evaluation()
        check_trl_settings(foreign, self._neutral(), own=values)

    def _steps_that_make(self, batch: int) -> int | None:
        """The steps_per_generation that a generation_batch_size of TRL asks for."""
        check_count("generation_batch_size", batch, 1)
        steps, rest = divmod(batch, self.per_device_train_batch_size)
        if rest:
            raise UserError(
                f"generation_batch_size={batch} must be a multiple of per_device_train_batch_size="
                f"{self.per_device_train_batch_size}."
            )
        return None if steps == self.gradient_accumulation_steps else steps

    def _neutral(self) -> dict:
        """`NEUTRAL` with the one setting of TRL whose neutral value depends on others."""
        why = "it is per_device_train_batch_size * steps_per_generation"
        return NEUTRAL | {"generation_batch_size": ((self.generation_batch_size, None), why)}

    def _check_values(self) -> None:
        """Raise UserError for a setting that has no sensible value by itself."""
        given = {name: value for name, value in vars(self).items() if value is not None or name not in OPTIONAL}
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        for name, least in COUNTS.items():
            if name in given:
                check_count(name, given[name], least)
        for name, (least, is_allowed) in NUMBERS.items():
            if name in given:
                check_number(name, given[name], least, is_allowed)
        for name in FLAGS:
            check_flag(name, getattr(self, name))
        check_path("output_dir", self.output_dir)
        if self.backup_dir is not None:
            check_path("backup_dir", self.backup_dir)
        for name in ("chat_template_kwargs", "lr_scheduler_kwargs"):
            if getattr(self, name) is not None:
                check_mapping(name, getattr(self, name))
        if self.greater_is_better is not None:
            check_flag("greater_is_better", self.greater_is_better)
        if self.reward_weights is not None:
            check_numbers("reward_weights", self.reward_weights)

    def _check_batches(self) -> None:
        """Raise UserError where the numbers of completions do not fit each other."""
        batch = self.generation_batch_size
        if batch % self.num_generations:
            fitting = [str(n) for n in range(2, batch + 1) if batch % n == 0]
            advice = f"take {', '.join(fitting)}, or change the batch" if fitting else "make the batch larger"
            raise UserError(
                f"num_generations (GROUP_SIZE) must divide the batch of {batch} completions, that is "
                f"per_device_train_batch_size * steps_per_generation; {self.num_generations} does not: {advice}."
            )
        if self.steps_per_generation is not None and self.steps_per_generation % self.gradient_accumulation_steps:
            raise UserError(
                f"steps_per_generation={self.steps_per_generation} must be a multiple of gradient_accumulation_steps="
                f"{self.gradient_accumulation_steps}: a generation serves whole optimizer steps."
            )

    def _check_loss(self) -> None:
        """Raise UserError where limits of the ratio contradict the loss."""
        if self.loss_type == "cispo":
            if self.epsilon_high is None or self.epsilon_high < 1:
                raise UserError(
                    f"loss_type='cispo' caps the ratio at epsilon_high, and it is {self.epsilon_high}: give a cap of "
                    "at least 1, such as epsilon_high=5.0."
                )
        elif self.epsilon >= 1:
            raise UserError(f"epsilon must be below 1, as the ratio is clipped at 1 - epsilon; got {self.epsilon}.")
        if LOSS_TYPES[self.loss_type].objective != "clip" and self.delta is not None:
            raise UserError(f"delta limits the clip, and loss_type='{self.loss_type}' has none: leave delta out.")
        if self.loss_type == "sapo" and self.epsilon_high is not None:
            raise UserError("loss_type='sapo' has no clip: leave epsilon_high out.")
        if self.delta is not None and self.delta <= self.clipping.highest:
            raise UserError(
                f"delta={self.delta} must be above 1 + epsilon_high, here {self.clipping.highest:g}: it is the second, "
                "wider limit of the ratio."
            )
        lowest = self.importance_sampling_clip_min
        if lowest is not None and lowest >= self.importance_sampling_clip_max:
            raise UserError(
                f"importance_sampling_clip_min={lowest} must be below importance_sampling_clip_max="
                f"{self.importance_sampling_clip_max}."
            )

    def _check_schedule(self) -> None:
        """Raise UserError for a warm-up that the schedule does not have or that is longer than the run."""
        if self.warmup_steps and self.warmup_ratio:
            raise UserError("Give warmup_steps or warmup_ratio, not both.")
        if self.warmup_ratio >= 1:
            raise UserError(f"warmup_ratio is a share of max_steps below 1; got {self.warmup_ratio}.")
        if self.warmup_count > self.max_steps:
            raise UserError(f"warmup_steps={self.warmup_steps} is more than max_steps={self.max_steps}.")
        if self.warmup_count and self.lr_scheduler_type == "constant":
            raise UserError(
                "lr_scheduler_type='constant' has no warm-up: choose 'constant_with_warmup', or leave warmup_steps and "
                "warmup_ratio out."
            )
        if self.lr_scheduler_kwargs and self.lr_scheduler_type.startswith("constant"):
            raise UserError(
                f"lr_scheduler_type='{self.lr_scheduler_type}' has no options: leave lr_scheduler_kwargs out."
            )
        if self.lr_scheduler_type == "cosine_with_min_lr" and not self.lr_scheduler_kwargs:
            raise UserError(
                "lr_scheduler_type='cosine_with_min_lr' needs its floor: lr_scheduler_kwargs={'min_lr_rate': 0.1}."
            )

    def _check_evaluation(self) -> None:
        """Raise UserError where the best checkpoint could not be found."""
        metric = self.metric_for_best_model
        if self.load_best_model_at_end and metric is None:
            raise UserError("load_best_model_at_end needs metric_for_best_model: name a metric, such as 'eval_reward'.")
        if metric is not None and not isinstance(metric, str):
            raise UserError(f"metric_for_best_model must be the name of a metric; got {metric!r}.")
        if self.eval_strategy == "no":
            if self.eval_steps is not None:
                raise UserError("eval_steps has no effect without eval_strategy='steps': give both, or neither.")
            if metric is not None and metric.startswith("eval_"):
                raise UserError(f"metric_for_best_model='{metric}' needs evaluations: set eval_strategy='steps'.")
        elif metric is not None and (self.eval_steps or self.save_steps) % self.save_steps:
            raise UserError(
                f"eval_steps={self.eval_steps} must be a multiple of save_steps={self.save_steps}: the best checkpoint "
                "is one that was evaluated."
            )

    @classmethod
    def for_profile(cls, profile, output_dir: str, **settings) -> "GRPOConfig":
        """The profile's defaults; `settings` that are not None replace them.

        By default a micro-batch is as large as fits the memory, and as many make a step as give the profile's
        generation batch. gradient_accumulation_steps alone changes the number of completions of a step.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        planned = ("max_completion_length", "max_prompt_length", "optim")
        decisive = {name: given[name] for name in planned if name in given}
        micro = given.get("per_device_train_batch_size") or micro_batch_size(profile, **decisive)
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
    def step_batch_size(self) -> int:
        """Completions of one optimizer step."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def generation_batch_size(self) -> int:
        """Completions of one generation."""
        steps = self.steps_per_generation or self.gradient_accumulation_steps
        return self.per_device_train_batch_size * steps

    @property
    def parts_per_generation(self) -> int:
        """Optimizer steps that go through a generation once."""
        return self.generation_batch_size // self.step_batch_size

    @property
    def steps_on_a_generation(self) -> int:
        """Optimizer steps that each generation serves."""
        return self.parts_per_generation * self.num_iterations

    @property
    def clipping(self) -> Clipping:
        """The limits of the ratio."""
        return Clipping(
            self.epsilon, self.epsilon_high, self.delta, self.sapo_temperature_neg, self.sapo_temperature_pos
        )

    @property
    def warmup_count(self) -> int:
        """Optimizer steps of the warm-up."""
        return self.warmup_steps or round(self.warmup_ratio * self.max_steps)

    def plan(self, prompts: int) -> str:
        """Return two sentences on what the run will do with a data set of so many prompts."""
        generations = -(-self.max_steps // self.steps_on_a_generation)
        groups = self.generation_batch_size // self.num_generations
        epochs = generations * groups / max(1, prompts)
        warmup = f", after a warm-up of {self.warmup_count} steps" if self.warmup_count else ""
        return (
            f"{self.max_steps} optimizer steps of {self.step_batch_size} completions, on {generations} generations of "
            f"{self.generation_batch_size} ({groups} prompts x {self.num_generations}): {epochs:.2f} epochs of "
            f"{prompts} prompts. Learning rate {self.learning_rate:g}, {self.lr_scheduler_type}{warmup}."
        )

    to_dict = asdict
