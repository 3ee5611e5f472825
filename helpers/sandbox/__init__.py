"""Runs programs nobody trusts, each in a process of its own, and returns their answers as bytes."""

from helpers.sandbox.drivers import SOLVE, STDIN, Driver
from helpers.sandbox.inside.drivers.function import CaseResult, case_results, encode_cases
from helpers.sandbox.inside.drivers.stdin import printed_text
from helpers.sandbox.level import choose_level
from helpers.sandbox.outcome import NoAnswer, NoLockdown, Outcome, Status
from helpers.sandbox.payload import Call, Limits, Payload
from helpers.sandbox.process import SandboxedProcess
from helpers.sandbox.sandbox import Sandbox, Worker, check_workers
