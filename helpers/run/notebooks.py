"""Run the notebooks in order, headlessly: `python -m helpers.run` (`make run`)."""

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from helpers.display import text_table
from helpers.evaluation import Report, show_difference, show_p, show_temperatures, trained_on
from helpers.run_config import Run, known_settings, open_run, read_config
from helpers.runtime import ROOT, UserError, did_you_mean, first_line, write_whole
from helpers.tasks import get_task, list_presets, list_rewards, list_tasks
from helpers.tasks.frozen import frozen_digests

AGAIN = "Run it again with the same NAME: 04_grpo goes on from its last checkpoint."
#: What a person reads in an evening.
NOTEBOOKS = ("01_load", "02_attention", "03_rewards", "04_grpo", "05_evaluate")
#: What only proves, in notebooks/deeper.
DEEPER = (
    "01_checks",
    "02_attention_proofs",
    "03_sandbox",
    "03_lint",
    "04_losses_and_controls",
    "05_statistics",
)
TRUTH = {"True": True, "1": True, "False": False, "0": False}


def source_of(name: str) -> Path:
    """Return the path of a notebook of the project."""
    folder = ROOT / "notebooks" / "deeper" if name in DEEPER else ROOT / "notebooks"
    return folder / f"{name}.ipynb"


def parameters_of(name: str) -> dict[str, object]:
    """Return the parameters of a notebook with their defaults: {name: default} of its cell tagged `parameters`."""
    cells = json.loads(source_of(name).read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    assignments = ast.parse("".join(line for cell in tagged for line in cell["source"])).body
    return {assignment.targets[0].id: ast.literal_eval(assignment.value) for assignment in assignments}


def read_pairs(pairs: Sequence[str]) -> dict[str, object]:
    """Return {"MAX_STEPS": 5, "CONTROL": "shuffle"} from ["MAX_STEPS=5", "CONTROL=shuffle"].

    A name is a parameter of a notebook, or a setting of CONFIG in capitals. A value is of the kind of the default.
    Raises UserError for what is no such pair, for an unknown name, and for a value of another kind.
    """
    parameters = {}
    for notebook in (*DEEPER, *NOTEBOOKS):  # where both have a parameter, the default of the five counts
        parameters |= parameters_of(notebook)
    settings = {name.upper(): default for name, default in known_settings().items()}
    given = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"'{pair}' is not a parameter: write NAME=value, such as MAX_STEPS=10.")
        if name in parameters:
            given[name] = _value_of_parameter(name, text, parameters[name])
        elif name in settings:
            given[name] = _value_of_setting(name, text, settings[name])
        else:
            nearest = did_you_mean(name, [*parameters, *settings])
            raise UserError(f"No notebook has a parameter '{name}'{nearest}: README names the usual ones.")
    return given


def _value_of_parameter(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        return _truth(name, text)
    if isinstance(default, (str, dict)):  # CONFIG is a dictionary in the notebooks, and here the path of a file
        return text
    return _number(name, text)


def _value_of_setting(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        return _truth(name, text)
    if isinstance(default, str):
        return text
    if isinstance(default, (int, float)):
        return _number(name, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _truth(name: str, text: str) -> bool:
    if text not in TRUTH:
        raise UserError(f"{name} must be True or False; got '{text}'.")
    return TRUTH[text]


def _number(name: str, text: str) -> int | float:
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        raise UserError(f"{name} must be a number; got '{text}'.") from None


def for_notebook(name: str, given: dict[str, object]) -> dict[str, object]:
    """Return what of the given parameters and settings a notebook takes; settings are gathered in its CONFIG."""
    own = parameters_of(name)
    taken = {parameter: value for parameter, value in given.items() if parameter in own}
    if "CONFIG" in own:
        settings = known_settings()
        gathered = {key.lower(): value for key, value in given.items() if key.lower() in settings and key not in own}
        taken["CONFIG"] = read_config(given.get("CONFIG") or {}) | gathered
    return taken


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


def run_notebook(name: str, folder: Path, given: dict[str, object]) -> None:
    """Execute one notebook into `folder`, as .ipynb and as HTML, the HTML also when a cell fails.

    given: parameters of notebooks and settings of CONFIG, in capitals; those that this notebook lacks are left out.
    """
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    parameters = for_notebook(name, given)
    output = folder / f"{name}.ipynb"
    notebook = load_notebook_node(str(source_of(name)))
    if parameters:  # papermill adds a cell for them, and none where there are none
        notebook = parameterize_notebook(notebook, parameters)
    progress = Progress(name, notebook.cells)
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
    """The executed notebook as one HTML file beside it, without the source of its folded cells."""
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.metadata.get("cellView") == "form":
            cell.metadata["transient"] = {"remove_source": True}
    page, _ = HTMLExporter().from_notebook_node(notebook)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 after one sentence on what went wrong."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="", help="default: what each notebook says")
    parser.add_argument("--name", default="", help="folder under runs/ (default: the time)")
    parser.add_argument("--deeper", action="store_true", help="run the notebooks in notebooks/deeper instead")
    parser.add_argument("--list", choices=("tasks", "rewards"), help="print what there is, and run nothing")
    parser.add_argument("parameters", nargs="*", help="NAME=value, for the notebooks that have NAME, or for CONFIG")
    args = parser.parse_args(arguments)
    if args.list:
        print(tasks_table() if args.list == "tasks" else rewards_table())
        return 0
    started = time.monotonic()
    try:
        given = read_pairs(args.parameters)
        if args.profile:
            given.setdefault("PROFILE", args.profile)
        run = _check_run(given, args.name)
        given["RUN_DIR"] = str(run.folder)
        given.setdefault("PROFILE", run.profile.name)  # one for all notebooks, where each would choose its own
        print(f"{run.profile}\nWriting to {run.folder}", flush=True)
        os.environ["HELPERS_HEADLESS"] = "1"
        if run.profile.device == "cpu":  # so small a model gains nothing from more threads
            os.environ.setdefault("OMP_NUM_THREADS", "2")
        notebooks = DEEPER if args.deeper else NOTEBOOKS
        if run["dry_run"]:
            notebooks = ("04_grpo",)
        for name in notebooks:
            run_notebook(name, run.folder, given)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; make run with the same NAME goes on from the last checkpoint.", file=sys.stderr)
        return 130
    minutes = (time.monotonic() - started) / 60
    if run["dry_run"]:
        print(f"\n{printed_by_last_cell(run.folder / '04_grpo.ipynb')}")
        print(f"The dry run of task '{run.task_name}' came to its end in {minutes:.1f} minutes: {run.folder}/*.html")
    elif args.deeper:
        print(f"\nAll of notebooks/deeper ran, in {minutes:.1f} minutes: {run.folder}/*.html")
    else:
        print("\n" + summary(run.folder, minutes))
    return 0


def _check_run(given: dict[str, object], name: str) -> Run:
    """Return the run that 04_grpo and 05_evaluate would open. Raises UserError for what they would refuse."""
    parameters = parameters_of("04_grpo") | given
    config = for_notebook("04_grpo", given)["CONFIG"]
    run_dir = parameters["RUN_DIR"] or ROOT / "runs" / (name or time.strftime("%Y-%m-%d_%H-%M-%S"))
    settings = (parameters["PROFILE"], parameters["TASK"], parameters["SEED"], run_dir, parameters["MAX_STEPS"])
    return open_run(config, *settings)


if __name__ == "__main__":
    sys.exit(main())
