"""The base of the tasks that generate their prompts."""

import random
from abc import abstractmethod
from collections.abc import Mapping

from helpers.tasks.drawing import draw_dataset
from helpers.tasks.split import PROBE, SPLITS, check_split
from helpers.tasks.task import Row, Task, Value
from helpers.tasks.wording import Wordings, wording_names, wording_sentence


class GeneratedTask(Task):
    """A task that generates its prompts in several wordings, and others for the split "probe".

    wordings: those of each thing that a prompt may ask, by its name. probe_wordings: the same for the probe, of what no
    other split asks.

    To write one, set these two and implement `draw_row` and `grade`.
    """

    wordings: Mapping[str, Wordings]
    probe_wordings: Mapping[str, Wordings] = {}
    splits = (*SPLITS, PROBE)

    @abstractmethod
    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        """Draw a row of the data set. wording: its name, such as "countdown-3", which `parse_wording_name` reads."""

    def dataset(self, split: str = "train", size: int = 1000, seed: int = 0):
        """Draw a `datasets.Dataset` of `size` different prompts.

        Raises UserError for an unknown split, and as `draw_dataset` does.
        """
        check_split(split, self.splits)
        return draw_dataset(self.name, self.wordings_of(split), self.draw_row, split, size, seed)

    def wordings_of(self, split: str) -> list[str]:
        """Return the names of the wordings of a split. Those of "confirm" are in no other."""
        if split == PROBE:
            return wording_names(self.probe_wordings, "all")
        return wording_names(self.wordings, "unseen" if split == "confirm" else "seen")

    def describe_group(self, column: str, value: Value) -> str:
        """Return the sentence of a cluster, which is a wording, and the value of any other column."""
        if column != "cluster":
            return str(value)
        return wording_sentence({**self.wordings, **self.probe_wordings}, value)
