"""The losses, importance weights and advantages of GRPO in plain Python, one token at a time, from the papers.

It shares no code with `helpers` and knows no tensor, so that a test that compares the two compares two programs. A
derivative is taken by the complex step (Squire and Trapp, 1998): f(x + ih) has the imaginary part h f'(x), up to h^3,
and no difference of two near values is formed. So all functions below take complex numbers, compare real parts, and
`stop_gradient` drops the imaginary one.
"""

import cmath
import math
from dataclasses import dataclass

STEP = 1e-30


@dataclass(frozen=True)
class Case:
    """One optimizer step.

    logprobs, old_logprobs, ref_logprobs: a list of tokens for each completion, and the lists differ in length.
    advantages, is_left_out: one value a completion. importance: factors of the tokens in the same lists; None for 1.
    kl: "none", "k3" or "k3 ratio". The rest are the settings of these names.
    """

    logprobs: list
    old_logprobs: list
    ref_logprobs: list
    advantages: list
    is_left_out: list
    objective: str
    level: str
    weighting: str
    kl: str = "none"
    beta: float = 0.0
    importance: list | None = None
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    sapo_temperature_neg: float = 1.05
    sapo_temperature_pos: float = 1.0
    max_completion_length: int = 8
    local_batch: int = 2

    def tokens(self) -> list:
        """How many tokens of each completion count."""
        return [0 if left_out else len(row) for row, left_out in zip(self.logprobs, self.is_left_out)]


def stop_gradient(value):
    return complex(value).real


def lower(first, second):
    return first if complex(first).real <= complex(second).real else second


def bounded(value, lowest, highest):
    if complex(value).real < lowest:
        return lowest
    if complex(value).real > highest:
        return highest
    return value


def ratios_of(case, i, logprobs):
    """The ratio that each token of a completion is given: its own, or the geometric mean of all."""
    differences = []
    for t in range(len(logprobs[i])):
        differences.append(logprobs[i][t] - case.old_logprobs[i][t])
    if case.level == "sequence":
        mean = sum(differences) / len(differences)
        return [cmath.exp(mean)] * len(differences)
    return [cmath.exp(difference) for difference in differences]


def policy_term(case, ratio, logprob, advantage):
    """What one token costs before importance weight and KL."""
    if case.objective == "cispo":
        cap = case.epsilon_high
        return -stop_gradient(lower(ratio, cap)) * advantage * logprob
    if case.objective == "sapo":
        tau = case.sapo_temperature_pos if advantage > 0 else case.sapo_temperature_neg
        sigmoid = 1 / (1 + cmath.exp(-tau * (ratio - 1)))
        return -4 / tau * sigmoid * advantage
    width_above = case.epsilon if case.epsilon_high is None else case.epsilon_high
    clipped = bounded(ratio, 1 - case.epsilon, 1 + width_above)
    first = ratio if case.delta is None else lower(ratio, case.delta)
    return -lower(first * advantage, clipped * advantage)


def kl_term(case, ratio, logprob, ref_logprob):
    """Schulman's k3, times the ratio where the case says so."""
    difference = ref_logprob - logprob
    k3 = cmath.exp(difference) - difference - 1
    return k3 * ratio if case.kl == "k3 ratio" else k3


def share(case, i):
    """What one token of completion i weighs in the mean."""
    counted = case.tokens()
    completions = len(counted)
    if case.weighting == "grpo":
        return 1 / completions / counted[i]
    if case.weighting == "dapo":
        return 1 / sum(counted)
    if case.weighting == "dr_grpo":
        return 1 / completions / case.max_completion_length
    batches = math.ceil(completions / case.local_batch)
    first = i // case.local_batch * case.local_batch
    return 1 / batches / sum(counted[first : first + case.local_batch])


def loss(case, logprobs):
    """The loss of the step at other log-probabilities of the policy than those of the case."""
    total = 0.0
    for i in range(len(logprobs)):
        if case.is_left_out[i]:
            continue
        ratios = ratios_of(case, i, logprobs)
        for t in range(len(logprobs[i])):
            cost = policy_term(case, ratios[t], logprobs[i][t], case.advantages[i])
            if case.importance is not None:
                cost = cost * case.importance[i][t]
            if case.kl != "none":
                cost = cost + case.beta * kl_term(case, ratios[t], logprobs[i][t], case.ref_logprobs[i][t])
            total = total + share(case, i) * cost
    return total


def value(case):
    """The loss of the step."""
    return complex(loss(case, case.logprobs)).real


def gradient(case):
    """The derivative of the loss by each log-probability of the policy, in lists like theirs."""
    found = []
    for i in range(len(case.logprobs)):
        row = []
        for t in range(len(case.logprobs[i])):
            shifted = [list(logprobs) for logprobs in case.logprobs]
            shifted[i][t] = shifted[i][t] + 1j * STEP
            row.append(complex(loss(case, shifted)).imag / STEP)
        found.append(row)
    return found


def importance_weights(old_logprobs, sampler_logprobs, mode, clip_max, clip_min):
    """Bounded ratios of the old policy to the sampler, in lists like the arguments (TRL 1.16)."""
    found = []
    for old, sampler in zip(old_logprobs, sampler_logprobs):
        ratios = [math.exp(a - b) for a, b in zip(old, sampler)]
        if mode.startswith("sequence"):
            ratios = [math.prod(ratios)] * len(ratios)
        found.append([bound_weight(ratio, mode, clip_max, clip_min) for ratio in ratios])
    return found


def bound_weight(ratio, mode, clip_max, clip_min):
    too_low = clip_min is not None and ratio < clip_min
    too_high = ratio > clip_max
    if mode.endswith("mask"):
        return 0.0 if too_low or too_high else ratio
    if too_low:
        return clip_min
    return clip_max if too_high else ratio


def advantages(rewards, num_generations, scale):
    """(R - mean of the group) / (deviation + 1e-4); a reward of None counts nowhere and gives 0."""
    groups = [rewards[start : start + num_generations] for start in range(0, len(rewards), num_generations)]
    found = []
    for group in groups:
        judged = [reward for reward in group if reward is not None]
        for reward in group:
            if reward is None or len(set(judged)) == 1:
                found.append(0.0)
                continue
            centred = reward - math.fsum(judged) / len(judged)
            if scale == "group":
                centred = centred / (deviation(judged) + 1e-4)
            if scale == "batch":
                centred = centred / (deviation([reward for reward in rewards if reward is not None]) + 1e-4)
            found.append(centred)
    return found


def deviation(values):
    """The standard deviation with n - 1."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1))


def weighted_sum(rewards, weights):
    """The total of one completion's rewards, None where nothing that has a weight judged it."""
    terms = [reward * weight for reward, weight in zip(rewards, weights) if reward is not None and weight != 0]
    return math.fsum(terms) if terms else None
