"""Time and memory of calls that take turns."""

import statistics
import time

import torch

from tests.process import restart_peak, status


def take_turns(calls, rounds, device):
    """{name: {"ms": median, "peak_MiB": largest}} over `rounds` rounds, in each of which every one of `calls`, {name:
    function}, runs once; a round before them warms up."""
    found = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            found[name].append(measure(call, device))
    costs = {}
    for name, timed in found.items():
        seconds, peaks = zip(*timed[1:])
        costs[name] = {"ms": 1e3 * statistics.median(seconds), "peak_MiB": max(peaks) / 2**20}
    return costs


def measure(call, device):
    """`(seconds, peak bytes beyond what was there)` of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = status("VmRSS")
        restart_peak()
    started = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter() - started, torch.cuda.max_memory_allocated() - before
    return time.perf_counter() - started, max(0, status("VmHWM") - before)
