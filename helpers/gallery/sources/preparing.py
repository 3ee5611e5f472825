"""Writes the splits of a plan to a folder that a run reads, with where every row came from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset, DatasetDict, load_from_disk

from helpers.gallery.sources.plans import Splits, find_plan, make_splits
from helpers.gallery.sources.questions import describe_dropped
from helpers.gallery.sources.reading import read_source
from helpers.runtime import UserError, recover_folder
from helpers.tasks.data.columns import Columns
from helpers.tasks.data.prepare import REPORT, PrepareReport, check_out, prepare, rows_sha256
from helpers.tasks.data.task import DataTask
from helpers.tasks.task import Task

#: What is remembered of the sources, in the folder with their rows.
RECORD = "sources.json"


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare_source`. report: on the rows. splits: how they came about."""

    report: PrepareReport
    splits: Splits

    def __str__(self) -> str:
        lines = []
        for name, found in self.splits.sources.items():
            origin = f"revision {found.revision}" if found.revision else f"a copy, {found.copy}"
            reasons = describe_dropped(found.dropped) or "none left out"
            licence = found.licence or "no licence on its page"
            lines.append(f"{name}: {found.kept} of {found.rows} rows are questions ({reasons}); {origin}; {licence}")
        lines += [f"{pair}: {sentence}" for pair, sentence in self.splits.removed.items()]
        lines.append(f"sha256 of the pool:   {self.splits.pool_sha256}")
        return "\n".join([*lines, str(self.report)])


def prepare_source(
    name: str,
    task: Task,
    out: str | Path,
    *,
    seed: int = 0,
    pool: int | None = None,
    copies: str | Path = "",
    system_prompt: str = "",
) -> Prepared:
    """Read the data sets of a plan, divide them into splits, and write these to the folder `out`, atomically.

    name: in `plans.PLANS`. task: whose rewards judge the answers. seed: of the choice of rows. pool: the most questions
    to draw the training from; None: as the plan has it. copies: a folder with copies of data sets, in place of the hub.
    system_prompt: a system message in front of every prompt.

    A folder that was written before keeps its sources: their revisions are read again, and other rows are refused.
    Raises UserError as `read_source` and `prepare`, and for a task that cannot judge the data set.
    """
    plan = find_plan(name)
    check_task_of(name, task.name)
    check_out(out)
    pinned = read_pins(out)
    splits = make_splits(plan, lambda source: read_source(source, copies, pinned.get(source)), seed, pool)
    rows = {split: Dataset.from_list(found) for split, found in splits.rows.items()}
    data_task = DataTask(DatasetDict(rows), Columns(system_prompt=system_prompt), task, drop_faulty=True)
    record = {
        "source": name,
        "seed": seed,
        "pool": pool or plan.pool,
        "pool_sha256": splits.pool_sha256,
        "removed": splits.removed,
        "sources": {source: asdict(found) for source, found in splits.sources.items()},
    }
    extra_files = {RECORD: json.dumps(record, indent=2) + "\n"}
    return Prepared(prepare(data_task, out, seed=seed, extra_files=extra_files), splits)


def check_task_of(name: str, task: str) -> None:
    """Raise UserError where a task, by its name, cannot judge the answers of a plan."""
    wanted = find_plan(name).task
    if task != wanted:
        raise UserError(f"Answers of '{name}' are judged by task '{wanted}' and not by '{task}': set TASK={wanted}.")


def read_pins(folder: str | Path) -> dict[str, Mapping[str, str]]:
    """Return what an earlier preparation of a folder read: source -> its provenance; {} where there was none."""
    return _read_record(folder).get("sources", {})


def is_prepared(name: str, folder: str | Path, pool: int | None) -> bool:
    """Tell whether a folder holds the splits of this plan already.

    Raises UserError where it holds those of another one, and where its rows are not those that were written.
    """
    report = recover_folder(Path(folder)) / REPORT
    if not report.exists():
        return False
    record = _read_record(folder)
    plan = find_plan(name)
    wanted = {"source": name, "pool": pool or plan.pool}
    found = {key: record.get(key) for key in wanted}
    if found != wanted:
        raise UserError(
            f"{folder} was prepared with {_described(found)}, and this run asks for {_described(wanted)}: give the run "
            "another NAME."
        )
    saved = load_from_disk(str(folder))
    if rows_sha256(saved) != json.loads(report.read_text())["rows_sha256"]:
        raise UserError(f"The rows in {folder} are not those that were prepared: remove it, and run this again.")
    return True


def _read_record(folder: str | Path) -> dict:
    path = Path(folder).expanduser() / RECORD
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path} ({error}): give the data another folder.") from error


def _described(settings: Mapping) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
