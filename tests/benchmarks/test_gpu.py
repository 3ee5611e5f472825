"""The command for a rare half hour on a GPU, on the CPU: no part takes the others with it, and none is broken."""

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict

import pytest
import torch

from helpers.runtime import ROOT
from tests.benchmarks import attention, decode, driver, expert_kernels, experts, gpu, nf4, parts, step_20b, try_gpu
from tests.benchmarks.models import benchmark_profile, random_model
from tests.benchmarks.parts import FAILED, NOT_RUN, OK, Machine, Part, Result, overview, run_parts
from tests.process import is_running

WRITE_ROWS = "import json, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(json.dumps({'rows': [1, 2]}))"
#: Starts a process of its own, says its number, and waits for a minute, whatever it is told.
HANG = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "print(subprocess.Popen(['sleep', '60']).pid); time.sleep(60)"
)


def part(name, code, limit_s=30.0, **settings):
    return Part(name, ("-c", code, "{out}"), limit_s, **settings)


def ended(pid):
    """Whether a process that was killed is gone, after a moment."""
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_a_part_stops_no_other(tmp_path, monkeypatch):
    """One raises, one hangs, one may not run: the file says so of each, and the last one ran."""
    monkeypatch.setattr(parts, "GRACE_SECONDS", 0.2)
    asked = [
        part("raises", f"{WRITE_ROWS}; print('so far'); raise RuntimeError('out of memory')"),
        part("hangs", f"{WRITE_ROWS}; {HANG}", limit_s=4.0),
        part("missing", "1 / 0", why_not="needs what is not there"),
        part("runs", f"{WRITE_ROWS}; import os; print(os.environ['COLOUR'])", environment={"COLOUR": "green"}),
    ]
    results = run_parts(asked, {"hardware": "none"}, tmp_path / "gpu.json", budget_s=100)
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert content["hardware"] == "none" and content["seconds"] > 0
    raises, hangs, missing, runs = content["parts"]
    assert [result["status"] for result in content["parts"]] == [FAILED, FAILED, NOT_RUN, OK]
    assert raises["why"] == "exit status 1" and raises["output"][0] == "so far"
    assert raises["output"][-1] == "RuntimeError: out of memory"
    assert hangs["why"] == "stopped after its limit of 4 s" and 4 <= hangs["seconds"] < 20
    assert ended(int(hangs["output"][0]))  # a child that lives on would hold the GPU's memory
    assert missing["why"] == "needs what is not there" and missing["seconds"] == 0
    assert runs["output"] == ["green"] and runs["why"] == ""
    assert raises["result"] == hangs["result"] == runs["result"] == {"rows": [1, 2]} and missing["result"] is None
    table = overview(results)
    assert "exit status 1; 2 rows measured" in table and "needs what is not there" in table


def test_a_part_may_say_where_it_hung(tmp_path):
    """At its limit it is interrupted first: pytest prints its failures then, and a benchmark its traceback."""
    code = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('in the second row')"
    run_parts([part("slow", code, limit_s=4.0)], {}, tmp_path / "gpu.json", budget_s=100)
    (slow,) = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert slow["status"] == FAILED and slow["output"] == ["in the second row"]


def test_the_budget_is_kept(tmp_path, monkeypatch):
    """A part gets no more than what is left, and then nothing more is begun: the file has to be there in time."""
    monkeypatch.setattr(parts, "LEAST_SECONDS", 1)
    asked = [part("first", "import time; time.sleep(60)"), part("second", "print(1)")]
    started = time.monotonic()
    run_parts(asked, {}, tmp_path / "gpu.json", budget_s=2)
    assert time.monotonic() - started < 20
    first, second = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert first["status"] == FAILED and first["limit_s"] < 2.1
    assert (second["status"], second["why"]) == (NOT_RUN, "no time left")


def test_the_file_is_there_before_the_first_part_ends(tmp_path):
    """Whoever stops the command half way keeps what it had measured."""
    copy = tmp_path / "copy.json"
    code = f"import shutil; shutil.copy({str(tmp_path / 'gpu.json')!r}, {str(copy)!r})"
    run_parts([part("looks", code), part("later", "")], {}, tmp_path / "gpu.json", budget_s=100)
    seen = json.loads(copy.read_text())["parts"]
    assert [(result["status"], result["why"]) for result in seen] == [(NOT_RUN, "not reached")] * 2


@pytest.mark.slow
def test_the_whole_command(tmp_path, capsys):
    """Machine and versions, one real part in its own process, and the closing table."""
    out = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--out", str(out), "--parts", "expert kernels"]) == 0
    content = json.loads(out.read_text())
    assert content["device"] == "cpu" and content["versions"]["torch"] == torch.__version__
    (kernels,) = content["parts"]
    assert kernels["status"] == OK and len(kernels["result"]["rows"]) == 14
    shown = capsys.readouterr().out
    assert "of a copy" in shown and "14 rows measured" in shown.splitlines()[-1]


def test_what_cannot_be_run_is_one_sentence(tmp_path, capsys):
    """A name mistyped, or no GPU: said at once, and no file with nothing in it."""
    out = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--out", str(out), "--parts", "atention"]) == 2
    assert "There is no part atention: there are tests, " in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert gpu.main(["--out", str(out)]) == 2
        assert capsys.readouterr().err.startswith("Error: There is no GPU")
    assert not out.exists()


T4 = Machine((7, 5), cores=2)
H100 = Machine((9, 0), cores=16)
CPU = Machine(None, cores=2)


@pytest.mark.parametrize("machine", [T4, H100, CPU], ids=["T4", "H100", "CPU"])
def test_every_part_is_a_module_that_takes_its_arguments(tmp_path, machine):
    """An option that was renamed would be noticed on the GPU."""
    for found in [*gpu.all_parts(machine, tmp_path), *try_gpu.all_parts(machine)]:
        assert found.arguments[0] == "-m"
        if found.arguments[1] == "pytest":
            assert all((ROOT / name).exists() for name in gpu.TESTS)
            continue
        options = [word for word in found.arguments if word.startswith("--")]
        source = (ROOT / f"{found.arguments[1].replace('.', '/')}.py").read_text()
        assert all(f'"{option}"' in source for option in options), found
    test, _, name = gpu.MEMORY_TEST.partition("::")
    assert f"def {name}(" in (ROOT / test).read_text()


def test_limits_are_the_cards(tmp_path):
    """31 launches compile in 93 seconds on Colab's two cores, where the limit for the tests was 150; and a T4 is not
    asked for what it lacks."""
    of_t4, of_h100 = ({part.name: part for part in gpu.all_parts(machine, tmp_path)} for machine in (T4, H100))
    assert of_t4["tests"].limit_s == 450 == 3 * of_h100["tests"].limit_s
    assert "not used on this card" in of_t4["tests of flex"].why_not and not of_h100["tests of flex"].why_not
    assert all(part.environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:2:16:8" for part in of_h100.values())
    assert sum(part.limit_s for part in try_gpu.all_parts(T4)) <= 60 * try_gpu.BUDGET_MINUTES


def test_bitsandbytes_from_a_folder(tmp_path, monkeypatch):
    """A borrowed machine has no network: the wheel is brought along, or the table says that NF4 was not run."""
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv(gpu.WHEELS, raising=False)
    why_not, environment = gpu.find_bitsandbytes(tmp_path)
    assert why_not.startswith("NF4 not run on a GPU") and environment == {}
    with zipfile.ZipFile(tmp_path / "bitsandbytes-0.50.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("bitsandbytes/__init__.py", "HERE = True")
    monkeypatch.setenv(gpu.WHEELS, str(tmp_path))
    why_not, environment = gpu.find_bitsandbytes(tmp_path)
    assert why_not == "" and environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "site")
    assert (tmp_path / "site" / "bitsandbytes" / "__init__.py").exists()


def test_a_cards_name_is_a_files_name():
    assert gpu.slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3" and gpu.slug("Tesla T4") == "tesla-t4"


def rows_of(path):
    return json.loads(path.read_text())["rows"]


def test_expert_kernels(tmp_path):
    """Bytes of the experts that are hit only: of one token two of eight, and a whole layer for many."""
    expert_kernels.run("cpu", tmp_path / "rows.json")
    rows = [row for row in rows_of(tmp_path / "rows.json") if not row["adapter"]]
    assert [row["tokens"] for row in rows] == list(expert_kernels.TOKENS)
    assert rows[0]["bytes"] == rows[-1]["bytes"] / 4
    assert all(row["us"] > 0 and row["share_of_copy"] > 0 for row in rows)


@pytest.mark.slow
def test_prefill_and_decode(tmp_path):
    """The bound is of what a step reads: more experts are hit by more rows, and at most all."""
    decode.run("cpu", tmp_path / "rows.json")
    rows = rows_of(tmp_path / "rows.json")
    assert [row["rows"] for row in rows] == [1, 8, 32]
    hit = [row["reads"]["experts_hit"] for row in rows]
    assert hit[0] == 2 < hit[1] < hit[2] <= 8
    for row in rows:
        parts = [size for name, size in row["reads"].items() if name not in ("rows", "experts_hit", "bytes")]
        assert row["reads"]["bytes"] == pytest.approx(sum(parts)) and min(parts) > 0
        assert row["bound_ms"] > 0 and row["memory"] == {} and row["planned_bytes"] > 0


def test_a_step_of_the_20b(tmp_path, capsys, monkeypatch):
    """Every phase of both steps by the real trainer, which moves the weights; counts beside them if there are some."""
    counted = tmp_path / "path-20b.json"
    counted.write_text(json.dumps([{"batch": 8, "routing": "uniform", "phase": "AdamW", "peak_GiB": 12.5}]))
    monkeypatch.setattr(step_20b, "COUNTED", counted)
    rows = step_20b.run("cpu", tmp_path / "rows.json", step_20b.SIZES["cpu"])
    assert rows == rows_of(tmp_path / "rows.json")
    steps = ["prefill", "decode", "forward and backward", "AdamW", "checkpoint"]
    assert [row["phase"] for row in rows] == ["load", "LoRA", *steps, *steps]
    assert all(row["memory"] == {} and row["planned_bytes"] > 0 for row in rows)
    updates = [row for row in rows if row["phase"] == "AdamW"]
    assert all(row["metrics"]["grad_norm"] > 0 and row["counted_bytes"] == 12.5 * 2**30 for row in updates)
    shown = capsys.readouterr().out
    assert "counted without a GPU" in shown and "12.50" in shown and "not measured" in shown


def test_the_drivers_memory(tmp_path, capsys):
    driver.run("cpu", tmp_path / "rows.json")
    content = json.loads((tmp_path / "rows.json").read_text())
    assert [row["what"] for row in content["rows"]] == ["context", "kernels of a rollout", "nodes of captured graphs"]
    assert "MiB estimated" in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_try(tmp_path, capsys):
    """One part in its own process, and the text at the end: a few of the GPU tests say whether a card works at all."""
    out = tmp_path / "try.json"
    assert try_gpu.main(["--device", "cpu", "--out", str(out), "--parts", "tests"]) == 0
    content = json.loads(out.read_text())
    (tests,) = content["parts"]
    assert tests["status"] == OK
    counted = sum(map(int, re.findall(r"(\d+) (?:passed|skipped)", tests["output"][-1])))
    assert 15 < counted < 60, tests["output"]
    text = capsys.readouterr().out.partition("Please paste this into an issue")[2]
    assert content["versions"]["torch"] in text and tests["output"][-1] in text


def test_the_text_for_an_issue_shows_every_part():
    """What a person pastes must say enough when half of it failed: the phases, the notebooks' rows, the last lines."""
    results = [
        Result("driver", FAILED, "exit status 1", 3.0, output=["RuntimeError: no NVML"]),
        Result("tests", OK, "", 90.0, output=["30 passed in 88.1s"]),
        Result(
            "GRPO step", OK, "", 80.0,
            result={"rows": [
                {"step": 1, "phase": "decode", "seconds": 41.2, "memory": {"max_allocated": 12 * 2**30},
                 "planned_bytes": 13 * 2**30},
            ]},
        ),
        Result(
            "01_load", OK, "", 300.0,
            result={"notebook": "01_checks", "printed": {"p01-24": "| T4 | 190 tokens/s |"}, "stderr": {}, "why": ""},
        ),
        Result(
            "04_grpo, dry run", FAILED, "exit status 1", 200.0,
            result={
                "notebook": "04_grpo", "printed": {"04-05": "Memory plan, 8"}, "stderr": {"04-07": "a warning"},
                "why": "UserError: no memory left",
            },
        ),
    ]  # fmt: skip
    about = {"hardware": "Tesla T4", "gpu_GiB": 14.56, "cuda": "12.8", "versions": {"torch": "2.11.0"}}
    text = try_gpu.issue_text(about | {"parts": [asdict(result) for result in results]})
    for words in (
        "Tesla T4", "14.56 GiB", "torch 2.11.0", "RuntimeError: no NVML", "30 passed", "decode", "12.00     13.00",
        "| T4 | 190 tokens/s |", "Memory plan, 8", "a warning", "UserError: no memory left", "exit status 1",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.slow
def test_nf4(tmp_path):
    nf4.run("cpu", tmp_path / "rows.json")
    whole, packed = rows_of(tmp_path / "rows.json")
    assert (whole["layer"], packed["layer"]) == ("Linear", "Linear4bit")
    assert packed["planned_attention_bytes"] < whole["planned_attention_bytes"] / 7
    assert 0 < json.loads((tmp_path / "rows.json").read_text())["embedded_logits_change"] < 1


@pytest.mark.slow
def test_attention_and_experts_write_every_row(tmp_path):
    """They take minutes on a GPU, where their limit may come first."""
    attention.run("cpu", 1, [32], tmp_path / "attention.json")
    rows = rows_of(tmp_path / "attention.json")
    assert {row["pass"] for row in rows} == {"forward", "decode", "forward and backward"}
    assert any("not_run" in row for row in rows) and any("ms" in row for row in rows)
    experts.run("cpu", 1, [1], tmp_path / "experts.json")
    assert len(rows_of(tmp_path / "experts.json")) == 2 * (2 + len(experts.STOCK))


def test_random_models_are_the_same_each_time():
    """Two processes that measure two halves measure one model; and it can be drawn from without overflow."""
    profile = benchmark_profile("cpu")
    first = random_model(profile, layers=2)
    again = random_model(profile, layers=2)
    assert len(first.model.layers) == 2
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_importing_the_command_asks_nothing_of_cuda():
    """A process that holds a context takes some hundred megabytes of a small card from every part."""
    code = "import sys, tests.benchmarks.gpu; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == ("False\n")
