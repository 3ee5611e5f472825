"""The loss against a program of its own, against exact sums over all groups, and against itself cut another way.

The checks are functions without fixtures, so that `test_mutations` can run them on faulty copies of the modules. They
reach the code under test through its modules, never by a name imported from one.
"""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.grpo import advantages, correction, losses
from tests.grpo import reference
from tests.grpo.reference import Case

#: Objectives with the limits that change what they do.
LIMITS = [
    {"objective": "clip"},
    {"objective": "clip", "epsilon_high": 0.45},
    {"objective": "clip", "delta": 1.5},
    {"objective": "clip", "epsilon": 0.1, "epsilon_high": 0.28, "delta": 1.6},
    {"objective": "cispo", "epsilon_high": 1.2},
    {"objective": "sapo"},
    {"objective": "sapo", "sapo_temperature_neg": 3.0, "sapo_temperature_pos": 0.5},
]
LEVELS = ["token", "sequence"]
WEIGHTINGS = ["grpo", "bnpo", "dapo", "dr_grpo"]
IMPORTANCE = ["none", "token", "sequence"]
KLS = ["none", "k3", "k3 ratio"]
#: Tokens of completions, ragged, and which of them the loss leaves out.
LENGTHS = [
    ([3, 1, 4, 2], [False, False, False, False]),
    ([2, 5, 1, 3, 1], [False, True, False, False, True]),
]
NAN = float("nan")
CLIPPING = ("epsilon", "epsilon_high", "delta", "sapo_temperature_neg", "sapo_temperature_pos")


def make_case(seed, lengths, is_left_out, importance="none", spread=0.4, **chosen):
    """A case of random numbers. spread: of the logarithms of the ratios; 0 is the first step on a generation."""
    numbers = random.Random(seed)

    def rows(mean, deviation):
        return [[numbers.gauss(mean, deviation) for _ in range(length)] for length in lengths]

    logprobs = rows(-1.5, 0.7)
    changes = rows(0.0, spread)
    old = [[new - change for new, change in zip(*pair)] for pair in zip(logprobs, changes)]
    factors = None
    if importance == "token":
        factors = [[math.exp(value) for value in row] for row in rows(0.0, 0.5)]
    elif importance == "sequence":
        factors = [[math.exp(numbers.gauss(0, 0.5))] * length for length in lengths]
    beta = 0.0 if chosen.get("kl", "none") == "none" else 0.3
    return Case(
        logprobs=logprobs,
        old_logprobs=old,
        ref_logprobs=rows(-1.5, 0.7),
        advantages=[numbers.gauss(0, 1) for _ in lengths],
        is_left_out=is_left_out,
        importance=factors,
        beta=beta,
        **chosen,
    )


def pad(rows, padding, width):
    """float64 [B, T] from lists that differ in length."""
    return torch.tensor([row + [padding] * (width - len(row)) for row in rows], dtype=torch.float64)


class Step:
    """A case in tensors, as the trainer would have them.

    padding: what stands where there is no token. columns, rows: so much more padding.
    """

    def __init__(self, case, padding=0.0, columns=0, rows=0):
        width = columns + max(map(len, case.logprobs))
        blank = [[]] * rows
        self.case = case
        self.logprobs = pad(case.logprobs + blank, padding, width).requires_grad_()
        self.old_logprobs = pad(case.old_logprobs + blank, padding, width)
        self.ref_logprobs = pad(case.ref_logprobs + blank, padding, width) if case.kl != "none" else None
        self.advantages = torch.tensor(case.advantages + [0.0] * rows, dtype=torch.float64)
        self.importance = None
        if case.importance is not None:
            self.importance = pad(case.importance + blank, 1.0, width)
        counted = case.tokens()
        weights_B = losses.token_weights(case.weighting, counted, case.max_completion_length, case.local_batch)
        self.scale = losses.loss_scale(weights_B, counted)
        mask_BT = torch.arange(width) < torch.tensor(counted + [0] * rows)[:, None]
        self.weights = torch.cat([weights_B, torch.zeros(rows)])[:, None] * mask_BT

    def loss(self, rows=slice(None), scale=None):
        """The loss of some completions, with the weights that they have in the whole step."""
        case = self.case
        return losses.policy_loss(
            self.logprobs[rows],
            self.old_logprobs[rows],
            self.advantages[rows],
            self.weights[rows],
            objective=case.objective,
            level=case.level,
            clipping=losses.Clipping(**{name: getattr(case, name) for name in CLIPPING}),
            importance_weights=None if self.importance is None else self.importance[rows],
            ref_logprobs=None if self.ref_logprobs is None else self.ref_logprobs[rows],
            beta=case.beta,
            use_bias_correction_kl=case.kl == "k3 ratio",
            scale=self.scale if scale is None else scale,
        )

    def results(self, parts=(slice(None),)):
        """`(loss, gradient in rows as long as the completions)`, both without the scale, summed over the parts."""
        self.logprobs.grad = None
        total = 0.0
        for rows in parts:
            loss = self.loss(rows).loss
            loss.backward()
            total += loss.item() / self.scale
        gradient = self.logprobs.grad / self.scale
        outside = gradient[self.weights == 0]
        assert torch.equal(outside, torch.zeros_like(outside)), "padding or a left-out completion has a gradient"
        return total, [gradient[i, : len(row)].tolist() for i, row in enumerate(self.case.logprobs)]


def assert_same(found, wanted, tolerance=1e-9):
    """Compare a loss and a ragged gradient with others."""
    assert found[0] == pytest.approx(wanted[0], rel=tolerance, abs=tolerance)
    for row, wanted_row in zip(found[1], wanted[1], strict=True):
        assert row == pytest.approx(wanted_row, rel=tolerance, abs=tolerance)


def check_case(case):
    """The loss and its gradient are those of the reference."""
    assert_same(Step(case).results(), (reference.value(case), reference.gradient(case)))


def product_of_cases(limits, level, seed=0):
    """A case for each combination of what is not fixed by the arguments."""
    cases = itertools.product(WEIGHTINGS, IMPORTANCE, KLS, LENGTHS)
    for number, (weighting, importance, kl, (lengths, left_out)) in enumerate(cases):
        names = {"level": level, "weighting": weighting, "kl": kl}
        yield make_case(seed + number, lengths, left_out, importance, **names, **limits)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_every_combination_is_the_reference(limits, level):
    """A sign, a bound, a mean or a mask that is wrong in one combination of settings only."""
    for case in product_of_cases(limits, level):
        check_case(case)


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    left_out = draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    return make_case(
        draw(st.integers(0, 2**32)),
        lengths,
        left_out,
        draw(st.sampled_from(IMPORTANCE)),
        spread=draw(st.sampled_from([0.0, 0.05, 0.4, 2.0])),
        level=draw(st.sampled_from(LEVELS)),
        weighting=draw(st.sampled_from(WEIGHTINGS)),
        kl=draw(st.sampled_from(KLS)),
        max_completion_length=draw(st.integers(6, 600)),
        local_batch=draw(st.integers(1, 4)),
        **draw(st.sampled_from(LIMITS)),
    )


@settings(max_examples=150, deadline=None)
@given(cases())
def test_any_step_is_the_reference(case):
    """Sizes that no list names: one completion, none that counts, a last local batch that is smaller."""
    check_case(case)


@pytest.mark.parametrize("limits", [limits for limits in LIMITS if limits["objective"] != "cispo"], ids=str)
def test_the_reference_itself(limits):
    """Its derivative against a difference of two losses: a complex step through a wrong branch would be noticed by
    nothing else. (The gradient of cispo is not that of its loss, by design.)"""
    case = make_case(3, *LENGTHS[0], "token", level="token", weighting="dapo", kl="k3 ratio", **limits)
    derivatives = reference.gradient(case)
    for i, t in [(0, 0), (0, 2), (1, 0), (2, 3), (3, 1)]:
        ends = []
        for distance in (-1e-6, 1e-6):
            shifted = [list(row) for row in case.logprobs]
            shifted[i][t] += distance
            ends.append(complex(reference.loss(case, shifted)).real)
        assert derivatives[i][t] == pytest.approx((ends[1] - ends[0]) / 2e-6, abs=1e-8)


# What a gradient must be in expectation: every group that a policy can draw, weighted by its probability, none sampled.


class Policy:
    """One that draws answers of one or two tokens out of three. ends: token 0 ends an answer."""

    def __init__(self, length, ends=False, seed=0):
        generator = torch.Generator().manual_seed(seed)
        tables = 1 if length == 1 else 4  # the first token, and the second after each first one
        self.logits = torch.randn(tables, 3, generator=generator, dtype=torch.float64).requires_grad_()
        answers = itertools.product(range(3), repeat=length)
        if ends and length == 2:
            answers = [(0,), *(answer for answer in answers if answer[0] != 0)]
        self.answers = list(answers)
        self.payoff = torch.randn(len(self.answers), generator=generator, dtype=torch.float64)

    def logprobs(self, answer):
        """Of the tokens of an answer: [length]."""
        tables = self.logits.log_softmax(1)
        found = [tables[0, answer[0]]]
        if len(answer) == 2:
            found.append(tables[1 + answer[0], answer[1]])
        return torch.stack(found)

    def probabilities(self):
        return torch.stack([self.logprobs(answer).sum().exp() for answer in self.answers])

    def gradient_of(self, value):
        return torch.autograd.grad(value, self.logits, retain_graph=True)[0]

    def gradient_of_expected_reward(self):
        return self.gradient_of((self.probabilities() * self.payoff).sum())


def expected_gradient(policy, group, weighting, objective="clip", level="token", sampler=None, corrected=True):
    """Minus the expected gradient of the loss, over all groups that the sampler (default: the policy) can draw."""
    limits = losses.Clipping(epsilon_high=5.0 if objective == "cispo" else None)
    drawn_by = sampler or policy
    chances = drawn_by.probabilities().detach()
    rows = [policy.logprobs(answer) for answer in policy.answers]
    sampler_rows = [drawn_by.logprobs(answer).detach() for answer in policy.answers]
    longest = max(map(len, rows))
    total = 0.0
    for drawn in itertools.product(range(len(rows)), repeat=group):
        tokens = [len(rows[n]) for n in drawn]
        logprobs = torch.nn.utils.rnn.pad_sequence([rows[n] for n in drawn], batch_first=True)
        sampled = torch.nn.utils.rnn.pad_sequence([sampler_rows[n] for n in drawn], batch_first=True)
        mask = torch.arange(longest) < torch.tensor(tokens)[:, None]
        mask = mask[:, : logprobs.shape[1]]
        old = logprobs.detach()
        factors = None
        if sampler is not None and corrected:
            factors = correction.importance_weights(old, sampled, mask, "sequence_truncate", clip_max=1e9).weights
        gains = advantages.group_advantages(policy.payoff[list(drawn)].view(-1, group), "none").flatten()
        weights_B = losses.token_weights(weighting, tokens, longest, group)
        found = losses.policy_loss(
            logprobs, old, gains.double(), weights_B[:, None] * mask, objective=objective, level=level,
            clipping=limits, importance_weights=factors,
        )  # fmt: skip
        total = total - chances[list(drawn)].prod() * found.loss
    return policy.gradient_of(total)


def check_expectation(policy, group, weighting, factor, **options):
    """It is `factor` (1 - 1/G) grad J: a group's mean holds the completion itself, hence G - 1 of G."""
    wanted = policy.gradient_of_expected_reward() * factor * (1 - 1 / group)
    torch.testing.assert_close(expected_gradient(policy, group, weighting, **options), wanted, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("objective", ["clip", "cispo", "sapo"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("group", [2, 3, 4])
def test_expected_gradient_is_that_of_the_expected_reward(group, weighting, objective):
    """A wrong sign, baseline, slope or normaliser cannot pass."""
    check_expectation(Policy(1), group, weighting, 1, objective=objective)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_expected_gradient_of_answers_of_two_tokens(weighting, level):
    """Each token weighs a half, so the gradient is half as long."""
    check_expectation(Policy(2), 2, weighting, 1 / 2, level=level)


def test_only_a_constant_normaliser_admits_answers_of_different_length():
    """What Dr. GRPO is for: divided by its own length, a short answer counts more than its reward says."""
    for group in (2, 3):
        check_expectation(Policy(2, ends=True), group, "dr_grpo", 1 / 2)
    policy = Policy(2, ends=True)
    wanted = policy.gradient_of_expected_reward()
    for weighting in ("grpo", "bnpo", "dapo"):
        found = expected_gradient(policy, 2, weighting)
        cosine = torch.nn.functional.cosine_similarity(found.flatten(), wanted.flatten(), dim=0)
        assert 0.5 < cosine < 1 - 1e-5, weighting


@pytest.mark.parametrize("length", [1, 2])
def test_importance_weights_make_up_for_another_sampler(length):
    """Where no ratio is truncated, the gradient is that of the policy, whoever drew the tokens."""
    policy = Policy(length)
    sampler = Policy(length, seed=1)
    check_expectation(policy, 2, "dapo", 1 / length, sampler=sampler)
    biased = expected_gradient(policy, 2, "dapo", sampler=sampler, corrected=False)
    wanted = policy.gradient_of_expected_reward() / 2 / length
    assert (biased - wanted).norm() > 0.1 * wanted.norm()


def check_kl_gradient(use_bias_correction_kl):
    """k3 times the ratio has the gradient of KL(policy || reference), k3 alone that of KL(reference || policy)."""
    policy = Policy(1)
    logprobs = policy.logits.log_softmax(1)[0]
    reference_logprobs = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
    if use_bias_correction_kl:
        divergence = (logprobs.exp() * (logprobs - reference_logprobs)).sum()
    else:
        divergence = (reference_logprobs.exp() * (reference_logprobs - logprobs)).sum()
    found = losses.policy_loss(
        logprobs[:, None],
        logprobs[:, None].detach(),
        torch.zeros(3, dtype=torch.float64),
        logprobs[:, None].detach().exp(),  # each token counts as often as it is drawn
        ref_logprobs=reference_logprobs[:, None],
        beta=0.7,
        use_bias_correction_kl=use_bias_correction_kl,
    )
    got = policy.gradient_of(found.loss)
    torch.testing.assert_close(got, 0.7 * policy.gradient_of(divergence), atol=1e-12, rtol=1e-12)
    assert (found.kl >= 0).all()


@pytest.mark.parametrize("use_bias_correction_kl", [False, True])
def test_gradient_of_the_kl_term(use_bias_correction_kl):
    """The two divergences are pulled to different places, and libraries confuse them."""
    check_kl_gradient(use_bias_correction_kl)


def test_kl_to_itself_is_nothing():
    """A reference that equals the policy must not move it."""
    case = make_case(0, *LENGTHS[0], level="token", weighting="dapo", objective="clip", kl="k3 ratio", spread=0)
    case = replace(case, ref_logprobs=case.logprobs, advantages=[0.0] * 4)
    assert Step(case).results() == (0.0, [[0.0] * length for length in LENGTHS[0][0]])


# Single properties.


def check_clip(ratio, advantage, has_gradient, is_low, is_high):
    """The clip takes the gradient only where the policy has gone far enough already, never the way back."""
    new = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
    one = torch.ones(1, 1, dtype=torch.float64)
    gain = torch.tensor([advantage], dtype=torch.float64)
    found = losses.policy_loss(new, torch.zeros(1, 1), gain, one, clipping=losses.Clipping(epsilon_high=0.3))
    found.loss.backward()
    assert bool(new.grad != 0) == has_gradient
    assert (bool(found.is_low), bool(found.is_high)) == (is_low, is_high)
    assert found.ratio.item() == pytest.approx(ratio)


CLIPS = [
    (1.0, 1.0, True, False, False),
    (1.25, 1.0, True, False, False),
    (1.5, 1.0, False, False, True),
    (1.5, -1.0, True, False, False),
    (0.75, -1.0, False, True, False),
    (0.85, -1.0, True, False, False),
    (0.5, 1.0, True, False, False),
]


@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_clip(clip):
    """A clip on the wrong side, or metrics that count a limit where it does not bite."""
    check_clip(*clip)


def check_cispo_keeps_the_gradient():
    """Of a token past the limit: PPO's clip drops it, CISPO bounds its weight."""
    gradients = {}
    for objective in ("clip", "cispo"):
        new = torch.tensor([[3.0]], dtype=torch.float64).log().requires_grad_()
        one = torch.ones(1, 1, dtype=torch.float64)
        limits = losses.Clipping(epsilon_high=2.0 if objective == "cispo" else 0.2)
        found = losses.policy_loss(new, torch.zeros(1, 1), one[0], one, objective=objective, clipping=limits)
        found.loss.backward()
        assert bool(found.is_high) and not bool(found.is_low)
        gradients[objective] = new.grad.item()
    assert gradients == {"clip": 0.0, "cispo": -2.0}


def test_cispo_keeps_the_gradient_of_clipped_tokens():
    """Its reason to be: rare tokens that start a new way of thinking are those with large ratios."""
    check_cispo_keeps_the_gradient()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_gspo_at_one_iteration_is_the_token_level(weighting):
    """At ratio one, the derivative of a completion's mean is that of its tokens, where they weigh the same."""
    lengths, left_out = LENGTHS[1]
    cases = [
        make_case(5, lengths, left_out, objective="clip", level=level, weighting=weighting, spread=0)
        for level in LEVELS
    ]
    by_level = [Step(case).results() for case in cases]
    assert_same(by_level[0], by_level[1], 1e-12)


def check_no_signal(limits, level, value, scale_rewards):
    """Equal rewards and no KL: the loss and its gradient are exactly 0, whatever the ratios."""
    rewards = torch.full((1, 4), value, dtype=torch.float64)
    gains = advantages.group_advantages(rewards, scale_rewards).flatten()
    case = make_case(1, *LENGTHS[0], "token", level=level, weighting="dapo", **limits)
    case = replace(case, advantages=gains.tolist())
    assert Step(case).results() == (0.0, [[0.0] * length for length in LENGTHS[0][0]])


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_equal_rewards_teach_exactly_nothing(limits, level, scale_rewards):
    """0.1 + 0.1 + 0.1 is not 0.3, and weight decay apart, a group without a difference must move no weight."""
    for value in (0.0, 0.1, -3.7, 1e8 + 0.1):
        check_no_signal(limits, level, value, scale_rewards)


# The same step, cut, ordered and padded in other ways.


def variants(limits, level):
    for weighting, kl in itertools.product(WEIGHTINGS, KLS):
        lengths, left_out = LENGTHS[1]
        yield make_case(9, lengths, left_out, "token", level=level, weighting=weighting, kl=kl, **limits)


def check_cuts(case):
    """Micro-batches of one, of two, and unlike ones."""
    wanted = Step(case).results()
    for parts in ([[0], [1], [2], [3], [4]], [[0, 1], [2, 3], [4]], [[4, 2, 0], [3, 1]]):
        assert_same(Step(case).results(parts), wanted, 1e-12)


def check_order(case):
    """Completions in another order; weights of "bnpo" are those of its own order, so it may not be permuted."""
    wanted_loss, wanted_rows = Step(case).results()
    order = [3, 0, 4, 1, 2]
    lists = ("logprobs", "old_logprobs", "ref_logprobs", "advantages", "is_left_out", "importance")
    moved = replace(case, **{name: [getattr(case, name)[n] for n in order] for name in lists})
    assert_same(Step(moved).results(), (wanted_loss, [wanted_rows[n] for n in order]), 1e-12)


def check_padding(case, padding):
    """More columns and rows without a token, whatever stands there, change nothing."""
    wanted = Step(case).results()
    assert_same(Step(case, padding, columns=5, rows=3).results(), wanted, 1e-12)


PADDINGS = [0.0, -50.0, 1e30, NAN, float("inf"), -float("inf")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
class TestInvariance:
    """A gradient does not depend on how the batch is cut: the usual mistake is a mean over each micro-batch."""

    def test_cuts(self, limits, level):
        for case in variants(limits, level):
            check_cuts(case)

    def test_order(self, limits, level):
        for case in variants(limits, level):
            if case.weighting != "bnpo":
                check_order(case)

    def test_padding(self, limits, level):
        for case in variants(limits, level):
            for padding in PADDINGS:
                check_padding(case, padding)

    def test_scale(self, limits, level):
        """A power of two, so that dividing by it rounds nothing; and a token weighs about one with it."""
        for case in variants(limits, level):
            check_scale(case)


def check_scale(case):
    step = Step(case)
    mantissa, _ = math.frexp(step.scale)
    assert mantissa == 0.5, f"{step.scale} is no power of two"
    mean_weight = step.scale * float(step.weights.sum()) / sum(case.tokens())
    assert 0.7 < mean_weight < 1.42
    scaled = step.results()
    step.scale = 1.0
    assert scaled == step.results()


def test_scale_of_a_step_in_which_nothing_counts():
    """All completions cut off and left out: no division by zero, and a loss of exactly 0."""
    case = make_case(0, [2, 3], [True, True], objective="clip", level="token", weighting="dapo")
    step = Step(case)
    assert step.scale == 1.0
    assert step.results() == (0.0, [[0.0] * 2, [0.0] * 3])


def check_weights_by_hand():
    """Two local batches, of 4 and of 2 tokens, at most 5 tokens each."""
    tokens = [3, 1, 0, 2]
    found = {name: losses.token_weights(name, tokens, 5, 2).tolist() for name in WEIGHTINGS}
    assert found["grpo"][:2] + found["grpo"][3:] == [1 / 12, 1 / 4, 1 / 8]
    assert found["bnpo"] == [1 / 8, 1 / 8, 1 / 4, 1 / 4]
    assert found["dapo"] == [1 / 6] * 4
    assert found["dr_grpo"] == [1 / 20] * 4


def test_weights_by_hand():
    """What each normaliser is, in figures that a reader can check."""
    check_weights_by_hand()


def test_loss_types_are_trls():
    """Each name must mean what it means in TRL."""
    pairs = {name: tuple(halves) for name, halves in losses.LOSS_TYPES.items()}
    assert pairs == {
        "grpo": ("clip", "grpo"),
        "bnpo": ("clip", "bnpo"),
        "dapo": ("clip", "dapo"),
        "dr_grpo": ("clip", "dr_grpo"),
        "cispo": ("cispo", "dapo"),
        "sapo": ("sapo", "grpo"),
    }


def check_gradients_stop():
    """Neither the importance weights nor the old policy nor the reference is trained."""
    case = make_case(2, *LENGTHS[0], "token", level="token", weighting="dapo", objective="clip", kl="k3 ratio")
    step = Step(case)
    step.importance.requires_grad_()
    found = step.loss()
    found.loss.backward()
    assert step.importance.grad is None
    for name in ("ratio", "kl", "is_low", "is_high"):
        assert not getattr(found, name).requires_grad, name


def test_gradients_stop_where_they_must():
    """A gradient through the importance weights would raise the old policy, and keep a graph alive."""
    check_gradients_stop()
