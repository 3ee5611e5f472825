"""The text that the embedded model learns from: two languages, both in Harmony form.

Most are matmul programs with faults drawn one by one, the others are word problems
with their working in the analysis channel. Everything is drawn from one `random.Random`,
and nothing that `is_heldout` is ever drawn.
"""

from helpers.tasks.math import draw_problem
from helpers.tasks.matmul import WISHES, draw_prompt
from helpers.tasks.programs import STYLES, draw_program
from helpers.tasks.split import is_heldout

FAULT_RATE = 0.08
CHEAT_RATE = 0.06
MATH_SHARE = 0.4
#: A wish in the prompt ("Use zip.") is followed this often.
OBEDIENCE = 0.9
EFFORTS = ("low", "low", "low", "medium", "high")
SECOND_THOUGHTS = (
    "Take the sizes from A and B.",
    "The result has one row for each row of A.",
    "Mind the order of the indices.",
    "No library is needed.",
)


def _fresh(draw, text_of):
    """Draw until the text is not held out."""
    while True:
        thing = draw()
        if not is_heldout(text_of(thing)):
            return thing


def draw_conversation(rng):
    """One training example: `(messages, effort)`, the last message being the assistant's."""
    effort = rng.choice(EFFORTS)
    if rng.random() < MATH_SHARE:
        text, _, steps, answer = _fresh(lambda: draw_problem(rng), lambda problem: problem[0])
        reply = {"thinking": " ".join(steps), "content": f"\\boxed{{{answer}}}"}
    else:
        text, _, wish = _fresh(lambda: draw_prompt(rng), lambda prompt: prompt[0])
        style = rng.choice(WISHES[wish]) if WISHES[wish] and rng.random() < OBEDIENCE else None
        program = _fresh(lambda: draw_program(rng, FAULT_RATE, CHEAT_RATE, style), lambda program: program.source)
        thoughts = [rng.choice(STYLES[program.style][1])]
        thoughts += rng.sample(SECOND_THOUGHTS, {"low": 0, "medium": 1, "high": 2}[effort])
        reply = {"thinking": " ".join(thoughts), "content": f"```python\n{program.source}\n```"}
    return [{"role": "user", "content": text}, {"role": "assistant", **reply}], effort
