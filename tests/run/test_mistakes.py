"""Every mistake is answered by one sentence before a model is loaded, and leaves nothing behind."""

import pytest

from helpers.run.__main__ import main
from tests.run.mistakes import MISTAKES


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_by_one_sentence(name, tmp_path, monkeypatch, capsys):
    mistake = MISTAKES[name]
    for file, content in mistake.files.items():
        (tmp_path / file).write_text(content)
    monkeypatch.chdir(tmp_path)
    status = main([f"RUN_DIR={tmp_path / 'run'}"] * ("RUN_DIR" not in mistake.arguments[0]) + [*mistake.arguments])
    shown = capsys.readouterr()
    assert status == 1 and mistake.words in shown.err, shown.err
    assert shown.err.count("\n") == 1 and "Traceback" not in shown.err and "cell 1/" not in shown.out
    assert not (tmp_path / "run").exists()
