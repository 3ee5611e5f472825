"""Puzzles whose answers are checked rather than compared: many answers may be right."""

from helpers.rewards.puzzles.countdown import Countdown, countdown
from helpers.rewards.puzzles.knights import KnightsAndKnaves, knights_and_knaves
from helpers.rewards.puzzles.order import StepOrder, step_order
from helpers.rewards.puzzles.puzzle import Puzzle
