"""Prepare a data set for training: `python -m helpers.run.prepare TASK=... DATA=... N=... OUT=...` (`make prepare`)."""

import argparse
import sys
from collections.abc import Sequence

from helpers.run.arguments import pairs_of, pairs_of_make, read_pairs, take, with_absolute_paths
from helpers.run.opening import make_run
from helpers.runtime import UserError, command
from helpers.tasks.data.prepare import check_out, prepare
from helpers.tasks.split import SPLITS


@command(interrupted="Interrupted; the folder is as it was before, or complete.")
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the folder and print its report. Return the exit status."""
    parser = argparse.ArgumentParser(prog="make prepare", allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--from-make", action="store_true", help="take the variables of make's command line, too")
    args, others = parser.parse_known_args(arguments)
    pairs = pairs_of(others) + (pairs_of_make() if args.from_make else [])
    out, pairs = take(pairs, "OUT", "OUTPUT_PATH")
    count, pairs = take(pairs, "N", "NUM_SAMPLES")
    if not out:
        raise UserError("OUT names the folder to write: make prepare TASK=math N=1000 OUT=data/math, say.")
    if count and not (count.isascii() and count.isdigit() and int(count) >= len(SPLITS)):
        raise UserError(
            f"N is the number of rows to keep, with SOURCE that of the pool, and a whole number from {len(SPLITS)} on; "
            f"got '{count}'."
        )
    check_out(out)
    size = int(count) if count else None
    run = make_run(with_absolute_paths(read_pairs(pairs)))
    settings = run.settings
    if settings.source:
        from helpers.gallery.sources.preparing import check_task_of, prepare_source

        check_task_of(settings.source, settings.task)
        prepared = prepare_source(
            settings.source,
            run.make_base_task(),
            out,
            seed=run.seed,
            pool=size or settings.train_prompts,
            copies=settings.sources_dir,
            system_prompt=settings.system_prompt,
        )
        print(prepared)
    else:
        print(prepare(run.make_task(drop_faulty=True), out, size, run.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
