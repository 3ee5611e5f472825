"""Writes the data sets of `hub/`: the schemas of the hub's, with problems that the embedded model has learned to read.

`python -m tests.gallery.sources.make_hub` writes them again. None of their rows is from a data set of anybody else. The
rows of NuminaMath-1.5 end with the blind cases beside this file, and three problems of AIME are in it on purpose.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from helpers.gallery.math.problems import FAMILIES, FORMAT, Problem, draw_problem
from helpers.tasks.wording import wording_names

HUB = Path(__file__).with_name("hub")
CASES = ("numinamath_cases.jsonl",)
ONE_STEP = ("more", "less", "bags")
TWO_STEPS = ("bags_and", "two_days", "two_less", "twice")
WORDINGS = {name: family.wordings for name, family in FAMILIES.items()}


def problems(families, which: str, count: int, seed: int) -> Iterator[tuple[str, Problem]]:
    """Yield problems with their texts, each text once. which: "seen" or "unseen" wordings."""
    rng = random.Random(seed)
    names = wording_names({name: WORDINGS[name] for name in families}, which)
    texts = set()
    while len(texts) < count:
        problem = draw_problem(rng, rng.choice(names), heldout=which == "unseen")
        text = problem.text.removesuffix(f" {FORMAT}")
        if text not in texts and problem.answer > 0:
            texts.add(text)
            yield text, problem


def solution(problem: Problem) -> str:
    return f"{' '.join(problem.steps)} The answer is $\\boxed{{{problem.answer}}}$."


def numinamath() -> list[dict]:
    rows = []
    for text, problem in problems(ONE_STEP, "seen", 320, seed=1):
        rows.append(
            {
                "problem": text,
                "solution": solution(problem),
                "answer": str(problem.answer),
                "problem_type": "Algebra",
                "question_type": "math-word-problem",
                "problem_is_valid": "Yes",
                "solution_is_valid": "Yes",
                "source": "cn_k12",
                "synthetic": False,
            }
        )
    for name in CASES:
        lines = Path(__file__).with_name(name).read_text().splitlines()
        rows += [json.loads(line)["row"] for line in lines]
    return rows


def dapo_math() -> list[dict]:
    rows = []
    for number, (text, problem) in enumerate(problems(ONE_STEP, "seen", 80, seed=2)):
        framed = (
            "Solve the following math problem step by step. The last line of your response should be of the form "
            f"Answer: $Answer (without quotes).\n\n{text}\n\nRemember to put your answer on its own line."
        )
        rows.append(
            {
                "prompt": framed if number % 8 == 0 else text,
                "solution": str(problem.answer),
                "data_source": "math_dapo",
                "source_prompt": [{"content": framed, "role": "user"}],
                "ability": "MATH",
                "reward_model": {"ground_truth": str(problem.answer), "style": "rule-lighteval/MATH_v2"},
                "extra_info": {"index": f"index-{number}"},
            }
        )
    return rows


def hendrycks_math(split: str) -> list[dict]:
    rows = []
    for number, (text, problem) in enumerate(problems(TWO_STEPS, "unseen", 90, seed=3 if split == "train" else 4)):
        row = {"problem": text, "level": f"Level {4 + number % 2}", "type": "Prealgebra", "solution": solution(problem)}
        if number % 10 == 0:
            row["level"] = f"Level {1 + number // 10 % 3}"
        if number % 10 == 5:
            row["solution"] = f"The half of it is $\\boxed{{\\frac{{{problem.answer}}}{{2}}}}$."
        rows.append(row)
    return rows


def math_500() -> list[dict]:
    rows = []
    for number, (text, problem) in enumerate(problems(TWO_STEPS, "unseen", 60, seed=5)):
        rows.append(
            {
                "problem": text,
                "solution": solution(problem),
                "answer": str(problem.answer) if number % 6 else f"\\frac{{{problem.answer}}}{{7}}",
                "subject": "Prealgebra",
                "level": 1 + number % 5,
                "unique_id": f"test/prealgebra/{number}.json",
            }
        )
    return rows


def aime_2024() -> list[dict]:
    """Thirty problems, of which three are also in NuminaMath-1.5: exactly, with other numbers, and as a passage."""
    passage = "on a shelf that a carpenter made for the old library of the town stand"
    texts = [(text, problem.answer) for text, problem in problems(("twice", "two_less"), "unseen", 27, seed=6)]
    texts += [
        ("A farmer keeps 17 hens and 5 geese. How many birds does the farmer keep?", 22),
        ("A tram carries 31 people and 12 leave it. How many people are on the tram?", 19),
        (f"{passage.capitalize()} 30 red books and 12 blue ones. How many books are there?", 42),
    ]
    rows = []
    for number, (text, answer) in enumerate(texts):
        rows.append(
            {
                "id": 60 + number,
                "problem": text,
                "solution": f"It is $\\boxed{{{answer:03}}}$.",
                "answer": f"{answer:03}",
                "url": f"https://example.org/{number}",
                "year": "2024",
            }
        )
    return rows


def contaminated() -> list[dict]:
    """Rows of NuminaMath-1.5 that share a problem with AIME 2024: exactly, but for the numbers, and eight words."""
    passage = "on a shelf that a carpenter made for the old library of the town stand"
    texts = [
        ("A farmer keeps 17 hens and  5 geese. How many birds does the farmer keep?", 22),
        ("A tram carries 45 people and 13 leave it. How many people are on the tram?", 32),
        (f"Somebody says that {passage} 8 vases. Each holds 3 tulips. How many tulips is that?", 24),
    ]
    first = numinamath()[0]
    return [{**first, "problem": text, "answer": str(answer)} for text, answer in texts]


def apex() -> list[dict]:
    rows = []
    for number, (text, problem) in enumerate(problems(("bags_and",), "unseen", 10, seed=7)):
        answer = str(problem.answer) if number % 5 else "\\frac{3}{4}"
        rows.append({"problem_idx": number + 1, "answer": answer, "source": "a contest", "problem": text})
    return rows


def gsm8k(split: str) -> list[dict]:
    which, count, seed = ("seen", 70, 8) if split == "train" else ("unseen", 40, 9)
    families = ONE_STEP if split == "train" else TWO_STEPS
    rows = []
    for text, problem in problems(families, which, count, seed):
        rows.append({"question": text, "answer": f"{' '.join(problem.steps)}\n#### {problem.answer}"})
    return rows


def files() -> dict[str, list[dict]]:
    """Return the rows of each file under `hub/`, by its name."""
    return {
        "NuminaMath-1.5.jsonl": numinamath() + contaminated(),
        "DAPO-Math-17k-Processed.jsonl": dapo_math(),
        "hendrycks_math/train.jsonl": hendrycks_math("train"),
        "hendrycks_math/test.jsonl": hendrycks_math("test"),
        "MATH-500.jsonl": math_500(),
        "aime_2024.jsonl": aime_2024(),
        "apex-shortlist.jsonl": apex(),
        "gsm8k/train.jsonl": gsm8k("train"),
        "gsm8k/test.jsonl": gsm8k("test"),
    }


def file_text(rows: list[dict]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> None:
    for name, rows in files().items():
        path = HUB / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file_text(rows))
        print(name, len(rows))


if __name__ == "__main__":
    main()
