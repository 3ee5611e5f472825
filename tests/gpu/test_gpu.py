"""What only a GPU can show. Skipped without one; needs torch, transformers and peft only."""

from dataclasses import replace

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, load_model
from helpers.grpo.logprobs import policy_logprobs
from helpers.kernels.mxfp4 import dequantize
from helpers.profiles import PROFILES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.essential
def test_mxfp4_is_the_same_on_both_devices():
    blocks = torch.randint(0, 256, (4, 64, 4, 16), dtype=torch.uint8)
    scales = torch.randint(90, 160, (4, 64, 4), dtype=torch.uint8)
    assert torch.equal(dequantize(blocks.cuda(), scales.cuda()).cpu(), dequantize(blocks, scales))


@pytest.mark.essential
def test_embedded_model_samples_and_scores_the_same():
    """The whole path on the GPU: load, decode with a cache, score with a full forward pass."""
    profile = replace(PROFILES["tiny"], needs_gib=1, dense="fp32", experts="fp32")
    model, tokenizer = load_model(profile=profile)
    engine = RolloutEngine(model, tokenizer, max_batch_size=16, max_length=1024)
    completions = engine.generate(["Write matmul.", "Use zip."], SamplingParams(max_new_tokens=100), num_generations=8)
    logprobs, _, mask = policy_logprobs(model, completions)
    for row, completion in enumerate(completions):
        ours = logprobs[row, : len(completion.token_ids)].detach().cpu()
        assert (ours - torch.tensor(completion.logprobs)).abs().max() < 1e-2
    assert mask.sum() == sum(len(c.token_ids) for c in completions)
