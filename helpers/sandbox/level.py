"""Which level of the sandbox this host can have."""

import functools

from helpers.runtime import UserError
from helpers.sandbox.drivers import STDIN
from helpers.sandbox.outcome import Status
from helpers.sandbox.payload import Payload
from helpers.sandbox.sandbox import Sandbox
from helpers.sandbox.zygote import LEVELS


@functools.cache
def missing_from_host() -> str:
    """Return what this host lacks for the level "os", or "". Raises UserError where the sandbox fails otherwise."""
    with Sandbox((STDIN,), workers=1) as sandbox:
        outcome = sandbox.run(STDIN, Payload("print('here')", b""))
    if outcome.answered:
        return ""
    if outcome.status is Status.NO_LOCKDOWN:
        return outcome.reason
    raise UserError(f"The sandbox does not work on this host: {outcome.reason}. Fix that and run this again.")


def choose_level(level: str = "auto", embedded_model: bool = False) -> str:
    """Return a level of the sandbox: the one asked for or, for "auto", the best that this host can have.

    Where that is "process", "auto" takes it for the programs of the embedded model, which knows no tricks, and prints
    why.

    Raises UserError for an unknown level, and where "auto" finds no filter of system calls on this host, and the model
    is another one.
    """
    if level in LEVELS:
        return level
    if level != "auto":
        raise UserError(f"There is no sandbox level '{level}': choose auto, {' or '.join(LEVELS)}.")
    reason = missing_from_host()
    if not reason:
        return "os"
    if embedded_model:
        print(f"No filter of system calls on this host: {reason}.", flush=True)
        return "process"
    raise UserError(
        f"This host cannot keep a model's programs from the system: {reason}. Use another host, or choose "
        "level='process' (SANDBOX in the notebooks) if you accept what it does not stop, which "
        "helpers/sandbox/README.md lists."
    )
