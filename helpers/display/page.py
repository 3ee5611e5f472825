"""What `LiveView` shows of a trainer's state, from plain values: one HTML page, one text, one line.

The page has inline styles only, since a <style> would change the notebook around it, and colours that
can be read on white and on black. Whatever is missing or no number is shown as a dash.
"""

import html
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from helpers.display.tables import text_table
from helpers.step_line import step_line

BLUE, GREEN, ORANGE, PLAIN = "#4a86d8", "#2e9e6b", "#d9622b", "currentColor"


class Metric(NamedTuple):
    """A row of the page. name: in the logs. heading: indented where it is a part of the row above."""

    name: str
    heading: str
    form: str
    colour: str = PLAIN


REWARD = Metric("reward", "reward", "{:+.2f}", BLUE)
#: Signs of the monitor that are shown: each is given once, so those of earlier steps stay.
MOST_SIGNS = 4
#: Colours of outcomes that mean the same in every task; the others are plain.
OUTCOME_COLOURS = {"outcomes/correct": GREEN, "outcomes/refused": ORANGE}
REST = (
    Metric("completions/mean_length", "tokens a completion", "{:.0f}"),
    Metric("completions/max_length", "  longest", "{:.0f}"),
    Metric("completions/clipped_ratio", "  cut off", "{:.0%}"),
    Metric("entropy", "entropy", "{:.3f}"),
    Metric("step_time", "seconds a step", "{:.1f}"),
    Metric("time/generate", "  generate", "{:.1f}"),
    Metric("time/reward", "  reward", "{:.1f}"),
    Metric("time/update", "  update", "{:.1f}"),
)
#: Points of a curve, and steps at either end of the run that "change" compares.
POINTS, EDGE = 120, 5
BEST = "best completion of the last step"
#: Control characters become visible; what cannot be encoded or turns the writing direction is replaced.
SAFE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
SAFE |= dict.fromkeys(
    [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "\ufffd"
)
FONT = "font:13px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;"
CELL = "border:none;padding:1px 0 1px 14px;text-align:right;white-space:nowrap;"
SOFT = "opacity:.65;"
BLOCK = "margin:4px 0;padding:0 0 0 10px;border-left:3px solid rgba(128,128,128,.35);background:none;color:inherit;"
BLOCK += "font:12px/1.45 ui-monospace,Menlo,Consolas,monospace;"
BLOCK += "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;"


def line(state) -> str:
    """Return one short line for a terminal."""
    logs = _latest(state)
    _, left = _times(state)
    minutes = show("{:.1f}", left and left / 60)
    signs = "".join(f"; {sign}" for sign in _signs([logs]))
    return f"step {state.global_step}/{state.max_steps}  {step_line(logs)}  {minutes} min left{signs}"


def page(state) -> str:
    """Return the HTML."""
    share = 100 * min(1, state.global_step / max(1, state.max_steps))
    return (
        f'<div style="{FONT}max-width:800px">'
        '<div style="display:flex;justify-content:space-between">'
        f"<b>{_progress(state)}</b><span>{_duration_line(state)}</span></div>"
        '<div style="height:4px;margin:5px 0;border-radius:2px;background:rgba(128,128,128,.25)">'
        f'<div style="height:4px;border-radius:2px;width:{share:.1f}%;background:{BLUE}"></div></div>'
        f'<div style="min-height:1.5em">{html.escape(_phase(state))}</div>'
        f"{_metrics_html(state)}{_best_html(state)}</div>"
    )


def text(state) -> str:
    """Return the same where no HTML is shown."""
    parts = [", ".join(filter(None, (_progress(state), _duration_line(state))))]
    if state.phase:
        parts.append(_phase(state))
    if state.history:
        rows = [(row.heading, row.latest, row.change) for table in _tables(state) for row in table]
        parts.append(text_table(rows, header=("", "latest", "change")))
        parts += [_explain(state.history), *_signs(state.history)]
    best = best_of(state.completions)
    if best is not None:
        parts += [f"{BEST}: {_rewards(best)}", _prompt(best), _completion(best)]
    return "\n".join(parts)


def completion_html(row: dict, title: str) -> str:
    """Return the HTML of one completion: its rewards, prompt and text."""
    rewards = f'<span style="{SOFT}margin-left:8px">{html.escape(_rewards(row))}</span>'
    return (
        f'<div style="{FONT}max-width:800px">'
        f"<div><b>{html.escape(title)}</b> {rewards}</div>"
        f'<pre style="{BLOCK}{SOFT}">{html.escape(_prompt(row))}</pre>'
        f'<pre style="{BLOCK}">{html.escape(_completion(row))}</pre></div>'
    )


def best_first(completions: Sequence[dict]) -> list[dict]:
    """Return completions in the order of their rewards. What nothing judged is last."""

    def reward(row: dict) -> float:
        value = _number(row.get("reward"))
        return -math.inf if value is None else value

    return sorted(completions, key=reward, reverse=True)


def best_of(completions: Sequence[dict]) -> dict | None:
    """Return the completion with the highest reward; None where there are none."""
    ranked = best_first(completions)
    return ranked[0] if ranked else None


def show(form: str, value) -> str:
    """Return a number as `form` says, and a dash for what is no finite number."""
    value = _number(value)
    return "–" if value is None else form.format(value)


def cut(text: str, lines: int, characters: int) -> str:
    """Return the beginning of a text that nobody trusts, safe to show but for HTML."""
    kept = "\n".join(text[:characters].split("\n")[:lines])
    more = f"\n… {len(text) - len(kept):,} more characters" if len(kept) < len(text) else ""
    return kept.translate(SAFE) + more


def _number(value) -> float | None:
    """Return a finite float, or None."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _latest(state) -> dict:
    """Return the metrics of the last step; {} before the first."""
    return state.history[-1] if state.history else {}


# Progress and time


def _progress(state) -> str:
    return f"{state.global_step} of {state.max_steps} steps done"


def _phase(state) -> str:
    """Return what the trainer does now, and how much of that is done."""
    if not state.phase or state.progress is None:
        return state.phase
    finished, count = state.progress
    return f"{state.phase}: {finished} of {count}"


def _times(state) -> tuple[float | None, float | None]:
    """Return seconds that all steps took, and seconds to go at the mean pace of this session; None: not known.

    Before the first step of a resumed session the pace is that of the sessions before.
    """
    seconds = [_number(row.get("step_time")) for row in state.history]
    mean = _mean(seconds)
    pace = _mean([_number(row.get("step_time")) for row in state.log_history])
    if pace is None:
        pace = mean
    spent = None if mean is None else mean * len(seconds)
    left = None if pace is None else pace * (state.max_steps - state.global_step)
    return spent, left


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _duration_line(state) -> str:
    """Return the time spent and the time left; nothing before the first step."""
    if not state.history:
        return ""
    spent, left = map(_duration, _times(state))
    return f"{spent} so far, {left} left"


# Metrics


class Row(NamedTuple):
    """A metric as it is shown. values: one a step, None where a step has none."""

    heading: str
    latest: str
    change: str
    colour: str
    values: list[float | None]


def _tables(state) -> list[list[Row]]:
    """Return the rows of the left and of the right table."""
    logs = _latest(state)
    names = {**state.history[0], **logs}
    rewards = [name for name in names if re.fullmatch("rewards/.*/mean", name)]
    parts = [Metric(name, "  " + cut(name[8:-5], 1, 32), "{:+.2f}") for name in rewards]
    outcomes = [name for name in names if name.startswith("outcomes/")]
    rates = [Metric(name, cut(name[9:], 1, 32), "{:.0%}", OUTCOME_COLOURS.get(name, PLAIN)) for name in outcomes]
    return [[_row(metric, state.history) for metric in metrics] for metrics in ((REWARD, *parts, *rates), REST)]


def _row(metric: Metric, history: Sequence[dict]) -> Row:
    values = [_number(row.get(metric.name)) for row in history]
    return Row(
        heading=metric.heading,
        latest=show(metric.form, values[-1]),
        change=_change(metric.form, values),
        colour=metric.colour,
        values=values,
    )


def _change(form: str, values: Sequence[float | None]) -> str:
    """Return the mean of the last steps minus that of the first."""
    edge = min(EDGE, len(values) // 2)
    first = _mean(values[:edge])
    last = _mean(values[len(values) - edge :])
    if first is None or last is None:
        return "–"
    if "%" in form:
        return f"{100 * (last - first):+z.0f} pt"
    signed = form.replace("+", "").replace("{:", "{:+z")
    return signed.format(last - first)


def _explain(history: Sequence[dict]) -> str:
    edge = min(EDGE, len(history) // 2)
    if not edge:
        return "change and curves from the second step on"
    return f"curves from step {history[0].get('step')}; change: mean of the last {edge} against the first {edge}"


def _signs(history: Sequence[dict]) -> list[str]:
    """Return the latest signs and alarms of a run, as sentences with their step; none is the good case."""
    given = [(row.get("step"), sign) for row in history for sign in row.get("monitor/signs") or ()]
    return [f"watch, step {step}: {cut(str(sign), 1, 200)}" for step, sign in given[-MOST_SIGNS:]]


def _metrics_html(state) -> str:
    if not state.history:
        return ""
    tables = "".join(map(_table, _tables(state)))
    signs = html.escape("\n".join(_signs(state.history)))
    return (
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start;gap:8px 40px;margin-top:6px">{tables}</div>'
        f'<div style="{SOFT}font-size:11px;margin:6px 0 14px">{_explain(state.history)}</div>'
        f'<div style="color:{ORANGE};white-space:pre-line;margin:0 0 10px">{signs}</div>'
    )


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f'<th style="{CELL}{SOFT}font-weight:normal">{name}</th>' for name in ("", "latest", "change", ""))
    body = "".join(map(_table_row, rows))
    style = "border-collapse:collapse;border:none;margin:0;table-layout:auto;font-size:inherit;color:inherit"
    return f'<table style="{style}"><thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table>'


def _table_row(row: Row) -> str:
    is_part = row.heading.startswith("  ")
    left = f"text-align:left;padding-left:{12 * is_part}px;font-weight:normal;{SOFT * is_part}"
    return (
        f'<tr style="background:none"><th style="{CELL}{left}">{html.escape(row.heading.strip())}</th>'
        f'<td style="{CELL}">{row.latest}</td><td style="{CELL}{SOFT}">{row.change}</td>'
        f'<td style="{CELL}">{_curve(row.values, row.colour)}</td></tr>'
    )


def _curve(values: Sequence[float | None], colour: str, width: int = 96, height: int = 16) -> str:
    """Return an SVG line through at most POINTS means of neighbouring steps, the latest marked."""
    size = max(1, math.ceil(len(values) / POINTS))
    means = [_mean(values[start : start + size]) for start in range(0, len(values), size)]
    known = [(place / max(1, len(means) - 1), value) for place, value in enumerate(means) if value is not None]
    if not known:
        return ""
    low = min(value for _, value in known)
    high = max(value for _, value in known)
    points = []
    for x, value in known:
        y = (value - low) / (high - low) if low < high else 0.5
        points.append((f"{2 + (width - 5) * x:.1f}", f"{height - 2 - (height - 4) * y:.1f}"))
    path = " ".join(map(",".join, points))
    return (
        f'<svg width="{width}" height="{height}" aria-hidden="true" style="vertical-align:middle">'
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-opacity=".7" stroke-width="1.2"/>'
        f'<circle cx="{points[-1][0]}" cy="{points[-1][1]}" r="2" fill="{colour}"/></svg>'
    )


# Completions


def _best_html(state) -> str:
    best = best_of(state.completions)
    return "" if best is None else completion_html(best, BEST)


def _rewards(row: dict) -> str:
    shown = [f"{cut(name, 1, 32)} {show('{:+.2f}', value)}" for name, value in row["rewards"].items()]
    return ", ".join(shown)


def _prompt(row: dict) -> str:
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        prompt = "\n".join(str(message["content"]) for message in prompt)
    return cut(prompt, 6, 600)


def _completion(row: dict) -> str:
    return cut(row["completion"], 24, 2000)
