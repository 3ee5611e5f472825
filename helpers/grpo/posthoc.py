"""The same adapter in training and afterwards: is what was loaded what was trained?

A pipeline once reported 67 % in training and found 60 % afterwards: each time the rollout took over the adapter, it had
added it to weights that held it already. Totals hide such a fault where a model is mostly right or mostly wrong. So an
evaluation in training keeps a few texts, token by token, with the log-probabilities that they were drawn with. Whoever
loads the adapter computes them again, which depends on no luck, and asks the same prompts again.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import nn

from helpers.evaluation.statistics import Difference, difference
from helpers.grpo.batch import Generation, Group
from helpers.grpo.config import GRPOConfig
from helpers.grpo.loop import draw, score_completions
from helpers.grpo.metrics_file import EVALUATIONS, read_metrics
from helpers.rollout.completion import Completion
from helpers.rollout.engine import RolloutEngine
from helpers.runtime import random_seed
from helpers.tasks import Task
from helpers.tasks.grading import grade_answers

#: The most that a token's log-probability moves by rounding on average, in nats, by the bits of the arithmetic.
ROUNDING = {32: 1e-3, 16: 0.05}
#: Texts that an evaluation keeps, and tokens of each.
TEXTS = 4
TOKENS = 256
#: Settings by which an evaluation draws.
OF_A_DRAW = ("seed", "temperature", "max_completion_length")


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


def evaluation_record(eval_dataset, generation: Generation, args: GRPOConfig) -> dict:
    """Return what `compare_with_training` needs to know of an evaluation, as plain values.

    asked: the prompts by their ids, and how they were asked. correct: for each completion 1 or 0, those of a prompt
    next to each other. texts: a few completions. {} where nothing was graded or prompts have no ids.
    """
    if not generation.grades or "id" not in eval_dataset.column_names:
        return {}
    asked = {name: getattr(args, name) for name in OF_A_DRAW}
    asked["num_generations"] = args.num_generations_eval or args.num_generations
    asked["ids"] = list(eval_dataset["id"])
    texts = []
    for group in generation.groups[:TEXTS]:
        completion = group.completions[0]
        texts.append(
            {
                "prompt_ids": list(completion.prompt_ids),
                "token_ids": list(completion.token_ids[:TOKENS]),
                "logprobs": list(completion.logprobs[:TOKENS]),
            }
        )
    return {"asked": asked, "correct": [int(grade.correct) for grade in generation.grades], "texts": texts}


@dataclass(frozen=True)
class Posthoc:
    """An evaluation in training beside what the adapter that was loaded makes of it.

    step: of the adapter. tokens: of the texts that were kept. moved: how far the log-probabilities of these tokens are
    from those of then, in nats, on average. limit: the most that rounding explains. answers: of the same prompts, then
    as the base and now as the tuned model; None where the task's data no longer have these prompts.
    """

    step: int
    tokens: int
    moved: float
    limit: float
    answers: Difference | None

    @property
    def agrees(self) -> bool:
        """Tell whether the texts are as likely as they were, and the answers no better and no worse.

        Single answers may change: where weights have 16 bits, one token that rounding decides changes all behind it.
        """
        has_direction = self.answers is not None and (self.answers.is_gain or self.answers.is_loss)
        return self.moved <= self.limit and not has_direction

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {**asdict(self), "agrees": self.agrees}

    def __str__(self) -> str:
        said = (
            f"step {self.step} in training and loaded again: the log-probabilities of {self.tokens} tokens written "
            f"then are {self.moved:.1e} nats apart, {self._describe_answers()}"
        )
        if self.agrees:
            return said
        return (
            f"{said}: the adapter that was loaded is not the one that was trained, so find out why before you believe "
            "either number"
        )

    def _describe_answers(self) -> str:
        found = self.answers
        if found is None:
            return "and its prompts are no longer in the data"
        rates = f"and {found.base_rate:.1%} and {found.tuned_rate:.1%} of {found.items} answers are right"
        if not found.gained and not found.lost:
            return f"{rates}, the same ones"
        return f"{rates}, {found.gained} only now and {found.lost} only then (p = {found.p_value:.2g})"


def compare_with_training(
    model: nn.Module, engine: RolloutEngine, task: Task, args: GRPOConfig, output_dir: str | Path, step: int
) -> Posthoc | None:
    """Compare an adapter that was loaded with what the training wrote down of it.

    model: with the adapter. engine: draws from it. args: of the run; what an evaluation drew by is taken from its
    record. output_dir: of the training. Returns None where the training left no record of an evaluation of this step.
    """
    rows = [row for row in read_metrics(Path(output_dir) / EVALUATIONS) if row["step"] == step and "asked" in row]
    if not rows:
        return None
    record = rows[-1]
    asked = record["asked"]
    args = replace(args, num_generations_eval=asked["num_generations"], **{name: asked[name] for name in OF_A_DRAW})
    texts = [Completion(**text, text="", thinking="", finish_reason="length") for text in record["texts"]]
    moved = _distance(model, texts, args)
    bits = 8 * model.dtype.itemsize
    tokens = sum(len(text.token_ids) for text in texts)
    return Posthoc(step, tokens, moved, ROUNDING[bits], _ask_again(engine, task, args, asked["ids"], record["correct"]))


def _distance(model: nn.Module, texts: Sequence[Completion], args: GRPOConfig) -> float:
    """Return how far the log-probabilities of texts under the model are from those they came with, on average."""
    was_training = model.training
    scored = score_completions(model, texts, args)
    model.train(was_training)
    moves = [
        abs(now - then)
        for text, values in zip(texts, scored, strict=True)
        for now, then in zip(values, text.logprobs, strict=True)
    ]
    return sum(moves) / len(moves)


def _ask_again(
    engine: RolloutEngine, task: Task, args: GRPOConfig, ids: Sequence[str], correct: Sequence[int]
) -> Difference | None:
    """Answer the prompts of an evaluation again. Returns None where the task does not have them."""
    dataset = task.dataset("monitor", len(ids), seed=args.seed)
    if list(dataset["id"]) != list(ids):
        return None
    groups = draw_evaluation(engine, dataset["prompt"], args)
    completions = [completion for group in groups for completion in group.completions]
    asked = [row for row, group in zip(dataset, groups, strict=True) for _ in group.completions]
    grades = grade_answers(task, asked, completions)
    then = [bool(one) for one in correct]
    now = [grade.correct for grade in grades]
    return difference(then, now, [row["id"] for row in asked])
