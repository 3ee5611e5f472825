"""Routers that are watched stay as they are; replayed experts are those of the sampler, with the trainer's gradient."""

from contextlib import contextmanager

import pytest
import torch
from transformers.models.gpt_oss.modeling_gpt_oss import load_balancing_loss_func

from helpers import RolloutEngine, SamplingParams, get_task
from helpers.grpo.logprobs import policy_logprobs, recorded_experts
from helpers.model.lora import checkpoint_layers
from helpers.model.routing import Routing, count_flips, load_balancing_loss, watched_routers
from tests.rollout.test_policy import differences, load

# of fp32 between sampler and trainer, as in tests/rollout/test_policy.py
ROUNDING = 5e-5


@pytest.fixture(scope="module")
def adapted():
    """An adapted model of its own, and completions of it with the sampler's experts, of several lengths."""
    model, tokenizer = load()
    engine = RolloutEngine(model, tokenizer, max_batch_size=8, max_length=1024, record_experts=True)
    prompts = get_task("matmul").dataset("monitor", 3, seed=1)["prompt"]
    completions = engine.generate(prompts, SamplingParams(30, 1.0), num_generations=2)
    assert len({len(one.prompt_ids) + len(one.token_ids) for one in completions}) > 1
    return model, completions


def routers_of(model):
    return [layer.mlp.router for layer in model.get_base_model().model.layers]


def hooks_of(model):
    """The forward hooks of every router; transformers leaves some of its own there."""
    return [list(router._forward_hooks) for router in routers_of(model)]


def rates(flips):
    """The shares of the choices and of the tokens that are flipped."""
    return flips.flipped / flips.choices, flips.flipped_tokens / flips.tokens


def token_mask(completions):
    """1 where a padded batch has a token, fp32 [B, S]."""
    lengths = [len(completion.prompt_ids) + len(completion.token_ids) for completion in completions]
    return torch.nn.utils.rnn.pad_sequence([torch.ones(length) for length in lengths], batch_first=True)


@contextmanager
def hooked(model, make_hook):
    """Register a hook on every router, before those that are tested."""
    handles = [router.register_forward_hook(make_hook(number)) for number, router in enumerate(routers_of(model))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def choosing_at_random(number, size=0.5):
    """A hook: other kernels in the extreme. The choice is made from noisy logits, the shares are those of the true."""

    def hook(router, inputs, output):
        logits = output[0]
        noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(number))
        experts = (logits + size * noise).topk(router.top_k).indices
        return logits, logits.gather(1, experts).softmax(-1), experts

    return hook


def noisy(number, size=0.05):
    """A hook: the router's logits themselves are noisy, as where both sides round them otherwise."""

    def hook(router, inputs, output):
        noise = torch.randn(output[0].shape, generator=torch.Generator().manual_seed(number))
        logits = output[0] + size * noise
        largest, experts = logits.topk(router.top_k)
        return logits, largest.softmax(-1), experts

    return hook


def gradients(model, completions, replay=None, balancing=0.0, watch=True):
    """The adapter's gradients of a likelihood and a load-balancing loss."""
    model.train()
    model.zero_grad()
    if watch:
        with watched_routers(model, replay) as routing:
            logprobs, _, mask = policy_logprobs(model, completions)
            loss = -(logprobs * mask).sum()
            if balancing:
                loss = loss + balancing * load_balancing_loss(routing, token_mask(completions)).sum()
            loss.backward()
    else:
        logprobs, _, mask = policy_logprobs(model, completions)
        (-(logprobs * mask).sum()).backward()
    model.eval()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_equal(ours, theirs):
    assert set(ours) == set(theirs) and len(ours) > 10
    for name, gradient in ours.items():
        assert torch.equal(gradient, theirs[name]), name


def assert_close(ours, theirs, most=1e-4):
    """Within a share of the largest value of each matrix."""
    assert set(ours) == set(theirs) and len(ours) > 10
    for name, gradient in ours.items():
        assert (gradient - theirs[name]).abs().max() <= most * theirs[name].abs().max(), name


@torch.no_grad()
def own_routing(model, completions):
    with watched_routers(model) as routing:
        policy_logprobs(model, completions)
    return routing


class TestWatching:
    """What is noted, and that nothing else changes."""

    @torch.no_grad()
    def test_noted_as_transformers_computes(self, adapted):
        """A loss or a rate over anything but the router's own logits describes another model."""
        model, completions = adapted
        completion = completions[0]
        ids = torch.tensor([completion.prompt_ids + completion.token_ids])
        routing = own_routing(model, [completion])
        wanted = model(ids, output_router_logits=True).router_logits
        assert len(routing.logits) == len(routing.choices) == len(wanted)
        for logits, choice, reference in zip(routing.logits, routing.choices, wanted):
            assert torch.equal(logits, reference.view_as(logits))
            assert torch.equal(choice, logits.topk(2).indices)

    def test_watching_changes_nothing(self, adapted):
        """A run that logs its flip rate would be another run."""
        model, completions = adapted
        assert_equal(gradients(model, completions), gradients(model, completions, watch=False))

    @pytest.mark.parametrize("replays", [False, True])
    def test_hooks_end_with_the_block(self, adapted, replays):
        """A hook that stays replays the experts of this batch in the next, in silence."""
        model, completions = adapted
        replay = recorded_experts(completions) if replays else None
        before = hooks_of(model)
        with watched_routers(model, replay):
            assert all(len(now) == len(then) + 1 for now, then in zip(hooks_of(model), before))
        assert hooks_of(model) == before
        with pytest.raises(KeyboardInterrupt), watched_routers(model, replay):
            raise KeyboardInterrupt
        assert hooks_of(model) == before

    def test_experts_that_do_not_fit(self, adapted):
        """Experts of another batch, or of another model, are no error to torch where the shapes can be stretched."""
        model, completions = adapted
        replay = recorded_experts(completions)
        before = hooks_of(model)
        for wrong in (replay[:1, :1], replay[:, 1:], replay[..., :1]):
            with pytest.raises(ValueError, match="replay holds"), watched_routers(model, wrong):
                policy_logprobs(model, completions)
        with pytest.raises(ValueError, match="experts of 3 layers, and the model has 4"):
            with watched_routers(model, replay[:, :, 1:]):
                pass
        assert hooks_of(model) == before


class TestReplay:
    """The sampler's experts in the trainer's forward and backward pass."""

    def test_own_experts_replayed_give_the_same_gradient(self, adapted):
        """Shares that are recorded, or detached, lose what the router's logits say to the layers before.

        So does a token without a record that is sent to any experts but its own.
        """
        model, completions = adapted
        replay = torch.stack(own_routing(model, completions).choices, 1)
        replay[::3] = -1
        assert_equal(gradients(model, completions, replay), gradients(model, completions, watch=False))

    def test_the_samplers_experts_are_the_trainers(self, adapted):
        """In fp32 both choose the same: any flip is a record out of its place."""
        model, completions = adapted
        recorded = recorded_experts(completions)
        flips = count_flips(own_routing(model, completions).choices, recorded)
        assert int(flips.flipped) == int(flips.flipped_tokens) == 0
        assert int(flips.tokens) == sum(len(c.prompt_ids) + len(c.token_ids) - 1 for c in completions)
        assert int(flips.choices) == 4 * 2 * int(flips.tokens)

    @torch.no_grad()
    def test_replay_restores_the_ratio(self, adapted):
        """Without it a token is scored under other experts than it was drawn under, and the ratio is not one."""
        model, completions = adapted
        recorded = recorded_experts(completions)
        with hooked(model, choosing_at_random):
            with watched_routers(model) as routing:
                without = differences(model, completions)
            with watched_routers(model, recorded) as replayed:
                restored = differences(model, completions)
        for noted in (routing, replayed):
            flips = count_flips(noted.choices, recorded)
            rate, token_rate = rates(flips)
            assert 0.01 < rate < token_rate < 1
        assert without.mean() > 1e-2 and without.max() > 0.1
        assert restored.max() < ROUNDING and restored.mean() < 1e-5

    @torch.no_grad()
    def test_replay_helps_where_the_logits_differ_too(self, adapted):
        """The shares stay the trainer's, so the gap is not zero; what a flip adds to it is gone."""
        model, completions = adapted
        recorded = recorded_experts(completions)
        with hooked(model, noisy):
            with watched_routers(model) as routing:
                without = differences(model, completions)
            with watched_routers(model, recorded):
                replayed = differences(model, completions)
        assert 0 < rates(count_flips(routing.choices, recorded))[0] < 0.2
        assert ROUNDING < replayed.mean() < 0.8 * without.mean()

    def test_the_gradient_of_other_experts(self, adapted):
        """Against the same softmax written otherwise: over all logits, with those of the other experts at -inf."""
        model, completions = adapted
        generator = torch.Generator().manual_seed(0)
        size = token_mask(completions).numel()
        replay = torch.rand(size, 4, 8, generator=generator).topk(2).indices  # of each layer, any two experts

        def forced(number):
            def hook(router, inputs, output):
                experts = replay[:, number]
                hidden = torch.full_like(output[0], -torch.inf).scatter(1, experts, 0.0)
                return output[0], (output[0] + hidden).softmax(-1).gather(1, experts), experts

            return hook

        with hooked(model, forced):
            theirs = gradients(model, completions, watch=False)
        ours = gradients(model, completions, replay)
        assert_close(ours, theirs)
        own = gradients(model, completions)
        assert any((ours[name] - own[name]).abs().max() > 0.1 * own[name].abs().max() for name in own)

    @pytest.mark.parametrize("replays", [False, True], ids=["own", "replayed"])
    @pytest.mark.parametrize("balancing", [0.0, 10.0], ids=["plain", "balanced"])
    def test_checkpointed_layers_give_the_same_gradient(self, adapted, replays, balancing):
        """The backward pass runs a layer again: with its own experts, the tensors it saves are those of other ones.

        The router's logits are in the graph of the first pass, and the second must not take their place.
        """
        _, completions = adapted
        model, _ = load()  # to be checkpointed
        replay = None
        if replays:
            with hooked(model, choosing_at_random):
                replay = torch.stack(own_routing(model, completions).choices, 1)
            replay[::7] = -1  # not recorded
        usual = gradients(model, completions, replay, balancing)
        checkpoint_layers(model)
        assert_equal(gradients(model, completions, replay, balancing), usual)

    def test_what_is_noted_is_of_the_first_pass(self, adapted):
        """Logits of the second would keep its tensors alive, and they are in no graph that a loss was made from."""
        _, completions = adapted
        model, _ = load()
        checkpoint_layers(model)
        model.train()
        with watched_routers(model) as routing:
            logprobs, _, mask = policy_logprobs(model, completions)
            noted = [*routing.logits, *routing.choices]
            (logprobs * mask).sum().backward()
        assert all(now is then for now, then in zip([*routing.logits, *routing.choices], noted, strict=True))

    def test_padding_changes_nothing(self, adapted):
        """Rows of the record that are not those of the tokens show here: alone, a completion has other numbers."""
        model, completions = adapted
        with hooked(model, choosing_at_random), torch.no_grad():
            flipped = own_routing(model, completions)
        replay = torch.stack(flipped.choices, 1).view(*token_mask(completions).shape, 4, 2)
        together = gradients(model, completions, replay)
        total = dict.fromkeys(together, 0.0)
        for row, completion in enumerate(completions):
            length = len(completion.prompt_ids) + len(completion.token_ids)
            for name, gradient in gradients(model, [completion], replay[row : row + 1, :length]).items():
                total[name] = total[name] + gradient
        assert_close(together, total)


class TestFlipRate:
    """Counts of flipped choices."""

    def test_counted_by_hand(self):
        """A flip is a change of the set: the order says which share is larger, and that may differ by rounding."""
        first_layer = torch.tensor([[0, 1], [0, 1], [0, 1], [0, 1], [0, 1]])
        second_layer = torch.tensor([[2, 3], [2, 3], [2, 3], [2, 3], [2, 3]])
        recorded = torch.tensor(
            [
                [[1, 0], [3, 2]],  # the same sets
                [[0, 4], [2, 3]],  # one choice
                [[5, 6], [4, 3]],  # three
                [[5, 6], [5, 6]],  # masked
                [[-1, -1], [-1, -1]],  # not recorded
            ]
        )
        mask = torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0])
        flips = count_flips([first_layer, second_layer], recorded, mask)
        assert [int(count) for count in flips] == [4, 12, 2, 3]
        everything = count_flips([first_layer, second_layer], recorded)
        assert [int(count) for count in everything] == [8, 16, 3, 4]
        nothing = count_flips([first_layer, second_layer], recorded, torch.zeros(5))
        assert [int(count) for count in nothing] == [0, 0, 0, 0]

    def test_the_host_reads_nothing(self):
        """A value that is read waits for the whole micro-batch; a tensor without data cannot be read."""
        own = [torch.zeros(6, 2, dtype=torch.int64, device="meta") for _ in range(3)]
        logits = [torch.zeros(6, 8, device="meta") for _ in range(3)]
        recorded = torch.zeros(2, 3, 3, 2, dtype=torch.int64, device="meta")
        mask = torch.ones(2, 3, device="meta")
        flips = count_flips(own, recorded, mask)
        assert all(count.shape == () and count.is_meta for count in flips)
        assert load_balancing_loss(routing_of(logits, own), mask).shape == (2,)


def routing_of(logits, choices):
    """A `Routing` with these values."""

    class Watch:
        def __init__(self, logits_NE, own_NK):
            self.logits_NE = logits_NE
            self.own_NK = own_NK

    return Routing([Watch(*layer) for layer in zip(logits, choices)])


class TestLoadBalancing:
    """The auxiliary loss."""

    def random_routing(self, tokens, layers=3, experts=8, top_k=2):
        generator = torch.Generator().manual_seed(0)
        logits = [2 * torch.randn(tokens, experts, generator=generator) for _ in range(layers)]
        return routing_of(logits, [layer.topk(top_k).indices for layer in logits])

    def test_one_completion_as_transformers(self):
        """A coefficient that was tuned with the model's own loss means something else with another one."""
        routing = self.random_routing(50)
        mask = torch.ones(1, 50)
        wanted = load_balancing_loss_func(tuple(routing.logits), 8, 2)
        torch.testing.assert_close(load_balancing_loss(routing, mask), wanted[None])
        mask[0, 40:] = 0
        wanted = load_balancing_loss_func(tuple(routing.logits), 8, 2, mask)
        torch.testing.assert_close(load_balancing_loss(routing, mask), wanted[None])

    def test_each_completion_by_itself(self):
        """Over a micro-batch, the loss depends on which completions share it."""
        routing = self.random_routing(3 * 20)
        mask = torch.ones(3, 20)
        mask[1, 5:] = 0
        together = load_balancing_loss(routing, mask)
        for row in range(3):
            tokens = slice(20 * row, 20 * (row + 1))
            alone = routing_of([logits[tokens] for logits in routing.logits], [own[tokens] for own in routing.choices])
            torch.testing.assert_close(load_balancing_loss(alone, mask[row : row + 1])[0], together[row])
        assert together[0] != together[1]

    def test_known_values(self):
        """Equal use gives K; all tokens at the same experts give almost E."""
        even = torch.eye(8)[torch.arange(40) % 8] + torch.eye(8)[(torch.arange(40) + 1) % 8]
        same = torch.zeros(40, 8)
        same[:, :2] = 20.0
        for logits, wanted in ((even, 2.0), (same, 8.0)):
            routing = routing_of([logits], [logits.topk(2).indices])
            assert float(load_balancing_loss(routing, torch.ones(1, 40))) == pytest.approx(wanted, rel=1e-4)

    def test_a_step_along_the_gradient_balances(self, adapted):
        """Padding, too, would be balanced; and a loss without a gradient balances nothing."""
        model, completions = adapted
        mask = token_mask(completions)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        with watched_routers(model) as routing:
            policy_logprobs(model, completions)
            before = load_balancing_loss(routing, mask).sum()
            steps = torch.autograd.grad(before, weights, allow_unused=True)
        norm = sum(step.square().sum() for step in steps if step is not None).sqrt()
        kept = [weight.detach().clone() for weight in weights]
        with torch.no_grad():
            for weight, step in zip(weights, steps):
                if step is not None:
                    weight -= 0.02 * step / norm
            after = load_balancing_loss(own_routing(model, completions), mask).sum()
            for weight, value in zip(weights, kept):
                weight.copy_(value)
        assert after < before
