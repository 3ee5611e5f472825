"""The real kernels, and the whole gpt-oss-20b in random bytes inside a T4's memory. Skipped without a GPU."""

from dataclasses import replace

import pytest
import torch

from helpers import RolloutEngine, SamplingParams, add_lora, load_model
from helpers.grpo.logprobs import policy_logprobs
from helpers.kernels import mxfp4, mxfp4_triton
from helpers.kernels.experts import ExpertLora, ExpertWeights, Packed, expert_forward
from helpers.kernels.logprobs import token_logprobs
from helpers.model.host_embedding import HostEmbedding
from helpers.profiles import PROFILES
from tests.benchmarks import step_20b
from tests.benchmarks.models import T4_GIB, cap_memory
from tests.kernels.experts import by_definition, error, random_experts, random_tokens

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

HAS_BF16 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
DTYPES = [torch.float16, torch.bfloat16] if HAS_BF16 else [torch.float16]


def to_gpu(part):
    if isinstance(part, torch.Tensor):
        return part.cuda()
    if isinstance(part, (Packed, ExpertWeights, ExpertLora)):
        return type(part)(*(to_gpu(piece) for piece in part))
    return part


@pytest.mark.essential
@pytest.mark.parametrize("dtype", DTYPES)
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


@pytest.mark.essential
@pytest.mark.parametrize("dtype", DTYPES)
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


@pytest.mark.essential
def test_unpacking_is_exact():
    blocks = torch.randint(0, 256, (64, 90, 16), dtype=torch.uint8)
    scales = torch.randint(100, 140, (64, 90), dtype=torch.uint8)
    for dtype in (torch.float16, torch.bfloat16):
        ours = mxfp4_triton.unpack(blocks.cuda(), scales.cuda(), dtype)
        assert torch.equal(ours.cpu(), mxfp4.unpack(blocks, scales, dtype))


@pytest.mark.essential
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


@pytest.mark.essential
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


@pytest.mark.essential
def test_a_refused_registration_leaves_no_error_behind():
    """CUDA keeps the error of a failed call until somebody asks, and the next kernel would raise it."""
    table = torch.ones(1000, 64).half()
    first = HostEmbedding(table)
    with pytest.raises(RuntimeError, match="cudaHostRegister"):
        HostEmbedding(first.weight)  # registered already
    assert torch.zeros(3, device="cuda").sum().item() == 0


@pytest.mark.essential
def test_log_probabilities_at_full_size():
    """8,192 tokens of 201,088 words at most 0.35 GB above the inputs."""
    hidden = torch.randn(8192, 2880, device="cuda", requires_grad=True)
    head = torch.randn(201_088, 2880, device="cuda", dtype=torch.float16) * 0.02
    tokens = torch.randint(0, 201_088, (8192,), device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    token_logprobs(hidden, head, tokens)[0].sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.35e9


@pytest.fixture
def t4_memory():
    """A T4's memory on whatever card is there."""
    torch.cuda.empty_cache()
    cap_memory(T4_GIB)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_the_20b_in_a_t4s_memory(t4_memory, tmp_path):
    """Loads, generates and trains for two steps on completions of 64 tokens; within 5 % of the plan."""
    rows = step_20b.run("cuda", tmp_path / "step.json", step_20b.Sizes(prompt=512, completion=64))
    phases = {(row["step"], row["phase"]): row for row in rows}
    for key, size in (
        ((0, "LoRA"), "allocated"),
        ((1, "decode"), "max_allocated"),
        ((2, "forward and backward"), "max_allocated"),
    ):
        row = phases[key]
        assert abs(row["memory"][size] / row["planned_bytes"] - 1) < 0.05, row


@pytest.mark.essential
@pytest.mark.parametrize("dense", ["fp16", "bf16"] if HAS_BF16 else ["fp16"])
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
