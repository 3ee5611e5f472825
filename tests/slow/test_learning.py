"""Does the chain learn, and only where there is something to learn? Whole runs of 04_grpo, each evaluated as in
05_evaluate.

The rules were fixed before the runs, and no run is repeated. A lesson must win on a contract that it was never paid
for, in names and wordings that no training has, by at least 25 points in the smallest of the three differences. No
control may win. Across runs the smallest lesson must exceed the largest of four shuffled runs, which has a probability
of 1 in 35 if lessons teach as little as shuffled rewards do, and both controls that need no task. A control that did
not train proves nothing: its adapter must have moved at least half as far as a lesson's, and what it was paid for must
have become more frequent. The second does not apply to shuffled rewards, whose mean the answers cannot change.

Three tables of programs say how much of the result is a matter of knowing one program a contract, and rejection
sampling says how much of it needs GRPO.
"""

import random
import re
from collections import defaultdict

import pytest

from helpers.evaluation import Report
from helpers.grpo.logs import read_completions
from helpers.tasks import get_task
from helpers.tasks.matmul.contracts import HELDOUT_CONTRACT, PRETRAINED, TRAINED
from helpers.tasks.matmul.names import parse_signature
from helpers.tasks.matmul.programs import draw_program
from helpers.tiny.corpus import FAULTS
from tests.slow.lessons import edges, headline, moved, run_all, shown, shown_shares
from tests.tasks.nameless import nameless

pytestmark = pytest.mark.slow

#: name -> parameters of 04_grpo. Seeds change the adapter's start, the prompts and every draw.
LESSONS = {f"seed {seed}": {"SEED": seed} for seed in (42, 1, 2)}
#: The best of `test_rates.RATES` on monitor prompts; GRPO's is the profile's.
RFT_RATE = 4e-3
IMITATIONS = {
    f"rejection sampling, seed {seed}": {"SEED": seed, "BASELINE": "rft", "LEARNING_RATE": RFT_RATE}
    for seed in (42, 1, 2)
}
SHUFFLES = {f"shuffle, seed {seed}": {"SEED": seed, "CONTROL": "shuffle"} for seed in (42, 1, 2, 3)}
#: control -> the reward that it pays, which must rise
TASKLESS = {"certainty": "rewards/certainty/mean", "majority": "rewards/majority/mean"}
OTHERS = {control: {"SEED": 42, "CONTROL": control} for control in (*TASKLESS, "flip", "freeze")}
RUNS = LESSONS | IMITATIONS | SHUFFLES | OTHERS


@pytest.fixture(scope="module")
def reports(runs_folder):
    return run_all(runs_folder, "matmul", RUNS)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_wins(reports, row, name):
    report = reports[name]
    row(f"GRPO, {name}", shown(report))
    assert report["verdict"] == "win"
    found = headline(report)
    assert found.difference >= 0.25 and found.p_value < 1e-3 and found.clusters >= 16
    assert report["tuned_outcomes"].get("refused", 0.0) < report["base_outcomes"]["refused"]


@pytest.mark.parametrize("name", LESSONS)
def test_one_decisive_token_turns_round(reports, row, name):
    before, after = reports[name]["decisive"]
    row(f"GRPO, {name}: probability of the decisive token", f"{before:.2f} -> {after:.2f}")
    assert 0.2 <= before <= 0.5 and after >= 0.9


@pytest.mark.parametrize("name", LESSONS)
def test_what_else_a_lesson_changes(reports, row, name):
    """The contracts that were trained on, a combination that no training has, and the words of somebody else. All of
    it is reported, whatever it is."""
    row(f"GRPO, {name}: other contracts in new words", shown_shares(reports[name], "probe, "))
    row(f"GRPO, {name}: words of somebody else", shown_shares(reports[name], "blind, "))


@pytest.mark.parametrize("name", LESSONS | IMITATIONS)
def test_how_fast_the_correct_answers_are(reports, row, name):
    """Rewards order correct answers by their speed; rejection sampling keeps them all alike."""
    before, after = reports[name]["speed"]
    row(f"{name}: median speed of correct answers, plain loops = 1", f"{before:.2f} -> {after:.2f}")
    assert after > before or name in IMITATIONS


@pytest.mark.parametrize("name", IMITATIONS)
def test_rejection_sampling(reports, row, name):
    """The baseline may be as good as GRPO, or better; what it cannot do is win without a right answer to imitate."""
    report = reports[name]
    row(name, shown(report))
    row(f"{name}: other contracts in new words", shown_shares(report, "probe, "))
    assert moved(report) > 0


def test_the_control_was_a_run_like_the_lessons(reports):
    """An adapter that hardly moved could not have won, whatever it was paid for."""
    least = min(moved(reports[name]) for name in LESSONS)
    for name in (*SHUFFLES, *OTHERS):
        if name != "freeze":
            assert moved(reports[name]) >= least / 2, (name, moved(reports[name]), least)
    assert moved(reports["freeze"]) == 0


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffled_rewards_do_not_win(reports, row, name):
    """They say nothing about the answers, so what they move is a random walk."""
    report = reports[name]
    row(f"control, {name}", shown(report))
    assert "correctness_check_shuffled" in report["origin"]["settings"]["reward_funcs"]
    assert report["verdict"] != "win"


@pytest.mark.parametrize("name", TASKLESS)
def test_being_surer_does_not_win(reports, row, name):
    """Paid for its own probability, or for agreement within the group, the model gets what it is paid for, and that
    is not the task. On the embedded model that this project shipped before, certainty alone "won" by 33 points."""
    report = reports[name]
    first, last = edges(report, TASKLESS[name])
    row(f"control, {name}", f"{shown(report)}; its own reward {first:.2f} -> {last:.2f}")
    weights = dict(
        zip(report["origin"]["settings"]["reward_funcs"], report["origin"]["settings"]["reward_weights"], strict=True)
    )
    assert [reward for reward, weight in weights.items() if weight] == [name]
    assert last > first, "it was not paid more for it, so nothing was learnt at all"
    assert report["verdict"] != "win"


def test_flipped_rewards_do_not_win(reports, row):
    """What pays is what happens, so the gradient has a sign."""
    report = reports["flip"]
    first, last = edges(report, "reward")
    row("control, flip", f"{shown(report)}; its own reward {first:.2f} -> {last:.2f}")
    assert last > first
    assert report["verdict"] != "win" and report["sampled"]["difference"] < 0


def test_learning_rate_0_changes_nothing(reports, row):
    report = reports["freeze"]
    row("control, freeze", shown(report))
    assert report["verdict"] == "null" and report["best"]["gained"] == report["best"]["lost"] == 0


def test_the_smallest_lesson_exceeds_the_controls(reports, row):
    """Seven runs in order: that the three lessons come first by chance has a probability of 1 / C(7, 3) = 1 / 35."""
    assert all(isinstance(report, dict) for report in reports.values()), "a run failed, so there is no order"
    gains = {name: headline(report).difference for name, report in reports.items()}
    smallest = min(gains[name] for name in LESSONS)
    shuffled = max(gains[name] for name in SHUFFLES)
    taskless = max(gains[name] for name in TASKLESS)
    row(
        "across runs, smallest of the three differences",
        f"smallest lesson {100 * smallest:+.1f}, largest of four shuffles {100 * shuffled:+.1f}, larger of certainty "
        f"and majority {100 * taskless:+.1f} points; exact permutation p = 1/35",
    )
    assert smallest > shuffled and smallest > taskless


def share_of(program, contract, signatures, task):
    """The share of prompts under a contract that a program for `matmul(A, B)` solves, under each prompt's names."""
    named = [f"```python\n{signature.rename(program)}\n```" for signature in signatures]
    columns = {"contract": [contract] * len(named), "signature": list(map(str, signatures))}
    verdicts = task.verdicts(named, **columns)
    return sum(verdict.correct for verdict in verdicts) / len(verdicts)


@pytest.fixture(scope="module")
def signatures():
    """The names of some confirm prompts."""
    return [parse_signature(text) for text in get_task("matmul").dataset("confirm", 12, seed=7)["signature"]]


def test_a_table_of_one_program_a_contract(task, signatures, row):
    """Whoever knows one right program for each contract, and reads contracts and names, is always right."""
    rng = random.Random(7)
    shares = {
        contract: share_of(draw_program(rng, contract=contract).source, contract, signatures, task)
        for contract in PRETRAINED
    }
    row("table: one training program a contract, names filled in", shown_table(shares))
    assert shares[HELDOUT_CONTRACT] == 1


def shown_table(shares):
    return ", ".join(f"{contract} {share:.0%}" for contract, share in shares.items())


def test_a_single_program_for_all_contracts(task, reports, row):
    """The best of 400 programs of the corpus, chosen with hindsight, solves a contract or two."""
    rng = random.Random(8)
    drawn = [draw_program(rng, FAULTS.programs, rng.choice(PRETRAINED)).source for _ in range(400)]
    programs = list(dict.fromkeys(drawn))
    solved = defaultdict(int)
    for contract in PRETRAINED:
        fenced = [f"```python\n{program}\n```" for program in programs]
        verdicts = task.verdicts(fenced, contract=[contract] * len(programs))
        for program, verdict in zip(programs, verdicts, strict=True):
            solved[program] += verdict.correct
    best = max(solved.values()) / len(PRETRAINED)
    row(f"table: the best of {len(programs)} training programs for all contracts, with hindsight", f"{best:.0%}")
    for name in LESSONS:
        assert best < overall(reports[name]) / 2


def overall(report):
    """The tuned model's share over the four contracts, in names and words that no training has."""
    shares = [report["shares"][f"probe, {contract}"][1] for contract in TRAINED]
    return (sum(shares) + Report.from_dict(report).best.tuned_rate) / (len(shares) + 1)


@pytest.mark.parametrize("name", LESSONS)
def test_a_table_of_the_programs_that_were_paid(task, reports, signatures, row, name):
    """A model that only recites what it was paid for answers an unknown contract with what was paid most."""
    report = reports[name]
    paid = defaultdict(float)
    drawn = set()
    for step in range(1, len(report["metrics"]) + 1):
        for record in read_completions(f"{report['folder']}/grpo", step):
            program = program_of(record)
            if program:
                drawn.add(program)
            if program and record["outcome"] == "correct":
                paid[program] += record["reward_total"]
    most_paid = max(paid, key=paid.get)
    share = share_of(most_paid, HELDOUT_CONTRACT, signatures, task)
    tuned = Report.from_dict(report).best.tuned_rate
    others = sorted(drawn - set(paid))
    fenced = [f"```python\n{program}\n```" for program in others]
    right = sum(one.correct for one in task.verdicts(fenced, contract=[HELDOUT_CONTRACT] * len(others)))
    row(
        f"table: what GRPO paid most, {name}, of {len(paid)} programs, on the held-out contract",
        f"{share:.0%}; of {len(others)} other programs that it drew and paid as wrong, {right} are right there",
    )
    assert share < tuned / 2


def program_of(record):
    """The program of a logged completion with the names of `matmul(A, B)`, None where there is none."""
    text = record["completion"] if isinstance(record["completion"], str) else record["completion"][-1]["content"]
    found = re.search(r"```python\n(.*?)\n```", text, re.S)
    return found and nameless(found[1])
