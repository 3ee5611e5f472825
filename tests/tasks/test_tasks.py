import math
import random
import re
from collections import Counter
from itertools import product

import pytest

from helpers import UserError, get_task
from helpers.gallery.math.problems import FAMILIES, TWO_STEPS, are_heldout, draw_problem
from helpers.tasks.matmul.contracts import COMBINATION, CONTRACTS, HELDOUT_CONTRACT, PRETRAINED, TRAINED
from helpers.tasks.matmul.names import DEFAULT, Signature, draw_signature, parse_signature
from helpers.tasks.matmul.programs import CHEATS, STYLES, FaultRates, draw_program, misconceptions_of
from helpers.tasks.matmul.prompts import WISHES, draw_prompt
from helpers.tasks.matmul.statements import statements
from helpers.tasks.split import is_heldout
from helpers.tasks.wording import parse_wording_name
from helpers.tiny.corpus import FAULTS, MATH_WORDINGS, draw_practice
from tests.tasks.nameless import nameless

COLUMNS = {"prompt", "answer", "task", "id", "cluster"}


def texts(dataset):
    return {prompt[0]["content"] for prompt in dataset["prompt"]}


@pytest.mark.parametrize("name", ["matmul", "math"])
def test_splits_share_no_prompt_and_are_repeatable(name):
    train, monitor, confirm = (get_task(name).dataset(split, 200, seed=1) for split in ("train", "monitor", "confirm"))
    assert len(texts(train)) == len(texts(monitor)) == len(texts(confirm)) == 200
    assert (
        not texts(train) & texts(monitor) and not texts(train) & texts(confirm) and not texts(monitor) & texts(confirm)
    )
    assert all(map(is_heldout, texts(monitor) | texts(confirm))) and not any(map(is_heldout, texts(train)))
    assert get_task(name).dataset("train", 200, seed=1).to_list() == train.to_list()
    assert get_task(name).dataset("train", 200, seed=3).to_list() != train.to_list()
    assert set(train.column_names) == COLUMNS | ({"contract", "signature"} if name == "matmul" else {"depth", "unit"})
    assert len(set(train["id"])) == 200


@pytest.mark.parametrize("name", ["matmul", "math"])
def test_the_confirm_prompts_ask_for_something_else(name):
    """At least twelve wordings, equally frequent, of meanings that reinforcement learning never asks for."""
    task = get_task(name)
    clusters = {split: Counter(task.dataset(split, 240)["cluster"]) for split in ("train", "monitor", "confirm")}
    assert len(clusters["confirm"]) >= 16
    if name == "math":
        for counts in clusters.values():
            assert max(counts.values()) - min(counts.values()) <= 1
    mark = ":" if name == "matmul" else "-"
    meanings = {split: {cluster.partition(mark)[0] for cluster in counts} for split, counts in clusters.items()}
    assert meanings["monitor"] == meanings["train"] and not meanings["confirm"] & meanings["train"]
    assert set(clusters["monitor"]) == set(clusters["train"])


def test_each_split_of_matmul_has_its_contracts():
    contracts = {split: set(get_task("matmul").dataset(split, 120)["contract"]) for split in get_task("matmul").splits}
    assert contracts["train"] == contracts["monitor"] == set(TRAINED)
    assert contracts["confirm"] == {HELDOUT_CONTRACT} and contracts["probe"] == {*TRAINED, COMBINATION}
    assert set(PRETRAINED) | {COMBINATION} == set(CONTRACTS)
    for split in get_task("matmul").splits:
        counts = Counter(get_task("matmul").dataset(split, 240)["contract"]).values()
        assert max(counts) - min(counts) <= 1


def test_names_that_decide_are_in_no_training():
    """Neither the function's name nor the pair of arguments in its order; their parts are."""
    task = get_task("matmul")
    names = {}
    for split in task.splits:
        names[split] = list(map(parse_signature, task.dataset(split, 400, seed=2)["signature"]))
    assert not any(signature.is_heldout for split in ("train", "monitor") for signature in names[split])
    assert all(signature.is_new for split in ("confirm", "probe") for signature in names[split])
    assert 0.05 < names["train"].count(DEFAULT) / 400 < 0.2
    assert len(set(names["confirm"])) > 300


def test_numbers_that_decide_are_in_no_training_prompt():
    """In whatever order. There are more than 5,000 problems beside their wordings."""
    task = get_task("math")

    def numbers_of(split, size):
        return {
            tuple(sorted(int(word) for word in re.findall(r"\d+", row["prompt"][0]["content"])))
            for row in task.dataset(split, size, seed=3)
        }

    trained = numbers_of("train", 2000)
    assert not any(map(are_heldout, trained))
    for split in ("monitor", "confirm"):
        decisive = numbers_of(split, 300)
        assert all(map(are_heldout, decisive)) and not decisive & trained
    sizes = [math.prod(high - low + 1 for low, high in family.ranges) for family in FAMILIES.values()]
    assert sum(sizes) >= 5000


def test_math_trains_on_one_step_and_decides_on_two():
    steps = {split: set(get_task("math").dataset(split, 120)["depth"]) for split in ("train", "monitor", "confirm")}
    assert steps == {"train": {1}, "monitor": {1}, "confirm": {2}}
    deeper = get_task("math", depth=4)
    assert set(deeper.dataset("train", 120)["depth"]) == set(deeper.dataset("confirm", 120)["depth"])
    assert {"bags_and", "two_days", "two_less", "twice"} == set(TWO_STEPS)


def test_statements_are_of_one_split_and_of_one_contract():
    stated = {contract: statements(contract) for contract in CONTRACTS}
    sentences = [sentence for wordings in stated.values() for sentence in wordings.all]
    assert len(set(sentences)) == len(sentences)
    for wordings in stated.values():
        assert len(wordings.unseen) >= 40 and len(wordings.seen) > 4 * len(wordings.unseen)
        assert not set(wordings.seen) & set(wordings.unseen)


def test_a_statement_says_which_matrix_has_columns():
    """Solved from the text: each matrix stands nearest to its own word, or is the one that differs."""
    text = "Given {A} in columns and {B} in rows, give the product in rows."
    assert text in statements("a_columns").all
    assert text.replace("columns", "rows") in statements("rows").all
    assert text.replace("product in rows", "product in columns") in statements("a_result_columns").all
    assert "Only the result is stored by columns, all else by rows." in statements("result_columns").all


def test_every_prompt_states_name_arguments_contract_and_form():
    """A model cannot be blamed for what it was not told."""
    for row in get_task("matmul").dataset("probe", 64):
        text = row["prompt"][0]["content"]
        signature = parse_signature(row["signature"])
        names = {"A": signature.first, "B": signature.second}
        stated = {
            contract
            for contract in CONTRACTS
            if any(f" {sentence.format(**names)} " in text for sentence in statements(contract).all)
        }
        assert stated == {row["contract"]} and row["signature"] in text and "Python code block" in text
    assert r"\boxed{}" in get_task("math").dataset("train", 1)[0]["prompt"][0]["content"]


def test_a_program_must_have_the_names_that_were_asked_for(task):
    """Of the function and of both arguments, in their order."""
    rows = get_task("matmul").dataset("confirm", 4, seed=5)
    fenced = [task.reference_answer(row) for row in rows]
    columns = {"contract": rows["contract"], "signature": rows["signature"]}
    assert all(verdict.correct for verdict in task.verdicts(fenced, **columns))
    first = parse_signature(rows[0]["signature"])
    others = (
        Signature("another", first.first, first.second),
        Signature(first.function, "other", first.second),
        Signature(first.function, first.second, first.first),  # the operands change places
    )
    program = task.reference_answer(rows[0])
    for asked in others:
        (verdict,) = task.verdicts([program], contract=rows["contract"][:1], signature=[str(asked)])
        assert "defines the function as it was asked for" in verdict.reason, verdict
    (verdict,) = task.verdicts([program], contract=rows["contract"][:1])
    assert "does not define a function matmul" in verdict.reason


HONEST = "def matmul(A, B):\n    return [[sum(x * y for x, y in zip(r, c)) for c in zip(*B)] for r in A]\n"
KEEPER = """class Keeper:
    def __del__(self):
        globals()['product'] = plain
plain = matmul
matmul = Keeper()
"""
ANY_NAME = """class Any(dict):
    def __missing__(self, name):
        return matmul
__builtins__ = Any(vars(__builtins__))
"""


def verdict_on(task, program, signature="product(P, Q)"):
    (verdict,) = task.verdicts([f"```python\n{program}\n```"], contract=["rows"], signature=[signature])
    return verdict


@pytest.mark.parametrize(
    "program",
    [
        # no such function at first, but one that comes into being
        HONEST + KEEPER,
        HONEST + ANY_NAME,
        HONEST + "product = matmul",
        # other arguments
        HONEST + "def product(**names):\n    return matmul(*names.values())",
        HONEST + "def product(*both):\n    return matmul(*both)",
        HONEST + "def product(Q, P):\n    return matmul(Q, P)",
        HONEST + "def product(*, P, Q):\n    return matmul(P, Q)",
        HONEST + "def product(P, Q, R):\n    return matmul(P, Q)",
        HONEST + "def product(A, B):\n    return matmul(A, B)",
        # the right one is defined anew
        HONEST + "def product(P, Q):\n    return matmul(P, Q)\ndef product(P, Q):\n    return 1",
    ],
)
def test_another_function_or_other_arguments_are_no_answer(task, program):
    assert not verdict_on(task, program).correct


@pytest.mark.parametrize(
    ("program", "signature"),
    [
        (HONEST + "def product(P, Q):\n    return matmul(P, Q)", "product(P, Q)"),
        (HONEST + "def product(P, Q, *, fast=True):\n    return matmul(P, Q)", "product(P, Q)"),
        (HONEST.replace("A", "X"), "matmul(X, B)"),
        (HONEST, "matmul(A, B)"),
    ],
)
def test_helpers_and_further_arguments_with_a_default_are_allowed(task, program, signature):
    """A large model may well call its helper `matmul`."""
    assert verdict_on(task, program, signature).correct


TAILS = (
    "",
    "@lambda _: plain",
    "# asked for: matmul",
    '"""',
    "if False:\n    pass",
    "x = (",
    "class C:\n    pass",
    "\\",
)


@pytest.mark.parametrize("tail", TAILS)
def test_a_program_cannot_hide_from_its_name(task, tail):
    """Whatever a program leaves open at its end, the name is asked for behind it."""
    assert not verdict_on(task, f"{HONEST}plain = matmul\ndef product(P, Q):\n    return 1\n{tail}").correct


@pytest.mark.parametrize("text", ["matmul", "matmul(A)", "matmul(A, A)", "f(A, f)", "1f(A, B)", "def(A, B)", 3, None])
def test_a_signature_of_another_form_is_a_sentence(text):
    with pytest.raises(UserError, match=r"The column 'signature' holds .*write it like matmul\(A, B\)"):
        parse_signature(text)


def test_names_are_filled_in_where_they_stand():
    signature = Signature("dot_list", "one", "M")
    program = "def matmul(A, B):\n    Bt = zip(*B)\n    return np.matmul(A, B)"
    assert signature.rename(program) == "def dot_list(one, M):\n    Bt = zip(*M)\n    return np.matmul(one, M)"
    swapped = Signature("matmul", "B", "A")
    assert swapped.rename("A[B]") == "B[A]"
    rng = random.Random(0)
    assert str(draw_signature(rng, new=True)) != str(DEFAULT) == "matmul(A, B)"


def test_answers_of_matmul_are_correct_programs(matmul_judge):
    rows = get_task("matmul").dataset("monitor", 40)
    programs = [parse_signature(row["signature"]).bind(row["answer"]) for row in rows]
    assert None not in programs
    assert all(is_heldout(nameless(answer)) for answer in rows["answer"])
    assert all(verdict.correct for verdict in matmul_judge.judge_many(programs, rows["contract"]))


def test_no_answer_solves_more_than_its_contract(matmul_judge):
    """One fixed program must not solve the set: here each is asked under every contract."""
    rows = get_task("matmul").dataset("monitor", 8)
    answers = [parse_signature(row["signature"]).bind(row["answer"]) for row in rows]
    pairs = list(product(answers, CONTRACTS))
    verdicts = matmul_judge.judge_many([source for source, _ in pairs], [contract for _, contract in pairs])
    count = len(CONTRACTS)
    solved = [sum(v.correct for v in verdicts[n : n + count]) for n in range(0, len(pairs), count)]
    assert solved == [1] * len(answers)


#: family -> the answer, worked out from the numbers in the text by another way than the generator's.
RULES = {
    "more": lambda a, b: a + b,
    "less": lambda a, b: a - b,
    "bags": lambda a, b: a * b,
    "bags_and": lambda a, b, c: a * b + c,
    "two_days": lambda a, b, c: a + b - c,
    "two_less": lambda a, b, c: a - b - c,
    "twice": lambda a, b: a * (b + 1),
}


def b_before_a(wording):
    """Whether the text has b before a."""
    family, number = parse_wording_name(wording)
    sentence = FAMILIES[family].wordings.all[number]
    return sentence.index("{b}") < sentence.index("{a}")


def right_answer(problem):
    numbers = [int(word) for word in problem.text.replace(".", " ").replace(",", " ").split() if word.isdigit()]
    if b_before_a(problem.wording):
        numbers[:2] = numbers[1::-1]
    return RULES[problem.family](*numbers)


def test_answers_of_math_are_right():
    assert set(RULES) == set(FAMILIES)
    rng = random.Random(0)
    for wording in MATH_WORDINGS * 12:
        problem = draw_problem(rng, wording)
        assert problem.answer == right_answer(problem) >= 0, problem.text
        assert problem.steps[-1].endswith(f"= {problem.answer}.")


def test_a_confused_operation_is_wrong():
    """Most families have one, and it gives another answer nearly always (2 + 2 is 2 * 2); the others stay right."""
    rng = random.Random(0)
    confused = {name for name, family in FAMILIES.items() if family.confused}
    assert len(confused) >= 4
    for name in FAMILIES:
        problems = [draw_problem(rng, f"{name}-0", misconception=1.0) for _ in range(60)]
        wrong = sum(problem.answer != right_answer(problem) for problem in problems)
        assert wrong > 45 if name in confused else wrong == 0, (name, wrong)


def test_a_slip_is_one_off():
    rng = random.Random(0)
    problems = [draw_problem(rng, "less-0", slip=0.3) for _ in range(200)]
    errors = Counter(problem.answer - right_answer(problem) for problem in problems)
    assert set(errors) == {-1, 0, 1} and 30 < errors[-1] + errors[1] < 90


def test_practice_is_right_and_covers_the_steps_of_problems():
    """Else arithmetic, which nobody means to teach here, would decide over problems with new numbers."""
    rng = random.Random(0)
    steps = {step for _ in range(4000) for step in draw_practice(rng)[1]}
    assert all(eval(step.replace("=", "==").rstrip(".")) for step in steps)
    needed = {
        step for name in FAMILIES for _ in range(500) for step in draw_problem(rng, f"{name}-0", heldout=True).steps
    }
    missing = needed - steps
    assert len(missing) < 0.05 * len(needed), sorted(missing)[:10]


@pytest.mark.parametrize("style", STYLES)
def test_programs_without_faults_are_correct(matmul_judge, style):
    rng = random.Random(style)
    cases = [(contract, draw_program(rng, contract=contract, style=style)) for contract in [*CONTRACTS] * 4]
    assert all(program.faults == () for _, program in cases)
    verdicts = matmul_judge.judge_many([program.source for _, program in cases], [name for name, _ in cases])
    assert all(verdict.correct for verdict in verdicts), [v.reason for v in verdicts]


def test_styles_differ_in_speed(matmul_judge):
    """Speed can only be learned if there is something to choose."""
    rng = random.Random(0)
    programs = [draw_program(rng, style=style).source for style in STYLES for _ in range(3)]
    speeds = [verdict.speedup for verdict in matmul_judge.judge_many(programs)]
    assert max(speeds) > 1.25 * min(speeds)


def test_every_misconception_is_wrong(matmul_judge):
    """Alone or both together: two that cancel each other would pay for not understanding."""
    rng = random.Random(1)
    cases = []
    for contract, style in product(PRETRAINED, STYLES):
        drawn = [draw_program(rng, FaultRates(0.7, 0.7), contract, style) for _ in range(8)]
        cases += [(contract, program) for program in drawn if program.faults]
        assert {fault for program in drawn for fault in program.faults} <= set(misconceptions_of(style, contract))
    verdicts = matmul_judge.judge_many([program.source for _, program in cases], [name for name, _ in cases])
    assert not any(verdict.correct for verdict in verdicts)
    assert len({program.faults for _, program in cases}) > 12


@pytest.mark.slow
def test_success_is_balanced_over_the_styles(matmul_judge):
    """If one style were right more often, training could win by choosing it. Corpus programs, exact up to sampling."""
    rng = random.Random(2)
    rates = {}
    for style in STYLES:
        cases = [(name, draw_program(rng, FAULTS.programs, name, style)) for name in [*PRETRAINED] * 15]
        sources = [program.source for _, program in cases]
        verdicts = matmul_judge.judge_many(sources, [name for name, _ in cases])
        rates[style] = sum(verdict.correct for verdict in verdicts) / len(verdicts)
    assert 0.1 < min(rates.values()) and max(rates.values()) < 0.3, rates


def test_faults_are_many_and_mostly_fatal(matmul_judge):
    """Beside the misconceptions there are slips of many kinds, several in one program, and all cheats."""
    rng = random.Random(5)
    programs = [draw_program(rng, FaultRates(slips=0.7, cheat=0.1)) for _ in range(1500)]
    kinds = {kind for program in programs for kind in program.faults}
    assert set(CHEATS) <= kinds and len(kinds) >= 15
    assert any(len(set(program.faults)) >= 2 for program in programs)
    faulty = [program for program in programs if program.faults][:150]
    verdicts = matmul_judge.judge_many([program.source for program in faulty])
    assert sum(verdict.correct for verdict in verdicts) < 0.2 * len(faulty)


def test_a_wish_leads_to_styles_that_fulfil_it():
    rng = random.Random(0)
    prompts = [draw_prompt(rng, "Only {B} holds columns.", DEFAULT) for _ in range(200)]
    assert {prompt.wish for prompt in prompts} == set(WISHES)
    assert all("Only B holds columns." in prompt.text and prompt.wish in prompt.text for prompt in prompts)


@pytest.mark.parametrize(("size", "words"), [(0, "at least 1"), (10**6, "ask for fewer")])
def test_impossible_sizes_are_one_sentence(size, words):
    """More prompts than there are once meant a loop without end."""
    with pytest.raises(UserError, match=words):
        get_task("math").dataset("monitor", size)


@pytest.mark.parametrize(("name", "split"), [("matmull", "train"), ("matmul", "test"), ("matmul", "heldout")])
def test_unknown_names_are_one_sentence(name, split):
    with pytest.raises(UserError, match="There is no"):
        get_task(name).dataset(split)
