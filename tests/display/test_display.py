"""Tables, cards and figures draw what they are given, also where little is known."""

import math
import re

import pytest

from helpers import (
    answer_cards,
    plot_dumbbells,
    plot_forest,
    plot_lines,
    plot_masks,
    plot_payments,
    plot_probability,
    plot_temperatures,
    plot_training,
    sketch,
    stacked_bar,
    table,
    text_table,
    token_bars,
)


def test_table_aligns_text_left_and_numbers_right():
    shown = text_table([("a", 1), ("long name", 1234.5)], header=("part", "n"))
    assert shown.splitlines() == [
        "part              n",
        "---------  --------",
        "a                 1",
        "long name  1.23e+03",
    ]


def test_a_missing_number_is_a_dash():
    """A metric that has no value turned its column into text, and read "None"."""
    assert text_table([("a", 1.5), ("b", None)]).splitlines() == ["a  1.5", "b    –"]


def logs(step):
    return {"step": step, "reward": 0.25 * step, "outcomes/correct": 0.1 * step, "outcomes/refused": 0.25}


SHARES = {"base": {0.0: (0.1, (0.05, 0.2)), 1.0: (0.2, (0.1, 0.3))}, "tuned": {0.0: (0.9, (0.8, 1.0))}}
FIGURES = {
    "training": lambda: plot_training([logs(1), logs(2)]),
    "lines": lambda: plot_lines([("a", {"x": ([1, 2], [0.1, 0.2])}), ("b", {"y": ([1, 2], [3, 0.2])})], "x", "y"),
    "masks": lambda: plot_masks([("a", [[True, False], [True, True]])] * 5),
    "probability": lambda: plot_probability({"P": {0: 0.4, 1: 0.9}, "control": {0: 0.4}}, "it rose", "probability"),
    "temperatures": lambda: plot_temperatures(SHARES, "the base stays low"),
    "dumbbells": lambda: plot_dumbbells([("one", 0.1, 0.9), ("two", 0.5, 0.4)], "one gained", "share"),
    "forest": lambda: plot_forest([("run", 80.0, (70.0, 90.0)), ("control", -3.0, (-8.0, 2.0))], "one wins", "points"),
    "payments": lambda: plot_payments([("x", {"naive": 2.0, "ours": -1.5})], "ours pays no cheat"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_picture_with_its_finding_as_text(tmp_path, name):
    """A notebook shows it without pyplot, a reader who cannot see it hears the text."""
    plot = FIGURES[name]()
    data, metadata = plot._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG") and len(data["image/png"]) > 3000
    assert metadata["image/png"]["alt"] == data["text/plain"] == repr(plot)
    for axis in plot.figure.axes:
        for side in ("left", "center"):
            assert axis.get_title(loc=side) in plot.alt
    plot.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 3000


def test_every_share_has_its_interval():
    (axis,) = plot_temperatures(SHARES, "").figure.axes
    segments = [segment for bar in axis.containers for segment in bar.lines[2][0].get_segments()]
    ends = [(round(low[1], 6), round(high[1], 6)) for low, high in segments]
    assert ends == [(0.05, 0.2), (0.1, 0.3), (0.8, 1.0)]


def test_gains_and_losses_differ_in_more_than_their_colour():
    (axis,) = FIGURES["forest"]().figure.axes
    markers = [points.get_paths()[0].vertices.shape for points in axis.collections]
    assert markers[0] != markers[1]


def test_curves_have_gaps_where_there_is_no_value():
    """One step in which nothing was judged ended the notebook, or took steps out of the running mean."""
    rows = [logs(1) for _ in range(5)]
    rows[2] |= {"reward": None}
    axis = plot_training(rows).figure.axes[0]
    single, running = ([float(value) for value in line.get_ydata()] for line in axis.lines[:2])
    assert [math.isnan(value) for value in single] == [False, False, True, False, False]
    assert running == [0.25] * 5
    rows = [row | {"reward": None} for row in rows]
    axis = plot_training(rows).figure.axes[0]
    assert all(math.isnan(value) for value in axis.lines[1].get_ydata())
    assert axis.get_title() == "mean reward of a step"


PAGES = {
    "cards": lambda: answer_cards([("one", True, "", "a <b>"), ("two", False, "why & how", "x")], mark=["<b>"]),
    "tokens": lambda: token_bars([("before", {" mul": 0.4, " <add>": 0.6})], right=" mul"),
    "memory": lambda: stacked_bar({"experts": 9.0, "rest": 3.0}, limit=14.5, unit="GiB", title="on a <T4>"),
    "sketch": lambda: sketch([("ask", "a <prompt>"), ("step", "& again")], title="a loop", is_loop=True),
    "table": lambda: table([("a", 1.5, None), ("<b>", 2, "x")], header=("what", "n", "m")),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_escapes_its_texts_and_has_them_as_plain_text(name):
    """What a model wrote stands in cards: it must not become HTML."""
    page = PAGES[name]()
    markup = page._repr_html_()
    assert not re.search(r"<(prompt|add|T4)>", markup) and "<script" not in markup and "<style" not in markup
    assert markup.count("<div") == markup.count("</div>")
    assert repr(page) == page.text and len(page.text) > 10


def test_right_and_wrong_cards_differ_in_words():
    page = PAGES["cards"]()
    assert page.markup.count("✓ right") == 1 and page.markup.count("✗ wrong") == 1
    assert '<b style="border-bottom' in page.markup and "&lt;b&gt;</b>" in page.markup
