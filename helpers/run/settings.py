"""The settings of a run: one table of them, derived from the fields that say them, and how a user gives them.

A setting is a field of `RunSettings`, of `Profile` or of `GRPOConfig`. It is given in a file, in the dictionary CONFIG
of a notebook, or as NAME=value to a command, in capitals or not.
"""

import ast
import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from helpers.grpo.config import GRPOConfig, translate_settings
from helpers.grpo.controls import CONTROLS
from helpers.grpo.recipes import RECIPES
from helpers.grpo.trl_settings import OTHER_NAMES, known_names
from helpers.profiles import Profile
from helpers.runtime import UserError, did_you_mean, first_line
from helpers.settings import check_settings, documented_settings, setting


@documented_settings
@dataclass(frozen=True)
class RunSettings:
    """The machine of a run, its task and its data, and how the training is tried and compared."""

    profile: str = setting(
        "tiny",
        "The machine that the run is made for: tiny, t4, l4, a100 or h100; auto takes the largest that fits.",
    )
    task: str = setting(
        "matmul", "What is trained, as `make tasks` lists; module:function for a task of yours; custom for DATA alone."
    )
    task_options: str = setting("", "Options of the task: name=value, commas between them, as `make tasks` lists them.")
    rewards: str = setting(
        "", "A preset, or rewards with weights (math_answer,math_format=0.1), as `make rewards` lists them; "
        "empty: the task's own.",
    )  # fmt: skip
    data: str = setting(
        "", "Prompts of yours: a JSON, JSONL, CSV or parquet file, a folder of save_to_disk, or an id of the hub."
    )
    source: str = setting(
        "", "Data sets of the hub that the project turns into the splits of a run, as `make sources` lists them."
    )
    sources_dir: str = setting("", "A folder with copies of these data sets, which stand above the hub.")
    prompt_column: str = setting("prompt", "The column of DATA that holds the prompt, a text or a list of messages.")
    answer_column: str = setting("answer", "The column of DATA that holds the right answer; rewards read it as answer.")
    system_prompt: str = setting("", "A system message in front of every prompt of DATA.")
    template: str = setting("", 'The prompt made of columns of DATA: "Question: {question} Answer with the number."')
    train_prompts: int | None = setting(
        None,
        "Prompts that training draws from; None: 2000, or all that DATA has for training. With SOURCE it is the size "
        "of the pool, of which some are kept for a probe.",
        least=1,
    )
    monitor_items: int = setting(
        64, "Prompts that watch a training with eval_strategy='steps'; they decide nothing.", least=2
    )
    recipe: str = setting("", "The settings of a published method.", choices=("", *RECIPES))
    control: str = setting("", "A run without the lesson, to compare with.", choices=("", *CONTROLS))
    baseline: str = setting("", "rft imitates the model's own right answers in place of GRPO.", choices=("", "rft"))
    dry_run: bool = setting(False, "Check data, rewards and one step, and end before the training.")
    sandbox: str = setting(
        "auto", "How programs are isolated; process is for a host without seccomp, and prints what it does not stop."
    )
    items: int | None = setting(None, "Prompts that decide in an evaluation; None: those of the sweep.", least=2)
    probe_items: int | None = setting(
        None, "Prompts of the split probe that an evaluation asks, too; None: those of the sweep.", least=2
    )
    fallback_steps: int = setting(10, "Steps that 05_evaluate trains where it finds no adapter.", least=1)
    run_dir: str = setting("", "The folder of the run; empty: one under runs/ in the project.")

    @classmethod
    def refuse_unknown(cls, name: str) -> None:
        """Raise UserError for a name that is no setting of a run."""
        raise UserError(f"There is no setting '{name}'{did_you_mean(name, TABLE)}: make help-run lists them.")


#: Fields of a profile that say what it is made for, and not what is run.
_FIXED_BY_PROFILE = ("name", "needs_gib", "why")
#: Fields of `GRPOConfig` that follow from others: from run_dir, and from the weights in rewards.
_DERIVED = ("output_dir", "reward_weights")


def _table() -> dict[str, tuple[type, Field]]:
    """Return every setting of a run: name -> the class that has it, and its field there."""
    table = {its_field.name: (RunSettings, its_field) for its_field in fields(RunSettings)}
    for its_field in fields(GRPOConfig):
        if its_field.name not in _DERIVED:
            table[its_field.name] = (GRPOConfig, its_field)
    for its_field in fields(Profile):
        if its_field.name not in _FIXED_BY_PROFILE and its_field.name not in table:
            table[its_field.name] = (Profile, its_field)
    return table


#: Files of settings that come with the project.
CONFIGS = Path(__file__).with_name("configs")
#: Name of a setting -> the class that has it, and its field.
TABLE = _table()
#: Names that Unsloth, OpenSloth and OpenRLHF have for settings that are no fields of `GRPOConfig`, and short names.
_ALIASES = {
    "prompt": "prompt_column",
    "answer": "answer_column",
    "dataset": "data",
    "dataset_name": "data",
    "data_cache_path": "data",
    "custom_file": "data",
    "task_type": "task",
    "grpo_task_type": "task",
    "grpo_rewards": "rewards",
    "reward_functions": "rewards",
    "preset": "recipe",
    "model_name": "model",
    "model_name_or_path": "model",
    "pretrain": "model",
    "prompt_data": "data",
    "input_key": "prompt_column",
    "label_key": "answer_column",
    "r": "lora_r",
    "lora_rank": "lora_r",
    "batch": "generation_batch_size",
    "output": "run_dir",
    "output_dir": "run_dir",
    "random_state": "seed",
    "target_modules": "lora_targets",
    "offload_embedding": "embedding",
    "advantage_estimator": "recipe",
    "4bit": "load_in_4bit",
    "load_4bit": "load_in_4bit",
}
#: Every other name of a setting -> its own.
ALIASES = {**OTHER_NAMES, **_ALIASES}
#: Names of projections in gpt-oss -> what of `lora_targets` holds them.
_PROJECTIONS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "attention"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "experts"),
}


@dataclass(frozen=True)
class Given:
    """The settings that a user gave, by the class that has them, checked one by one.

    notes: a sentence about each name that has no effect here.
    """

    run: dict[str, Any]
    profile: dict[str, Any]
    grpo: dict[str, Any]
    notes: list[str]


def sort_settings(given: Mapping[str, Any]) -> Given:
    """Return the given settings by the class that has them. Names may be in capitals, and may be aliases.

    Raises UserError for a name that is no setting, a setting that is given twice, and a value that it cannot have.
    """
    by_name = {name: _own_value(name, value) for name, value in by_own_name(given).items()}
    by_class = {RunSettings: {}, Profile: {}}
    others = {}
    for name, value in by_name.items():
        owner = TABLE[name][0] if name in TABLE else GRPOConfig
        by_class.get(owner, others)[name] = value
    for owner, values in by_class.items():
        check_settings(owner, values)
    grpo, notes = translate_settings(others)
    return Given(by_class[RunSettings], by_class[Profile], grpo, notes)


def by_own_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their own names. Raises UserError for one that is given twice with different values."""
    by_name = {}
    for name, value in given.items():
        own_name = canonical_name(name)
        if by_name.setdefault(own_name, value) != value:
            raise UserError(f"{own_name} is given twice, as {by_name[own_name]!r} and as {value!r}: give it once.")
    return by_name


def _own_value(name: str, value: Any) -> Any:
    """Return the value of a setting in our words: of the type of its field where it was given as a text."""
    if isinstance(value, PathLike):
        value = str(value)
    if isinstance(value, str):
        value = parse_value(name, value)
    is_bool = name in TABLE and bool in _kinds_of(name)
    if is_bool and value in (0, 1):
        return bool(value)
    if name == "embedding" and str(value) in _TRUTH:  # offload_embedding
        return "host" if _TRUTH[str(value)] else "device"
    if name == "lora_targets" and isinstance(value, (list, tuple)):  # target_modules
        targets = [_PROJECTIONS.get(str(one), one) for one in value]
        return tuple(dict.fromkeys(map(str, targets)))
    return value


def _kinds_of(name: str) -> tuple[type, ...]:
    """Return the types that a setting may have."""
    _, its_field = TABLE[name]
    return get_args(its_field.type) or (its_field.type,)


def is_setting(name: str) -> bool:
    """Tell whether a name, in capitals or not, is a setting of a run or stands for one."""
    lower = str(name).lower()
    return lower in TABLE or lower in ALIASES or lower in known_names()


def canonical_name(name: str) -> str:
    """Return the name of a setting, given in capitals or not, as a flag or not, or by an alias.

    Raises UserError for a name that is no setting.
    """
    lower = str(name).lower().lstrip("-").replace("-", "_")
    lower = ALIASES.get(lower, lower)
    if lower == "reward_weights":
        raise UserError("Weights stand behind the rewards: rewards = 'math_answer,math_format=0.1', say.")
    if not is_setting(lower):
        known = [*TABLE, *ALIASES]
        if str(name).isupper():
            known = [one.upper() for one in known]
        raise UserError(f"There is no setting '{name}'{did_you_mean(name, known)}: make help-run lists them.")
    return lower


def other_names(name: str) -> list[str]:
    """Return the names that stand for a setting, in capitals."""
    return [alias.upper() for alias, own_name in ALIASES.items() if own_name == name]


def read_file(path: str | Path) -> dict[str, Any]:
    """Return the settings in a TOML or JSON file. Raises UserError for a file that cannot be read as such.

    Where there is no such file, one of that name in `CONFIGS` is taken, which come with the project.
    """
    path = Path(path).expanduser()
    if not path.exists() and (CONFIGS / path).is_file():
        path = CONFIGS / path
    parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix)
    if parse is None:
        raise UserError(f"CONFIG names a file that ends in .toml or .json; got '{path}'.")
    try:
        settings = parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        own = ", ".join(sorted(file.name for file in CONFIGS.iterdir()))
        raise UserError(
            f"Cannot read CONFIG '{path}' ({error.strerror}): give the path of a TOML file, or one of {own}."
        ) from error
    except ValueError as error:
        kind = path.suffix[1:].upper()
        raise UserError(
            f"CONFIG '{path}' is not {kind} ({first_line(error)}): write name = value, a line each."
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"CONFIG '{path}' must hold an object of settings.")
    return settings


def read_config(config: Mapping | str | Path) -> dict[str, Any]:
    """Return the settings of a CONFIG: a dictionary, the path of a TOML or JSON file, or nothing."""
    if isinstance(config, (str, Path)):
        return read_file(config) if str(config) else {}
    if not isinstance(config, Mapping):
        raise UserError(f"CONFIG must be a dictionary or the path of a TOML or JSON file; got {config!r:.80}.")
    return dict(config)


def parse_value(name: str, text: str) -> Any:
    """Return the value of a setting from the text behind NAME=, by the type of its field.

    A text that has no such value is returned as it is, for `sort_settings` to refuse. name: as `canonical_name` gives
    it.
    """
    if name not in TABLE:
        return _literal(text)
    kinds = _kinds_of(name)
    if NoneType in kinds and text in ("None", "none", ""):
        return None
    if bool in kinds and text in _TRUTH:
        return _TRUTH[text]
    if int in kinds or float in kinds:
        return _number(text)
    if list in kinds:
        return [part.strip() for part in text.split(",") if part.strip()]
    if dict in kinds:
        return _literal(text)
    return text


_TRUTH = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}


def parse_truth(name: str, text: str) -> bool:
    """Return the truth value that a text stands for. Raises UserError for another text."""
    if text not in _TRUTH:
        raise UserError(f"{name} must be True or False; got '{text}'.")
    return _TRUTH[text]


def _number(text: str) -> int | float | str:
    """Return the number in a text, whole where it is, and a text without a finite number as it is."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        return text


def _literal(text: str) -> Any:
    """Return the value of a Python literal or of JSON, and any other text as it is."""
    for read in (ast.literal_eval, json.loads):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text
