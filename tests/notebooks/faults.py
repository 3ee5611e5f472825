"""One wrong helper at a time, and the cell that must notice: `python -m tests.notebooks.faults` prints the table.

Each entry: the id of the cell that fails first, file under helpers/, the right text, the wrong one, and what is wrong.
"""

import sys

from helpers.run.notebooks import DEEPER, NOTEBOOKS, source_of

FAULTS = [
    (
        "p01-08",
        "kernels/mxfp4.py",
        "values[(blocks & 15).int()], values[(blocks >> 4).int()]",
        "values[(blocks >> 4).int()], values[(blocks & 15).int()]",
        "high half of a byte first",
    ),
    ("d1-05", "kernels/mxfp4.py", "_BIAS = 127", "_BIAS = 126", "exponent bias 126"),
    (
        "p01-08",
        "kernels/mxfp4.py",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 4.5)",
        "rounds 4.6 to 6",
    ),
    (
        "p01-10",
        "model/memory.py",
        'counts["experts"] * expert_item',
        'counts["experts"] * expert_item / 2',
        "plans half of the experts",
    ),
    ("01-31", "model/lora.py", "r=r,", "r=r + 1,", "rank one too large"),
    (
        "01-18",
        "rollout/harmony.py",
        "header.index(channel_id) + 1 :",
        "header.index(channel_id) + 2 :",
        "channel read one token late",
    ),
    (
        "p01-22",
        "rollout/sampling.py",
        "weights.gather(-1, tokens)",
        "weights.gather(-1, tokens * 0)",
        "notes the log-probability of another token",
    ),
    (
        "p01-22",
        "rollout/cache.py",
        "return 1 + (positions % self.window if",
        "return 1 + (positions % (self.window - 1) if",
        "a ring of 127 tokens",
    ),
    ("02-16", "kernels/masks.py", "(position - key < window)", "(position - key <= window)", "window of 129 keys"),
    ("d2-04", "kernels/masks.py", "(key >= left_pad[row])", "(key > left_pad[row])", "left padding one key too long"),
    ("d2-09", "kernels/masks.py", "key) & same", "key)", "packed documents see each other"),
    (
        "02-12",
        "kernels/attention.py",
        "F.logsigmoid(lse - sinks",
        "F.logsigmoid(sinks - lse",
        "sign of the sink's share",
    ),
    ("02-12", "kernels/attention.py", "lse * math.log(2)", "lse", "log-sum-exp in base 2"),
    (
        "02-31",
        "kernels/attention.py",
        "F.logsigmoid(lse -",
        "F.logsigmoid(lse.detach() -",
        "gradient through the log-sum-exp dropped",
    ),
    (
        "p02-13",
        "kernels/attention.py",
        "F.logsigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1)).exp()",
        "torch.sigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1))",
        "the sink's share by a sigmoid",
    ),
    (
        "p02-15",
        "kernels/masks.py",
        "getattr(self._block_mask, name).copy_(table)",
        "getattr(self._block_mask, name)",
        "a moved mask keeps its old blocks",
    ),
    (
        "p02-15",
        "kernels/masks.py",
        "(low - last < window)",
        "(low - key < window)",
        "the block at the window's edge left out",
    ),
    (
        "p02-21",
        "kernels/attention.py",
        "if a.dtype in WIDE:",
        "if a.dtype == torch.float32:",
        "the reference computes in 32 bits",
    ),
    (
        "p02-32",
        "model/attention.py",
        "(left_pad - kv_offset).clamp(min=0)",
        "left_pad.clamp(max=kv_length - 1)",
        "padding not moved with the sliding cache",
    ),
    ("p02-34", "model/attention.py", 'return "it has no sinks"', "return None", "FlashAttention 2 may train"),
    (
        "p03-18",
        "tasks/matmul/products.py",
        "return bool((errors <= _rounding(a, b)).all())",
        "return not (errors > _rounding(a, b)).any()",
        "NaN passes the comparison",
    ),
    (
        "p03-07",
        "sandbox/inside/lockdown.py",
        '"write": 1, "mmap": 9,',
        '"write": 1, "kill": 62, "getppid": 110, "mmap": 9,',
        "signals pass the filter",
    ),
    (
        "p03-07",
        "sandbox/inside/library.py",
        "set(sys.modules) - set(MODULES)",
        "set()",
        "every module that is loaded can be imported",
    ),
    ("03-22", "tasks/programs/scan.py", "if root in REASONS:", "if root in ():", "the scan sees nothing"),
    (
        "p03-13",
        "tasks/matmul/trial.py",
        "Verdict(WRONG, mistake)",
        'Verdict("error", mistake)',
        "a wrong program counts as one that raised",
    ),
    (
        "p03-13",
        "tasks/matmul/driver.py",
        "return CHANGED_OPERANDS\n",
        "pass\n",
        "nobody looks whether arguments were changed",
    ),
    ("p03-18", "tasks/matmul/products.py", "ULP = 2.0**-53", "ULP = 2.0**-30", "a bound for other numbers"),
    ("03-27", "tasks/matmul/rewards.py", "return -1.0 if verdict", "return 1.0 if verdict", "cheating pays"),
    (
        "p03-23",
        "tasks/matmul/rewards.py",
        "if verdict.outcome == UNAVAILABLE:\n        return 0.0",
        "if verdict.outcome == UNAVAILABLE:\n        return -2.0",
        "a harmless module is punished",
    ),
    ("p03-25", "tasks/matmul/rewards.py", "return 0.25 * max(-1.0", "return 0.5 * max(-1.0", "speed counts twice"),
    ("p03-25", "tasks/matmul/rewards.py", "BELIEVED_SPEEDUP = 2.75", "BELIEVED_SPEEDUP = 275", "any speed is believed"),
    (
        "p03-29",
        "rewards/code.py",
        "(defining or python)[-1]",
        "(defining or python)[0]",
        "takes the first of two versions",
    ),
    (
        "03-29",
        "tasks/programs/task.py",
        "else (code, requirement)",
        'else (code, "rows")',
        "the contract is no part of a verdict's key",
    ),
    (
        "03-29",
        "tasks/matmul/contracts.py",
        "return answer.T if",
        "return answer if",
        "results by columns are read by rows",
    ),
    ("p03-33", "tasks/matmul/products.py", "(1, 97, 2)", "(1, 7, 2)", "the held-out check asks what the judge asked"),
    (
        "p03-38",
        "lint/rewards.py",
        "return MORE if pay > honest_pay",
        "return MORE if pay < honest_pay",
        "what is paid less than the honest answer is reported, and not what is paid more",
    ),
    (
        "p03-38",
        "lint/probes.py",
        "unit * (length // len(unit))",
        "unit * (length // len(unit) // 10)",
        "the very long text is a tenth as long",
    ),
    (
        "d3l-04",
        "lint/probes.py",
        '"\\n".join([answer, *others])',
        '"\\n".join([*others, answer])',
        "a list that ends with the right answer is held against the reward",
    ),
    (
        "p03-40",
        "lint/rewards.py",
        "        canary.unlink()\n        return True",
        "        canary.unlink()\n        return False",
        "code that ran is not reported",
    ),
    (
        "03-31",
        "grpo/advantages.py",
        "(squares / (count - 1).clamp(min=1))",
        "(squares / count)",
        "standard deviation with n",
    ),
    ("p04-04", "grpo/losses.py", "loss = -torch.min(", "loss = torch.min(", "sign of the loss"),
    (
        "d4-07",
        "grpo/losses.py",
        "ratio.clamp(clipping.lowest, clipping.highest)",
        "ratio.clamp(clipping.lowest, 2 * clipping.highest - 1)",
        "upper clip at 1.4",
    ),
    (
        "p04-06",
        "grpo/losses.py",
        "1 / max(1.0, float(tokens_B.sum()))",
        "1 / (1.0 + float(tokens_B.sum()))",
        "normaliser one token too large",
    ),
    (
        "p04-08",
        "grpo/controls.py",
        "None if value is None else -value",
        "None if value is None else value",
        "flipped control not flipped",
    ),
    (
        "p04-08",
        "grpo/controls.py",
        "return [values[n] for n in order]",
        "return [values[n] for n in sorted(order)]",
        "shuffled control not shuffled",
    ),
    (
        "p04-08",
        "grpo/controls.py",
        "return [certainty, *reward_funcs], [1.0, *only_logged], {}",
        "return [certainty, *reward_funcs], [1.0, *weights], {}",
        "certainty is paid by the task's reward too",
    ),
    (
        "p04-08",
        "grpo/controls.py",
        "(alike[group, behaviour] - 1) / max(1, sizes[group] - 1)",
        "float(alike[group, behaviour] > 2)",
        "majority pays the plurality only",
    ),
    ("p04-08", "grpo/controls.py", '{"learning_rate": 0.0}', '{"learning_rate": 1e-3}', "frozen control not frozen"),
    ("p04-10", "tasks/split.py", 'is_heldout(text) == (split != "train")', "True", "held-out prompts are trained on"),
    (
        "p04-10",
        "tasks/matmul/task.py",
        'return wording_names({HELDOUT_CONTRACT: statements(HELDOUT_CONTRACT)}, "unseen")',
        'return _in_turns(TRAINED, "unseen")',
        "the confirm prompts' contracts are trained on",
    ),
    (
        "04-20",
        "grpo/logprobs.py",
        "hidden.flatten(0, 1)[sources_N - 1]",
        "hidden.flatten(0, 1)[sources_N]",
        "scores a token by its own state, in the step by hand",
    ),
    (
        "p04-13",
        "grpo/logprobs.py",
        "hidden.flatten(0, 1)[sources_N - 1]",
        "hidden.flatten(0, 1)[sources_N]",
        "scores a token by its own state",
    ),
    (
        "p04-15",
        "grpo/monitor.py",
        "for tag, value in flags if value)",
        "for tag, value in flags)",
        "every tag counts, true or not",
    ),
    ("p04-15", "grpo/monitor.py", "at_first + COLLAPSE", "at_first + 1", "a mode collapse is not named"),
    (
        "04-30",
        "grpo/trainer.py",
        'logs = {"step": self.state.global_step,',
        'logs = {"step": self.state.global_step - 1,',
        "steps counted from 0",
    ),
    (
        "d5-11",
        "evaluation/statistics.py",
        'proportion_ci(0.95, "wilson")',
        'proportion_ci(0.9, "wilson")',
        "intervals of 90 %",
    ),
    (
        "05-25",
        "evaluation/statistics.py",
        "binomtest(gained, gained + lost)",
        "binomtest(gained, gained + lost + 1)",
        "one discordant pair too many",
    ),
    (
        "d5-09",
        "evaluation/statistics.py",
        "mean = (gained - lost) / items",
        "mean = (lost - gained) / items",
        "sign of the difference",
    ),
    (
        "p05-09",
        "evaluation/statistics.py",
        "if len(set(clusters)) == 1:",
        "if True:",
        "prompts in the same words are taken as independent",
    ),
    ("p05-09", "evaluation/statistics.py", "gained + lost + 1) / n", "gained + lost) / n", "agreement proves equality"),
    (
        "p05-11",
        "evaluation/compare.py",
        "return all(found.is_gain and found.interval[0] > self.win_margin for found in self._against().values())",
        "return self.sampled.is_gain and self.sampled.interval[0] > self.win_margin",
        "a gain at temperature 1 is a win",
    ),
    (
        "p05-11",
        "evaluation/compare.py",
        "found.is_gain and found.interval[0] > self.win_margin for",
        "found.is_gain for",
        "a win needs no margin",
    ),
    (
        "d5-23",
        "evaluation/compare.py",
        "if self._is_gain() and not self.missing_temperatures:",
        "if self._is_gain():",
        "a grid with gaps can win",
    ),
    (
        "p05-13",
        "evaluation/statistics.py",
        "1 - comb(samples - correct, k) / comb(samples, k)",
        "1 - (1 - correct / samples) ** k",
        "pass@k by the biased formula",
    ),
    (
        "d5-26",
        "evaluation/statistics.py",
        "comb(len(texts) - copies, draws) / ways",
        "(1 - copies / len(texts)) ** draws",
        "different programs counted with replacement",
    ),
    (
        "p05-15",
        "evaluation/breakdown.py",
        'Counter((before["outcome"], after["outcome"])',
        'Counter((after["outcome"], before["outcome"])',
        "transition matrix transposed",
    ),
    (
        "d5-31",
        "evaluation/breakdown.py",
        "other=len(still_wrong) - same",
        "other=len(now) - same",
        "faults counted twice",
    ),
    (
        "d5-34",
        "evaluation/breakdown.py",
        'after["tags"][measure.tag] / before["tags"][measure.tag]',
        'before["tags"][measure.tag] / after["tags"][measure.tag]',
        "speed of the base over the tuned model's",
    ),
    (
        "p05-16",
        "evaluation/breakdown.py",
        "compare_records(*zip(*groups[value]))",
        "compare_records(*zip(*groups[value][1:]))",
        "first item of a group left out",
    ),
    (
        "05-21",
        "evaluation/records.py",
        "return Evaluation(name, records_at(temperatures,",
        "return Evaluation(name, records_at([0.0, 1.0],",
        "no sweep",
    ),
    ("d5-40", "rollout/engine.py", "stream_key(params.seed, ids,", "stream_key(0, ids,", "every seed draws the same"),
    ("04-30", "grpo/trainer.py", "        self.optimizer.step()\n", "", "no optimizer step"),
]


def notebook_of(cell):
    """Name of the notebook that has the cell of this id."""
    for name in (*NOTEBOOKS, *DEEPER):
        if f'"id": "{cell}"' in source_of(name).read_text():
            return name
    raise ValueError(f"no notebook has a cell {cell}")


def table():
    """The faults as rows of a Markdown table."""
    lines = ["| fault | helper | caught by | cell |", "|---|---|---|---|"]
    rows = (f"| {what} | `{file}` | {notebook_of(cell)} | {cell} |" for cell, file, _, _, what in FAULTS)
    return "\n".join([*lines, *rows])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
