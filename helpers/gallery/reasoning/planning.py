"""Steps to be put in order under rules, which few orders satisfy."""

import json
import random
from functools import cache
from itertools import permutations

from helpers.gallery.reasoning.kind import GeneratedPuzzle, PuzzleKind
from helpers.gallery.reasoning.puzzles.order import SINGLE_RELATIONS, Rule, StepOrder, holds
from helpers.tasks.wording import Wordings

#: Chores that can be done in any order, so that the rules alone decide.
CHORES = (
    "bake bread", "call Sam", "clean the desk", "feed the cat", "fix the lamp", "mow the lawn", "paint the door",
    "pay the rent", "read the mail", "sweep the floor", "wash the car", "water the plants",
)  # fmt: skip
LETTERS = "ABCDEFG"
#: variant -> how many steps a puzzle may have.
SIZES = {"planning": (4, 5), "planning_more": (6, 7)}
MOST_ORDERS = 4  # that satisfy the rules of one puzzle; there are at least two
MOST_RELETTERED = 5  # steps of a puzzle whose letters are exchanged in all ways, to know it again
SCATTER = 2.0  # how far, in places, rules may be from the steps that are next to each other in the drawn order
NEW_RULES = (2, 3)  # rules of a probe puzzle of the kinds that no other split has
#: relation -> ways to say it. "before" is the only one outside the probe.
SENTENCES = {
    "before": ("{0} comes before {1}", "{1} comes after {0}"),
    "directly before": ("{0} comes directly before {1}", "{1} comes directly after {0}"),
    "not next to": ("{0} is not next to {1}",),
    "not first": ("{0} is not first",),
    "not last": ("{0} is not last",),
}
#: The example has letters that are in no puzzle.
FORMAT = r"Put the letters of all steps in a right order, separated by commas, in \boxed{}, such as \boxed{X, Y, Z}."
WORDINGS = Wordings(
    seen=(
        "Put these steps in order: {steps}. Rules: {rules}.",
        "There is this to do: {steps}. It must be so that {rules}. Which order works?",
        "Plan the day. The steps are {steps}. The rules are: {rules}.",
        "Order the steps {steps}, and see to it that {rules}.",
    ),
    unseen=(
        "Find an order for {steps} in which {rules}.",
        "Somebody wants to do all of this: {steps}. Conditions: {rules}. What is a possible order?",
        "In what order can one do the following? {steps}. What matters is that {rules}.",
        "A plan has the steps {steps}. It is valid only if {rules}. Give a valid plan.",
        "Rules: {rules}. Arrange the steps by these rules: {steps}.",
    ),
)

#: The place of each step, by its number.
Places = tuple[int, ...]


def generate_planning(rng: random.Random, variant: str) -> GeneratedPuzzle:
    """Draw steps and rules that two to four orders satisfy."""
    count = rng.choice(SIZES[variant])
    chores = rng.sample(CHORES, count)
    while True:
        goal = list(range(count))
        rng.shuffle(goal)
        rules, orders = _draw_rules(rng, variant, tuple(goal))
        if len(orders) <= MOST_ORDERS:
            break
    rng.shuffle(rules)
    *sentences, last_sentence = [_say(rng, rule) for rule in rules]
    steps = dict(zip(LETTERS, chores))
    listed = ", ".join(f"{letter}: {chore}" for letter, chore in steps.items())
    in_letters = [_in_letters(rule) for rule in rules]
    places = rng.choice(orders)
    answer = sorted(range(count), key=places.__getitem__)
    return GeneratedPuzzle(
        parts={"steps": listed, "rules": f"{', '.join(sentences)} and {last_sentence}"},
        columns={"steps": json.dumps(steps), "rules": json.dumps(in_letters)},
        answer=", ".join(LETTERS[step] for step in answer),
        key=_key(count, rules),
    )


def _draw_rules(rng: random.Random, variant: str, goal: Places) -> tuple[list[Rule], list[Places]]:
    """Draw rules that the order `goal` satisfies until few orders do; return the rules and these orders."""
    count = len(goal)
    rules = []
    orders = _all_orders(count)
    near_first = _pairs_near_first(rng, goal)
    if variant == "planning_more":
        candidates = _new_rules(count)
        rng.shuffle(candidates)
        rules, orders = _choose_rules(candidates, goal, orders, rng.choice(NEW_RULES))
    candidates = [(first, "before", second) for first, second in near_first]
    known_rules, orders = _choose_rules(candidates, goal, orders, len(candidates))
    return rules + known_rules, orders


def _pairs_near_first(rng: random.Random, goal: Places) -> list[tuple[int, int]]:
    """Return all pairs of steps; those that are near each other in `goal` come first, with some scatter.

    Rules on such steps are rarely implied by others.
    """
    distance = {}
    for first, second in _pairs(len(goal)):
        distance[first, second] = abs(goal[first] - goal[second]) + SCATTER * rng.random()
    return sorted(distance, key=distance.__getitem__)


def _new_rules(count: int) -> list[Rule]:
    """Return all rules with the relations that only the probe has."""
    rules = []
    for relation in ("directly before", "not next to"):
        rules += [(first, relation, second) for first, second in _pairs(count)]
    for relation in SINGLE_RELATIONS:
        rules += [(step, relation) for step in range(count)]
    return rules


def _pairs(count: int) -> list[tuple[int, int]]:
    return list(permutations(range(count), 2))


def _choose_rules(
    candidates: list[Rule], goal: Places, orders: list[Places], most: int
) -> tuple[list[Rule], list[Places]]:
    """Choose up to `most` rules, and return them and the orders that satisfy them.

    Each is a rule that `goal` satisfies and that rules an order out; there are no more once few orders are left.
    """
    rules = []
    for rule in candidates:
        if len(rules) == most or len(orders) <= MOST_ORDERS:
            break
        if not holds(rule, goal):
            continue
        left = [places for places in orders if holds(rule, places)]
        if 2 <= len(left) < len(orders):
            rules.append(rule)
            orders = left
    return rules, orders


@cache
def _all_orders(count: int) -> list[Places]:
    return list(permutations(range(count)))


def _in_letters(rule: Rule) -> Rule:
    step, relation, *others = rule
    return (LETTERS[step], relation, *(LETTERS[other] for other in others))


def _say(rng: random.Random, rule: Rule) -> str:
    step, relation, *others = _in_letters(rule)
    sentence = rng.choice(SENTENCES[relation])
    return sentence.format(step, *others)


def _key(count: int, rules: list[Rule]) -> str:
    """Return a text that is the same for the same rules in any order and for any letters of the steps.

    It decides which split has a puzzle. Those of the probe, which are larger, are in no other split anyway.
    """
    orders = permutations(range(count)) if count <= MOST_RELETTERED else [range(count)]
    relettered = []
    for order in orders:
        entries = []
        for step, relation, *others in rules:
            entries.append((relation, order[step], *(order[other] for other in others)))
        relettered.append(sorted(entries))
    return f"planning {count} {min(relettered)}"


PLANNING = PuzzleKind(
    variant="planning",
    probe_variant="planning_more",
    columns=("steps", "rules"),
    from_columns=StepOrder.from_columns,
    generate=generate_planning,
    how_to_answer=FORMAT,
    wordings=WORDINGS,
)
