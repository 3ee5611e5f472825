"""A run: its settings checked, its task and its rewards, before a model is loaded."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers.evaluation.records import SweepPlan, sweep_plan
from helpers.grpo.config import GRPOConfig
from helpers.grpo.controls import apply_control
from helpers.grpo.optimizer import learning_rates
from helpers.grpo.recipes import recipe
from helpers.profiles import Profile, get_profile
from helpers.rewards.calling import name_of
from helpers.run.settings import ALIASES, TABLE, RunSettings, by_own_name, read_config, sort_settings
from helpers.runtime import ROOT, UserError, run_folder, write_whole
from helpers.tasks.choosing import choose_rewards, choose_task
from helpers.tasks.data.columns import Columns
from helpers.tasks.data.task import DataTask
from helpers.tasks.task import Task

#: Prompts that training draws from where the task makes them.
GENERATED_PROMPTS = 2000
#: More rows than any data set has.
ALL_ROWS = 2**62
#: Parameters in the first cell of 04_grpo, which are always there: with their defaults they say nothing.
OF_THE_CELL = ("profile", "task", "run_dir", "seed", "max_steps")
#: Settings that, where one is given, take the place of others that a recipe has.
RIVALS = {
    ("warmup_steps", "warmup_ratio"): ("warmup_steps", "warmup_ratio"),
    ("lr_scheduler_type",): ("lr_scheduler_kwargs", "warmup_steps", "warmup_ratio"),
    ("max_steps",): ("num_train_epochs",),
}
#: File of a run's folder that holds every setting of it.
SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class Run:
    """One run: its machine and its settings. The task and what depends on it are made when they are first used.

    grpo: the settings of `GRPOConfig` that were given. notes: a sentence about each given name that has no effect.
    """

    profile: Profile
    settings: RunSettings
    grpo: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder that the run writes to."""
        given = self.settings.run_dir
        return Path(given).expanduser() if given else ROOT / "runs" / "notebook"

    @property
    def seed(self) -> int:
        return self.grpo.get("seed", GRPOConfig.seed)

    @cached_property
    def task(self) -> Task:
        return self.make_task()

    def make_task(self, drop_faulty: bool = False) -> Task:
        """Return the task. drop_faulty: leave out rows of data that cannot be used, in place of refusing them."""
        settings = self.settings
        if settings.source:
            return self._task_of_source()
        columns = Columns(
            prompt=settings.prompt_column,
            answer=settings.answer_column,
            system_prompt=settings.system_prompt,
            template=settings.template,
        )
        return choose_task(
            settings.task,
            self.profile,
            settings.task_options,
            data=settings.data,
            columns=columns,
            rewards=settings.rewards,
            drop_faulty=drop_faulty,
            level=settings.sandbox,
        )

    def make_base_task(self) -> Task:
        """Return the task with its own rows, whose rewards and grader judge those of a source."""
        settings = self.settings
        return choose_task(settings.task, self.profile, settings.task_options, level=settings.sandbox)

    def _task_of_source(self) -> Task:
        """Return the task of the splits of a source, which are made in the folder of the run at first."""
        from helpers.gallery.sources.preparing import check_task_of, is_prepared, prepare_source

        settings = self.settings
        check_task_of(settings.source, settings.task)
        folder = self.folder / "data"
        pool = settings.train_prompts
        base = self.make_base_task()
        if not is_prepared(settings.source, folder, pool):
            print(prepare_source(settings.source, base, folder, seed=self.seed, pool=pool, copies=settings.sources_dir))
        return DataTask(folder, Columns(system_prompt=settings.system_prompt), base)

    @cached_property
    def train_dataset(self):
        """The prompts that training draws from, a `datasets.Dataset`."""
        return self.task.dataset("train", self.train_size, seed=self.seed)

    @property
    def train_size(self) -> int:
        """The most prompts that training draws from."""
        if self.settings.source:  # train_prompts was the size of the pool
            return ALL_ROWS
        default = ALL_ROWS if self.settings.data else GENERATED_PROMPTS
        return self.settings.train_prompts or default

    @cached_property
    def eval_dataset(self):
        """The prompts that watch the training; None where it is not evaluated on its way."""
        if self.config.eval_strategy == "no":
            return None
        return self.task.dataset("monitor", self.settings.monitor_items, seed=self.seed)

    @cached_property
    def chosen_rewards(self) -> tuple[list[Callable], list[float]]:
        """The reward functions and their weights, without what a control does to them."""
        return choose_rewards(self.settings.rewards, self.task)

    @cached_property
    def _paid(self) -> tuple[list[Callable], list[float], dict]:
        """Reward functions, their weights, and the settings that a control changes."""
        functions, weights = self.chosen_rewards
        control = self.settings.control
        return apply_control(control, functions, self.seed, self.task.behaviours, reward_weights=weights)

    @property
    def reward_funcs(self) -> list[Callable]:
        return self._paid[0]

    @property
    def reward_weights(self) -> list[float]:
        return self._paid[1]

    @cached_property
    def config(self) -> GRPOConfig:
        """The settings of the training. Those that were given stand above the recipe's, and a control's above both."""
        from_recipe = _without_rivals(recipe(self.settings.recipe), self.grpo) if self.settings.recipe else {}
        _, weights, from_control = self._paid
        config = GRPOConfig.for_profile(
            self.profile,
            output_dir=str(self.folder / "grpo"),
            reward_weights=tuple(weights),
            **(from_recipe | self.grpo | from_control),
        )
        if config.max_steps is None:  # it follows from the number of prompts
            config = config.for_prompts(len(self.train_dataset))
        return config

    @property
    def sweep(self) -> SweepPlan:
        """The amount of an evaluation."""
        plan = sweep_plan("auto", self.profile)
        items = self.settings.items or plan.items
        probe_items = self.settings.probe_items or plan.probe_items
        return replace(plan, items=items, probe_items=probe_items)

    def check(self) -> None:
        """Raise UserError for settings that contradict each other, and for a task or rewards that cannot be made."""
        if self.settings.baseline and self.settings.control:
            raise UserError("A control changes rewards, and a baseline learns from grades: give baseline or control.")
        config = self.config  # it needs the task and its rewards, and all three check themselves
        if config.lr_scheduler_kwargs:
            learning_rates(config, [0])

    def differences(self) -> dict[str, Any]:
        """Return the settings that are not the defaults of `RunSettings`, `GRPOConfig` and the profile, by name."""
        found = {}
        for settings in (self.settings, self.config):
            for its_field in fields(settings):
                value = getattr(settings, its_field.name)
                is_shown = its_field.name in TABLE and its_field.name != "run_dir"
                if is_shown and value not in (None, its_field.default):
                    found[its_field.name] = value
        named = get_profile(self.settings.profile)
        for name, (owner, _) in TABLE.items():
            if owner is Profile and getattr(self.profile, name) != getattr(named, name):
                found[name] = getattr(self.profile, name)
        return found

    def all_settings(self) -> dict[str, Any]:
        """Return every setting of the run with the value that it has."""
        own = asdict(self.settings) | {"run_dir": str(self.folder)}
        profile = {name: getattr(self.profile, name) for name, (owner, _) in TABLE.items() if owner is Profile}
        config = {name: value for name, value in asdict(self.config).items() if name in TABLE}
        return own | profile | config

    def save_settings(self) -> None:
        """Write all settings as `settings.json` to the folder of the run; those of its first session stay."""
        path = run_folder(self.folder) / SETTINGS_FILE
        if not path.exists():
            write_whole(path, json.dumps(self.all_settings(), indent=2, default=str) + "\n")

    def __str__(self) -> str:
        """The profile, the rewards, and every setting that differs from its default."""
        rewards = [f"{weight:g} x {name_of(f)}" for f, weight in zip(self.reward_funcs, self.reward_weights)]
        lines = [str(self.profile), "rewards: " + ", ".join(rewards)]
        lines += [f"{name:<28} {value}" for name, value in self.differences().items()]
        return "\n".join(lines)


def open_run(settings: Mapping[str, Any] | str | Path) -> Run:
    """Check the settings of a run, make its folder, and return the run.

    settings: a dictionary, or the path of a TOML or JSON file; `make help-run` lists what it may hold. Raises UserError
    for whatever the training or the evaluation would refuse.
    """
    run = make_run(read_config(settings))
    run.check()
    run_folder(run.folder)
    return run


def make_run(settings: Mapping[str, Any]) -> Run:
    """Return the run of some settings, each of which is checked by itself."""
    given = sort_settings(settings)
    if given.run.get("data") and given.run.get("source"):
        raise UserError("DATA and SOURCE both say what is asked: give one of them.")
    if given.run.get("data"):
        given.run.setdefault("task", "custom")
    if given.run.get("sources_dir") and not given.run.get("source"):
        raise UserError("SOURCES_DIR has no effect without SOURCE: name one that `make sources` lists.")
    if given.run.get("source"):
        for name in ("prompt_column", "answer_column", "template"):
            if given.run.get(name):
                raise UserError(f"SOURCE knows its own columns, so {name.upper()} has no effect: leave it out.")
        from helpers.gallery.sources.plans import find_plan

        given.run.setdefault("task", find_plan(given.run["source"]).task)
    run_settings = RunSettings(**given.run)
    profile = replace(get_profile(run_settings.profile), **given.profile)
    if profile.model.startswith("~"):
        profile = replace(profile, model=str(Path(profile.model).expanduser()))
    _check_model(profile)
    grpo = dict(given.grpo)
    if "generation_batch_size" in given.profile:  # `for_profile` refuses other settings of the batch that contradict it
        grpo["generation_batch_size"] = given.profile["generation_batch_size"]
    return Run(profile, run_settings, grpo, given.notes)


def _without_rivals(from_recipe: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe without those that a given setting takes the place of."""
    kept = dict(from_recipe)
    for names, rivals in RIVALS.items():
        if any(name in given for name in names):
            for rival in rivals:
                kept.pop(rival, None)
    return kept


def _check_model(profile: Profile) -> None:
    """Raise UserError for a model that is no folder, where it must be one."""
    if (Path(profile.model) / "config.json").is_file():
        return
    is_path = profile.model.startswith((".", "/"))
    if is_path or profile.device == "cpu":
        raise UserError(
            f"There is no model in '{profile.model}': on the CPU it is a folder with a config.json, and with "
            "PROFILE=auto on a machine with a GPU it may be an id of the hub."
        )


def parameters_in(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run that a notebook gives: its parameters in capitals, and what its CONFIG holds.

    variables: the notebook's `globals()`. Names that are no settings are left out, and so are parameters of the first
    cell that have their default. Raises UserError where a parameter and CONFIG contradict each other.
    """
    found = {}
    for variable, value in variables.items():
        name = variable.lower()
        is_parameter = variable.isupper() and (name in TABLE or (name in ALIASES and len(name) > 1))
        if is_parameter and not (name in OF_THE_CELL and value == TABLE[name][1].default):
            found[name] = value
    parameters = by_own_name(found)
    config = by_own_name(read_config(variables.get("CONFIG", "")))
    for name in parameters.keys() & config.keys():
        if parameters[name] != config[name]:
            raise UserError(
                f"CONFIG says {name} = {config[name]!r}, and the parameter {name.upper()} is {parameters[name]!r}: "
                "change one of them."
            )
    return parameters | config
