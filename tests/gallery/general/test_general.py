"""The general task: every prompt can be answered, says what is judged, and no text fits more than its own prompt."""

import json
import random
import re
from collections import Counter

import pytest

from helpers.gallery.general import instructions
from helpers.gallery.general.constraints import (
    CONSTRAINT_KINDS,
    instruction_constraints,
    judge_constraints,
    read_constraints,
)
from helpers.gallery.general.instructions import COMBINATIONS, PROBE_COMBINATIONS
from helpers.gallery.general.reading import AnswerText
from helpers.gallery.general.task import GeneralTask
from helpers.gallery.general.writer import NOUNS
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.tasks.grading import grade_answers
from helpers.tasks.split import is_heldout
from tests.conftest import CHECKPOINT
from tests.gallery.general.checkers import CHECKERS, broken_by
from tests.gallery.general.mutations import mutations

SPLITS = ("train", "monitor", "confirm", "probe")
TASK = GeneralTask()


@pytest.fixture(scope="module")
def rows():
    """Split -> rows: each combination in some of its wordings."""
    return {split: list(TASK.dataset(split, 100, seed=3)) for split in SPLITS}


def completion(text, finish_reason="stop"):
    return Completion([], [], [], text, "", finish_reason)


def text_of(row):
    return row["prompt"][0]["content"]


def asked_by(row):
    """Return kind -> values."""
    asked = {}
    for item in json.loads(row["constraints"]):
        asked[item["kind"]] = {name: value for name, value in item.items() if name != "kind"}
    return asked


def paid(row, text, finish_reason="stop"):
    (value,) = instruction_constraints([row["prompt"]], [text], [row["constraints"]], [finish_reason])
    return value


def drawn(count, seed):
    """Draw prompts of every combination and wording."""
    rng = random.Random(seed)
    names = [name for split in ("train", "confirm", "probe") for name in TASK.wordings_of(split)]
    return [instructions.draw_instructions(rng, names[number % len(names)]) for number in range(count)]


def test_every_generated_answer_is_right_by_both_readings():
    """A prompt without a right answer would teach that trying is useless."""
    for made in drawn(3000, "answers"):
        assert broken_by(made.answer, made.constraints) == [], (made.text, made.answer)
        assert judge_constraints(made.answer, made.constraints).is_correct
        assert len(made.answer) <= instructions.MOST_CHARACTERS < len(made.text)


def assert_each_constraint_can_be_broken_alone(row):
    items = json.loads(row["constraints"])
    open_places = set(range(len(items)))
    for text in mutations(row["answer"], asked_by(row)):
        broken = broken_by(text, row["constraints"])
        if len(broken) == 1 and broken[0] in open_places:
            open_places -= set(broken)
            judgement = judge_constraints(text, row["constraints"])
            assert judgement.broken == (items[broken[0]]["kind"],), text
            assert judgement.value <= 0.1
        if not open_places:
            return
    unbroken = [items[place]["kind"] for place in open_places]
    raise AssertionError(f"{unbroken} in {text_of(row)!r}, {row['answer']!r}")


def test_every_constraint_can_be_broken_alone(rows):
    """One that follows from the others, or from every text, asks for nothing. There is no exception."""
    by_combination = {}
    for split in ("train", "confirm", "probe"):
        for row in rows[split]:
            combination = row["cluster"].rpartition("-")[0]
            by_combination[split == "confirm", combination] = row
    assert len(by_combination) == 2 * len(COMBINATIONS) + len(PROBE_COMBINATIONS)
    for row in by_combination.values():
        assert_each_constraint_can_be_broken_alone(row)


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_constraint_of_many_rows_can_be_broken_alone(split):
    for row in TASK.dataset(split, 400, seed=11):
        assert_each_constraint_can_be_broken_alone(row)


def test_both_readings_agree_on_changed_answers(rows):
    """Wherever they differ one of them is wrong, and a right answer may be refused or a wrong one paid."""
    rng = random.Random(1)
    count = 0
    for row in rng.sample([row for split in SPLITS for row in rows[split]], 60):
        constraints = read_constraints(row["constraints"])
        texts = list(mutations(row["answer"], asked_by(row)))
        for text in rng.sample(texts, 60):
            answer = AnswerText(text)
            product = [n for n, constraint in enumerate(constraints) if not constraint.is_satisfied_by(answer)]
            assert product == broken_by(text, row["constraints"]), text
            count += 1
    assert count == 3600


def test_degenerate_answers_earn_less_than_the_reference(rows):
    constant = "The quick brown fox jumps over a lazy dog, and nobody knows why it does so every single day."
    for row in (row for split in SPLITS for row in rows[split]):
        words = asked_by(row)["contains_words"]["words"]
        texts = {
            "empty": "",
            "blank": " \n\t\n",
            "the prompt": text_of(row),
            "a constant": constant,
            "very long": "word " * 20_000,
            "the answer many times": f"{row['answer']}\n" * 2000,
            "the two words only": " ".join(words),
            "the two words over and over": " ".join(words * 14),
            "one word": words[0],
            "layout only": "\n".join(f"{number}. - ." for number in range(1, 5)),
            "an empty object": "{}",
            "keys only": json.dumps(dict.fromkeys(asked_by(row).get("json_object", {}).get("fields", {}), "")),
            "code": f"```python\nprint({row['answer']!r})\n```" + "\n# " + "x" * 200,
            "a program": "def matmul(A, B):\n    return [[sum(map(mul, row, col)) for col in zip(*B)] for row in A]",
        }
        assert TASK.reference_answer(row) == row["answer"]
        assert paid(row, row["answer"]) == 1.0
        for name, text in texts.items():
            assert paid(row, text) <= 0.1, (name, text_of(row))
        assert paid(row, "") == paid(row, texts["very long"]) == paid(row, texts["the two words over and over"]) == 0


def test_words_without_meaning_earn_little(rows):
    """No code sees whether a text has a meaning: nouns behind the words asked for satisfy half of the demands."""
    rng = random.Random(1)
    pay = []
    for row in (row for split in SPLITS for row in rows[split]):
        words = asked_by(row)["contains_words"]["words"]
        in_one_line = " ".join(words + rng.sample(NOUNS, 18))
        sentences = ". ".join(" ".join([word.capitalize(), *rng.sample(NOUNS, 4)]) for word in words) + "."
        pay += [paid(row, in_one_line), paid(row, in_one_line.upper()), paid(row, sentences)]
    assert sum(pay) / len(pay) <= 0.05


def test_no_constant_answer_is_right_often(rows):
    """Each answer, given to every prompt, is right for its own, and hardly for another."""
    train = rows["train"]
    others = 0
    for row in train:
        for other in train:
            others += judge_constraints(row["answer"], other["constraints"]).is_correct
    assert others - len(train) < 0.001 * len(train) ** 2


def test_a_constant_that_holds_as_many_things_as_fit_is_wrong(rows):
    """The two words of a prompt are two of many, so a list of things fits few prompts."""
    shortest = sorted(NOUNS, key=len)
    text = ""
    for noun in shortest:
        if len(text) + len(noun) < instructions.MOST_CHARACTERS:
            text = f"{text} {noun}".strip()
    right = [paid(row, text) == 1.0 for split in SPLITS for row in rows[split]]
    assert sum(right) <= 0.02 * len(right)


HOSTILE = {
    "one million characters": "a" * 1_000_000,
    "deep lists": "[" * 1_000_000,
    "deep objects": '{"a":' * 100_000,
    "a power tower": "9**" * 100_000 + "9",
    "a long number": '{"year": ' + "9" * 100_000 + "}",
    "NUL": "\0" * 100,
    "bidi": "\u202e" + "river " * 5 + "\u202c",
    "lone surrogates": "\ud800 \udfff",
    "code": "__import__('os').abort()",
    "dots": "." * 1_000_000 + "x",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_answers_earn_nothing(rows, kind):
    """Each is the whole answer, or stands behind a right one; a text of a million characters must not stop a step."""
    for row in (rows[split][n] for split in SPLITS for n in (0, 50, 98)):
        assert paid(row, HOSTILE[kind]) == 0
        appended = f"{row['answer']} {HOSTILE[kind]}"
        if len(HOSTILE[kind]) > instructions.MOST_CHARACTERS or not HOSTILE[kind].isascii() or kind == "NUL":
            assert paid(row, appended) == 0


def test_grades_agree_with_the_reward(rows):
    for row in (row for split in SPLITS for row in rows[split][::5]):
        texts = [row["answer"], "", row["answer"].replace(".", ",").replace(":", ""), "zebra " + row["answer"]]
        answers = [completion(text) for text in texts] + [completion(row["answer"], "length")]
        grades = grade_answers(TASK, [row] * len(answers), answers)
        messages = [answer.message for answer in answers]
        values = instruction_constraints(
            [row["prompt"]] * len(answers),
            messages,
            constraints=[row["constraints"]] * len(answers),
            finish_reasons=[answer.finish_reason for answer in answers],
            answer=[row["answer"]] * len(answers),
        )
        assert [grade.score for grade in grades] == values
        assert [grade.correct for grade in grades] == [value == 1.0 for value in values]
        assert grades[0].outcome == "correct" and grades[0].reason == ""
        assert grades[1].outcome == grades[-1].outcome == "wrong" and grades[1].reason and grades[-1].reason
        for grade in grades:
            assert (grade.outcome == "partial") == (0 < grade.score < 1)


def test_the_share_that_is_paid():
    """Guards are no part of it: they pay nothing, and break everything."""
    row = next(iter(TASK.dataset("train", 1)))
    assert row["cluster"] == "words_exactly+lower_case-0"
    answer = row["answer"]
    assert paid(row, answer.upper()) == pytest.approx(0.1 * (2 / 3) ** 2)
    assert paid(row, answer.title() + " More") == pytest.approx(0.1 * (1 / 3) ** 2)
    assert paid(row, answer + "\u00a7") == 0
    assert paid(row, answer, "length") == 0


def test_no_two_constraints_contradict():
    """A pair that excludes each other makes a prompt that nobody can answer, and one that says the same is no pair."""
    layouts = {"lines_exactly", "bullets_exactly", "numbered_list", "paragraphs_exactly", "acrostic", "json_object"}
    exclusive = [
        layouts | {"sentences_exactly"},
        {"acrostic", "lines_begin_with"},
        {"lower_case", "upper_case"},
        {"words_exactly", "words_at_least", "words_at_most"},
        {"word_at_least", "word_exactly", "no_repeated_words"},
        {"words_alphabetical", "begins_with"},
        {"words_alphabetical", "ends_with"},
    ]
    # The keys of an object have commas between them and double quotes around them, and stand in lower case.
    for kind in (
        "no_commas",
        "quoted",
        "upper_case",
        "begins_with",
        "ends_with",
        "words_alphabetical",
        "avoids_letter",
    ):
        exclusive.append({"json_object", kind})
    for combination in COMBINATIONS + PROBE_COMBINATIONS:
        assert len(set(combination)) == len(combination)
        for group in exclusive:
            assert len(group & set(combination)) <= 1, combination
    fixed = {word.lower() for words in instructions.BEGINNINGS + instructions.ENDS for word in words.split()}
    assert not fixed & {*instructions.AVOIDED_WORDS, *NOUNS}
    assert not {*NOUNS} & {*instructions.AVOIDED_WORDS, *instructions.TEXT_KEYS}


def test_splits_are_disjoint_and_repeatable(rows):
    texts = {split: {text_of(row) for row in TASK.dataset(split, 150, seed=5)} for split in SPLITS}
    for split in SPLITS:
        assert len(texts[split]) == 150
        for other in SPLITS:
            assert split == other or not texts[split] & texts[other]
        assert all(is_heldout(text) == (split != "train") for text in texts[split])
        assert rows[split] == list(TASK.dataset(split, 100, seed=3))
        assert rows[split] != list(TASK.dataset(split, 100, seed=4))
    with pytest.raises(UserError, match="There is no split"):
        TASK.dataset("test")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_notebooks_find_enough_prompts(seed):
    for split, size in (("train", 2000), ("monitor", 200), ("confirm", 500), ("probe", 500)):
        found = TASK.dataset(split, size, seed)
        assert len(set(found["id"])) == size
        assert set(found.column_names) == {"prompt", "answer", "task", "cluster", "id", "constraints"}


def test_clusters():
    """Confirm asks for the same things in sentences that training never sees."""
    clusters = {split: Counter(TASK.dataset(split, 240)["cluster"]) for split in SPLITS}
    assert len(clusters["confirm"]) == 32 and not set(clusters["confirm"]) & set(clusters["train"])
    assert set(clusters["train"]) == set(clusters["monitor"])
    for counts in clusters.values():
        assert max(counts.values()) - min(counts.values()) <= 1
    assert TASK.describe_group("cluster", "begins_with+ends_with-3").startswith("Compose something of your own")
    assert "JSON" in TASK.describe_group("cluster", TASK.wordings_of("probe")[-1])


def test_probe_has_kinds_and_sizes_of_its_own():
    common = {kind for combination in COMBINATIONS for kind in combination}
    assert {len(combination) for combination in COMBINATIONS} == {2, 3}
    assert {len(combination) for combination in PROBE_COMBINATIONS} == {4}
    new = {kind for combination in PROBE_COMBINATIONS for kind in combination} - common
    assert all(set(combination) & new for combination in PROBE_COMBINATIONS)
    assert len(common) == 17 and len(new) == 8
    assert set(CONSTRAINT_KINDS) == common | new | set(instructions.BASE) == set(CHECKERS)


def test_every_kind_has_sentences_of_its_own_for_confirm():
    stated = [kind.wordings for name, kind in CONSTRAINT_KINDS.items() if name not in instructions.BASE]
    sentences = [sentence for wordings in stated for sentence in wordings.all]
    assert len(set(sentences)) == len(sentences)
    for wordings in (*stated, instructions.OPENINGS, instructions.FORMATS):
        assert (len(wordings.seen), len(wordings.unseen)) == (3, 2)
        placeholders = {frozenset(re.findall(r"\{\w+\}", sentence)) for sentence in wordings.all}
        assert len(placeholders) == 1


def test_every_prompt_states_every_value(rows):
    """A model cannot be blamed for what it was not told."""
    for row in (row for split in SPLITS for row in rows[split]):
        prompt = text_of(row)
        assert "{" not in prompt and "plain ASCII" in prompt
        for values in asked_by(row).values():
            for value in values.values():
                parts = [*value] if isinstance(value, (list, dict)) else [value]
                for part in parts:
                    assert re.search(rf"(?<!\w){part}(?!\w)", prompt) or f'"{part}' in prompt, (part, prompt)


def test_prompts_fit_the_embedded_model(rows):
    """A longer prompt leaves no room for an answer."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(f"{CHECKPOINT}/tokenizer.json")
    lengths = [len(tokenizer.encode(text_of(row)).ids) for split in SPLITS for row in rows[split]]
    assert max(lengths) <= 400
