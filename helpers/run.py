"""Run the notebooks in order, headlessly: `python -m helpers.run` (`make run`)."""

import argparse
import ast
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from helpers.display import text_table
from helpers.evaluation import Report, show_difference, show_p, show_temperatures, sweep_plan, trained_on
from helpers.profiles import get_profile
from helpers.runtime import ROOT, UserError, did_you_mean, first_line, run_folder, write_whole
from helpers.tasks import get_task, list_presets, list_rewards, list_tasks
from helpers.tasks.choosing import choose_rewards, choose_task
from helpers.tasks.frozen import frozen_digests

AGAIN = "Run it again with the same NAME: 04_grpo goes on from its last checkpoint."
NOTEBOOKS = ("01_load", "02_attention", "03_rewards", "04_grpo", "05_evaluate")
#: The notebooks that a dry run executes, each up to the cell where the work of a real run would begin.
DRY_RUN_NOTEBOOKS = ("04_grpo", "05_evaluate")
TRUTH = {"True": True, "1": True, "False": False, "0": False}


def source_of(name):
    return ROOT / "notebooks" / f"{name}.ipynb"


def known_parameters():
    """notebook -> {name: default} of its cell tagged `parameters`."""
    from papermill import inspect_notebook

    inspected = {name: inspect_notebook(str(source_of(name))) for name in NOTEBOOKS}
    return {
        notebook: {name: ast.literal_eval(found["default"]) for name, found in parameters.items()}
        for notebook, parameters in inspected.items()
    }


def read_parameters(pairs, known):
    """{"MAX_STEPS": 5} from ["MAX_STEPS=5"]; a value is text, a number, or True or False, as the default is.

    known: what `known_parameters` gives.

    Raises UserError for what is no such pair, for a name that no notebook has, and for a value
    of another kind than the default's.
    """
    defaults, parameters = {}, {}
    for found in known.values():
        defaults.update(found)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"'{pair}' is not a parameter: write NAME=value, such as MAX_STEPS=10.")
        if name not in defaults:
            raise UserError(
                f"No notebook has a parameter '{name}'{did_you_mean(name, defaults)}: there are {', '.join(defaults)}."
            )
        parameters[name] = text if isinstance(defaults[name], str) else _value(name, text, defaults[name])
    return parameters


def _value(name, text, default):
    if isinstance(default, bool):
        if text not in TRUTH:
            raise UserError(f"{name} must be True or False; got '{text}'.")
        return TRUTH[text]
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        raise UserError(f"{name} must be a number; got '{text}'.") from None


class Progress:
    """Says which cell runs, and passes on what a training step prints."""

    def __init__(self, name, cells):
        self.name, self.part, heading = name, "", ""
        self.code = [n for n, cell in enumerate(cells) if cell.cell_type == "code"]
        self.headings = []
        for cell in cells:
            lines = cell.source.splitlines() if cell.cell_type == "markdown" else []
            heading = next((line.strip("# ") for line in reversed(lines) if line.startswith("#")), heading)
            self.headings.append(heading)

    def cell_started(self, cell, cell_index):
        if cell.cell_type == "code":
            place = f"cell {self.code.index(cell_index) + 1}/{len(self.code)}"
            print(f"{self.name:<13}{place:<12}{self.headings[cell_index]}", flush=True)

    def write(self, text):
        """Take a cell's output as a file would; only whole lines that begin with "step" are shown."""
        *lines, self.part = (self.part + text).split("\n")
        for line in lines:
            if line.startswith("step "):
                print(f"{'':<13}{line}", flush=True)

    def flush(self):
        """Nothing is held back that should be shown."""


def run_notebook(name, folder, parameters):
    """Execute one notebook into `folder`, as .ipynb and as HTML, the HTML also when a cell fails."""
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    output = folder / f"{name}.ipynb"
    progress = Progress(name, parameterize_notebook(load_notebook_node(str(source_of(name))), parameters).cells)
    try:
        execute_notebook(
            str(source_of(name)),
            str(output),
            parameters=parameters,
            cwd=str(ROOT),
            progress_bar=False,
            stdout_file=progress,
            on_cell_start=progress.cell_started,
            extra_arguments=["--log-level=50"],  # the kernel would tell of TCP and of being stopped at the end
        )
    except PapermillExecutionError as error:
        if error.ename == "EndOfNotebook":
            _remove_error_cells(output)
            return
        reason = error.evalue if error.ename == "UserError" else f"{error.ename}: {error.evalue}"
        raise UserError(f"{name} stopped: {reason} (everything up to there is in {output})") from error
    except RuntimeError as error:
        if "Kernel died" not in str(error):  # nbclient's words while a cell runs, jupyter_client's before the first
            raise
        raise UserError(
            f"{name} stopped: its kernel died, for want of memory perhaps (up to there everything is in {output}). "
            + AGAIN
        ) from error
    except OSError as error:
        raise UserError(f"{name} stopped: cannot write {output} ({first_line(error)}). {AGAIN}") from error
    finally:
        if output.exists():
            with suppress(OSError):  # a full disk has been told of by what filled it
                write_html(output)


def _remove_error_cells(path):
    """Remove the cells in which papermill says that the notebook failed: it ended where it should."""
    import nbformat
    from papermill.execute import ERROR_MARKER_TAG

    notebook = nbformat.read(path, 4)
    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKER_TAG not in cell.metadata.get("tags", [])]
    write_whole(path, nbformat.writes(notebook))


def printed_by_last_cell(path: Path) -> str:
    """Return what the last cell that was executed printed."""
    import nbformat

    cells = nbformat.read(path, 4).cells
    executed = [cell for cell in cells if cell.cell_type == "code" and cell.execution_count]
    return "".join(output.get("text", "") for output in executed[-1].outputs).strip()


def write_html(path):
    """The executed notebook as one HTML file beside it."""
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_filename(str(path))
    write_whole(path.with_suffix(".html"), page)


def summary(folder: Path, minutes: float) -> str:
    """Return the closing table, from what 05_evaluate wrote."""
    saved = json.loads((folder / "report.json").read_text())
    report = Report.from_dict(saved)
    best = report.best
    base_at = show_temperatures(report.base_temperatures)
    tuned_at = show_temperatures(report.tuned_temperatures)
    headline = report.headline
    rows = [
        (f"tuned at its best, {tuned_at} [95 %]", _show_share(best.tuned_rate, best.tuned_interval)),
        (f"base at its best, {base_at} [95 %]", _show_share(best.base_rate, best.base_interval)),
        ("smallest of three differences", f"{show_difference(headline)}, against the base {report.headline_base}"),
        ("", show_p(headline)),
        ("against the base at its best", show_difference(best)),
        ("against the base greedy", show_difference(report.against_greedy)),
        ("against the base at T = 1", show_difference(report.against_sampled)),
        ("both at T = 1", show_difference(report.sampled)),
        ("on", f"{best.items} held-out prompts in {best.clusters} clusters not trained on"),
        ("verdict", report.verdict),
    ]
    for outcome in report.base_outcomes | report.tuned_outcomes:
        before = report.base_outcomes.get(outcome, 0.0)
        after = report.tuned_outcomes.get(outcome, 0.0)
        rows.append((f"{outcome} at T = 1", f"{before:.1%} -> {after:.1%}"))
    rows += [
        ("trained", trained_on(saved["origin"])),
        ("minutes", f"{minutes:.1f}"),
        ("report", str((folder / "05_evaluate.html").resolve())),
    ]
    return text_table(rows)


def _show_share(rate: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{rate:.1%} [{low:.1%}, {high:.1%}]"


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


def main(arguments=None):
    """Returns the exit status: 0, or 1 after one sentence on what went wrong."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="auto")
    parser.add_argument("--name", default="", help="folder under runs/ (default: the time)")
    parser.add_argument("--list", choices=("tasks", "rewards"), help="print what there is, and run nothing")
    parser.add_argument("parameters", nargs="*", help="NAME=value, for the notebooks that have NAME")
    args = parser.parse_args(arguments)
    if args.list:
        print(tasks_table() if args.list == "tasks" else rewards_table())
        return 0
    started = time.monotonic()
    try:
        known = known_parameters()
        given = read_parameters(args.parameters, known)
        if given.get("ITEMS", 2) < 2:
            raise UserError(f"ITEMS must be at least 2, to compare two models on; got {given['ITEMS']}.")
        profile = get_profile(given.setdefault("PROFILE", args.profile))
        sweep_plan(given.get("SWEEP", "auto"), profile)
        task_name = given.get("TASK", known["04_grpo"]["TASK"])
        level = given.get("SANDBOX", known["04_grpo"]["SANDBOX"])
        task = choose_task(task_name, profile, given.get("TASK_OPTIONS", ""), level=level)
        choose_rewards(given.get("REWARDS", ""), task)
        name = args.name or time.strftime("%Y-%m-%d_%H-%M-%S")
        # Seconds of imports that a mistake above need not wait for.
        from helpers.grpo import GRPOConfig, check_control
        from helpers.grpo.rft import check_baseline

        check_control(given.get("CONTROL", ""))
        check_baseline(given.get("BASELINE", ""), given.get("CONTROL", ""))
        settings = {"max_steps": "MAX_STEPS", "num_generations": "GROUP_SIZE", "learning_rate": "LEARNING_RATE"}
        GRPOConfig.for_profile(profile, name, **{field: given.get(parameter) for field, parameter in settings.items()})
        folder = run_folder(given.get("RUN_DIR") or ROOT / "runs" / name)
        given["RUN_DIR"] = str(folder)
        print(f"{profile}\nWriting to {folder}", flush=True)
        os.environ["HELPERS_HEADLESS"] = "1"
        if profile.device == "cpu":  # so small a model gains nothing from threads, and loses much where cores are busy
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        dry_run = given.get("DRY_RUN", False)
        for name in DRY_RUN_NOTEBOOKS if dry_run else NOTEBOOKS:
            run_notebook(name, folder, {key: value for key, value in given.items() if key in known[name]})
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; make run with the same NAME goes on from the last checkpoint.", file=sys.stderr)
        return 130
    minutes = (time.monotonic() - started) / 60
    if dry_run:
        print(f"\n{printed_by_last_cell(folder / '04_grpo.ipynb')}")
        print(f"The dry run of task '{task_name}' came to its end in {minutes:.1f} minutes: {folder}/*.html")
    else:
        print("\n" + summary(Path(folder), minutes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
