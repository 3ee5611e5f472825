"""Greedy completions equal those of transformers' `generate` with its own eager attention and growing cache."""

import pytest
import torch

from helpers import load_model
from helpers.rollout.backends import Request
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.sampling import SamplingParams

NEW_TOKENS = 256  # twice the window, so that every ring wraps while decoding
NO_TOKEN = 10**6  # a stop token that is never drawn
CLOSE = 1e-4  # logits that differ by less are a tie: the order of a sum decides


@pytest.fixture(scope="module")
def reference():
    """The embedded model in fp32 with transformers' own attention, apart from the one that the other tests share."""
    model, tokenizer = load_model(profile="tiny", dense="fp32")
    model.set_attn_implementation("eager")
    return model, tokenizer


def mixed_prompts(count, tokenizer, task):
    """Token ids of prompts: of one token, of about 90 as in training, around the window, and beyond a prefill's piece.

    Real ones, cut or repeated to a length, and ones of random tokens, whose greedy continuation is less certain.
    """
    generator = torch.Generator().manual_seed(0)
    texts = task.dataset("monitor", count, seed=4)["prompt"]
    lengths = [1, 2, 5, None, None, None, 100, 127, 128, 129, 130, 200, 255, 257, 300, 400, 512, 513, 514, 640]
    prompts = []
    for number, messages in enumerate(texts):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        length = lengths[number % len(lengths)]
        if length is not None and number // len(lengths) % 2:
            ids = torch.randint(0, 600, (length,), generator=generator).tolist()
        elif length is not None:
            ids = (ids * 10)[-length:]
        prompts.append(ids)
    return prompts


@torch.inference_mode()
def by_transformers(model, pad_token_id, prompts):
    """`(tokens, gaps)` for each prompt: what is drawn, and by how much the likeliest logit exceeds the next."""
    answers = {}
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    for start in range(0, len(order), 24):
        numbers = order[start : start + 24]
        width = max(len(prompts[number]) for number in numbers)
        pads = [width - len(prompts[number]) for number in numbers]
        ids = torch.tensor([[pad_token_id] * pad + prompts[number] for pad, number in zip(pads, numbers)])
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads])
        found = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=NO_TOKEN,
            pad_token_id=pad_token_id, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        best = torch.stack([logits.float().topk(2).values for logits in found.logits], 1)  # [B, T, 2]
        gaps = best[..., 0] - best[..., 1]
        for row, number in enumerate(numbers):
            answers[number] = found.sequences[row, width:].tolist(), gaps[row].tolist()
    return [answers[number] for number in range(len(prompts))]


def compare(reference, task, count, max_batch_size):
    """Return the gap of the reference's logits at the first divergence of each prompt that diverges."""
    model, tokenizer = reference
    prompts = mixed_prompts(count, tokenizer, task)
    backend = CapturedBackend(model, max_batch_size=max_batch_size, max_length=640 + NEW_TOKENS)
    backend.sync()
    requests = [Request(prompt, number) for number, prompt in enumerate(prompts)]
    ours = dict(backend.generate(requests, SamplingParams(NEW_TOKENS, temperature=0.0), []))
    theirs = by_transformers(model, tokenizer.pad_token_id, prompts)
    gaps = []
    for number, (wanted, gap) in enumerate(theirs):
        drawn = ours[number].token_ids
        assert len(drawn) == len(wanted) == NEW_TOKENS
        if drawn != wanted:
            place = next(place for place in range(NEW_TOKENS) if drawn[place] != wanted[place])
            gaps.append(gap[place])
            print(f"prompt {number} of {len(prompts[number])} tokens: diverges at {place}, gap {gap[place]:.1e}")
    return gaps


def test_greedy_equals_transformers(reference, task):
    """Every part at once: prefill in pieces, rotation, sinks, the ring, routing, refilled rows and smaller buckets."""
    gaps = compare(reference, task, 24, max_batch_size=16)
    assert all(gap < CLOSE for gap in gaps), gaps
    assert len(gaps) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("max_batch_size", [5, 64])
def test_greedy_equals_transformers_on_many_prompts(reference, task, max_batch_size):
    """Ten prompts of every length: one sum in another order may turn a tie, but no more than 1 % of the prompts."""
    gaps = compare(reference, task, 200, max_batch_size)
    assert all(gap < CLOSE for gap in gaps), gaps
    assert len(gaps) <= 2
