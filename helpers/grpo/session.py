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

from helpers.grpo.alarms import Alarm, check_alarms
from helpers.grpo.batch import Generation
from helpers.grpo.checkpoint import (
    EVALUATIONS,
    METRICS,
    MetricsFile,
    back_up,
    known_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    load_rollout,
    monitor_of,
    read_metrics,
    record_best,
    restore_backup,
    save_checkpoint,
    save_rollout,
    step_of,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.logs import RunLog, read_completions
from helpers.model.gpu_memory import is_out_of_memory
from helpers.runtime import UserError, interrupts_held


class Session:
    """What a run keeps in `args.output_dir`, from its start or a resumption to its end.

    settings: what a resumed run must share with the one that wrote a checkpoint, as plain values.

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
    ):
        self.args = args
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.settings = settings
        self.reward_names = reward_names
        self.step = 0
        self.generation: Generation | None = None
        self.history: list[dict] = []
        self.evaluations: list[dict] = []
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
        if where is True:
            restored = (self.model, self.optimizer, self.scheduler, self.settings)
            self.step, generation = load_newest(folders, args.output_dir, *restored)
        else:
            self.step, generation = self._load_chosen(Path(where), folders)
        self._saved_step = self.step
        self._finish_save()
        self.generation = generation or load_rollout(args.output_dir, self.step, self.settings)
        return True

    def _load_chosen(self, folder: Path, known: Sequence[Path]) -> tuple[int, Generation | None]:
        """Load the checkpoint that the user named. known: all of the run, oldest first."""
        if not folder.is_dir():
            raise UserError(f"There is no checkpoint folder {folder} to resume from.")
        step, generation = load_checkpoint(folder, self.model, self.optimizer, self.scheduler, self.settings)
        newer = [other for other in known if step_of(other) > step]
        if newer:
            raise UserError(
                f"{newer[-1]} is newer than what you resume from: move it away first, or two runs would mix."
            )
        backup_dir = self.args.backup_dir
        if backup_dir and folder.resolve().parent == Path(backup_dir).resolve():
            restore_backup(folder, self.args.output_dir)
        return step, generation

    def _finish_save(self) -> None:
        """Do what is left of saving the checkpoint that a run resumes from, where it died in the middle of it."""
        args = self.args
        record_best(args.output_dir, args.save_total_limit)
        folder = Path(args.output_dir) / f"checkpoint-{self.step}"
        if args.backup_dir and folder.is_dir() and not (Path(args.backup_dir) / folder.name).exists():
            back_up(folder, args.backup_dir, args.save_total_limit)

    def open_files(self) -> None:
        """Open the run's records, without lines of steps that are to be done again."""
        folder = Path(self.args.output_dir)
        self._metrics_file = MetricsFile(folder / METRICS, self.step)
        self._evaluations_file = MetricsFile(folder / EVALUATIONS, self.step)
        self.history = read_metrics(self._metrics_file.path)
        self.evaluations = read_metrics(self._evaluations_file.path)
        self._log = RunLog(folder, self.reward_names, self.args.max_steps, self.step)

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

    def note_generation(self, generation: Generation) -> None:
        """Keep what the next step learns from, so that a run that is broken off in it need not draw again."""
        save_rollout(self.args.output_dir, self.step, self.settings, generation)

    def note_step(self, metrics: dict, generation: Generation, records: list[dict]) -> list[Alarm]:
        """Write down a step, and return what is wrong with it. The sentences of the alarms join its "monitor/signs".

        metrics: a row of metrics.jsonl. generation: what the step learnt from. records: of its completions, where the
        step was the first on it.
        """
        generations = self.args.no_signal_steps
        # one generation that teaches nothing is one, however many steps it serves
        no_signal_steps = None if generations is None else generations * self.args.steps_on_a_generation
        alarms = check_alarms([*self.history, metrics], no_signal_steps)
        metrics["monitor/signs"] = [*metrics["monitor/signs"], *(alarm.sentence for alarm in alarms)]
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

    def note_evaluation(self, metrics: dict) -> None:
        """Write down an evaluation of the weights after the last step."""
        row = {"step": self.step, **metrics}
        self._evaluations_file.append(row)
        self.evaluations.append(row)

    def stop_for(self, alarms: Sequence[Alarm]) -> None:
        """Raise UserError with the first alarm that says that going on is of no use; nothing is lost."""
        for alarm in alarms:
            if alarm.stops:
                self.save_last_step()
                raise UserError(f"{alarm.sentence} Training stopped after step {self.step}, which is saved.")

    # Checkpoints

    def save(self) -> None:
        """Write a checkpoint of the last step, and copy it to `backup_dir`."""
        args = self.args
        state = {
            "step": self.step,
            "settings": self.settings,
            "generation": self.generation and self.generation.to_dict(),
            "monitor": monitor_of(args, self.step),
        }
        folder = save_checkpoint(
            args.output_dir, state, self.model, self.optimizer, self.scheduler, args.save_total_limit
        )
        if args.backup_dir:
            back_up(folder, args.backup_dir, args.save_total_limit)
        self._saved_step = self.step

    def save_if_due(self) -> None:
        """Write a checkpoint after every `save_steps` steps."""
        if self.step % self.args.save_steps == 0:
            with interrupts_held():
                self.save()

    def save_last_step(self) -> None:
        """Write a checkpoint of the last step, unless there is one."""
        with interrupts_held():
            if self._saved_step != self.step:
                self.save()

    # End

    @contextmanager
    def saved_at_the_end(self, weights_are_of_the_step: Callable[[], bool]) -> Iterator[None]:
        """Save the last step when the block ends, is interrupted or runs out of memory, and close the log.

        weights_are_of_the_step: asked where memory ran out: whether the weights are those after the last step. Where
        another error ends the block, the checkpoints before it stand.
        """
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            self.save_last_step()
            raise
        except Exception as error:
            if is_out_of_memory(error) and weights_are_of_the_step():
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
