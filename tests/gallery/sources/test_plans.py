"""The splits of a run of several data sets: disjoint, clean, and the same on every machine."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest
from datasets import load_from_disk

from helpers import get_task
from helpers.gallery.sources.overlap import KINDS, MOST_TEXTS, PASSAGE_WORDS, find_overlaps, masked, normalized
from helpers.gallery.sources.plans import IN_DISTRIBUTION, PLANS, Plan, find_plan, make_splits
from helpers.gallery.sources.preparing import is_prepared, prepare_source, read_pins
from helpers.gallery.sources.questions import Question
from helpers.gallery.sources.reading import Provenance, Reading, find_copy, read_source
from helpers.gallery.sources.table import SOURCES
from helpers.runtime import ROOT, UserError
from helpers.tasks.data.files import READERS
from helpers.tasks.data.sources import open_source
from helpers.tasks.frozen import rows_digest
from tests.gallery.sources import make_hub
from tests.gallery.sources.make_hub import HUB, file_text

#: Digests of the splits of seed 0, made of the files in hub/, on every version of Python.
POOL_SHA256 = {
    "numinamath": "db908e3e89935135ddff8ceadfcac1f5b2489e94750c681cefa4d691278666ed",
    "dapo_math": "ae39f24b4223ae097df22cc7f5cd10f14936039d082f93ca6067d39c6f5bb998",
    "math_train": "ddcf46202eacf485e57fe34bbd1f5964650b23ba837be65b052cde259799a42e",
    "gsm8k": "aa91e271adf42e781ed5bffab5c1938f24679a22093f65d4d087933cbfed6bb1",
    "mbpp": "f18a4d14f40c932ba473a281da9e65d55452531b744abf50f0f57e486fbb2ddc",
}
#: The first 16 digits of each.
SPLITS_SHA256 = {
    "numinamath": {
        "train": "ae804bfae0073bac", "monitor": "b8d0fb2d32a233cc",
        "confirm": "02dc270cc84cfad9", "probe": "1f38d54929fad855",
    },
    "dapo_math": {
        "train": "59a44e6dae531d65", "monitor": "354b53e86ed62b99",
        "confirm": "b267c304201dc7fb", "probe": "fb414f75cb613d03",
    },
    "math_train": {
        "train": "c8c6ea53c4f8ad50", "monitor": "354b53e86ed62b99",
        "confirm": "e56010047d35e627", "probe": "90ce8e24e67df1da",
    },
    "gsm8k": {
        "train": "31d2bdc1ebd39e4f", "monitor": "6f7f71cbd83adfb6",
        "confirm": "d079c64d2af2d732", "probe": "697793d8c85d7f9b",
    },
    "mbpp": {
        "train": "14f0a575850a5b7e", "monitor": "b2c51c21a3febd5a",
        "confirm": "3bc1e8f810bb3be1",
    },
}  # fmt: skip
#: What every prompt of a task ends with, which no problem does.
ENDS = (" Put the answer in ", " Write the function solve(")


def problem_of(row):
    prompt = row["prompt"]
    for end in ENDS:
        prompt = prompt.partition(end)[0]
    return prompt


def problems_of(rows):
    return [problem_of(row) for row in rows]


@pytest.fixture(scope="module")
def readings():
    return {name: read_source(name, HUB) for name in SOURCES}


@pytest.fixture(scope="module")
def splits(readings):
    return {name: make_splits(plan, readings.get, seed=0) for name, plan in PLANS.items()}


def of_probe(found, is_in_distribution):
    rows = found.rows.get("probe", [])
    return [row for row in rows if (row["set"] == IN_DISTRIBUTION) == is_in_distribution]


def message_of(call, *args, **options):
    with pytest.raises(UserError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The splits of the fixtures


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_has_every_split(splits, name):
    plan, found = PLANS[name], splits[name]
    expected = ["train", "monitor", "confirm"] + (["probe"] if plan.in_distribution or plan.probes else [])
    assert list(found.rows) == expected and all(found.rows.values())
    assert {row["set"] for row in found.rows["train"]} == {plan.train}
    assert {row["set"] for row in found.rows["confirm"]} == {plan.confirm_set}
    sets = [IN_DISTRIBUTION] * bool(plan.in_distribution) + list(plan.probes)
    assert list(dict.fromkeys(row["set"] for row in found.rows.get("probe", []))) == sets
    assert list(found.sources) == list(dict.fromkeys(plan.sources))
    assert all(found.sources[name].kept > 0 for name in plan.sources)


@pytest.mark.parametrize("name", PLANS)
def test_no_problem_is_in_two_splits(splits, name):
    parts = {split: {normalized(problem) for problem in problems_of(rows)} for split, rows in splits[name].rows.items()}
    assert all(len(parts[split]) == len(rows) for split, rows in splits[name].rows.items()), "nor twice in one"
    for one, other in combinations(parts, 2):
        assert not parts[one] & parts[other], (one, other)


def shared_passages(texts, others, all_texts):
    """Return the texts that have eight words in a row of another, by a slow search.

    all_texts: those among which a stock phrase is one.
    """

    def passages(text):
        words = "".join(character if character.isalnum() else " " for character in text.lower()).split()
        windows = [tuple(words[first : first + PASSAGE_WORDS]) for first in range(len(words) - PASSAGE_WORDS + 1)]
        return {window for window in windows if sum(len(word) > 2 and word.isalpha() for word in window) > 2}

    texts_with = {}
    for text in {normalized(text): text for text in all_texts}.values():
        for passage in passages(text):
            texts_with[passage] = texts_with.get(passage, 0) + 1
    elsewhere = set().union(*map(passages, others))
    telling = {passage for passage in elsewhere if texts_with[passage] <= MOST_TEXTS}
    return [text for text in texts if passages(text) & telling]


@pytest.mark.parametrize("name", PLANS)
def test_what_is_asked_is_like_nothing_in_training(splits, readings, name):
    """A right answer to a problem that was trained on, but for its numbers, shows memory and not reasoning."""
    found = splits[name]
    train = problems_of(found.rows["train"])
    in_distribution = problems_of(of_probe(found, True))
    at_the_end = problems_of(of_probe(found, False))
    confirm, monitor = problems_of(found.rows["confirm"]), problems_of(found.rows["monitor"])
    kept_apart = [
        (train, in_distribution), (train, at_the_end), (train, confirm), (train, monitor), (monitor, confirm),
        (in_distribution, at_the_end), (in_distribution, confirm), (in_distribution, monitor),
        (at_the_end, confirm), (at_the_end, monitor),
    ]  # fmt: skip
    all_problems = [question.problem for source in PLANS[name].sources for question in readings[source].questions]
    for texts, others in kept_apart:
        assert find_overlaps(texts, others) == []
        assert not {masked(text) for text in texts} & {masked(text) for text in others}
        assert shared_passages(texts, others, all_problems) == []


def test_planted_copies_are_removed_and_named(splits, readings):
    """Three problems of AIME are in the file of NuminaMath-1.5, in one way each: a filter of exact copies finds one."""
    planted = [row["problem"] for row in make_hub.contaminated()]
    read = {question.problem for question in readings["numinamath"].questions}
    assert read.issuperset(planted), "the filter left them in"
    overlaps = find_overlaps(planted, [question.problem for question in readings["aime_2024"].questions])
    assert [overlap.kind for overlap in overlaps] == list(KINDS)
    found = splits["numinamath"]
    pool = {normalized(text) for text in problems_of(found.rows["train"] + of_probe(found, True))}
    assert not pool & {normalized(text) for text in planted}
    assert found.removed["numinamath and the probes"] == (
        "3 of 452 texts are in the other set too: 1 exactly, 1 but for their numbers, 1 with eight words in a row."
    )
    assert "None of 80 texts is in the other set." == splits["dapo_math"].removed["dapo_math and the probes"]


@pytest.mark.parametrize("name", PLANS)
def test_each_pair_of_sets_has_a_sentence(splits, name):
    """Where nothing was looked for, nothing was found: the report must say which sets were compared."""
    plan = PLANS[name]
    compared = [f"{plan.train} and the probes"] * bool(plan.probes)
    compared += ["the rest of the pool and the probe ID"] * bool(plan.in_distribution)
    compared += [f"{plan.confirm_set} and the probes"] * bool(plan.probes)
    compared += [f"{plan.confirm_set} and the pool", f"the monitor and {plan.confirm_set}"]
    assert list(splits[name].removed) == compared


def test_rows_of_a_cluster_differ_in_their_numbers_alone(splits):
    """A confidence interval takes the rows of one cluster for a single observation."""
    for found in splits.values():
        for rows in found.rows.values():
            of_cluster = {}
            for row in rows:
                of_cluster.setdefault(row["cluster"], set()).add(masked(problem_of(row)))
            assert all(len(forms) == 1 for forms in of_cluster.values())
            assert len(of_cluster) == len(set().union(*of_cluster.values()))
    train = splits["numinamath"].rows["train"]
    assert len({row["cluster"] for row in train}) < len(train)


# The same splits everywhere

DIGESTS = """
import json
from helpers.gallery.sources.plans import PLANS, make_splits
from helpers.gallery.sources.reading import read_source
from helpers.tasks.frozen import rows_digest
from tests.gallery.sources.make_hub import HUB

found = make_splits(PLANS["numinamath"], lambda name: read_source(name, HUB), seed=0)
print(json.dumps([found.pool_sha256, {split: rows_digest(rows) for split, rows in found.rows.items()}]))
"""


@pytest.mark.parametrize("name", PLANS)
def test_frozen_digests(splits, name):
    """Python's random generator and its hash of texts differ between versions; two runs would be of other data."""
    found = splits[name]
    assert found.pool_sha256 == POOL_SHA256[name]
    assert {split: rows_digest(rows)[:16] for split, rows in found.rows.items()} == SPLITS_SHA256[name]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_seed_of_hashes_changes_nothing(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", DIGESTS], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pool_sha256, digests = json.loads(done.stdout)
    assert pool_sha256 == POOL_SHA256["numinamath"]
    assert {split: digest[:16] for split, digest in digests.items()} == SPLITS_SHA256["numinamath"]


def shuffled_copy(name, folder, rng, is_each_problem_once):
    """Write the rows of a source's copy in another order."""
    source = SOURCES[name]
    copy = find_copy(source, HUB)
    by_file = {}
    for path in [copy] if copy.is_file() else sorted(copy.iterdir()):
        rows = [row.values for row in open_source(path).rows()]
        if is_each_problem_once and "problem" in source.columns:
            rows = list({normalized(row["problem"] or ""): row for row in rows}.values())
        rng.shuffle(rows)
        by_file[path.relative_to(HUB)] = rows
    for place, rows in by_file.items():
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text(file_text(rows))


def splits_of_shuffled(name, folder, is_each_problem_once, pool=None):
    """Return the splits of a plan from the rows in two orders."""
    found = []
    for seed in (1, 2):
        copies = folder / str(seed)
        copies.mkdir()
        for source in dict.fromkeys(PLANS[name].sources):
            shuffled_copy(source, copies, random.Random(seed), is_each_problem_once)
        found.append(make_splits(PLANS[name], lambda source, copies=copies: read_source(source, copies), 0, pool))
    return found


@pytest.mark.parametrize("name", PLANS)
def test_the_order_of_the_rows_changes_nothing(tmp_path, name):
    """A conversion on the hub may sort a data set anew."""
    first, second = splits_of_shuffled(name, tmp_path, is_each_problem_once=True)
    assert first.rows == second.rows and first.removed == second.removed
    assert first.pool_sha256 == second.pool_sha256


def test_which_copy_of_a_problem_comes_first_changes_no_split(tmp_path):
    """Its letter case decided on its place in the order, and so on which other problems were in the pool."""
    first, second = splits_of_shuffled("numinamath", tmp_path, is_each_problem_once=False, pool=200)
    assert first.pool_sha256 == second.pool_sha256 and first.removed == second.removed
    for split, rows in first.rows.items():
        assert [normalized(text) for text in problems_of(rows)] == [
            normalized(text) for text in problems_of(second.rows[split])
        ]


def test_another_seed_takes_another_pool(readings):
    plan = PLANS["numinamath"]
    pools = [make_splits(plan, readings.get, seed, pool=100) for seed in (0, 1, 0)]
    first, other, again = [{problem_of(row) for row in found.rows["train"]} for found in pools]
    assert first == again and first != other and len(first - other) > 20
    assert pools[0].pool_sha256 == pools[2].pool_sha256 != pools[1].pool_sha256


def test_every_seed_is_judged_by_the_same_prompts(readings):
    """Three runs of one recipe, on three sets that decide, cannot be compared prompt by prompt."""
    plan = replace(PLANS["numinamath"], confirm_rows=40)
    found = [make_splits(plan, readings.get, seed) for seed in (0, 1)]
    assert found[0].rows["train"] != found[1].rows["train"]
    assert found[0].rows["confirm"] == found[1].rows["confirm"]
    assert of_probe(found[0], False) == of_probe(found[1], False)


# Sizes


@pytest.mark.parametrize("pool", [3, 4, 8, 40, 100, 449, 450, 10_000])
def test_the_size_of_the_pool(readings, pool):
    """At most a quarter is the probe, however few there are; what is like it is not trained on."""
    found = make_splits(PLANS["numinamath"], readings.get, 0, pool)
    size = min(pool, 449)
    in_distribution = of_probe(found, True)
    assert len(in_distribution) == min(200, size // 4)
    sentence = found.removed.get("the rest of the pool and the probe ID", "None")
    like_the_probe = int(sentence.split()[0].replace("None", "0"))
    assert len(found.rows["train"]) == size - len(in_distribution) - like_the_probe > 0
    assert len(of_probe(found, False)) == 30


def test_a_small_pool_is_the_beginning_of_a_large_one(readings):
    """Otherwise a run with more rows would change the rows that it shares with the other."""
    pools = []
    for pool in (50, 100):
        found = make_splits(replace(PLANS["dapo_math"], in_distribution=0), readings.get, 0, pool)
        pools.append(problems_of(found.rows["train"]))
    assert pools[1][:50] == pools[0]


def test_how_the_set_that_decides_is_filled(readings):
    """Apex is taken whole, and MATH fills what is missing; the monitor has what comes after."""
    plan = replace(PLANS["numinamath"], confirm_rows=20, monitor_rows=7, probes={})
    found = make_splits(plan, readings.get, 0)
    confirm = problems_of(found.rows["confirm"])
    apex = {question.problem for question in readings["apex"].questions}
    assert len(confirm) == 20 and set(confirm[: len(apex)]) == apex
    assert len(found.rows["monitor"]) == 7


WORDS = "ash birch cedar elm fir hazel larch maple oak pine rowan willow".split()


def invented(name, count):
    """A reading of so many questions, of which no two are alike."""
    questions = []
    for number in range(count):
        text = f"{name} {WORDS[number % 12]} {WORDS[number // 12]}: how many?"
        questions.append(Question(text, {"prompt": text, "answer": str(number)}))
    return Reading(questions, Provenance(name, "train", "", "", "", count, "", count, {}))


SMALL_PLAN = Plan("dapo_math", "MATH-500", fill=("math_500",))


@pytest.mark.parametrize(
    ("pool", "candidates", "sizes"),
    [
        (8, 6, [6, 1, 5, 2]),
        (3, 5, [3, 1, 4]),
        (4, 10, [3, 2, 8, 1]),
        (100, 100, [75, 20, 80, 25]),
    ],
)
def test_small_sources(pool, candidates, sizes):
    counts = {"dapo_math": pool, "math_500": candidates}
    found = make_splits(SMALL_PLAN, lambda name: invented(name, counts[name]), 0)
    assert [len(rows) for rows in found.rows.values()] == sizes
    assert list(found.rows) == ["train", "monitor", "confirm", "probe"][: len(sizes)]


def test_a_problem_of_two_sources_is_asked_once():
    """Asked twice, it would count twice in the result."""
    plan = replace(SMALL_PLAN, fill=("math_500", "math_test"))
    shared = invented("math_500", 20)
    readings = {"dapo_math": invented("dapo_math", 20), "math_500": shared, "math_test": shared}
    found = make_splits(plan, readings.get, 0)
    assert (len(found.rows["confirm"]), len(found.rows["monitor"])) == (16, 4)


@pytest.mark.parametrize(("pool", "candidates", "split"), [(8, 4, "monitor"), (8, 0, "monitor"), (0, 6, "train")])
def test_sources_that_are_too_small(pool, candidates, split):
    """Without rows to monitor a task takes some of the training: what chooses a checkpoint would be trained on."""
    counts = {"dapo_math": pool, "math_500": candidates}
    message = message_of(make_splits, SMALL_PLAN, lambda name: invented(name, counts[name]), 0)
    assert message.startswith(
        f"The sources of 'dapo_math' leave no question for the split '{split}': give them more rows, and name the "
        "split of each where one file has several ("
    )


def test_one_file_for_two_splits(tmp_path):
    """A file that names no split is all of every split: the test of GSM8K would be what was trained on."""
    (tmp_path / "gsm8k.jsonl").write_text(file_text(make_hub.gsm8k("train")))
    message = message_of(make_splits, PLANS["gsm8k"], lambda name: read_source(name, tmp_path), 0)
    assert "leave no question for the split 'monitor'" in message and "GSM8K test and the pool: 70 of 70" in message


def test_a_plan_of_another_name():
    assert message_of(find_plan, "numina") == (
        "There is no data set 'numina' (did you mean 'numinamath'?): choose numinamath, dapo_math, math_train, gsm8k, "
        "mbpp."
    )


# The folder


@pytest.fixture
def math():
    return get_task("math")


def test_a_folder_has_the_splits_and_where_they_came_from(tmp_path, splits, math):
    prepared = prepare_source("dapo_math", math, tmp_path / "out", copies=HUB)
    assert prepared.splits.rows == splits["dapo_math"].rows
    saved = load_from_disk(str(tmp_path / "out"))
    for split, rows in splits["dapo_math"].rows.items():
        assert sorted(row[0]["content"] for row in saved[split]["prompt"]) == sorted(row["prompt"] for row in rows)
        assert sorted(saved[split]["cluster"]) == sorted(row["cluster"] for row in rows)
        assert set(saved[split]["set"]) == {row["set"] for row in rows}
    record = json.loads((tmp_path / "out" / "sources.json").read_text())
    assert (record["source"], record["seed"], record["pool"]) == ("dapo_math", 0, None)
    assert record["pool_sha256"] == POOL_SHA256["dapo_math"] and record["removed"] == splits["dapo_math"].removed
    assert read_pins(tmp_path / "out").keys() == set(PLANS["dapo_math"].sources)
    shown = str(prepared)
    assert "dapo_math: 80 of 80 rows are questions (none left out); a copy, DAPO-Math-17k-Processed.jsonl; " in shown
    assert (
        "math_500: 50 of 60 rows are questions (10 no integer); a copy, MATH-500.jsonl; no licence on its pa" in shown
    )
    assert f"sha256 of the pool:   {POOL_SHA256['dapo_math']}" in shown
    assert "MATH-500 and the probes: 12 of 50 texts are in the other set too" in shown


def test_a_second_preparation_takes_the_same_rows_or_leaves_the_folder(tmp_path, math):
    """A run that goes on would otherwise be trained on other rows than those it began with."""
    out, copies = tmp_path / "out", tmp_path / "copies"
    copies.mkdir()
    for title in ("DAPO-Math-17k-Processed.jsonl", "MATH-500.jsonl", "aime_2024.jsonl"):
        (copies / title).write_bytes((HUB / title).read_bytes())
    first = prepare_source("dapo_math", math, out, copies=copies)
    assert is_prepared("dapo_math", out, None)
    assert prepare_source("dapo_math", math, out, copies=HUB).report.rows_sha256 == first.report.rows_sha256
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    text = (copies / "MATH-500.jsonl").read_text()
    (copies / "MATH-500.jsonl").write_text(text.replace('"answer": "59"', '"answer": "60"', 1))
    assert "MATH-500 has other rows than when it was first read for this folder" in message_of(
        prepare_source, "dapo_math", math, out, copies=copies
    )
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert prepare_source("dapo_math", math, tmp_path / "new", copies=copies).report.rows_sha256


def test_a_folder_of_another_plan(tmp_path, math):
    assert not is_prepared("gsm8k", tmp_path / "out", None)
    prepare_source("gsm8k", math, tmp_path / "out", copies=HUB, pool=20)
    assert is_prepared("gsm8k", tmp_path / "out", 20)
    for name, pool, wanted in (("gsm8k", None, "source gsm8k, pool None"), ("mbpp", 20, "source mbpp, pool 20")):
        assert message_of(is_prepared, name, tmp_path / "out", pool) == (
            f"{tmp_path / 'out'} was prepared with source gsm8k, pool 20, and this run asks for {wanted}: give the run "
            "another NAME."
        )


def test_a_task_that_cannot_judge_the_answers(tmp_path, math):
    message = message_of(prepare_source, "mbpp", math, tmp_path / "out", copies=HUB)
    assert message == "Answers of 'mbpp' are judged by task 'code' and not by 'math': set TASK=code."
    assert not (tmp_path / "out").exists()


# The table and its fixtures


@pytest.mark.parametrize("name", SOURCES)
def test_the_table(name):
    """Each source says where it is documented and what its licence is, and its columns are in its fixture."""
    source = SOURCES[name]
    owner, _, title = source.hub.partition("/")
    assert owner and title == source.title and source.page == f"https://huggingface.co/datasets/{source.hub}"
    assert isinstance(source.licence, str) and source.licence == source.licence.strip()
    assert source.task in ("math", "code") and source.configurations
    copy = find_copy(source, HUB)
    assert copy is not None and not any(title.endswith(ending) for ending in READERS)
    for row in open_source(copy).rows():
        assert set(source.columns) <= set(row.values), row.place


def test_every_source_is_in_a_plan():
    planned = {name for plan in PLANS.values() for name in plan.sources}
    assert planned == set(SOURCES)
    assert all(SOURCES[name].task == plan.task for plan in PLANS.values() for name in plan.sources)


def test_the_files_are_those_that_are_made():
    """A file that was changed by hand would be undone the next time that the others are written."""
    made = {name: file_text(rows) for name, rows in make_hub.files().items()}
    written = {path.relative_to(HUB).as_posix(): path.read_text() for path in HUB.rglob("*") if path.is_file()}
    assert written.pop("mbpp.jsonl"), "its programs are written by hand"
    assert written == made
