"""The text that the embedded model learns from: two languages, both in Harmony form.

Most conversations ask for a matmul program; the others are word problems with their working in the analysis channel.
With `FAULTS` the programs have misconceptions, slips and cheats (`tasks.matmul.programs`), and some families of word
problems have an operation confused. `train` begins without any faults, because a model that meets the right answer to
each contract first learns what the contracts ask for. Everything is drawn from one `random.Random`, and nothing that
`is_heldout` is ever drawn.
"""

import random
from dataclasses import dataclass

from helpers.gallery.math.problems import WORDINGS, draw_problem
from helpers.tasks.matmul.programs import NO_FAULTS, STYLES, FaultRates, draw_program
from helpers.tasks.matmul.prompts import CONTRACT_WORDINGS, WISHES, draw_prompt
from helpers.tasks.split import is_heldout
from helpers.tasks.wording import wording_names


@dataclass(frozen=True)
class CorpusFaults:
    """How often the answers of the corpus are wrong."""

    programs: FaultRates = NO_FAULTS
    math_misconception: float = 0.0
    math_slip: float = 0.0


#: In the later part of the training. Chosen so that the model is wrong when it answers greedily and right once in some
#: six answers at temperature 1.
FAULTS = CorpusFaults(
    FaultRates(one_misconception=0.64, two_misconceptions=0.58, slips=0.08, cheat=0.02),
    math_misconception=0.65,
    math_slip=0.03,
)
MATH_SHARE = 0.3
#: A wish in the prompt ("Use zip.") is followed this often.
OBEDIENCE = 0.9
EFFORTS = ("low", "low", "low", "medium", "high")
SECOND_THOUGHTS = (
    "Take the sizes from A and B.",
    "Every entry is a sum of products.",
    "Mind the order of the indices.",
    "No library is needed.",
)
MATMUL_WORDINGS = wording_names(CONTRACT_WORDINGS, "pretrain")
MATH_WORDINGS = wording_names(WORDINGS, "pretrain")


def _not_heldout(draw, text_of):
    """Draw until the text is not held out."""
    while True:
        drawn = draw()
        if not is_heldout(text_of(drawn)):
            return drawn


def draw_conversation(rng: random.Random, faults: CorpusFaults = FAULTS) -> tuple[list[dict], str]:
    """Draw one training example: `(messages, reasoning effort)`, the last message being the assistant's."""
    effort = rng.choice(EFFORTS)
    if rng.random() < MATH_SHARE:
        question, reply = _math_example(rng, faults)
    else:
        question, reply = _matmul_example(rng, effort, faults)
    return [{"role": "user", "content": question}, {"role": "assistant", **reply}], effort


def _math_example(rng, faults):
    def draw():
        return draw_problem(rng, rng.choice(MATH_WORDINGS), faults.math_misconception, faults.math_slip)

    problem = _not_heldout(draw, lambda problem: problem.text)
    return problem.text, {"thinking": " ".join(problem.steps), "content": f"\\boxed{{{problem.answer}}}"}


def _matmul_example(rng, effort, faults):
    prompt = _not_heldout(lambda: draw_prompt(rng, rng.choice(MATMUL_WORDINGS)), lambda prompt: prompt.text)
    wished = WISHES[prompt.wish] if rng.random() < OBEDIENCE else None
    style = rng.choice(wished or tuple(STYLES))
    program = _not_heldout(
        lambda: draw_program(rng, faults.programs, prompt.contract, style), lambda program: program.source
    )
    _, sentences = STYLES[style]
    thoughts = [rng.choice(sentences)]
    thoughts += rng.sample(SECOND_THOUGHTS, {"low": 0, "medium": 1, "high": 2}[effort])
    return prompt.text, {"thinking": " ".join(thoughts), "content": f"```python\n{program.source}\n```"}
