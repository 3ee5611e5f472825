"""Runs programs nobody trusts, each in a process of its own, and returns their answers as bytes."""

from helpers.sandbox.drivers import SOLVE, STDIN, Driver
from helpers.sandbox.inside.drivers.function import CaseResult, case_results, encode_cases
from helpers.sandbox.inside.drivers.stdin import printed_text
from helpers.sandbox.outcome import Outcome, Status
from helpers.sandbox.payload import Call, Limits, Payload, Program
from helpers.sandbox.sandbox import Sandbox, Worker
