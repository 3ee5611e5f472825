"""Tables, plots and the live view; all take plain values."""

from helpers.display.live import LiveView
from helpers.display.plots import plot_comparison, plot_lines, plot_masks, plot_rewards, plot_training
from helpers.display.tables import text_table
