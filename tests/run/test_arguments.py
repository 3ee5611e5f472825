"""What is given to a command becomes settings."""

import os
import subprocess

import pytest

from helpers import UserError
from helpers.run.arguments import pairs_of, pairs_of_make, read_pairs, take, with_absolute_paths
from helpers.run.notebooks import for_notebook


def test_flags_are_pairs():
    arguments = ["--grpo-temp", "0.8", "MAX_STEPS=3", "--lr=1e-5", "--dry-run", "ITEMS=4", "--use-tmux", "--yes"]
    expected = ["grpo-temp=0.8", "MAX_STEPS=3", "lr=1e-5", "dry-run=True", "ITEMS=4", "use-tmux=True", "yes=True"]
    assert pairs_of(arguments) == expected
    assert read_pairs(expected[:2]) == {"temperature": 0.8, "max_steps": 3}


def test_a_value_may_be_negative_or_hold_signs():
    assert pairs_of(["--epsilon", "-1", "--template", "a=b {x}"]) == ["epsilon=-1", "template=a=b {x}"]
    assert read_pairs(["TEMPLATE=a=b {x}"]) == {"template": "a=b {x}"}


@pytest.mark.parametrize("value", ["two words", 'a "quoted" $HOME {brace}; ls #', "it's 5 = 5, A=b C=d", "1e-5"])
def test_make_passes_any_value(tmp_path, value):
    """Make's own quoting would turn blanks, dollars and quotes into something else."""
    makefile = tmp_path / "Makefile"
    makefile.write_text("PYTHON ?= python3\nshow:\n\t@env -0\n")
    command = ["make", "-s", "-f", str(makefile), "show", f"TEMPLATE={value.replace('$', '$$')}", "LR=1", "PYTHON=x"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    environment = dict(entry.split("=", 1) for entry in shown.split("\0") if entry)
    assert sorted(pairs_of_make(environment)) == ["LR=1", f"TEMPLATE={value}"]


def test_without_make_there_are_no_pairs_of_make():
    assert pairs_of_make({}) == [] and pairs_of_make({"MAKEFLAGS": "-j2"}) == []


def test_a_file_stands_below_the_pairs(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("control = 'shuffle'\nsweep = 'small'\nmax_tokens = 5\n")
    expected = {"control": "freeze", "sweep": "small", "max_completion_length": 5}
    assert read_pairs([f"CONFIG={path}", "CONTROL=freeze"]) == expected
    assert read_pairs(["CONTROL=freeze", f"config={path}"]) == expected


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["MAX_STEPS"], "'MAX_STEPS' is not a setting: write NAME=value"),
        (["LR=1", "LEARNING_RATE=2"], "'LEARNING_RATE' gives learning_rate a second time, as 2 after 1"),
        (["MAX_STEP=3"], "did you mean 'MAX_STEPS'"),
        (["CONFIG=run.txt"], "ends in .toml or .json"),
    ],
)
def test_a_mistake_is_one_sentence(pairs, words):
    with pytest.raises(UserError, match=words) as caught:
        read_pairs(pairs)
    assert "\n" not in str(caught.value)


def test_parameters_of_one_notebook_are_known():
    assert read_pairs(["TRY_GPU=1"], {"TRY_GPU": False}) == {"try_gpu": True}
    with pytest.raises(UserError, match="TRY_GPU must be True or False; got 'maybe'"):
        read_pairs(["TRY_GPU=maybe"], {"TRY_GPU": False})


def test_a_name_is_taken_once():
    assert take(["NAME=a", "LR=1"], "NAME") == ("a", ["LR=1"])
    assert take(["use-tmux=True"], "DETACH", "USE_TMUX") == ("True", [])
    with pytest.raises(UserError, match="NAME is given 2 times"):
        take(["NAME=a", "name=b"], "NAME")


def test_paths_are_those_of_the_caller(tmp_path, monkeypatch):
    """Notebooks are executed in the project's folder, and their user is elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.csv").touch()
    given = {"data": "sums.csv", "model": "openai/gpt-oss-20b", "run_dir": "out", "task": "math"}
    expected = {"data": f"{tmp_path}/sums.csv", "run_dir": f"{tmp_path}/out"}
    assert with_absolute_paths(given) == given | expected


def test_each_notebook_gets_its_parameters_and_the_rest_in_config():
    given = read_pairs(["MAX_STEPS=5", "CONTROL=flip", "LR=1e-3", "ITEMS=40", "DRY_RUN=1", "PROFILE=tiny"])
    taken = for_notebook("04_grpo", given)
    assert (taken["MAX_STEPS"], taken["PROFILE"]) == (5, "tiny")
    expected = {"control": "flip", "learning_rate": 1e-3, "items": 40, "dry_run": True}
    assert taken["CONFIG"] == expected
    assert for_notebook("04_grpo", {"task": "matmul", "data": "x.csv"})["CONFIG"] == {"task": "matmul", "data": "x.csv"}
    assert for_notebook("01_load", given) == {"PROFILE": "tiny"}
    assert for_notebook("05_evaluate", {"MAX_STEPS": 1})["CONFIG"] == {"max_steps": 1}
