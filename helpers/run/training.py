"""What is done with a run: its training, a dry run or a baseline in place of it, and the verdict on its adapter."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from peft import PeftModel

from helpers.display import LiveView, text_table
from helpers.evaluation import (
    SETS_HEADER,
    Evaluation,
    Report,
    best_temperature,
    check_task,
    compare,
    compare_records,
    describe_sets,
    evaluate,
    gains_by,
    sample_records,
    save_records,
    trained_on,
)
from helpers.grpo.config import GRPOConfig
from helpers.grpo.dry_runs import dry_run
from helpers.grpo.posthoc import compare_with_training
from helpers.grpo.rft import train_rft
from helpers.grpo.trainer import GRPOTrainer
from helpers.lint import describe_lint
from helpers.model.load import load_model
from helpers.model.lora import add_lora
from helpers.model.memory import largest_batch, memory_plan, rollout_length
from helpers.rollout.engine import RolloutEngine
from helpers.rollout.sampling import SamplingParams
from helpers.run.opening import Run
from helpers.runtime import EndOfNotebook, UserError, recover_folder, write_whole
from helpers.tasks.split import PROBE
from helpers.tasks.validation import validate_data

#: Seed of the prompts and answers of an evaluation, as in 05_evaluate.
EVALUATION_SEED = 7


def make_trainer(run: Run, config: GRPOConfig | None = None) -> GRPOTrainer:
    """Load the model of a run, give it a fresh adapter, and return the trainer. config: in place of the run's own."""
    profile = run.profile
    config = config or run.config
    model, tokenizer = load_model(profile=profile, plan=config.memory_plan(profile))
    model = add_lora(model, r=profile.lora_r, alpha=profile.lora_alpha, targets=profile.lora_targets, seed=run.seed)
    return GRPOTrainer(
        model,
        run.reward_funcs,
        config,
        run.train_dataset,
        tokenizer,
        callbacks=[LiveView()],
        task=run.task,
        eval_dataset=run.eval_dataset,
    )


def train(run: Run) -> None:
    """Train to the last step, from the last checkpoint where there is one, and save the adapter for `load_trained`.

    Raises UserError where the training was interrupted: the same command goes on.
    """
    trainer = make_trainer(run)
    end_early(run, trainer)
    state = trainer.train(resume_from_checkpoint=True)
    if not state.global_step:
        raise UserError("Interrupted before the first step was done: start it again.")
    trainer.save_model(run.folder / "adapter")
    print(f"step {state.global_step} of {state.max_steps}; the adapter is in {run.folder}/adapter")


def end_early(run: Run, trainer: GRPOTrainer) -> None:
    """End before the training, where the run is a dry run or a baseline; return otherwise.

    A dry run checks data and rewards, takes one step back and forth, and lets the model answer a few prompts of each
    split. A baseline is trained and saved. Both end with EndOfNotebook. All but a dry run leaves its settings in the
    folder of the run.
    """
    if not run.settings.dry_run:
        run.save_settings()
    else:
        dry_run(trainer)
        params = SamplingParams(trainer.args.max_completion_length, seed=run.seed)
        for split in run.task.splits:
            records = sample_records(trainer.engine, run.task, run.task.dataset(split, 8), params, "base")
            outcomes = sorted(record["outcome"] for record in records)
            print(f"{split}: {len(records)} prompts, answers {', '.join(outcomes)}")
        for sentence in validate_data(run.task):
            print(sentence)
        functions, weights = run.chosen_rewards
        print(describe_lint(run.task, run.task.dataset("train", 8, seed=run.seed), functions, weights))
        raise EndOfNotebook("The dry run ends here, before the training: leave dry_run out of the settings to train.")
    if run.settings.baseline:
        imitated = train_rft(trainer)
        trainer.save_model(run.folder / "adapter")
        print(f"{imitated.kept} of {imitated.drawn} completions were right; imitated in {imitated.steps} steps")
        raise EndOfNotebook(f"The baseline ends here; its adapter is in {run.folder.name}/adapter, for 05_evaluate.")


@dataclass(frozen=True)
class Trained:
    """A model whose adapter can be switched off, and the engine that draws from it.

    origin: how the adapter was trained, as `GRPOTrainer.save_model` wrote it; None where nobody knows.
    """

    model: PeftModel
    engine: RolloutEngine
    params: SamplingParams
    origin: dict | None


def load_trained(run: Run, seed: int) -> Trained:
    """Load the adapter that the training left in the folder of the run, on its model.

    Where there is none, a few steps are trained first. seed: of the answers. Raises UserError for an adapter that was
    trained on another task.
    """
    profile = run.profile
    adapter = recover_folder(run.folder / "adapter")  # atomic, even if the process was killed while it wrote
    training = run.folder / "grpo"
    if not adapter.exists():
        adapter = _train_fallback(run)
        training = adapter.parent
    origin = None
    max_completion_length = run.config.max_completion_length
    if (adapter / "trainer_state.json").exists():
        origin = json.loads((adapter / "trainer_state.json").read_text())
        check_task(origin, run.task)
        max_completion_length = origin["settings"]["max_completion_length"]
        print(f"{adapter.relative_to(run.folder.parent)}: seed {origin['settings']['seed']}, {trained_on(origin)}")
    length = rollout_length(max_completion_length, run.config.max_prompt_length)
    batch = largest_batch(profile, length)  # as many answers at a time as the memory plan allows
    model, tokenizer = load_model(profile=profile, adapter=adapter, plan=memory_plan(profile, batch, length))
    chat = run.config.chat_template_kwargs
    engine = RolloutEngine(model, tokenizer, max_batch_size=batch, max_length=length, chat_template_kwargs=chat)
    if origin is not None:
        _check_posthoc(run, model, engine, origin, training)
    return Trained(model, engine, SamplingParams(max_completion_length, seed=seed), origin)


def _check_posthoc(run: Run, model: PeftModel, engine: RolloutEngine, origin: dict, training: Path) -> None:
    """Say whether the adapter that was loaded is the one that the training evaluated, where it did.

    training: the folder that has its evaluations. posthoc.json in the folder of the run has the numbers.
    """
    found = compare_with_training(model, engine, run.task, run.config, training, origin["step"])
    if found is not None:
        print(found)
        write_whole(run.folder / "posthoc.json", json.dumps(found.to_dict(), indent=2) + "\n")


def _train_fallback(run: Run) -> Path:
    """Train a few steps, so that there is something to compare; return the folder of the adapter."""
    steps = run.settings.fallback_steps
    print(f"There is no adapter in {run.folder.name}: training {steps} steps now. Run 04_grpo for a real one.")
    config = replace(run.config, max_steps=steps, output_dir=str(run.folder / "fallback"))
    trainer = make_trainer(run, config)
    trainer.train(resume_from_checkpoint=True)
    adapter = run.folder / "fallback" / "adapter"
    trainer.save_model(adapter)
    return adapter


def judge(run: Run) -> Report:
    """Evaluate the trained model and its base as 05_evaluate does; write records.jsonl and report.json."""
    seed = run.grpo.get("seed", EVALUATION_SEED)
    trained = load_trained(run, seed)
    prompts = run.task.dataset("confirm", run.sweep.items, seed=seed)
    asked = trained.engine, run.task, prompts, trained.params
    tuned = evaluate(*asked, "tuned", run.sweep.temperatures)
    with trained.model.disable_adapter():
        base = evaluate(*asked, "base", run.sweep.temperatures)
    save_records(run.folder / "records.jsonl", base.all_records() + tuned.all_records())
    report = compare(base, tuned, win_margin=run.profile.win_margin)
    saved = {**report.to_dict(), "origin": trained.origin}
    write_whole(run.folder / "report.json", json.dumps(saved, indent=2))
    if PROBE in run.task.splits:
        _ask_probe(run, trained, base, tuned, report)
    return report


def _ask_probe(run: Run, trained: Trained, base: Evaluation, tuned: Evaluation, report: Report) -> None:
    """Ask the split "probe", each model at its own best temperature, and print what each of its sets shows."""
    prompts = run.task.dataset(PROBE, run.sweep.probe_items, seed=trained.params.seed)
    asked = {one.name: replace(trained.params, temperature=best_temperature(one.records)) for one in (base, tuned)}
    tuned_records = sample_records(trained.engine, run.task, prompts, asked["tuned"], "tuned")
    with trained.model.disable_adapter():
        base_records = sample_records(trained.engine, run.task, prompts, asked["base"], "base")
    found = {"those that decide": report.best, "probe": compare_records(base_records, tuned_records)}
    for column in run.task.breakdowns[:1]:
        found |= {str(name): one for name, one in gains_by(base_records, tuned_records, column).items()}
    print(text_table(describe_sets(found), header=SETS_HEADER))
