"""Settings of a GRPO run, in TRL's names."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from os import PathLike
from typing import Any

from helpers.grpo.correction import CORRECTION_MODES
from helpers.grpo.losses import LOSS_TYPES, Clipping
from helpers.grpo.trl_settings import (
    check_foreign_settings,
    refuse_name,
    rename_settings,
    take_generation_batch_size,
)
from helpers.model.memory import PROMPT, MemoryPlan, memory_plan, micro_batch_size, rollout_length
from helpers.profiles import Profile
from helpers.runtime import UserError, check_whole
from helpers.settings import check_settings, documented_settings, setting

SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr")
#: Settings of which None is a value of its own, and not the profile's.
MEANINGFUL_NONE = ("save_total_limit", "no_signal_steps", "max_grad_norm", "router_aux_loss_coef")
#: Optimizer steps of a run for which neither max_steps nor num_train_epochs is given.
DEFAULT_STEPS = 100
OPTIMIZERS = ("auto", "adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit")
SAVE_STRATEGIES = ("steps", "epoch", "no")
#: What is said of a loss of TRL that is not among `LOSS_TYPES`.
NOT_OFFERED = ", which TRL has and this version does not offer"


@documented_settings
@dataclass(frozen=True)
class GRPOConfig:
    """Settings of a GRPO run: `GRPOConfig(output_dir, max_steps=30, ...)`, in TRL's names and with TRL's meanings.

    It takes the settings of a TRL script as they are. Other names are translated, such as max_new_tokens and group_size
    (`helpers.grpo.trl_settings.ALIASES`). A setting that this trainer does not have is accepted where its value changes
    nothing here, such as top_p=1.0; one that has no effect is named in a warning. One that would change the training,
    such as top_p=0.9, is refused with the reason.

    Defaults are those of TRL 1.16, except for these: a run has 100 steps where neither max_steps nor num_train_epochs
    is given (TRL: max_steps -1, and num_train_epochs 3); save_steps is 1 (TRL: 500) and save_total_limit 2 (TRL: None,
    all), as a step is long and a session short; logging_steps is 1 (TRL: 10); optim is "auto" (TRL:
    "adamw_torch_fused"); importance_sampling_mode is "token_truncate" (TRL: "sequence_mask", which leaves long
    completions out); and router_aux_loss_coef is 0 (TRL: None, the model's own coefficient, 0.9 for gpt-oss, which
    drowns the policy gradient). `load_model` decides the dtype, where TRL's bf16=None means True.

    A config cannot be changed after it is made: `dataclasses.replace(config, learning_rate=1e-5)` makes another.

    Batches. Sizes count completions, lengths count tokens. per_device_train_batch_size * gradient_accumulation_steps
    completions make one optimizer step. per_device_train_batch_size * steps_per_generation completions are generated
    together, a multiple of num_generations. So a generation serves num_iterations * steps_per_generation /
    gradient_accumulation_steps optimizer steps; where that is one, the run is on-policy and every ratio is 1.

    Raises UserError for a value that has no meaning and for an unknown name.
    """

    output_dir: PathLike | str = setting(
        "trainer_output",
        "The folder of the run: checkpoints, metrics, completions.",
        is_positional=True,
        may_differ=True,
    )

    # length of the run, and the optimizer
    max_steps: int | None = setting(
        None,
        f"Optimizer steps of the run; None: as many as num_train_epochs makes, else {DEFAULT_STEPS}.",
        least=1,
        may_differ=lambda args: args.lr_scheduler_type == "constant",  # another schedule depends on it
    )
    num_train_epochs: float | None = setting(
        None,
        "Passes over the prompts, which `for_prompts` turns into max_steps; where that is given, it decides.",
        above=0,
        may_differ=True,  # the number of steps that it led to is what counts
    )
    learning_rate: float = setting(
        1e-6, "How far AdamW moves a weight in a step, at the height of the schedule.", least=0
    )
    lr_scheduler_type: str = setting("linear", "The schedule, as in transformers.", choices=SCHEDULES)
    lr_scheduler_kwargs: dict | None = setting(
        None, 'Of the schedule, as in transformers: "cosine_with_min_lr" takes {"min_lr_rate": 0.1}.'
    )
    warmup_steps: float = setting(
        0,
        "Steps in which the learning rate rises; below 1, their share of max_steps, rounded up. "
        '"constant" has none, "constant_with_warmup" has.',
        least=0,
    )
    warmup_ratio: float = setting(
        0.0, "A share of max_steps, rounded up: the older name of warmup_steps below 1.", least=0
    )
    optim: str = setting(
        "auto",
        'AdamW of PyTorch, or of bitsandbytes with moments in 8 bits; "auto": 8 bits on a GPU where bitsandbytes is '
        "installed.",
        choices=OPTIMIZERS,
        may_differ=True,  # the optimizer that it led to must be the same
    )
    weight_decay: float = setting(0.0, "AdamW's pull of every weight towards 0.", least=0)
    max_grad_norm: float | None = setting(1.0, "The gradient is clipped to this norm; 0 or None: never.", least=0)

    # batches
    num_generations: int = setting(8, "Completions of each prompt, which are compared with each other.", least=2)
    per_device_train_batch_size: int = setting(
        8,
        "Completions of a micro-batch; on a GPU more where they are shorter than the longest that may be.",
        least=1,
        # a step is cut into micro-batches as the memory allows, which changes no more than rounding
        may_differ=lambda args: args.loss_type != "bnpo",
    )
    gradient_accumulation_steps: int = setting(1, "Micro-batches of an optimizer step.", least=1, may_differ=True)
    steps_per_generation: int | None = setting(
        None,
        "Micro-batches of a generation, a multiple of gradient_accumulation_steps; None: equal to it.",
        least=1,
        may_differ=True,
    )
    num_iterations: int = setting(1, "Times that each generation is gone through.", least=1)
    gradient_checkpointing: bool = setting(
        True, "Keep only each layer's input for the backward pass and compute the rest anew.", may_differ=True
    )
    use_cpu: bool = setting(
        False, "Refuse a model that is not on the CPU; the profile decides where it is loaded.", may_differ=True
    )

    # generation
    max_prompt_length: int = setting(
        PROMPT,
        "A longer prompt is refused, not cut; memory is planned for both lengths together.",
        least=1,
        may_differ=True,
    )
    max_completion_length: int = setting(512, "Tokens at which a completion is cut off.", least=1)
    temperature: float = setting(1.0, "That completions are drawn at, and log-probabilities are taken at.", above=0)
    chat_template_kwargs: dict | None = setting(None, 'Of the chat template, such as {"reasoning_effort": "low"}.')
    seed: int = setting(42, "Of the order of the prompts and of every draw.", least=0)

    # rewards and loss
    reward_weights: tuple | None = setting(None, "One number a reward function; None: all 1, or the task's own.")
    scale_rewards: str | bool = setting(
        "group",
        "What advantages are divided by: the standard deviation of the group (or True) or of the batch, or nothing "
        "(or False).",
        choices=("group", "batch", "none"),
    )
    loss_type: str = setting(
        "dapo",
        "Objective and weighting, see `helpers.grpo.losses`.",
        choices=tuple(LOSS_TYPES),
        refused={"luspo": NOT_OFFERED, "vespo": NOT_OFFERED},
    )
    importance_sampling_level: str = setting(
        "token", 'Whether each token has a ratio, or each completion one ("sequence": GSPO).',
        choices=("token", "sequence"),
    )  # fmt: skip
    epsilon: float = setting(0.2, "The ratio is clipped below 1 - epsilon.", least=0)
    epsilon_high: float | None = setting(
        None,
        'The ratio is clipped above 1 + epsilon_high; None: epsilon. With "cispo" it must be given and is the cap of '
        "the ratio itself, 5.0 say.",
        least=0,
    )
    delta: float | None = setting(None, "A second, wider limit of the ratio.", above=1)
    sapo_temperature_neg: float = setting(1.05, 'Of "sapo", for advantages below 0.', above=0)
    sapo_temperature_pos: float = setting(1.0, 'Of "sapo", for advantages above 0.', above=0)
    beta: float = setting(0.0, "Factor of the KL divergence from the model without its adapter.", least=0)
    use_bias_correction_kl: bool = setting(True, "Multiply the estimate of the KL divergence by the ratio.")
    mask_truncated_completions: bool = setting(False, "Leave completions that were cut off out of the loss.")
    importance_sampling_correction: bool = setting(
        True,
        "Weigh tokens for the difference between sampler and trainer, see `helpers.grpo.correction`. TRL has this "
        'setting and the next three with "vllm_" before them.',
    )
    importance_sampling_mode: str = setting(
        "token_truncate", "Whether a weight out of bounds is cut or its token left out.", choices=CORRECTION_MODES
    )
    importance_sampling_clip_max: float = setting(3.0, "The largest weight.", above=0)
    importance_sampling_clip_min: float | None = setting(None, "The smallest weight; None: 0.", least=0)
    router_replay: str = setting(
        "off",
        '"measure" logs how often the trainer\'s routers choose other experts than the sampler\'s did; "replay" makes '
        "the trainer use the sampler's experts (R3, 2025).",
        choices=("off", "measure", "replay"),
    )
    router_aux_loss_coef: float | None = setting(
        0.0,
        "Factor of a loss that balances the experts; None: the model's own, 0.9 for gpt-oss, which drowns the policy "
        "gradient.",
        least=0,
    )

    # logs, checkpoints and evaluation
    logging_steps: int = setting(
        1,
        "Steps from one `on_log` of the callbacks to the next, with means over them; metrics.jsonl has every step.",
        least=1,
        may_differ=True,
    )
    save_strategy: str = setting(
        "steps",
        'When checkpoints are written: every save_steps steps, after each pass over the prompts ("epoch"), or only at '
        'the start and the end ("no").',
        choices=SAVE_STRATEGIES,
        refused={"best": ": metric_for_best_model keeps the best checkpoint"},
        may_differ=True,
    )
    save_steps: int = setting(1, "Steps from one checkpoint to the next.", least=1, may_differ=True)
    save_total_limit: int | None = setting(
        2, "Checkpoints that are kept, besides the best one; None: all.", least=1, may_differ=True
    )
    backup_dir: PathLike | str | None = setting(
        None, "A folder, on Drive say, that gets a copy of every checkpoint.", may_differ=True
    )
    metric_for_best_model: str | None = setting(
        None, "A logged metric by which the best checkpoint is kept.", may_differ=True
    )
    greater_is_better: bool | None = setting(
        None, 'Of that metric; None: True unless its name ends in "loss".', may_differ=True
    )
    load_best_model_at_end: bool = setting(False, "End with the best checkpoint's adapter.", may_differ=True)
    eval_strategy: str = setting(
        "no", '"steps": evaluate on eval_dataset during the run.', choices=("no", "steps"), may_differ=True
    )
    eval_steps: int | None = setting(
        None, "Steps from one evaluation to the next; None: save_steps.", least=1, may_differ=True
    )
    num_generations_eval: int | None = setting(
        None, "Completions of each prompt of an evaluation; None: num_generations.", least=1, may_differ=True
    )

    # limits
    max_minutes: float | None = setting(
        None, "Stop, with a checkpoint written, when they are over; None: never.", above=0, may_differ=True
    )
    reward_timeout: float = setting(
        600.0, "Seconds that one call of a reward function may take.", above=0, may_differ=True
    )
    no_signal_steps: int | None = setting(
        10,
        "Stop after so many generations in a row from which nothing could be learnt; None: never.",
        least=1,
        may_differ=True,
    )

    def __post_init__(self):
        if isinstance(self.reward_weights, list):
            object.__setattr__(self, "reward_weights", tuple(self.reward_weights))
        if self.max_steps is None and self.num_train_epochs is None:
            object.__setattr__(self, "max_steps", DEFAULT_STEPS)
        check_settings(type(self), vars(self))
        metric = self.metric_for_best_model
        if metric is not None and self.greater_is_better is None:
            object.__setattr__(self, "greater_is_better", not metric.endswith("loss"))
        self._check_batches()
        self._check_loss()
        self._check_schedule()
        self._check_evaluation()

    @classmethod
    def own_settings(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `translate_settings` makes of some settings, and warn once of all that have no effect.

        The constructor takes its keywords by this.
        """
        own, notes = translate_settings(settings)
        if notes:
            warnings.warn(" ".join(notes), UserWarning, stacklevel=3)  # where the constructor is called
        return own

    @classmethod
    def refuse_unknown(cls, name: str) -> None:
        """Raise UserError for a name that is no setting."""
        refuse_name(name, own=[its_field.name for its_field in fields(cls)])

    @classmethod
    def for_profile(cls, profile: Profile, output_dir: PathLike | str, **settings) -> "GRPOConfig":
        """The profile's defaults; `settings` replace them, None only where it has a meaning of its own.

        By default a micro-batch is as large as fits the memory, and as many make a step as give the profile's
        generation batch, or generation_batch_size. gradient_accumulation_steps alone changes the number of completions
        of a step. The profile's max_steps counts where neither max_steps nor num_train_epochs is given.
        """
        batch = settings.pop("generation_batch_size", None)
        if batch is not None:
            check_whole("generation_batch_size", batch, 1)
            profile = replace(profile, generation_batch_size=batch)
        settings = {name: value for name, value in settings.items() if value is not None or name in MEANINGFUL_NONE}
        given = cls.own_settings(settings)
        micro = given.get("per_device_train_batch_size")
        if micro is None:
            length = rollout_length(
                given.get("max_completion_length", profile.max_completion_length),
                given.get("max_prompt_length", PROMPT),
            )
            micro = micro_batch_size(profile, length, given.get("optim", "auto"))
        defaults = {
            "max_steps": None if "num_train_epochs" in given else profile.max_steps,
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
        return cls(output_dir, generation_batch_size=batch, **{**defaults, **given})

    def for_prompts(self, count: int) -> "GRPOConfig":
        """Return these settings for a data set of so many prompts: max_steps is a number.

        Where it is not given, num_train_epochs passes over the prompts make it. The last generation is drawn whole: its
        prompts beyond the last pass are the first ones of another.
        """
        if self.max_steps is not None:
            return self
        epochs = Fraction(str(self.num_train_epochs))  # as it is written: 0.07 of 100 prompts are 7
        generations = max(1, math.ceil(epochs * count / self.groups_per_generation))
        return replace(self, max_steps=generations * self.steps_on_a_generation)

    def is_save_due(self, step: int, prompts: int) -> bool:
        """Tell whether save_strategy asks for a checkpoint after an optimizer step.

        step: counted from 1. prompts: of the data set. With "epoch" it is due after the last step on the generation
        that completes a pass over the prompts.
        """
        if self.save_strategy == "no":
            return False
        if self.save_strategy == "steps":
            return step % self.save_steps == 0
        return self.completes_a_pass(step, prompts)

    def completes_a_pass(self, step: int, prompts: int) -> bool:
        """Tell whether an optimizer step is the last on the generation that completes a pass over the prompts.

        step: counted from 1. prompts: of the data set.
        """
        generations, steps_on_the_next = divmod(step, self.steps_on_a_generation)
        used = generations * self.groups_per_generation
        used_before = used - self.groups_per_generation
        return steps_on_the_next == 0 and used // prompts > used_before // prompts

    def settings_of_the_run(self) -> dict:
        """Return the settings that a resumed run must share with the one that wrote the checkpoint."""
        settings = {}
        for its_field in fields(self):
            may_differ = its_field.metadata["setting"].may_differ
            if callable(may_differ):
                may_differ = may_differ(self)
            if not may_differ:
                settings[its_field.name] = getattr(self, its_field.name)
        # however a step is cut, it must have as many completions
        settings["step_batch_size"] = self.step_batch_size
        settings["generation_batch_size"] = self.generation_batch_size
        return settings

    def memory_plan(self, profile: str | Profile) -> MemoryPlan:
        """Predict the memory of the run under `profile`, for `load_model`."""
        return memory_plan(profile, self.generation_batch_size, self.max_length, optim=self.optim)

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
    def groups_per_generation(self) -> int:
        """Prompts of one generation, each of which has num_generations completions."""
        return self.generation_batch_size // self.num_generations

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
    def monitored_metric(self) -> str | None:
        """The logged metric that metric_for_best_model means: an evaluation's if there are any, as in transformers."""
        metric = self.metric_for_best_model
        if metric is None or self.eval_strategy == "no" or metric.startswith("eval_"):
            return metric
        return f"eval_{metric}"

    @property
    def warmup_count(self) -> int:
        """Optimizer steps of the warm-up, as transformers counts them; see `for_prompts` where max_steps is None."""
        if self.warmup_steps >= 1:
            return int(self.warmup_steps)
        share = self.warmup_steps or self.warmup_ratio
        return math.ceil(self.max_steps * share)

    @property
    def logging_strategy(self) -> str:
        """Tell transformers' callbacks that `on_log` comes every logging_steps steps."""
        return "steps"

    @property
    def logging_first_step(self) -> bool:
        """Tell transformers' callbacks that the first step is no exception to logging_steps."""
        return False

    @property
    def eval_delay(self) -> int:
        """Tell transformers' callbacks that no step is too early for an evaluation."""
        return 0

    def describe_run(self, prompts: int) -> str:
        """Return two sentences on what the run will do with a data set of so many prompts."""
        if self.max_steps is None:
            return self.for_prompts(prompts).describe_run(prompts)
        generations = -(-self.max_steps // self.steps_on_a_generation)
        groups = self.groups_per_generation
        epochs = generations * groups / max(1, prompts)
        warmup = f", after a warm-up of {self.warmup_count} steps" if self.warmup_count else ""
        return (
            f"{self.max_steps} optimizer steps of {self.step_batch_size} completions, on {generations} generations of "
            f"{self.generation_batch_size} ({groups} prompts x {self.num_generations}): {epochs:.2f} epochs of "
            f"{prompts} prompts. Learning rate {self.learning_rate:g}, {self.lr_scheduler_type}{warmup}."
        )

    to_dict = asdict

    def _check_batches(self) -> None:
        """Raise UserError where the numbers of completions do not fit each other."""
        batch = self.generation_batch_size
        if batch % self.num_generations:
            fitting = [str(n) for n in range(2, batch + 1) if batch % n == 0]
            advice = f"take {', '.join(fitting)}, or change the batch" if fitting else "make the batch larger"
            raise UserError(
                f"num_generations must divide the batch of {batch} completions, that is "
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
        if self.max_steps is not None and self.warmup_count > self.max_steps:
            raise UserError(f"warmup_steps={self.warmup_steps} is more than max_steps={self.max_steps}.")
        if (self.warmup_steps or self.warmup_ratio) and self.lr_scheduler_type == "constant":
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
        if metric is not None and self.save_strategy != "steps":
            raise UserError(
                f"metric_for_best_model='{metric}' needs save_strategy='steps', as the best checkpoint is one of those "
                "that save_steps makes."
            )
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


def translate_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return settings by the names of the fields of `GRPOConfig`, and a sentence about each that has no effect.

    settings: by our names, TRL's, or other ones that `helpers.grpo.trl_settings` lists. Only those that were given are
    returned. Raises UserError for an unknown name, for a value that a field does not allow, for a setting that is given
    twice with different values, and, with the reason, for one that would change the training.
    """
    names = [its_field.name for its_field in fields(GRPOConfig)]
    renamed = rename_settings(settings)
    own = {name: value for name, value in renamed.items() if name in names}
    foreign = {name: value for name, value in renamed.items() if name not in names}
    generation_batch_size = foreign.pop("generation_batch_size", None)
    notes = check_foreign_settings(foreign, own=names)
    check_settings(GRPOConfig, own)
    if generation_batch_size is not None:
        own = take_generation_batch_size(generation_batch_size, own, defaults=GRPOConfig)
    return own, notes
