"""Losses and advantages beside TRL's own `GRPOTrainer`, on the same completions, rewards and log-probabilities.

TRL's trainer stands on the embedded model in stock transformers. Its rollout, its reward and its forward pass return
what the test made up; its own code does all else: advantages, old and reference log-probabilities, importance weights,
the order and the cut into micro-batches, and the loss. What is compared: advantages, the loss of an optimizer step, and
its derivative by every log-probability.

What still differs, on purpose:

| | TRL 1.16 | here |
|---|---|---|
| router_aux_loss_coef | None: the model's own, 0.9 for gpt-oss | 0 |
| difference of sampler and trainer | corrected where vLLM draws | corrected always |
| importance weights by default | "sequence_mask" | "token_truncate" |
| a row that only a reward of weight 0 judged | its total is 0 and counts in the group | not judged: advantage 0 |
| dapo, cispo: tokens by which a step is divided | the mean of the steps on a generation | its own |
| cispo without epsilon_high | caps every ratio at 0.2 | refused |
| bnpo: local batches | in an order drawn at random | in the order of the generation |
| rewards of a group that differ in the last bits | differ | are equal |
"""

import copy
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

trl = pytest.importorskip("trl", reason="TRL is not installed here: make test-trl sets up an environment with it.")

from datasets import Dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import GptOssForCausalLM  # noqa: E402

from helpers import GRPOConfig, UserError, load_model  # noqa: E402
from helpers.grpo.advantages import combine_rewards, group_advantages  # noqa: E402
from helpers.grpo.correction import CORRECTION_MODES, importance_weights  # noqa: E402
from helpers.grpo.losses import LOSS_TYPES, loss_scale, policy_loss, token_weights  # noqa: E402
from helpers.profiles import PROFILES  # noqa: E402

LOCAL_BATCH = 4
STEPS = 2
GROUP = 4
COUNT = LOCAL_BATCH * STEPS
LONGEST = 7
LENGTHS = [3, 7, 2, 4, 2, 6, 7, 5]
#: Completions that were cut off: their last token ends nothing.
CUT_OFF = {1, 6}
LETTER = 50  # a token id like any other
#: Reward functions, one value a completion.
REWARDS = [
    [1.0, 0.25, 0.5, None, 0.0, -2.0, 3.0, 0.125],
    [None, 0.5, 0.5, None, 1.0, 1.0, None, -1.0],
]
REWARD_WEIGHTS = [1.0, 0.5]


@pytest.fixture(scope="module")
def stock():
    """The embedded model in stock transformers, and its tokenizer."""
    _, tokenizer = load_model(profile="tiny", dense="fp32")
    model = GptOssForCausalLM.from_pretrained(
        PROFILES["tiny"].model, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    return model, tokenizer


def make_tokens(seed=0):
    """Log-probabilities of each completion, under the policy, the old policy, the reference and the sampler.

    float64 [B, T] but for the sampler's, which TRL keeps in 32 bits. So far apart that limits bite.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(size):
        return size * torch.randn(COUNT, LONGEST, generator=generator, dtype=torch.float64)

    policy = -1.5 + noise(0.7)
    old = policy - noise(0.4)
    return SimpleNamespace(
        policy=policy.requires_grad_(),
        old=old.detach(),
        ref=(policy + noise(0.3)).detach(),
        sampler=(old + noise(0.2)).detach().float(),
    )


class TrlStep:
    """One optimizer step by TRL's trainer, on tokens that are given to it."""

    def __init__(self, stock, tokens, folder, has_old=True, importance=None, **settings):
        model, tokenizer = stock
        self.tokens = tokens
        stop = tokenizer.eos_token_id
        # the first token of a completion is its number
        self.ids = []
        for number, length in enumerate(LENGTHS):
            last = LETTER if number in CUT_OFF else stop
            self.ids.append([number, *[LETTER] * (length - 2), last])
        config = trl.GRPOConfig(
            str(folder), per_device_train_batch_size=LOCAL_BATCH, gradient_accumulation_steps=STEPS,
            num_generations=GROUP, num_iterations=2 if has_old else 1, max_completion_length=LONGEST, use_cpu=True,
            bf16=False, router_aux_loss_coef=0.0, report_to="none", reward_weights=REWARD_WEIGHTS, **settings,
        )  # fmt: skip
        self.trainer = trl.GRPOTrainer(
            copy.deepcopy(model),
            [self.reward(place) for place in range(len(REWARDS))],
            config,
            Dataset.from_dict({"prompt": ["a"] * COUNT}),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM"),
            rollout_func=self.rollout,
        )
        trainer = self.trainer
        trainer._get_per_token_logps_and_entropies = self.forward
        if importance is not None:  # what TRL computes where vLLM draws
            trainer.use_vllm = True
            trainer._last_loaded_step = trainer.state.global_step
        self.coming = [tokens.old] if has_old or importance is not None else []
        self.coming += [tokens.ref] if config.beta else []
        self.order = []
        self.advantages = torch.zeros(COUNT)

    def reward(self, place):
        def reward(completions, **_):
            return REWARDS[place]

        reward.__name__ = f"reward_{place}"
        return reward

    def rollout(self, prompts, trainer):
        logprobs = [self.tokens.sampler[number, :length].tolist() for number, length in enumerate(LENGTHS)]
        return {"prompt_ids": [[1, 2]] * COUNT, "completion_ids": self.ids, "logprobs": logprobs}

    def forward(self, model, input_ids, attention_mask, logits_to_keep, compute_entropy=False, **_):
        """Stands in for TRL's forward pass: of the policy where it asks for the entropy, too."""
        values = self.tokens.policy if compute_entropy else self.coming.pop(0)
        rows = input_ids[:, -logits_to_keep]
        return values[rows][:, :logits_to_keep], torch.zeros(len(rows), logits_to_keep), None

    def run(self):
        """`(loss, its derivative by the policy's log-probabilities)`; notes the order and the advantages."""
        trainer = self.trainer
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = STEPS
        total = 0.0
        for trainer._step in range(STEPS):
            batch = trainer._prepare_inputs([{"prompt": "a"}] * COUNT)
            total = total + trainer._compute_loss(trainer.model, batch)
            rows = batch["completion_ids"][:, 0].tolist()
            self.order += rows
            self.advantages[rows] = batch["advantages"]
        assert sorted(self.order) == list(range(COUNT)) and not self.coming
        return total.item(), torch.autograd.grad(total, self.tokens.policy)[0]


def our_advantages(scale_rewards):
    columns = [[float("nan") if value is None else value for value in rewards] for rewards in REWARDS]
    total = combine_rewards(torch.tensor(columns, dtype=torch.float64).T, REWARD_WEIGHTS)
    return group_advantages(total.view(-1, GROUP), scale_rewards).flatten()


def our_step(tokens, config, order, has_old, importance=None):
    """The same of our loss. order: of the completions, which the local batches of "bnpo" follow."""
    counted = [0 if config.mask_truncated_completions and n in CUT_OFF else LENGTHS[n] for n in order]
    objective, weighting = LOSS_TYPES[config.loss_type]
    weights_B = token_weights(weighting, counted, LONGEST, LOCAL_BATCH)
    scale = loss_scale(weights_B, counted)
    mask = torch.arange(LONGEST) < torch.tensor(counted)[:, None]
    old = tokens.old if has_old or importance is not None else tokens.policy.detach()
    factors = None
    if importance is not None:
        factors = importance_weights(tokens.old[order], tokens.sampler[order], mask, **importance).weights
    found = policy_loss(
        tokens.policy[order],
        old[order],
        our_advantages(config.scale_rewards)[order].double(),
        weights_B[:, None] * mask,
        objective=objective,
        level=config.importance_sampling_level,
        clipping=config.clipping,
        importance_weights=factors,
        ref_logprobs=tokens.ref[order] if config.beta else None,
        beta=config.beta,
        use_bias_correction_kl=config.use_bias_correction_kl,
        scale=scale,
    )
    gradient = torch.autograd.grad(found.loss, tokens.policy)[0]
    return found.loss.item() / scale, gradient / scale


def compare(stock, folder, has_old=True, importance=None, **settings):
    """Run both and compare to six digits of the largest value."""
    tokens = make_tokens()
    correction = {}
    if importance is not None:
        correction = {f"vllm_importance_sampling_{name}": value for name, value in importance.items()}
    theirs = TrlStep(stock, tokens, folder, has_old, importance, **settings, **correction)
    trl_loss, trl_gradient = theirs.run()
    config = GRPOConfig(str(folder), **settings, max_completion_length=LONGEST, reward_weights=REWARD_WEIGHTS)
    ours = our_advantages(config.scale_rewards)
    torch.testing.assert_close(ours, theirs.advantages, rtol=1e-6, atol=1e-6)
    loss, gradient = our_step(tokens, config, theirs.order, has_old, importance)
    assert loss == pytest.approx(trl_loss, rel=1e-6, abs=1e-6)
    largest = float(trl_gradient.abs().max())
    assert largest > 1e-3
    assert float((gradient - trl_gradient).abs().max()) < 1e-6 * largest


LIMITS = {
    "cispo": [{"epsilon_high": 1.3}],
    "sapo": [{}, {"sapo_temperature_neg": 2.0, "sapo_temperature_pos": 0.5}],
}
CLIPS = [{}, {"epsilon": 0.1, "epsilon_high": 0.28}, {"delta": 1.6}]
KLS = [{"beta": 0.0}, {"beta": 0.04}, {"beta": 0.04, "use_bias_correction_kl": False}]


@pytest.mark.parametrize("kl", KLS, ids=str)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", sorted(LOSS_TYPES))
def test_loss_types(stock, tmp_path, loss_type, level, kl):
    """A run that was tuned with TRL must be the same run here, whatever its loss is called."""
    for limits in LIMITS.get(loss_type, CLIPS):
        compare(stock, tmp_path, loss_type=loss_type, importance_sampling_level=level, **kl, **limits)


@pytest.mark.parametrize("loss_type", sorted(LOSS_TYPES))
def test_first_step_on_a_generation(stock, tmp_path, loss_type):
    """Without old log-probabilities both take their own."""
    limits = LIMITS.get(loss_type, CLIPS)[0]
    compare(stock, tmp_path, has_old=False, loss_type=loss_type, beta=0.04, **limits)


@pytest.mark.parametrize("loss_type", sorted(LOSS_TYPES))
@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
def test_scales_and_completions_left_out(stock, tmp_path, scale_rewards, loss_type):
    """Rewards that do not apply, and completions that were cut off, in every normaliser."""
    settings = {"scale_rewards": scale_rewards, "mask_truncated_completions": True}
    compare(stock, tmp_path, loss_type=loss_type, **settings, **LIMITS.get(loss_type, CLIPS)[0])


@pytest.mark.parametrize("clip_min", [None, 0.8])
@pytest.mark.parametrize("mode", CORRECTION_MODES)
@pytest.mark.parametrize("loss_type", ["dapo", "cispo", "sapo"])
def test_importance_weights(stock, tmp_path, loss_type, mode, clip_min):
    """TRL computes them where vLLM draws; the KL term is not weighted."""
    importance = {"mode": mode, "clip_max": 1.3, "clip_min": clip_min}
    limits = LIMITS.get(loss_type, CLIPS)[0]
    compare(stock, tmp_path, importance=importance, loss_type=loss_type, beta=0.04, **limits)


def test_differences_of_the_table(stock, tmp_path):
    """The rows of the table above that can be shown in a line each: a row that is no longer true must go."""
    assert version("trl") == "1.16.0"
    assert trl.GRPOConfig(str(tmp_path), use_cpu=True, bf16=False).router_aux_loss_coef is None
    assert GRPOConfig(str(tmp_path)).router_aux_loss_coef == 0
    with pytest.raises(UserError, match="epsilon_high"):
        GRPOConfig(str(tmp_path), loss_type="cispo")
    tokens = make_tokens()
    capped = TrlStep(stock, tokens, tmp_path, has_old=False, loss_type="cispo")
    capped.run()
    assert capped.trainer.epsilon_high == 0.2
    assert capped.order != list(range(COUNT)), "TRL no longer shuffles before it cuts"


def test_a_step_of_dapo_counts_its_own_tokens(stock, tmp_path):
    """TRL divides two steps on one generation by the mean of their tokens, so one weighs too much, one too little."""
    tokens = make_tokens()
    theirs = TrlStep(stock, tokens, tmp_path, loss_type="dapo", steps_per_generation=STEPS)
    theirs.trainer.args.gradient_accumulation_steps = 1
    trainer = theirs.trainer
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    for trainer._step in range(STEPS):
        batch = trainer._prepare_inputs([{"prompt": "a"}] * COUNT)
        rows = batch["completion_ids"][:, 0].tolist()
        gradient = torch.autograd.grad(trainer._compute_loss(trainer.model, batch), tokens.policy)[0]
        counted = [LENGTHS[n] for n in rows]
        weights = token_weights("dapo", counted, LONGEST, LOCAL_BATCH)
        mask = torch.arange(LONGEST) < torch.tensor(counted)[:, None]
        gains = our_advantages("group")[rows].double()
        found = policy_loss(tokens.policy[rows], tokens.old[rows], gains, weights[:, None] * mask)
        ours = torch.autograd.grad(found.loss, tokens.policy)[0]
        mean_tokens = sum(LENGTHS) / STEPS
        torch.testing.assert_close(gradient * mean_tokens, ours * sum(counted), rtol=1e-6, atol=1e-6)
        assert sum(counted) != mean_tokens


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
def test_a_row_that_only_a_weight_of_0_judged(scale_rewards):
    """TRL counts its total of 0 in the group; here it is not judged."""
    rewards = torch.tensor([[1.0, 5.0], [0.0, 5.0], [float("nan"), 5.0], [3.0, 5.0]], dtype=torch.float64)
    total = combine_rewards(rewards, [1.0, 0.0])
    gains = group_advantages(total[None], scale_rewards)[0]
    assert gains[2] == 0
    judged = [0, 1, 3]
    torch.testing.assert_close(gains[judged], group_advantages(total[None, judged], scale_rewards)[0])


def test_a_whole_configuration_of_trl(tmp_path):
    """What TRL's class says of itself, with all its defaults, is what ours takes; it refuses what differs."""
    theirs = trl.GRPOConfig(
        str(tmp_path), max_steps=7, learning_rate=1e-5, num_generations=4, bf16=False, use_cpu=True, report_to="none",
    ).to_dict()  # fmt: skip
    ours = GRPOConfig(**theirs)
    assert ours.router_aux_loss_coef is None, "the model's own, as in TRL"
    assert ours.use_cpu and ours.logging_steps == 10 and ours.save_steps == 500
    assert (ours.max_steps, ours.learning_rate, ours.num_generations) == (7, 1e-5, 4)
    assert ours.importance_sampling_mode == "sequence_mask" and ours.generation_batch_size == 8


def test_the_comparison_notices(stock, tmp_path):
    """With another limit on our side it must fail."""
    tokens = make_tokens()
    theirs = TrlStep(stock, tokens, tmp_path, loss_type="dapo")
    _, trl_gradient = theirs.run()
    config = GRPOConfig(str(tmp_path), loss_type="dapo", epsilon=0.25, max_completion_length=LONGEST)
    _, gradient = our_step(tokens, config, theirs.order, has_old=True)
    assert float((gradient - trl_gradient).abs().max()) > 1e-3 * float(trl_gradient.abs().max())


def test_the_tokens_reach_the_limits():
    """Log-probabilities that no limit touches would compare nothing."""
    tokens = make_tokens()
    ratio = (tokens.policy - tokens.old).exp()
    assert (ratio > 1.6).any() and (ratio < 0.8).any() and ((ratio > 0.9) & (ratio < 1.1)).any()
