"""The table in which a run ends."""

import json
from pathlib import Path

from helpers.display import text_table
from helpers.evaluation import Report, show_difference, show_p, show_temperatures, trained_on


def closing_table(folder: Path, minutes: float) -> str:
    """Return the closing table, from the report that an evaluation wrote."""
    page = folder.resolve() / "05_evaluate.html"
    saved = json.loads((folder / "report.json").read_text())
    report = Report.from_dict(saved)
    best = report.best
    base_at = show_temperatures(report.base_temperatures)
    tuned_at = show_temperatures(report.tuned_temperatures)
    headline = report.headline
    rows = [
        (f"tuned at its best, {tuned_at} [95 %]", _show_share(best.tuned_rate, best.tuned_interval)),
        (f"base at its best, {base_at} [95 %]", _show_share(best.base_rate, best.base_interval)),
        ("smallest of three differences", f"{show_difference(headline)}, against the base {report.headline_base}"),
        ("", show_p(headline)),
        ("against the base at its best", show_difference(best)),
        ("against the base greedy", show_difference(report.against_greedy)),
        ("against the base at T = 1", show_difference(report.against_sampled)),
        ("both at T = 1", show_difference(report.sampled)),
        ("on", f"{best.items} held-out prompts in {best.clusters} clusters not trained on"),
        ("verdict", report.verdict),
    ]
    for outcome in report.base_outcomes | report.tuned_outcomes:
        before = report.base_outcomes.get(outcome, 0.0)
        after = report.tuned_outcomes.get(outcome, 0.0)
        rows.append((f"{outcome} at T = 1", f"{before:.1%} -> {after:.1%}"))
    rows += [
        ("trained", trained_on(saved["origin"])),
        ("minutes", f"{minutes:.1f}"),
        ("report", str(page if page.exists() else folder / "report.json")),
    ]
    return text_table(rows)


def _show_share(rate: float, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{rate:.1%} [{low:.1%}, {high:.1%}]"
