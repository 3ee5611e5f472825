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
    """A failed test stands in the table too."""
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        item.config.stash[ROWS].append((f"**failed: {item.name}**", str(call.excinfo.value).partition("\n")[0][:200]))


def commit():
    """The commit, marked where tracked files other than the table differ from it."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith("tests/README.md")]
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")


def pytest_sessionfinish(session):
    rows = session.config.stash[ROWS]
    if not rows:
        return
    started, at = session.config.stash[STARTED]
    found = versions()
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
