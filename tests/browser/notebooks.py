"""Notebooks for the browser: copies of the project's own with small parameters, and a small one of the real helpers."""

import ast
from pathlib import Path

import nbformat

from helpers.runtime import ROOT

SMALL = "small"
#: The small notebook: what 02 and 04 do with widgets, in seconds. Its first cell is the only one of the set-up.
SMALL_CELLS = (
    f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from helpers import GRPOConfig, GRPOTrainer, LiveView, add_lora, get_profile, get_task, load_model""",
    """MAX_STEPS = 30
RUN_DIR = "run\"""",
    """profile = get_profile("tiny")
model, tokenizer = load_model(profile=profile)
model = add_lora(model, r=profile.lora_r, alpha=profile.lora_alpha, targets=profile.lora_targets, seed=0)
task = get_task("matmul")
config = GRPOConfig.for_profile(profile, output_dir=RUN_DIR, max_steps=MAX_STEPS)""",
    """trainer = GRPOTrainer(
    model, task.reward_funcs, config, task.dataset("train", 100), tokenizer, callbacks=[LiveView()], task=task
)
state = trainer.train(resume_from_checkpoint=True)
print("the cell ended after step", state.global_step)""",
    """from helpers.display.widgets import slider

def draw(value):
    return f'<svg width="200" height="20"><rect width="{100 * value}" height="20" fill="teal"/></svg>'

slider(draw, "width", 0, 2, 1, 0.1)""",
)


def write_notebook(name: str, folder: Path, **parameters) -> list[str]:
    """Write a notebook into a folder, with these parameters; return the sources of its cells, "" for text.

    name: of the project's own, or SMALL. A parameter that the notebook does not have is left out.
    """
    notebook = small_notebook() if name == SMALL else nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    for cell in notebook.cells:
        cell.get("outputs", []).clear()
    place = next(n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    known = assigned_in(notebook.cells[place].source)
    given = [f"{name} = {value!r}" for name, value in parameters.items() if name in known]
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(given)))
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return [cell.source if cell.cell_type == "code" else "" for cell in notebook.cells]


def small_notebook() -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in SMALL_CELLS]
    cells[1].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def assigned_in(source: str) -> set[str]:
    """The names that a cell assigns."""
    statements = ast.parse(source).body
    targets = [target for statement in statements if isinstance(statement, ast.Assign) for target in statement.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def place_of(text: str, sources: list[str]) -> int:
    """Return the number of the one cell of code that contains a text."""
    places = [place for place, source in enumerate(sources) if text in source]
    assert len(places) == 1, f"{len(places)} cells contain {text!r}"
    return places[0]
