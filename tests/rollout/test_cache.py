"""Where keys and values lie, and that every way to prefill a prompt leaves the same there."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.rollout.backends import Request, captured
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.cache import LayerCache, RolloutCache
from helpers.rollout.decoder import prefill
from helpers.rollout.sampling import SamplingParams
from helpers.rollout.weights import read_weights

LENGTH = 1000


def layer(window, length=300):
    """The buffers of one row, with a head of one number."""
    capacity = min(window or length, length)
    shape = (1, 1, 1 + capacity, 1)
    return LayerCache(torch.zeros(shape), torch.zeros(shape), capacity if window else None)


def cache_for(model, rows=4):
    return RolloutCache(model.config, rows, LENGTH, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("window", [None, 1, 2, 7, 128, 300, 500])
def test_a_ring_holds_the_last_window(window):
    """The docstring's formula: the mask of a step hides places by it, so a slip shows the future or hides the past."""
    buffers = layer(window)
    span = buffers.window or buffers.capacity
    for position in range(300):
        buffers.keys[0, 0, buffers.places(torch.tensor(position))] = position
        held = buffers.keys[0, 0, :, 0].tolist()
        assert held[0] == 0  # the sink's
        visible = range(min(position + 1, span))
        if window is None:
            assert held[1 : position + 2] == list(range(position + 1))
        else:
            assert held[1 : 1 + len(visible)] == [position - (position - j) % span for j in visible]
        assert sorted(held[1 : 1 + len(visible)]) == list(range(max(0, position - span + 1), position + 1))


@given(st.sampled_from([None, 1, 2, 7, 64, 128]), st.integers(0, 290), st.integers(0, 128))
def test_places_of_a_range_are_those_of_its_positions(window, start, count):
    """A slice across the seam of the ring would write one piece over the other."""
    buffers = layer(window)
    positions = range(start, min(start + min(count, window or count), 300))
    found = buffers.places_of(positions)
    if isinstance(found, slice):
        found = list(range(found.start, found.stop))
    assert found == buffers.places(torch.tensor(list(positions), dtype=torch.int64)).tolist()


def test_sliding_layers_keep_no_more_than_their_window(model):
    """Full buffers everywhere are twice the memory, on a GPU the difference between fitting and not."""
    cache = cache_for(model)
    kinds = model.config.layer_types
    window = model.config.sliding_window
    assert [buffers.window for buffers in cache.layers] == [window if "sliding" in kind else None for kind in kinds]
    assert [buffers.capacity for buffers in cache.layers] == [window if "sliding" in kind else LENGTH for kind in kinds]
    places = sum(1 + buffers.capacity for buffers in cache.layers)
    assert cache.nbytes == 2 * 4 * places * (4 + 1) * model.config.num_key_value_heads * model.config.head_dim
    assert cache.prompt_row == 4  # behind the rows that are decoded


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 500])
def test_copying_a_row(model, length):
    """The rows of a group take over their prompt's; what is copied too much belongs to somebody else."""
    cache = cache_for(model)
    for number, buffer in enumerate(cache.buffers()):
        buffer.copy_(torch.randn(buffer.shape, generator=torch.Generator().manual_seed(number)))
    before = [buffer.clone() for buffer in cache.buffers()]
    cache.copy_row(1, [3, 4], length)
    for layer, (keys, values) in enumerate(zip(before[::2], before[1::2])):
        filled = 1 + min(length, cache.layers[layer].capacity)
        for now, old in ((cache.layers[layer].keys, keys), (cache.layers[layer].values, values)):
            for target in (3, 4):
                assert torch.equal(now[target, :, :filled], old[1, :, :filled])
                assert torch.equal(now[target, :, filled:], old[target, :, filled:])
            assert torch.equal(now[:3], old[:3])


@torch.inference_mode()
def prefilled(model, prompts, pieces):
    """The cache after prefilling prompts in rows 1, 2, ..., together, cut at the ends of `pieces`."""
    weights = read_weights(model, LENGTH)
    cache = cache_for(model)
    lengths = [len(prompt) for prompt in prompts]
    widest = max(lengths)
    tokens = torch.tensor([prompt + [7] * (widest - len(prompt)) for prompt in prompts])
    start = 0
    while start < widest:
        stop = start + pieces
        prefill(weights, cache, list(range(1, 1 + len(prompts))), tokens[:, start:stop], lengths, start)
        start = stop
    return cache


def held(cache, row, length):
    """Keys and values of the first `length` positions of a row, layer by layer."""
    parts = []
    for buffers in cache.layers:
        places = buffers.filled(length)
        parts += [buffers.keys[row, :, :places], buffers.values[row, :, :places]]
    return parts


def assert_alike(ours, theirs):
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        scale = other.abs().max().clamp(min=1)
        assert (one - other).abs().max() < 2e-5 * scale, f"buffer {number}"


@pytest.mark.parametrize("length", [1, 60, 127, 128, 129, 256, 700])
def test_prefill_leaves_what_the_model_computes(model, random_ids, length):
    """Keys after the rotation, values, in the layer and place where the decoding step looks for them."""
    prompt = random_ids(length)
    with torch.inference_mode():
        theirs = model(torch.tensor([prompt]), use_cache=True).past_key_values
    cache = prefilled(model, [prompt], LENGTH)
    for buffers, reference in zip(cache.layers, theirs.layers, strict=True):
        known = reference.keys.shape[2]  # transformers keeps one less than the window
        positions = torch.arange(length - known, length)
        places = buffers.places(positions)
        assert known >= min(length, 127)
        assert_alike(
            [buffers.keys[1, :, places], buffers.values[1, :, places]], [reference.keys[0], reference.values[0]]
        )
        assert not buffers.keys[1, :, 0].any() and not buffers.values[1, :, 0].any()  # the sink's


@pytest.mark.parametrize("pieces", [1, 7, 50, 127, 128, 129, 300, 512])
def test_in_pieces_as_in_one(model, random_ids, pieces):
    """A token near a cut must see the window before it, and the ring must keep what the next piece will see."""
    prompt = random_ids(40 if pieces == 1 else 700)
    whole = prefilled(model, [prompt], LENGTH)
    cut = prefilled(model, [prompt], pieces)
    assert_alike(held(cut, 1, len(prompt)), held(whole, 1, len(prompt)))


@pytest.mark.parametrize("pieces", [LENGTH, 100])
def test_together_as_alone(model, random_ids, pieces):
    """Padding behind a shorter prompt must reach neither its row nor the other's, nor wrap around its ring."""
    prompts = [random_ids(length, seed=length) for length in (700, 3, 140, 128)]
    together = prefilled(model, prompts, pieces)
    for row, prompt in enumerate(prompts, 1):
        alone = prefilled(model, [prompt], LENGTH)
        assert_alike(held(together, row, len(prompt)), held(alone, 1, len(prompt)))
    for buffers in together.layers:
        assert not buffers.keys[0].any()  # a row that was not asked for
        assert not buffers.keys[2, :, 1 + 3 :].any()  # behind a prompt of three tokens


@pytest.mark.parametrize("most", [1, 64, 4096])
def test_how_a_prompt_is_cut_changes_no_completion(model, random_ids, monkeypatch, most):
    """Through the backend: prompts in pieces of one token, several prompts in one piece, one of a single token."""
    lengths = [1, 200, 40, 41, 1] if most == 1 else [1, 600, 40, 41, 300, 1]
    requests = [Request(random_ids(length, seed=number), number) for number, length in enumerate(lengths)]
    params = SamplingParams(20, temperature=0.0)

    def completions():
        backend = CapturedBackend(model, max_batch_size=4, max_length=700)
        backend.sync()
        return dict(backend.generate(requests, params, []))

    usual = completions()
    monkeypatch.setattr(captured, "PREFILL_TOKENS", most)
    other = completions()
    assert [other[number].token_ids for number in range(len(lengths))] == [
        usual[number].token_ids for number in range(len(lengths))
    ]


def test_the_sinks_place_stays_empty(model, random_ids):
    """A key there changes the sink's share of every later query: rings wrap to place 1, not to place 0."""
    backend = CapturedBackend(model, max_batch_size=2, max_length=400)
    backend.sync()
    requests = [Request(random_ids(length, seed=length), length) for length in (1, 128, 129, 250)]
    for _ in backend.generate(requests, SamplingParams(140), []):
        pass
    for buffers in backend.cache.layers:
        assert not buffers.keys[:, :, 0].any() and not buffers.values[:, :, 0].any()
        assert buffers.keys[:2, :, 1:].any(-1).all(1).any(0).any()
