"""The matmul task: write a matrix product in pure Python, as fast as possible."""

import random
from collections.abc import Sequence
from itertools import count

from helpers.tasks.drawing import make_row
from helpers.tasks.matmul.contracts import COMBINATION, CONTRACTS, HELDOUT_CONTRACT, TRAINED
from helpers.tasks.matmul.driver import FUNCTION
from helpers.tasks.matmul.judge import MatmulJudge
from helpers.tasks.matmul.names import DEFAULT, draw_signature, parse_signature
from helpers.tasks.matmul.programs import STYLES, draw_program
from helpers.tasks.matmul.prompts import WISHES, Prompt, draw_prompt
from helpers.tasks.matmul.rewards import DEAD_ZONE, REWARDS, too_fast
from helpers.tasks.matmul.statements import frames, statements
from helpers.tasks.programs.task import ProgramTask, Submission, extract_program, register_rewards
from helpers.tasks.programs.verdict import Verdict
from helpers.tasks.split import PROBE, belongs_to
from helpers.tasks.task import Grade, Measure, Row, Value
from helpers.tasks.wording import parse_wording_name, wording_names

HELDOUT_CHECKED = 2  # programs of a batch that are put to the held-out check


class MatmulTask(ProgramTask):
    """Multiply two matrices in pure Python, as fast as possible, with names, operands and result as the prompt says.

    The splits differ in what is asked, not in its words alone. Training and monitoring ask for three contracts, in
    names and sentences of their own. "confirm" asks for a fourth, which reinforcement learning never pays for, and
    "probe" for the three again and for a combination of two that nothing in the project's training has; both do so in
    combinations of names and in sentences that no training has.

    speed: whether speed is paid; if not, one seed gives one adapter, byte for byte. The other options are those of
    `ProgramTask`.

    A cluster is a frame of sentences that state a contract (`frames`): those are alike but for the names of the
    matrices. Beside the usual columns, a row has contract, a name in `contracts.CONTRACTS`; signature, such as
    "matmul(A, B)", the names that the program must use; and answer, a right program.
    """

    name = "matmul"
    function = FUNCTION
    requirement_column = "contract"
    other_columns = ("signature",)
    judge_class = MatmulJudge
    rewards = REWARDS
    alarms = {
        "failed_heldout_check": "fail the held-out check: the reward pays for something else than the task",
        "too_fast": "are faster than they can be: read them",
    }
    measures = (Measure("speedup", "speed, plain loops = 1", resolution=DEAD_ZONE),)
    breakdowns = ("contract", "cluster")
    options = {
        **ProgramTask.options,
        "speed": "False: speed is not paid and, without a clock, one seed gives one adapter, byte for byte",
    }
    wordings = {contract: statements(contract) for contract in CONTRACTS}

    def __init__(
        self, *, level: str = "auto", speed: bool = True, workers: int | None = None, embedded_model: bool = False
    ):
        super().__init__(level=level, workers=workers, embedded_model=embedded_model)
        if not speed:
            self.reward_funcs = [reward for reward in self.reward_funcs if reward.name != "speed_check"]
            self.reward_weights = [1.0] * len(self.reward_funcs)

    def wordings_of(self, split: str) -> list[str]:
        if split == "confirm":
            return wording_names({HELDOUT_CONTRACT: statements(HELDOUT_CONTRACT)}, "unseen")
        if split == PROBE:
            return _in_turns((*TRAINED, COMBINATION), "unseen")
        return _in_turns(TRAINED, "seen")

    def draw_row(self, rng: random.Random, wording: str, split: str) -> Row:
        contract, number = parse_wording_name(wording)
        signature = draw_signature(rng, new=split in ("confirm", PROBE))
        sentence = statements(contract).all[number]
        prompt = draw_prompt(rng, sentence, signature)
        program = signature.rename(_answer(rng, prompt, contract, split))
        row = make_row(self.name, prompt.text, program, cluster=f"{contract}: {frames(contract)[sentence]}")
        return {**row, "contract": contract, "signature": str(signature)}

    def describe_group(self, column: str, value: Value) -> str:
        return value if column == "cluster" else f"{column} {value}"

    def submission(self, text: str, finish_reason: str, signature: str | None = None) -> str | None:
        asked = DEFAULT if signature is None else parse_signature(signature)
        program = extract_program(text, finish_reason, asked.function)
        return None if program is None else asked.bind(program)

    def grade_programs(self, programs: Sequence[Submission | None], verdicts: Sequence[Verdict]) -> list[Grade]:
        return list(map(grade_of, verdicts, self._check_fastest(programs, verdicts)))

    def heldout_check(
        self,
        prompts: Sequence,
        completions: Sequence,
        finish_reasons: Sequence[str] | None = None,
        **columns,
    ) -> list[float | None]:
        """Test the fastest correct programs of a batch on inputs that no reward uses: 1 or 0, None for the others.

        This is a check and no reward. It asks for other sizes and for numbers of other magnitudes, and its
        reference is exact and shares nothing with the judge's. It finds a model that learnt the test and not the task.
        A program that several completions have in common is tested, and counted, once.
        """
        programs = self.programs(completions, finish_reasons, **columns)
        return self._check_fastest(programs, self.verdicts_on(programs))

    def _check_fastest(self, programs: Sequence[Submission | None], verdicts: Sequence[Verdict]) -> list[float | None]:
        first_places = {}
        for place, (program, verdict) in enumerate(zip(programs, verdicts, strict=True)):
            if verdict.correct:
                first_places.setdefault(program, place)
        by_speed = sorted(first_places.values(), key=lambda place: verdicts[place].speedup, reverse=True)
        fastest = by_speed[:HELDOUT_CHECKED]
        results = self.judge.check_many(*_columns(programs[place] for place in fastest))
        values = [None] * len(programs)
        for place, result in zip(fastest, results, strict=True):
            values[place] = result
        return values

    def behaviours(
        self,
        prompts: Sequence,
        completions: Sequence,
        finish_reasons: Sequence[str] | None = None,
        **columns,
    ) -> list[str | None]:
        """Describe what each program does with fixed inputs, right or wrong.

        Two texts are equal where two programs return the same results or fail alike. None: the sandbox failed.
        """
        programs = self.programs(completions, finish_reasons, **columns)
        different = sorted(set(programs) - {None})
        behaviour_of = dict(zip(different, self.judge.behaviours(*_columns(different)), strict=True))
        behaviour_of[None] = "no program"
        return [behaviour_of[program] for program in programs]


def _columns(programs):
    """[(text, contract)] as (texts, contracts)."""
    programs = list(programs)
    return [text for text, _ in programs], [contract for _, contract in programs]


def grade_of(verdict: Verdict, passed_heldout_check: float | None = None) -> Grade:
    """Return the grade that a verdict stands for. passed_heldout_check: 1, 0, or None where it was not asked."""
    tags = {"speedup": verdict.speedup, "too_fast": too_fast(verdict)}
    if passed_heldout_check is not None:
        tags["failed_heldout_check"] = not passed_heldout_check
    return Grade(float(verdict.correct), verdict.correct, verdict.outcome, verdict.reason, tags)


def _in_turns(contracts: Sequence[str], part: str) -> list[str]:
    """Return as many wordings of each contract, one of each in turn. part: "seen" or "unseen"."""
    shuffled = [wording_names({contract: statements(contract)}, part) for contract in contracts]
    for names in shuffled:
        random.Random(0).shuffle(names)
    return [name for names in zip(*shuffled) for name in names]


def _answer(rng: random.Random, prompt: Prompt, contract: str, split: str) -> str:
    """Draw a correct program for `matmul(A, B)` that is on the same side of the split as the prompt."""
    for attempt in count():
        # A style with few variants may have none on this side of the split; then any style will do.
        wished = WISHES[prompt.wish] if attempt < 50 else None
        style = rng.choice(wished or tuple(STYLES))
        program = draw_program(rng, contract=contract, style=style).source
        if belongs_to(program, split):
            return program


register_rewards(MatmulTask)
