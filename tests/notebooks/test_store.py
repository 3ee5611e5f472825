"""Stored outputs must be those of the notebook as it stands."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from helpers import UserError
from tests.notebooks.store import with_outputs


def notebook(source="print(1)", printed="", given=None):
    cells = [new_code_cell(source, id="00-01")]
    cells[0].outputs = [new_output("stream", text=printed)] if printed else []
    if given:
        cells.insert(0, new_code_cell(given, metadata={"tags": ["injected-parameters"]}))
    return new_notebook(cells=cells)


def test_outputs_are_taken_by_the_cells_id():
    stored = with_outputs(notebook(), notebook(printed="1\n", given='PROFILE = "tiny"\nRUN_DIR = "there"'))
    assert [cell.source for cell in stored.cells] == ["print(1)"]
    assert stored.cells[0].outputs[0].text == "1\n" and stored.cells[0].execution_count == 1
    nbformat.validate(stored)


@pytest.mark.parametrize(
    ("executed", "message"),
    [
        (notebook("print(2)", "2\n"), "Cell 00-01 has changed since the run"),
        (notebook(printed="1\n", given='CONTROL = "flip"'), "The run set CONTROL"),
    ],
)
def test_another_run_is_refused(executed, message):
    with pytest.raises(UserError, match=message):
        with_outputs(notebook(), executed)
