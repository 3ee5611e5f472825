"""The problems of the math task: right answers, depths, and splits that share nothing."""

from collections import Counter

import pytest

from helpers import UserError, get_task
from helpers.gallery.math.stories import LARGEST, PROBE_STORIES
from helpers.tasks.split import is_heldout
from tests.gallery.math.solvers import solve

DEPTHS = (2, 3, 6, 10)


def text_of(row):
    return row["prompt"][0]["content"]


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_answer_is_found_again_from_the_text_alone(depth):
    """A wrong right answer teaches the model to be wrong."""
    task = get_task("math", depth=depth)
    for split in task.splits:
        for row in task.dataset(split, 500, seed=depth):
            assert solve(text_of(row)) == int(row["answer"]), text_of(row)
            assert 0 < int(row["answer"]) <= LARGEST


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_problem_takes_as_many_steps_as_asked(depth):
    task = get_task("math", depth=depth)
    for split in ("train", "monitor", "confirm"):
        steps = set(range((depth + 1) // 2, depth + 1))
        if depth == 2:  # where what decides is another kind of problem
            steps = {2} if split == "confirm" else {1}
        assert set(task.dataset(split, 200)["depth"]) == steps
    assert {depth + 1, depth + 2} <= set(task.dataset("probe", 200)["depth"])


@pytest.mark.parametrize("depth", DEPTHS)
def test_splits_share_no_prompt_no_confirm_wording_and_no_probe_problem(depth):
    """A probe that training has seen measures memory."""
    task = get_task("math", depth=depth)
    rows = {split: task.dataset(split, 300, seed=5).to_list() for split in task.splits}
    ids = [row["id"] for found in rows.values() for row in found]
    assert len(set(ids)) == len(ids)
    clusters = {split: {row["cluster"] for row in found} for split, found in rows.items()}
    assert clusters["train"] == clusters["monitor"] and len(clusters["confirm"]) >= 12
    for split in ("train", "confirm"):
        assert not clusters[split] & clusters["probe"]
    assert not clusters["train"] & clusters["confirm"]
    assert not any(is_heldout(text_of(row)) for row in rows["train"])
    for row in rows["probe"]:
        is_new_story = row["cluster"].startswith(tuple(PROBE_STORIES))
        assert is_new_story or row["depth"] > depth


def test_no_answer_is_right_everywhere():
    """A constant answer must not be worth learning."""
    for depth in DEPTHS:
        answers = get_task("math", depth=depth).dataset("train", 2000)["answer"]
        _, most = Counter(answers).most_common(1)[0]
        assert most / len(answers) < 0.15


@pytest.mark.parametrize("depth", [0, 1, 11, 2.0, "6", None])
def test_a_depth_that_there_is_not_is_one_sentence(depth):
    with pytest.raises(UserError, match="depth must be a whole number from 2 to 10"):
        get_task("math", depth=depth)


def test_groups_are_named_by_their_sentences():
    task = get_task("math", depth=6)
    for split in task.splits:
        for row in task.dataset(split, 60):
            assert "{start}" in task.describe_group("cluster", row["cluster"])
            assert task.describe_group("depth", row["depth"]) == f"{row['depth']} steps"
