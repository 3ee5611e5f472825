from dataclasses import replace

import pytest
import torch
from bitsandbytes.optim import AdamW8bit

from helpers import GRPOConfig, UserError, add_lora, load_model, memory_plan
from helpers.kernels.experts import DECODE_TOKENS
from helpers.model import memory
from helpers.model.gpu_memory import leave_to_driver
from helpers.model.load import empty_model
from helpers.model.memory import (
    MOST_COMPLETIONS,
    PROMPT,
    WEIGHTS,
    known_config,
    largest_batch,
    longest,
    micro_batch_size,
    parameter_counts,
    released_config,
    rollout_length,
)
from helpers.profiles import PROFILES
from helpers.rollout.cache import RolloutCache
from helpers.runtime import GIB


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """The plan is held against what a profile is made for, whatever card the tests run beside."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.mark.parametrize(
    "changes",
    [
        {"experts": "fp32", "dense": "fp32"},
        {"experts": "mxfp4", "dense": "fp32"},
        {"dtype": "bfloat16", "experts": "bf16", "dense": "bf16"},
        {"dtype": "float16", "experts": "mxfp4", "dense": "fp16", "embedding": "host"},
        {"experts": "mxfp4", "dense": "nf4"},
    ],
    ids=str,
)
def test_weights_of_the_plan_are_the_models(changes):
    """Counted, not estimated: everything but activations and cache."""
    profile = replace(PROFILES["tiny"], **changes)
    plan, (model, _) = memory_plan(profile), load_model(profile=profile)
    held = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    for module in model.modules():  # what bitsandbytes keeps besides the codes
        if state := getattr(getattr(module, "weight", None), "quant_state", None):
            held += state.absmax.numel() + 4 * state.state2.absmax.numel()
    assert sum(plan.parts[part] for part in WEIGHTS) == pytest.approx(held, rel=0.001)
    assert plan.host == (model.model.embed_tokens.weight.nbytes if profile.embedding == "host" else 0)


def test_adapter_of_the_plan_is_the_adapter():
    """Parameter, gradient and two moments of Adam, four bytes each."""
    parts, count = memory_plan("tiny").parts, 192_512  # by tests/model/test_lora.py's arithmetic at r = 8
    assert (parts["LoRA"], parts["LoRA gradients"], parts["optimizer"]) == (4 * count, 4 * count, 8 * count)


def test_moments_of_eight_bits_are_what_bitsandbytes_keeps():
    """Counted as fp32, they took a quarter of a gigabyte that a T4 has for a second completion in a micro-batch."""
    model, _ = load_model(profile="tiny", dense="fp32")
    model = add_lora(model, r=4, alpha=8)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = AdamW8bit(weights)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    held = 0
    for state in optimizer.state.values():
        for name, value in state.items():
            if name.startswith(("state", "absmax")):  # all weights share two tables of codes
                held += value.nbytes
    profile = replace(PROFILES["tiny"], lora_r=4)
    assert memory_plan(profile, optim="adamw_8bit").parts["optimizer"] == held
    whole = memory_plan(profile, optim="adamw_torch").parts
    assert held < whole["optimizer"] / 2 and whole["temporaries of AdamW"] == whole["LoRA"]


def test_the_optimizer_of_the_run_is_planned(tmp_path):
    """PyTorch's moments are four times as large, and then a second completion in a micro-batch has no room."""
    assert memory_plan("t4", optim="adamw_torch").parts["optimizer"] > 3 * memory_plan("t4").parts["optimizer"]
    sizes = {
        optim: GRPOConfig.for_profile(PROFILES["t4"], str(tmp_path), optim=optim).per_device_train_batch_size
        for optim in ("adamw_8bit", "adamw_torch")
    }
    assert sizes == {"adamw_8bit": 2, "adamw_torch": 1}


def test_a_gpu_takes_more_than_tensors():
    """A T4 reports 14.56 GiB, and the driver had half a gigabyte of it that no plan knew of."""
    plan = memory_plan("t4")
    driver = {"CUDA context", "kernel modules", "CUDA graphs", "cuBLAS workspaces"}
    assert set(plan.estimates) == driver | {"rounding", "margin"}
    assert plan.total == max(plan.phases.values()) + sum(plan.estimates.values())
    assert 0.2 * GIB < plan.outside_pytorch < 0.3 * GIB
    assert "0.72 of them estimated" in str(plan) and any("(estimate)" in name for name, _ in plan.rows())
    assert memory_plan("t4", batch=2).estimates["CUDA graphs"] < plan.estimates["CUDA graphs"]
    assert memory_plan("tiny").estimates == {} and "estimated" not in str(memory_plan("tiny"))


def test_the_allocator_leaves_the_driver_its_share(monkeypatch):
    """PyTorch caches all there is, and frees none of it when the driver has no memory for a kernel or a graph."""
    fractions = []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (10 * GIB, 16 * GIB))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda: 2 * GIB)
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", fractions.append)
    leave_to_driver(4 * GIB)  # of the 12 that are free or PyTorch's already
    leave_to_driver(20 * GIB)
    assert fractions == [8 / 16, 0.0]


def test_the_largest_batch_keeps_a_margin():
    """What the driver takes is an estimate: a batch to the last byte would begin with an error."""
    plan = memory_plan("t4", largest_batch("t4"))
    driver = sum(size for name, size in plan.estimates.items() if name != "margin")
    assert plan.available - max(plan.phases.values()) - driver >= 0.1 * GIB


def test_the_released_20b():
    """Figures that others have published or counted: ours must reproduce them."""
    config = released_config("20b")
    assert sum(parameter_counts(config).values()) == 20_914_757_184
    plan = memory_plan("t4", batch=1, length=1000)
    assert round(plan.parts["experts"] / GIB, 3) == 9.455
    # a row for the completion and one for a prompt, each with a place for the sink
    assert plan.parts["KV cache, full layers"] == 2 * 24_576 * 1001
    assert plan.parts["KV cache, sliding layers"] == 2 * 3 * 2**20 * 129 / 128
    assert plan.parts["dequantise scratch"] == (31.640625 + 15.8203125) * 2**20


def test_the_released_120b():
    """36 layers of 128 experts; packed, it is one 80 GB card's, and all of it can be built without a byte."""
    config = released_config("120b")
    counts = parameter_counts(config)
    assert counts["experts"] == 114_661_785_600
    plan = memory_plan(
        replace(PROFILES["h100"], lora_r=4, per_device_train_batch_size=2), batch=8, length=2048, config=config
    )
    assert 60 * GIB < plan.total < 72 * GIB and plan.fits
    model = empty_model(config, PROFILES["h100"])
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    packed = sum(weight.numel() for name, weight in model.named_parameters() if name.endswith("_blocks"))
    assert 2 * packed == counts["experts"]
    assert sum(w.numel() for n, w in model.named_parameters() if "_blocks" not in n and "_scales" not in n) == (
        sum(counts.values()) - counts["experts"]
    )


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "tiny"])
def test_every_profile_fits_its_card(name):
    """`auto` decides by needs_gib, the loader by the plan: they may not disagree."""
    plan = memory_plan(name)
    assert plan.available == PROFILES[name].needs_gib * GIB and plan.fits


def test_a_t4_takes_dense_layers_whole_until_they_do_not_fit():
    """The plan chooses, and says which."""
    assert memory_plan("t4").profile.dense == "fp16" and "dense fp16" in str(memory_plan("t4"))
    tight = memory_plan(replace(PROFILES["t4"], needs_gib=13))
    assert tight.profile.dense == "nf4" and "dense nf4" in str(tight)
    whole = memory_plan(replace(PROFILES["t4"], per_device_train_batch_size=1))
    assert tight.profile.per_device_train_batch_size == 1
    saved = 637_009_920 * (2 - 0.516)
    assert max(whole.phases.values()) - max(tight.phases.values()) == pytest.approx(saved, rel=0.01)


def test_a_micro_batch_is_as_large_as_fits_the_card():
    """Two rows take half the launches and half the unpacking of one; NF4, which rounds the attention, is no price for
    that. Free memory plays no part: a run that is resumed must cut its batches as before."""
    assert memory_plan("t4").profile.per_device_train_batch_size == 2
    tight = memory_plan(replace(PROFILES["t4"], needs_gib=13.9))
    assert (tight.profile.per_device_train_batch_size, tight.profile.dense) == (1, "fp16")
    assert micro_batch_size(PROFILES["t4"]) == 2
    assert micro_batch_size(PROFILES["t4"], rollout_length(1536)) == 1
    odd = replace(PROFILES["t4"], generation_batch_size=9)
    assert micro_batch_size(odd) == 1 == memory_plan(odd).profile.per_device_train_batch_size
    assert micro_batch_size(PROFILES["tiny"]) == PROFILES["tiny"].per_device_train_batch_size


@pytest.mark.parametrize(("free", "dense", "rows"), [(14.3, "fp16", 1), (13.6, "nf4", 2), (13.0, "nf4", 1)])
def test_fewer_completions_a_micro_batch_come_before_nf4_and_a_refusal(monkeypatch, free, dense, rows):
    """A card on which something else takes half a gigabyte."""
    monkeypatch.setattr(memory, "_available", lambda profile: free * GIB)
    plan = memory_plan("t4")
    assert plan.fits and (plan.profile.dense, plan.profile.per_device_train_batch_size) == (dense, rows)


def test_what_fits_shrinks_with_the_batch(monkeypatch):
    """`largest_batch` bisects."""
    monkeypatch.setattr(memory, "_available", lambda profile: 13.0 * GIB)
    fits = [memory_plan("t4", batch).fits for batch in range(1, 40)]
    assert fits == sorted(fits, reverse=True) and fits[0] and not fits[-1]


def test_free_memory_changes_no_micro_batch(monkeypatch):
    """The trainer is made when the model fills the GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (GIB, 15 * GIB))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda: 0)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda: 0)
    assert not memory_plan("t4").fits and micro_batch_size(PROFILES["t4"]) == 2


def test_thirty_two_prompts_fit_a_t4():
    """The prefill was counted for all prompts of a batch at once, and 32 completions of 918 tokens were refused."""
    plan = memory_plan("t4", batch=32, length=918)
    assert plan.fits and plan.profile.dense == "fp16"


def test_the_worst_moment_is_a_rollout_or_an_update():
    plan = memory_plan("t4")
    tensors = plan.total - sum(plan.estimates.values())
    assert tensors == max(plan.phases.values()) < sum(plan.parts.values())
    assert plan.rows()[-1] == ("total", plan.total / GIB)


def test_longer_and_more_takes_more():
    base = memory_plan("t4").total
    assert memory_plan("t4", batch=64).total > base and memory_plan("t4", length=8192).total > base


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_longest_is_the_longest(batch):
    length = longest("t4", batch)
    assert memory_plan("t4", batch, length).fits and not memory_plan("t4", batch, length + 128).fits
    assert longest("t4", 8) >= longest("t4", 64) and longest(replace(PROFILES["t4"], needs_gib=5), 1) == 0


@pytest.mark.parametrize("name", ["t4", "l4", "a100"])
def test_largest_batch_is_the_largest(name):
    """The evaluation took 100 at a time: by the plan more than a T4 has, and more than the packed kernel takes."""
    profile = PROFILES[name]
    length = profile.max_completion_length + PROMPT
    batch = largest_batch(profile, length)
    assert memory_plan(profile, batch, length).fits and batch <= DECODE_TOKENS
    assert batch == DECODE_TOKENS or not memory_plan(profile, batch + 1, length).fits
    assert batch >= profile.num_generations


def test_the_plan_is_for_what_runs():
    """The profile's completion length was planned for whatever length the run had."""
    assert memory_plan("t4").length == rollout_length(768) == 1280
    settings = {"max_completion_length": 256, "max_prompt_length": 100, "optim": "adamw_torch"}
    config = GRPOConfig.for_profile(PROFILES["t4"], "out", **settings)
    plan = config.memory_plan("t4")
    assert (plan.batch, plan.length, plan.optim) == (config.generation_batch_size, 356, "adamw_torch")
    assert plan == memory_plan("t4", 8, 356, optim="adamw_torch")
    assert largest_batch("t4", 3072) < largest_batch("t4")


def test_the_cache_of_the_plan_is_the_cache():
    """It stays through the run, where captured steps find it: the plan must not give its room to an update."""
    config = known_config(PROFILES["tiny"])
    cache = RolloutCache(config, rows=8, length=300, dtype=torch.float32, device=torch.device("cpu"))
    plan = memory_plan("tiny", batch=8, length=300)
    kinds = ("KV cache, full layers", "KV cache, sliding layers")
    assert sum(plan.parts[kind] for kind in kinds) == cache.nbytes
    assert plan.total >= cache.nbytes + plan.parts["activations"]


def test_largest_batch_on_the_cpu_and_where_nothing_fits():
    assert largest_batch("tiny", 712) == MOST_COMPLETIONS
    with pytest.raises(UserError, match="GiB of GPU memory for 1 completions of 1280 tokens"):
        largest_batch(replace(PROFILES["t4"], needs_gib=5), 1280)


def test_a_plan_that_does_not_fit_is_one_sentence():
    with pytest.raises(
        UserError, match=r"needs \d+\.\d GiB of GPU memory for 8 completions of 1280 tokens and 5\.0 are"
    ):
        memory_plan(replace(PROFILES["t4"], needs_gib=5)).check()


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"length": 0}])
def test_nothing_to_plan_is_one_sentence(sizes):
    with pytest.raises(UserError, match="must be at least 1"):
        memory_plan("t4", **sizes)


def test_nothing_is_loaded_that_does_not_fit(monkeypatch):
    """The refusal comes before the first byte is read."""
    monkeypatch.setattr("helpers.model.memory._available", lambda profile: 1e6)
    monkeypatch.setattr("helpers.model.load.fill", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(UserError, match="choose a smaller profile"):
        load_model(profile="tiny")


def test_the_plan_is_printed(capsys):
    load_model(profile="tiny")
    assert "Memory plan, 64 completions of 712 tokens" in capsys.readouterr().out
