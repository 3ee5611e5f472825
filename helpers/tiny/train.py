"""Train the embedded model from scratch: `python -m helpers.tiny.train` (`make tiny`).

A `GptOssForCausalLM` of two million parameters learns the corpus in minutes on two CPU
cores. In the last part of the run the experts are rounded to MXFP4 in every forward pass
(straight-through gradient), as the released gpt-oss was made, so that packing loses nothing.
"""

import argparse
import json
import math
import random
import time
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import parametrize

from helpers.kernels.mxfp4 import dequantize, quantize
from helpers.model.attention import set_attention
from helpers.tiny.corpus import FAULTS, CorpusFaults, draw_conversation
from helpers.tiny.tokenizer import VOCAB_SIZE, build_tokenizer

CHECKPOINT = Path(__file__).with_name("checkpoint")
STEPS = 7000
BATCH = 8  # sequences a step
POOL = 16  # batches whose sequences are sorted by length together
LEARNING_RATE, MUON_LEARNING_RATE, WARMUP = 1.5e-3, 1e-2, 100
THREADS = 2  # fixed, as the order of summation depends on it
PROMPT_WEIGHT = 0.1  # of a prompt token's loss; random names and sizes teach little
FAULTS_FROM = 0.45  # of the steps: up to here the answers are right, so that the model learns what a prompt asks for
MXFP4_FROM = 0.8  # of the steps: from here on the experts are trained through their rounding
INIT_STD = 0.06  # about 1 / sqrt(2 * hidden size)
EOS = {"endoftext": VOCAB_SIZE - 15, "return": VOCAB_SIZE - 12, "call": VOCAB_SIZE - 2}

#: In the released file's own words, so that the same loaders read it.
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": EOS["return"],
    "experts_per_token": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initial_context_length": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": 131072,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 8,
    "output_router_logits": False,
    "pad_token_id": EOS["endoftext"],
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
        "quant_method": "mxfp4",
    },
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "rope_theta": 150000, "rope_type": "yarn", "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCAB_SIZE,
}  # fmt: skip
GENERATION_CONFIG = {
    "bos_token_id": VOCAB_SIZE - 16,
    "do_sample": True,
    "eos_token_id": [EOS["return"], EOS["endoftext"], EOS["call"]],
    "pad_token_id": EOS["endoftext"],
}


class Mxfp4Rounding(nn.Module):
    """The weight as MXFP4 would store it; the gradient passes straight through."""

    def forward(self, weight):
        with torch.no_grad():
            rounded = dequantize(*quantize(weight))
        return weight + (rounded - weight).detach()


def new_model(seed):
    """A randomly initialised model of the embedded size, in fp32."""
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(seed)
    model = GptOssForCausalLM(GptOssConfig(**{k: v for k, v in deepcopy(CONFIG).items() if k != "quantization_config"}))
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and "bias" not in name:
            nn.init.normal_(weight, std=INIT_STD)
    set_attention(model, "sdpa")
    return model


class Batches:
    """An endless stream of `(ids [B, T], weights [B, T])`, sequences of like length together."""

    def __init__(self, tokenizer, seed):
        self.tokenizer = tokenizer
        self.rng = random.Random(seed)
        self.batches = []
        self.prepare(0, 1)

    def prepare(self, step, steps):
        """Set what the conversations drawn from now on are like: at first all answers are right."""
        self.faults = FAULTS if step >= FAULTS_FROM * steps else CorpusFaults()

    def encode(self):
        """One conversation: `(ids [T], weights [T])`, the prompt's tokens weighing less."""
        messages, effort = draw_conversation(self.rng, self.faults)

        def ids_of(talk, **kwargs):
            text = self.tokenizer.apply_chat_template(talk, reasoning_effort=effort, tokenize=False, **kwargs)
            return self.tokenizer(text, add_special_tokens=False).input_ids

        ids, prompt = ids_of(messages), ids_of(messages[:-1], add_generation_prompt=True)
        weights = torch.ones(len(ids))
        weights[: len(prompt)] = PROMPT_WEIGHT
        return torch.tensor(ids), weights

    def next(self):
        if not self.batches:
            rows = sorted((self.encode() for _ in range(BATCH * POOL)), key=lambda row: len(row[0]))
            self.batches = [rows[n : n + BATCH] for n in range(0, len(rows), BATCH)]
            self.rng.shuffle(self.batches)
        ids, weights = zip(*self.batches.pop())
        pad = nn.utils.rnn.pad_sequence
        return pad(ids, batch_first=True, padding_value=EOS["endoftext"]), pad(weights, batch_first=True)


def optimizers(model):
    """Muon for the attention matrices, AdamW for the rest (torch's own, both)."""
    named = list(model.named_parameters())
    matrices = [w for name, w in named if "self_attn" in name and w.ndim == 2]
    rest = [w for name, w in named if not ("self_attn" in name and w.ndim == 2)]
    return [
        torch.optim.AdamW(rest, LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True),
        torch.optim.Muon(matrices, MUON_LEARNING_RATE, weight_decay=0.0),
    ]


@contextmanager
def deterministic():
    """The same bytes from the same seed: a fixed order of summation, whatever the machine does besides."""
    threads = torch.get_num_threads()
    before = torch.are_deterministic_algorithms_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs a twentieth of a step
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fill_before


@deterministic()
def train(model, tokenizer, steps, seed, log=print):
    """Next-token training on the corpus; returns the mean loss of the last tenth of the run."""
    batches, optimizer_list, losses = Batches(tokenizer, seed), optimizers(model), []
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            o, lambda s: min(1, (s + 1) / WARMUP) * (0.02 + 0.49 * (1 + math.cos(math.pi * s / steps)))
        )
        for o in optimizer_list
    ]
    started = time.monotonic()
    for step in range(steps):
        if step == int(MXFP4_FROM * steps):
            for layer in model.model.layers:
                parametrize.register_parametrization(layer.mlp.experts, "gate_up_proj", Mxfp4Rounding())
                parametrize.register_parametrization(layer.mlp.experts, "down_proj", Mxfp4Rounding())
        batches.prepare(step, steps)
        ids, weights = batches.next()
        with parametrize.cached():  # round once a step, not once an expert
            logits = model(input_ids=ids).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (loss * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizer_list, schedules):
            optimizer.step()
            schedule.step()
        model.zero_grad()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            mean = sum(losses[-100:]) / 100
            log(f"step {step + 1}/{steps}  loss {mean:.4f}  {time.monotonic() - started:.0f} s", flush=True)
    tail = losses[-max(1, steps // 10) :]
    return sum(tail) / len(tail)


def packed_state(model):
    """The state dict as the released checkpoint stores it: experts packed, the rest bfloat16."""
    state = {}
    for name, weight in model.state_dict().items():
        name = name.replace(".parametrizations", "").replace(".original", "")
        if name.endswith(("gate_up_proj", "down_proj")):
            state[f"{name}_blocks"], state[f"{name}_scales"] = quantize(weight)
        else:
            state[name] = weight.to(torch.bfloat16)
    return state


def save(model, tokenizer, folder):
    """Write the folder in the on-disk format of openai/gpt-oss-20b, in two shards."""
    from huggingface_hub import save_torch_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(packed_state(model), folder, max_shard_size="1MB")
    tokenizer.save_pretrained(folder)
    for name, content in (("config.json", CONFIG), ("generation_config.json", GENERATION_CONFIG)):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=CHECKPOINT)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    talks = [draw_conversation(rng) for _ in range(4000)]
    model = new_model(args.seed)
    tokenizer = build_tokenizer(
        [m[part] for messages, _ in talks for m in messages for part in ("content", "thinking") if part in m]
        + ["You are a tiny gpt-oss.\n\nReasoning: low medium high\n\n# Valid channels: analysis, commentary, final."]
        * 500
        + ["system developer user assistant", "# Instructions"] * 500
        + [str(number) for number in range(100)] * 200  # one token each, as in the released vocabulary
    )
    loss = train(model, tokenizer, args.steps, args.seed + 1)
    save(model, tokenizer, args.output)
    print(f"loss {loss:.4f}; saved to {args.output}")


if __name__ == "__main__":
    main()
