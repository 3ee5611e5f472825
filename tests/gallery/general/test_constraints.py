"""Every kind of constraint: cases on both sides of its definition, a second reading, malformed columns, long texts."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.gallery.general.constraints import (
    CONSTRAINT_KINDS,
    instruction_constraints,
    judge_constraints,
    read_constraints,
)
from helpers.gallery.general.reading import AnswerText
from helpers.rewards.registry import reward_spec
from helpers.runtime import UserError
from tests.gallery.general.checkers import CHECKERS, holds
from tests.timing import assert_linear

#: kind -> (values, texts that satisfy it, texts that do not)
CASES = {
    "different_words": ({"count": 3}, ["ox hen cat", "ox ox hen Hen cat"], ["ox hen Ox Hen", "ox hen 7", "a b c", ""]),
    "characters_at_most": ({"count": 4}, ["abcd", "  abcd \n", "a\r\nbc"], ["abcde", "a b c"]),
    "plain_text": ({}, ["a b\n~\t!", ""], ["caf\u00e9", "a\u200bb", "a\0b", "\u202ea", "a\u2014b", "\ud800"]),
    "words_exactly": (
        {"count": 2},
        ["one two", "don't well-to-do", "7 two", "- one - two -", "2.5 1,420", "3rd 1/2", "caf\u00e9 \u6771\u4eac",
         "vitamin C", "one <!-- more --> two", "one [two](three)", "o**n**e two", "o\u200bne two", "one ~~no~~ two"],
        ["one", "one two three", "it's well-to do", "one a b c", "one,two,three,four,five",
         "one abcdefghijklmnopqr"],
    ),
    "words_at_least": ({"count": 2}, ["one two", "one 2", "one two three"], ["one", "one-two", "one b c d", ""]),
    "words_at_most": ({"count": 2}, ["one two", "one", ""], ["one two three"]),
    "lines_exactly": ({"count": 2},
                     ["ox\nhen", "ox\n\n \nhen\n", "ox\r\nhen", "ox\n---\nhen", "```\nox\nhen\n```", "7\n8"],
                     ["ox", "ox\nhen\ncat", "ox\u2028hen", "ox\rhen", "a\nb", "-\n-", "ox<br>hen"]),
    "bullets_exactly": ({"count": 2},
                        ["- ox\n- hen", "Two:\n  - ox\n  - hen", "- ox\n-hen\n- cat", "\u2013 ox\n\u2014 7"],
                        ["- ox", "-ox\n-hen", "- \n- hen", "- ox\n- -", "- ox\n- h"]),
    "numbered_list": (
        {"count": 2},
        ["1. ox\n2. hen", " 1.  ox\n\n 2. hen"],
        ["1. ox\n3. hen", "1. ox", "1) ox\n2) hen", "1. ox\n2. ", "1.ox\n2. hen", "List:\n1. ox\n2. hen",
         "1. ox\n2. hen\nend", "01. ox\n2. hen"],
    ),
    "sentences_exactly": (
        {"count": 2},
        ["One. Two.", "One! Two", 'He said "Go." And went.', "Is it? (Yes!)", "3.5 is a number. Yes.",
         "Well... so?! Yes 7.", "Mr. Smith went. Home.", "one. two.",
         'She said "Oh!" and left. Home.', "So... on. Home.",
         "1. One.\n2. Two."],
        ["One.", "One.Two.", "A. B. C.", "1. One. 2. Two. 3. Three.",
         "Mr. Smith went home.", "He went... and... slept.", 'so "go!" she said.',
         "About 2.5 ft. long.", "...", ""],
    ),
    "paragraphs_exactly": ({"count": 2}, ["ox\nhen\n\ncat", "ox\n \n\nhen", "ox\r\n\r\nhen", "ox\n\n---\n\nhen"],
                           ["ox\nhen", "ox\n\nhen\n\ncat", "ox\n\n&nbsp;", ""]),
    "contains_words": (
        {"words": ["river", "bread"]},
        ["Bread, RIVER!", "the river's river and bread"],
        ["rivers bread", "river-bank bread", "river"],
    ),
    "word_at_least": ({"word": "go", "count": 2}, ["go Go", "go, go, go"], ["go", "go going", "go-go"]),
    "word_exactly": ({"word": "go", "count": 2}, ["go Go", "go going go"], ["go", "go go go"]),
    "avoids_word": ({"word": "the"}, ["then", "", "the-end"], ["The end", "to (the) end"]),
    "avoids_letter": ({"letter": "e"}, ["sun", ""], ["bee", "BEE", "7e"]),
    "begins_with": (
        {"words": "Last night"},
        ["last night, it", "- LAST night"],
        ["Last nights", "At last night", "Last", ""],
    ),
    "ends_with": (
        {"words": "good night"},
        ["So good night!", "good\nnight"],
        ["good nights", "good night all", "night", ""],
    ),
    "lower_case": ({}, ["abc 7", "\u00e9"], ["Abc", "7", "", "\u01c5"]),
    "upper_case": ({}, ["ABC 7", "\u00c9"], ["ABc", "7", ""]),
    "no_commas": ({}, ["a; b", ""], ["a, b"]),
    "lines_begin_with": ({"letter": "s"}, ["sun\nSea", "- sun\n1. sea"], ["sun\nmoon", "sun\n7", ""]),
    "acrostic": (
        {"word": "sun"},
        ["See\nus\n\nnow", "1. so\n2. up\n3. no"],
        ["See\nus", "See us now", "so\nup\nno\nno", "s\n7\nu\nn"],
    ),
    "line_words_at_most": ({"count": 2}, ["ox hen\ncat ape", "ox", ""],
                           ["ox hen cat", "ox\nhen cat ape", "ox,hen,cat,ape,bee"]),
    "word_letters_at_most": ({"count": 4}, ["four for", "don't", "ab-cd 12345"], ["fives", "ab-cde"]),
    "words_alphabetical": ({}, ["ape Bee bee cat", "ape", ""], ["bee ape", "ape Cat bee"]),
    "no_repeated_words": ({}, ["ox hen cat", ""], ["ox hen Ox"]),
    "quoted": ({}, ['"a b"', ' "a"\n', '""', "\u201ca b\u201d"], ['"a', 'a"', '"', '"a" "b"', "'a'", '"a".']),
    "json_object": (
        {"fields": {"name": "text", "age": "integer", "size": "number", "done": "boolean", "tags": "texts"}},
        [
            '{"name": "a", "age": 7, "size": 1.5, "done": true, "tags": ["x"]}',
            '\n{"tags": ["7"], "done": false, "size": -2, "age": 0, "name": "a[{[{\\"["}',
            '{"name": "a", "age": %s, "size": 1e999, "done": true, "tags": ["x"]}' % ("9" * 10_000),
            '```json\n{"name": "a", "age": 7, "size": 1, "done": true, "tags": ["x"]}\n```',
        ],
        [
            "{}",
            '{"name": "a", "age": 7, "size": 1.5, "done": true}',
            '{"name": "a", "age": 7, "size": 1.5, "done": true, "tags": [], "more": 1}',
            '{"name": "a", "age": 7, "age": 7, "size": 1.5, "done": true, "tags": []}',
            '{"name": 1, "age": 7, "size": 1.5, "done": true, "tags": []}',
            '{"name": "a", "age": 7.0, "size": 1.5, "done": true, "tags": []}',
            '{"name": "a", "age": true, "size": 1.5, "done": true, "tags": []}',
            '{"name": "a", "age": 7, "size": NaN, "done": true, "tags": []}',
            '{"name": "a", "age": 7, "size": true, "done": true, "tags": []}',
            '{"name": "a", "age": 7, "size": 1, "done": 1, "tags": []}',
            '{"name": "a", "age": 7, "size": 1, "done": null, "tags": []}',
            '{"name": "a", "age": 7, "size": 1, "done": true, "tags": [1]}',
            '{"name": "a", "age": 7, "size": 1, "done": true, "tags": "x"}',
            '{"name": "a", "age": 7, "size": 1, "done": true, "tags": ["x"]',
            '{"name": "a", "age": 7, "size": 1, "done": true, "tags": []}',
            '{"name": "", "age": 7, "size": 1, "done": true, "tags": ["x"]}',
            '{"name": "a", "age": 7, "size": 1, "done": true, "tags": ["x", "-"]}',
            '[{"name": "a", "age": 7, "size": 1, "done": true, "tags": []}]',
            "{'name': 'a', 'age': 7, 'size': 1, 'done': True, 'tags': []}",
            '"name"',
            "",
        ],
    ),
}  # fmt: skip


def column(kind, **values):
    return json.dumps([{"kind": kind, **values}])


def is_satisfied(kind, text, values):
    (constraint,) = read_constraints(column(kind, **values))
    return constraint.is_satisfied_by(AnswerText(text))


@pytest.mark.parametrize("kind", CONSTRAINT_KINDS)
def test_cases_on_both_sides(kind):
    values, satisfying, breaking = CASES[kind]
    for text in satisfying:
        assert is_satisfied(kind, text, values), text
        assert holds(kind, text, **values), text
    for text in breaking:
        assert not is_satisfied(kind, text, values), text
        assert not holds(kind, text, **values), text


def test_every_kind_is_documented_and_states_its_values():
    for name, kind in CONSTRAINT_KINDS.items():
        assert kind.check.__doc__ and kind.name == name
        values = CASES[name][0]
        (constraint,) = read_constraints(column(name, **values))
        for sentence in kind.wordings.all:
            stated = constraint.describe(sentence)
            for value in values.values():
                parts = [*value] if isinstance(value, (list, dict)) else [value]
                assert all(str(part) in stated for part in parts), stated
    assert len(CONSTRAINT_KINDS) >= 14
    fields = read_constraints(column("json_object", fields={"a": "text", "b": "integer", "c": "texts"}))[0]
    assert fields.describe("{fields}") == '"a" (a text), "b" (an integer) and "c" (a list of texts)'


WORD_PIECES = [
    "a",
    "b",
    "Sun",
    "sun",
    "river",
    "bread",
    "go",
    "the",
    "E",
    "e",
    "Last night",
    "good night",
    "don't",
    "x-y",
]
LAYOUT_PIECES = [
    "- ",
    "1. ",
    "2. ",
    "10",
    " ",
    " ",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\u2028",
    "\x0b",
    "\x1c",
    "\u00a0",
]
MARK_PIECES = [
    ".",
    "!",
    "?",
    "...",
    '"',
    "'",
    ")",
    "]",
    ",",
    "-",
    "\u2019",
    "`",
    "\\",
    "\u200b",
    "\0",
    "\ud800",
    "\u202e",
]
LETTER_PIECES = [
    "\u00e9",
    "e\u0301",
    "\u00df",
    "\u0130",
    "\u01c5",
    "\u2167",
    "\u00b2",
    "\u6771",
    "\u03a3",
    "\u17f3",
    "\u0345",
]
JSON_PIECES = ["{", "}", "[", "]", ":", '"name"', '"age": 7', '"name": "a"', "true", "\\u0041", "1e5", "NaN"]
PIECES = st.sampled_from(WORD_PIECES + LAYOUT_PIECES + MARK_PIECES + LETTER_PIECES + JSON_PIECES)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join), st.integers(1, 4))
def test_two_readings_agree_on_any_text(text, count):
    """Where they differ, one of them does not do what the definition says."""
    for kind, (values, _, _) in CASES.items():
        for changed in (values, {**values, "count": count} if "count" in values else values):
            expected = holds(kind, text, **changed)
            assert is_satisfied(kind, text, changed) == expected, kind


JSON_VALUES = st.sampled_from(
    ['"a"', "7", "-1.5", "true", "null", "[]", '["x", "y"]', "[1]", "{}", "[[[]]]", "1e999", "07"]
)
JSON_PAIRS = st.tuples(st.sampled_from(["name", "age", "tags", "more"]), JSON_VALUES)


@settings(max_examples=300, deadline=None)
@given(st.lists(JSON_PAIRS, max_size=4), st.sampled_from(["{%s}", "{%s", "[%s]", "{%s}x", "{%s,}"]))
def test_two_readings_agree_on_objects(pairs, frame):
    text = frame % ", ".join(f'"{key}": {value}' for key, value in pairs)
    fields = {"name": "text", "age": "integer", "tags": "texts"}
    assert is_satisfied("json_object", text, {"fields": fields}) == CHECKERS["json_object"](text, fields)


def test_what_is_paid():
    asked = json.dumps([{"kind": "lower_case"}, {"kind": "no_commas"}, {"kind": "different_words", "count": 2}])
    texts = ["one two", "One two", "One, two", "one one", "", "... 7", [{"role": "assistant", "content": "one two"}]]
    assert instruction_constraints([None] * 7, texts, [asked] * 7) == [1.0, 0.025, 0.0, 0.0, 0.0, 0.0, 1.0]
    cut_off = instruction_constraints([None], ["one two"], [asked], finish_reasons=["length"], other=["x"])
    assert cut_off == [0.0]
    assert judge_constraints("One, two", asked).broken == ("lower_case", "no_commas")
    assert judge_constraints("One one", asked).reason == "breaks different_words"


def test_only_json_is_read_as_json():
    """Backslash and n are two characters to a reader of prose, and a numeral is a word there."""
    assert not is_satisfied("lines_exactly", "{One cat\\nTwo dogs", {"count": 2})
    assert is_satisfied("words_exactly", "{ 12 34 56 alpha beta", {"count": 5})
    assert is_satisfied("words_exactly", '{"age": 12, "note": "one two"}', {"count": 4})


def test_what_a_browser_hides_and_what_it_shows():
    for shown in ("<p style='opacity: 0.9'>one two</p>", '<p title="the hidden cave">one two</p>', "one &#116;wo"):
        assert is_satisfied("words_exactly", shown, {"count": 2}), shown
    for hidden in ("one <p hidden>two</p>", "one <p style='opacity:0'>two</p>", "one two &#" + "1" * 5000 + ";"):
        assert is_satisfied("words_exactly", hidden, {"count": 2 if "&" in hidden else 1}), hidden


def test_an_answer_without_a_word_earns_nothing():
    """Many constraints forbid something: an empty answer would satisfy them all."""
    for text in ("", " \n", "...", "7", "\0"):
        assert judge_constraints(text, column("no_commas")).value == 0
    assert judge_constraints("a", column("no_commas")).value == 1


def test_the_reward_is_registered():
    spec = reward_spec("instruction_constraints")
    assert (spec.value_range, spec.needs, spec.pays_correctness) == ((0.0, 1.0), ("constraints",), True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "write JSON text"),
        ([{"kind": "no_commas"}], "write JSON text"),
        ("", "is not JSON text"),
        ("[" * 100_000, "is not JSON text|write a list of objects"),
        ("9" * 10_000, "is not JSON text|write a list of objects"),
        ("{}", "write a list of objects"),
        ("[]", "write a list of objects"),
        ('["no_commas"]', "write a list of objects"),
        ("[{}]", "There is no kind of constraint None"),
        ('[{"kind": ["no_commas"]}]', "There is no kind of constraint"),
        ('[{"kind": "no_coma"}]', "did you mean 'no_commas'"),
        ('[{"kind": "no_commas", "count": 1}]', "needs these values: none; it has: count"),
        ('[{"kind": "words_exactly"}]', "needs these values: count; it has: none"),
        ('[{"kind": "words_exactly", "count": "3"}]', "write a whole number"),
        ('[{"kind": "words_exactly", "count": true}]', "write a whole number"),
        ('[{"kind": "words_exactly", "count": 0}]', "write a whole number"),
        ('[{"kind": "words_exactly", "count": 1e3}]', "write a whole number"),
        ('[{"kind": "avoids_letter", "letter": "ee"}]', "write one letter"),
        ('[{"kind": "avoids_letter", "letter": "7"}]', "write one letter"),
        ('[{"kind": "avoids_word", "word": "two words"}]', "write one word"),
        ('[{"kind": "contains_words", "words": []}]', "write a list of words"),
        ('[{"kind": "contains_words", "words": "river"}]', "write a list of words"),
        ('[{"kind": "begins_with", "words": "..."}]', "write a text with a word"),
        ('[{"kind": "json_object", "fields": {"a": "string"}}]', "write an object of key: kind"),
        ('[{"kind": "json_object", "fields": {}}]', "write an object of key: kind"),
        ('[{"kind": "json_object", "fields": {"a": ["text"]}}]', "write an object of key: kind"),
    ],
)
def test_a_malformed_column_is_one_sentence(text, message):
    with pytest.raises(UserError, match=message) as error:
        instruction_constraints([None], ["a"], constraints=[text])
    assert len(str(error.value)) < 800 and "\n" not in str(error.value)


LONG = {
    "one word": "a",
    "words": "a b ",
    "lines": "a\n",
    "blank lines": "\n \n",
    "dots": ".",
    "dots and quotes": '."',
    "joiners": "-'",
    "brackets": "[",
    "objects": '{"a":',
    "closed lists": "[]",
    "double quotes": '"',
    "escaped quotes": '\\"',
    "backslashes": "\\",
    "digits": "9",
    "combining marks": "a\u0301\u0323",
    "NUL": "\0",
    "bidi": "\u202e\u2066",
    "surrogates": "\ud800",
    "comments": "<!--",
    "open tags": "<a ",
    "hidden tags": "<a hidden",
    "struck out": "~~ ",
    "stars": "*",
    "starred letters": "*a*",
    "fences": "\n```",
    "links": "[a](",
    "link definitions": "\n[a]:",
    "entities": "&nbsp;",
    "sentences": "a. ",
    "ends and blanks": ". ",
    "single letters": "b c ",
    "numerals": "1.",
    "long entities": "&#1111111",
    "styles": "<p style=",
}


@pytest.mark.parametrize("piece", LONG)
def test_the_time_is_linear(piece):
    """Every kind reads every text, without the limits of a task; quadratic time would take hours for a million
    characters."""
    asked = [{"kind": kind, **values} for kind, (values, _, _) in CASES.items() if not CONSTRAINT_KINDS[kind].is_guard]

    def judge(text):
        assert judge_constraints(text, json.dumps(asked)).value < 0.5

    for start in ("x", "{"):
        small, large = (start + LONG[piece] * (size // len(LONG[piece])) + "x" for size in (20_000, 200_000))
        assert_linear(judge, small, large, times=10)


@pytest.mark.slow
@pytest.mark.parametrize("piece", LONG)
def test_a_million_characters(piece):
    text = LONG[piece] * (1_000_000 // len(LONG[piece]))
    for kind, (values, _, _) in CASES.items():
        started = time.process_time()
        is_satisfied(kind, text, values)
        assert time.process_time() - started < 10, kind
