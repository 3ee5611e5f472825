"""`make test-slow` writes what it measured into tests/README.md, with the date and the commit it ran on."""

import subprocess
import time

import pytest

from helpers.runtime import ROOT, hardware, versions, write_whole

README = ROOT / "tests" / "README.md"
BEGIN, END = "<!-- make test-slow writes from here -->", "<!-- to here -->"
ROWS, STARTED = pytest.StashKey(), pytest.StashKey()


def pytest_configure(config):
    config.stash[ROWS] = []
    config.stash[STARTED] = (time.monotonic(), commit())


@pytest.fixture
def row(request):
    """Call it with a heading and a result: one line of the table."""
    return lambda what, result: request.config.stash[ROWS].append((what, result))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What fails stands in the table too, be it a test or what it needs."""
    report = (yield).get_result()
    if report.failed:
        message = str(call.excinfo.value).partition("\n")[0][:200].replace("|", "/")
        item.config.stash[ROWS].append((f"**failed: {item.name}**", message))


def commit():
    """The commit, marked where files other than the table differ from it."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith("tests/README.md")]
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")


def pytest_sessionfinish(session, exitstatus):
    """Write the table, but not for a part of the slow tests."""
    config = session.config
    whole = config.option.markexpr == "slow" and config.args == config.getini("testpaths") and not config.option.keyword
    if not whole or config.option.collectonly:
        return
    started, at = config.stash[STARTED]
    rows, found = config.stash[ROWS], versions()
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        rows = [*rows, ("**interrupted**", "what follows has not run")]
    lines = [
        f"{time.strftime('%d %B %Y')}, commit {at}, {hardware()}, Python {found['python']}, torch {found['torch']}, "
        f"transformers {found['transformers']}, {(time.monotonic() - started) / 60:.0f} minutes:",
        "",
        "| what ran | what came out |",
        "|---|---|",
        *(f"| {what} | {result} |" for what, result in rows),
    ]
    before, _, rest = README.read_text().partition(BEGIN)
    write_whole(README, "\n".join([before + BEGIN, "", *lines, "", END + rest.partition(END)[2]]))
