"""The layout of the project: which room may import which, the map in the README, the cost of importing."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import helpers
from helpers.runtime import ROOT
from helpers.tasks import TASKS, Task, task_factory

HELPERS = ROOT / "helpers"


def rooms_of_the_page():
    """The rooms in the order of the table of layers in helpers/README.md."""
    table = (HELPERS / "README.md").read_text().split("## Layers")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| ((?:`[\w./]+`(?:, )?)+) \|", table, re.M)
    return [re.sub(r"\.py|/", "", name) for cell in first_cells for name in re.findall("`([^`]+)`", cell)]


ROOMS = rooms_of_the_page()
#: Rooms that may use less than all earlier ones.
ONLY = {"runtime": set(), **dict.fromkeys("processes environment step_line kernels sandbox".split(), {"runtime"})}
ONLY["display"] = {"runtime", "processes", "step_line"}
TOP_LEVEL = {
    "notebooks", "helpers", "tests", "requirements.txt", "constraints.txt", "Makefile", "README.md", "LICENSE",
    "pyproject.toml", "CITATION.cff",
}  # fmt: skip


def room_of(path):
    return path.relative_to(HELPERS).parts[0].removesuffix(".py")


def sources():
    return [path for path in sorted(HELPERS.rglob("*.py")) if path != HELPERS / "__init__.py"]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(HELPERS)))
def test_a_room_imports_only_earlier_rooms(path):
    """Without it the trainer ends up importing the plots, and nothing can be replaced alone.

    A command (`__main__.py`) is imported by nothing, and may use all rooms.
    """
    if path.name == "__main__.py":
        return
    room = room_of(path)
    allowed = ONLY.get(room, set(ROOMS[: ROOMS.index(room)])) | {room}
    assert imported_rooms(path) <= allowed


def imported_rooms(path):
    """The rooms that a file imports; "" for the package itself."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            package, _, rest = name.partition(".")
            if package == "helpers":
                rooms.add(rest.partition(".")[0])
    return rooms


#: Optional rooms -> who may import them, beside themselves. The embedded model's corpus has problems of the math task.
OPTIONAL = {"gallery": {"tiny", "run"}, "lint": {"run"}}
#: Files that name modules as texts.
NAMING = {HELPERS / "__init__.py", HELPERS / "tasks" / "__init__.py"}


def test_optional_rooms_are_not_needed():
    for path in sources():
        room = room_of(path)
        for name in imported_rooms(path):
            assert name not in OPTIONAL or room in {name} | OPTIONAL[name], f"{path} imports {name}"


def test_no_other_file_names_modules_as_texts():
    """A text that `import_module` gets is an import that no other test sees."""
    for path in set(sources()) - NAMING:
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        named = [text for text in texts if isinstance(text, str) and re.fullmatch(r"helpers(\.\w+)+(:\w+)?", text)]
        assert not named, path


def test_each_task_resolves_into_tasks_or_the_gallery():
    """The one dictionary by which an earlier room names a later one."""
    for name, place in TASKS.items():
        module, _, attribute = place.partition(":")
        assert module.split(".")[:2] in (["helpers", "tasks"], ["helpers", "gallery"])
        assert issubclass(getattr(import_module(module), attribute), Task) and task_factory(name).name == name


def test_the_tasks_load_nothing_of_the_gallery():
    """Whoever came for the first task should not wait for the others, nor find them in a traceback."""
    code = (
        "import sys, helpers.tasks; helpers.tasks.get_reward('speed_check');"
        "from helpers.tasks.choosing import choose_rewards;"
        "choose_rewards('correctness_check,speed_check=0.5', helpers.tasks.get_task('matmul'));"
        "print(sorted(name for name in sys.modules if name.startswith(('helpers.gallery', 'helpers.lint'))))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def imports_of(path, modules):
    """The modules of `helpers` that a file imports, wherever in it: in functions and for type checkers, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()


def circle_in(imports):
    """The modules of a circle of imports, or [] where there is none."""
    finished = set()
    path = []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in finished:
            return []
        path.append(module)
        for imported in sorted(imports[module]):
            circle = visit(imported)
            if circle:
                return circle
        finished.add(path.pop())
        return []

    return next(filter(None, map(visit, sorted(imports))), [])


def test_no_module_imports_itself_in_a_circle():
    """Of two modules that import each other neither can be read, tested or replaced alone."""
    modules = {}
    for path in sources():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    imports = {name: imports_of(path, modules) - {name} for name, path in modules.items()}
    assert circle_in(imports) == []
    with_a_circle = {**imports, "helpers.runtime": {"helpers.grpo.trainer"}}
    assert circle_in(with_a_circle), "the search finds none where there is one"


def test_the_map_in_the_readme_is_the_house():
    """A map with a room that is gone, or without one that is there, costs a reader the evening."""
    block = (ROOT / "README.md").read_text().split("## The map")[1].split("```")[1]
    lines = re.findall(r"^  ((?:[a-z_]+(?:/|\.py) )+)", block, re.M)
    shown = [re.sub(r"/|\.py", "", name) for line in lines for name in line.split()]
    assert shown == ROOMS and {room_of(path) for path in sources()} == set(ROOMS)


def test_the_readme_can_be_read_in_minutes():
    """It once had 379 lines, and a newcomer met statistics first."""
    page = (ROOT / "README.md").read_text()
    assert len(page.splitlines()) <= 150
    prose = re.sub(r"```.*?```", "", page, flags=re.S)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    sentences = re.split(r"[.!?]\**\s|[|\n]", prose)
    assert [sentence for sentence in sentences if len(sentence.split()) > 35] == []
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert link.startswith("https://") or (ROOT / link).exists(), link


@pytest.mark.parametrize("room", ["grpo", "evaluation", "display"])
def test_what_serves_every_task_names_none(room):
    """A trainer that knows one task's words cannot serve another."""
    places = [path for path in sources() if path.relative_to(HELPERS).parts[0] == room]
    assert places
    for path in places:
        found = re.findall("matmul|cheat|speedup|default_depth|DEPTH=", path.read_text(), re.IGNORECASE)
        assert not found, f"{path} says {found[0]}"


READMES = sorted(page.parent for page in HELPERS.glob("*/**/README.md"))
#: Of a page, tables left out.
MOST_LINES = 95


PARTS = ("## Where to start", "## How it was tested", "## What is known to be missing")


@pytest.mark.parametrize("room", sorted(path.parent.name for path in HELPERS.glob("*/__init__.py")))
def test_every_room_has_a_page(room):
    page = (HELPERS / room / "README.md").read_text()
    assert all(part in page for part in PARTS)
    assert len(re.findall(r"^\| `[\w.]+` in \[", page, re.M)) == 5, "the five most important functions"


@pytest.mark.parametrize("folder", READMES, ids=lambda folder: str(folder.relative_to(HELPERS)))
def test_the_page_of_a_room_names_what_is_there(folder):
    page = (folder / "README.md").read_text()
    assert len([line for line in page.splitlines() if not line.startswith("|")]) <= MOST_LINES
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (folder / link).exists(), link
    for named in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page):
        assert (ROOT / named).exists(), named
    for name, file in re.findall(r"`([\w.]+)` in \[[^\]]+\]\(([^)]+)\)", page):
        text = (folder / file).read_text()
        assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b|^{name}\b", text, re.M), f"{name} in {file}"


def test_the_page_of_the_design_names_what_is_there():
    """A page that sends a reader to a function that is gone is worse than none."""
    page = (HELPERS / "README.md").read_text()
    assert len(page.splitlines()) <= 90, "two screens are enough"
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (HELPERS / link).exists(), link
    for named in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page):
        assert (ROOT / named).exists(), named
    functions = re.findall(r"`([\w.]+)` (?:in|of) (?:\[|`)([\w/]+\.py)", page)
    assert len(functions) > 10
    for name, file in functions:
        assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b|^{name}\b", (HELPERS / file).read_text(), re.M), name


def test_import_is_lazy_and_quick():
    """`import helpers` comes before anything is installed in Colab, so it may need nothing."""
    code = (
        "import sys, time; t = time.perf_counter(); import helpers; s = time.perf_counter() - t;"
        "heavy = {'torch', 'numpy', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules);"
        "print(s, sorted(heavy))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True) for _ in range(3)]
    results = [run.stdout.split(maxsplit=1) for run in runs]
    assert all(heavy.strip() == "[]" for _, heavy in results), results
    assert min(float(seconds) for seconds, _ in results) < 0.3


def test_install_and_runtime_need_no_torch():
    """The setup cell runs `helpers.install()` in a kernel that may hold an old torch."""
    code = "import sys, helpers; helpers.install(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


@pytest.mark.parametrize("name", helpers.__all__)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(helpers, name)
    assert thing.__doc__ if callable(thing) else thing


def test_unknown_attribute_is_an_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = helpers.no_such_name


def test_top_level_and_ignored_files():
    """Nothing but the agreed files is tracked at the top, and git sees no leftovers of running."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    if not tracked:
        pytest.skip("not a git checkout")
    assert {name.split("/")[0] for name in tracked if not name.startswith(".")} <= TOP_LEVEL
    for place in (".venv/x", ".venv-python3.12/x", "runs/x/01_load.ipynb", "helpers/__pycache__/x.pyc"):
        assert subprocess.run(["git", "check-ignore", "-q", place], cwd=ROOT).returncode == 0, place


def test_requirements_hold_colab_and_today():
    """Colab's torch must never be replaced, and CI must run what the ranges allow."""
    from packaging.requirements import Requirement

    text = (ROOT / "requirements.txt").read_text()
    ranges = {r.name: r.specifier for line in text.splitlines() if line and line[0] != "#" for r in [Requirement(line)]}
    colab = {"torch": "2.11.0+cu128", "transformers": "5.15.0", "peft": "0.20.0", "datasets": "4.0.0", "numpy": "2.1.3"}
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M))
    assert pins["torch"] == "2.13.0"
    for name, found in colab.items():
        assert ranges[name].contains(found), (name, found)
    for name, specifier in ranges.items():
        if name != "triton":  # comes with torch where there is CUDA
            assert specifier.contains(pins[name], prereleases=True), name
    assert "trl" not in ranges and "trl" not in pins


def test_no_path_of_another_machine():
    """A committed file that names a private path works nowhere else."""
    for path in [*sources(), *Path(ROOT / "notebooks").rglob("*.ipynb"), ROOT / "README.md", ROOT / "Makefile"]:
        assert not re.search(r"/(home|root|Users|tmp|work)/", path.read_text()), path
