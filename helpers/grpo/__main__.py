"""Train and evaluate without a notebook: `python -m helpers.grpo run.toml [NAME=value ...]`."""

import argparse
import sys
import time
from collections.abc import Sequence

from helpers.run.arguments import named_folder, pairs_of, read_pairs, take, with_absolute_paths
from helpers.run.opening import open_run
from helpers.run.preflight import preflight
from helpers.runtime import EndOfNotebook, UserError

USAGE = """
The file holds settings, one a line, such as task = "math" or learning_rate = 1e-5; make help-run lists them. NAME=value
or --name value stands above the file. NAME=folder names the folder under runs/; the same one again goes on from the
last checkpoint.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, evaluate, print the closing table. Return the exit status: 0, or 1 after one sentence on what is wrong."""
    title = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m helpers.grpo", allow_abbrev=False, description=title, epilog=USAGE)
    parser.add_argument("settings", nargs="?", default="", metavar="run.toml", help="a TOML or JSON file of settings")
    args, others = parser.parse_known_args(arguments)
    started = time.monotonic()
    try:
        pairs = pairs_of(others)
        if args.settings:
            pairs.append(args.settings if "=" in args.settings else f"CONFIG={args.settings}")
        name, pairs = take(pairs, "NAME", "TMUX_SESSION")
        given = with_absolute_paths(read_pairs(pairs))
        given.setdefault("run_dir", named_folder(name))
        run = open_run(given)
        print(f"{preflight(run)}\nWriting to {run.folder}", flush=True)

        from helpers.run.closing import closing_table
        from helpers.run.training import judge, train

        try:
            train(run)
        except EndOfNotebook as end:  # a dry run has no adapter to judge
            print(end)
            if run.settings.dry_run:
                return 0
        judge(run)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command with the same NAME goes on.", file=sys.stderr)
        return 130
    minutes = (time.monotonic() - started) / 60
    print("\n" + closing_table(run.folder, minutes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
