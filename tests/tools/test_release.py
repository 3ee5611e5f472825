"""One address, and `make release` that moves everything to another; releases are tried on a copy."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from helpers.runtime import ROOT
from tests.tools.release import PLACEHOLDER

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.ipynb"))
IN_README = [name for name in NOTEBOOKS if "/" not in name]
FIRST, SECOND = ("acme", "v98.7.6"), ("acme", "v99.0.10")
BADGE = re.compile(
    r"\(https://colab\.research\.google\.com/github/([^/]+/[^/]+)/blob/([^/]+)/notebooks/([\w/]+)\.ipynb\)"
)


def files(root):
    """path from root -> bytes, of all that a release could touch."""
    found = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in found.items()
        if not re.search(r"(^|/)(\.|runs/|__pycache__/|checkpoint/)", str(name))
    }


def check(root):
    """All that carries the address agrees with pyproject.toml; returns the address."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["gpt-oss-rl"]
    repo, tag = settings["repo"], settings["tag"]
    published = not repo.startswith(f"{PLACEHOLDER}/")
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert (citation["version"], citation["repository-code"]) == (tag[1:], f"https://github.com/{repo}")
    assert re.findall(r'^__version__ = "(.*)"$', (root / "helpers/__init__.py").read_text(), re.M) == [tag[1:]]
    readme = (root / "README.md").read_text()
    assert BADGE.findall(readme) == [(repo, tag, name) for name in IN_README]
    assert ("Not published yet" in readme) != published
    for name in NOTEBOOKS:
        notebook = json.loads((root / f"notebooks/{name}.ipynb").read_text())
        cells = ["".join(cell["source"]) for cell in notebook["cells"]]
        assert BADGE.findall(cells[0]) == [(repo, tag, name)]
        assert ("once the project is published" in cells[0]) != published
        assert re.findall(r"^REPO, TAG = .*", cells[2], re.M) == [f'REPO, TAG = "https://github.com/{repo}", "{tag}"']
        assert re.findall(r'Path\.cwd\(\) / "(.*)"', cells[2]) == [repo.split("/")[1]]
    return repo, tag


def release(root, owner, tag):
    command = [sys.executable, "-m", "tests.tools.release", f"--owner={owner}", f"--tag={tag}"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "checkpoint")
    return shutil.copytree(ROOT, tmp_path / "copy", ignore=ignored)


def test_everything_agrees_with_the_constant():
    """Without it a badge opens an old version, or the setup cell clones what is not there."""
    check(ROOT)


def test_the_address_stands_nowhere_else(copy):
    """`make release` would leave it behind there; what it does know of it must name in its answer."""
    repo, _ = check(copy)
    carriers = {name for name, content in files(copy).items() if repo.encode() in content}
    told = re.findall(r"^  (\S+)$", release(copy, *FIRST).stdout, re.M)
    assert carriers | {"helpers/__init__.py"} == set(told) and len(told) == 4 + len(NOTEBOOKS)


def test_a_release_moves_everything_and_nothing_else(copy):
    """Twice, since the first one removes what the second does not find."""
    for owner, tag in (FIRST, SECOND):
        before, (old_repo, old_tag) = files(copy), check(copy)
        run = release(copy, owner, tag)
        assert run.returncode == 0 and f"git tag {tag}" in run.stdout, run.stderr
        repo = f"{owner}/{old_repo.split('/')[1]}"
        assert check(copy) == (repo, tag)
        after = files(copy)
        changed = {name for name in after if after[name] != before[name]}
        assert set(after) == set(before) and changed == set(re.findall(r"^  (\S+)$", run.stdout, re.M))
        stale = {old_repo, old_tag, PLACEHOLDER} - {repo}
        for name in changed:
            assert not [text for text in stale if re.search(rf"\b{re.escape(text)}\b", after[name].decode())], name
        for name in NOTEBOOKS:
            lines = before[f"notebooks/{name}.ipynb"].decode().replace(old_repo, repo).replace(old_tag, tag).split("\n")
            kept = [line for line in lines if "The badge works once the project is published" not in line]
            assert after[f"notebooks/{name}.ipynb"].decode().split("\n") == kept
    assert "already" in release(copy, *SECOND).stdout and files(copy) == after


def test_a_release_that_was_broken_off_is_finished_by_the_next(copy):
    """The constant is written last, so the old address still holds and nothing is found missing."""
    before = files(copy)
    release(copy, *FIRST)
    after = files(copy)
    for name in ("pyproject.toml", f"notebooks/{NOTEBOOKS[-1]}.ipynb", "README.md"):
        (copy / name).write_bytes(before[name])
    run = release(copy, *FIRST)
    assert run.returncode == 0 and files(copy) == after, run.stderr


@pytest.mark.parametrize(
    ("owner", "tag", "words"),
    [
        ("", "v1.2.3", "OWNER=name"),
        (PLACEHOLDER, "v1.2.3", "OWNER=name"),
        ("-acme", "v1.2.3", "OWNER=name"),
        ("acme--corp", "v1.2.3", "OWNER=name"),
        ("acme/x", "v1.2.3", "OWNER=name"),
        ("a" * 40, "v1.2.3", "OWNER=name"),
        ("acme\n", "v1.2.3", "OWNER=name"),
        ("acme", "", "TAG=v1.2.3"),
        ("acme", "1.2.3", "TAG=v1.2.3"),
        ("acme", "v1.2", "TAG=v1.2.3"),
        ("acme", "v01.2.3", "TAG=v1.2.3"),
        ("acme", 'v1.2.3"', "TAG=v1.2.3"),
    ],
)
def test_a_bad_name_is_one_sentence_and_changes_nothing(copy, owner, tag, words):
    """A quote or a slash in a name would end up in five notebooks."""
    before = files(copy)
    run = release(copy, owner, tag)
    assert run.returncode == 1 and words in run.stderr and run.stderr.count("\n") == 1
    assert files(copy) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("notebooks/05_evaluate.ipynb", "REPO, TAG", "TAG, REPO", "05_evaluate.ipynb must have this once"),
        ("README.md", "/notebooks/03_rewards.ipynb)", "/notebooks/03.ipynb)", "README.md must have this once"),
        ("helpers/__init__.py", "__version__", "version", "helpers/__init__.py must have this once"),
        ("pyproject.toml", "[tool.gpt-oss-rl]", "[tool.other]", "lost the address"),
        ("CITATION.cff", None, None, "git checkout"),
    ],
)
def test_a_file_that_lost_its_address_stops_the_release(copy, name, old, new, words):
    """And before any other was written: half a release is worse than none."""
    path = copy / name
    if old is None:
        path.unlink()
    else:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    before = files(copy)
    run = release(copy, *FIRST)
    assert run.returncode == 1 and words in run.stderr and run.stderr.count("\n") == 1
    assert files(copy) == before


@pytest.mark.parametrize("count", [0, 2])
def test_the_sentence_until_publication_stands_once(copy, count):
    """Reworded or said twice it would outlive the publication."""
    if not check(copy)[0].startswith(f"{PLACEHOLDER}/"):
        pytest.skip("published")
    path = copy / "notebooks" / f"{NOTEBOOKS[0]}.ipynb"
    line = next(line for line in path.read_text().splitlines(True) if "once the project is published" in line)
    path.write_text(path.read_text().replace(line, count * line))
    before = files(copy)
    run = release(copy, *FIRST)
    assert run.returncode == 1 and f"{NOTEBOOKS[0]}.ipynb says {count} times, not 1" in run.stderr
    assert files(copy) == before


def test_the_workflow_runs_what_the_makefile_has():
    """A target renamed in one place only would make every run of it fail, or a Python go untested."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    makefile = (ROOT / "Makefile").read_text()
    events = workflow[True]  # YAML reads the key `on` as true
    assert set(events) == {"push", "pull_request", "workflow_dispatch", "schedule"}
    jobs = workflow["jobs"].values()
    *of_a_push, nightly = jobs
    assert all(job["timeout-minutes"] <= 60 for job in of_a_push)
    assert all(job["if"] == "github.event_name != 'schedule'" for job in of_a_push)
    assert "github.event_name == 'schedule'" in nightly["if"] and nightly["timeout-minutes"] <= 360  # GitHub's limit
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands == [
        "make lint test",
        "make test-py",
        "make test-trl",
        "make test-verifiers",
        "make test-browser",
        "make test-slow",
    ]
    for target in " ".join(commands).replace("make ", "").split():
        assert re.search(rf"^{target}:", makefile, re.M), target
    asked = [step["with"]["python-version"].split() for job in jobs for step in job["steps"] if "with" in step]
    pythons = re.search(r"^PYTHONS \?= (.*)", makefile, re.M)[1].split()
    assert asked == [
        ["3.11"],
        [name.removeprefix("python") for name in pythons],
        ["3.11"],
        ["3.11"],
        ["3.11"],
        ["3.11"],
    ]


def test_the_citation_is_one():
    """GitHub shows "Cite this repository" only for a valid file, and says nothing of another."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["title"] and citation["message"]
    assert citation["authors"] == [{"name": "The gpt-oss-rl authors"}]
    assert citation["type"] == "software" and citation["license"] == "Apache-2.0"
