"""One session of a run: what it reads back when it starts, and what it writes while it goes on.

The trainer tells it what happened. It keeps the records and the checkpoints, raises the alarms, and knows when an
evaluation is due. How a gradient is computed it does not know.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from peft import PeftModel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from helpers.grpo.alarms import Alarm, check_alarms, last_good_step
from helpers.grpo.backup import (
    UnreadableBackup,
    back_up,
    join_records,
    known_checkpoints,
    lacks_copy,
    reading_backup,
    report_unreadable,
    restore_backup,
)
from helpers.grpo.batch import Generation, Group
from helpers.grpo.best import monitor
from helpers.grpo.checkpoint import (
    LoadedCheckpoint,
    load_best,
    load_checkpoint,
    load_draws,
    load_newest,
    load_rollout,
    numerics_notes,
    record_best,
    save_checkpoint,
    save_draws,
    save_rollout,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.folders import checkpoint_folders, newest_until, step_of
from helpers.grpo.logs import RunLog, read_completions
from helpers.grpo.metrics_file import EVALUATIONS, METRICS, MetricsFile, records_of_run
from helpers.runtime import UserError, first_line, interrupts_held


class Session:
    """What a run keeps in `args.output_dir`, from its start or a resumption to its end.

    settings: what a resumed run must share with the one that wrote a checkpoint, as plain values. numerics: what it may
    have otherwise and is told of, as `numerics_notes` has it.

    Attributes:
        step: the last optimizer step whose records are written.
        generation: the one that later steps go on with; None where the next step draws.
        history: the metrics of the whole run, one row a step, earlier sessions included.
        evaluations: likewise, one row an evaluation.
    """

    def __init__(
        self,
        args: GRPOConfig,
        model: PeftModel,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        settings: dict,
        reward_names: Sequence[str],
        numerics: dict | None = None,
    ):
        self.args = args
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.settings = settings
        self.numerics = numerics or {}
        self.reward_names = reward_names
        self.step = 0
        self.generation: Generation | None = None
        self.history: list[dict] = []
        self.evaluations: list[dict] = []
        self._drawn: list[Group] | None = None
        self._saved_step: int | None = None

    # Start

    def resume(self, where: bool | str | Path | None) -> bool:
        """Restore adapter, optimizer and schedule from a checkpoint; return False where a new run begins.

        where: a folder, True for the newest checkpoint of the run, None or False to begin anew. Raises UserError where
        a run would mix with another.
        """
        args = self.args
        where = None if where is False else where
        folders = known_checkpoints(args.output_dir, args.backup_dir)
        if folders and where is None:
            raise UserError(
                f"{folders[-1].parent} holds checkpoints of an earlier run: go on with "
                "train(resume_from_checkpoint=True), or use another output_dir (backup_dir)."
            )
        if not folders and where in (None, True):
            return False
        loaded = self._load_newest(folders) if where is True else self._load_chosen(Path(where), folders)
        self.step = loaded.step
        self._saved_step = self.step
        for note in numerics_notes(loaded.numerics, self.numerics, loaded.folder.name):
            print(note)
        self._join_records(folders)
        rows = records_of_run(Path(args.output_dir) / METRICS).rows
        self.history = [row for row in rows if row["step"] <= self.step]
        self._finish_save()
        self.generation = loaded.generation or load_rollout(args.output_dir, self.step, self.settings)
        if self.generation is None:
            self._drawn = load_draws(args.output_dir, self.step, self.settings)
        return True

    def _load_newest(self, folders: Sequence[Path]) -> LoadedCheckpoint:
        """Load the newest sound checkpoint, and restore it where it is a copy. folders: all of the run, oldest first.

        Where the copy cannot be read any more, the run's own checkpoints are left.
        """
        output_dir = self.args.output_dir
        restored = (self.model, self.optimizer, self.scheduler, self.settings)
        loaded = load_newest(folders, output_dir, *restored)
        if loaded.folder.parent == Path(output_dir):
            return loaded
        try:
            restore_backup(loaded.folder, output_dir)
        except UnreadableBackup as error:
            originals = checkpoint_folders(output_dir)
            if not originals:
                raise
            report_unreadable(error)
            return load_newest(originals, output_dir, *restored)
        return loaded

    def _load_chosen(self, folder: Path, known: Sequence[Path]) -> LoadedCheckpoint:
        """Load the checkpoint that the user named. known: all of the run, oldest first."""
        try:
            is_there = folder.is_dir()
        except OSError as error:
            raise UserError(
                f"{folder} cannot be read ({first_line(error)}): mount its disk again, or resume from another folder."
            ) from error
        if not is_there:
            raise UserError(f"There is no checkpoint folder {folder} to resume from.")
        loaded = load_checkpoint(folder, self.model, self.optimizer, self.scheduler, self.settings)
        newer = [other for other in known if step_of(other) > loaded.step]
        if newer:
            raise UserError(
                f"{newer[-1]} is newer than what you resume from: move it away first, or two runs would mix."
            )
        if self._is_in_backup(folder):
            restore_backup(folder, self.args.output_dir)
        return loaded

    def _is_in_backup(self, folder: Path) -> bool:
        """Tell whether a checkpoint is a copy in `backup_dir`."""
        backup_dir = self.args.backup_dir
        if not backup_dir:
            return False
        with reading_backup(backup_dir):
            return folder.resolve().parent == Path(backup_dir).resolve()

    def _join_records(self, folders: Sequence[Path]) -> None:
        """Add the rows of metrics that only the backup has. folders: all checkpoints of the run.

        A backup without a checkpoint, or that could not be read, has none.
        """
        args = self.args
        parents = {folder.parent for folder in folders}
        if not args.backup_dir or Path(args.backup_dir) not in parents:
            return
        # where this fails, the next copy says so, and `open_files` says which rows are missing
        with suppress(UnreadableBackup), reading_backup(args.backup_dir):
            join_records(args.output_dir, args.backup_dir, self.step)

    def _finish_save(self) -> None:
        """Do what is left of saving the checkpoint that a run resumes from, where it died in the middle of it."""
        args = self.args
        good_step = last_good_step(self.history)
        record_best(args.output_dir, args.save_total_limit, good_step)
        folder = Path(args.output_dir) / f"checkpoint-{self.step}"
        if args.backup_dir and folder.is_dir() and lacks_copy(folder, args.backup_dir):
            back_up(folder, args.backup_dir, args.save_total_limit, good_step)

    def open_files(self) -> None:
        """Open the run's records, without lines of steps that are to be done again."""
        folder = Path(self.args.output_dir)
        self._metrics_file = MetricsFile(folder / METRICS, self.step)
        self._evaluations_file = MetricsFile(folder / EVALUATIONS, self.step)
        self.history = list(self._metrics_file.rows)
        self.evaluations = list(self._evaluations_file.rows)
        self._report_lost_rows()
        self._log = RunLog(folder, self.reward_names, self.args.max_steps, self.step)

    def _report_lost_rows(self) -> None:
        """Print how many steps have no row of metrics, unless damaged lines have been named already."""
        lost = self.step - len(self.history)
        if lost > 0 and not self._metrics_file.was_damaged:
            print(
                f"{self._metrics_file.path} has no row for {lost} of the {self.step} steps that are done: the run goes "
                "on, and its curves have a gap there."
            )

    def read_last_completions(self) -> list[dict]:
        """Return plain records of the last step's completions, from the log; [] where it has none."""
        steps = self.args.steps_on_a_generation
        first_step_on_it = self.step - (self.step - 1) % steps
        try:
            rows = read_completions(self.args.output_dir, first_step_on_it)
        except UserError:
            return []
        return [self._record_of(row) for row in rows]

    def _record_of(self, row: dict) -> dict:
        """Return a row of the log of completions as the record that it was written from."""
        rewards = {}
        for name in self.reward_names:
            value = row.get(f"rewards/{name}", row.get(name))
            rewards[name] = math.nan if value is None else value
        return {**row, "rewards": rewards, "reward": row["reward_total"]}

    # While it goes on

    def drawn_groups(self) -> list[Group] | None:
        """Return the groups that were drawn for the next step and kept before they were judged, None without them."""
        return self._drawn

    def note_draws(self, groups: Sequence[Group]) -> None:
        """Keep what was drawn for the next step before it is judged: a reward that fails must not cost it."""
        save_draws(self.args.output_dir, self.step, self.settings, groups)
        self._drawn = list(groups)

    def note_generation(self, generation: Generation) -> None:
        """Keep what the next step learns from, so that a run that is broken off in it need not draw again."""
        save_rollout(self.args.output_dir, self.step, self.settings, generation)
        self._drawn = None

    def note_step(self, metrics: dict, generation: Generation, records: list[dict]) -> list[Alarm]:
        """Write down a step, and return what is wrong with it. The sentences of the alarms join its "monitor/signs".

        metrics: a row of metrics.jsonl. generation: what the step learnt from. records: of its completions, where the
        step was the first on it.
        """
        generations = self.args.no_signal_steps
        # one generation that teaches nothing is one, however many steps it serves
        no_signal_steps = None if generations is None else generations * self.args.steps_on_a_generation
        alarms = check_alarms([*self.history, metrics], no_signal_steps)
        metrics["monitor/signs"] = [alarm.sentence for alarm in alarms]
        metrics["monitor/alarms"] = {alarm.name: alarm.size for alarm in alarms}
        self._metrics_file.append(metrics)
        self.history.append(metrics)
        self._log.write(metrics, records)
        self.step = metrics["step"]
        is_used_up = self.step % self.args.steps_on_a_generation == 0
        self.generation = None if is_used_up else generation
        return alarms

    @property
    def is_evaluation_due(self) -> bool:
        """True if an evaluation follows the last step and is not done."""
        args = self.args
        every = args.eval_steps or args.save_steps
        is_due = args.eval_strategy == "steps" and self.step > 0 and self.step % every == 0
        is_done = bool(self.evaluations) and self.evaluations[-1]["step"] == self.step
        return is_due and not is_done

    def note_evaluation(self, metrics: dict, record: dict) -> None:
        """Write down an evaluation of the weights after the last step. record: as `posthoc.evaluation_record`."""
        row = {"step": self.step, **metrics, **record}
        self._evaluations_file.append(row)
        self.evaluations.append(row)

    def stop_for(self, alarms: Sequence[Alarm]) -> None:
        """Raise UserError with the first alarm that says that going on is of no use; nothing is lost."""
        for alarm in alarms:
            if alarm.stops:
                good = self.last_good_checkpoint() if alarm.destroys else None
                self.save_last_step()
                raise UserError(
                    f"{alarm.sentence} Training stopped after step {self.step}, which is saved.{_way_back(alarm, good)}"
                )

    # Checkpoints

    def save(self) -> None:
        """Write a checkpoint of the last step, and copy it to `backup_dir`."""
        args = self.args
        good_step = last_good_step(self.history)
        state = {
            "step": self.step,
            "settings": self.settings,
            "numerics": self.numerics,
            "generation": self.generation and self.generation.to_dict(),
            "monitor": self._monitor(),
        }
        folder = save_checkpoint(
            args.output_dir, state, self.model, self.optimizer, self.scheduler, args.save_total_limit, good_step
        )
        if args.backup_dir:
            back_up(folder, args.backup_dir, args.save_total_limit, good_step)
        self._saved_step = self.step

    def _monitor(self) -> dict | None:
        """Return what a checkpoint of the last step keeps of `metric_for_best_model`.

        That is `best.monitor` of the step's metrics and, where the weights were evaluated, of the evaluation's.
        """
        args = self.args
        if args.metric_for_best_model is None:
            return None
        logs = {}
        for row in (*self.history, *self.evaluations):
            if row["step"] == self.step:
                logs |= row
        earlier = [folder for folder in checkpoint_folders(args.output_dir) if step_of(folder) < self.step]
        return monitor(args, logs, self.step, earlier)

    def last_good_checkpoint(self) -> Path | None:
        """Return the newest checkpoint from before the weights came into doubt.

        None where nothing is in doubt, and where no such checkpoint is left.
        """
        good_step = last_good_step(self.history)
        if good_step is None:
            return None
        return newest_until(good_step, checkpoint_folders(self.args.output_dir))

    @property
    def has_unsaved_step(self) -> bool:
        """True if there is no checkpoint of the last step."""
        return self._saved_step != self.step

    def save_last_step(self) -> None:
        """Write a checkpoint of the last step, unless there is one."""
        with interrupts_held():
            if self.has_unsaved_step:
                self.save()

    # End

    @contextmanager
    def saved_at_the_end(self, weights_are_of_the_step: Callable[[], bool]) -> Iterator[None]:
        """Save the last step when the block ends, is interrupted or fails, and close the log.

        weights_are_of_the_step: asked where the block fails: whether the weights are those after the last step. Where
        they are not, or saving fails, too, the checkpoints before it stand.
        """
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            self.save_last_step()
            raise
        except Exception:
            if weights_are_of_the_step():
                with suppress(Exception):  # what broke the run off is what the user has to know
                    self.save_last_step()
            raise
        finally:
            with suppress(UserError):  # a full disk: what filled it has said so
                self._log.close()
        self.save_last_step()

    def load_best(self) -> dict | None:
        """Put the best checkpoint's adapter into the model, where the run asks for it; return how it was chosen."""
        if not self.args.load_best_model_at_end:
            return None
        chosen = load_best(self.args.output_dir, self.model)
        if chosen is None:
            metric = self.args.metric_for_best_model
            print(f"No checkpoint has a value of {metric}, so the adapter is that of the last step.")
        return chosen


def _way_back(alarm: Alarm, good: Path | None) -> str:
    """Return a sentence on the weights that are left where an alarm says that the last ones are in doubt, else ""."""
    if not alarm.destroys:
        return ""
    if good is None:
        return " No checkpoint from before is left: a larger save_total_limit keeps more of them."
    return f" The last good checkpoint is {good}: load_model(adapter={str(good)!r}) loads its adapter."
