"""The data sets of the hub that the project can read. None comes with it, and each keeps its own licence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from helpers.gallery.sources.problems import (
    answered_question,
    dapo_question,
    gsm8k_question,
    math_question,
    numinamath_question,
)
from helpers.gallery.sources.programs import mbpp_question
from helpers.gallery.sources.questions import Question

_CARD = "https://huggingface.co/datasets/"
_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip


@dataclass(frozen=True)
class DataSource:
    """One split of a data set of the hub.

    hub: the id of the data set; its page there documents the columns. split: the name of the split there. columns:
    those that are read. question: f(a row) -> `Question`; it raises `Unusable`. task: whose rewards judge the answers.
    licence: as its page says; "" where it says nothing. configurations: those that are read, one after the other.
    """

    hub: str
    split: str
    columns: tuple[str, ...]
    question: Callable[[Mapping], Question]
    task: str
    licence: str
    configurations: tuple[str, ...] = ("",)

    @property
    def title(self) -> str:
        """The name of the data set without that of its owner; a local copy is called so."""
        return self.hub.partition("/")[2]

    @property
    def page(self) -> str:
        return _CARD + self.hub


_NUMINAMATH_COLUMNS = (
    "problem", "answer", "question_type", "problem_is_valid", "solution_is_valid", "source", "synthetic",
)  # fmt: skip
_MATH_COLUMNS = ("problem", "level", "solution")
_MBPP_COLUMNS = ("text", "code", "test_list", "test_setup_code", "challenge_test_list")

SOURCES = {
    "numinamath": DataSource(
        "AI-MO/NuminaMath-1.5", "train", _NUMINAMATH_COLUMNS, numinamath_question, "math", "Apache-2.0"
    ),
    "dapo_math": DataSource(
        "open-r1/DAPO-Math-17k-Processed", "train", ("prompt", "solution"), dapo_question, "math",
        "Apache-2.0 (of the set that it was made from)", ("en",),
    ),
    "math_train": DataSource(
        "EleutherAI/hendrycks_math", "train", _MATH_COLUMNS, math_question, "math", "MIT", _SUBJECTS
    ),
    "math_test": DataSource(
        "EleutherAI/hendrycks_math", "test", _MATH_COLUMNS, math_question, "math", "MIT", _SUBJECTS
    ),
    "math_500": DataSource("HuggingFaceH4/MATH-500", "test", ("problem", "answer"), answered_question, "math", ""),
    "aime_2024": DataSource("HuggingFaceH4/aime_2024", "train", ("problem", "answer"), answered_question, "math", ""),
    "apex": DataSource(
        "MathArena/apex-shortlist", "train", ("problem", "answer"), answered_question, "math", "CC BY-NC-SA 4.0"
    ),
    "gsm8k": DataSource("openai/gsm8k", "train", ("question", "answer"), gsm8k_question, "math", "MIT", ("main",)),
    "gsm8k_test": DataSource("openai/gsm8k", "test", ("question", "answer"), gsm8k_question, "math", "MIT", ("main",)),
    "mbpp": DataSource(
        "google-research-datasets/mbpp", "train", _MBPP_COLUMNS, mbpp_question, "code", "CC BY 4.0", ("full",)
    ),
    "mbpp_test": DataSource(
        "google-research-datasets/mbpp", "test", _MBPP_COLUMNS, mbpp_question, "code", "CC BY 4.0", ("full",)
    ),
}  # fmt: skip
