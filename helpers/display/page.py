"""What `LiveView` shows, from plain values: one HTML page, one text, one line.

The page has inline styles only, since a <style> would change the notebook around it, and colours that
can be read on white and on black. Whatever is missing or no number is shown as a dash.
"""

import html
import math
import re

from helpers.display.tables import text_table
from helpers.step_line import step_line

BLUE, GREEN, ORANGE, PLAIN = "#4a86d8", "#2e9e6b", "#d9622b", "currentColor"
#: The page's rows: log name, heading (indented: a part of the row above), format, colour of the curve.
REWARD = ("reward", "reward", "{:+.2f}", BLUE)
#: Colours of outcomes that mean the same in every task; the others are plain.
OUTCOME_COLOURS = {"outcomes/correct": GREEN, "outcomes/refused": ORANGE}
REST = (
    ("completions/mean_length", "tokens a completion", "{:.0f}", PLAIN),
    ("completions/max_length", "  longest", "{:.0f}", PLAIN),
    ("completions/clipped_ratio", "  cut off", "{:.0%}", PLAIN),
    ("entropy", "entropy", "{:.3f}", PLAIN),
    ("step_time", "seconds a step", "{:.1f}", PLAIN),
    ("time/generate", "  generate", "{:.1f}", PLAIN),
    ("time/reward", "  reward", "{:.1f}", PLAIN),
    ("time/update", "  update", "{:.1f}", PLAIN),
)
POINTS, EDGE = 120, 5
BEST = "best completion of this step"
#: Control characters become visible; what cannot be encoded or turns the writing direction is replaced.
SAFE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
SAFE |= dict.fromkeys(
    [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "\ufffd"
)
CELL = "border:none;padding:1px 0 1px 14px;text-align:right;white-space:nowrap;"
SOFT = "opacity:.65;"
BLOCK = "margin:4px 0;padding:0 0 0 10px;border-left:3px solid rgba(128,128,128,.35);background:none;color:inherit;"
BLOCK += "font:12px/1.45 ui-monospace,Menlo,Consolas,monospace;"
BLOCK += "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;"


def line(state, logs):
    """One short line for a terminal."""
    left = _times(state)[1]
    minutes = _show("{:.1f}", left and left / 60)
    return f"step {state.global_step}/{state.max_steps}  {step_line(logs)}  {minutes} min left{_watched(logs, '; ')}"


def page(state, logs, completions):
    """The HTML."""
    share = 100 * min(1, state.global_step / max(1, state.max_steps))
    tables = "".join(map(_table, _rows(state.log_history, logs)))
    return (
        '<div style="font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;max-width:800px">'
        '<div style="display:flex;justify-content:space-between">'
        f"<b>{_progress(state)}</b><span>{_remaining(state)}</span></div>"
        '<div style="height:4px;margin:5px 0 10px;border-radius:2px;background:rgba(128,128,128,.25)">'
        f'<div style="height:4px;border-radius:2px;width:{share:.1f}%;background:{BLUE}"></div></div>'
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start;gap:8px 40px">{tables}</div>'
        f'<div style="{SOFT}font-size:11px;margin:6px 0 14px">{_explain(state.log_history)}</div>'
        f'<div style="color:{ORANGE};white-space:pre-line;margin:0 0 10px">{html.escape(_watched(logs))}</div>'
        f"{_best_html(completions)}</div>"
    )


def text(state, logs, completions):
    """The same where no HTML is shown."""
    left, right = _rows(state.log_history, logs)
    rows = [(heading, latest, change) for heading, latest, change, *_ in left + right]
    heading = f"{_progress(state)}, {_remaining(state)}"
    parts = [heading, text_table(rows, header=("", "latest", "change")), _explain(state.log_history) + _watched(logs)]
    best = best_of(completions)
    parts += [f"{BEST}: {_rewards(best)}", _prompt(best), _completion(best)] if best else []
    return "\n".join(parts)


def best_of(completions):
    """The completion with the highest reward; None where there are none."""

    def reward(row):
        value = _number(row.get("reward"))
        return -math.inf if value is None else value

    return max(completions, key=reward, default=None)


def _number(value):
    """A finite float, or None."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _show(form, value):
    value = _number(value)
    return "–" if value is None else form.format(value)


def _mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _times(state):
    """Seconds that this session's steps took, and seconds to go at their mean pace; None: not known.

    `global_step` counts earlier sessions too, so it says what is left but not how fast it goes.
    """
    seconds = [_number(row.get("step_time")) for row in state.log_history]
    pace = _mean(seconds)
    if pace is None:
        return None, None
    return pace * len(seconds), pace * (state.max_steps - state.global_step)


def _duration(seconds):
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _progress(state):
    done = f"step {state.global_step} of {state.max_steps}"
    if state.drawing is None:
        return done
    finished, count = state.drawing
    return f"{done}, drawing {finished} of {count}"


def _remaining(state):
    spent, left = map(_duration, _times(state))
    return f"{spent} so far, {left} left"


def _explain(history):
    edge = min(EDGE, len(history) // 2)
    if not edge:
        return "change and curves from the second step on"
    return f"curves from step {history[0].get('step')}; change: mean of the last {edge} against the first {edge}"


def _watched(logs, before="\n"):
    """What the trainer's monitor says of this step, each sentence after `before`; nothing is the good case."""
    return "".join(f"{before}watch: {_cut(str(sign), 1, 200)}" for sign in logs.get("monitor/signs") or ())


def _rows(history, logs):
    """Two lists of (heading, latest, change, colour, values), for the left and the right table."""
    names = {**(history[0] if history else {}), **logs}
    rewards = [name for name in names if re.fullmatch("rewards/.*/mean", name)]
    parts = [(name, "  " + _cut(name[8:-5], 1, 32), "{:+.2f}", PLAIN) for name in rewards]
    outcomes = [name for name in names if name.startswith("outcomes/")]
    rates = [(name, _cut(name[9:], 1, 32), "{:.0%}", OUTCOME_COLOURS.get(name, PLAIN)) for name in outcomes]
    tables = []
    for columns in ((REWARD, *parts, *rates), REST):
        values = [[_number(row.get(name)) for row in history] for name, *_ in columns]
        tables.append(
            [
                (heading, _show(form, logs.get(name)), _change(form, known), colour, known)
                for (name, heading, form, colour), known in zip(columns, values)
            ]
        )
    return tables


def _change(form, values):
    edge = min(EDGE, len(values) // 2)
    first, last = _mean(values[:edge]), _mean(values[len(values) - edge :])
    if first is None or last is None:
        return "–"
    if "%" in form:
        return f"{100 * (last - first):+z.0f} pt"
    return form.replace("+", "").replace("{:", "{:+z").format(last - first)


def _table(rows):
    head = "".join(f'<th style="{CELL}{SOFT}font-weight:normal">{name}</th>' for name in ("", "latest", "change", ""))
    body = ""
    for heading, latest, change, colour, values in rows:
        part = heading.startswith("  ")
        left = f"text-align:left;padding-left:{12 * part}px;font-weight:normal;"
        body += (
            f'<tr style="background:none"><th style="{CELL}{left}{SOFT * part}">{html.escape(heading.strip())}</th>'
            f'<td style="{CELL}">{latest}</td><td style="{CELL}{SOFT}">{change}</td>'
            f'<td style="{CELL}">{_curve(values, colour)}</td></tr>'
        )
    style = "border-collapse:collapse;border:none;margin:0;table-layout:auto;font-size:inherit;color:inherit"
    return f'<table style="{style}"><thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table>'


def _curve(values, colour, width=96, height=16):
    """An SVG line through at most POINTS means of neighbouring steps, the latest marked."""
    size = max(1, -(-len(values) // POINTS))
    means = [_mean(values[n : n + size]) for n in range(0, len(values), size)]
    known = [(n / max(1, len(means) - 1), value) for n, value in enumerate(means) if value is not None]
    if not known:
        return ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    heights = [(value - low) / (high - low) if low < high else 0.5 for _, value in known]
    points = [
        (f"{2 + (width - 5) * x:.1f}", f"{height - 2 - (height - 4) * y:.1f}") for (x, _), y in zip(known, heights)
    ]
    path = " ".join(map(",".join, points))
    return (
        f'<svg width="{width}" height="{height}" aria-hidden="true" style="vertical-align:middle">'
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-opacity=".7" stroke-width="1.2"/>'
        f'<circle cx="{points[-1][0]}" cy="{points[-1][1]}" r="2" fill="{colour}"/></svg>'
    )


def _best_html(completions):
    best = best_of(completions)
    if best is None:
        return ""
    return (
        f'<div><b>{BEST}</b> <span style="{SOFT}margin-left:8px">{html.escape(_rewards(best))}</span></div>'
        f'<pre style="{BLOCK}{SOFT}">{html.escape(_prompt(best))}</pre>'
        f'<pre style="{BLOCK}">{html.escape(_completion(best))}</pre>'
    )


def _rewards(row):
    shown = [f"{_cut(name, 1, 32)} {_show('{:+.2f}', value)}" for name, value in row["rewards"].items()]
    return ", ".join(shown)


def _prompt(row):
    prompt = row["prompt"]
    return _cut(prompt if isinstance(prompt, str) else "\n".join(str(m["content"]) for m in prompt), 6, 600)


def _completion(row):
    return _cut(row["completion"], 24, 2000)


def _cut(text, lines, characters):
    """The beginning of a text that nobody trusts, safe to show but for HTML."""
    kept = "\n".join(text[:characters].split("\n")[:lines])
    more = f"\n… {len(text) - len(kept):,} more characters" if len(kept) < len(text) else ""
    return kept.translate(SAFE) + more
