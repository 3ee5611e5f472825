"""What the sandbox costs and how well its clock ranks programs, with other processes on the same cores.

    python -m tests.benchmarks.sandbox [--out file.json] [--rounds 5]

Calls: a fresh process that answers one small product. Throughput: honest programs of the suite, untimed calls and
then two or more timed ones of 64 x 64 x 64 for each. Fresh: the speed of one program, the first that a new sandbox
judges, in 24 of them beside two processes that only burn time. Ranking: programs whose times on a quiet machine lie 5 %
apart or more, judged several times with 0, 2 and 4 processes that only burn time; Spearman's rank correlation of the
speed reward between any two runs, the worst and the mean. Copies: eight of one program in a batch, and how far their
rewards lie apart. Beside it the same with `exec` in this process under SIGALRM, and with a new interpreter for each
call, both by the wall clock.
"""

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np

from helpers.display import text_table
from helpers.environment import hardware, versions
from helpers.runtime import write_whole
from helpers.sandbox import Limits, Payload
from helpers.tasks.matmul.contracts import CONTRACTS
from helpers.tasks.matmul.encoding import DRIVER, answer_bytes, encode_inputs
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.rewards import FASTEST_HONEST, speed_pay
from helpers.tasks.matmul.speed import BASELINE
from helpers.tasks.programs.verdict import Verdict
from tests.sandbox.suite import load_honest

GAP, FEWEST = 1.05, 10  # between neighbours; programs in the ranking
BURNERS = (0, 2, 4)
MIX = ["naive", "zip_gen", "zip_list", "typed", "unroll", "lambda", "op_mul", "itertools", "slices", "append_local"]
RUNNER = """
import json, random, sys, time
A, B = ([[random.random() for _ in range(64)] for _ in range(64)] for _ in "AB")
scope = {}
exec(sys.stdin.read(), scope)
scope["matmul"]([row[:4] for row in A[:4]], [row[:4] for row in B[:4]])
started = time.perf_counter()
scope["matmul"](A, B)
print(time.perf_counter() - started)
"""


@contextmanager
def burners(count):
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def in_process(programs):
    """Speed of each: `exec` here, an alarm, the wall clock, the median of three calls."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).tolist() for _ in "ab")
    signal.signal(signal.SIGALRM, lambda *_: None)

    def clocked(source):
        scope, taken = {}, []
        exec(source, scope)
        for _ in range(3):
            signal.alarm(10)
            started = time.perf_counter()
            scope["matmul"](a, b)
            taken.append(time.perf_counter() - started)
            signal.alarm(0)
        return statistics.median(taken)

    plain = clocked(BASELINE)
    return [plain / clocked(source) for source in programs]


def fresh_interpreters(programs):
    """The same, each call in a new interpreter that takes the time itself."""

    def clocked(source):
        command = [sys.executable, "-I", "-c", RUNNER]
        calls = [subprocess.run(command, input=source, capture_output=True, text=True) for _ in range(3)]
        return statistics.median(float(call.stdout.split()[-1]) for call in calls)

    plain = clocked(BASELINE)
    return [plain / clocked(source) for source in programs]


def spearman(x, y):
    """Rank correlation, ties sharing their mean rank."""

    def ranks(values):
        values = np.asarray(values)
        return (values[:, None] > values).sum(1) + (values[:, None] == values).sum(1) / 2

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def reward(speedup):
    return speed_pay(Verdict("correct", speedup=speedup))


def ladder(matmul_judge):
    """Honest programs of which each is GAP times as fast as the one before, by the median of nine judgements."""
    honest = load_honest()
    runs = [[v.speedup for v in matmul_judge.judge_many(honest.values())] for _ in range(2)]
    near = [name for name, *speeds in zip(honest, *runs) if 0.45 < statistics.mean(speeds) < 2.1]
    runs = [[v.speedup for v in matmul_judge.judge_many([honest[name] for name in near])] for _ in range(9)]
    speeds = sorted((statistics.median(speeds), name) for name, *speeds in zip(near, *runs))
    chosen = []
    for speed, name in speeds:
        inside = 1 / FASTEST_HONEST < speed < FASTEST_HONEST and abs(speed - 1) > 0.03
        if inside and (not chosen or speed > 1.01 * GAP * chosen[-1][0]):
            chosen.append((speed, name))
    assert len(chosen) >= FEWEST, f"only {len(chosen)} programs lie far enough apart"
    return {name: honest[name] for _, name in chosen}


def ranking(judge, programs, rounds):
    """{"spearman_worst", "spearman_mean", "cv_percent"} over runs of all programs."""
    runs = [judge(programs) for _ in range(rounds)]
    rewards = [[reward(speed) for speed in run] for run in runs]
    found = [spearman(*pair) for pair in itertools.combinations(rewards, 2)]
    spread = [statistics.stdev(speeds) / statistics.mean(speeds) for speeds in zip(*runs)]
    return {
        "spearman_worst": min(found),
        "spearman_mean": statistics.mean(found),
        "cv_percent": 100 * statistics.median(spread),
    }


def copies(matmul_judge, source, groups):
    """How far the rewards of eight copies lie apart, in each of `groups` batches."""
    found = []
    for _ in range(groups):
        rewards = [reward(verdict.speedup) for verdict in matmul_judge.judge_many([source] * 8)]
        found.append(max(rewards) - min(rewards))
    return {"copies_median": statistics.median(found), "copies_worst": max(found)}


def costs(matmul_judge, rounds):
    """Milliseconds of a call and candidates a second, the median and the best of the rounds."""
    honest = load_honest()
    mix = [honest[name] for name in MIX] * 4
    matmul_judge.judge_many(mix)
    rates = []
    for _ in range(rounds):
        started = time.perf_counter()
        assert all(verdict.correct for verdict in matmul_judge.judge_many(mix))
        rates.append(len(mix) / (time.perf_counter() - started))
    worker, program, calls = matmul_judge.examiners[0].worker, BASELINE, []
    for _ in range(200):
        inputs = encode_inputs(CONTRACTS["rows"], np.ones((4, 4)), np.ones((4, 4)))
        started = time.perf_counter()
        worker.run(DRIVER, Payload(program, inputs), Limits(answer_bytes=answer_bytes(4, 4)))
        calls.append(1e3 * (time.perf_counter() - started))
    return {
        "call_ms": statistics.median(calls[1:]),
        "candidates_per_s": statistics.median(rates),
        "candidates_per_s_best": max(rates),
    }


def fresh(source, sandboxes=24):
    """Speeds of one program from as many new sandboxes, beside two burning processes."""
    speeds = []
    with burners(2):
        for _ in range(sandboxes):
            with MatmulJudge() as matmul_judge:
                speeds.append(matmul_judge.judge(source).speedup)
    return {"median": statistics.median(speeds), "lowest": min(speeds), "highest": max(speeds)}


def beside(programs):
    """{name: cost of the other two ways}, on a quiet machine."""
    found = {}
    for name, judge in (("exec and SIGALRM", in_process), ("new interpreter", fresh_interpreters)):
        started = time.perf_counter()
        judge(programs)
        found[name] = {"candidates_per_s": len(programs) / (time.perf_counter() - started)}
    return found


def run(rounds):
    with MatmulJudge() as matmul_judge:
        found = {"costs": {"sandbox": costs(matmul_judge, rounds)}}
        chosen = ladder(matmul_judge)
        programs = list(chosen.values())
        found["costs"] |= beside(programs)
        found["fresh"] = fresh(load_honest()["zip_list"])
        found["programs"], found["ranking"] = list(chosen), []
        ways = {
            "sandbox": lambda programs: [verdict.speedup for verdict in matmul_judge.judge_many(programs)],
            "exec and SIGALRM": in_process,
            "new interpreter": fresh_interpreters,
        }
        for count in BURNERS:
            with burners(count):
                for name, judge in ways.items():
                    row = {"burners": count, "way": name, **ranking(judge, programs, rounds)}
                    if name == "sandbox":
                        row |= copies(matmul_judge, load_honest()["zip_list"], 2 * rounds)
                    found["ranking"].append(row)
                    print(json.dumps(row), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = {"hardware": hardware(), "versions": versions(), "rounds": arguments.rounds, **run(arguments.rounds)}
    print(f"{found['hardware']}; {len(found['programs'])} programs in the ranking")
    print(text_table([(name, *(f"{c.get(k, float('nan')):.1f}" for k in ("call_ms", "candidates_per_s",
          "candidates_per_s_best"))) for name, c in found["costs"].items()],
          header=("way", "ms a call", "candidates/s", "best round")))  # fmt: skip
    columns = ("spearman_worst", "spearman_mean", "cv_percent", "copies_median", "copies_worst")
    rows = [(r["burners"], r["way"], *(f"{r[k]:.3f}" if k in r else "" for k in columns)) for r in found["ranking"]]
    print(text_table(rows, header=("burners", "way", "worst", "mean", "CV %", "8 copies", "worst")))
    speeds = found["fresh"]
    print(f"24 fresh sandboxes: {speeds['median']:.2f}, from {speeds['lowest']:.2f} to {speeds['highest']:.2f}")
    if arguments.out:
        write_whole(arguments.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
