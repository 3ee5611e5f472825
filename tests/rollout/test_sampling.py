"""How a token is drawn: which tokens can be, how often each is, and the log-probability that is written down."""

import math
from functools import partial

import pytest
import torch
from scipy import stats
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from helpers.rollout import sampling
from helpers.rollout.random_streams import stream_key
from helpers.rollout.sampling import DeviceParams, SamplingParams

LAST = 1 - 2**-53  # the largest number that a stream gives


def drawn(logits, uniforms=None, monkeypatch=None, keys=None, **choice):
    """`(tokens, logprobs)` for logits [B, V] and the arguments of `SamplingParams`; they stay as they are."""
    params = SamplingParams(**choice)
    on_device = DeviceParams.on(torch.device("cpu"))
    on_device.fill(params, logits.shape[-1])
    if uniforms is not None:
        monkeypatch.setattr(sampling, "uniforms", lambda *_: uniforms)
    keys = torch.zeros(len(logits), dtype=torch.int64) if keys is None else keys
    positions = torch.full_like(keys, 90)
    return sampling.draw(logits.clone(), keys, positions, on_device, params.trims)


def kept_by_transformers(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """bool [B, V]: what transformers' own warpers leave, in the order in which its `generate` applies them."""
    scores = logits.double() / temperature
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    return scores > -torch.inf


def trimmed(logits, **choice):
    """bool [B, V]: what `trim` leaves."""
    params = DeviceParams.on(torch.device("cpu"))
    params.fill(SamplingParams(**choice), logits.shape[-1])
    weights = (logits - logits.amax(-1, keepdim=True)).double().exp()
    return sampling.trim(weights, params.top_k, params.top_p, params.min_p) > 0


def kept(logits, monkeypatch, **choice):
    """bool [B, V]: the tokens that are drawn by some number of a stream, of logits [B, V].

    Each row is drawn from with the numbers in the middle of each token's share, and with the two at the ends.
    """
    rows, vocabulary = logits.shape
    params = SamplingParams(**choice)
    found = torch.zeros(rows, vocabulary, dtype=torch.bool)
    temperature = params.temperature
    weights = (logits.double() / temperature).softmax(-1)
    reference = kept_by_transformers(logits, temperature, params.top_k, params.top_p, params.min_p)
    for row in range(rows):
        # the shares of what may be kept, and of what may not: a point in each
        points = [
            torch.tensor([0.0, LAST], dtype=torch.float64),
            torch.linspace(0, LAST, 4 * vocabulary, dtype=torch.float64),
        ]
        for mass in (weights[row], weights[row] * reference[row]):
            ends = mass.cumsum(0) / mass.sum()
            points.append((ends - mass / mass.sum() / 2).clamp(0, LAST))
        points = torch.cat(points)
        tokens, _ = drawn(logits[row].expand(len(points), -1), points, monkeypatch, **choice)
        found[row, tokens] = True
    return found


def spread(*shape, seed=0, scale=3.0):
    """Random logits."""
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


CHOICES = [
    {"top_k": 1}, {"top_k": 2}, {"top_k": 7}, {"top_k": 40}, {"top_k": 10**9},
    {"top_p": 1e-12}, {"top_p": 0.1}, {"top_p": 0.5}, {"top_p": 0.9}, {"top_p": 0.999999},
    {"min_p": 1e-9}, {"min_p": 0.05}, {"min_p": 0.5}, {"min_p": 1.0},
    {"top_k": 5, "top_p": 0.8}, {"top_k": 3, "top_p": 0.99, "min_p": 0.2}, {"top_p": 0.7, "min_p": 0.01},
    {"top_k": 20, "min_p": 0.1}, {"top_k": 10**9, "top_p": 1.0, "min_p": 1e-30},
]  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_what_can_be_drawn_is_what_transformers_leaves(choice, temperature, monkeypatch):
    """A set that is one token larger or smaller is another sampler under the same name."""
    logits = spread(6, 40, scale=1.5)
    choice = {"temperature": temperature, **choice}
    assert torch.equal(kept(logits, monkeypatch, **choice), kept_by_transformers(logits, **choice))


def test_tied_logits():
    """Ties are the rule in 16 bits: as many of equal tokens stay as with transformers; which, is anyone's choice."""
    generator = torch.Generator().manual_seed(0)
    cut_through_a_tie = 0
    for _ in range(500):
        top_k, vocabulary = torch.randint(1, 17, (2,), generator=generator).tolist()
        top_p, min_p = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        choice = {"top_k": top_k * (top_k < 9), "top_p": top_p, "min_p": min_p * (min_p < 0.5)}
        logits = 1.3 * torch.randint(0, 4, (1, vocabulary), generator=generator)
        ours = logits[trimmed(logits, **choice)].tolist()
        theirs = logits[kept_by_transformers(logits, **choice)].tolist()
        assert sorted(ours) == sorted(theirs), choice
        cut_through_a_tie += ours.count(min(ours)) < logits.flatten().tolist().count(min(ours))
    assert cut_through_a_tie > 100


@pytest.mark.parametrize("count", [1, 2, 8, 32])
def test_equal_logits(count):
    """With a power of two of them every sum is exact, and what reaches top_p to the last bit is enough."""
    logits = torch.full((1, count + 3), -torch.inf)
    logits[0, 1 : count + 1] = 0.7
    for eighths in range(1, 9):
        for choice in ({}, {"top_k": 1}, {"top_k": count}, {"min_p": 1.0}):
            choice = {"top_p": eighths / 8, **choice}
            ours = trimmed(logits, **choice)
            assert ours.sum() == kept_by_transformers(logits, **choice).sum() == math.ceil(count * eighths / 8)
            assert not ours[0, 0] and not ours[0, count + 1 :].any()


@pytest.mark.parametrize("choice", [{}, *CHOICES], ids=str)
def test_impossible_tokens_are_never_drawn(choice, monkeypatch):
    """A token of probability 0 at an end, where the number 0.0 or the last below 1 falls, was once never trained on."""
    logits = spread(4, 12)
    for hidden in ([0], [11], [0, 1, 2], [9, 10, 11], [0, 5, 11], [*range(11)], [*range(1, 12)]):
        masked = logits.clone()
        masked[:, hidden] = -torch.inf
        for number in (0.0, 1e-300, 0.5, LAST):
            points = torch.full((4,), number, dtype=torch.float64)
            tokens, logprobs = drawn(masked, points, monkeypatch, **choice)
            assert not set(tokens.tolist()) & set(hidden)
            assert logprobs.isfinite().all()


def test_the_ends_of_the_stream(monkeypatch):
    """0.0 draws the first token that can be drawn and the last number the last one; neither is beyond an end."""
    logits = spread(5, 700, scale=1.0)
    for number, token in ((0.0, 0), (LAST, 699)):
        tokens, _ = drawn(logits, torch.full((5,), number, dtype=torch.float64), monkeypatch)
        assert tokens.tolist() == [token] * 5


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("choice", [{}, {"top_k": 9, "top_p": 0.95}], ids=["full", "trimmed"])
def test_frequencies(temperature, choice):
    """Chi-square over 50,000 draws: a temperature applied twice, or after the softmax, shows here."""
    count = 50_000
    logits = spread(1, 30, seed=1, scale=1.5)
    keys = torch.tensor([stream_key(3, [5], generation) for generation in range(count)])
    tokens, _ = drawn(logits.expand(count, -1), keys=keys, temperature=temperature, **choice)
    allowed = kept_by_transformers(logits, temperature, **choice)[0]
    wanted = (logits[0].double() / temperature).softmax(-1) * allowed
    wanted = wanted / wanted.sum() * count
    seen = torch.bincount(tokens, minlength=30)
    assert not seen[~allowed].any()
    likely = wanted > 5
    rest = [[float(part[~likely].sum())] for part in (seen, wanted)] if wanted[~likely].sum() > 5 else [[], []]
    assert likely.sum() > 3
    seen, wanted = [*seen[likely].tolist(), *rest[0]], [*wanted[likely].tolist(), *rest[1]]
    assert stats.chisquare(seen, wanted, sum_check=False).pvalue > 1e-4


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 1.5])
@pytest.mark.parametrize("choice", [{}, {"top_k": 3}, {"top_p": 0.5, "min_p": 0.3}], ids=str)
def test_logprobs_are_those_of_the_whole_distribution(temperature, choice):
    """Trimmed or not: the trainer's log-probability is the policy's, and greedy tokens have temperature 1."""
    logits = spread(200, 50, scale=8.0)
    tokens, logprobs = drawn(logits, keys=torch.arange(200) << 32, temperature=temperature, **choice)
    exact = (logits.double() / (temperature or 1)).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    assert logprobs.dtype == torch.float32 and (logprobs - exact).abs().max() < 2e-6
    if temperature == 0:
        assert torch.equal(tokens, logits.argmax(-1))


def test_greedy_takes_the_largest_of_close_logits():
    """One place of fp32 apart, the larger later: rounded to a tie, the first would be taken."""
    for size in (0.5, 1.0, 3.0, 20.0, 300.0):
        logits = torch.full((1, 40), size)
        logits[0, 33] = size * (1 + 2**-23)
        assert logits[0, 33] > logits[0, 0]
        assert drawn(logits, temperature=0.0)[0].item() == 33


def test_top_k_of_one_is_greedy():
    """Whatever the temperature and the random numbers."""
    logits = spread(300, 60)
    keys = torch.arange(300) * 12345
    tokens, _ = drawn(logits, keys=keys, temperature=5.0, top_k=1)
    assert torch.equal(tokens, logits.argmax(-1))


def test_rows_do_not_touch_each_other():
    """One row of NaN or of other settings' logits must leave the others as they are, bit for bit."""
    logits = spread(16, 100)
    keys = torch.arange(16) << 40
    for choice in ({}, {"top_p": 0.7}, {"temperature": 0.0}):
        whole = drawn(logits, keys=keys, **choice)
        broken = logits.clone()
        broken[5] = torch.nan
        beside = drawn(broken, keys=keys, **choice)
        alone = [drawn(logits[row : row + 1], keys=keys[row : row + 1], **choice) for row in range(16)]
        for part in range(2):
            assert torch.equal(torch.cat([one[part] for one in alone]), whole[part])
            others = torch.arange(16) != 5
            assert torch.equal(whole[part][others], beside[part][others])
        assert beside[1][5].isnan() and 0 <= beside[0][5] < 100


def test_settings_are_read_where_they_lie():
    """A captured step has no other way to learn of new ones: the same tensors, filled again, must count."""
    logits = spread(500, 40)
    keys, positions = torch.arange(500) << 30, torch.zeros(500, dtype=torch.int64)
    params = DeviceParams.on(torch.device("cpu"))
    draw = partial(sampling.draw, keys=keys, positions=positions, params=params, trims=True)
    for choice in ({"top_k": 3}, {"top_k": 30, "temperature": 2.0}, {"top_p": 0.6}, {"min_p": 0.5}, {"top_k": 1}):
        wanted = SamplingParams(**choice)
        params.fill(wanted, 40)
        tokens, _ = draw(logits.clone())
        fresh = DeviceParams.on(torch.device("cpu"))
        fresh.fill(wanted, 40)
        assert torch.equal(tokens, draw(logits.clone(), params=fresh)[0])
        assert kept_by_transformers(logits, **choice).gather(1, tokens[:, None]).all()
