"""The grammar of answers to knights and knaves."""

import json

import pytest

from helpers.gallery.reasoning.puzzles.knights import KnightsAndKnaves, knights_and_knaves

SOLUTION = json.dumps({"Ann": "knight", "Ben": "knave", "Cleo": "knight"})
PUZZLE = KnightsAndKnaves.from_columns(SOLUTION)
RIGHT = [
    "Ann: knight, Ben: knave, Cleo: knight",
    "Cleo: knight, Ann: knight, Ben: knave",
    "Ben: knave,Ann: knight,Cleo: knight",
    "Ann:knight,Ben:knave,Cleo:knight",
    "Ann : knight , Ben : knave , Cleo : knight",
    "Ann: knight; Ben: knave; Cleo: knight",
    "Ann: knight\nBen: knave\nCleo: knight",
    "\nAnn: knight\r\nBen: knave\r\nCleo: knight\n",
    "Ann: Knight, Ben: KNAVE, Cleo: kNiGhT",
    "Ann is a knight, Ben is a knave, Cleo is a knight",
    "Ann is a knight; Ben: knave\nCleo is a Knight",
    "Ann  is  a  knight, Ben:\tknave, Cleo: knight",
    "  Ann: knight, Ben: knave, Cleo: knight  ",
    r"\text{Ann: knight, Ben: knave, Cleo: knight}",
    r"\text{Ann: knight}, \text{Ben: knave}, \text{Cleo: knight}",
    r"\text{Ann}: \text{knight}, \text{Ben}: \text{knave}, \text{Cleo}: \text{knight}",
    r"\mathrm{Ann: knight, Ben: knave, Cleo: knight}",
    r"Ann:\ knight,\ Ben:\ knave,\ Cleo:\ knight",
    r"Ann: knight,\, Ben: knave,\; Cleo: knight",
    "ann: knight, Ben: knave, Cleo: knight",
    "Ann = knight, Ben = knave, Cleo = knight",
    "Ann - knight, Ben - knave, Cleo - knight",
    "Ann: knight and Ben: knave and Cleo: knight",
    "Ann: knight, Ben: knave, Cleo: knight.",
    "Ann: knight, Ben: knave, Cleo: knight,",
    ", Ann: knight, Ben: knave, Cleo: knight",
    "Ann: knight,, Ben: knave, Cleo: knight",
    "Ann: knight\n\nBen: knave\nCleo: knight",
    "Ann: a knight, Ben: a knave, Cleo: a knight",
    "Ann is knight, Ben is knave, Cleo is knight",
    r"\textbf{Ann: knight, Ben: knave, Cleo: knight}",
    r"Ann: knight \\ Ben: knave \\ Cleo: knight",
    "Ann knight, Ben knave, Cleo knight",
    "Ann: knight Ben: knave Cleo: knight",
    "Ann: knights, Ben: knave, Cleo: knight",
    "[Ann: knight, Ben: knave, Cleo: knight]",
    r"\text{\text{Ann: knight}, Ben: knave, Cleo: knight}",
    "Ann\uff1a knight, Ben: knave, Cleo: knight",
    "Ann: knight\uff0c Ben: knave\uff0c Cleo: knight",
    '{"Ann": "knight", "Ben": "knave", "Cleo": "knight"}',
]
WRONG = [
    "Ann: knave, Ben: knight, Cleo: knave",
    "Ann: knight, Ben: knight, Cleo: knight",
    "Ann: knave, Ben: knave, Cleo: knave",
    "Ann: knight, Ben: knave",
    "Ann: knight",
    "Ann: knight, Cleo: knight",
    "Ann: knight, Ben: knave, Cleo: knight, Ann: knight",
    "Ann: knight, Ben: knave, Cleo: knight, Ben: knight",
    "Ann: knight, Ann: knave, Ben: knave, Ben: knight, Cleo: knight, Cleo: knave",
    "Ann: knight, Ben: knave, Ben: knave",
]
UNREADABLE = [
    "Knaves: none; Ann: knight, Ben: knave, Cleo: knight",
    "",
    " ",
    ",",
    "knight, knave, knight",
    "Ann, Cleo",
    "Ann: knight or knave, Ben: knave, Cleo: knight",
    "Ann: knight/knave, Ben: knave, Cleo: knight",
    "Ann: not knight, Ben: knave, Cleo: knight",
    "Ann is not a knight, Ben is a knave, Cleo is a knight",
    "Ann isa knight, Ben is a knave, Cleo is a knight",
    "Ann:: knight, Ben: knave, Cleo: knight",
    ": knight, Ben: knave, Cleo: knight",
    "Ann: , Ben: knave, Cleo: knight",
    "Ann: K, Ben: N, Cleo: K",
    "Ann: truth-teller, Ben: liar, Cleo: truth-teller",
    "Ann: \u212anight, Ben: knave, Cleo: knight",  # a Kelvin sign
    "Ann: kn\u0131ght, Ben: knave, Cleo: knight",  # an i without a dot
    "Ann: \uff4bnight, Ben: knave, Cleo: knight",
    "Ann: knight, Ben: knave, Cleo: knight\x00",
    "{'Ann': 'knight', 'Ben': 'knave', 'Cleo': 'knight'}",
    "Everyone is a knight but Ben",
    "Ann: knight, Ben: knave, Cleo: knight, Dan: knave",
    "Ann: knight, Ben: knave, Dan: knight",
    "Ann is: knight, Ben: knave, Cleo: knight",
    "Ann is not a knight: knight, Ben: knave, Cleo: knight",
    "Not Ann: knight, Ben: knave, Cleo: knight",
    "Either Ann is a knight, Ben is a knave, Cleo is a knight",
    "\u0410nn: knight, Ben: knave, Cleo: knight",  # the first letter is Cyrillic
    "A\u200bnn: knight, Ben: knave, Cleo: knight",
    "\u202eAnn: knight, Ben: knave, Cleo: knight",
    "Ann\x00: knight, Ben: knave, Cleo: knight",
    "\ud800Ann: knight, Ben: knave, Cleo: knight",
]


def paid(content):
    (value,) = knights_and_knaves([None], [rf"So \boxed{{{content}}}"], solution=[SOLUTION])
    return value


@pytest.mark.parametrize("content", RIGHT)
def test_right_answers_are_paid(content):
    assert paid(content) == 1.0


@pytest.mark.parametrize("content", WRONG)
def test_wrong_answers_are_read_and_not_paid(content):
    """Naming a person twice, once as each kind, would be right for every puzzle."""
    assert PUZZLE.read(content) is not None
    assert paid(content) == 0.0


@pytest.mark.parametrize("content", UNREADABLE)
def test_what_is_not_of_the_stated_form_is_not_paid(content):
    assert PUZZLE.read(content) is None
    assert paid(content) == 0.0


def test_a_long_box_is_no_answer():
    right = RIGHT[0]
    assert paid(right + " " * (1000 - len(right))) == 1.0
    assert paid(right + " " * (1001 - len(right))) == 0.0


def test_names_of_several_words():
    """A name may hold blanks and "is a", and no answer may be read in two ways."""
    solution = json.dumps({"Mr. Gray": "knave", "Jos\u00e9": "knight", "She who is a knight": "knave"})
    right = r"\boxed{Mr. Gray is a knave, Jos" + "\u00e9" + ": knight, She who is a knight is a knave}"
    wrong = right.replace("Gray is a knave", "Gray is a knight")
    assert knights_and_knaves([None] * 2, [right, wrong], solution=[solution] * 2) == [1.0, 0.0]
