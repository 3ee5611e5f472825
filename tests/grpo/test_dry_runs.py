"""A run tried out before it is started: what it says of the groups. What it leaves alone: test_evaluate.py."""

import pytest

from helpers import dry_run
from tests.grpo.small import trainer_in


def only_the_first_group(prompts, completions, **_):
    """Different rewards in the first of the groups of four, equal ones in the others."""
    return [float(place == 0) for place in range(len(completions))]


def only_the_last_two_groups(prompts, completions, **_):
    return [float(place in (8, 12)) for place in range(len(completions))]


@pytest.fixture
def prompts(task):
    return task.dataset("train", 12)


@pytest.mark.parametrize(
    ("reward", "share", "is_advised"),
    [(only_the_first_group, "75%", True), (only_the_last_two_groups, "50%", False)],
)
def test_what_to_do_where_most_groups_teach_nothing(tmp_path, prompts, capsys, reward, share, is_advised):
    """A number alone was read over, and the run it warned of learnt nothing for hours."""
    dry_run(trainer_in(tmp_path, prompts, reward=reward, gradient_accumulation_steps=4))
    printed = capsys.readouterr().out
    assert f"; {share} of the groups teach nothing; " in printed
    advice = [line for line in printed.splitlines() if "choose easier or harder prompts" in line]
    assert len(advice) == is_advised
    for line in advice:
        assert f"{share} of the groups" in line and "num_generations" in line and "temperature" in line
