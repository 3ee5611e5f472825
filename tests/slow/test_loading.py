"""What loading costs the host: Colab's has 12.7 GB, and the checkpoint is 13.8."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from helpers.model.files import read_config
from helpers.model.load import empty_model
from helpers.profiles import PROFILES
from helpers.runtime import GIB, ROOT
from tests.conftest import CHECKPOINT

pytestmark = pytest.mark.slow

#: gpt-oss-20b's layers, eight of them, with a smaller vocabulary: 4.0 GB in nine shards.
LAYERS, HIDDEN, EXPERTS, WORDS = 8, 2880, 32, 32_000

SCRIPT = """
import json, sys, threading
from dataclasses import replace
from helpers import load_model
from helpers.profiles import PROFILES
from tests.process import status

load_model(profile="tiny")  # libraries start
before, peak, done = status("RssAnon"), [0], threading.Event()

def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], status("RssAnon"))

threading.Thread(target=watch, daemon=True).start()
profile = replace(PROFILES["tiny"], dtype="float16", experts=sys.argv[2], dense="fp16", embedding="host")
model, _ = load_model(sys.argv[1], profile=profile)
done.set()
held = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
print(json.dumps({"peak": peak[0] - before, "held": held}))
"""


def write_checkpoint(folder):
    shutil.copytree(CHECKPOINT, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": HIDDEN, "head_dim": 64,
        "num_local_experts": EXPERTS, "num_experts_per_tok": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": WORDS, "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    profile, shards, where = replace(PROFILES["tiny"], experts="mxfp4", dense="fp32"), {}, {}
    for name, weight in empty_model(read_config(folder), profile).named_parameters():
        layer = name.split(".")[2] if ".layers." in name else LAYERS  # one shard a layer, one for the rest
        shards.setdefault(f"model-{int(layer):05}-of-{LAYERS:05}.safetensors", {})[name] = weight.shape
    for file, shapes in shards.items():
        save_file({name: draw(name, shape) for name, shape in shapes.items()}, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shapes, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def draw(name, shape):
    if name.endswith("_blocks"):
        return torch.randint(0, 256, shape, dtype=torch.uint8)
    if name.endswith("_scales"):
        return torch.randint(118, 124, shape, dtype=torch.uint8)
    return torch.randn(shape, dtype=torch.bfloat16) * 0.02


@pytest.mark.parametrize("experts", ["mxfp4", "fp16"])
def test_host_memory_of_loading(tmp_path, row, experts):
    folder = tmp_path / "model"
    write_checkpoint(folder)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert size >= 3e9
    command = [sys.executable, "-c", SCRIPT, str(folder), experts]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    shutil.rmtree(folder)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    extra = found["peak"] - found["held"]
    row(
        f"host memory of loading {size / 1e9:.1f} GB in {LAYERS + 1} shards, experts {experts}",
        f"{extra / GIB:.2f} GiB at the peak beyond the {found['held'] / GIB:.2f} GiB that stay",
    )
    assert extra <= 1.5 * GIB + WORDS * HIDDEN * 2
