"""Contracts: how a program gets its operands and gives its result."""

import statistics

import pytest

from helpers import MatmulJudge, UserError
from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.speed import BASELINE

#: contract -> what to put around a product of lists of rows, so that it keeps the contract
ADAPTED = {
    "rows": BASELINE,
    "a_columns": BASELINE.replace("    n, k, m", "    A = list(zip(*A))\n    n, k, m"),
    "b_columns": BASELINE.replace("    n, k, m", "    B = list(zip(*B))\n    n, k, m"),
    "result_columns": BASELINE.replace("return C", "return list(zip(*C))"),
    "a_result_columns": BASELINE.replace("    n, k, m", "    A = list(zip(*A))\n    n, k, m").replace(
        "return C", "return list(zip(*C))"
    ),
}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_program_is_right_under_its_own_contract_only(matmul_judge, contract):
    """One fixed answer would else solve every prompt."""
    others = [name for name in CONTRACTS if name != contract]
    assert matmul_judge.judge(ADAPTED[contract], contract).correct
    verdicts = matmul_judge.judge_many([ADAPTED[contract]] * len(others), others)
    assert [verdict.judged and verdict.correct for verdict in verdicts] == [False] * len(others)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_speed_is_compared_for_the_same_product(matmul_judge, contract):
    """A transposition is one pass over 64 x 64 numbers beside 64 of them: no contract may pay for itself."""
    programs = [BASELINE, ADAPTED[contract]] * 8
    verdicts = matmul_judge.judge_many(programs, ["rows", contract] * 8)
    baseline = statistics.median(verdict.speedup for verdict in verdicts[::2])
    adapted = statistics.median(verdict.speedup for verdict in verdicts[1::2])
    assert 0.75 < adapted / baseline < 1.33


def test_the_held_out_check_keeps_the_contract(matmul_judge):
    names = list(CONTRACTS)
    programs = [ADAPTED[name] for name in names]
    assert matmul_judge.check_many(programs, names) == [1.0] * 5
    assert matmul_judge.check_many(programs, names[1:] + names[:1]) == [0.0] * 5


def test_behaviour_is_what_a_program_does(matmul_judge):
    """Equal for two ways to the same results, right or wrong, and for the same failure; another for another."""
    minus = BASELINE.replace("+=", "-=")
    programs = [
        BASELINE,
        "def matmul(A, B):\n    return [[sum(x * y for x, y in zip(r, c)) for c in zip(*B)] for r in A]",
        minus,
        minus.replace("s = 0.0", "s = -0.0"),
        "def matmul(A, B):\n    return nothing",
        "def matmul(A, B):\n    x = 1\n    return nowhere",
        "def matmul(A, B):\n    return [[sum(A)]]",
        "import numpy\ndef matmul(A, B):\n    return numpy.dot(A, B)",
        BASELINE.replace("return C", "return C if n < 5 else nothing"),
        minus.replace("return C", "return C if n < 5 else nothing"),
    ]
    found = matmul_judge.behaviours(programs)
    assert found[0] == found[1] and found[2] == found[3] and found[4] == found[5]
    assert len(set(found)) == 7
    assert found == matmul_judge.behaviours(programs)  # the inputs are fixed
    assert found[4] == "NameError" and found[7] == "numpy is not pure Python"
    assert found[8].startswith("NameError after") and found[9].startswith("NameError after")
    assert matmul_judge.behaviours([BASELINE], ["b_columns"]) != found[:1]


def test_mistakes_of_a_caller_are_sentences():
    with MatmulJudge(workers=1) as judge:
        with pytest.raises(UserError, match=r"no contract 'row' \(did you mean 'rows'\?\): choose rows, a_columns"):
            judge.judge_many([BASELINE], ["row"])
        with pytest.raises(UserError, match="2 programs and 1 requirements: give one for each"):
            judge.judge_many([BASELINE] * 2, ["rows"])
