"""Cards, tables, plots, widgets and the live view; all take plain values."""

from helpers.display.cards import answer_cards, sink_bars, sketch, stacked_bar, table, token_bars
from helpers.display.live import LiveView
from helpers.display.plots import (
    plot_dumbbells,
    plot_forest,
    plot_lines,
    plot_masks,
    plot_payments,
    plot_probability,
    plot_temperatures,
    plot_training,
)
from helpers.display.tables import text_table
from helpers.display.widgets import slider
