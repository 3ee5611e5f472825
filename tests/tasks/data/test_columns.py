"""Columns by name: what becomes the prompt and the answer, and what is said of rows that have none."""

import pytest

from helpers import UserError
from helpers.tasks.data.columns import Columns, RowFault
from helpers.tasks.data.files import SourceRow


def apply(columns, needs_answer=True, **values):
    return columns.apply(SourceRow(values, "line 3 of sums.jsonl"), needs_answer)


def test_columns_are_renamed_and_the_others_stay():
    row = apply(Columns("question", "solution"), question="1 + 1?", solution="2", prompt="old", answer="old", level=3)
    assert row == {"prompt": [{"role": "user", "content": "1 + 1?"}], "answer": "2", "level": 3}


def test_the_prompt_may_have_the_name_of_an_argument():
    assert apply(Columns("prompts"), prompts="1 + 1?", answer="2")["prompt"][0]["content"] == "1 + 1?"


def test_a_system_prompt_and_a_template():
    columns = Columns("q", "a", "Be brief.", "Question: {q} ({unit})\nAnswer in \\boxed{{}}, {{thus}}: \\boxed{}")
    messages = apply(columns, q="1 + 1?", a="2", unit="m")["prompt"]
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Question: 1 + 1? (m)\nAnswer in \\boxed{}, {thus}: \\boxed{}"},
    ]


def test_messages_stay_as_they_are():
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    assert apply(Columns("messages"), messages=messages, answer="1")["prompt"] == messages


def test_an_id_depends_on_what_is_said_alone():
    """One data set has None for the keys that others leave out, or the keys in another order."""
    messages = [
        {"content": "Q", "role": "user", "name": None, "weight": 1.0},
        {"tool_calls": [{"id": "1"}], "thinking": "T", "content": "A", "role": "assistant"},
        {"role": "user", "content": "R", "name": "me"},
    ]
    found = apply(Columns(), prompt=messages, answer="1")["prompt"]
    assert [list(message.items()) for message in found] == [
        [("role", "user"), ("content", "Q")],
        [("role", "assistant"), ("content", "A"), ("tool_calls", [{"id": "1"}]), ("thinking", "T")],
        [("role", "user"), ("content", "R"), ("name", "me")],
    ]


ROW_FAULTS = [
    ({"prompt": " ", "answer": "1"}, "empty prompt", "Line 3 of sums.jsonl has an empty 'prompt'"),
    ({"prompt": None, "answer": "1"}, "empty prompt", "has an empty 'prompt'"),
    ({"prompt": [], "answer": "1"}, "empty prompt", "has an empty 'prompt'"),
    ({"prompt": [{"role": "user", "content": ""}], "answer": "1"}, "empty prompt", "has an empty 'prompt'"),
    ({"prompt": "a", "answer": ""}, "no answer", "Line 3 of sums.jsonl has no 'answer'"),
    ({"prompt": "a", "answer": " \n"}, "no answer", "has no 'answer'"),
    ({"prompt": "a", "answer": None}, "no answer", "has no 'answer'"),
    ({"prompt": "a", "answer": float("nan")}, "no answer", "has no 'answer'"),
    ({"prompt": "a"}, "no answer", "has no 'answer'"),
    (
        {"prompt": [{"role": "user", "content": "a"}, {"from": "human", "value": "b"}], "answer": "1"},
        "wrong messages",
        "Message 2 of the prompt in line 3 of sums.jsonl needs the keys 'role' and 'content', and has 'from', 'value'",
    ),
    ({"prompt": [{"role": "user", "content": 7}], "answer": "1"}, "wrong messages", "content of message 1 .* is 7"),
    ({"prompt": [{"role": "human", "content": "a"}], "answer": "1"}, "wrong messages", "has the role 'human'"),
    ({"promt": "a"}, "no prompt", r"has no 'prompt' \(did you mean 'promt'\?\): its columns are 'promt'"),
    ({"prompt": 7}, "prompt of another kind", "'prompt' is a number in line 3 of sums.jsonl"),
    ({"prompt": ["a"]}, "wrong messages", "Message 1 of the prompt in line 3 of sums.jsonl is 'a'"),
    (
        {"prompt": [{"role": "assistant", "content": "4"}]},
        "prompt that ends with the assistant's message",
        "ends with a message of the assistant",
    ),
    ({"prompt": "\ud800", "answer": "1"}, "text that is no Unicode", "Line 3 of sums.jsonl has half .* in 'prompt'"),
    ({"prompt": "a", "answer": "1", "cluster": "\udc00"}, "text that is no Unicode", "in 'cluster'"),
    ({"prompt": "a", "answer": "1", "more": {"b": ["\ud800"]}}, "text that is no Unicode", "in 'more'"),
    ({"prompt": "a", "answer": "1", "\ud800": 1}, "text that is no Unicode", r"in '\\ud800'"),
    ({"prompt": [{"role": "user", "content": "a\ud800"}], "answer": "1"}, "text that is no Unicode", "in 'prompt'"),
]


@pytest.mark.parametrize(("values", "reason", "words"), ROW_FAULTS)
def test_a_fault_of_one_row(values, reason, words):
    """`prepare` leaves such rows out by their reason; a run names the place. Messages are counted from 1."""
    with pytest.raises(RowFault, match=words) as caught:
        apply(Columns(), **values)
    assert caught.value.reason == reason and "\n" not in str(caught.value)


TEMPLATE_FAULTS = [
    ("Q: {qestion}", {"question": "a"}, "no prompt", r"has no 'qestion' \(did you mean 'question'\?\)"),
    ("{q} in {x}", {"q": "a"}, "no prompt", "or write {{x}} for braces that stay"),
    ("{q}", {"q": ["a"]}, "prompt of another kind", "'q' is a list in line 3"),
    ("{q}", {"q": True}, "prompt of another kind", "'q' is a truth value in line 3"),
]


@pytest.mark.parametrize(("template", "values", "reason", "words"), TEMPLATE_FAULTS)
def test_a_row_that_does_not_fill_a_template(template, values, reason, words):
    with pytest.raises(RowFault, match=words) as caught:
        apply(Columns(template=template), needs_answer=False, **values)
    assert caught.value.reason == reason and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(), "Row 1 has no 'prompt'.*; name the right one, or add it[.]"),
        (Columns(template="{q} in {x}"), "Row 1 has no 'x'.* or write {{x}} for braces that stay[.]"),
    ],
)
def test_a_column_that_the_first_row_lacks(columns, words):
    """It is no fault of that row: all of them would be left out, one by one."""
    with pytest.raises(UserError, match=words) as caught:
        columns.check([SourceRow({"q": "a"}, "row 1")], "the list", needs_answer=False)
    assert not isinstance(caught.value, RowFault)


def test_a_column_that_the_first_row_alone_lacks():
    """It is a fault of that row, which `make prepare` leaves out."""
    rows = [SourceRow({"prompt": "a"}, "row 1"), SourceRow({"prompt": "a", "answer": "1"}, "row 2")]
    Columns().check(rows, "the list", needs_answer=True)
    with pytest.raises(RowFault, match="Row 1 has no 'answer'"):
        Columns().apply(rows[0], needs_answer=True)


def test_a_row_of_a_table_has_none_for_absent_keys():
    """Arrow gives each message all keys that any message has."""
    messages = [
        {"role": "user", "content": "a", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": "b", "tool_calls": None},
    ]
    prompt = apply(Columns(), prompt=messages, answer="1")["prompt"]
    assert prompt == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": "b"},
    ]
    with pytest.raises(RowFault, match="needs the keys 'role' and 'content', and has 'from': rename"):
        apply(Columns(), prompt=[{"role": None, "content": None, "from": "human"}], answer="1")


def test_whole_characters_are_unicode():
    """JSON escapes a character beyond the first 65,536 as two halves."""
    assert apply(Columns(), prompt="\U0001f600", answer="1")["prompt"][0]["content"] == "\U0001f600"


def test_an_answer_may_be_0_or_false():
    assert apply(Columns(), prompt="a", answer=0)["answer"] == 0
    assert apply(Columns(), prompt="a", answer=False)["answer"] is False


FAULTS = [
    (
        Columns(),
        {"prompt": "a", "completions": "b"},
        "the column 'completions', and rewards get something else of that name",
    ),
    (
        Columns(system_prompt="S"),
        {"prompt": [{"role": "system", "content": "T"}, {"role": "user", "content": "Q"}]},
        "has a system message already",
    ),
]


@pytest.mark.parametrize(("columns", "values", "words"), FAULTS)
def test_a_fault_of_all_rows(columns, values, words):
    """Such a fault is no row's own, so `prepare` writes nothing."""
    with pytest.raises(UserError, match=words) as caught:
        apply(columns, needs_answer=False, **values)
    assert not isinstance(caught.value, RowFault) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("Q: {q", "a brace without its other half"),
        ("Q: {q:>5}", "more than a name in its braces: write {q}"),
        ("{q!r}", "more than a name in its braces"),
        ("{q} is {answer}", "holds the right answers"),
    ],
)
def test_a_template_that_is_none(template, words):
    """A prompt that shows the answer would be solved by copying, and every curve would rise."""
    with pytest.raises(UserError, match=words):
        Columns(template=template)


def test_one_column_is_not_both():
    with pytest.raises(UserError, match="'text' is to be the prompt and the answer"):
        Columns("text", "text")
