from dataclasses import replace

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, UserError, get_task, load_model
from helpers.grpo.logprobs import policy_logprobs
from helpers.profiles import PROFILES
from helpers.rollout.backends import Drawn


@pytest.fixture
def prompts():
    return get_task("matmul").dataset("monitor", 4, seed=1)["prompt"]


@pytest.fixture
def engine(model, tokenizer):
    return RolloutEngine(model, tokenizer, max_batch_size=8, max_length=1024)


def test_order_groups_and_repeatability(engine, prompts):
    params = SamplingParams(max_completion_length=12, seed=3)
    first = engine.generate(prompts, params, num_generations=3)
    assert [c.prompt_ids for c in first] == [engine.harmony.render(p) for p in prompts for _ in range(3)]
    assert first == engine.generate(prompts, params, num_generations=3)
    other = engine.generate(prompts, SamplingParams(max_completion_length=12, seed=4), num_generations=3)
    assert [c.token_ids for c in first] != [c.token_ids for c in other]


def test_the_low_32_bits_of_a_seed_differ(engine, prompts, monkeypatch):
    """Torch's CPU generator takes no more of a seed: 3 and 4099 drew the same completions once."""
    seeds = []
    manual_seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda seed: (seeds.append(seed), manual_seed(seed))[1])
    engine.max_batch_size = 2
    drawn = {seed: engine.generate(prompts, SamplingParams(max_completion_length=12, seed=seed)) for seed in (3, 4099)}
    assert len(seeds) == 4 and len({seed % 2**32 for seed in seeds}) == 4
    assert [c.token_ids for c in drawn[3]] != [c.token_ids for c in drawn[4099]]


def test_random_state_outside_is_untouched(engine, prompts):
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    engine.generate(prompts[:1], SamplingParams(max_completion_length=2))
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_trainer_agree_on_every_token(engine, model, prompts, temperature):
    """If the two disagree the policy gradient is that of another model."""
    completions = engine.generate(prompts, SamplingParams(temperature, 150, seed=2))
    assert all(len(c.logprobs) == len(c.token_ids) > 0 for c in completions)
    logprobs, entropy, mask = policy_logprobs(model, completions, temperature)
    for row, c in enumerate(completions):
        assert int(mask[row].sum()) == len(c.token_ids)
        difference = logprobs[row, : len(c.token_ids)] - torch.tensor(c.logprobs)
        assert difference.abs().max() < 1e-4 and difference.abs().mean() < 1e-5
    assert (entropy[mask > 0] >= -1e-6).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16", "experts": "mxfp4", "dense": "fp16", "embedding": "host"},
        {"dtype": "bfloat16", "experts": "mxfp4", "dense": "bf16"},
    ],
    ids=["t4", "bf16"],
)
def test_they_agree_in_sixteen_bits(prompts, changes):
    """A gap here is a ratio other than one on the very policy that was sampled."""
    model, tokenizer = load_model(profile=replace(PROFILES["tiny"], **changes))
    completions = RolloutEngine(model, tokenizer, max_batch_size=8, max_length=1024).generate(
        prompts, SamplingParams(1.0, 60, seed=2)
    )
    logprobs, _, mask = policy_logprobs(model, completions)
    sampled = torch.nn.utils.rnn.pad_sequence([torch.tensor(c.logprobs) for c in completions], batch_first=True)
    assert ((logprobs - sampled).abs() * mask).sum() / mask.sum() < 3e-4


def test_greedy_in_a_batch_equals_greedy_alone(engine, prompts):
    """Left padding must not leak into what is decoded."""
    params = SamplingParams(temperature=0, max_completion_length=60)
    together = engine.generate(prompts, params)
    for prompt, completion in zip(prompts, together):
        assert engine.generate([prompt], params)[0].token_ids == completion.token_ids


def test_greedy_takes_the_likeliest_token(engine, model, prompts):
    completion = engine.generate(prompts[:1], SamplingParams(temperature=0, max_completion_length=30))[0]
    ids = torch.tensor([completion.prompt_ids + completion.token_ids])
    with torch.no_grad():
        best = model(ids).logits[0].argmax(-1)[len(completion.prompt_ids) - 1 : -1]
    assert best.tolist() == completion.token_ids


def test_stop_token_is_kept_and_nothing_after_it(engine, prompts):
    for completion in engine.generate(prompts, SamplingParams(max_completion_length=200)):
        stops = [t in engine.harmony.stop_ids for t in completion.token_ids]
        assert not any(stops[:-1]) and stops[-1] == (completion.finish_reason == "stop")


def test_sampled_frequencies_are_the_policy(engine, model, prompts):
    """The sampler must be the policy itself: no top-k, no top-p, no rounding. Chi-square on one token."""
    count, prompt = 1500, prompts[0]
    engine.max_batch_size = count
    # after "assistant" the format is certain; the first free choice is the style, deep in the text
    answer = "<|channel|>analysis<|message|>"
    head = engine.harmony.render(prompt) + engine.harmony.tokenizer(answer, add_special_tokens=False).input_ids
    engine.harmony.render = lambda *_, **__: head
    drawn = engine.generate([prompt], SamplingParams(max_completion_length=1, seed=11), num_generations=count)
    with torch.no_grad():
        wanted = model(torch.tensor([head])).logits[0, -1].softmax(-1) * count
    seen = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=len(wanted))
    likely = wanted > 5
    assert likely.sum() > 3
    rest = torch.tensor([wanted[~likely].sum(), seen[~likely].sum()])
    chi2 = ((seen - wanted)[likely] ** 2 / wanted[likely]).sum() + (rest[1] - rest[0]) ** 2 / rest[0].clamp(min=1)
    from scipy.stats import chi2 as distribution

    assert distribution.sf(chi2.item(), int(likely.sum())) > 1e-4


def test_too_long_is_one_sentence(model, tokenizer, prompts):
    engine = RolloutEngine(model, tokenizer, max_batch_size=8, max_length=100)
    with pytest.raises(UserError, match="exceed the engine's max_length=100"):
        engine.generate(prompts, SamplingParams(max_completion_length=90))


class Scripted:
    """A backend that answers every prompt with given tokens and remembers what it was asked."""

    def __init__(self, token_ids):
        self.token_ids = token_ids
        self.asked = []
        self.synced = 0

    def generate(self, prompt_ids, params, seed):
        self.asked.append((len(prompt_ids), seed))
        return [Drawn(self.token_ids, [-0.5] * len(self.token_ids)) for _ in prompt_ids]

    def sync(self):
        self.synced += 1


def test_another_backend_draws_and_the_engine_parses(tokenizer):
    """The seam for another way to generate: batches, seeds, the cut at the stop token and the channels stay here."""
    text = "<|channel|>final<|message|>yes<|return|>"
    answer = tokenizer(text, add_special_tokens=False).input_ids
    backend = Scripted(answer + [tokenizer.pad_token_id] * 3)
    engine = RolloutEngine(None, tokenizer, max_batch_size=3, max_length=1024, backend=backend)
    completions = engine.generate(["a", "b"], SamplingParams(max_completion_length=16, seed=5), num_generations=2)
    assert [completion.text for completion in completions] == ["yes"] * 4
    assert all(completion.token_ids == answer for completion in completions)
    assert all(len(completion.logprobs) == len(answer) for completion in completions)
    assert [count for count, _ in backend.asked] == [3, 1] and backend.synced == 1
    assert len({seed for _, seed in backend.asked}) == 2
