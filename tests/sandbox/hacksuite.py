"""Prints what the hack suite achieves, by group and level: `python -m tests.sandbox.hacksuite` (`make hacksuite`).

Columns: both walls, as written and in five dresses; the second wall alone, programs with all of Python; the first wall
alone (level "policy"); and, with --bare, neither wall: there only what the parent does still stands, the effects are
real, and each program runs in a process namespace of its own (root, in a machine you can lose).
"""

import argparse
import subprocess
import sys
import tempfile

from helpers.display import text_table
from helpers.environment import hardware
from helpers.runtime import ROOT
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.task import MatmulTask
from tests.sandbox import suite, test_fuzz


def all_dresses(exploit):
    return {"": exploit.source, **suite.dresses(exploit)}


def bare(exploits):
    """One `Outcome` for each, from a process that may die of it."""
    outcomes = []
    for exploit in exploits:
        command = [sys.executable, "-m", "tests.sandbox.hacksuite", "--one", exploit.id]
        shell = ["sh", "-c", '"$@"; exit', "sh"]  # the first process of a namespace cannot be killed from inside
        fenced = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *shell, *command]
        try:
            run = subprocess.run(fenced, cwd=ROOT, capture_output=True, text=True, timeout=60)
            lines = [line for line in run.stdout.splitlines() if line.startswith("outcome:")]
            success = lines[-1].removeprefix("outcome:").strip() if lines else "the judge died"
        except subprocess.TimeoutExpired:
            success = "the judge hangs"
        outcomes.append(suite.Outcome(exploit, "", None, success))
    return outcomes


def one(name):
    """Judge one exploit without either wall and print what it achieved."""
    (exploit,) = [e for e in suite.load_exploits() if e.id == name]
    with tempfile.TemporaryDirectory() as folder, suite.surroundings(folder) as place:
        with MatmulJudge(workers=1, level="policy") as judge:
            outcomes = suite.attack(judge, place, [exploit], policy=False)
        print("outcome:", next((o.success for o in outcomes if o.success), ""), flush=True)


def table(columns):
    """columns: {heading: outcomes}. One row a group: how many got through, of how many."""
    rows = []
    for letter, name in [*suite.GROUPS.items(), ("", "all")]:
        cells = []
        for outcomes in columns.values():
            mine = [o for o in outcomes if o.exploit.group == letter or not letter]
            cells.append(f"{sum(bool(o.success) for o in mine)} of {len(mine)}")
        rows.append((f"{letter} {name}".strip(), *cells))
    return text_table(rows, header=("got through", *columns))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bare", action="store_true", help="also without either wall; the effects are real")
    parser.add_argument("--fuzz", type=int, default=5000, help="how many completions to make up")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one)
        return
    exploits, answers = suite.load_exploits(), suite.load_answers()
    programs = [exploit for exploit in exploits if exploit.source]
    honest = suite.load_honest() | {name: suite.code_of(answer) or "" for name, answer in answers.items()}
    refused = suite.load_refused()
    python = f"Python {sys.version.split()[0]}"
    print(
        f"{len(exploits)} exploits, {len(honest) + len(refused)} honest programs; {python}, {hardware()}\n", flush=True
    )
    with tempfile.TemporaryDirectory() as folder, suite.surroundings(folder) as place:
        with MatmulJudge() as judge:
            columns = {
                "both walls, all dresses": suite.attack(judge, place, programs, True, all_dresses),
                "second alone, all dresses": suite.attack(
                    judge, place, suite.second_wall(programs), False, all_dresses
                ),
            }
        with MatmulJudge(level="policy") as judge:
            columns["first alone"] = suite.attack(judge, place, programs)
    if arguments.bare:
        columns["neither"] = bare(suite.second_wall(programs))
    print(table(columns))
    for name, outcomes in columns.items():
        for outcome in [o for o in outcomes if o.success]:
            print(f"  {name}: {outcome.exploit.id} {outcome.variant}: {outcome.success}")
    left_out = [e for e in programs if e not in suite.second_wall(programs)]
    print(f"\nLeft out where there is no policy, as they only show that they got round the policy: {len(left_out)}")
    with MatmulJudge() as judge:
        texts = [suite.code_of(exploit.text) for exploit in exploits if exploit.text]
        paid = sum(verdict.correct for verdict in judge.judge_many([text for text in texts if text]))
        failed = [name for name, verdict in zip(honest, judge.judge_many(honest.values())) if not verdict.correct]
    print(f"Texts around programs that were paid: {paid} of {len(texts)}")
    print(f"Honest programs refused: {len(failed) + len(refused)} of {len(honest) + len(refused)}")
    for name, (kind, _) in [*refused.items(), *((name, ("unexpectedly", "")) for name in failed)]:
        print(f"  {name}: {kind}")
    task = MatmulTask()
    code, correct = test_fuzz.fuzz(task, arguments.fuzz, seed=2)
    print(f"Fuzzed completions: {arguments.fuzz}, of which {code} held code and {correct} were correct; no exception")


if __name__ == "__main__":
    main()
