"""What README says of rewards runs as it stands there."""

import re

from helpers.rewards.registry import reward_spec
from helpers.runtime import ROOT


def test_a_reward_of_ones_own_is_registered_and_linted(capsys):
    section = (ROOT / "README.md").read_text().split("## Tasks and rewards")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    scope = {"__name__": "readme"}
    for block in blocks:
        exec(block, scope)
    spec = reward_spec("ends_with_answer")
    assert spec.reward is scope["ends_with_answer"] and spec.summary == "Pay 1 for a text that ends with the answer."
    printed = capsys.readouterr().out
    assert re.search(r"^honest answer +16 of 16 .* is not paid", printed, re.M), printed
