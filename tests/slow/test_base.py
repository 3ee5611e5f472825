"""What the shipped model can do before any training: wrong when greedy, sometimes right, and cooling does not help."""

import pytest

from helpers import RolloutEngine, SamplingParams, load_model, sample_records
from helpers.evaluation import TEMPERATURES, accuracy, pass_at_k_curve, rate_interval, show_temperature
from helpers.evaluation.records import records_at
from helpers.tasks.matmul.contracts import TRAINED
from tests.tiny.test_checkpoint import FIRST_TOKENS, auc_of_first_tokens, judged, sample, without_wish

pytestmark = pytest.mark.slow

PARAMS = SamplingParams(max_new_tokens=200, seed=3)


@pytest.fixture(scope="module")
def engine():
    """As 05_evaluate asks it: the dense layers in 4 bits."""
    loaded = load_model(profile="tiny")
    return RolloutEngine(*loaded, max_batch_size=128, max_length=1024, chat_template_kwargs={"reasoning_effort": "low"})


def trained_contracts(task, size, seed):
    """Prompts of the contracts that reinforcement learning asks for, in names and words that no training has."""
    rows = task.dataset("probe", size * 4 // 3, seed)
    return rows.filter(lambda row: row["contract"] in TRAINED)


#: name -> f(task, size, seed) -> prompts
PROMPTS = {
    "held-out contract": lambda task, size, seed: task.dataset("confirm", size, seed),
    "trained contracts in new words": trained_contracts,
}


@pytest.mark.parametrize("name", PROMPTS)
def test_no_temperature_makes_the_base_right(engine, task, row, name):
    prompts = PROMPTS[name](task, 320, 3)
    rates = {}
    for temperature, records in records_at(TEMPERATURES, engine, task, prompts, PARAMS, "base", "confirm").items():
        rates[temperature] = accuracy(records)
        low, high = rate_interval([one["correct"] for one in records], [one["cluster"] for one in records])
        label = f"base, {show_temperature(temperature)}, {len(records)} prompts of the {name}"
        row(label, f"{rates[temperature]:.1%} correct [{low:.1%}, {high:.1%}]")
    assert rates[0.0] <= 0.15
    assert 0.10 <= rates[1.0] <= 0.30
    assert max(rates.values()) <= 0.35


@pytest.mark.parametrize("name", PROMPTS)
def test_it_is_often_right_once_in_eight_answers(engine, task, row, name):
    prompts = PROMPTS[name](task, 160, 4)
    records = sample_records(engine, task, prompts, PARAMS, "base", 8)
    share, (low, high) = pass_at_k_curve(records, (8,))[8]
    row(f"base, pass@8 at T = 1, {len(prompts)} prompts of the {name}", f"{share:.1%} [{low:.1%}, {high:.1%}]")
    assert share >= 0.55


def test_the_first_tokens_do_not_decide(loaded, task, row):
    """As in `tests/tiny`, with three times as many prompts."""
    rows = without_wish(task.dataset("monitor", 9000, seed=12)).select(range(1200))
    completions = sample(loaded, rows["prompt"], seed=6)
    verdicts = judged(task, completions, rows)
    found = auc_of_first_tokens(completions, verdicts, rows["contract"][:])
    row(
        f"base, right or wrong from the first {FIRST_TOKENS} tokens, {len(rows)} prompts",
        f"AUC {found:.2f} within a contract",
    )
    assert found <= 0.6
