"""The mixture of experts over packed bytes: values, gradients, and what is read and held."""

import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.checkpoint import checkpoint

from helpers.kernels import decode_triton, mxfp4, mxfp4_triton, swiglu, swiglu_triton
from helpers.kernels.experts import (
    DECODE_TOKENS,
    ExpertLora,
    Packed,
    Recomputing,
    expert_forward,
    routed_forward,
    workspace_for,
)
from helpers.kernels.launch import POINTERS, Launch
from helpers.kernels.launches import launches
from helpers.kernels.linear import frozen_linear
from helpers.rollout import decoder
from helpers.rollout.cache import LayerCache
from helpers.rollout.decoder import Rows
from tests.kernels.experts import by_definition, error, random_experts, random_tokens


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 40), st.sampled_from(["uniform", "skewed", "one"]), st.booleans(), st.booleans(), st.integers(0, 99)
)
def test_values_and_gradients(tokens, routing, pack, adapt, seed):
    """Against the definition in float64: outputs, and the gradients in tokens, routing weights and both LoRAs."""
    packed, dense, lora = random_experts(seed)
    hidden, indices, weights = random_tokens(tokens, seed=seed, routing=routing)
    leaves = [leaf.requires_grad_() for leaf in (hidden, weights, *(lora[:4] if adapt else ()))]
    lora = lora if adapt else None
    ours = expert_forward(hidden, indices, weights, packed if pack else dense, lora)
    exact = by_definition(hidden, indices, weights, dense, lora)
    if not tokens:
        assert ours.shape == (0, 96)
        return
    assert error(ours.detach(), exact.detach()) < 1e-6
    direction = torch.randn(exact.shape, dtype=torch.float64)
    mine = torch.autograd.grad((ours.double() * direction).sum(), leaves)
    theirs = torch.autograd.grad((exact * direction).sum(), leaves)
    for a, b in zip(mine, theirs):
        assert error(a, b) < 1e-5


@pytest.mark.parametrize("tokens", [1, 4096])
@pytest.mark.parametrize("routing", ["uniform", "one"])
def test_few_and_many_tokens(tokens, routing):
    packed, dense, _ = random_experts()
    hidden, indices, weights = random_tokens(tokens, routing=routing)
    assert (
        error(expert_forward(hidden, indices, weights, packed), by_definition(hidden, indices, weights, dense)) < 1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_only_experts_that_were_hit_are_read_and_one_at_a_time(monkeypatch, dtype):
    """All 32 experts unpacked would be 1.5 GiB a layer; the incumbent's decode read all of them for each token."""
    read, alive = [], []
    real = Packed.expert

    def watched(self, index, dtype):
        matrix = real(self, index, dtype)
        read.append(index)
        alive.append(weakref.ref(matrix))
        held = sum(ref() is not None for ref in alive)
        assert held <= 2, f"{held} dense matrices at once"  # gate_up and down of one expert
        return matrix

    monkeypatch.setattr(Packed, "expert", watched)
    packed, _, lora = random_experts(dtype=dtype)
    hidden, indices, weights = random_tokens(50, routing="one")
    hidden.requires_grad_()
    expert_forward(hidden, indices, weights, packed, lora).sum().backward()
    assert set(read) == set(indices.flatten().tolist()) != set(range(8))


def test_frozen_weights_get_no_gradient_and_nothing_inside_is_kept():
    """A gradient for one layer's frozen experts would be a GiB; what an expert computes inside is computed again."""
    packed, _, lora = random_experts()
    hidden, indices, weights = random_tokens(50)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        out = expert_forward(hidden.requires_grad_(), indices, weights, packed, lora)
    assert sum(saved) == hidden.numel() + weights.numel() + indices.numel() + sum(part.numel() for part in lora[:4])
    out.sum().backward()
    assert all(tensor.grad is None for tensor in (packed.gate_up_bias, packed.down_bias))


def gradients_of_a_layer(packed, lora, tokens, after, is_checkpointed):
    """The gradients in a layer's input, routing weights and adapter; after: what follows the experts in the layer."""
    hidden, indices, weights = tokens
    leaves = [leaf.detach().clone().requires_grad_() for leaf in (hidden, weights, *lora[:4])]

    def layer(x, shares, *matrices):
        adapter = ExpertLora(*matrices, lora.scaling)
        return after(x + expert_forward(x, indices, shares, packed, adapter))

    if is_checkpointed:
        contexts = {"context_fn": lambda: (nullcontext(), Recomputing())}
        out = checkpoint(layer, *leaves, use_reentrant=False, **contexts)
    else:
        out = layer(*leaves)
    return torch.autograd.grad(out.sum(), leaves)


def test_a_layer_that_is_computed_again_leaves_its_experts_out(monkeypatch):
    """Under checkpointing they were computed three times and are the most of an update; twice is enough."""
    read = []
    real = Packed.expert
    monkeypatch.setattr(Packed, "expert", lambda *arguments: read.append(arguments[1]) or real(*arguments))
    packed, _, lora = random_experts()
    tokens = random_tokens(50, routing="one")
    hit = len(tokens[1].unique())
    plain = gradients_of_a_layer(packed, lora, tokens, torch.Tensor.clone, is_checkpointed=False)
    assert len(read) == 2 * 2 * hit  # both matrices, forwards and backwards
    read.clear()
    again = gradients_of_a_layer(packed, lora, tokens, torch.Tensor.clone, is_checkpointed=True)
    assert len(read) == 2 * 2 * hit
    assert all(map(torch.equal, plain, again)) and plain[0].any()


def test_a_layer_that_needs_the_output_of_its_experts_shows_it():
    """If a later transformers computed on with the sum, gradients would be wrong: NaN, which no step takes."""
    packed, _, lora = random_experts()
    gradients = gradients_of_a_layer(packed, lora, random_tokens(50), torch.Tensor.square, is_checkpointed=True)
    assert gradients[0].isnan().all()


def test_a_second_backward_pass_through_a_checkpointed_layer():
    """With `retain_graph` the layer is computed again once more."""
    packed, _, lora = random_experts()
    hidden, indices, weights = random_tokens(30)
    x = hidden.clone().requires_grad_()

    def layer(x):
        return x + expert_forward(x, indices, weights, packed, lora)

    out = checkpoint(layer, x, use_reentrant=False, context_fn=lambda: (nullcontext(), Recomputing()))
    first, second = (torch.autograd.grad(out.sum(), x, retain_graph=True)[0] for _ in "ab")
    assert torch.equal(first, second) and first.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_autocast_changes_nothing(dtype):
    """A trainer that switches it on would round the adapters and the sums, or stop at mixed dtypes."""
    packed, _, lora = random_experts(dtype=dtype)
    tokens = random_tokens(30)
    results = []
    for is_on in (False, True):
        leaves = [leaf.detach().clone().requires_grad_() for leaf in (tokens[0], *lora[:4])]
        with torch.autocast("cpu", enabled=is_on):
            adapter = ExpertLora(*leaves[1:], lora.scaling)
            out = expert_forward(leaves[0], *tokens[1:], packed, adapter)
            results.append([out.detach(), *torch.autograd.grad(out.sum(), leaves)])
    assert all(map(torch.equal, *results))


def cut(packed, half):
    """Half the groups of 32: broadcast, it would give a wrong product without a word."""
    return packed._replace(**{half: getattr(packed, half)[:, :, :1]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h, i, w, e: (h[:, :5], i, w, e), "hidden must be"),
        (lambda h, i, w, e: (h, i[:3], w, e), "hidden must be"),
        (lambda h, i, w, e: (h, i, w[:, :1], e), "hidden must be"),
        (lambda h, i, w, e: (h, i, w, e._replace(down=cut(e.down, "blocks"))), "down blocks must be"),
        (lambda h, i, w, e: (h, i, w, e._replace(down=cut(e.down, "scales"))), "down scales must be"),
        (lambda h, i, w, e: (h, i, w, e._replace(gate_up=torch.zeros(8, 64, 96))), "gate_up must be"),
        (lambda h, i, w, e: (h, i, w, e, random_experts(inner=32)[2]), "gate_up_B must be"),
    ],
)
def test_shapes_that_do_not_fit(change, words):
    with pytest.raises(ValueError, match=words):
        expert_forward(*change(*random_tokens(4), random_experts()[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("adapt", [False, True])
def test_sixteen_bits(dtype, adapt):
    """16-bit operands, everything else fp32: within rounding of the operands, gradients too."""
    packed, dense, lora = random_experts(dtype=dtype)
    lora = lora if adapt else None
    hidden, indices, weights = random_tokens(30)
    hidden = (hidden / 4).requires_grad_()  # clear of the clamp, on whose edge a rounding turns a gradient off
    ours = expert_forward(hidden, indices, weights, packed, lora)
    exact = by_definition(hidden, indices, weights, dense, lora)
    limit = 2 * torch.finfo(dtype).eps
    assert ours.dtype == torch.float32 and error(ours.detach(), exact.detach()) < limit
    direction = torch.randn(exact.shape)
    mine, theirs = (torch.autograd.grad((out * direction).sum(), hidden)[0] for out in (ours, exact))
    assert error(mine, theirs.double()) < limit


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_gradient_of_any_size_survives_fp16(scale):
    """fp16 ends at 6e-8 and 65,504; a token's gradient is often below the one, a spike above the other."""
    weight, x = torch.randn(64, 32).half(), torch.randn(5, 64, requires_grad=True)
    frozen_linear(x, weight).backward(scale * torch.ones(5, 32))
    exact = scale * weight.double().sum(1)
    assert error(x.grad[0], exact) < 2e-3


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 70), st.sampled_from(["uniform", "skewed", "one"]), st.integers(1, 7),
    st.sampled_from([0, 1, 4, 5, 8]), st.integers(0, 99),
)  # fmt: skip
def test_a_rollout_gets_what_training_gets(tokens, routing, top_k, rank, seed):
    """The sampler's experts are one grouped product, the trainer's a loop: where they differ the ratio is not one.

    "skewed" and "one" leave experts without a token, so that some groups are empty, the first and the last among them.
    Adapters go two ways, by the number of pairs and the rank; rank 0: none.
    """
    _, dense, lora = random_experts(seed, rank=max(rank, 1))
    hidden, indices, weights = random_tokens(tokens, top_k=top_k, seed=seed, routing=routing)
    lora = lora if rank else None
    before = [part.clone() for part in (hidden, indices, weights)]
    ours = routed_forward(hidden, indices, weights, dense, lora)
    assert all(map(torch.equal, before, (hidden, indices, weights)))
    assert ours.shape == hidden.shape and ours.dtype == torch.float32
    if tokens:
        assert error(ours, expert_forward(hidden, indices, weights, dense, lora)) < 1e-6
        assert error(ours, by_definition(hidden, indices, weights, dense, lora)) < 1e-6


@pytest.mark.parametrize("expert", [0, 3, 7])
@pytest.mark.parametrize("tokens", [1, 2, 33])
@pytest.mark.parametrize("adapt", [False, True])
def test_all_tokens_on_one_expert(expert, tokens, adapt):
    """The groups before and behind are empty: an end that is off by one gives the tokens to a neighbour."""
    _, dense, lora = random_experts()
    lora = lora if adapt else None
    hidden, indices, weights = random_tokens(tokens, top_k=1)
    indices = torch.full_like(indices, expert)
    weights = torch.rand_like(weights)
    ours = routed_forward(hidden, indices, weights, dense, lora)
    assert error(ours, by_definition(hidden, indices, weights, dense, lora)) < 1e-6


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("adapt", [False, True])
def test_a_traced_rollout_follows_another_routing(adapt):
    """Sizes of groups that are read on the host would be those of the step that was traced."""
    _, dense, lora = random_experts()
    lora = lora if adapt else None
    first, second = random_tokens(9, seed=1), random_tokens(9, seed=2, routing="one")

    def forward(hidden, indices, weights):
        return routed_forward(hidden, indices, weights, dense, lora)

    traced = torch.jit.trace(forward, first, check_trace=False)
    assert torch.equal(traced(*second), forward(*second)) and not torch.equal(traced(*first), traced(*second))


def test_other_experts_are_the_trainers_own():
    """Packed and 16-bit experts have no grouped product on the CPU: they must not be taken for dense fp32."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        packed, dense, lora = random_experts(dtype=dtype)
        tokens = random_tokens(20)
        for experts in (packed, dense) if dtype != torch.float32 else (packed,):
            assert torch.equal(routed_forward(*tokens, experts, lora), expert_forward(*tokens, experts, lora))
        assert workspace_for(packed, 20, 3) is None and workspace_for(dense, 20, 3) is None  # a GPU's only


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs them on the GPU")
class TestKernels:
    """Triton's, in its interpreter without a GPU: it runs the same program, block by block."""

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize(("tokens", "routing"), [(1, "uniform"), (3, "one"), (9, "skewed"), (17, "one")])
    @pytest.mark.parametrize("adapt", [False, True])
    def test_decode_equals_the_reference(self, dtype, tokens, routing, adapt):
        self.compare(tokens, routing, dtype, adapt, hidden=64, inner=32, count=4, top_k=2)

    @pytest.mark.parametrize("tiling", [*mxfp4_triton.MULTIPLY_ADDS, mxfp4_triton.TENSOR_CORES])
    @pytest.mark.parametrize("routing", ["uniform", "one"])
    def test_every_form_of_the_products(self, tiling, routing):
        """A card's compute capability chooses the form; slots that are not full, and several for one expert. (The
        interpreter cannot multiply bfloat16 with `tl.dot`: that one is compiled ahead of time only.)"""
        several_slots = tiling.tokens + 3  # the last one is not full, but for slots of one token
        tokens = several_slots if routing == "one" else 2
        sizes = {"hidden": 160, "inner": 32, "count": 4}
        self.compare(tokens, routing, torch.float16, True, top_k=2, tiling=tiling, **sizes)

    def test_a_rollout_with_a_workspace_multiplies_the_packed_bytes(self, monkeypatch):
        """Only that call can be captured in a CUDA graph; the trainer's unpacks expert by expert."""
        called = []
        monkeypatch.setattr(mxfp4_triton, "decode", lambda *arguments: called.append(arguments) or "decoded")
        packed, _, lora = random_experts()
        arguments = (*random_tokens(4), packed, lora, mxfp4_triton.Workspace.allocate(4, 3, packed))
        assert routed_forward(*arguments) == "decoded" and called == [arguments]

    def test_strided_arguments(self):
        """The kernels read memory in a row; a transposed tensor would be read in another order."""
        packed, _, lora = random_experts(dtype=torch.float16, hidden=64, inner=32, count=4)
        hidden, indices, weights = random_tokens(3, 4, 64, 2)
        workspace = mxfp4_triton.Workspace.allocate(3, 2, packed)
        strided = hidden.T.contiguous().T, indices.T.contiguous().T, weights.T.contiguous().T
        assert not strided[0].is_contiguous() and not strided[1].is_contiguous()
        wanted = mxfp4_triton.decode(hidden, indices, weights, packed, lora, workspace).clone()
        assert torch.equal(mxfp4_triton.decode(*strided, packed, lora, workspace), wanted)

    @pytest.mark.parametrize("tokens", [1, pytest.param(4, marks=pytest.mark.slow)])
    def test_decode_over_several_tiles(self, tokens):
        """Wider than a tile, and no multiple of it: the loop runs more than once and its end is masked."""
        self.compare(tokens, "uniform", torch.float16, True, hidden=1056, inner=64, count=2, top_k=1)

    @staticmethod
    def compare(tokens, routing, dtype, adapt, top_k, tiling=None, **sizes):
        packed, dense, lora = random_experts(dtype=dtype, **sizes)
        lora = lora if adapt else None
        hidden, indices, weights = random_tokens(tokens, sizes["count"], sizes["hidden"], top_k, routing=routing)
        hidden = hidden / sizes["hidden"] ** 0.5
        workspace = mxfp4_triton.Workspace.allocate(tokens, top_k, packed, tiling)
        for buffer in (workspace.operands, workspace.inside, workspace.outside):
            buffer.fill_(torch.nan)  # as an earlier step may leave them
        workspace.slot_expert.fill_(1)
        workspace.slot_pairs.fill_(0)
        ours = mxfp4_triton.decode(hidden, indices, weights, packed, lora, workspace)
        limit = 1e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        assert error(ours, by_definition(hidden, indices, weights, dense, lora)) < limit
        # the same rounding as the trainer's, so that sampled and trained log-probabilities agree
        assert error(ours, expert_forward(hidden, indices, weights, packed, lora).double()) < limit / 2

    @pytest.mark.parametrize(("tokens", "top_k", "count"), [(1, 4, 32), (7, 4, 32), (16, 2, 3), (32, 4, 8), (5, 3, 5)])
    @pytest.mark.parametrize("routing", ["uniform", "one"])
    @pytest.mark.parametrize("capability", [(7, 5), (8, 0)])
    def test_slots_hold_each_pair_once_with_its_expert(self, tokens, top_k, count, routing, capability):
        """The slots of an expert follow each other and all but its last are full: as few as can be, and there are
        enough of them however unlike the experts are."""
        _, indices, _ = random_tokens(tokens, count=count, top_k=top_k, routing=routing)
        tiling = mxfp4_triton.Tiling.choose(tokens, capability)
        experts = random_experts(count=count, hidden=32, inner=32)[0]
        workspace = mxfp4_triton.Workspace.allocate(tokens, top_k, experts, tiling)
        workspace.slot_expert.fill_(77)
        workspace.slot_pairs.fill_(77)
        mxfp4_triton.fill_slots(indices, workspace, count)
        wanted_experts = []
        wanted_pairs = []
        for expert in range(count):
            pairs = (indices.flatten() == expert).nonzero()[:, 0].tolist()
            for start in range(0, len(pairs), tiling.tokens):
                held = pairs[start : start + tiling.tokens]
                wanted_experts.append(expert)
                wanted_pairs.append(held + [-1] * (tiling.tokens - len(held)))
        unused = len(workspace.slot_expert) - len(wanted_experts)
        assert workspace.slot_expert.tolist() == wanted_experts + [-1] * unused
        assert workspace.slot_pairs.tolist() == wanted_pairs + [[-1] * tiling.tokens] * unused

    def test_slots_are_enough_for_every_routing(self):
        """Pairs beyond the last slot would be left out without a word."""
        experts = random_experts(count=4, hidden=32, inner=32)[0]
        for tokens in range(1, DECODE_TOKENS + 1):
            for tiling in (mxfp4_triton.Tiling.choose(tokens, capability) for capability in ((7, 5), (9, 0))):
                workspace = mxfp4_triton.Workspace.allocate(tokens, 2, experts, tiling)
                # the worst: as many experts as can have one pair in their last slot
                pairs = 2 * tokens
                alone = min(3, pairs)
                needed = alone + -(-(pairs - alone) // tiling.tokens)
                assert len(workspace.slot_expert) >= needed, (tokens, tiling)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
    @pytest.mark.parametrize("window", [None, 8])
    def test_rotation_and_cache_are_those_of_the_cpu(self, dtype, window):
        """Queries, keys and values to the last bit, each in its place of a ring that has gone round."""
        heads, key_heads, dim, length, rows = 4, 2, 16, 24, 3
        qkv = torch.randn(rows, heads + 2 * key_heads, dim).to(dtype)
        cos, sin = torch.randn(2, length, dim).to(dtype)
        capacity = window or length
        caches = [LayerCache(*torch.zeros(2, rows + 1, key_heads, 1 + capacity, dim).to(dtype), window) for _ in "ab"]
        progress = Rows.empty(rows, length, 32, torch.device("cpu"))
        progress.positions.copy_(torch.tensor([0, 7, 21]))
        weights = SimpleNamespace(cos=cos, sin=sin, heads=heads, key_heads=key_heads, head_dim=dim)
        angles = decoder._angles(weights, progress.positions)
        wanted = decoder._rotate_and_cache(weights, qkv, angles, caches[0], progress)
        ours = decode_triton.rotate_and_cache(
            qkv, cos, sin, progress.positions, caches[1].keys, caches[1].values, heads
        )
        assert torch.equal(ours, wanted)
        for name in ("keys", "values"):
            assert torch.equal(getattr(caches[0], name), getattr(caches[1], name)) and caches[1].keys.any()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
    def test_activation_and_its_gradient_are_those_of_the_cpu(self, dtype, scale):
        """Wider than a block; values beyond the limit, where the gradient is zero; a row without a gradient."""
        rows, inner, limit = 3, 1060, 2.0
        raw, bias = torch.randn(rows, 2 * inner) * 2, torch.randn(2 * inner)
        to_inside, factors = torch.randn(rows, inner) * scale, torch.tensor([0.5, 3.0, 1.0])
        to_inside[1] = 0
        wanted = swiglu.activate(raw, bias, dtype, 1.702, limit)
        ours = swiglu_triton.activate(raw, bias, dtype, 1.702, limit)
        eps = torch.finfo(dtype).eps
        assert ours.dtype == dtype and error(ours, wanted) < eps

        sides = []
        for function in (swiglu.activate_backward, swiglu_triton.activate_backward):
            products, scales = torch.full((2, rows), torch.nan)
            arguments = (raw.clone(), bias, to_inside, factors, dtype, 1.702, limit, products, scales)
            sides.append([*function(*arguments), products, scales])
        (inside, gradient, operands, products, scales), ours = sides
        assert torch.equal(ours[4], scales) and (dtype == torch.float16) == bool((scales != 1).any())
        assert operands.dtype == ours[2].dtype == dtype and ours[2].isfinite().all()
        for mine, theirs in zip(ours, (inside, gradient, operands)):
            assert error(mine, theirs) < max(2 * eps, 1e-6)
        largest = (inside / factors[:, None]).norm(dim=1) * to_inside.norm(dim=1)  # terms of both signs cancel
        assert ((ours[3] - products).abs() <= max(2 * eps, 1e-6) * largest).all()
        assert (gradient[0] == 0).any() and torch.equal(ours[1] == 0, gradient == 0)

    @pytest.mark.parametrize("tokens", [1, 8, 64])
    def test_decode_never_waits_for_the_host(self, tokens, monkeypatch):
        """One wait a layer is 24 a token, and a step with one cannot be captured in a CUDA graph: here tensors have
        no values to wait for, and asking for one raises."""
        monkeypatch.setattr(Launch, "__call__", lambda *_: None)
        real = (*random_tokens(tokens), *random_experts(dtype=torch.float16)[::2])
        workspace = mxfp4_triton.Workspace.allocate(tokens, real[1].shape[1], real[3])
        with FakeTensorMode() as mode:

            def fake(part):
                if isinstance(part, torch.Tensor):
                    return mode.from_tensor(part)
                is_of_tensors = isinstance(part, tuple) and not isinstance(part, mxfp4_triton.Tiling)
                return type(part)(*map(fake, part)) if is_of_tensors else part

            parts = [fake(part) for part in (*real, workspace)]
            assert mxfp4_triton.decode(*parts).shape == (tokens, 96)
            with pytest.raises(DataDependentOutputException):  # as it must
                parts[0].sum().item()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_unpacking_is_exact(self, dtype):
        blocks = torch.arange(256, dtype=torch.uint8).view(16, 1, 16).expand(16, 255, 16).contiguous()
        scales = torch.arange(255, dtype=torch.uint8).expand(16, 255).contiguous()
        if dtype == torch.bfloat16:
            scales = scales.clamp(min=3)  # the interpreter, not the GPU, rounds subnormals to zero here
        assert torch.equal(mxfp4_triton.unpack(blocks, scales, dtype), mxfp4.unpack(blocks, scales, dtype))

    def test_rows_of_a_host_table(self):
        table, ids = torch.randn(10, 70).half(), torch.tensor([[1, 5], [9, 0]])
        assert torch.equal(mxfp4_triton.gather_rows(table, ids), table[ids].float())

    @pytest.mark.parametrize("capability", [(7, 5), (8, 0)])
    def test_every_launch_is_in_the_table(self, monkeypatch, capability):
        """What the ahead-of-time test compiles is what runs."""
        ran = []

        def launched(self, grid, *arguments):
            ran.append(self)
            names = [name for name in self.kernel.arg_names if name in self.types]
            scalars = {int: "i32", float: "fp32"}
            found = [POINTERS[a.dtype] if torch.is_tensor(a) else scalars[type(a)] for a in arguments]
            assert len(arguments) == len(names) and dict(zip(names, found)) == self.types

        monkeypatch.setattr(Launch, "__call__", launched)
        packed, _, lora = random_experts(dtype=torch.float16)
        for tokens in (1, 2, 4, 8, 16, 32, 64):
            tiling = mxfp4_triton.Tiling.choose(tokens, capability)
            for adapter in (None, lora):
                routing = random_tokens(tokens)
                workspace = mxfp4_triton.Workspace.allocate(tokens, routing[1].shape[1], packed, tiling)
                mxfp4_triton.decode(*routing, packed, adapter, workspace)
        mxfp4_triton.unpack(packed.down.blocks[0], packed.down.scales[0], torch.float16)
        mxfp4_triton.gather_rows(torch.zeros(4, 96).half(), torch.zeros(2, dtype=torch.long))
        for capacity in (8, 40):
            cache = torch.zeros(2, 3, 2, 1 + capacity, 16).half()
            qkv = torch.zeros(2, 8, 16).half()
            tables = torch.zeros(2, 40, 16).half()
            decode_triton.rotate_and_cache(qkv, *tables, torch.zeros(2, dtype=torch.long), *cache, 4)
        inner = torch.zeros(2, 128)
        swiglu_triton.activate(inner, inner[0], torch.float16, 1.702, 7.0)
        swiglu_triton.activate_backward(
            inner, inner[0], inner[:, :64].contiguous(), inner[:, 0].contiguous(), torch.float16, 1.702, 7.0,
            inner[:, 0].contiguous(), inner[:, 0].contiguous(),
        )  # fmt: skip
        config = SimpleNamespace(
            hidden_size=96, intermediate_size=64, num_experts_per_tok=3, num_local_experts=8, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, sliding_window=8,
        )  # fmt: skip
        table = list(launches(config, 5, torch.float16, capability, (40,)))
        assert [launch for launch in ran if launch not in table] == []
        assert [launch for launch in table if launch not in ran] == []
