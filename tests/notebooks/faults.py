"""One wrong helper at a time, and the cell that must notice: `python -m tests.notebooks.faults` prints the table.

Each entry: the id of the cell that fails first, file under helpers/, the right text, the wrong one, and what is wrong.
"""

import sys

from helpers.run import NOTEBOOKS

FAULTS = [
    (
        "01-06",
        "kernels/mxfp4.py",
        "values[(blocks & 15).int()], values[(blocks >> 4).int()]",
        "values[(blocks >> 4).int()], values[(blocks & 15).int()]",
        "high half of a byte first",
    ),
    ("01-06", "kernels/mxfp4.py", "_BIAS = 127", "_BIAS = 126", "exponent bias 126"),
    (
        "01-08",
        "kernels/mxfp4.py",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 4.5)",
        "rounds 4.6 to 6",
    ),
    (
        "01-10",
        "model/memory.py",
        'counts["experts"] * expert_item',
        'counts["experts"] * expert_item / 2',
        "plans half of the experts",
    ),
    ("01-16", "model/lora.py", "r=r,", "r=r + 1,", "rank one too large"),
    (
        "01-18",
        "rollout/harmony.py",
        "header.index(channel_id) + 1 :",
        "header.index(channel_id) + 2 :",
        "channel read one token late",
    ),
    (
        "01-22",
        "rollout/backends/transformers.py",
        "self.recorded.append(self.previous.gather(1, tokens))",
        "self.recorded.append(self.previous.gather(1, tokens - 1))",
        "notes the log-probability of another token",
    ),
    ("02-04", "kernels/masks.py", "(position - key < window)", "(position - key <= window)", "window of 129 keys"),
    ("02-04", "kernels/masks.py", "(key >= left_pad[row])", "(key > left_pad[row])", "left padding one key too long"),
    ("02-07", "kernels/masks.py", "key) & same", "key)", "packed documents see each other"),
    (
        "02-09",
        "kernels/attention.py",
        "F.logsigmoid(lse - sinks",
        "F.logsigmoid(sinks - lse",
        "sign of the sink's share",
    ),
    ("02-09", "kernels/attention.py", "lse * math.log(2)", "lse", "log-sum-exp in base 2"),
    (
        "02-13",
        "kernels/attention.py",
        "F.logsigmoid(lse -",
        "F.logsigmoid(lse.detach() -",
        "gradient through the log-sum-exp dropped",
    ),
    (
        "02-13",
        "kernels/attention.py",
        "F.logsigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1)).exp()",
        "torch.sigmoid(lse - sinks.to(lse.dtype).reshape(1, -1, 1))",
        "the sink's share by a sigmoid",
    ),
    (
        "02-15",
        "kernels/masks.py",
        "getattr(self._block_mask, name).copy_(table)",
        "getattr(self._block_mask, name)",
        "a moved mask keeps its old blocks",
    ),
    (
        "02-15",
        "kernels/masks.py",
        "(low - last < window)",
        "(low - key < window)",
        "the block at the window's edge left out",
    ),
    (
        "02-21",
        "kernels/attention.py",
        "if a.dtype in WIDE:",
        "if a.dtype == torch.float32:",
        "the reference computes in 32 bits",
    ),
    (
        "02-32",
        "model/attention.py",
        "(left_pad - kv_offset).clamp(min=0)",
        "left_pad.clamp(max=kv_length - 1)",
        "padding not moved with the sliding cache",
    ),
    ("02-34", "model/attention.py", 'return "it has no sinks"', "return None", "FlashAttention 2 may train"),
    (
        "03-07",
        "tasks/matmul/products.py",
        "if not np.isfinite(c).all():\n        return False",
        "if not np.isfinite(c).all():\n        return True",
        "NaN passes the comparison",
    ),
    (
        "03-07",
        "sandbox/inside/lockdown.py",
        '"write": 1, "mmap": 9,',
        '"write": 1, "kill": 62, "getppid": 110, "mmap": 9,',
        "signals pass the filter",
    ),
    (
        "03-10",
        "sandbox/inside/policy.py",
        "set set_name setitem",
        "set set_name setitem subclasses base",
        "the policy lets classes be walked",
    ),
    (
        "03-13",
        "tasks/matmul/trial.py",
        "self._fail(ran=True,",
        "self._fail(ran=False,",
        "a wrong program counts as one that raised",
    ),
    (
        "03-13",
        "tasks/matmul/driver.py",
        "return CHANGED_OPERANDS\n",
        "pass\n",
        "nobody looks whether arguments were changed",
    ),
    ("03-18", "tasks/matmul/products.py", "ULP = 2.0**-53", "ULP = 2.0**-30", "a bound for other numbers"),
    (
        "03-23",
        "tasks/matmul/task.py",
        "return -1.0 if is_refused",
        "return 1.0 if is_refused",
        "cheating pays",
    ),
    (
        "03-23",
        "tasks/matmul/task.py",
        "if is_not_allowed(verdict):\n        return 0.0",
        "if is_not_allowed(verdict):\n        return -2.0",
        "a harmless module is punished",
    ),
    ("03-25", "tasks/matmul/task.py", "return 0.25 * max(-1.0", "return 0.5 * max(-1.0", "speed counts twice"),
    ("03-25", "tasks/matmul/task.py", "BELIEVED_SPEEDUP = 4.0", "BELIEVED_SPEEDUP = 400.0", "any speed is believed"),
    (
        "03-29",
        "rewards/code.py",
        "reversed(defining or python)",
        "(defining or python)",
        "takes the first of two versions",
    ),
    (
        "03-31",
        "tasks/matmul/task.py",
        "else (contract, code)",
        'else ("rows", code)',
        "the contract is no part of a verdict's key",
    ),
    (
        "03-31",
        "tasks/matmul/contracts.py",
        "return answer.T if",
        "return answer if",
        "results by columns are read by rows",
    ),
    ("03-33", "tasks/matmul/products.py", "(1, 97, 2)", "(1, 7, 2)", "the held-out check asks what the judge asked"),
    (
        "03-35",
        "grpo/advantages.py",
        "(squares / (count - 1).clamp(min=1))",
        "(squares / count)",
        "standard deviation with n",
    ),
    ("04-04", "grpo/losses.py", "loss_BT = -torch.min(", "loss_BT = torch.min(", "sign of the loss"),
    (
        "04-04",
        "grpo/losses.py",
        "ratio_BT.clamp(lowest, highest)",
        "ratio_BT.clamp(lowest, 2 * highest - 1)",
        "upper clip at 1.4",
    ),
    ("04-06", "grpo/losses.py", "return max(tokens, 1)", "return tokens + 1", "normaliser one token too large"),
    (
        "04-08",
        "grpo/controls.py",
        "None if value is None else -value",
        "None if value is None else value",
        "flipped control not flipped",
    ),
    (
        "04-08",
        "grpo/controls.py",
        "return [values[n] for n in order]",
        "return [values[n] for n in sorted(order)]",
        "shuffled control not shuffled",
    ),
    (
        "04-08",
        "grpo/controls.py",
        "return [certainty, *reward_funcs], [1.0, *only_logged], {}",
        "return [certainty, *reward_funcs], [1.0, *weights], {}",
        "certainty is paid by the task's reward too",
    ),
    (
        "04-08",
        "grpo/controls.py",
        "(alike[group, behaviour] - 1) / max(1, sizes[group] - 1)",
        "float(alike[group, behaviour] > 2)",
        "majority pays the plurality only",
    ),
    ("04-08", "grpo/controls.py", '{"learning_rate": 0.0}', '{"learning_rate": 1e-3}', "frozen control not frozen"),
    (
        "04-10",
        "tasks/split.py",
        'is_heldout(text) == (split != "train")',
        "True",
        "held-out prompts are trained on",
    ),
    (
        "04-10",
        "tasks/wording.py",
        '"confirm": "unseen"',
        '"confirm": "seen"',
        "the confirm prompts' wordings are trained on",
    ),
    (
        "04-13",
        "grpo/logprobs.py",
        "hidden[row_B1, at_BT - 1]",
        "hidden[row_B1, at_BT]",
        "scores a token by its own state",
    ),
    (
        "04-15",
        "grpo/monitor.py",
        "for tag, value in flags if value)",
        "for tag, value in flags)",
        "every tag counts, true or not",
    ),
    ("04-15", "grpo/monitor.py", "at_first + COLLAPSE", "at_first + 1", "a mode collapse is not named"),
    ("04-21", "grpo/trainer.py", 'logs = {"step": step,', 'logs = {"step": step - 1,', "steps counted from 0"),
    (
        "05-07",
        "evaluation/statistics.py",
        'proportion_ci(0.95, "wilson")',
        'proportion_ci(0.9, "wilson")',
        "intervals of 90 %",
    ),
    (
        "05-07",
        "evaluation/statistics.py",
        "binomtest(gained, gained + lost)",
        "binomtest(gained, gained + lost + 1)",
        "one discordant pair too many",
    ),
    (
        "05-07",
        "evaluation/statistics.py",
        "mean = (gained - lost) / items",
        "mean = (lost - gained) / items",
        "sign of the difference",
    ),
    (
        "05-09",
        "evaluation/statistics.py",
        "if len(set(clusters)) == 1:",
        "if True:",
        "prompts in the same words are taken as independent",
    ),
    (
        "05-09",
        "evaluation/statistics.py",
        "gained + lost + 1) / n",
        "gained + lost) / n",
        "agreement proves equality",
    ),
    (
        "05-11",
        "evaluation/compare.py",
        "if all(test.is_gain for test in tests) and self.best.interval[0] > self.win_margin:",
        "if self.sampled.is_gain and self.sampled.interval[0] > self.win_margin:",
        "a gain at temperature 1 is a win",
    ),
    (
        "05-11",
        "evaluation/compare.py",
        "for test in tests) and self.best.interval[0] > self.win_margin:",
        "for test in tests):",
        "a win needs no margin",
    ),
    ("05-11", "evaluation/compare.py", "if monitored & decisive:", "if False:", "prompts that choose may decide"),
    (
        "05-13",
        "evaluation/statistics.py",
        "1 - comb(samples - correct, k) / comb(samples, k)",
        "1 - (1 - correct / samples) ** k",
        "pass@k by the biased formula",
    ),
    (
        "05-13",
        "evaluation/statistics.py",
        "comb(len(texts) - copies, draws) / ways",
        "(1 - copies / len(texts)) ** draws",
        "different programs counted with replacement",
    ),
    (
        "05-15",
        "evaluation/breakdown.py",
        'Counter((before["outcome"], after["outcome"])',
        'Counter((after["outcome"], before["outcome"])',
        "transition matrix transposed",
    ),
    (
        "05-15",
        "evaluation/breakdown.py",
        "other=len(still_wrong) - same",
        "other=len(now) - same",
        "faults counted twice",
    ),
    (
        "05-16",
        "evaluation/breakdown.py",
        'after["tags"][measure.tag] / before["tags"][measure.tag]',
        'before["tags"][measure.tag] / after["tags"][measure.tag]',
        "speed of the base over the tuned model's",
    ),
    (
        "05-16",
        "evaluation/breakdown.py",
        "compare_records(*zip(*groups[value]))",
        "compare_records(*zip(*groups[value][1:]))",
        "first item of a group left out",
    ),
    ("05-22", "evaluation/records.py", "swept = records_at(temperatures,", "swept = records_at([1.0],", "no sweep"),
    (
        "05-22",
        "rollout/engine.py",
        'random_seed("rollout", params.seed, start)',
        'random_seed("rollout", start)',
        "every seed draws the same",
    ),
    ("05-22", "grpo/trainer.py", "        self.optimizer.step()\n", "", "no optimizer step"),
]


def notebook_of(cell):
    """Name of the notebook that a cell id belongs to."""
    return next(name for name in NOTEBOOKS if name.startswith(cell[:2]))


def table():
    """The faults as rows of a Markdown table."""
    lines = ["| fault | helper | caught by | cell |", "|---|---|---|---|"]
    rows = (f"| {what} | `{file}` | {notebook_of(cell)} | {cell} |" for cell, file, _, _, what in FAULTS)
    return "\n".join([*lines, *rows])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
