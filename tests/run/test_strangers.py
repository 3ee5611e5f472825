"""Three data sets as strangers have them: each is trained on and evaluated by one command."""

import json
import random

import pytest
from datasets import Dataset, DatasetDict

from helpers.grpo.__main__ import main

SHORT = ["MAX_STEPS=1", "BATCH=16", "MAX_TOKENS=16", "ITEMS=4", "SWEEP=small"]


def sums(count, seed=0):
    numbers = random.Random(seed)
    for _ in range(count):
        a, b = numbers.randint(1, 999), numbers.randint(1, 999)
        yield f"How much is {a} and {b}?", str(a + b)


def csv_of_a_spreadsheet(folder):
    """A byte-order mark, Windows' line ends, a quoted line break, other column names, ids."""
    rows = [
        f'{number},"{question.replace(" and", chr(10) + "and")}",{answer}'
        for number, (question, answer) in enumerate(sums(60))
    ]
    (folder / "sums.csv").write_bytes(("\ufeff" + "\r\n".join(["id,Question,Solution", *rows]) + "\r\n").encode())
    return ["DATA=sums.csv", "PROMPT=Question", "ANSWER=Solution", "SYSTEM_PROMPT=Answer with the number alone."]


def json_array_of_messages(folder):
    rows = [
        {"messages": [{"role": "user", "content": question}], "label": answer, "source": None}
        for question, answer in sums(60)
    ]
    (folder / "chat.json").write_text(json.dumps(rows, indent=1))
    return ["DATA=chat.json", "PROMPT=messages", "ANSWER=label", "TASK=math"]


def saved_data_set(folder):
    splits = {}
    for name, seed, count in (("train", 1, 40), ("test", 2, 12)):
        rows = [{"question": question, "answer": int(answer)} for question, answer in sums(count, seed)]
        splits[name] = Dataset.from_list(rows)
    DatasetDict(splits).save_to_disk(folder / "saved")
    return ["DATA=saved", "PROMPT=question", "TEMPLATE={question} Put the number in a box.", "REWARDS=math_number"]


@pytest.mark.parametrize("make", [csv_of_a_spreadsheet, json_array_of_messages, saved_data_set])
def test_a_strangers_data_set_trains_and_evaluates(make, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = make(tmp_path)
    status = main([*arguments, *SHORT, "RUN_DIR=run"])
    shown = capfd.readouterr()
    assert status == 0, shown.err
    assert "verdict " in shown.out and "step 1/1" in shown.out
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["best"]["items"] == 4
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").open()]
    assert {record["outcome"] for record in records} <= {"correct", "wrong", "unanswered"}
