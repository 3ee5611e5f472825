"""Slow tests write what they measured into tests/README.md, a table for each file, with the date and the commit."""

import subprocess
import time
from pathlib import Path

import pytest

from helpers.environment import hardware, versions
from helpers.runtime import ROOT, write_whole

README = ROOT / "tests" / "README.md"
#: {file: [(what ran, what came out)]}, {file: seconds that its tests took}, and the commit that they ran on
ROWS, SECONDS, COMMIT = pytest.StashKey(), pytest.StashKey(), pytest.StashKey()


def pytest_configure(config):
    config.stash[ROWS] = {}
    config.stash[SECONDS] = {}
    config.stash[COMMIT] = commit()


def pytest_addoption(parser):
    parser.addoption(
        "--runs", help="a folder that keeps the runs of test_learning or test_math; what was trained there is kept"
    )


@pytest.fixture(scope="module")
def runs_folder(request, tmp_path_factory):
    """Where the runs of a file go."""
    given = request.config.getoption("--runs")
    return Path(given) if given else tmp_path_factory.mktemp("runs")


@pytest.fixture
def row(request):
    """Call it with a heading and a result: one line of the table."""
    rows = request.config.stash[ROWS].setdefault(request.node.path.name, [])
    return lambda what, result: rows.append((what, result))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What fails stands in the table too, be it a test or what it needs."""
    report = (yield).get_result()
    name = item.path.name
    seconds = item.config.stash[SECONDS]
    seconds[name] = seconds.get(name, 0.0) + call.duration
    if report.failed:
        message = str(call.excinfo.value).partition("\n")[0][:200].replace("|", "/")
        rows = item.config.stash[ROWS].setdefault(name, [])
        rows.append((f"**failed: {item.name}**", message))


def commit():
    """The commit, marked where files other than the tables differ from it."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith("tests/README.md")]
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")


def ran_whole(config, name):
    """Whether all tests of a file of this folder were asked for."""
    path = Path(__file__).with_name(name)
    asked = [config.rootpath / argument for argument in config.args]
    covers = any(path == one or one in path.parents for one in asked)
    return covers and config.option.markexpr == "slow" and not config.option.keyword


def table(config, name, interrupted):
    """The lines of one file's table."""
    rows = config.stash[ROWS][name]
    if interrupted:
        rows = [*rows, ("**interrupted**", "what follows has not run")]
    found = versions()
    minutes = config.stash[SECONDS][name] / 60
    return [
        f"{time.strftime('%d %B %Y')}, commit {config.stash[COMMIT]}, {hardware()}, Python {found['python']}, "
        f"torch {found['torch']}, transformers {found['transformers']}, {minutes:.0f} minutes:",
        "",
        "| what ran | what came out |",
        "|---|---|",
        *(f"| {what} | {result} |" for what, result in rows),
    ]


def pytest_sessionfinish(session, exitstatus):
    """Write the tables of the files that ran as a whole."""
    config = session.config
    if config.option.collectonly:
        return
    stored = text = README.read_text()
    for name in config.stash[ROWS]:
        begin, end = f"<!-- {name} writes from here -->", f"<!-- {name} to here -->"
        if ran_whole(config, name) and begin in text:
            before, _, rest = text.partition(begin)
            after = rest.partition(end)[2]
            lines = table(config, name, exitstatus == pytest.ExitCode.INTERRUPTED)
            text = "\n".join([before + begin, "", *lines, "", end + after])
    if text != stored:
        write_whole(README, text)
