"""Cards, bars and tables as HTML with inline styles. Every function takes plain values and returns a `Page`.

A page can be read on white, on black, and 420 pixels wide: text keeps the notebook's own colour, boxes wrap, and
right and wrong differ in a word and a sign, not in colour alone.
"""

import html
from collections.abc import Mapping, Sequence

from helpers.display.tables import text_table

BLUE, ORANGE, SOFT = "#2b8cc4", "#e0702b", "rgba(128,128,128,.22)"
#: Colours of the parts of a bar and of boxes.
PARTS = ("#0072B2", "#B04A00", "#007A59", "#8a4f7d", "#4b5563", "#7a6a00")
FONT = "font:14px/1.5 system-ui,sans-serif;max-width:860px;"
CODE = "font:12px/1.5 ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0 0;"
CODE += "background:none;color:inherit;padding:0;border:none;"


class Page:
    """HTML for a notebook, and the same as text for a terminal and for readers who cannot see it."""

    def __init__(self, markup: str, text: str):
        self.markup = markup
        self.text = text

    def __repr__(self):
        return self.text

    def _repr_html_(self):
        return f'<div style="{FONT}">{self.markup}</div>'


def answer_cards(answers: Sequence[tuple[str, bool, str, str]], mark: Sequence[str] = ()) -> Page:
    """Show answers as cards, right and wrong ones told apart.

    answers: (title, is_right, reason, text). mark: pieces of text that are underlined wherever they stand.
    """
    cards = []
    lines = []
    for title, is_right, reason, text in answers:
        sign, colour = ("✓ right", BLUE) if is_right else ("✗ wrong", ORANGE)
        body = html.escape(text)
        for piece in mark:
            marked = f'<b style="border-bottom:3px solid {ORANGE}">{html.escape(piece)}</b>'
            body = body.replace(html.escape(piece), marked)
        cards.append(
            f'<div style="flex:1 1 300px;min-width:0;border:1px solid {SOFT};border-left:6px solid {colour};'
            f'border-radius:6px;padding:8px 12px"><b>{sign}</b> · {html.escape(title)}'
            f'<div style="opacity:.75;font-size:12px">{html.escape(reason)}</div><pre style="{CODE}">{body}</pre></div>'
        )
        lines.append(f"{sign}: {title}. {reason}\n{text}")
    return Page(f'<div style="display:flex;flex-wrap:wrap;gap:10px">{"".join(cards)}</div>', "\n\n".join(lines))


def token_bars(panels: Sequence[tuple[str, Mapping[str, float]]], right: str | None = None) -> Page:
    """Show the probabilities of the next token as bars.

    panels: (title, {token: probability}). right: the right token, where one is known; the others are marked as wrong.
    """
    blocks = []
    lines = []
    for title, probabilities in panels:
        rows = ""
        lines.append(title)
        for token, share in probabilities.items():
            colour, sign = (BLUE, "✓") if token == right else (ORANGE, "✗")
            if right is None:
                colour, sign = BLUE, "·"
            rows += (
                f'<div style="display:flex;align-items:center;gap:8px;margin:3px 0"><code style="width:70px;'
                f'background:none;color:inherit">{sign} {html.escape(token.strip() or repr(token))}</code>'
                f'<div style="flex:1;background:{SOFT};border-radius:3px"><div style="width:{100 * share:.1f}%;'
                f'height:16px;border-radius:3px;background:{colour}"></div></div>'
                f'<span style="width:48px;text-align:right">{share:.3f}</span></div>'
            )
            lines.append(f"  {sign} {token!r:<12} {share:.3f}")
        blocks.append(f'<div style="flex:1 1 300px;min-width:0"><b>{html.escape(title)}</b>{rows}</div>')
    return Page(f'<div style="display:flex;flex-wrap:wrap;gap:8px 28px">{"".join(blocks)}</div>', "\n".join(lines))


def stacked_bar(parts: Mapping[str, float], limit: float, unit: str, title: str) -> Page:
    """Show amounts as one bar, beside a limit. parts: label -> amount; limit: what there is, in the same unit."""
    longest = max(limit, sum(parts.values()))
    pieces = ""
    labels = ""
    for (label, size), colour in zip(parts.items(), PARTS * 3):
        width = 100 * size / longest
        pieces += f'<div title="{html.escape(label)}" style="width:{width:.2f}%;background:{colour};height:28px"></div>'
        square = f'<span style="color:{colour}">■</span>'
        labels += f'<span style="white-space:nowrap">{square} {html.escape(label)} {size:.2f}</span> '
    at = 100 * limit / longest
    markup = (
        f"<b>{html.escape(title)}</b>"
        f'<div style="position:relative;display:flex;background:{SOFT};margin:8px 0 4px">{pieces}'
        f'<div style="position:absolute;left:calc({at:.2f}% - 2px);top:-4px;height:36px;width:2px;'
        f'background:currentColor"></div></div>'
        f'<div style="text-align:right;font-size:12px">the line: {limit:.2f} {unit} that there is</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px">{labels}</div>'
    )
    listed = ", ".join(f"{label} {size:.2f}" for label, size in parts.items())
    return Page(markup, f"{title}: {listed}; in all {sum(parts.values()):.2f} of {limit:.2f} {unit}")


def sketch(boxes: Sequence[tuple[str, str]], title: str = "", is_loop: bool = False) -> Page:
    """Show steps as boxes with arrows. boxes: (name, what happens). is_loop: the last step leads to the first."""
    pieces = []
    for number, (name, what) in enumerate(boxes):
        arrow = "→" if number + 1 < len(boxes) else "↺" if is_loop else ""
        pieces.append(
            f'<div style="display:flex;flex:1 1 150px;min-width:0;align-items:center;gap:6px"><div style="flex:1;'
            f'border:2px solid {PARTS[number % len(PARTS)]};border-radius:8px;padding:6px 10px;min-height:76px"><b>'
            f'{html.escape(name)}</b><div style="font-size:12px">{html.escape(what)}</div></div>'
            f'<b style="font-size:20px;width:18px">{arrow}</b></div>'
        )
    heading = f"<b>{html.escape(title)}</b>" if title else ""
    text = " → ".join(f"{name} ({what})" for name, what in boxes) + (" → again" if is_loop else "")
    markup = f'{heading}<div style="display:flex;flex-wrap:wrap;gap:8px;margin:6px 0">{"".join(pieces)}</div>'
    return Page(markup, f"{title}: {text}" if title else text)


def table(rows: Sequence[Sequence], header: Sequence[str]) -> Page:
    """Show rows as an HTML table; as text it is `text_table`. Cells are texts, numbers, or None."""
    cell = f"text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid {SOFT};vertical-align:top;"
    head = "".join(f'<th style="{cell}">{html.escape(name)}</th>' for name in header)
    body = ""
    for row in rows:
        cells = ["–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value) for value in row]
        columns = "".join(f'<td style="{cell}">{html.escape(value)}</td>' for value in cells)
        body += f'<tr style="background:none">{columns}</tr>'
    markup = (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:13px;color:inherit;margin:0">'
        f'<thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    return Page(markup, text_table(rows, header=header))


def sink_bars(shares: Mapping[str, float], title: str) -> str:
    """Return HTML for shares of attention that sum to 1, the sink's among them. shares: label -> share."""
    rows = ""
    for label, share in shares.items():
        colour = ORANGE if label == "sink" else BLUE
        rows += (
            f'<div style="display:flex;align-items:center;gap:8px;margin:3px 0"><span style="width:60px">'
            f'{html.escape(label)}</span><div style="flex:1;background:{SOFT}"><div style="width:{100 * share:.1f}%;'
            f'height:18px;background:{colour}"></div></div><span style="width:52px">{share:.1%}</span></div>'
        )
    return f'<div style="{FONT}"><b>{html.escape(title)}</b>{rows}</div>'
