"""Prints what the hack suite achieves, by group and level: `python -m tests.sandbox.hacksuite` (`make hacksuite`).

Columns: level "os", as written and in six dresses; with --process, as root in a machine that you can lose, level
"process", where each program runs in a process namespace of its own, since its effects are real.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from helpers.display import text_table
from helpers.environment import processor
from helpers.runtime import ROOT
from helpers.sandbox import Status
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.rewards import too_fast
from helpers.tasks.matmul.task import MatmulTask
from tests.sandbox import suite, test_fuzz

PUT_BACK = "modules put back"


def all_dresses(exploit):
    return {"": exploit.source, **suite.dresses(exploit)}


def with_modules(exploit):
    return {name: source for name, source in suite.dresses(exploit).items() if name == PUT_BACK}


def at_level_process(exploit):
    """The `Outcome` of one exploit, from a judge that may die of it."""
    command = [sys.executable, "-m", "tests.sandbox.hacksuite", "--one", exploit.id]
    shell = ["sh", "-c", '"$@"; exit', "sh"]  # the first process of a namespace cannot be killed from inside
    fenced = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *shell, *command]
    try:
        run = subprocess.run(fenced, cwd=ROOT, capture_output=True, text=True, timeout=180)
        lines = [line for line in run.stdout.splitlines() if line.startswith("outcome:")]
        success = lines[-1].removeprefix("outcome:").strip() if lines else "the judge died"
    except subprocess.TimeoutExpired:
        success = "the judge hangs"
    return suite.Outcome(exploit, PUT_BACK, None, success)


def one(name):
    """Judge one exploit at level "process" and print what it achieved."""
    (exploit,) = [e for e in suite.load_exploits() if e.id == name]
    with tempfile.TemporaryDirectory() as folder, suite.surroundings(folder) as place:
        with MatmulJudge(workers=1, level="process") as judge:
            outcomes = suite.attack(judge, place, [exploit], with_modules)
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
    parser.add_argument("--process", action="store_true", help='also level "process"; the effects are real')
    parser.add_argument("--fuzz", type=int, default=5000, help="how many completions to make up")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one)
        return
    exploits = suite.load_exploits()
    programs = [exploit for exploit in exploits if exploit.source]
    honest = suite.load_honest()
    for name, answer in suite.load_answers().items():
        honest[name] = suite.code_of(answer) or ""
    refused = suite.load_refused()
    broken = suite.load_broken()
    python = f"Python {sys.version.split()[0]}"
    print(
        f"{len(exploits)} exploits ({len(programs)} programs, {len(exploits) - len(programs)} texts around programs), "
        f"{len(honest) + len(refused)} honest programs, {len(broken)} broken ones; {python}, {processor()}\n",
        flush=True,
    )
    columns = {}
    with tempfile.TemporaryDirectory() as folder, suite.surroundings(folder) as place, MatmulJudge() as judge:
        columns["level os, as written"] = suite.attack(judge, place, programs)
        columns["level os, all dresses"] = suite.attack(judge, place, programs, all_dresses)
    if arguments.process:
        dressed = [exploit for exploit in programs if with_modules(exploit)]
        with ThreadPoolExecutor() as pool:
            columns["level process, modules put back"] = list(pool.map(at_level_process, dressed))
    print(table(columns))
    for name, outcomes in columns.items():
        for outcome in [o for o in outcomes if o.success]:
            print(f"  {name}: {outcome.exploit.id} {outcome.variant}: {outcome.success}")
    with MatmulJudge() as judge:
        texts = [suite.code_of(exploit.text) for exploit in exploits if exploit.text]
        paid = sum(verdict.correct for verdict in judge.judge_many([text for text in texts if text]))
        verdicts = dict(zip(honest, judge.judge_many(honest.values())))
        broken_paid = [name for name, verdict in zip(broken, judge.judge_many(broken.values())) if verdict.correct]
    newer = [name for name, verdict in verdicts.items() if verdict.behaviour == Status.NEWER_PYTHON.value]
    failed = [name for name, verdict in verdicts.items() if not verdict.correct and name not in newer]
    fastest = max(verdicts, key=lambda name: verdicts[name].speedup)
    every = [o for outcomes in columns.values() for o in outcomes if o.verdict]
    alarms = {o.exploit.id for o in every if too_fast(o.verdict)}
    print(f"Texts around programs that were paid: {paid} of {len(texts)}")
    print(f"Honest programs refused: {len(failed) + len(refused)} of {len(honest) + len(refused)}")
    for name, kind in [
        *((name, kind) for name, (kind, _) in refused.items()),
        *((name, "unexpectedly") for name in failed),
    ]:
        print(f"  {name}: {kind}")
    if newer:
        print(f"Honest programs for a newer Python, paid as wrong ones: {' '.join(newer)}")
    print(f"The fastest honest program: {fastest}, {verdicts[fastest].speedup:.2f} times as fast as plain loops")
    print(f"Exploits too fast to be believed, which earn no speed and raise an alarm: {' '.join(sorted(alarms))}")
    print(f"Broken programs paid: {len(broken_paid)} of {len(broken)} {' '.join(broken_paid)}")
    task = MatmulTask()
    code, correct = test_fuzz.fuzz(task, arguments.fuzz, seed=2)
    print(f"Fuzzed completions: {arguments.fuzz}, of which {code} held code and {correct} were correct; no exception")


if __name__ == "__main__":
    main()
