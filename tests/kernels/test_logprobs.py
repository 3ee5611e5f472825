import pytest
import torch

from helpers.kernels.logprobs import token_logprobs


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_tiles_equal_the_whole(rows, temperature):
    """Values, entropy and both gradients do not depend on the tiling."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 16, generator=generator, requires_grad=True)
    head = torch.randn(50, 16, generator=generator, requires_grad=True)
    tokens = torch.randint(0, 50, (rows,), generator=generator)
    ours, entropy = token_logprobs(hidden, head, tokens, temperature=temperature, chunk=16)
    scores = (hidden @ head.T / temperature).log_softmax(-1)
    torch.testing.assert_close(ours, scores.gather(1, tokens[:, None])[:, 0])
    torch.testing.assert_close(entropy, -(scores.exp() * scores).sum(-1).detach())
    direction = torch.randn(rows, generator=generator)
    mine = torch.autograd.grad((ours * direction).sum(), (hidden, head))
    theirs = torch.autograd.grad((scores.gather(1, tokens[:, None])[:, 0] * direction).sum(), (hidden, head))
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b)
