"""The lint on graders of reasoning-gym that run the answer as code: its finding must not rest on our own examples."""

import pytest

reasoning_gym = pytest.importorskip(
    "reasoning_gym", reason="reasoning-gym is not installed here: make test-verifiers sets up an environment with it."
)

from helpers.lint.rewards import lint_rewards  # noqa: E402

EXECUTE = (
    "binary_matrix countdown intermediate_integration n_queens polynomial_multiplication puzzle24 simple_integration "
    "spiral_matrix string_insertion"
).split()
#: Graders that compare texts or numbers.
COMPARE = "basic_arithmetic chain_sum leg_counting".split()
ROWS = 3


def lint_grader(name):
    """Lint the grader of one of the package's data sets on its own rows and answers."""
    dataset = reasoning_gym.create_dataset(name, size=ROWS, seed=0)
    rows = [{"prompt": dataset[number]["question"], "number": number} for number in range(ROWS)]
    answers = [dataset[number]["answer"] for number in range(ROWS)]

    def grader(completions, number, **_):
        return [
            float(dataset.score_answer(completion[-1]["content"], dataset[place]))
            for completion, place in zip(completions, number)
        ]

    return lint_rewards(grader, rows, answers)


@pytest.mark.parametrize("name", EXECUTE)
def test_a_grader_that_runs_the_answer_is_reported(name):
    report = lint_grader(name)
    assert report.pays[0].mean == 1.0, "an honest answer is paid in full"
    assert any(finding.problem == "'grader' RAN it" for finding in report.findings), str(report)


@pytest.mark.parametrize("name", COMPARE)
def test_a_grader_that_only_compares_is_not(name):
    report = lint_grader(name)
    assert report.pays[0].mean == 1.0
    assert not any("RAN" in finding.problem for finding in report.findings), str(report)
