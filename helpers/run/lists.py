"""Lists for the terminal: the tasks, the rewards, and the settings of a run."""

from dataclasses import MISSING
from textwrap import fill

from helpers.display import text_table
from helpers.grpo.config import GRPOConfig
from helpers.profiles import PROFILES, Profile
from helpers.run.settings import TABLE, RunSettings, other_names
from helpers.settings import named_choices
from helpers.tasks import get_task, list_presets, list_rewards, list_tasks
from helpers.tasks.frozen import frozen_digests

HEADINGS = {
    RunSettings: "The run",
    Profile: "The model and the machine; the defaults are the profile's",
    GRPOConfig: "The training, in TRL's names; most defaults that are not shown are the profile's",
}
WIDTH = 116
#: Settings that `GRPOConfig.for_profile` derives from the profile, beside those that a profile has itself.
SET_FOR_A_PROFILE = ("lr_scheduler_type", "gradient_accumulation_steps", "gradient_checkpointing")


def settings_list() -> str:
    """Return every setting of a run with its default, what it means, and its other names."""
    parts = ["NAME=value with make run, or name = value in a file that CONFIG names, or a key of CONFIG in a notebook."]
    for owner, heading in HEADINGS.items():
        parts += ["", heading]
        parts += [_describe(name) for name, (its_owner, _) in TABLE.items() if its_owner is owner]
    return "\n".join(parts)


def _describe(name: str) -> str:
    owner, its_field = TABLE[name]
    about = its_field.metadata["setting"]
    is_of_profile = owner is Profile or name in vars(PROFILES["tiny"]) or name in SET_FOR_A_PROFILE
    default = ""
    if its_field.default is not MISSING and not (is_of_profile or its_field.default in ("", None)):
        default = f" ({its_field.default})"
    one_of = f" One of {named_choices(about)}." if about.choices else ""
    others = other_names(name)
    also = f" Also {', '.join(others)}." if others else ""
    text = f"{name.upper()}{default}: {about.help}{one_of}{also}"
    return fill(text, width=WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def tasks_table() -> str:
    """Return a table of the tasks, and one of their options.

    A task has its splits, the digest of its frozen training rows, and what is asked.
    """
    rows = []
    options = []
    for name in list_tasks():
        task = get_task(name)
        digests = frozen_digests(task) or {}
        summary = (type(task).__doc__ or "").split("\n")[0]
        rows.append((name, " ".join(task.splits), digests.get("train", "not frozen")[:12], summary))
        options += [(name, option, sentence) for option, sentence in task.options.items()]
    listed = text_table(rows, header=("task", "splits", "train sha256", "what is asked"))
    return listed + "\n\n" + text_table(options, header=("task", "option in TASK_OPTIONS", "what it is"))


def rewards_table() -> str:
    """Return a table of the rewards, and one of the presets."""
    rewards = []
    for spec in list_rewards():
        low, high = spec.value_range
        needs = ", ".join(spec.needs) or "-"
        rewards.append((spec.name, f"{low:g} to {high:g}", needs, spec.summary))
    presets = []
    for name, terms in list_presets().items():
        presets.append((name, ", ".join(f"{reward}={weight:g}" for reward, weight in terms)))
    listed = text_table(rewards, header=("reward", "range", "columns", "what it pays"))
    return listed + "\n\n" + text_table(presets, header=("preset", "rewards and their weights"))


def sources_table() -> str:
    """Return a table of the splits that SOURCE can make, and one of the data sets that they are made of."""
    from helpers.gallery.sources.plans import PLANS
    from helpers.gallery.sources.table import SOURCES

    plans = []
    for name, plan in PLANS.items():
        pool = "all" if plan.pool is None else f"{plan.pool}"
        decides = f"{plan.confirm_set}: {', '.join([*plan.whole, *plan.fill])}"
        probes = ["ID"] * bool(plan.in_distribution) + list(plan.probes)
        plans.append((name, plan.task, pool, decides, ", ".join(probes) or "-"))
    listed = text_table(plans, header=("SOURCE", "task", "pool", "what decides", "probes"))
    sources = []
    for name, source in SOURCES.items():
        sources.append((name, source.hub, source.split, source.licence or "not stated", ", ".join(source.columns)))
    return listed + "\n\n" + text_table(sources, header=("source", "hub", "split", "licence", "columns read"))


#: What `--list` may ask for.
LISTS = {"tasks": tasks_table, "rewards": rewards_table, "sources": sources_table, "settings": settings_list}
