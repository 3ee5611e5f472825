"""One wrong helper at a time, and the cell that must notice: `python -m tests.notebooks.faults` prints the table.

Each entry: notebook, file under helpers/, the right text, the wrong one, and what is wrong.
"""

import sys

FAULTS = [
    (
        "01_load",
        "kernels/mxfp4.py",
        "values[(blocks & 15).int()], values[(blocks >> 4).int()]",
        "values[(blocks >> 4).int()], values[(blocks & 15).int()]",
        "high half of a byte first",
    ),
    ("01_load", "kernels/mxfp4.py", "_BIAS = 127", "_BIAS = 126", "exponent bias 126"),
    (
        "01_load",
        "kernels/mxfp4.py",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)",
        "(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 4.5)",
        "rounds 4.6 to 6",
    ),
    (
        "01_load",
        "model/memory.py",
        '"experts, unpacked from MXFP4": experts * item',
        '"experts, unpacked from MXFP4": experts * item // 2',
        "plans half of the experts",
    ),
    (
        "01_load",
        "rollout/engine.py",
        "self.kept.append(self.previous.gather(1, tokens))",
        "self.kept.append(self.previous.gather(1, tokens - 1))",
        "notes the log-probability of another token",
    ),
    (
        "02_attention",
        "kernels/attention.py",
        "(position - key < window)",
        "(position - key <= window)",
        "window of 129 keys",
    ),
    (
        "02_attention",
        "kernels/attention.py",
        "seen & (key >= left_pad[row])",
        "seen & (key > left_pad[row])",
        "left padding one key too long",
    ),
    (
        "02_attention",
        "kernels/attention.py",
        "torch.sigmoid(lse - sinks",
        "torch.sigmoid(sinks - lse",
        "sign of the sink's share",
    ),
    ("02_attention", "kernels/attention.py", "lse.float() * math.log(2)", "lse.float()", "log-sum-exp in base 2"),
    (
        "02_attention",
        "kernels/attention.py",
        "kept = torch.sigmoid(lse -",
        "kept = torch.sigmoid(lse.detach() -",
        "gradient through the log-sum-exp dropped",
    ),
    (
        "03_rewards",
        "sandbox/sandbox.py",
        "return bool((np.abs(c - product) <=",
        "return not bool((np.abs(c - product) >",
        "NaN passes the comparison",
    ),
    ("03_rewards", "rewards/matmul.py", "return 0.25 * max(-1.0", "return 0.5 * max(-1.0", "speed counts twice"),
    (
        "03_rewards",
        "rewards/matmul.py",
        "lambda verdict: -1.0 if is_cheat",
        "lambda verdict: 1.0 if is_cheat",
        "cheating pays",
    ),
    (
        "03_rewards",
        "rewards/matmul.py",
        'text.count("```") != 2',
        'text.count("```") < 2',
        "takes the first of two blocks",
    ),
    (
        "03_rewards",
        "grpo/advantages.py",
        "(squares / (count - 1).clamp(min=1))",
        "(squares / count)",
        "standard deviation with n",
    ),
    ("04_grpo", "grpo/losses.py", "per_token = -torch.min(", "per_token = torch.min(", "sign of the loss"),
    (
        "04_grpo",
        "grpo/losses.py",
        "ratio.clamp(1 - epsilon, 1 + epsilon_high)",
        "ratio.clamp(1 - epsilon, 1 + 2 * epsilon_high)",
        "upper clip at 1.4",
    ),
    ("04_grpo", "grpo/losses.py", "return max(tokens, 1) if", "return tokens + 1 if", "normaliser one token too large"),
    (
        "04_grpo",
        "grpo/controls.py",
        "None if value is None else -value",
        "None if value is None else value",
        "flipped control not flipped",
    ),
    (
        "04_grpo",
        "grpo/logprobs.py",
        "hidden[row_B1, at_BT - 1]",
        "hidden[row_B1, at_BT]",
        "scores a token by its own state",
    ),
    (
        "04_grpo",
        "tasks/__init__.py",
        'if is_heldout(text) == (split == "heldout")',
        "if True",
        "held-out prompts are trained on",
    ),
    (
        "05_evaluate",
        "evaluation/compare.py",
        'proportion_ci(0.95, "wilson")',
        'proportion_ci(0.9, "wilson")',
        "intervals of 90 %",
    ),
    (
        "05_evaluate",
        "evaluation/compare.py",
        "binomtest(gained, gained + lost)",
        "binomtest(gained, gained + lost + 1)",
        "one discordant pair too many",
    ),
    (
        "05_evaluate",
        "evaluation/compare.py",
        "difference = (gained - lost) / items",
        "difference = (lost - gained) / items",
        "sign of the difference",
    ),
    (
        "05_evaluate",
        "evaluation/compare.py",
        "gained + lost + 1) / n",
        "gained + lost) / n",
        "agreement proves equality",
    ),
    (
        "05_evaluate",
        "evaluation/breakdown.py",
        "Counter((outcome_of(before), outcome_of(after))",
        "Counter((outcome_of(after), outcome_of(before))",
        "transition matrix transposed",
    ),
    (
        "05_evaluate",
        "evaluation/breakdown.py",
        'after["speedup"] / before["speedup"]',
        'before["speedup"] / after["speedup"]',
        "speed of the base over the tuned model's",
    ),
]


def table():
    """The faults as rows of a Markdown table."""
    lines = ["| notebook | helper | fault |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | `{file}` | {wrong} |" for name, file, _, _, wrong in FAULTS)])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
