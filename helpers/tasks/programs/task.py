"""The base of the tasks whose answer is a program.

It owns the judge and the verdicts: a program is judged once, whoever asks. A reward is a function of the verdict.
"""

import ast
import atexit
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from helpers.profiles import Profile
from helpers.rewards.arguments import rows_of, shown
from helpers.rewards.code import extract_code
from helpers.rewards.registry import Reward, register_preset, register_reward
from helpers.rollout.completion import Completion
from helpers.runtime import UserError
from helpers.sandbox import check_workers, choose_level
from helpers.sandbox.inside.syntax import needs_newer_python
from helpers.tasks.generated import GeneratedTask
from helpers.tasks.programs.judge import ProgramJudge
from helpers.tasks.programs.scan import scan
from helpers.tasks.programs.verdict import ERROR, OUTCOMES, Verdict, VerdictReward
from helpers.tasks.task import Grade, Rewards, Row, Value

MOST_REMEMBERED = 20_000  # verdicts
MOST_SCANNED = 20_000  # characters of a block, where one of several is chosen

#: A program's text and its requirement (`ProgramJudge`).
Submission = tuple[str, str]


class ProgramTask(GeneratedTask):
    """A task whose answer is a program.

    function: the name that a program must define. requirement_column: the column of the data set with what it must
    meet (`ProgramJudge`). other_columns: further ones that `submission` reads; a data set may lack them. judge_class:
    its judge. rewards: its table of rewards, which `register_rewards` makes known.
    level: of the sandbox, or "auto" (`choose_level`). embedded_model: whether the programs are those of the embedded
    model. workers: programs judged at a time; None: one a core.

    The sandbox starts, and tests itself, when it is first needed. Verdicts are remembered under the program's text and
    its requirement, since the same text can be right under one and wrong under another. Equal programs are judged once,
    so that within a group the clock's noise is not taken for a difference. A verdict keeps its measured speed for as
    long as the task lives: a program that many steps repeat costs no time again, and an error of its one measurement
    stays, too.

    To write one, set `name` and these four, and what `GeneratedTask` asks for, and implement `draw_row`. Call
    `register_rewards` for the class, so that its rewards are known by name.
    """

    outcomes = OUTCOMES
    options = {"workers": "programs judged at a time; default: one a core"}
    function: str
    requirement_column: str
    other_columns: tuple[str, ...] = ()
    judge_class: type[ProgramJudge]
    rewards: tuple[VerdictReward, ...]
    reward_classes: tuple[type["ProgramReward"], ...]

    def __init_subclass__(cls, **options):
        """Make a class of each line of a task's own table."""
        super().__init_subclass__(**options)
        if "rewards" in vars(cls):
            cls.reward_classes = tuple(_reward_class(cls, line) for line in cls.rewards)

    def __init__(self, *, level: str = "auto", workers: int | None = None, embedded_model: bool = False):
        check_workers(workers)
        self.level = choose_level(level, embedded_model)
        self.workers = workers
        self.reward_funcs = [reward_class(task=self) for reward_class in self.reward_classes]
        self.reward_weights = [1.0] * len(self.reward_funcs)
        self._judge = None
        self._remembered = OrderedDict()  # program -> verdict, the most recently used last

    @classmethod
    def options_for(cls, profile: Profile) -> dict[str, Value]:
        return {"embedded_model": profile.name == "tiny"}

    @property
    def judge(self) -> ProgramJudge:
        """The judge of programs, tested when it is first needed. Raises UserError if it fails its test."""
        if self._judge is None:
            judge = self.judge_class(level=self.level, workers=self.workers)
            try:
                judge.self_test()
            except BaseException:
                judge.close()
                raise
            atexit.register(judge.close)
            self._judge = judge
        return self._judge

    def close(self) -> None:
        """End the sandbox's processes. The next use starts new ones."""
        if self._judge is not None:
            atexit.unregister(self._judge.close)
            self._judge.close()
            self._judge = None

    def settings(self) -> dict:
        return {"task": self.name, "sandbox": self.level}

    def reference_answer(self, row: Row) -> str:
        return f"```python\n{row['answer']}\n```"

    def grade(
        self, rows: Sequence[Row], completions: Sequence[Completion], rewards: Rewards | None = None
    ) -> list[Grade]:
        messages = [completion.message for completion in completions]
        finish_reasons = [completion.finish_reason for completion in completions]
        columns = {name: [row.get(name) for row in rows] for name in self.columns}
        programs = self.programs(messages, finish_reasons, **columns)
        return self.grade_programs(programs, self.verdicts_on(programs))

    def grade_programs(self, programs: Sequence[Submission | None], verdicts: Sequence[Verdict]) -> list[Grade]:
        """Return the grade that each verdict stands for."""
        return [Grade(float(verdict.correct), verdict.correct, verdict.outcome, verdict.reason) for verdict in verdicts]

    def behaviours(
        self, prompts: Sequence, completions: Sequence, finish_reasons: Sequence[str] | None = None, **columns
    ) -> list[str | None]:
        """Describe what each program does, right or wrong: equal texts where two programs do the same.

        None: the sandbox failed.
        """
        verdicts = self.verdicts(completions, finish_reasons, **columns)
        return [verdict.behaviour if verdict.judged else None for verdict in verdicts]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data set that a verdict depends on."""
        return (self.requirement_column, *self.other_columns)

    def verdicts(
        self, completions: Sequence[str | list[dict]], finish_reasons: Sequence[str] | None = None, **columns
    ) -> list[Verdict]:
        """Return one verdict a completion. columns: of the data set, by name; those that no verdict needs are ignored.

        Raises UserError for an invalid requirement, and where the sandbox could judge no program at all.
        """
        return self.verdicts_on(self.programs(completions, finish_reasons, **columns))

    def programs(
        self, completions: Sequence[str | list[dict]], finish_reasons: Sequence[str] | None = None, **columns
    ) -> list[Submission | None]:
        """Return the program of each completion and its requirement, None where there is no program."""
        needed = {name: columns.get(name) for name in self.columns}
        rows = rows_of(self.name, completions, finish_reasons, **needed)
        programs = []
        for text, finish_reason, requirement, *others in rows:
            if needed[self.requirement_column] is None:
                requirement = self.judge_class.default_requirement
            if not isinstance(requirement, str):
                raise UserError(
                    f"The column '{self.requirement_column}' holds {shown(requirement)}: give a text in each row."
                )
            code = self.submission(text, finish_reason, *others)
            programs.append(None if code is None else (code, requirement))
        return programs

    def submission(self, text: str, finish_reason: str, *others: Value) -> str | None:
        """Return the program in a completion as the judge gets it, None where there is none.

        others: the values of `other_columns`; None for one that the data set lacks.
        """
        return extract_program(text, finish_reason, self.function)

    def verdicts_on(self, programs: Sequence[Submission | None]) -> list[Verdict]:
        """Return the verdict on each program. Raises UserError as `verdicts`."""
        present = list(dict.fromkeys(program for program in programs if program is not None))
        self._forget_least_recent()
        self._judge_new(present)
        for program in present:
            self._remembered.move_to_end(program)
        reason = "no closed block of code in the final channel that defines the function as it was asked for"
        no_program = Verdict(ERROR, reason, "no program")
        return [no_program if program is None else self._remembered[program] for program in programs]

    def _judge_new(self, programs: Sequence[Submission]) -> None:
        """Judge the programs that have no verdict yet, and again those where the sandbox failed."""
        new = [program for program in programs if not self._is_judged(program)]
        if not new:
            return
        verdicts = self.judge.judge_many([code for code, _ in new], [requirement for _, requirement in new])
        self._remembered.update(zip(new, verdicts, strict=True))
        if not any(self._is_judged(program) for program in programs):
            raise UserError(f"No program could be judged: {verdicts[0].reason}. Fix that and run this again.")

    def _is_judged(self, program: Submission) -> bool:
        return program in self._remembered and self._remembered[program].judged

    def _forget_least_recent(self) -> None:
        """Keep the memory from growing without end in a run of days."""
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


def extract_program(completion: str | list[dict], finish_reason: str, function: str) -> str | None:
    """Return the program in a completion: the last one that can run here, such as the one without numpy of two.

    See `extract_code`.
    """
    return extract_code(completion, finish_reason, function, partial(_runs_here, function=function))


def _runs_here(source: str, function: str) -> bool:
    """Tell whether what a program needs is here, right or wrong."""
    if len(source) > MOST_SCANNED:
        return True
    try:
        with warnings.catch_warnings(action="ignore"):  # for an escape that is none, in a string
            return not scan(source, ast.parse(source), function)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return not needs_newer_python(source)


class ProgramReward(Reward):
    """A line of a task's table as a reward function in TRL's signature. Each line has a subclass.

    task: whose judge and verdicts it uses; default: one of its own, made with level and workers. Rewards of one task
    judge a program once.
    """

    task_class: type[ProgramTask]
    line: VerdictReward

    def __init__(self, level: str = "auto", workers: int | None = None, task: ProgramTask | None = None):
        self.task = self.task_class(level=level, workers=workers) if task is None else task

    def __call__(
        self, prompts: Sequence, completions: Sequence, finish_reasons: Sequence[str] | None = None, **columns
    ) -> list[float | None]:
        """Return what is paid for each completion; None where the sandbox failed, which says nothing of a program."""
        verdicts = self.task.verdicts(completions, finish_reasons, **columns)
        return [self.line.pay(verdict) if verdict.judged else None for verdict in verdicts]

    def close(self) -> None:
        """End the sandbox's processes."""
        self.task.close()


def _reward_class(task_class: type[ProgramTask], line: VerdictReward) -> type[ProgramReward]:
    attributes = {
        "__doc__": line.pay.__doc__,
        "__module__": task_class.__module__,
        "name": line.name,
        "line": line,
        "task_class": task_class,
    }
    return type(f"{task_class.__name__}_{line.name}", (ProgramReward,), attributes)


def register_rewards(task_class: type[ProgramTask]) -> None:
    """Register each line of a task's table as a reward, and all of them as the preset of the task's name."""
    for reward_class in task_class.reward_classes:
        line = reward_class.line
        register = register_reward(line.value_range, (task_class.requirement_column,), line.pays_correctness)
        register(reward_class)
    pairs = [(line.name, 1.0) for line in task_class.rewards]
    register_preset(task_class.name, pairs, make=lambda: task_class().reward_funcs)
