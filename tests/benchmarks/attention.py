"""One layer's attention: flex, sdpa and eager with sinks, and transformers' own flex and eager.

    python -m tests.benchmarks.attention [--device cuda] [--out file.json]

Prefill of one row of 512 to 8,192 tokens, forwards and with its backward pass, and one decoding step of eight rows
behind so many, full and sliding; all in one run, taking turns; the median of the rounds, and the peak beyond the
inputs. On a GPU gpt-oss-20b's heads (64 and 8) in 16 bits, on the CPU an eighth of them in fp32. Every result is
compared with the definition; what does not run or fit is named.
"""

import argparse
import warnings
from functools import partial
from types import SimpleNamespace

import torch
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from helpers.display import text_table
from helpers.kernels.attention import BACKENDS, sink_attention
from helpers.kernels.masks import AttentionMask
from helpers.runtime import GIB, first_line
from tests.benchmarks.models import sixteen_bits
from tests.benchmarks.record import Record
from tests.benchmarks.timing import take_turns

LENGTHS = (512, 1024, 2048, 4096, 8192)
DIM, WINDOW, ROWS = 64, 128, 8
OURS = [f"{backend} (ours)" for backend in BACKENDS]


def sizes(device):
    """`(query heads, key heads, dtype)`."""
    if device == "cpu":
        return 8, 1, torch.float32
    return 64, 8, sixteen_bits()


def contestants(mask, device):
    """{name: function of (q, k, v, sinks)}, each with its mask made beforehand, as a model makes it once a step."""
    scale, heads = DIM**-0.5, sizes(device)[:2]
    module = SimpleNamespace(num_key_value_groups=heads[0] // heads[1], training=False)
    functions = {
        name: partial(sink_attention, mask=mask, scale=scale, backend=backend) for name, backend in zip(OURS, BACKENDS)
    }

    def flex(q, k, v, sinks):
        blocks = mask.block_mask()  # without transformers' own, which it makes anew in each step
        out = flex_attention_forward(module, q, k, v, blocks, scaling=scale, s_aux=sinks.to(q.dtype))
        return out[0].transpose(1, 2)

    def eager(q, k, v, sinks):
        additive = mask.additive(q.dtype)
        out = eager_attention_forward(
            SimpleNamespace(**vars(module), sinks=sinks.to(q.dtype)), q, k, v, additive, scaling=scale
        )
        return out[0].transpose(1, 2)

    functions |= {"flex (transformers)": flex, "eager (transformers)": eager}
    if device == "cuda" and sixteen_bits() == torch.float16:  # Triton has no tensor cores there, and flex is not used
        return {name: function for name, function in functions.items() if not name.startswith("flex")}
    return functions


def draw(mask, device, grad):
    heads, key_heads, dtype = sizes(device)
    keys = (mask.batch, key_heads, mask.kv_len, DIM)
    shapes = [(mask.batch, heads, mask.q_len, DIM), keys, keys]
    tensors = [torch.randn(shape, device=device).to(dtype).requires_grad_(grad) for shape in shapes]
    return [*tensors, torch.randn(heads, device=device).requires_grad_(grad)]


def forward(function, tensors):
    with torch.no_grad():
        return function(*tensors)


def both_ways(function, tensors):
    torch.autograd.grad(function(*tensors).float().sum(), tensors)


def scores_bytes(mask, device):
    """Five copies of all scores in fp32, which an unfused implementation has at its worst."""
    return 5 * mask.batch * sizes(device)[0] * mask.q_len * mask.kv_len * 4


def checked(functions, tensors, unfused):
    """Those that run, compared with the definition on the last queries, and why others do not."""
    running, refused = {}, {}
    room = 6 * GIB if tensors[0].device.type == "cpu" else torch.cuda.mem_get_info()[0] / 2
    for name, function in functions.items():
        fused = "sdpa" in name or ("flex" in name and tensors[0].is_cuda)
        if unfused > room and not fused:
            refused[name] = f"would take about {unfused / GIB:.0f} GiB"
            continue
        try:
            running[name] = forward(function, tensors)[:, :, -1:].float()
        except (ValueError, RuntimeError) as error:
            refused[name] = first_line(error)
    exact = running.get("eager (ours)", running["sdpa (ours)"])
    for name, last in running.items():
        assert (last - exact).norm() < (1e-5 if tensors[0].dtype == torch.float32 else 3e-2) * exact.norm(), name
    return {name: functions[name] for name in running}, refused


def run(device, rounds, lengths, out):
    """Measure every length; returns what the file holds, which is written after every row."""
    heads, key_heads, dtype = sizes(device)
    shape = {"heads": heads, "key_heads": key_heads, "head_dim": DIM, "window": WINDOW, "rows_decoding": ROWS}
    record = Record(out, device=device, dtype=str(dtype), **shape)
    warnings.simplefilter("ignore")  # transformers passes a deprecated flag
    for length in lengths:
        for window in (None, WINDOW):
            masks = {
                "forward": AttentionMask(1, length, length, window=window, device=device),
                "decode": AttentionMask(ROWS, 1, length, window=window, q_offset=length - 1, device=device),
            }
            masks["forward and backward"] = masks["forward"]
            for regime, mask in masks.items():
                step = both_ways if "backward" in regime else forward
                tensors = draw(mask, device, step is both_ways)
                functions, refused = checked(contestants(mask, device), tensors, scores_bytes(mask, device))
                calls = {name: partial(step, function, tensors) for name, function in functions.items()}
                kind = {"length": length, "layer": "sliding" if window else "full", "pass": regime}
                costs = take_turns(calls, rounds, device) | {n: {"not_run": reason} for n, reason in refused.items()}
                new = [kind | {"attention": name} | cost for name, cost in costs.items()]
                show(new)
                for row in new:
                    record.add(row)
    return record.content


def show(rows):
    shown = [
        (*(row[name] for name in ("length", "layer", "pass", "attention")),
         *((f"{row['ms']:.2f}", round(row["peak_MiB"])) if "ms" in row else ("not run: " + row["not_run"][:70], "")))
        for row in rows
    ]  # fmt: skip
    print(text_table(shown, ["tokens", "layer", "pass", "attention", "ms", "peak MiB"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    result = run(arguments.device, arguments.rounds, arguments.lengths, arguments.out)
    print(result["hardware"], result["dtype"], f"{result['heads']} and {result['key_heads']} heads of {DIM}")


if __name__ == "__main__":
    main()
