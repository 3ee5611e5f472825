"""Write the address a release has into every file that carries it: `python -m tests.tools.release` (`make release`).

pyproject.toml holds the one constant; badges, the notebooks' clone address and the citation repeat it.
"""

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path

from helpers.runtime import ROOT, UserError, write_whole

PLACEHOLDER = "OWNER"  # who owns the project until it is published
#: kind of file -> the whole line that is said only until then, as a pattern
NOTES = {".md": r"^\*Not published yet.*\n\n", ".ipynb": r'^ *"\*\(The badge works once the project is published.*\n'}


def address():
    """(owner/name, tag), the constant in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    try:
        return settings["gpt-oss-rl"]["repo"], settings["gpt-oss-rl"]["tag"]
    except KeyError:
        raise UserError("pyproject.toml lost the address: give it repo and tag under [tool.gpt-oss-rl].") from None


def carried(repo, tag):
    """file -> the pieces of text it carries, each once, when the project is at that address."""
    folder = ROOT / "notebooks"
    notebooks = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.ipynb"))
    shown = [name for name in notebooks if "/" not in name]  # the README has badges of these
    badges = {
        name: f"https://colab.research.google.com/github/{repo}/blob/{tag}/notebooks/{name}.ipynb" for name in notebooks
    }
    code = f'REPO, TAG = "https://github.com/{repo}", "{tag}"', f'Path.cwd() / "{repo.partition("/")[2]}"'
    setup = [json.dumps(piece)[1:-1] for piece in code]
    return {
        "CITATION.cff": [f'\nversion: "{tag[1:]}"\n', f'\nrepository-code: "https://github.com/{repo}"\n'],
        "helpers/__init__.py": [f'\n__version__ = "{tag[1:]}"\n'],
        "README.md": [badges[name] for name in shown],
        **{f"notebooks/{name}.ipynb": [badges[name], *setup] for name in notebooks},
        "pyproject.toml": [f'\nrepo = "{repo}"\n', f'\ntag = "{tag}"\n'],  # last: until then the old address holds
    }


def check_names(owner, tag):
    """Raises UserError for an owner that GitHub would refuse, and for a tag unlike v1.2.3."""
    if owner == PLACEHOLDER or not re.fullmatch(r"(?=.{1,39}\Z)[A-Za-z0-9]+(-[A-Za-z0-9]+)*", owner):
        raise UserError(
            f"{owner!r} is no GitHub name: write make release OWNER=name TAG=v1.2.3 with the account to publish under."
        )
    if not re.fullmatch(r"v(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}", tag):
        raise UserError(f"{tag!r} is no tag of a release: write TAG=v1.2.3, a v and three whole numbers.")


def rewritten(name, text, old, new):
    """The text of one file at the new address. old, new: the pieces it carries. Raises UserError where one is amiss."""
    if all(text.count(piece) == 1 for piece in new):
        return text  # a release that was broken off got so far
    if note := NOTES.get(Path(name).suffix):
        text, found = re.subn(note, "", text, flags=re.M)
        expected = any(f"/{PLACEHOLDER}/" in piece for piece in old)
        if found != expected:
            raise UserError(f"{name} says {found} times, not {expected:d}, that this is not published yet: fix that.")
    for before, after in zip(old, new):
        if text.count(before) != 1:
            raise UserError(f"{name} must have this once and has it {text.count(before)} times: {before.strip()}")
        text = text.replace(before, after)
    return text


def release(owner, tag):
    """Move the project to that owner and tag; returns the new address and the files that changed.

    Everything is checked before the first file is written.
    """
    check_names(owner, tag)
    repo, old_tag = address()
    new_repo = f"{owner}/{repo.partition('/')[2]}"
    old, new, changed = carried(repo, old_tag), carried(new_repo, tag), {}
    for name in old:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"Cannot read {name} ({error.strerror}): restore it with git checkout.") from error
        after = rewritten(name, text, old[name], new[name])
        if after != text:
            changed[name] = after
    for name, text in changed.items():
        try:
            write_whole(ROOT / name, text)
        except OSError as error:
            raise UserError(f"Cannot write {name} ({error.strerror}): fix that and run this again.") from error
    return new_repo, list(changed)


def main(arguments=None):
    """Returns the exit status: 0, or 1 after one sentence on what went wrong."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("--owner", required=True, help="the GitHub account or organisation")
    parser.add_argument("--tag", required=True, help="v1.2.3")
    args = parser.parse_args(arguments)
    try:
        repo, changed = release(args.owner, args.tag)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if not changed:
        print(f"Everything is at {repo} {args.tag} already.")
        return 0
    print("Changed:", *changed, sep="\n  ")
    print(
        "Nothing is committed or pushed yet. When git diff and make test are good:",
        f"git commit -am 'Release {args.tag}'",
        f"git tag {args.tag}",
        f"git push https://github.com/{repo} HEAD {args.tag}",
        sep="\n  ",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
