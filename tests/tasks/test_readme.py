"""The walk of tasks/README.md: a new task with its own grader, in one file."""

import re
import sys

from helpers.lint import lint_task
from helpers.profiles import get_profile
from helpers.rollout.completion import Completion
from helpers.runtime import ROOT
from helpers.tasks.choosing import choose_rewards, choose_task
from helpers.tasks.grading import grade_answers
from helpers.tasks.validation import validate_data


def test_the_walk_of_a_new_task(tmp_path, monkeypatch):
    page = (ROOT / "helpers/tasks/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "sums.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    assert "TASK=sums:Sums" in page
    task = choose_task("sums:Sums", get_profile("tiny"))
    found = validate_data(task)
    assert "No prompt is in two splits" in found[0] and "48 reference answers are graded as correct" in found[1]
    rewards, weights = choose_rewards("", task)
    assert weights == [1.0] and lint_task(task, task.dataset("train", 8), rewards, weights).pays
    assert len(set(task.dataset("confirm", 60)["cluster"])) == 6, "with fewer wordings no difference is significant"
    row = task.dataset("train", 1)[0]
    right, wrong = grade_answers(task, [row, row], [Completion.of_text(text) for text in (row["answer"], "none")])
    assert right.correct and not wrong.correct
