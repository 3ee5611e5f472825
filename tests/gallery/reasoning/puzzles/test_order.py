"""The grammar of answers to orders of steps, and the relations."""

import json
from itertools import permutations

import pytest

from helpers.gallery.reasoning.puzzles.order import PAIR_RELATIONS, SINGLE_RELATIONS, StepOrder, step_order

STEPS = json.dumps({"A": "wash the car", "B": "feed the cat", "C": "call Sam"})
#: Right are C, A, B and C, B, A.
RULES = json.dumps([["C", "before", "A"], ["C", "before", "B"]])
RIGHT = [
    "C, A, B",
    "C, B, A",
    "C,A,B",
    " C , A , B ",
    "C,\nA,\nB",
    "C -> A -> B",
    "C->A->B",
    "C \u2192 A \u2192 B",
    r"C \to A \to B",
    r"C\to A\to B",
    r"C \rightarrow A \rightarrow B",
    r"C, A \to B",
    "c, a, b",
    "call Sam, wash the car, feed the cat",
    "Call sam, Wash the car, feed the cat",
    r"\text{C, A, B}",
    r"\text{C} \to \text{A} \to \text{B}",
    r"C,\ A,\ B",
    r"C,\, A,\; B",
    "C; A; B",
    "C > A > B",
    "C => A => B",
    "C, A, B.",
    "C, A, B,",
    "(C, A, B)",
    "[C, A, B]",
    "C: call Sam, A: wash the car, B: feed the cat",
    "C,\u00a0A,\u00a0B",
    r"\textbf{C}, A, B",
    "CAB",
    "C A B",
    "C A, B",
    "C - A - B",
    "C, A and B",
    "1. C, 2. A, 3. B",
    "CALL SAM, wash the car, feed the cat",
    "call  Sam, A, B",
    "call sam -> A -> feed the cat",
    r"\text{call Sam} \to \mathrm{A} \to \text{feed the cat}",
    "C\uff0c A\uff0c B",
]
WRONG = [
    "A, B, C",
    "A, C, B",
    "B, A, C",
    "B, C, A",
    "C, A",
    "C",
    "C, A, B, A",
    "C, C, A, B",
    "C, A, B, C",
    "C, A, A",
    "wash the car, feed the cat, call Sam",
    "C, A, B, C, A, B",
    r"C \to A \to",
    "C, A, *",
    "C, call Sam, A, B",
]
UNREADABLE = [
    "",
    " ",
    ",",
    "C < A < B",
    "C - > A",
    "C, A, B or C, B, A",
    "C, A, B, D",
    "C, A, X",
    "3, 1, 2",
    "['C', 'A', 'B']",
    r"C \top A \top B",
    "C,A,B\x00",
    "\u202eC, A, B",
    "C\ud800, A, B",
    "C\u200b, A, B",
    "\uff23, A, B",
    "\u0421, A, B",  # a Cyrillic letter
    ", C, A, B",
    "C,, A, B",
    r"\to C \to A \to B",
]


def paid(content, steps=STEPS, rules=RULES):
    (value,) = step_order([None], [rf"So \boxed{{{content}}}"], steps=[steps], rules=[rules])
    return value


@pytest.mark.parametrize("content", RIGHT)
def test_right_orders_are_paid(content):
    assert paid(content) == 1.0


@pytest.mark.parametrize("content", WRONG)
def test_wrong_orders_are_read_and_not_paid(content):
    """A step left out or named twice would satisfy most rules."""
    assert StepOrder.from_columns(STEPS, RULES).read(content) is not None
    assert paid(content) == 0.0


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_is_not_of_the_stated_form_is_not_paid(content):
    assert StepOrder.from_columns(STEPS, RULES).read(content) is None
    assert paid(content) == 0.0


@pytest.mark.parametrize("name", ["don\u2019t forget the milk", 'play "Go"', "use `ls`", "pay $5", "take A\u2013B"])
def test_a_step_may_be_copied_letter_for_letter(name):
    steps = json.dumps({"A": name, "B": "call Sam"})
    assert paid(f"call Sam, {name}", steps, json.dumps([["B", "before", "A"]])) == 1.0


def test_a_long_box_is_no_answer():
    assert paid("C, A," + " " * (1000 - len("C, A,B")) + "B") == 1.0
    assert paid("C, A," + " " * (1001 - len("C, A,B")) + "B") == 0.0


#: relation -> the orders of A, B, C in which it holds of A and B, or of A alone.
EXPECTED = {
    "before": ["ABC", "ACB", "CAB"],
    "directly before": ["ABC", "CAB"],
    "not next to": ["ACB", "BCA"],
    "not first": ["BAC", "BCA", "CAB", "CBA"],
    "not last": ["ABC", "ACB", "BAC", "CAB"],
}


@pytest.mark.parametrize("relation", EXPECTED)
def test_what_each_relation_means(relation):
    """The prompts state them in words, so each must mean what its words say."""
    constraint = ["A", relation] + (["B"] if relation in PAIR_RELATIONS else [])
    orders = ["".join(order) for order in permutations("ABC")]
    right = [order for order in orders if paid(", ".join(order), rules=json.dumps([constraint])) == 1.0]
    assert right == EXPECTED[relation]
    assert set(EXPECTED) == {*PAIR_RELATIONS, *SINGLE_RELATIONS}
