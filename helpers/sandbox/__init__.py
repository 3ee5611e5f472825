"""Runs code nobody trusts, in processes of its own, and says what it is worth."""

from helpers.sandbox.sandbox import BASELINE, Sandbox, Verdict

__all__ = ["BASELINE", "Sandbox", "Verdict"]
