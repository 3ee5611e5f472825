"""The engine: prompts in, completions out, with either backend and with any other."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from helpers import RolloutEngine, SamplingParams, get_task
from helpers.rollout.backends import Drawn
from helpers.rollout.backends.transformers import TransformersBackend
from helpers.tasks.matmul.names import parse_signature
from helpers.tasks.matmul.prompts import WISHES
from helpers.tasks.matmul.statements import reading

BOTH = pytest.mark.parametrize("backend", ["captured", "transformers"])


@BOTH
def test_order_groups_and_repeatability(make_engine, prompts, backend):
    engine = make_engine(backend=backend)
    params = SamplingParams(60, seed=3)
    first = engine.generate(prompts, params, num_generations=3)
    assert [c.prompt_ids for c in first] == [engine.harmony.render(p) for p in prompts for _ in range(3)]
    assert first == engine.generate(prompts, params, num_generations=3)
    other = engine.generate(prompts, SamplingParams(60, seed=4), num_generations=3)
    assert [c.token_ids for c in first] != [c.token_ids for c in other]


@BOTH
def test_every_bit_of_a_seed_counts(make_engine, prompts, backend):
    """Torch's CPU generator takes 32 bits of a seed: 3 and 4099 drew the same completions once."""
    engine = make_engine(backend=backend, max_batch_size=2)
    params = SamplingParams(20, 1.5)
    seeds = (3, 4099, 3 + 2**32, 3 + 2**64, -3)
    drawn = [engine.generate(prompts, replace(params, seed=seed)) for seed in seeds]
    assert len({str([c.token_ids for c in completions]) for completions in drawn}) == len(seeds)


def test_batches_of_the_other_backend_have_seeds_of_their_own(make_engine, prompts, monkeypatch):
    """Its completions share one stream a batch: the same one in every batch would draw the same luck again."""
    seeds = []
    manual_seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda seed: (seeds.append(seed), manual_seed(seed))[1])
    engine = make_engine(backend="transformers", max_batch_size=2)
    for seed in (3, 4099):
        engine.generate(prompts, SamplingParams(2, seed=seed))
    assert len(seeds) == 4 and len({seed % 2**32 for seed in seeds}) == 4


@BOTH
def test_random_state_outside_is_untouched(make_engine, prompts, backend):
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    make_engine(backend=backend).generate(prompts[:1], SamplingParams(2))
    assert torch.equal(torch.rand(1), wanted)


@BOTH
def test_greedy_in_a_batch_equals_greedy_alone(make_engine, prompts, backend):
    """Neither left padding nor a neighbour's cache must leak into what is decoded."""
    engine = make_engine(backend=backend)
    params = SamplingParams(60, temperature=0)
    together = engine.generate(prompts, params)
    for prompt, completion in zip(prompts, together):
        assert engine.generate([prompt], params)[0].token_ids == completion.token_ids


@BOTH
@pytest.mark.parametrize("choice", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}], ids=str)
def test_greedy_takes_the_likeliest_token(make_engine, model, prompts, backend, choice):
    """Temperature 0, and every way to leave one token: the settings must reach the draw, in both backends."""
    completion = make_engine(backend=backend).generate(prompts[:1], SamplingParams(30, **choice))[0]
    ids = torch.tensor([completion.prompt_ids + completion.token_ids])
    with torch.no_grad():
        best = model(ids).logits[0].argmax(-1)[len(completion.prompt_ids) - 1 : -1]
    assert best.tolist() == completion.token_ids


@BOTH
def test_stop_token_is_kept_and_nothing_after_it(make_engine, prompts, backend):
    """The trainer must see the decision to stop, and no token that was never read."""
    engine = make_engine(backend=backend)
    reasons = set()
    for completion in engine.generate(prompts, SamplingParams(110, seed=1), num_generations=2):
        stops = [token in engine.harmony.stop_ids for token in completion.token_ids]
        assert not any(stops[:-1]) and stops[-1] == (completion.finish_reason == "stop")
        assert stops[-1] or len(completion.token_ids) == 110
        reasons.add(completion.finish_reason)
    assert reasons == {"stop", "length"}


@BOTH
def test_stop_tokens_of_the_caller(make_engine, prompts, backend):
    """They end a completion beside the format's own, as the same tokens would have gone on without them."""
    engine = make_engine(backend=backend)
    params = SamplingParams(60, temperature=0)
    whole = engine.generate(prompts, params)
    stop = whole[0].token_ids[20]
    cut = engine.generate(prompts, replace(params, stop_token_ids=[stop]))
    for one, other in zip(cut, whole):
        end = other.token_ids.index(stop) + 1 if stop in other.token_ids else len(other.token_ids)
        assert one.token_ids == other.token_ids[:end] and len(one.logprobs) == end
        assert one.finish_reason == ("stop" if stop in other.token_ids else other.finish_reason)
    assert cut[0].token_ids[-1] == stop and len(cut[0].token_ids) <= 21
    again = engine.generate(prompts, params)  # the next rollout has no such token
    assert [c.token_ids for c in again] == [c.token_ids for c in whole]


@pytest.mark.parametrize(("backend", "temperature"), [("captured", 1.0), ("captured", 1.5), ("transformers", 1.0)])
def test_sampled_frequencies_are_the_policy(make_engine, model, backend, temperature):
    """The sampler must be the policy itself: no top-k, no top-p, no rounding. Chi-square on one token."""
    count = 1500 if backend == "captured" else 500
    engine = make_engine(backend=backend, max_batch_size=64, max_length=200)
    # The format and the reading of the contract are certain; the first free choice is the style of the program.
    wishes = [wish for wish in WISHES if wish]
    rows = get_task("matmul").dataset("monitor", 60, seed=1)
    row = next(row for row in rows if not any(wish in row["prompt"][0]["content"] for wish in wishes))
    answer = f"<|channel|>analysis<|message|>{parse_signature(row['signature']).rename(reading(row['contract']))}"
    ids = engine.harmony.tokenizer(answer, add_special_tokens=False).input_ids
    head = engine.harmony.render(row["prompt"]) + ids
    engine.harmony.render = lambda *_, **__: head
    drawn = engine.generate([row["prompt"]], SamplingParams(1, temperature, seed=11), num_generations=count)
    with torch.no_grad():
        wanted = (model(torch.tensor([head])).logits[0, -1] / temperature).softmax(-1) * count
    seen = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=len(wanted))
    likely = wanted > 5
    assert likely.sum() > 3
    rest = torch.tensor([wanted[~likely].sum(), seen[~likely].sum()])
    chi2 = ((seen - wanted)[likely] ** 2 / wanted[likely]).sum() + (rest[1] - rest[0]) ** 2 / rest[0].clamp(min=1)
    assert stats.chi2.sf(chi2.item(), int(likely.sum())) > 1e-4


class Scripted:
    """A backend that answers every prompt with given tokens, the last prompt first, and remembers what it was asked."""

    def __init__(self, token_ids):
        self.token_ids = token_ids
        self.asked = []
        self.calls = []

    def generate(self, requests, params, stop_ids):
        self.calls.append("generate")
        self.asked.append((requests, params, stop_ids))
        for number in reversed(range(len(requests))):
            yield number, Drawn(self.token_ids, [-0.5 - number] * len(self.token_ids))

    def sync(self):
        self.calls.append("sync")


def test_another_backend_draws_and_the_engine_parses(tokenizer):
    """The seam for another way to generate: keys, the cut at the stop token, the order and the channels stay here."""
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>"
    answer = tokenizer(text, add_special_tokens=False).input_ids
    backend = Scripted(answer + [tokenizer.pad_token_id] * 3)
    engine = RolloutEngine(None, tokenizer, max_batch_size=3, max_length=1024, backend=backend)
    params = SamplingParams(16, seed=5, stop_token_ids=[7])
    completions = engine.generate(["a", "b"], params, num_generations=2)
    assert [(one.text, one.thinking, one.finish_reason) for one in completions] == [("yes", "hm", "stop")] * 4
    assert [one.prompt_ids for one in completions] == [engine.harmony.render(p) for p in "aabb"]
    for number, completion in enumerate(completions):
        assert completion.token_ids == answer and completion.logprobs == [-0.5 - number] * len(answer)
    [(requests, asked, stop_ids)] = backend.asked
    assert asked == params and backend.calls == ["sync", "generate"]
    assert [request.prompt_ids for request in requests] == [one.prompt_ids for one in completions]
    assert len({request.key for request in requests}) == 4
    assert set(stop_ids) == {*engine.harmony.stop_ids, 7}


def test_what_stands_behind_a_stop_token_is_not_looked_at(tokenizer):
    """A backend may give padding there, with any log-probability: an error would blame the model for it."""
    backend = Scripted([5, 6, 7, 0, 0])
    backend.generate = lambda *_: iter([(0, Drawn([5, 6, 7, 0, 0], [-1.0, -2.0, -3.0, float("nan"), float("nan")]))])
    engine = RolloutEngine(None, tokenizer, max_batch_size=3, max_length=1024, backend=backend)
    [completion] = engine.generate(["a"], SamplingParams(5, stop_token_ids=(7,)))
    assert completion.token_ids == [5, 6, 7] and completion.logprobs == [-1.0, -2.0, -3.0]


def test_settings_of_the_template_reach_the_prompt(make_engine, prompts):
    """Prompts that are measured without them are too long by the time they are drawn from."""
    low, high = (make_engine(chat_template_kwargs={"reasoning_effort": effort}) for effort in ("low", "high"))
    completions = [engine.generate(prompts[:1], SamplingParams(1))[0] for engine in (low, high)]
    assert completions[0].prompt_ids != completions[1].prompt_ids
    for engine, completion in zip((low, high), completions):
        assert engine.prompt_length(prompts[0]) == len(completion.prompt_ids)


def test_the_other_backend_leaves_no_setting_out(model, tokenizer, prompts):
    """transformers reads what is not said from the model's own generation settings, which may trim."""
    asked = {}

    def generate(**settings):
        asked.update(settings)
        raise KeyboardInterrupt

    backend = TransformersBackend(model, tokenizer, max_batch_size=4)
    engine = RolloutEngine(model, tokenizer, max_batch_size=4, max_length=1024, backend=backend)
    saved, model.generate = model.generate, generate
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.generate(prompts[:1], SamplingParams(7, 0.5))
    finally:
        del model.generate
    assert saved == model.generate
    assert asked["do_sample"] and asked["max_new_tokens"] == 7
    assert asked["temperature"] == asked["top_p"] == 1.0 and asked["top_k"] == 0 and not asked["min_p"]
