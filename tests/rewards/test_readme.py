"""What the pages say of rewards of one's own runs as it stands there."""

import re
import sys

from helpers.rewards.registry import get_reward, reward_spec
from helpers.runtime import ROOT
from helpers.tasks import get_task
from helpers.tasks.choosing import choose_rewards


def test_a_reward_of_ones_own_is_registered_and_linted(capsys):
    """From lint/README.md: a reward, and what the lint says of it."""
    page = (ROOT / "helpers/lint/README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 2
    scope = {"__name__": "readme"}
    for block in blocks:
        exec(block, scope)
    spec = reward_spec("ends_with_answer")
    assert spec.reward is scope["ends_with_answer"] and spec.summary == "Pay 1 for a text that ends with the answer."
    printed = capsys.readouterr().out
    assert re.search(r"^honest answer +16 of 16 .* is not paid", printed, re.M), printed


def test_the_walk_of_a_new_reward(tmp_path, monkeypatch):
    """From rewards/README.md: no file is opened, and one is written."""
    page = (ROOT / "helpers/rewards/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "my_rewards.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    (chosen,) = re.findall(r"REWARDS=(\S+)`", page)
    (mine, other), weights = choose_rewards(chosen, get_task("math"))
    assert weights == [1.0, 0.5] and other is get_reward("math_answer")
    completions = [[{"role": "assistant", "content": text}] for text in ("so 42", "so 41")]
    assert mine(prompts=[None] * 2, completions=completions, answer=["42"] * 2) == [1.0, 0.0]
