"""Preferences by a judge and by a table. The judges prefer what a test can count, such as the letters of a text."""

import json

import numpy as np
import pytest

from helpers.gallery.general.preference import Preference
from helpers.rewards.registry import get_reward
from helpers.runtime import UserError

ROWS = [
    {"prompt": "A line on rain", "chosen": "Soft rain.", "rejected": "It rains."},
    {"prompt": "A line on rain", "chosen": "Soft rain.", "rejected": "Rain"},
    {"prompt": "A line on rain", "chosen": "Rain", "rejected": "It rains."},
    {"prompt": "A line on snow", "chosen": "It rains.", "rejected": "Soft rain."},
]


def longer(prompt, first, second):
    """Prefer the longer text."""
    if len(first) == len(second):
        return 0.5
    return float(len(first) > len(second))


def pay(judge, texts, prompts=None, **columns):
    return Preference(judge=judge)(prompts or ["p"] * len(texts), texts, **columns)


def test_win_rates():
    assert pay(longer, ["a", "aaa", "aa"]) == [0.0, 1.0, 0.5]
    assert pay(longer, ["a", "bb", "cc", "ddd"]) == pytest.approx([0, 0.5, 0.5, 1])
    rates = pay(longer, ["a" * (n % 5) + "b" for n in range(9)])
    assert sum(rates) / 9 == pytest.approx(0.5), "what one wins another loses"


def test_only_completions_of_the_same_prompt_are_compared():
    prompts = ["p", "q", "p", "q", "r"]
    assert pay(longer, ["a", "a", "aa", "", "aaaa"], prompts) == [0.0, 1.0, 1.0, 0.0, None]


def test_prompts_are_texts_or_messages():
    """The same text with other messages before it is another prompt; a judge sees who said what."""
    seen = set()

    def judge(prompt, first, second):
        seen.add(prompt)
        return longer(prompt, first, second)

    system = [{"role": "system", "content": "Rhyme."}]
    user = [{"role": "user", "content": "On rain"}]
    texts = ["a", "aa", "a", "aaa"]
    assert pay(judge, texts, [user, system + user, "On rain", system + user]) == [0.5, 0.0, 0.5, 1.0]
    assert pay(judge, texts[:2], [user, "On rain"]) == [0.0, 1.0]
    assert seen == {"On rain", "system: Rhyme.\n\nuser: On rain"}


def test_each_pair_is_asked_in_both_orders():
    """A judge that prefers what stands first says nothing of the texts."""
    asked = []

    def first_one(prompt, first, second):
        asked.append((first, second))
        return True

    assert pay(first_one, ["a", "b", "c"]) == [0.5, 0.5, 0.5]
    assert len(asked) == len(set(asked)) == 6
    assert all((second, first) in asked for first, second in asked)


def test_a_judge_with_some_bias():
    """It finds a great difference and goes by the place for a small one."""

    def biased(prompt, first, second):
        return len(first) + 1.5 > len(second)

    assert pay(biased, ["a", "aa", "aaaa"]) == [0.25, 0.25, 1.0]


def test_equal_texts_are_a_draw_without_a_question():
    def never(prompt, first, second):
        raise AssertionError

    assert pay(never, ["same", " same\n", "same"]) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("lost", ["", " \n\t", "\0", "\u202e\u200b", "\ud800", [], [{"role": "assistant"}]], ids=repr)
def test_what_is_empty_or_cut_off_loses(lost):
    """Also with a judge who prefers short texts. Two losers both get nothing."""

    def shorter(prompt, first, second):
        return 1.0 - longer(prompt, first, second)

    assert pay(shorter, [lost, "aa", "a"]) == [0.0, 0.5, 1.0]
    assert pay(shorter, [lost, "a", lost]) == [0.0, 1.0, 0.0]
    assert pay(shorter, [lost, lost]) == [0.0, 0.0]
    assert pay(shorter, ["b", "aa", "a"], finish_reasons=["length", "stop", "stop"]) == [0.0, 0.5, 1.0]
    assert pay(shorter, ["a", "a"], finish_reasons=["length", "stop"]) == [0.0, 1.0], "equal texts, one of them cut off"
    assert Preference(table=ROWS)(["A line on rain"] * 2, [lost, "Soft rain."]) == [0.0, None]


def test_alone_there_is_nothing_to_compare_with():
    assert pay(longer, ["a"]) == [None]
    assert pay(longer, [""]) == [None]
    assert pay(longer, []) == []


def test_only_the_final_channel_is_judged():
    message = [{"role": "assistant", "content": "a", "thinking": "long thoughts"}]
    assert pay(longer, [message, "aa"]) == [0.0, 1.0]


def test_hostile_texts_reach_the_judge_as_they_are():
    """They are compared in linear time and run as nothing; what they say to the judge is the judge's to withstand."""
    seen = []

    def judge(prompt, first, second):
        seen.append(first)
        return longer(prompt, first, second)

    texts = ["a" * 1_000_000, "[" * 999_999, "9**9**9**9", "a\0b", "\u202eabc", "b\ud800", "__import__('os').abort()"]
    rates = pay(judge, texts)
    assert rates[0] == 1.0 and rates[1] == pytest.approx(5 / 6)
    assert set(seen) == set(texts)
    assert all(0 <= rate <= 1 for rate in rates)


@pytest.mark.parametrize(
    ("won", "lost"),
    [
        (True, False),
        (1, 0),
        (np.float32(1), np.float32(0)),
        (np.bool_(True), np.bool_(False)),
        (np.array(1.0), np.array(0.0)),
    ],
    ids=repr,
)
def test_numbers_of_other_kinds(won, lost):
    """A judge that compares means of numpy returns numpy's own True."""
    assert pay(lambda prompt, first, second: won if first == "a" else lost, ["a", "b"]) == [1.0, 0.0]


@pytest.mark.parametrize(
    "value", [None, "1", "first", 2, -1.0, 0.7, float("nan"), [1.0], np.ones(2), np.ones(1), "a"], ids=repr
)
def test_values_that_are_no_verdict(value):
    with pytest.raises(UserError, match=r"The judge of reward 'preference' returned .*: return 1\.0 where"):
        pay(lambda prompt, first, second: value, ["a", "b"])


def test_a_judge_that_fails_is_one_sentence():
    def judge(prompt, first, second):
        raise KeyError(first)

    with pytest.raises(UserError, match=r"raised KeyError: 'a' \(test_preference.py, line \d+\): fix it") as caught:
        pay(judge, ["a", "b"])
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="raised TypeError"):
        pay(lambda first, second: 1.0, ["a", "b"])

    def unreachable(prompt, first, second):
        raise UserError("The judge's server does not answer: start it.")

    with pytest.raises(UserError, match="^The judge's server"):
        pay(unreachable, ["a", "b"])


@pytest.mark.parametrize("as_file", [False, True])
def test_a_table(tmp_path, as_file):
    table = ROWS
    if as_file:
        table = tmp_path / "pairs.jsonl"
        table.write_text("\ufeff" + "\n".join(map(json.dumps, ROWS)) + "\n\n", encoding="utf-8")
    reward = get_reward("preference", table=table)
    texts = ["Soft rain.", "It rains.\n", "Rain", "Unknown"]
    assert reward(["A line on rain"] * 4, texts) == [1.0, 0.0, 0.5, None]
    assert reward(["A line on snow"] * 4, texts) == [0.0, 1.0, None, None]
    assert reward(["Another"] * 4, texts) == [None] * 4
    message = [{"role": "user", "content": "A line on rain"}]
    assert reward([message] * 2, texts[:2]) == [1.0, 0.0]
    assert reward([message, "A line on rain"], ["Rain", "Rain"]) == [None, None], "the table has no such pair"


def test_a_table_of_columns_and_messages():
    def message(role, text):
        return [{"role": role, "content": text}]

    columns = {
        "prompt": [message("user", row["prompt"]) for row in ROWS],
        "chosen": [message("assistant", row["chosen"]) for row in ROWS],
        "rejected": [row["rejected"] for row in ROWS],
        "note": "not a column of preferences",
    }
    assert Preference(table=columns).table == Preference(table=ROWS).table


def test_a_table_of_data_sets():
    from datasets import Dataset, DatasetDict

    splits = DatasetDict({"train": Dataset.from_list(ROWS[:1]), "test": Dataset.from_list(ROWS[1:])})
    assert Preference(table=splits).table == Preference(table=tuple(ROWS)).table


def test_people_who_disagree():
    """A pair that stands there several times counts as the mean."""
    swapped = {"prompt": "A line on rain", "chosen": "It rains.", "rejected": "Soft rain."}
    reward = Preference(table=[ROWS[0], ROWS[0], ROWS[0], swapped])
    assert reward(["A line on rain"] * 2, ["Soft rain.", "It rains."]) == [0.75, 0.25]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([], "table is empty"),
        ({}, "must have lists prompt, chosen and rejected of the same length"),
        ({"prompt": ["p"], "chosen": ["a"], "rejected": ["b", "c"]}, "of the same length"),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, "must have lists"),
        ([ROWS[0], {"prompt": "p", "chosen": "a"}], "table: row 2 is not a preference"),
        ([{"prompt": "p", "chosen": 1, "rejected": "b"}], "table: row 1 is not a preference"),
        ([{"prompt": None, "chosen": "a", "rejected": "b"}], "table: row 1 is not a preference"),
        (["p"], "table: Row 1 of the list is not an object"),
        ([{"prompt": "p", "chosen": "a", "rejected": " a"}], "table: row 1 prefers a text to itself"),
        (3, "Data are the path of a file .*; got a int"),
        ("/nowhere/pairs.jsonl", "Cannot read /nowhere/pairs.jsonl"),
    ],
    ids=str,
)
def test_tables_that_are_refused(table, words):
    with pytest.raises(UserError, match=words) as caught:
        Preference(table=table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "pairs.jsonl is empty"),
        (b"\xff\xfe\x00", "Line 1 of pairs.jsonl is no UTF-16 text"),
        (json.dumps(ROWS[0]).encode() + b"\n{", "Line 2 of .* is not JSON"),
        (b"[" * 100_000, "Line 1 of .* is not JSON"),
        (b"3\n", "Line 1 of .* is not an object"),
    ],
    ids=["empty", "no text", "half a line", "deep", "a number"],
)
def test_files_that_are_refused(tmp_path, content, words):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        Preference(table=path)


@pytest.mark.parametrize("options", [{}, {"judge": longer, "table": ROWS}])
def test_one_of_two_options(options):
    with pytest.raises(UserError, match="takes one of two options"):
        get_reward("preference", **options)
    with pytest.raises(UserError, match="judge must be a function"):
        get_reward("preference", judge="gpt")
