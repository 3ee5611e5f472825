"""The real kernels, and the whole gpt-oss-20b in random bytes inside a T4's memory. Skipped without a GPU."""

import json
from dataclasses import replace

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, add_lora, load_model, memory_plan, set_attention, text_table
from helpers.environment import hardware, versions
from helpers.grpo.logprobs import policy_logprobs
from helpers.kernels import mxfp4, mxfp4_triton
from helpers.kernels.experts import ExpertLora, ExpertWeights, Packed, expert_forward
from helpers.kernels.logprobs import token_logprobs
from helpers.model.layers import HostEmbedding
from helpers.model.load import _place, empty_model
from helpers.model.lora import checkpoint_layers
from helpers.model.memory import RESIDENT, ROLLOUT, UPDATE, released_config
from helpers.profiles import PROFILES
from helpers.rollout.completion import Completion
from helpers.runtime import GIB, ROOT, write_whole
from tests.kernels.experts import by_definition, error, random_experts, random_tokens

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

T4_BYTES = 14.2 * GIB


def to_gpu(part):
    if isinstance(part, torch.Tensor):
        return part.cuda()
    if isinstance(part, (Packed, ExpertWeights, ExpertLora)):
        return type(part)(*(to_gpu(piece) for piece in part))
    return part


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 32, 33, 300])
@pytest.mark.parametrize("adapt", [False, True])
def test_against_the_definition(dtype, tokens, adapt):
    """Both sides of the border between multiplying packed bytes and unpacking, at a width of several tiles."""
    packed, dense, lora = random_experts(dtype=dtype, hidden=1056, inner=544, count=8)
    hidden, indices, weights = random_tokens(tokens, hidden=1056, routing="one")
    hidden, lora = hidden / 32, lora if adapt else None
    exact = by_definition(hidden, indices, weights, dense, lora)
    ours = expert_forward(hidden.cuda(), indices.cuda(), weights.cuda(), to_gpu(packed), to_gpu(lora))
    assert error(ours.cpu(), exact) < 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients(dtype):
    packed, dense, lora = random_experts(dtype=dtype)
    hidden, indices, weights = random_tokens(40)
    hidden = hidden / 4
    results = []
    for place, experts in ((torch.Tensor.cuda, packed), (torch.Tensor.double, dense)):
        leaves = [place(leaf).detach().requires_grad_() for leaf in (hidden, weights, *lora[:4])]
        adapter = ExpertLora(*leaves[2:], lora.scaling)
        if experts is packed:
            out = expert_forward(leaves[0], indices.cuda(), leaves[1], to_gpu(packed), adapter)
        else:
            out = by_definition(leaves[0], indices, leaves[1], dense, adapter)
        direction = torch.ones_like(out)
        results.append([gradient.cpu() for gradient in torch.autograd.grad(out, leaves, direction)])
    for ours, exact in zip(*results):
        assert error(ours, exact) < 4 * torch.finfo(dtype).eps


def test_unpacking_is_exact():
    blocks = torch.randint(0, 256, (64, 90, 16), dtype=torch.uint8)
    scales = torch.randint(100, 140, (64, 90), dtype=torch.uint8)
    for dtype in (torch.float16, torch.bfloat16):
        ours = mxfp4_triton.unpack(blocks.cuda(), scales.cuda(), dtype)
        assert torch.equal(ours.cpu(), mxfp4.unpack(blocks, scales, dtype))


def test_decode_is_captured_in_a_graph_and_follows_the_adapter():
    """A host synchronisation would break the capture; the adapter is read where it lies, so a training step shows."""
    packed, _, lora = map(to_gpu, random_experts(dtype=torch.float16))
    hidden, indices, weights = map(to_gpu, random_tokens(8))
    with torch.no_grad():
        for _ in range(2):
            expert_forward(hidden, indices, weights, packed, lora)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = expert_forward(hidden, indices, weights, packed, lora)
        lora.down_B.mul_(3)
        hidden.copy_(torch.randn_like(hidden))
        graph.replay()
        assert torch.equal(out, expert_forward(hidden, indices, weights, packed, lora))


def test_rows_of_host_memory_in_a_graph():
    embedding, ids = HostEmbedding(torch.randn(1000, 2880).half()), torch.tensor([5, 999], device="cuda")
    table = embedding.weight
    assert table.device.type == "cpu" and torch.equal(embedding(ids).cpu(), table[ids.cpu()].float())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = mxfp4_triton.gather_rows(table, ids)
    ids.fill_(7)
    graph.replay()
    assert torch.equal(out.cpu(), table[[7, 7]].float())


def test_log_probabilities_at_full_size():
    """8,192 tokens of 201,088 words at most 0.35 GB above the inputs."""
    hidden = torch.randn(8192, 2880, device="cuda", requires_grad=True)
    head = torch.randn(201_088, 2880, device="cuda", dtype=torch.float16) * 0.02
    tokens = torch.randint(0, 201_088, (8192,), device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    token_logprobs(hidden, head, tokens)[0].sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.35e9


def random_20b(profile):
    """The whole model in random bytes of the released shapes."""
    config = released_config("20b")
    model = empty_model(config, profile)
    generator = torch.Generator("cuda").manual_seed(0)
    for name, weight in list(model.named_parameters()):
        if weight.dtype == torch.uint8:
            low, high = (118, 124) if name.endswith("_scales") else (0, 256)
            tensor = torch.randint(low, high, weight.shape, dtype=torch.uint8, device="cuda", generator=generator)
        else:
            tensor = torch.randn(weight.shape, device="cuda", generator=generator, dtype=torch.float16) * 0.02
            tensor = tensor + 1 if "norm" in name else tensor
        _place(model, name, tensor.cpu() if "embed_tokens" in name else tensor, profile)
        del tensor
    model.to("cuda").requires_grad_(False)
    set_attention(model, "auto")
    return model.eval()


@pytest.fixture
def t4_memory():
    """A T4's memory on whatever card is there."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, T4_BYTES / total))
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def peak_of(call):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def random_completions(count):
    ids = torch.randint(0, 199_000, (count, 1024)).tolist()
    return [Completion(row[:256], row[256:], [0.0] * 768, "", "", "stop") for row in ids]


def test_the_20b_in_a_t4s_memory(t4_memory):
    """Loads, generates, and back-propagates four micro-batches of 1,024 tokens; peaks within 5 % of the plan."""
    profile = replace(PROFILES["t4"], dense="fp16")
    start = torch.cuda.memory_allocated()
    model = add_lora(random_20b(profile), profile.lora_r, profile.lora_alpha)
    loaded = torch.cuda.memory_allocated() - start
    prompt = torch.randint(0, 199_000, (8, 512), device="cuda")
    rollout = peak_of(lambda: model.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=True)) - start
    checkpoint_layers(model)
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights)

    def update():
        for completion in random_completions(4):
            policy_logprobs(model, [completion])[0].sum().backward()
        assert all(weight.grad.isfinite().all() for weight in weights)
        optimizer.step()

    update()  # from here on the optimizer's moments are there
    optimizer.zero_grad(set_to_none=False)
    updated = peak_of(update) - start
    short, long = memory_plan(profile, batch=8, length=576).parts, memory_plan(profile, batch=8, length=1024).parts
    kept = sum(short[name] for name in (*RESIDENT[:5], "LoRA"))
    training = sum(long[name] for name in ("dequantise scratch", "LoRA gradients", "optimizer", *UPDATE))
    rows = [
        ("weights and LoRA", kept, loaded),
        ("peak of a rollout", kept + short["dequantise scratch"] + sum(short[name] for name in ROLLOUT), rollout),
        ("peak of an update", kept + training, updated),
    ]
    shown = [(name, p / GIB, m / GIB, (p - kept) / GIB, (m - loaded) / GIB) for name, p, m in rows]
    header = ["", "planned GiB", "measured GiB", "planned beyond weights", "measured beyond weights"]
    print(hardware(), text_table(shown, header), sep="\n")
    result = {"hardware": hardware(), "versions": versions(), "cap_bytes": T4_BYTES, "rows": rows}
    write_whole(ROOT / "tests/benchmarks/results/memory-20b.json", json.dumps(result, indent=1) + "\n")
    for name, planned, measured in rows:
        assert abs(measured / planned - 1) < 0.05, name


@pytest.mark.parametrize("dense", ["fp16", "bf16"])
def test_the_embedded_model_as_a_t4_has_it(dense):
    """The loader itself on a GPU: packed bytes, 16-bit operands, the embedding on the host; sampled = scored."""
    dtype = {"fp16": "float16", "bf16": "bfloat16"}[dense]
    profile = replace(
        PROFILES["tiny"], needs_gib=1, dtype=dtype, experts="mxfp4", dense=dense, embedding="host", lora_r=4
    )
    model, tokenizer = load_model(profile=profile)
    assert model.device.type == "cuda" and isinstance(model.model.embed_tokens, HostEmbedding)
    model = add_lora(model, 4, 8)
    engine = RolloutEngine(model, tokenizer, max_batch_size=16, max_length=1024)
    completions = engine.generate(["Write matmul."], SamplingParams(max_new_tokens=60), num_generations=16)
    logprobs, _, mask = policy_logprobs(model, completions)
    sampled = torch.nn.utils.rnn.pad_sequence([torch.tensor(c.logprobs) for c in completions], batch_first=True)
    assert ((logprobs.cpu() - sampled).abs() * mask.cpu()).sum() / mask.sum().cpu() < 1e-3
    logprobs.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.requires_grad)
