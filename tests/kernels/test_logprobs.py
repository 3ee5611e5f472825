import subprocess
import sys
import time

import pytest
import torch

from helpers.kernels import logprobs as module
from helpers.kernels.logprobs import token_logprobs
from helpers.runtime import ROOT

VOCABULARY = 201_088


def naive(hidden, head, tokens, temperature=1.0):
    """All logits at once."""
    scores = ((hidden @ head.T).float() / temperature).log_softmax(-1)
    return scores.gather(-1, tokens[:, None])[:, 0], -(scores.exp() * scores).sum(-1).detach()


def draw(rows, words=50, width=16, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    hidden, head = (torch.randn(n, width, generator=generator) for n in (rows, words))
    return hidden.mul(scale).to(dtype), head.to(dtype), torch.randint(0, words, (rows,), generator=generator)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("chunk", [1, 16, 1000])
def test_tiles_equal_the_whole(rows, temperature, chunk, monkeypatch):
    """Values, entropy and both gradients do not depend on the tiling, in either direction."""
    monkeypatch.setattr(module, "ROWS", 32)
    hidden, head, tokens = draw(rows)
    exact = [tensor.double().requires_grad_() for tensor in (hidden, head)]
    hidden.requires_grad_(), head.requires_grad_()
    ours, entropy = token_logprobs(hidden, head, tokens, temperature=temperature, chunk=chunk)
    scores = (exact[0] @ exact[1].T / temperature).log_softmax(-1)
    theirs = scores.gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), -(scores.exp() * scores).sum(-1).detach(), atol=1e-5, rtol=1e-5)
    direction = torch.randn(rows)
    mine = torch.autograd.grad((ours * direction).sum(), (hidden, head))
    for a, b in zip(mine, torch.autograd.grad((theirs * direction).sum(), exact)):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)


def test_double_precision_is_exact():
    hidden, head, tokens = draw(20, dtype=torch.float64)
    leaves = hidden.requires_grad_(), head.requires_grad_()
    assert torch.autograd.gradcheck(lambda hidden, head: token_logprobs(hidden, head, tokens, chunk=7)[0], leaves)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_head(dtype):
    """Sums and the softmax in fp32: far nearer to the truth than logits rounded to 16 bits."""
    hidden, head, tokens = draw(200, words=3000, width=64, dtype=dtype)
    exact = hidden.double().requires_grad_()
    theirs, their_entropy = naive_double(exact, head.double(), tokens)
    hidden.requires_grad_()
    ours, entropy = token_logprobs(hidden, head, tokens, chunk=512)
    assert ours.dtype == torch.float32 and (ours - theirs).abs().max() < 5e-5
    assert (entropy - their_entropy).abs().max() < 5e-5
    ours.sum().backward()
    theirs.sum().backward()
    assert (hidden.grad.double() - exact.grad).norm() < 2 * torch.finfo(dtype).eps * exact.grad.norm()


def naive_double(hidden, head, tokens):
    scores = (hidden @ head.T).log_softmax(-1)
    return scores.gather(1, tokens[:, None])[:, 0], -(scores.exp() * scores).sum(-1).detach()


def test_large_logits_stay_finite():
    """A moving maximum that starts too low, or is forgotten between tiles, overflows here."""
    hidden, head, tokens = draw(9, scale=300.0)
    ours, entropy = token_logprobs(hidden.requires_grad_(), head, tokens, chunk=8)
    ours.sum().backward()
    assert all(tensor.isfinite().all() for tensor in (ours, entropy, hidden.grad))
    torch.testing.assert_close(ours.detach(), naive(hidden.detach(), head, tokens)[0], atol=1e-3, rtol=1e-5)


def test_entropy_carries_no_gradient_and_no_grad_keeps_nothing():
    hidden, head, tokens = draw(5)
    logprobs, entropy = token_logprobs(hidden.requires_grad_(), head, tokens)
    assert logprobs.requires_grad and not entropy.requires_grad
    with torch.no_grad():
        assert not token_logprobs(hidden, head, tokens)[0].requires_grad


def test_shapes_are_kept_and_checked():
    hidden, head, tokens = draw(6)
    assert token_logprobs(hidden.view(2, 3, 16), head, tokens.view(2, 3))[0].shape == (2, 3)
    for bad in ((hidden, head, tokens[:4]), (hidden, head[:, :9], tokens)):
        with pytest.raises(ValueError, match="hidden must be"):
            token_logprobs(*bad)
    with pytest.raises(ValueError, match="chunk at least 1"):
        token_logprobs(hidden, head, tokens, chunk=0)


PEAK = f"""
import torch
from helpers.kernels.logprobs import token_logprobs
from tests.process import restart_peak, status
hidden, head = torch.randn(2048, 64, requires_grad=True), torch.randn({VOCABULARY}, 64)
tokens = torch.randint(0, {VOCABULARY}, (2048,))
token_logprobs(hidden[:8], head, tokens[:8])[0].sum().backward()  # libraries start
before = status("VmRSS")
restart_peak()
token_logprobs(hidden, head, tokens)[0].sum().backward()
print(status("VmHWM") - before)
"""


def test_memory_at_the_size_of_the_released_model():
    """2,048 tokens of 201,088 words at width 64 in fp32: all logits would be 1.6 GB, three times over."""
    run = subprocess.run([sys.executable, "-c", PEAK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 0.35e9


@pytest.mark.slow
def test_not_slower_than_all_logits_at_once():
    hidden, head, tokens = draw(256, words=VOCABULARY, width=64)
    hidden.requires_grad_()
    times = {naive: [], token_logprobs: []}
    for _ in range(5):
        for function, taken in times.items():
            started = time.perf_counter()
            function(hidden, head, tokens)[0].sum().backward()
            taken.append(time.perf_counter() - started)
    assert min(times[token_logprobs]) < 1.1 * min(times[naive])
