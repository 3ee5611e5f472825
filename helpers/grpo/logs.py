"""What a person reads of a run: a line a step, the completions of each step, and curves for TensorBoard."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path

from helpers.grpo.folders import saving_to
from helpers.grpo.metrics import json_row
from helpers.grpo.scoring import RECORD_NAMES
from helpers.runtime import UserError, finite_or_none, write_whole
from helpers.step_line import step_line

TRAIN_LOG = "train.log"
COMPLETIONS = "completions"
TENSORBOARD = "tensorboard"
#: Characters of a sign or an alarm that a line shows.
LONGEST_SENTENCE = 400
#: A line of train.log that begins a step or a session, and which step it is about.
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (?:(?:started|resumed|ended) after )?step (\d+)")


class RunLog:
    """Writes, after each step, into `output_dir`:

    - `train.log`: one line of text a step, with the monitor's signs and the alarms below it;
    - `completions/completions_{step:05d}.parquet`: the step's completions under TRL's path and columns, atomically;
      without pyarrow JSON lines, `.jsonl`;
    - `tensorboard/`: every number under its log name, where the package tensorboard is installed.

    What an earlier session wrote of steps after `last_step` is dropped.

    reward_names: of the reward functions. max_steps: of the run, for display. last_step: the step that the run was
    resumed from. Raises UserError where the disk is full.
    """

    def __init__(
        self,
        output_dir: str | Path,
        reward_names: Sequence[str],
        max_steps: int | None = None,
        last_step: int = 0,
    ):
        self.output_dir = Path(output_dir)
        self.reward_names = list(reward_names)
        self.max_steps = max_steps
        self.last_step = last_step
        self.has_pyarrow = _has_pyarrow()
        with saving_to(self.output_dir):
            self._drop_later_steps()
            self.curves = _summary_writer(self.output_dir / TENSORBOARD, purge_step=last_step + 1)
        begun = "resumed" if last_step else "started"
        self._append(f"{begun} after step {self._show_step(last_step)}")

    def write(self, logs: dict, records: list[dict]) -> None:
        """Log a step: its row of metrics, and what `completion_records` gives; no records, no file of completions."""
        step = logs["step"]
        if records:
            self._write_completions(step, records)
        if self.curves is not None:
            with saving_to(self.output_dir / TENSORBOARD):
                _add_to_curves(self.curves, logs)
        text = f"step {self._show_step(step)}  {step_line(logs)}".rstrip()
        self._append(text, logs.get("monitor/signs") or ())
        self.last_step = step

    def close(self) -> None:
        """Note the end of the session, which is what `make watch` waits for."""
        self._append(f"ended after step {self._show_step(self.last_step)}")
        if self.curves is not None:
            with saving_to(self.output_dir / TENSORBOARD):
                self.curves.close()

    def _show_step(self, step: int) -> str:
        return str(step) if self.max_steps is None else f"{step}/{self.max_steps}"

    def _append(self, text: str, sentences: Sequence[str] = ()) -> None:
        """Add a line with the time, and sentences that belong to it, indented."""
        written = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}\n"
        for sentence in sentences:
            written += f"    {_one_line(str(sentence))}\n"
        path = self.output_dir / TRAIN_LOG
        with saving_to(path), open(path, "a", encoding="utf-8") as file:
            file.write(written)

    def _drop_later_steps(self) -> None:
        path = self.output_dir / TRAIN_LOG
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        kept = _lines_up_to(self.last_step, text)
        if kept != text or not path.exists():
            write_whole(path, kept)
        for file in _completion_files(self.output_dir):
            if _step_of(file) > self.last_step:
                file.unlink()

    def _write_completions(self, step: int, records: list[dict]) -> None:
        table = completion_table(step, records, self.reward_names)
        path = self.output_dir / COMPLETIONS / f"completions_{step:05d}"
        with saving_to(path):
            if self.has_pyarrow:
                write_whole(path.with_suffix(".parquet"), _parquet(table))
            else:
                write_whole(path.with_suffix(".jsonl"), _json_lines(table))


def completion_table(step: int, records: list[dict], reward_names: Sequence[str]) -> dict[str, list]:
    """Return {column: one value a completion} under TRL's names, and ours.

    TRL's: step, prompt, completion, one column a reward function, what they gave to `log_extra`, advantage. Ours:
    thinking, finish_reason, outcome, reason, and `reward_total`, the weighted sum. A reward or an extra that is called
    like a column before it stands under "rewards/<name>" or "extras/<name>".
    """
    table = {"step": [step] * len(records)}
    for name in ("prompt", "completion", "thinking", "finish_reason", "outcome", "reason", "advantage"):
        table[name] = [record.get(name) for record in records]
    table["reward_total"] = [finite_or_none(record.get("reward")) for record in records]
    for name in reward_names:
        column = f"rewards/{name}" if name in table else name
        table[column] = [finite_or_none(record["rewards"].get(name)) for record in records]
    for name in _extra_names(records):
        column = f"extras/{name}" if name in table else name
        table[column] = [record.get(name) for record in records]
    return table


def _extra_names(records: list[dict]) -> list[str]:
    """Return what the reward functions gave to `log_extra`, in the order in which it first appears."""
    names = []
    for record in records:
        names += [name for name in record if name not in RECORD_NAMES and name not in names]
    return names


def read_completions(output_dir: str | Path, step: int) -> list[dict]:
    """Return the completions of a step that `RunLog` wrote, one dict a completion.

    Raises UserError for a step that is not there or cannot be read.
    """
    files = {}
    for path in _completion_files(output_dir):
        files[_step_of(path)] = path
    if step not in files:
        there = f"there are {min(files)} to {max(files)}" if files else "there are none"
        raise UserError(f"{output_dir} has no completions of step {step}: {there}.")
    path = files[step]
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    except ImportError as error:
        raise UserError(f"{path} cannot be read without pyarrow: pip install pyarrow.") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): look at another step.") from error


def _completion_files(output_dir: str | Path) -> list[Path]:
    found = (Path(output_dir) / COMPLETIONS).glob("completions_*")
    return sorted(path for path in found if re.fullmatch(r"completions_\d+\.(parquet|jsonl)", path.name))


def _step_of(path: Path) -> int:
    """The step whose completions a file holds."""
    return int(path.stem.rpartition("_")[2])


def _lines_up_to(last_step: int, text: str) -> str:
    """Return the beginning of a train.log, up to the first line of a later step or one that was cut short."""
    kept = []
    for line in text.splitlines(keepends=True):
        match = LINE.match(line)
        if not line.endswith("\n") or (match and int(match[1]) > last_step):
            break
        kept.append(line)
    return "".join(kept)


def _one_line(text: str) -> str:
    """Return a text that a terminal may show: reasons come from programs that nobody trusts."""
    shown = text[:LONGEST_SENTENCE]
    return "".join(character if character.isprintable() else "\ufffd" for character in shown)


def _has_pyarrow() -> bool:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        print("pyarrow is not installed, so completions are written as JSON lines: pip install pyarrow for parquet.")
        return False
    return True


def _parquet(table: dict[str, list]) -> bytes:
    """Return the table as a parquet file; a column whose values share no type holds them as JSON texts."""
    import pyarrow
    import pyarrow.parquet

    arrays = {name: _arrow_array(values) for name, values in table.items()}
    file = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), file)
    return file.getvalue()


def _arrow_array(values: list):
    import pyarrow

    if all(value is None or isinstance(value, float) for value in values):
        return pyarrow.array(values, pyarrow.float64())
    if all(value is None or isinstance(value, str) for value in values):
        return pyarrow.array([_encodable(value) for value in values], pyarrow.string())
    try:
        return pyarrow.array(values)
    except (ValueError, TypeError, OverflowError):
        return pyarrow.array([json.dumps(value) for value in values], pyarrow.string())


def _encodable(text: str | None) -> str | None:
    """Return a text that UTF-8 can hold: a model may write half a character."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _json_lines(table: dict[str, list]) -> str:
    """Return one strict JSON object a completion, each in a line."""
    rows = [json_row(dict(zip(table, values))) for values in zip(*table.values(), strict=True)]
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _summary_writer(folder: Path, purge_step: int):
    """Return a writer of TensorBoard's files that takes the place of what is there from `purge_step` on.

    None where the package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=purge_step)


def _add_to_curves(writer, logs: dict) -> None:
    """Add the numbers of a step and the histogram of its advantages, and send them to the disk."""
    step = logs["step"]
    for name, value in logs.items():
        number = finite_or_none(value)
        if number is not None and name != "step":
            writer.add_scalar(name, number, step)
    if logs.get("advantages/histogram"):
        _add_histogram(writer, "advantages/histogram", step, **logs["advantages/histogram"])
    writer.flush()


def _add_histogram(writer, name: str, step: int, edges: list[float], counts: list[int]) -> None:
    """Add counts in bins; TensorBoard's sums are taken as if each value lay in the middle of its bin."""
    middles = [(low + high) / 2 for low, high in zip(edges, edges[1:])]
    weighted = list(zip(middles, counts, strict=True))
    writer.add_histogram_raw(
        name,
        min=edges[0],
        max=edges[-1],
        num=sum(counts),
        sum=sum(middle * count for middle, count in weighted),
        sum_squares=sum(middle * middle * count for middle, count in weighted),
        bucket_limits=edges[1:],
        bucket_counts=counts,
        global_step=step,
    )
