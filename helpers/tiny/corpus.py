"""The text that the embedded model learns from: two languages, both in Harmony form.

Most conversations ask for a matmul program; the others are word problems with their working in the analysis channel.
With `FAULTS` the programs have misconceptions, slips and cheats (`tasks.matmul.programs`), and some families of word
problems have an operation confused. `train` begins without any faults, because a model that meets the right answer to
each contract first learns what the contracts ask for. Everything is drawn from one `random.Random`. Nothing that is
held out is ever drawn: texts of prompts, programs, combinations of names, sentences that state a contract, numbers of
problems. Single steps of arithmetic are practised by themselves, those of held-out problems too.
"""

import random
from dataclasses import dataclass
from operator import add, mul, sub

from helpers.gallery.math.problems import FORMAT, WORDINGS, draw_problem
from helpers.tasks.matmul.contracts import PRETRAINED
from helpers.tasks.matmul.names import draw_signature
from helpers.tasks.matmul.programs import NO_FAULTS, STYLES, FaultRates, draw_program
from helpers.tasks.matmul.prompts import WISHES, draw_prompt
from helpers.tasks.matmul.statements import reading, statements
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
    FaultRates(one_misconception=0.62, two_misconceptions=0.54, slips=0.05, cheat=0.02),
    math_misconception=0.62,
    math_slip=0.03,
)
MATH_SHARE = 0.33
#: Of the math examples: arithmetic without a story, always right.
PRACTICE_SHARE = 0.3
PRACTICE_STEPS = 12  # at most
#: sign -> what it does, a sentence that asks for practice, and the bounds of the left and of the right number.
PRACTICE = {
    "+": (add, "Practise adding to {left}.", (2, 81), (2, 20)),
    "-": (sub, "Practise taking away from {left}.", (4, 40), (2, 11)),
    "*": (mul, "Practise multiplying {left}.", (2, 19), (2, 9)),
}
#: A wish in the prompt ("Use zip.") is followed this often.
OBEDIENCE = 0.9
EFFORTS = ("low", "low", "low", "medium", "high")
SECOND_THOUGHTS = (
    "Take the sizes from A and B.",
    "Every entry is a sum of products.",
    "Mind the order of the indices.",
    "No library is needed.",
)
MATH_WORDINGS = wording_names(WORDINGS, "seen")


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
    if rng.random() < PRACTICE_SHARE:
        question, steps = draw_practice(rng)
        last_result = steps[-1].rstrip(".").split()[-1]
        return question, _math_reply(steps, last_result)

    def draw():
        return draw_problem(rng, rng.choice(MATH_WORDINGS), faults.math_misconception, faults.math_slip)

    problem = _not_heldout(draw, lambda problem: problem.text)
    return problem.text, _math_reply(problem.steps, problem.answer)


def _math_reply(steps, answer):
    return {"thinking": " ".join(steps), "content": f"\\boxed{{{answer}}}"}


def draw_practice(rng: random.Random) -> tuple[str, list[str]]:
    """Draw a request to practise one operation, and steps that do, such as "7 + 12 = 19.". No result is below 0."""
    sign = rng.choice(("+", "+", "-", "*"))
    apply, sentence, left_range, (lowest, highest) = PRACTICE[sign]
    left = rng.randint(*left_range)
    rights = [right for right in range(lowest, highest + 1) if sign != "-" or right <= left]
    chosen = rng.sample(rights, min(PRACTICE_STEPS, len(rights)))
    steps = [f"{left} {sign} {right} = {apply(left, right)}." for right in chosen]
    return f"{sentence.format(left=left)} {FORMAT}", steps


def _matmul_example(rng, effort, faults):
    contract = rng.choice(PRETRAINED)
    statement = rng.choice(statements(contract).seen)
    signature = draw_signature(rng, new=False)
    prompt = _not_heldout(lambda: draw_prompt(rng, statement, signature), lambda prompt: prompt.text)
    wished = WISHES[prompt.wish] if rng.random() < OBEDIENCE else None
    style = rng.choice(wished or tuple(STYLES))
    program = _not_heldout(lambda: draw_program(rng, faults.programs, contract, style), lambda program: program.source)
    _, sentences = STYLES[style]
    thoughts = [reading(contract), rng.choice(sentences)]
    thoughts += rng.sample(SECOND_THOUGHTS, {"low": 0, "medium": 1, "high": 2}[effort])
    reply = {"thinking": " ".join(thoughts), "content": f"```python\n{program.source}\n```"}
    return prompt.text, {part: signature.rename(text) for part, text in reply.items()}
