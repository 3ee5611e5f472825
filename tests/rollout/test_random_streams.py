"""The random numbers: what they are, that they are uniform, and that no two completions share theirs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.evaluation import records
from helpers.rollout.random_streams import stream_key, uniforms
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import random_seed
from tests.grpo.small import trainer_in

WORD = (1 << 64) - 1


def split_mix(key, place):
    """Output `place` of SplitMix64 that starts at `key`, as the paper writes it, in Python's whole numbers."""
    state = (key + place * 0x9E3779B97F4A7C15) & WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & WORD
    return state ^ (state >> 31)


def drawn(keys, places):
    """`uniforms` for whole numbers in Python."""
    return uniforms(torch.tensor(keys), torch.tensor(places))


def p_value(numbers, cells=256):
    """Of a chi-square test that numbers are uniform in [0, 1)."""
    return stats.chisquare(torch.histc(numbers, cells, 0, 1).numpy()).pvalue


def test_the_reference_is_split_mix_64():
    """The generator's published first outputs from 1234567: a slip in both implementations would go unseen."""
    assert [split_mix(1234567, place) for place in range(1, 6)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**20)), min_size=1, max_size=20))
def test_equal_to_whole_numbers(pairs):
    """Signed shifts, or a product that does not wrap, give numbers that look random and are not the generator's."""
    keys, places = zip(*pairs)
    exact = [(split_mix(key, place) >> 11) * 2.0**-53 for key, place in pairs]
    assert drawn(keys, places).tolist() == exact


@pytest.mark.parametrize("key", [0, 1, 2**31, 2**32, 2**62, 2**63 - 1])
def test_equal_to_whole_numbers_at_the_ends(key):
    """The largest keys make the state wrap at the first place."""
    places = [0, 1, 2, 127, 128, 131072]
    exact = [(split_mix(key, place) >> 11) * 2.0**-53 for place in places]
    assert drawn([key] * len(places), places).tolist() == exact


@pytest.mark.parametrize("along", ["places", "keys", "counted keys"])
def test_uniform(along):
    """Along one completion, and across completions at one place: a group whose first tokens hang together is no group.

    Keys are hashes; the hash of the generator must do with keys that are counted too.
    """
    count = 100_000
    if along == "places":
        numbers = uniforms(torch.full((count,), stream_key(0, [1, 2], 0)), torch.arange(count))
    elif along == "keys":
        keys = torch.tensor([stream_key(0, [1, 2], generation) for generation in range(count)])
        numbers = uniforms(keys, torch.full((count,), 90))
    else:
        numbers = uniforms(torch.arange(count), torch.full((count,), 90))
    assert numbers.dtype == torch.float64 and numbers.min() >= 0 and numbers.max() < 1
    assert torch.equal(numbers * 2**53, (numbers * 2**53).round())
    assert abs(float(numbers.mean()) - 0.5) < 4 * (1 / 12 / count) ** 0.5
    assert p_value(numbers) > 1e-4
    assert p_value((numbers * 2**20).frac()) > 1e-4  # the bits behind the first twenty
    neighbours = torch.stack([numbers[:-1], numbers[1:]])
    assert abs(float(torch.corrcoef(neighbours)[0, 1])) < 4 / count**0.5


def test_every_part_of_a_key_counts():
    """Two completions with one key are copies: the trainer would compare a group with itself."""
    base = (7, (1, 2, 3), 0)
    others = [(8, (1, 2, 3), 0), (7, (1, 2, 4), 0), (7, (1, 2), 0), (7, (1, 2, 3), 1), (7, (1, 23), 0), (-7, *base[1:])]
    keys = {stream_key(*parts) for parts in (base, *others)}
    assert len(keys) == 7 and all(0 <= key < 2**63 for key in keys)
    assert stream_key(7, [1, 2, 3], 0) == stream_key(*base)


class Seen(Exception):
    """Raised with the settings that an engine was asked for."""


def test_training_and_evaluation_share_no_stream(tmp_path, monkeypatch):
    """10,000 steps of 100 runs, and evaluations of 100 seeds: a stream that comes again is a sample drawn twice.

    Once the seeds were numbers of which torch's generator took 32 bits, and 3 and 4099 drew the same completions.
    """
    trainer = trainer_in(tmp_path, records_of_prompts(), seed=5)

    def ask(prompts, params, *_, **__):
        raise Seen(params)

    trainer.engine.generate = ask
    for step in (0, 3):
        with pytest.raises(Seen) as seen:
            trainer.generate(step)
        assert seen.value.args[0].seed == random_seed("training", 5, step)

    training = {random_seed("training", seed, step) for seed in range(100) for step in range(100)}
    evaluation = []
    monkeypatch.setattr(records, "sample_records", lambda engine, task, dataset, params, name: params.seed)
    for seed in range(100):
        for split in ("monitor", "confirm"):
            params = SamplingParams(seed=seed)
            evaluation += records.records_at(records.TEMPERATURES, None, None, None, params, "base", split).values()
    assert len(training) == 10_000 and len(evaluation) == 100 * 2 * len(records.TEMPERATURES)

    prompt = list(range(80))
    keys = [stream_key(seed, prompt, 0) for seed in (*training, *evaluation)]
    assert len(set(keys)) == 10_000 + len(evaluation)


def records_of_prompts():
    """A data set for a trainer that never generates."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [f"question {number}" for number in range(8)]})
