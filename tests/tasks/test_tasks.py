import random
from collections import Counter
from itertools import product

import pytest

from helpers import UserError, get_task
from helpers.gallery.math.problems import FAMILIES, WORDINGS, draw_problem
from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.programs import CHEATS, STYLES, FaultRates, draw_program, misconceptions_of
from helpers.tasks.matmul.prompts import CONTRACT_WORDINGS, WISHES, draw_prompt
from helpers.tasks.split import is_heldout
from helpers.tasks.wording import wording_names
from helpers.tiny.corpus import FAULTS, MATH_WORDINGS

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
    assert set(train.column_names) == COLUMNS | ({"contract"} if name == "matmul" else {"depth", "unit"})
    assert len(set(train["id"])) == 200


@pytest.mark.parametrize("name", ["matmul", "math"])
def test_the_confirm_prompts_use_wordings_of_their_own(name):
    """At least twelve that reinforcement learning never sees, equally frequent; the others share theirs."""
    task = get_task(name)
    clusters = {split: Counter(task.dataset(split, 240)["cluster"]) for split in ("train", "monitor", "confirm")}
    assert not set(clusters["confirm"]) & set(clusters["train"])
    assert set(clusters["monitor"]) == set(clusters["train"])
    assert len(clusters["confirm"]) >= 12
    for counts in clusters.values():
        assert max(counts.values()) - min(counts.values()) <= 1
    meanings = {cluster.rpartition("-")[0] for cluster in clusters["confirm"]}
    assert meanings == {cluster.rpartition("-")[0] for cluster in clusters["train"]}


def test_pretraining_sees_every_wording():
    for meanings in (CONTRACT_WORDINGS, WORDINGS):
        seen, unseen = (set(wording_names(meanings, split)) for split in ("train", "confirm"))
        assert set(wording_names(meanings, "pretrain")) == seen | unseen and not seen & unseen


def test_every_prompt_states_name_arguments_contract_and_form():
    """A model cannot be blamed for what it was not told."""
    sentences = [sentence for wordings in CONTRACT_WORDINGS.values() for sentence in wordings.all]
    assert len(set(sentences)) == len(sentences) == 36
    for row in get_task("matmul").dataset("confirm", 64):
        text = row["prompt"][0]["content"]
        (stated,) = (name for name, wordings in CONTRACT_WORDINGS.items() if any(s in text for s in wordings.all))
        assert stated == row["contract"] and "matmul(A, B)" in text and "Python code block" in text
    assert set(CONTRACT_WORDINGS) == set(CONTRACTS)
    assert r"\boxed{}" in get_task("math").dataset("train", 1)[0]["prompt"][0]["content"]


def test_answers_of_matmul_are_correct_programs(matmul_judge):
    rows = get_task("matmul").dataset("monitor", 40)
    assert all(verdict.correct for verdict in matmul_judge.judge_many(rows["answer"], rows["contract"]))
    assert all(map(is_heldout, rows["answer"]))


def test_no_answer_solves_more_than_its_contract(matmul_judge):
    """One fixed program must not solve the set: here each is asked under every contract."""
    answers = get_task("matmul").dataset("monitor", 8)["answer"]
    pairs = list(product(answers, CONTRACTS))
    verdicts = matmul_judge.judge_many([source for source, _ in pairs], [contract for _, contract in pairs])
    solved = [sum(v.correct for v in verdicts[n : n + 4]) for n in range(0, len(pairs), 4)]
    assert solved == [1] * len(answers)


#: family -> the answer, worked out from the numbers in the text by another way than the generator's.
RULES = {
    "more": lambda a, b: a + b,
    "less": lambda a, b: a - b,
    "bags": lambda a, b: a * b,
    "bags_and": lambda a, b, c: a * b + c,
    "two_days": lambda a, b, c: a + b - c,
    "twice": lambda a, b: a * (b + 1),
}
B_BEFORE_A = {"more-3", "less-3", "bags-1", "bags_and-2", "twice-2"}


def right_answer(problem):
    numbers = [int(word) for word in problem.text.replace(".", " ").replace(",", " ").split() if word.isdigit()]
    if problem.wording in B_BEFORE_A:
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
    for contract, style in product(CONTRACTS, STYLES):
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
        cases = [(name, draw_program(rng, FAULTS.programs, name, style)) for name in [*CONTRACTS] * 15]
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
    prompts = [draw_prompt(rng, "b_columns-2") for _ in range(200)]
    assert {prompt.wish for prompt in prompts} == set(WISHES)
    assert {prompt.contract for prompt in prompts} == {"b_columns"}
    sentence = CONTRACT_WORDINGS["b_columns"].all[2]
    assert all(sentence in prompt.text and prompt.wish in prompt.text for prompt in prompts)


@pytest.mark.parametrize(("size", "words"), [(0, "at least 1"), (10**6, "ask for fewer")])
def test_impossible_sizes_are_one_sentence(size, words):
    """More prompts than there are once meant a loop without end."""
    with pytest.raises(UserError, match=words):
        get_task("math").dataset("monitor", size)


@pytest.mark.parametrize(("name", "split"), [("matmull", "train"), ("matmul", "test"), ("matmul", "heldout")])
def test_unknown_names_are_one_sentence(name, split):
    with pytest.raises(UserError, match="There is no"):
        get_task(name).dataset(split)
