"""The same adapter in training and afterwards: does what was loaded answer as what was trained did?

A pipeline once reported 67 % in training and found 60 % afterwards: each time the rollout took over the adapter, it had
added it to weights that held it already. Totals hide such a fault, so the answers are compared one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.evaluation.statistics import Difference, difference
from helpers.grpo.batch import Group
from helpers.grpo.config import GRPOConfig
from helpers.grpo.loop import draw
from helpers.grpo.metrics_file import EVALUATIONS, read_metrics
from helpers.rollout.engine import RolloutEngine
from helpers.runtime import random_seed
from helpers.tasks import Task
from helpers.tasks.grading import grade_answers

#: Rounding may change a few answers where weights have 16 bits: the first token that differs changes all behind it.
MOST_CHANGED = 0.1


def draw_evaluation(
    engine: RolloutEngine,
    prompts: Sequence,
    args: GRPOConfig,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Draw the completions of an evaluation: the same ones for the same weights, whenever it is called."""
    num_generations = args.num_generations_eval or args.num_generations
    seed = random_seed("evaluation", args.seed)
    if on_progress is not None:
        on_progress(0, len(prompts) * num_generations)
    return draw(engine, prompts, num_generations, seed, args, on_progress)


@dataclass(frozen=True)
class Posthoc:
    """An evaluation in training beside the same evaluation of the adapter that was loaded.

    step: of the adapter. found: the answers in training as the base, and those of now as the tuned model.
    """

    step: int
    found: Difference

    @property
    def changed(self) -> int:
        """Answers that are right in one of the two alone."""
        return self.found.gained + self.found.lost

    @property
    def agrees(self) -> bool:
        """Tell whether no more has changed than rounding may change, and not in one direction."""
        has_direction = self.found.is_gain or self.found.is_loss
        return not has_direction and self.changed <= MOST_CHANGED * self.found.items

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {**asdict(self), "agrees": self.agrees}

    def __str__(self) -> str:
        found = self.found
        counts = (
            f"step {self.step} in training and loaded again: {found.base_rate:.1%} and {found.tuned_rate:.1%} of "
            f"{found.items} answers are right"
        )
        if not self.changed:
            return f"{counts}, the same ones"
        moves = f"{found.gained} right only now and {found.lost} only then, p = {found.p_value:.2g}"
        if self.agrees:
            return f"{counts}; {moves}, which rounding can do"
        return (
            f"{counts}; {moves}: the adapter that was loaded is not the one that was trained, so find out why before "
            "you believe either number"
        )


def compare_with_training(
    engine: RolloutEngine, task: Task, eval_dataset, args: GRPOConfig, output_dir: str | Path, step: int
) -> Posthoc | None:
    """Draw the evaluation of `step` again, grade it, and compare each answer with what it was in training.

    engine: of the adapter that was loaded. eval_dataset, args, output_dir: those of the training. Returns None where
    the training has no graded evaluation of this step, or one of other prompts or of another number of them.
    """
    rows = [row for row in read_metrics(Path(output_dir) / EVALUATIONS) if row["step"] == step]
    then = rows[-1].get("correct") if rows else None
    num_generations = args.num_generations_eval or args.num_generations
    if not then or len(then) != num_generations * len(eval_dataset):
        return None
    groups = draw_evaluation(engine, eval_dataset["prompt"], args)
    completions = [completion for group in groups for completion in group.completions]
    asked = [row for row in eval_dataset for _ in range(num_generations)]
    grades = grade_answers(task, asked, completions)
    now = [grade.correct for grade in grades]
    clusters = [row["id"] for row in asked]
    return Posthoc(step, difference([bool(one) for one in then], now, clusters))
