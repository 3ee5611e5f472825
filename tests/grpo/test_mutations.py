"""Faults of one line, each of which some check must notice.

`FAULTS` is the table: the file under helpers/grpo/, what is wrong, the right text, which must occur once, and the wrong
text. To add a fault, add a row. `CHECKS` names what runs on a file with a fault; to add a file, add its checks.

A fault is put into the module that is imported already: the code of its functions is exchanged, so that whoever holds
one of them runs the faulty code, and its constants are set. No process is started, so the table takes seconds.
"""

import itertools
import types
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.grpo import test_advantages, test_batch, test_correction, test_losses


class Fault(NamedTuple):
    """A row of the table."""

    file: str
    what: str
    right: str
    wrong: str


# fmt: off
FAULTS = [Fault(*row) for row in [
    # objectives
    ("losses", "the larger of the two terms", "-torch.min(bounded", "-torch.max(bounded"),
    ("losses", "sign of the loss", "loss = -torch.min(", "loss = torch.min("),
    ("losses", "epsilon_high ignored", "self.epsilon if self.epsilon_high is None else self.epsilon_high",
     "self.epsilon"),
    ("losses", "lower clip at epsilon_high", "return 1 - self.epsilon", "return 2 - self.highest"),
    ("losses", "delta ignored", "ratio if clipping.delta is None else ratio.clamp(max=clipping.delta)", "ratio"),
    ("losses", "the lower clip counted on the wrong side", "(ratio < clipping.lowest) & (advantages < 0)",
     "(ratio < clipping.lowest) & (advantages > 0)"),
    ("losses", "the upper clip counted whatever the advantage",
     "is_high = (ratio > clipping.highest) & (advantages > 0)", "is_high = (ratio > clipping.highest)"),
    ("losses", "cispo: gradient through the weight", "ratio.clamp(max=cap).detach()", "ratio.clamp(max=cap)"),
    ("losses", "cispo: cap as a distance from 1", "cap = clipping.epsilon_high", "cap = clipping.highest"),
    ("losses", "cispo: no cap", "weight = ratio.clamp(max=cap).detach()", "weight = ratio.detach()"),
    ("losses", "cispo: the ratio in place of the logarithm", "-weight * advantages * logprobs",
     "-weight * advantages * ratio"),
    ("losses", "sapo: temperatures swapped", "torch.where(advantages > 0, positive, negative)",
     "torch.where(advantages > 0, negative, positive)"),
    ("losses", "sapo: no factor of 4", "gate = 4 / tau *", "gate = 1 / tau *"),
    ("losses", "sapo: gate at 0", "torch.sigmoid(tau * (ratio - 1))", "torch.sigmoid(tau * ratio)"),
    # how much a token counts
    ("losses", "grpo: over the completions only", "1 / (tokens_B.clamp(min=1) * len(tokens_B))",
     "1 / (tokens_B.clamp(min=1) ** 0 * len(tokens_B))"),
    ("losses", "grpo: over the completions that count", "(tokens_B.clamp(min=1) * len(tokens_B))",
     "(tokens_B.clamp(min=1) * len(tokens_B.nonzero()))"),
    ("losses", "bnpo: over the whole step", "batches = tokens_B.split(local_batch)",
     "batches = tokens_B.split(len(tokens_B))"),
    ("losses", "bnpo: a sum over local batches", "torch.cat(weights) / len(batches)", "torch.cat(weights)"),
    ("losses", "dapo: over completions", "1 / max(1.0, float(tokens_B.sum()))", "1 / len(tokens_B)"),
    ("losses", "dr_grpo: over tokens", "1 / (len(tokens_B) * max_completion_length)", "1 / float(tokens_B.sum())"),
    ("losses", "dr_grpo: over the length only", "1 / (len(tokens_B) * max_completion_length)",
     "1 / max_completion_length"),
    ("losses", "the scale is no power of two", "2.0 ** round(-math.log2(mean_weight))", "1 / mean_weight"),
    ("losses", "the scale is a sixteenth", "2.0 ** round(-math.log2(mean_weight))",
     "2.0 ** round(-math.log2(mean_weight) - 4)"),
    ("losses", "sapo weighs as dapo", 'LossType("sapo", "grpo")', 'LossType("sapo", "dapo")'),
    # the sum over tokens
    ("losses", "sequence level: a sum", " / tokens_B1", ""),
    ("losses", "sequence level: a mean over the padding too",
     "tokens_B1 = is_counted_BT.sum(1, keepdim=True).clamp(min=1)", "tokens_B1 = logprobs.shape[1]"),
    ("losses", "padding in the policy", " logprobs.masked_fill(~is_counted_BT, 0.0)", " logprobs"),
    ("losses", "padding in the old policy", " old_logprobs.masked_fill(~is_counted_BT, 0.0)", " old_logprobs"),
    ("losses", "padding in the reference", " ref_logprobs.masked_fill(~is_counted_BT, 0.0)", " ref_logprobs"),
    ("losses", "a mean in place of the sum", "(objective_BT * weights).sum()", "(objective_BT * weights).mean()"),
    ("losses", "tokens all weigh the same", "(objective_BT * weights).sum()", "objective_BT.sum()"),
    ("losses", "importance weights ignored", "objective_BT * importance_weights.detach()", "objective_BT"),
    ("losses", "importance weights inverse", "objective_BT * importance_weights.detach()",
     "objective_BT / importance_weights.detach()"),
    ("losses", "importance weights trained", "importance_weights.detach()", "importance_weights"),
    ("losses", "KL rewarded", "objective_BT + beta * kl_BT", "objective_BT - beta * kl_BT"),
    ("losses", "KL weighted by importance", "objective_BT + beta * kl_BT",
     "objective_BT + beta * kl_BT * (1 if importance_weights is None else importance_weights)"),
    ("losses", "k3 without its 1", "torch.expm1(difference_BT)", "torch.exp(difference_BT)"),
    ("losses", "KL with the sign of its logarithm turned", "torch.expm1(difference_BT) -",
     "torch.expm1(-difference_BT) +"),
    ("losses", "bias correction ignored", "if use_bias_correction_kl:", "if False:"),
    ("losses", "bias correction without its gradient", "kl_BT = kl_BT * ratio", "kl_BT = kl_BT * ratio.detach()"),
    ("losses", "the graph kept alive", "ratio.detach(), found.is_low", "ratio, found.is_low"),
    # importance weights
    ("correction", "the sampler over the policy", "(old_logprobs - sampler_logprobs)",
     "(sampler_logprobs - old_logprobs)"),
    ("correction", "gradient through the weights", "(old_logprobs - sampler_logprobs).detach()",
     "(old_logprobs - sampler_logprobs)"),
    ("correction", "padding in the product", ".masked_fill(~is_counted, 0.0)", ""),
    ("correction", "mask and truncate swapped", 'action == "truncate"', 'action == "mask"'),
    ("correction", "clip_min ignored", "lowest = 0.0 if clip_min is None else clip_min", "lowest = 0.0"),
    ("correction", "clip_max ignored by the masks", " | (ratio > clip_max)", ""),
    ("correction", "geometric mean in place of the product", "log_ratio_BT.sum(1, keepdim=True) if",
     "log_ratio_BT.mean(1, keepdim=True) if"),
    ("correction", "sequences by their tokens", 'if level == "sequence"', 'if level == "completion"'),
    # advantages
    ("advantages", "standard deviation with n", "(count - 1).clamp(min=1)", "count.clamp(min=1)"),
    ("advantages", "no baseline", "rewards_GN - rewards_GN.nanmean(1, keepdim=True)", "rewards_GN - 0.0"),
    ("advantages", "the batch's mean", "rewards_GN - rewards_GN.nanmean(1, keepdim=True)",
     "rewards_GN - rewards_GN.nanmean()"),
    ("advantages", "unjudged completions in the mean", "rewards_GN - rewards_GN.nanmean(1, keepdim=True)",
     "rewards_GN - rewards_GN.mean(1, keepdim=True)"),
    ("advantages", "unjudged completions in the deviation", ".square().nansum(1", ".square().sum(1"),
    ("advantages", "group scaled by the batch", "_std(rewards_GN) + 1e-4", "_std(rewards_GN.view(1, -1)) + 1e-4"),
    ("advantages", "batch scaled by the group", "_std(rewards_GN.view(1, -1)) + 1e-4", "_std(rewards_GN) + 1e-4"),
    ("advantages", "another guard against 0", "_std(rewards_GN) + 1e-4", "_std(rewards_GN) + 1e-2"),
    ("advantages", "equal groups not set to 0", "equal_groups(rewards_GN, magnitudes_GN)[:, None], 0.0",
     "torch.tensor(False), 0.0"),
    ("advantages", "rounding taken for a difference", "<= ROUNDING * largest_G", "<= 0"),
    ("advantages", "weights of rewards ignored", "rewards_BR.double() * weights_R", "rewards_BR.double()"),
    ("advantages", "unjudged is worth 0", "[:, weights_R != 0].isnan().all(1)", "[:, weights_R != 0].isnan().all()"),
    ("advantages", "judged by a weight of 0", "rewards_BR[:, weights_R != 0].isnan()", "rewards_BR.isnan()"),
    ("advantages", "an unjudged completion makes its group unequal", 'nan_to_num(float("inf"))', "nan_to_num(0.0)"),
    # prompts and checkpoints
    ("batch", "the seed ignored", 'f"{seed} {epoch}"', 'f"{epoch}"'),
    ("batch", "every epoch in one order", 'f"{seed} {epoch}"', 'f"{seed}"'),
    ("batch", "in the order of the file", 'random.Random(f"{seed} {epoch}").shuffle(orders[epoch])', "pass"),
    ("batch", "generations overlap", "range(generation * count, (generation + 1) * count)",
     "range(generation, generation + count)"),
    ("batch", "rewards rounded to 32 bits", "dtype=torch.float64", "dtype=torch.float32"),
]]
# fmt: on


def check_cases():
    """One case in twelve of the combinations of `test_losses`, all objectives and both levels among them."""
    for limits, level in itertools.product(test_losses.LIMITS, test_losses.LEVELS):
        for case in itertools.islice(test_losses.product_of_cases(limits, level), 5, None, 12):
            test_losses.check_case(case)


def check_paddings():
    """Padding of the two kinds that a mask may miss."""
    for limits, level in itertools.product(({"objective": "clip"}, test_losses.LIMITS[4]), test_losses.LEVELS):
        for kl in ("none", "k3 ratio"):
            lengths, left_out = test_losses.LENGTHS[1]
            case = test_losses.make_case(9, lengths, left_out, "token", level=level, weighting="dapo", kl=kl, **limits)
            for padding in (-50.0, test_losses.NAN):
                test_losses.check_padding(case, padding)


def check_clips():
    for clip in test_losses.CLIPS:
        test_losses.check_clip(*clip)


def check_kl_gradients():
    for use_bias_correction_kl in (False, True):
        test_losses.check_kl_gradient(use_bias_correction_kl)


def check_scales():
    for weighting in test_losses.WEIGHTINGS:
        case = test_losses.make_case(4, *test_losses.LENGTHS[1], level="token", weighting=weighting, objective="clip")
        test_losses.check_scale(case)


def check_equal_rewards():
    for scale in test_advantages.SCALES:
        test_advantages.check_equal_rewards(0.1, 3, scale)


def check_expectations():
    """Over all groups of two."""
    for weighting in test_losses.WEIGHTINGS:
        test_losses.check_expectation(test_losses.Policy(1), 2, weighting, 1)
    sampler = test_losses.Policy(1, seed=1)
    test_losses.check_expectation(test_losses.Policy(1), 2, "dapo", 1, sampler=sampler)


#: File -> what runs on it, the quickest first; the first that fails ends the list.
CHECKS = {
    "losses": [
        check_clips,
        test_losses.check_weights_by_hand,
        test_losses.check_cispo_keeps_the_gradient,
        test_losses.check_gradients_stop,
        test_losses.test_loss_types_are_trls,
        check_kl_gradients,
        check_scales,
        check_paddings,
        check_cases,
        check_expectations,
    ],
    "correction": [test_correction.check_modes, check_expectations],
    "advantages": [
        test_advantages.check_by_hand,
        test_advantages.check_scales,
        test_advantages.check_combine,
        test_advantages.check_weight_0,
        test_advantages.check_weighted_sums,
        test_advantages.check_unjudged,
        test_advantages.check_equal_groups,
        test_advantages.check_noise,
        check_equal_rewards,
        test_advantages.check_batches,
    ],
    "batch": [
        test_batch.check_seeds,
        test_batch.check_epochs,
        test_batch.check_small_data_sets,
        test_batch.check_round_trip,
    ],
}


def module_of(fault):
    return import_module(f"helpers.grpo.{fault.file}")


def functions_of(value):
    """name -> function, of a function or of what a class defines: methods and properties."""
    if isinstance(value, types.FunctionType):
        return {"": value}
    found = {}
    if isinstance(value, type):
        for name, member in vars(value).items():
            inner = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
            if isinstance(inner, types.FunctionType):
                found[name] = inner
    return found


@contextmanager
def applied(fault):
    """Within the block, the module has the fault."""
    module = module_of(fault)
    source = Path(module.__file__).read_text()
    assert source.count(fault.right) == 1, f"{fault.right!r} occurs {source.count(fault.right)} times"
    faulty = {"__name__": module.__name__}
    exec(compile(source.replace(fault.right, fault.wrong), module.__file__, "exec"), faulty)
    exchanged = []
    constants = {}
    try:
        for name, right in list(vars(module).items()):
            if getattr(right, "__module__", None) == module.__name__:
                wrong_functions = functions_of(faulty[name])
                for key, function in functions_of(right).items():
                    wrong = wrong_functions[key]
                    if function.__code__ != wrong.__code__:
                        exchanged.append((function, function.__code__))
                        function.__code__ = wrong.__code__
            elif name.isupper():
                constants[name] = right
                setattr(module, name, faulty[name])
        yield
    finally:
        for function, code in exchanged:
            function.__code__ = code
        for name, right in constants.items():
            setattr(module, name, right)


def run_checks(file):
    for check in CHECKS[file]:
        check()


@pytest.mark.parametrize("file", CHECKS)
def test_without_a_fault_all_checks_pass(file):
    """Checks that fail anyway would notice everything."""
    run_checks(file)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.what}")
def test_fault_is_noticed(fault):
    """A test suite that lets a wrong sign pass is no evidence of a right one."""
    with applied(fault):
        with pytest.raises(AssertionError):
            run_checks(fault.file)


def test_a_fault_goes_away_again():
    """The tests that run later in this process must meet the right code."""
    for file in CHECKS:
        fault = next(fault for fault in FAULTS if fault.file == file)
        with applied(fault):
            pass
        run_checks(file)


def test_the_table():
    """The same fault twice, or none for a file, is a slip of the table."""
    assert len({(fault.file, fault.right, fault.wrong) for fault in FAULTS}) == len(FAULTS) >= 25
    assert {fault.file for fault in FAULTS} == set(CHECKS)
