"""The table of other projects' options in the room's page: both sides of each row give the same run."""

import json
import re
import shlex
from inspect import getsource

import pytest

from helpers import UserError
from helpers.grpo import dry_runs
from helpers.run import training
from helpers.run.arguments import pairs_of, read_pairs, take
from helpers.run.lists import LISTS
from helpers.run.notebooks import source_of
from helpers.run.opening import make_run
from helpers.run.preflight import describe_learning_rates
from helpers.run.prepare import main as prepare_main
from helpers.run.settings import sort_settings
from helpers.run.training import judge
from helpers.runtime import ROOT

HUB = ROOT / "tests" / "gallery" / "sources" / "hub"
PAGE = (ROOT / "helpers" / "run" / "README.md").read_text()
ROWS = re.findall(r"^\| (guide|OpenSloth|pipeline) \| (.+?) \| (.+) \|$", PAGE, re.M)
PLAIN = re.compile(r"`[A-Z_]+=[^`]*`")


def code_in(cell):
    """The code of a cell of the table, split as a shell does."""
    return [word for code in re.findall(r"`([^`]+)`", cell) for word in shlex.split(code.replace('"', "'"))]


def settings_of(words):
    return sort_settings(read_pairs(pairs_of(words)))


SETTINGS = [row for row in ROWS if PLAIN.fullmatch(row[2])]
WITHOUT_EFFECT = [row for row in ROWS if row[2].startswith("no effect")]
LATER = [row for row in ROWS if row[2].startswith(("refused", "later"))]
OTHERS = [row for row in ROWS if row not in (*SETTINGS, *WITHOUT_EFFECT, *LATER)]


def test_the_table_is_read():
    assert len(ROWS) > 50 and len(SETTINGS) > 25 and len(WITHOUT_EFFECT) > 5
    assert {document for document, _, _ in ROWS} == {"guide", "OpenSloth", "pipeline"}


@pytest.mark.parametrize(("document", "there", "here"), SETTINGS)
def test_both_sides_are_the_same_settings(document, there, here):
    theirs = settings_of(code_in(there))
    ours = settings_of(code_in(here))
    assert theirs == ours and (ours.run or ours.profile or ours.grpo)


@pytest.mark.parametrize(("document", "there", "here"), WITHOUT_EFFECT)
def test_what_has_no_effect_changes_no_setting(document, there, here):
    given = settings_of(code_in(there))
    assert not (given.run or given.profile or given.grpo)


@pytest.mark.parametrize(("document", "there", "here"), LATER)
def test_what_is_not_offered_is_said(document, there, here):
    """It is refused, or named as without effect: nobody may believe that it was done."""
    for code in re.findall(r"`([^`]+)`", there):
        try:
            given = settings_of(shlex.split(code.replace('"', "'")))
        except UserError:
            continue
        assert given.notes and not (given.run or given.profile or given.grpo)


def rows_as_they_prepare_them(folder):
    rows = [{"prompt": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(50)]
    (folder / "my_data.json").write_text(json.dumps(rows))


def run_of(command):
    """The run that a command of the table opens."""
    return make_run(read_pairs(pairs_of(shlex.split(command)[2:])))


def guide(tmp_path):
    config = run_of("make run RECIPE=guide").config
    assert (config.learning_rate, config.weight_decay, config.warmup_ratio) == (5e-5, 0.01, 0.1)


def prepare_generated(tmp_path):
    theirs = pairs_of(shlex.split("--task-type math --num-samples 100 --output-path data/grpo_math"))
    assert prepare_main([*theirs[:2], f"output-path={tmp_path / 'out'}"]) == 0
    assert run_of(f"make run DATA={tmp_path / 'out'} TASK=math").task.dataset("train", 4)["prompt"]


def prepare_custom(tmp_path):
    rows_as_they_prepare_them(tmp_path)
    assert prepare_main([f"--custom-file={tmp_path / 'my_data.json'}", f"OUT={tmp_path / 'out'}"]) == 0
    assert run_of(f"make run DATA={tmp_path / 'out'}").task.name == "custom"


def train_prepared(tmp_path):
    rows_as_they_prepare_them(tmp_path)
    run = run_of(f"make run DATA={tmp_path / 'my_data.json'} TASK=math")
    assert "math_answer" in str(run)


def detached(tmp_path):
    name, rest = take(pairs_of(["--use-tmux", "--tmux-session", "first"]), "NAME", "TMUX_SESSION")
    assert (name, take(rest, "DETACH", "USE_TMUX")) == ("first", ("True", []))


def rewards_listed(tmp_path):
    assert "math_answer" in LISTS["rewards"]()


def recipes_listed(tmp_path):
    assert "opensloth" in LISTS["settings"]()


def own_reward(tmp_path):
    path = tmp_path / "my_rewards.py"
    path.write_text("def my_reward(prompts, completions, **_):\n    return [1.0] * len(prompts)\n")
    assert "my_reward" in str(run_of(f"make run REWARDS={path}:my_reward"))


def templates(tmp_path):
    rows_as_they_prepare_them(tmp_path)
    run = run_of(f"make run DATA={tmp_path / 'my_data.json'} SYSTEM_PROMPT=Think. 'TEMPLATE=Is it {{answer_to}}?'")
    with pytest.raises(UserError, match="answer_to"):
        _ = run.task
    plain = run_of(f"make run DATA={tmp_path / 'my_data.json'} SYSTEM_PROMPT=Think.")
    assert plain.task.dataset("train", 1)[0]["prompt"][0] == {"role": "system", "content": "Think."}


def pipeline(tmp_path):
    config = run_of("make run RECIPE=math_pipeline TASK=math TRAIN_PROMPTS=1600").config
    assert (config.generation_batch_size, config.step_batch_size, config.max_steps) == (128, 16, 800)
    assert config.lr_scheduler_kwargs == {"min_lr_rate": 0.1} and config.learning_rate == 5e-7


def sources_prepared(tmp_path):
    arguments = ["SOURCE=numinamath", f"SOURCES_DIR={HUB}", f"OUT={tmp_path / 'out'}"]
    assert prepare_main(arguments) == 0
    assert (tmp_path / "out" / "sources.json").exists()


def pipeline_of_a_file(tmp_path):
    run = run_of(f"make run CONFIG=math_pipeline.toml PROFILE=tiny RUN_DIR={tmp_path} SOURCES_DIR={HUB}")
    run.check()
    assert run.task.splits == ("train", "monitor", "confirm", "probe") and run.eval_dataset is not None


def posthoc(tmp_path):
    assert "posthoc.json" in getsource(training)


def tried_before(tmp_path):
    assert callable(dry_runs.drift_of_sync) and callable(describe_learning_rates)


def evaluation(tmp_path):
    assert source_of("05_evaluate").exists() and callable(judge)


#: Words of the third cell -> what is run for the row.
RUN = {
    "`make run RECIPE=guide`": guide,
    "`make prepare TASK=math": prepare_generated,
    "`make prepare DATA=my_data.json": prepare_custom,
    "`make run DATA=data/grpo_math": train_prepared,
    "`make run DETACH=1": detached,
    "`make rewards`": rewards_listed,
    "`make help-run`": recipes_listed,
    "`REWARDS=my_rewards": own_reward,
    "`SYSTEM_PROMPT=...`": templates,
    "`make run RECIPE=math_pipeline`": pipeline,
    "`make prepare SOURCE=numinamath": sources_prepared,
    "`make run CONFIG=math_pipeline.toml`": pipeline_of_a_file,
    "`posthoc.json`": posthoc,
    "`DRY_RUN=1`, and": tried_before,
    "`notebooks/05_evaluate.ipynb`": evaluation,
}


@pytest.mark.parametrize(("document", "there", "here"), OTHERS)
def test_what_is_no_single_setting(document, there, here, tmp_path):
    (check,) = [check for words, check in RUN.items() if here.startswith(words)]
    check(tmp_path)
