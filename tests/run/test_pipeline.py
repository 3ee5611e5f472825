"""From the sources to a verdict on small data sets of the same schemas, with the embedded model, by commands."""

import json

import pytest
from datasets import load_from_disk

from helpers.grpo.__main__ import main as train_and_evaluate
from helpers.run.prepare import main as prepare_main
from helpers.runtime import ROOT

HUB = ROOT / "tests" / "gallery" / "sources" / "hub"
#: What the embedded model needs in place of the settings for a large one.
SMALL = (
    "PROFILE=tiny", "LORA_TARGETS=attention,experts", "LORA_R=8", "LORA_ALPHA=16", "LEARNING_RATE=2e-3",
    "MAX_TOKENS=64", "MAX_PROMPT_LENGTH=200",
)  # fmt: skip
SHORT = (
    "MAX_STEPS=4", "NUM_GENERATIONS=4", "STEPS_PER_GENERATION=16", "SAVE_STEPS=2", "ITEMS=12", "PROBE_ITEMS=16",
    "MONITOR_ITEMS=8",
)  # fmt: skip


def test_from_make_prepare_to_a_verdict(tmp_path, capfd):
    """Filter, pool, probes, decontamination, training, best checkpoint, post-hoc check, verdict, probes."""
    data = tmp_path / "data"
    assert prepare_main(["TASK=math", "SOURCE=numinamath", f"SOURCES_DIR={HUB}", f"OUT={data}", "SEED=42"]) == 0
    prepared = capfd.readouterr().out
    assert "several answers" in prepared and "exactly" in prepared and "sha256 of the pool" in prepared
    assert set(load_from_disk(str(data))) == {"train", "monitor", "confirm", "probe"}

    run = tmp_path / "run"
    status = train_and_evaluate(["math_pipeline.toml", f"SOURCES_DIR={HUB}", f"RUN_DIR={run}", *SMALL, *SHORT])
    shown = capfd.readouterr()
    assert status == 0, shown.err
    assert "was chosen of 2 checkpoints by eval_outcomes/correct" in shown.out
    assert "in training and loaded again" in shown.out and "the same ones" in shown.out
    for name in ("those that decide", "AIME 2024", "ID"):
        assert any(line.startswith(name) and "±" in line for line in shown.out.splitlines()), name
    assert "verdict " in shown.out

    # What was prepared by hand is what the run prepared for itself.
    own_report = json.loads((run / "data" / "report.json").read_text())
    assert own_report["rows_sha256"] == json.loads((data / "report.json").read_text())["rows_sha256"]
    record = json.loads((run / "data" / "sources.json").read_text())
    assert record["seed"] == 42 and set(record["sources"]) >= {"numinamath", "aime_2024", "apex"}
    assert all(len(source["sha256"]) == 64 for source in record["sources"].values())
    posthoc = json.loads((run / "posthoc.json").read_text())
    assert posthoc["agrees"] and posthoc["answers"]["items"] == 8
    report = json.loads((run / "report.json").read_text())
    assert report["best"]["items"] == 12 and report["verdict"]


@pytest.mark.parametrize(
    ("config", "others"), [("math.toml", SMALL), ("code.toml", ("PROFILE=tiny", "MAX_TOKENS=200"))]
)
def test_the_settings_for_a_large_model_pass_a_dry_run(config, others, tmp_path, capfd):
    """Sources, task, rewards and one step go together; the dry run says how many groups teach nothing."""
    few = ["NUM_GENERATIONS=4", "BATCH=8"]
    status = train_and_evaluate([config, f"SOURCES_DIR={HUB}", f"RUN_DIR={tmp_path}", "DRY_RUN=1", *others, *few])
    shown = capfd.readouterr()
    assert status == 0, shown.err
    assert "of the groups teach nothing" in shown.out
    assert "Taking over the weights again" in shown.out and "micro-batches" in shown.out
