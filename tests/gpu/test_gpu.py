"""What only a GPU can show. Skipped without one; needs torch, transformers and peft only."""

from dataclasses import replace

import pytest
import torch

from helpers import AttentionMask, RolloutEngine, SamplingParams, load_model, sink_attention
from helpers.grpo.logprobs import policy_logprobs
from helpers.kernels.mxfp4 import dequantize
from helpers.runtime import PROFILES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("window", [None, 128])
def test_attention_against_eager(backend, dtype, window):
    """Compiled FlexAttention and the fused kernels, forward and backward, in each precision."""
    mask = AttentionMask(2, 160, 160, window=window, left_pad=torch.tensor([0, 40], device="cuda"))
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(2, 8, 160, 64), (2, 1, 160, 64), (2, 1, 160, 64), (8,)]
    tensors = [torch.randn(shape, generator=generator, device="cuda") for shape in shapes]
    direction = torch.randn(shapes[0], generator=generator, device="cuda")
    results = []
    for name, kind in ((backend, dtype), ("eager", torch.float32)):
        leaves = [tensor.to(kind).requires_grad_() for tensor in tensors]
        output = sink_attention(*leaves, mask, scale=0.125, backend=name)
        results.append([output, *torch.autograd.grad((output.float() * direction).sum(), leaves)])
    limit = 2e-3 if dtype == torch.float32 else 3e-2
    for ours, theirs in zip(*results):
        assert (ours.float() - theirs).norm() < limit * theirs.norm()


def test_mxfp4_is_the_same_on_both_devices():
    blocks = torch.randint(0, 256, (4, 64, 4, 16), dtype=torch.uint8)
    scales = torch.randint(90, 160, (4, 64, 4), dtype=torch.uint8)
    assert torch.equal(dequantize(blocks.cuda(), scales.cuda()).cpu(), dequantize(blocks, scales))


def test_embedded_model_samples_and_scores_the_same():
    """The whole path on the GPU: load, decode with a cache, score with a full forward pass."""
    profile = replace(PROFILES["tiny"], needs_gib=1, dense="fp32", experts="fp32")
    model, tokenizer = load_model(profile=profile)
    engine = RolloutEngine(model, tokenizer, max_batch_size=16, max_length=1024)
    completions = engine.generate(
        ["Write matmul.", "Use zip."], SamplingParams(max_completion_length=100), num_generations=8
    )
    logprobs, _, mask = policy_logprobs(model, completions)
    for row, completion in enumerate(completions):
        ours = logprobs[row, : len(completion.token_ids)].detach().cpu()
        assert (ours - torch.tensor(completion.logprobs)).abs().max() < 1e-2
    assert mask.sum() == sum(len(c.token_ids) for c in completions)
