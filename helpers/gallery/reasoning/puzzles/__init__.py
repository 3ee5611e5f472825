"""Puzzles whose answers are checked rather than compared: many answers may be right."""

from helpers.gallery.reasoning.puzzles.countdown import Countdown, countdown
from helpers.gallery.reasoning.puzzles.knights import KnightsAndKnaves, knights_and_knaves
from helpers.gallery.reasoning.puzzles.order import StepOrder, step_order
from helpers.gallery.reasoning.puzzles.puzzle import Puzzle
