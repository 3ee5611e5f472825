"""Named settings of published methods: `GRPOConfig.for_profile(profile, folder, **recipe("dapo"))`."""

from helpers.runtime import UserError, did_you_mean

#: Name -> settings of `GRPOConfig`. What a method leaves open is left to the profile.
RECIPES = {
    # DeepSeekMath (2024), section 4.1: the mean of each completion, a KL term, advantages over the group's deviation.
    "grpo": {
        "loss_type": "grpo",
        "scale_rewards": "group",
        "epsilon": 0.2,
        "beta": 0.04,
    },
    # Dr. GRPO (2025), section 3.2: neither length nor deviation is divided by.
    "dr_grpo": {
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "epsilon": 0.2,
        "beta": 0.0,
    },
    # DAPO (2025), section 3: a wider upper clip, the mean over tokens, cut-off completions left out. Its dynamic
    # sampling is not part of this trainer: groups without a difference teach nothing and are counted.
    "dapo": {
        "loss_type": "dapo",
        "scale_rewards": "group",
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "mask_truncated_completions": True,
        "beta": 0.0,
    },
    # GSPO (2025), section 5.1: one ratio a completion. On policy it is the same as "grpo" without its KL term, so this
    # recipe goes through each generation twice.
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "num_iterations": 2,
        "beta": 0.0,
    },
    # MiniMax-M1 (2025), section 3.1, with the cap of ScaleRL (2025): clipped tokens keep their gradient. On policy
    # nothing is clipped, so this recipe goes through each generation twice.
    "cispo": {
        "loss_type": "cispo",
        "epsilon_high": 5.0,
        "num_iterations": 2,
        "beta": 0.0,
    },
    # The settings of OpenAI's guide to reinforcement fine-tuning of gpt-oss (2025), with three corrections: it has
    # groups of 2, where a division by the deviation leaves nothing of the rewards but their order; a step of two
    # completions; and a loss that ends in long cut-off completions. The lengths are the profile's.
    "guide": {
        "learning_rate": 5e-5,
        "weight_decay": 0.01,
        "warmup_ratio": 0.1,
        "lr_scheduler_type": "linear",
        "temperature": 1.0,
        "num_generations": 8,
        "scale_rewards": "none",
        "mask_truncated_completions": True,
    },
    # The pipeline of fruitfoxlu/rft for gpt-oss-20b on competition mathematics (2026), as its last script of that model
    # has it: a rollout of 16 prompts serves 8 updates of 16 completions, in one pass over 3,200 prompts. Its KL term is
    # small and not 0. Its learning rate is one for all weights, small for LoRA, and its log finds no gain (73.4 % after
    # 73.8 %): expect none before the rate is raised.
    "math_pipeline": {
        "learning_rate": 5e-7,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_ratio": 0.05,
        "num_train_epochs": 1,
        "num_generations": 8,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "steps_per_generation": 64,
        "max_prompt_length": 1024,
        "max_completion_length": 4096,
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "epsilon": 0.1,
        "beta": 0.001,
    },
    # OpenSloth's guide to GRPO (2025), with two corrections. Its sampler cuts the distribution (top_p 0.9, min_p 0.1):
    # what it draws does not come from the policy that is trained. Its batch size of 1 is one prompt a step here, with
    # the whole group. Its KL coefficient of 0.05 is never handed to its trainer, so there is none here.
    "opensloth": {
        "learning_rate": 5e-6,
        "temperature": 1.0,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 256,
    },
}


def recipe(name: str, **changes) -> dict:
    """Return the settings of a named method, with changes. Raises UserError for an unknown name."""
    if name not in RECIPES:
        known = ", ".join(RECIPES)
        raise UserError(f"There is no recipe '{name}'{did_you_mean(name, RECIPES)}: choose {known}.")
    return {**RECIPES[name], **changes}
