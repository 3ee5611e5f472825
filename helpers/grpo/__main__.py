"""Train and evaluate without a notebook: `python -m helpers.grpo run.toml [NAME=value ...]`."""

import sys
import time
from collections.abc import Sequence

from helpers.run.arguments import open_from, pairs_of
from helpers.run.preflight import preflight
from helpers.runtime import EndOfNotebook, command, run_folder

USAGE = """
The file holds settings, one a line, such as task = "math" or learning_rate = 1e-5; make help-run lists them. NAME=value
or --name value stands above the file. NAME=folder names the folder under runs/; the same one again goes on from the
last checkpoint.
"""


@command(interrupted="Interrupted; the same command with the same NAME goes on.")
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, evaluate, print the closing table. Return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(__doc__ + USAGE)
        return 0
    started = time.monotonic()
    run, _ = open_from([pair if "=" in pair else f"CONFIG={pair}" for pair in pairs_of(arguments)])
    print(f"{preflight(run)}\nWriting to {run.folder}", flush=True)
    run_folder(run.folder)

    from helpers.run.closing import closing_table
    from helpers.run.training import judge, train

    try:
        train(run)
    except EndOfNotebook as end:  # a dry run has no adapter to judge
        print(end)
        if run.settings.dry_run:
            return 0
    judge(run)
    minutes = (time.monotonic() - started) / 60
    print("\n" + closing_table(run.folder, minutes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
