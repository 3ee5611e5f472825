from helpers import RolloutEngine, SamplingParams, evaluate, load_task


def test_evaluate_judges_every_prompt(model, tokenizer):
    """One record a prompt, in order, with what the notebook shows of it."""
    heldout = load_task("matmul", "heldout", 12)
    engine = RolloutEngine(model, tokenizer, max_batch_size=8, max_length=1024)
    rows = evaluate(engine, heldout, SamplingParams(max_completion_length=200, seed=1), name="base")
    assert [row["id"] for row in rows] == heldout["id"]
    for row in rows:
        assert row["model"] == "base" and row["tokens"] > 0
        assert row["correct"] == (row["reason"] == "") and (row["speedup"] > 0) == row["correct"]
        assert not (row["correct"] and row["cheat"])
