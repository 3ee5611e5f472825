"""Steps to be put in order under rules, which few orders satisfy."""

import json
import random
from functools import cache
from itertools import permutations

from helpers.rewards.puzzles.order import PAIR_RELATIONS, SINGLE_RELATIONS
from helpers.tasks.reasoning.puzzle import Drawn
from helpers.tasks.wording import Wordings

#: Chores that can be done in any order, so that the rules alone decide.
CHORES = (
    "bake bread", "call Sam", "clean the desk", "feed the cat", "fix the lamp", "mow the lawn", "paint the door",
    "pay the rent", "read the mail", "sweep the floor", "wash the car", "water the plants",
)  # fmt: skip
LETTERS = "ABCDEFG"
#: meaning -> how many steps a puzzle may have.
SIZES = {"planning": (4, 5), "planning_more": (6, 7)}
MOST_ORDERS = 4  # that satisfy the rules of one puzzle; there are at least two
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
#: A relation and the numbers of one or two steps.
Rule = tuple[str, tuple[int, ...]]


def draw_planning(rng: random.Random, meaning: str) -> Drawn:
    """Draw steps and rules that two to four orders satisfy."""
    count = rng.choice(SIZES[meaning])
    chores = rng.sample(CHORES, count)
    while True:
        goal = list(range(count))
        rng.shuffle(goal)
        rules, orders = _draw_rules(rng, meaning, tuple(goal))
        if len(orders) <= MOST_ORDERS:
            break
    rng.shuffle(rules)
    said = [rng.choice(SENTENCES[relation]).format(*_letters(numbers)) for relation, numbers in rules]
    steps = dict(zip(LETTERS, chores))
    listed = ", ".join(f"{letter}: {chore}" for letter, chore in steps.items())
    entries = [_entry(rule) for rule in rules]
    answer = sorted(range(count), key=rng.choice(orders).__getitem__)
    return Drawn(
        parts={"steps": listed, "rules": ", ".join(said[:-1]) + f" and {said[-1]}"},
        columns={"steps": json.dumps(steps), "rules": json.dumps(entries)},
        answer=", ".join(_letters(answer)),
        key=f"planning {count} {sorted(rules)}",
    )


def _draw_rules(rng: random.Random, meaning: str, goal: Places) -> tuple[list[Rule], list[Places]]:
    """Draw rules that the order `goal` satisfies until few orders do; return the rules and these orders."""
    count = len(goal)
    pairs = list(permutations(range(count), 2))
    # Steps that are near each other come first: rules on them are rarely implied by others.
    distance = {pair: abs(goal[pair[0]] - goal[pair[1]]) + SCATTER * rng.random() for pair in pairs}
    known = [("before", pair) for pair in sorted(pairs, key=distance.__getitem__)]
    rules = []
    orders = _all_orders(count)
    if meaning == "planning_more":
        new = [(relation, pair) for relation in ("directly before", "not next to") for pair in pairs]
        new += [(relation, (step,)) for relation in SINGLE_RELATIONS for step in range(count)]
        rng.shuffle(new)
        rules, orders = _add_rules(new, goal, rules, orders, rng.choice(NEW_RULES))
    return _add_rules(known, goal, rules, orders, len(known))


def _add_rules(
    candidates: list[Rule], goal: Places, rules: list[Rule], orders: list[Places], most: int
) -> tuple[list[Rule], list[Places]]:
    """Add up to `most` candidates that `goal` satisfies and that rule an order out, while many orders are left."""
    added = []
    for rule in candidates:
        if len(added) == most or len(orders) <= MOST_ORDERS:
            break
        if not _satisfying(rule, [goal]):
            continue
        left = _satisfying(rule, orders)
        if 2 <= len(left) < len(orders):
            added.append(rule)
            orders = left
    return rules + added, orders


@cache
def _all_orders(count: int) -> list[Places]:
    return list(permutations(range(count)))


def _satisfying(rule: Rule, orders: list[Places]) -> list[Places]:
    """Return those of the orders that satisfy a rule."""
    relation, numbers = rule
    if len(numbers) == 1:
        (step,) = numbers
        holds = SINGLE_RELATIONS[relation]
        return [places for places in orders if holds(places[step], len(places))]
    first, second = numbers
    holds = PAIR_RELATIONS[relation]
    return [places for places in orders if holds(places[first], places[second], len(places))]


def _letters(numbers):
    return [LETTERS[number] for number in numbers]


def _entry(rule: Rule) -> list[str]:
    relation, numbers = rule
    first, *others = _letters(numbers)
    return [first, relation, *others]
