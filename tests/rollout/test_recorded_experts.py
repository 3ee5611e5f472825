"""The experts that the sampler records are those that the model chooses for the same tokens."""

import json

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, UserError
from helpers.grpo.batch import Generation, Group
from helpers.grpo.logprobs import recorded_experts
from helpers.rollout.backends import Drawn, Request, captured
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.completion import Completion
from helpers.rollout.decoder import prefill

NEVER = 10**9
# of the router's logits: where two experts are closer, rounding decides, in another order of the sums in another way
TIE = 1e-4


@torch.no_grad()
def assert_as_the_model_chooses(model, token_ids, experts):
    """Compare recorded experts, uint8 [T - 1, layers, K], with a full forward pass of T tokens by transformers."""
    layers, top_k = model.config.num_hidden_layers, model.config.num_experts_per_tok
    assert experts.dtype == torch.uint8 and experts.device.type == "cpu"
    assert experts.shape == (len(token_ids) - 1, layers, top_k)
    if len(token_ids) == 1:
        return
    logits = model(torch.tensor([token_ids[:-1]]), output_router_logits=True).router_logits
    logits = torch.stack([layer.view(len(token_ids) - 1, -1) for layer in logits], 1)  # [T - 1, layers, E]
    best = logits.topk(top_k + 1)
    is_tie = best.values[..., top_k - 1] - best.values[..., top_k] < TIE
    assert is_tie.float().mean() < 0.01
    wanted = best.indices[..., :top_k].sort(-1).values
    is_same = (experts.long().sort(-1).values == wanted).all(-1)
    assert (is_same | is_tie).all()


@pytest.mark.parametrize("uses", [0, NEVER], ids=["traced", "eager"])
@pytest.mark.parametrize("max_batch_size", [1, 5, 12])
def test_recorded_as_the_model_chooses(model, make_engine, prompts, monkeypatch, max_batch_size, uses):
    """Another row's experts, or those of a token beside it, would be replayed as if the sampler had chosen them.

    Nor may recording change what is drawn. A traced step leaves out a write to a buffer that it was not told of.
    """
    monkeypatch.setattr(captured, "USES_BEFORE_TRACE", uses)
    params = SamplingParams(40, 1.3, seed=3)
    engine = make_engine(max_batch_size=max_batch_size, record_experts=True)
    completions = engine.generate(prompts, params, num_generations=3)
    assert (engine.backend.captures > 0) == (uses == 0)
    for completion in completions:
        assert_as_the_model_chooses(model, completion.prompt_ids + completion.token_ids, completion.experts)
    plain = make_engine(max_batch_size=max_batch_size).generate(prompts, params, num_generations=3)
    assert completions == plain  # tokens, log-probabilities and texts; experts are not compared
    assert all(completion.experts is None for completion in plain)


def test_refilled_rows_moved_rows_and_shared_prompts(model, random_ids, monkeypatch):
    """A row has experts of the request before it, of the row it moved from, or of the prompt that another row read."""
    lengths = [1, 150, 3, 40, 1, 90, 2, 120]  # more than is prefilled at once, and nothing to prefill
    prompts = [random_ids(length, seed=number) for number, length in enumerate(lengths)]
    order = [prompt for prompt in prompts for _ in range(4)]
    requests = [Request(prompt, number) for number, prompt in enumerate(order)]
    stops = list(range(0, 600, 30))
    copies = []
    pieces = []
    copy_row = captured.RolloutCache.copy_row

    def watched_copy(cache, source, targets, length):
        copies.extend((source, target) for target in targets)
        copy_row(cache, source, targets, length)

    def watched_prefill(weights, cache, rows, tokens, lengths, start):
        pieces.append(start)
        prefill(weights, cache, rows, tokens, lengths, start)

    monkeypatch.setattr(captured.RolloutCache, "copy_row", watched_copy)
    monkeypatch.setattr(captured, "prefill", watched_prefill)
    monkeypatch.setattr(captured, "PREFILL_TOKENS", 64)
    backend = CapturedBackend(model, max_batch_size=6, max_length=300, record_experts=True)
    backend.sync()
    found = dict(backend.generate(requests, SamplingParams(100, 1.3), stops))

    assert max(pieces) == 128
    sources = {source for source, _ in copies}
    targets = {target for _, target in copies}
    prompt_row = backend.cache.prompt_row
    assert prompt_row in sources and prompt_row in targets and len(sources) > 3
    assert len({len(drawn.token_ids) for drawn in found.values()}) > 5
    for number, request in enumerate(requests):
        drawn = found[number]
        assert_as_the_model_chooses(model, request.prompt_ids + drawn.token_ids, drawn.experts)


def test_what_was_handed_out_stays(make_engine, prompts):
    """A view of the buffer shows the experts of the next rollout by the time the trainer looks."""
    engine = make_engine(record_experts=True)
    completions = engine.generate(prompts, SamplingParams(20))
    before = [completion.experts.clone() for completion in completions]
    engine.generate(prompts[::-1], SamplingParams(20, 2.0, seed=1))
    assert all(torch.equal(completion.experts, kept) for completion, kept in zip(completions, before))


def test_nothing_is_kept_unless_asked(make_engine, prompts):
    """The buffer is memory, and the write is kernels, that a run without replay has no use for."""
    plain = make_engine()
    recording = make_engine(record_experts=True)
    for engine in (plain, recording):
        engine.generate(prompts[:1], SamplingParams(2))
    assert plain.backend.cache.experts is None
    config = plain.backend.model.config
    bytes_of_a_token = config.num_hidden_layers * config.num_experts_per_tok
    added = recording.backend.cache.nbytes - plain.backend.cache.nbytes
    assert added == (8 + 1) * 1024 * bytes_of_a_token


class Scripted:
    """A backend that answers every prompt with the same tokens, and any experts."""

    def __init__(self, token_ids, experts):
        self.drawn = Drawn(token_ids, [-1.0] * len(token_ids), experts)

    def generate(self, requests, params, stop_ids):
        return ((number, self.drawn) for number in range(len(requests)))

    def sync(self):
        pass


def test_experts_of_another_backend_end_where_its_tokens_end(tokenizer):
    """What it drew behind the stop token is cut off, so its experts belong to no token."""
    engine = RolloutEngine(
        None, tokenizer, max_batch_size=1, max_length=1024, backend=Scripted([], None), record_experts=True
    )
    prompt_length = engine.prompt_length("a")
    experts = torch.randint(0, 8, (prompt_length + 4, 4, 2)).byte()
    engine.backend = Scripted([5, 6, 7, 0, 0], experts)
    [completion] = engine.generate(["a"], SamplingParams(5, stop_token_ids=(7,)))
    assert completion.token_ids == [5, 6, 7]
    assert torch.equal(completion.experts, experts[: prompt_length + 2])
    engine.backend = Scripted([5, 6, 7, 0, 0], None)
    [completion] = engine.generate(["a"], SamplingParams(5, stop_token_ids=(7,)))
    assert completion.experts is None


def test_a_backend_that_does_not_record_says_which_does(make_engine):
    """The trainer would replay nothing, and nobody would know."""
    with pytest.raises(UserError, match='does not record the experts .* backend="captured"'):
        make_engine(backend="transformers", record_experts=True)


def test_more_experts_than_a_byte_counts(model, monkeypatch):
    """Expert 256 would be replayed as expert 0."""
    monkeypatch.setattr(model.config, "num_local_experts", 257)
    with pytest.raises(UserError, match="up to 256 experts, and this model has 257"):
        CapturedBackend(model, max_batch_size=1, max_length=10, record_experts=True)


def test_through_json(make_engine, prompts):
    """A resumed run replays what the interrupted one recorded, and reads what was saved without experts."""
    completions = make_engine(record_experts=True).generate(prompts[:2], SamplingParams(5))
    completions += make_engine().generate(prompts[:2], SamplingParams(5))
    generation = Generation([Group("a", completions)], torch.zeros(4, 1, dtype=torch.float64))
    text = json.dumps(generation.to_dict())
    found = Generation.from_dict(json.loads(text)).completions
    assert found == completions
    for one, other in zip(found[:2], completions[:2]):
        assert one.experts.dtype == torch.uint8 and torch.equal(one.experts, other.experts)
    for one, other in zip(found[2:], completions[2:]):
        assert one.experts is None
        assert set(other.to_dict()) == set(vars(other)) - {"experts"}
    assert json.dumps(Generation.from_dict(json.loads(text)).to_dict()) == text


def test_where_the_trainer_has_the_tokens():
    """A record that is shifted by one token replays the experts of the token before."""
    short = torch.tensor([[[1, 2]], [[3, 4]], [[5, 6]]], dtype=torch.uint8)  # two and two tokens, one layer
    long = torch.full((4, 1, 2), 255, dtype=torch.uint8)
    completions = [
        Completion([9, 9], [9, 9], [], "", "", "stop", short),
        Completion([9, 9], [9, 9, 9], [], "", "", "stop", long),
        Completion([9], [9], [], "", "", "stop"),
    ]
    found = recorded_experts(completions)
    assert found.dtype == torch.int64 and found.shape == (3, 5, 1, 2)
    assert found[0].tolist() == [[[1, 2]], [[3, 4]], [[5, 6]], [[-1, -1]], [[-1, -1]]]
    assert found[1].tolist() == [[[255, 255]]] * 4 + [[[-1, -1]]]
    assert (found[2] == -1).all()
    assert recorded_experts(completions[2:]) is None
