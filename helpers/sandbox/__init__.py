"""Runs code nobody trusts, in processes of its own, and says what it is worth."""

from helpers.sandbox.examiner import BASELINE
from helpers.sandbox.products import CONTRACTS
from helpers.sandbox.sandbox import Sandbox
from helpers.sandbox.trial import Verdict

__all__ = ["BASELINE", "CONTRACTS", "Sandbox", "Verdict"]
