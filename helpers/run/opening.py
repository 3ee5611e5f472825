"""The settings of a run of the notebooks: what their cell `CONFIG` may hold, and the run that follows from it."""

import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from peft import PeftModel

from helpers.display import LiveView
from helpers.evaluation import SweepPlan, check_task, sample_records, sweep_plan, trained_on
from helpers.grpo import GRPOConfig, apply_control, check_control, dry_run, recipe
from helpers.grpo.rft import check_baseline, train_rft
from helpers.grpo.trainer import GRPOTrainer
from helpers.model.load import load_model
from helpers.model.lora import add_lora
from helpers.model.memory import largest_batch, memory_plan, rollout_length
from helpers.profiles import Profile, get_profile
from helpers.rewards.calling import name_of
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.sampling import SamplingParams
from helpers.runtime import (
    ROOT,
    EndOfNotebook,
    UserError,
    check_whole,
    did_you_mean,
    first_line,
    recover_folder,
    run_folder,
)
from helpers.tasks.choosing import choose_rewards, choose_task
from helpers.tasks.task import Task

#: Keys of CONFIG that are no fields of `GRPOConfig`, with their defaults.
DEFAULTS = {
    "task_options": "",  # options of the task, name=value with commas between them, as `make tasks` lists them
    "rewards": "",  # a preset, or rewards with their weights, as `make rewards` lists them; "": the task's own
    "recipe": "",  # the settings of a published method: grpo, dr_grpo, dapo, gspo, cispo or guide
    "control": "",  # a run without the lesson: shuffle, flip, freeze, certainty or majority
    "baseline": "",  # "rft": imitate the model's own right answers in place of GRPO
    "dry_run": False,  # check data, rewards and one step, and end before the training
    "sandbox": "auto",  # "process" for a host without seccomp; it prints what that does not stop
    "sweep": "auto",  # how much an evaluation asks: full or small; "auto": what the profile says
    "items": None,  # prompts that decide; None: those of the sweep
    "fallback_steps": 10,  # steps that an evaluation trains where it finds no adapter
}
#: Fields of `GRPOConfig` that notebooks set by themselves.
SET_BY_NOTEBOOKS = ("output_dir", "max_steps", "seed", "reward_weights")


def known_settings() -> dict[str, object]:
    """Return every key that CONFIG may hold, with its default."""
    grpo = {}
    for its_field in fields(GRPOConfig):
        if its_field.name not in SET_BY_NOTEBOOKS:
            grpo[its_field.name] = None if its_field.default is MISSING else its_field.default
    return DEFAULTS | grpo


def read_config(config: dict | str | Path) -> dict:
    """Return the settings of a CONFIG: a dictionary, or the path of a JSON file that holds one.

    Raises UserError for a file that cannot be read and for a key that is no setting.
    """
    if not isinstance(config, dict):
        try:
            config = json.loads(Path(config).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"CONFIG must be a dictionary or the path of a JSON file; {config!r} is neither ({first_line(error)})."
            ) from error
    if not isinstance(config, dict):
        raise UserError('CONFIG must hold an object of settings, such as {"learning_rate": 1e-3}.')
    known = known_settings()
    for name in config:
        if name == "reward_weights":
            raise UserError('CONFIG gives weights in "rewards", such as {"rewards": "math_answer,math_format=0.1"}.')
        if name in SET_BY_NOTEBOOKS:
            raise UserError(f"'{name}' is not set in CONFIG: the notebook's own parameters decide it.")
        if name not in known:
            raise UserError(f"CONFIG has no setting '{name}'{did_you_mean(name, known)}: help(GRPOConfig) lists most.")
    return dict(config)


@dataclass(frozen=True)
class Run:
    """One run: its profile, its folder, and the settings of its CONFIG.

    The task and what depends on it are made when they are first used.
    """

    profile: Profile
    folder: Path
    task_name: str
    seed: int
    max_steps: int | None
    settings: dict

    def __getitem__(self, name: str) -> object:
        """Return a setting that is no field of `GRPOConfig`."""
        return self.settings.get(name, DEFAULTS[name])

    @cached_property
    def task(self) -> Task:
        return choose_task(self.task_name, self.profile, self["task_options"], level=self["sandbox"])

    @cached_property
    def _rewards(self) -> tuple[list[Callable], list[float], dict]:
        """Reward functions, their weights, and the settings that a control changes."""
        chosen, weights = choose_rewards(self["rewards"], self.task)
        return apply_control(self["control"], chosen, self.seed, self.task.behaviours, reward_weights=weights)

    @property
    def reward_funcs(self) -> list[Callable]:
        return self._rewards[0]

    @property
    def reward_weights(self) -> list[float]:
        return self._rewards[1]

    @cached_property
    def config(self) -> GRPOConfig:
        """The settings of the training. Those of CONFIG stand above the recipe's, and a control's above both."""
        from_recipe = recipe(self["recipe"]) if self["recipe"] else {}
        from_config = {name: value for name, value in self.settings.items() if name not in DEFAULTS}
        _, weights, from_control = self._rewards
        return GRPOConfig.for_profile(
            self.profile,
            output_dir=str(self.folder / "grpo"),
            seed=self.seed,
            max_steps=self.max_steps,
            reward_weights=tuple(weights),
            **(from_recipe | from_config | from_control),
        )

    @property
    def sweep(self) -> SweepPlan:
        return sweep_plan(self["sweep"], self.profile)

    def check(self) -> None:
        """Raise UserError for a setting that the training or the evaluation would refuse."""
        check_control(self["control"])
        check_baseline(self["baseline"], self["control"])
        if self["items"] is not None:
            check_whole("items", self["items"], least=2)
        check_whole("fallback_steps", self["fallback_steps"], least=1)
        if not isinstance(self["dry_run"], bool):
            raise UserError(f"dry_run must be True or False; got {self['dry_run']!r}.")
        sweep_plan(self["sweep"], self.profile)
        _ = self.config  # made here, as it checks itself, its task and its rewards

    def __str__(self):
        """The profile, the rewards, and every setting that differs from the defaults of `GRPOConfig`."""
        rewards = [f"{weight:g} x {name_of(f)}" for f, weight in zip(self.reward_funcs, self.reward_weights)]
        lines = [str(self.profile), "rewards: " + ", ".join(rewards)]
        for its_field in fields(GRPOConfig):
            value = getattr(self.config, its_field.name)
            if its_field.name not in ("output_dir", "reward_weights") and value != its_field.default:
                lines.append(f"{its_field.name:<28} {value}")
        return "\n".join(lines)


def open_run(
    config: dict | str | Path = "",
    profile: str | Profile = "auto",
    task: str = "matmul",
    seed: int = 0,
    run_dir: str | Path = "",
    max_steps: int | None = None,
) -> Run:
    """Check the settings of a run, make its folder, and return the run.

    config: a dictionary, or the path of a JSON file; "": no settings. run_dir: "" is runs/notebook in the project.
    max_steps: None: the profile's. Raises UserError for whatever the training or the evaluation would refuse.
    """
    settings = read_config(config) if config else {}
    folder = Path(run_dir).expanduser() if run_dir else ROOT / "runs" / "notebook"
    run = Run(get_profile(profile), folder, task, seed, max_steps, settings)
    run.check()
    run_folder(folder)
    return run


def end_early(run: Run, trainer: GRPOTrainer) -> None:
    """End the notebook before the training, where the run is a dry run or a baseline; return otherwise.

    A dry run checks data and rewards, takes one step back and forth, and lets the model answer a few prompts of each
    split. A baseline is trained and saved.
    """
    if run["dry_run"]:
        from helpers.lint import describe_lint
        from helpers.tasks.validation import validate_data

        dry_run(trainer)
        params = SamplingParams(trainer.args.max_completion_length, seed=run.seed)
        for split in run.task.splits:
            records = sample_records(trainer.engine, run.task, run.task.dataset(split, 8), params, "base")
            outcomes = sorted(record["outcome"] for record in records)
            print(f"{split}: {len(records)} prompts, answers {', '.join(outcomes)}")
        for sentence in validate_data(run.task):
            print(sentence)
        chosen, weights = choose_rewards(run["rewards"], run.task)
        print(describe_lint(run.task, run.task.dataset("train", 8, seed=run.seed), chosen, weights))
        raise EndOfNotebook("The dry run ends here, before the training: leave dry_run out of CONFIG to train.")
    if run["baseline"]:
        imitated = train_rft(trainer)
        trainer.save_model(run.folder / "adapter")
        print(f"{imitated.kept} of {imitated.drawn} completions were right; imitated in {imitated.steps} steps")
        raise EndOfNotebook(f"The baseline ends here; its adapter is in {run.folder.name}/adapter, for 05_evaluate.")


@dataclass(frozen=True)
class Trained:
    """A model whose adapter can be switched off, and the engine that draws from it.

    origin: how the adapter was trained, as `GRPOTrainer.save_model` wrote it; None where nobody knows.
    """

    model: PeftModel
    engine: RolloutEngine
    params: SamplingParams
    origin: dict | None


def load_trained(run: Run, seed: int) -> Trained:
    """Load the adapter that 04_grpo left in the folder of the run, on its model.

    Where there is none, a few steps are trained first. seed: of the answers. Raises UserError for an adapter that was
    trained on another task.
    """
    profile = run.profile
    adapter = recover_folder(run.folder / "adapter")  # atomic, even if 04_grpo was killed while it wrote
    if not adapter.exists():
        adapter = _train_fallback(run)
    origin = None
    max_completion_length = profile.max_completion_length
    if (adapter / "trainer_state.json").exists():
        origin = json.loads((adapter / "trainer_state.json").read_text())
        check_task(origin, run.task)
        max_completion_length = origin["settings"]["max_completion_length"]
        print(f"{adapter.relative_to(run.folder.parent)}: seed {origin['settings']['seed']}, {trained_on(origin)}")
    length = rollout_length(max_completion_length)
    batch = largest_batch(profile, length)  # as many answers at a time as the memory plan allows
    model, tokenizer = load_model(profile=profile, adapter=adapter, plan=memory_plan(profile, batch, length))
    effort = {"reasoning_effort": profile.reasoning_effort}
    engine = RolloutEngine(model, tokenizer, max_batch_size=batch, max_length=length, chat_template_kwargs=effort)
    return Trained(model, engine, SamplingParams(max_completion_length, seed=seed), origin)


def _train_fallback(run: Run) -> Path:
    """Train a few steps, so that there is something to compare; return the folder of the adapter."""
    profile = run.profile
    steps = run["fallback_steps"]
    print(f"There is no adapter in {run.folder.name}: training {steps} steps now. Run 04_grpo for a real one.")
    config = replace(run.config, max_steps=steps, output_dir=str(run.folder / "fallback"))
    model, tokenizer = load_model(profile=profile, plan=config.memory_plan(profile))
    model = add_lora(model, r=profile.lora_r, alpha=profile.lora_alpha, targets=profile.lora_targets, seed=run.seed)
    prompts = run.task.dataset("train", 2000, seed=run.seed)
    trainer = GRPOTrainer(model, run.reward_funcs, config, prompts, tokenizer, callbacks=[LiveView()], task=run.task)
    trainer.train(resume_from_checkpoint=True)
    adapter = run.folder / "fallback" / "adapter"
    trainer.save_model(adapter)
    return adapter
