"""Tells why nothing could be learnt from a step, from its row of metrics."""

from helpers.runtime import finite_or_none

#: Why nothing could be learnt, and what to do.
NO_SIGNAL = {
    "masked": (
        "all completions were cut off at max_completion_length and mask_truncated_completions leaves those out: raise "
        "max_completion_length, or lower the reasoning effort"
    ),
    "advantages masked": (
        "all completions that differ from their group were cut off at max_completion_length and "
        "mask_truncated_completions leaves those out: raise max_completion_length, or lower the reasoning effort"
    ),
    "no rewards": (
        "every reward function returned None for every completion: look at what the functions read, the columns of "
        "train_dataset above all"
    ),
    "no weights": (
        "no reward with a weight other than 0 gave a number: look at reward_weights, and at what the weighted "
        "functions read"
    ),
    "cut off": (
        "all completions were cut off at max_completion_length and earned the same as the others of their group: raise "
        "max_completion_length, or lower the reasoning effort"
    ),
    "collapsed": (
        "all completions were cut off and earned the same, while in the first steps most came to an end: the policy "
        "has collapsed, so start in a new run folder with a lower learning_rate"
    ),
    "constant reward": (
        "every completion of every prompt earned the same reward, whatever it said: look at the reward functions, and "
        "at the columns that they read"
    ),
    "equal rewards": (
        "the completions of each prompt all earned the same reward: use prompts that the model solves sometimes, a "
        "reward that tells more answers apart, a higher temperature or more num_generations"
    ),
    "discarded": (
        "the correction for the difference between sampler and trainer discarded all completions: look at "
        "sampling/sampling_logp_difference, and loosen the bounds of the correction"
    ),
    "no gradient": (
        "the gradient was exactly 0, though rewards differed: look at clip_ratio, and lower num_iterations or "
        "learning_rate"
    ),
}


def no_signal_reason(row: dict) -> str | None:
    """Return the key in NO_SIGNAL of why nothing could be learnt from a step; None where something could."""
    if number_in(row, "completions/masked_ratio") == 1:
        return "masked"
    if advantages_are_zero(row):
        return _zero_advantages_reason(row)
    if number_in(row, "grad_norm") != 0:
        return None
    return "discarded" if number_in(row, "sampling/kept_ratio") == 0 else "no gradient"


def advantages_are_zero(row: dict) -> bool:
    """Tell whether no completion in the loss has an advantage other than 0."""
    nonzero_ratio = number_in(row, "advantages/nonzero_ratio")
    if nonzero_ratio is not None:
        return nonzero_ratio == 0
    return number_in(row, "frac_reward_zero_std") == 1


def _zero_advantages_reason(row: dict) -> str:
    if "reward" in row and number_in(row, "reward") is None:
        means = [name for name in row if name.startswith("rewards/") and name.endswith("/mean")]
        some_are_known = any(number_in(row, name) is not None for name in means)
        return "no weights" if some_are_known else "no rewards"
    equal_groups = number_in(row, "frac_reward_zero_std")
    if equal_groups is not None and equal_groups < 1:
        return "advantages masked"
    is_constant = number_in(row, "reward_std") == 0
    if is_constant and number_in(row, "reward") > 0:
        return "constant reward"  # an answer that was cut off is seldom paid for
    if number_in(row, "completions/clipped_ratio") == 1:
        return "cut off"
    return "constant reward" if is_constant else "equal rewards"


def number_in(row: dict, name: str) -> float | None:
    """Return a row's value where it is a finite number, else None."""
    return finite_or_none(row.get(name))
