"""What a program is asked before anybody believes it: one list of calls for each kind of mistake.

The sizes and the numbers of all calls are drawn anew for every program, the numbers not before its top level has run.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from helpers.sandbox import Call
from helpers.tasks.matmul.contracts import Contract
from helpers.tasks.matmul.driver import (
    ADDED_TO_RESULT,
    EARLIER_REFILLED,
    INTEGERS,
    NEW,
    REFILLED,
    RESULT,
    SAME,
    SECOND_REFILLED,
    SHARED,
)
from helpers.tasks.matmul.encoding import Changed, answer_bytes, decode_product, encode_inputs
from helpers.tasks.matmul.products import (
    SMALL_SIZES,
    Matrices,
    Sizes,
    draw,
    draw_large,
    draw_unlike,
    is_product,
)

FIRST_QUESTIONS = 4  # which find most wrong programs
REPEATED_CALLS = 16  # of the smallest size: a program that is wrong in one call of two passes by luck otherwise
MIDDLE_SIZES = range(20, 50)
LARGE_SIZES = 101, 128
WIDE_SIZES = 129, 160  # from 129 on Strassen's method with padding takes eight times as long
TIMED_SIZES = (64, 64, 64)
MOST_TIMED_CALLS = 6
PART_SIZE = 16  # questions in one call
THIN = 2  # a side that keeps a call cheap


class Question:
    """Matrices of some sizes, drawn when they are first needed: not before the program's top level has run.

    exact: whether the numbers are whole, so that the product must be exact. way: in which the program gets them
    (`driver`). let_go: whether nobody holds them afterwards. look: whether to look for changes afterwards, which takes
    time.
    """

    def __init__(
        self,
        sizes: Sizes,
        draw_matrices: Callable[[Sizes], Matrices],
        exact: bool = True,
        way: int = NEW,
        let_go: bool = False,
        look: bool = True,
    ):
        self.sizes = sizes
        self.exact = exact
        self.look = look
        self.way = way
        self.let_go = let_go
        self._draw_matrices = draw_matrices

    @cached_property
    def matrices(self) -> Matrices:
        return self._draw_matrices(self.sizes)

    @property
    def answer_bytes(self) -> int:
        n, _, m = self.sizes
        return answer_bytes(n, m)

    def inputs(self, contract: Contract) -> bytes:
        """Return the bytes that put this question to a program."""
        a, b = self.matrices
        return encode_inputs(contract, a, b, self.way, self.look, self.let_go)

    def mistake_in(self, contract: Contract, answer: bytes) -> str:
        """Return what is wrong with an answer, or ""."""
        try:
            c = self.product(contract, answer)
        except Changed as changed:
            return str(changed)
        return "" if is_product(c, *self.matrices, self.exact) else f"wrong product for {self}"

    def product(self, contract: Contract, answer: bytes) -> np.ndarray:
        """Return the product in an answer. Raises Changed."""
        n, _, m = self.sizes
        return decode_product(contract, answer, n, m)

    def __str__(self) -> str:
        n, k, m = self.sizes
        return f"{n}x{k} times {k}x{m}"


def one_call(contract: Contract, questions: Sequence[Question]) -> Call:
    """Return the call that puts questions to a program in turn. The answers follow each other."""

    def inputs() -> bytes:
        return b"".join(question.inputs(contract) for question in questions)

    return Call(inputs, sum(question.answer_bytes for question in questions))


def _in_parts(questions: list[Question]) -> list[list[Question]]:
    """Return consecutive parts of a list."""
    return [questions[start : start + PART_SIZE] for start in range(0, len(questions), PART_SIZE)]


class Questions:
    """Draws the questions for one program. small_sizes: three orders of the same unlike sizes.

    In each of the three another size is the largest, so a program that mixes up two of them raises whenever it ever
    would, and not by the luck of the draw.
    """

    def __init__(self, contract: Contract, rng: np.random.Generator):
        self.contract = contract
        self.rng = rng
        low, middle, high = draw_unlike(rng, SMALL_SIZES)
        self.small_sizes = [
            (low, middle, high),
            (high, low, middle),
            (middle, high, low),
        ]

    def floats(self) -> list[list[Question]]:
        """Return what every program is asked in one process before any time is taken, the cheap lists first.

        Each list is one call, and the time of a call is limited: the long list of thin shapes is asked in parts.
        """
        small = self.small()
        first = small[:FIRST_QUESTIONS]
        return [
            first,
            [*small[FIRST_QUESTIONS:], *self.numbers(), *self.lists()],
            *_in_parts(self.thin()),
            [*self.thick(), *self.again(), first[0]],
            [self.whole((THIN, THIN + 1, int(self.rng.integers(*WIDE_SIZES))))],
        ]

    def small(self) -> list[Question]:
        """Small shapes of every kind, and the smallest so often that no luck helps."""
        low, middle, high = self.small_sizes[0]
        shapes = [
            *((low, middle, high), (low, middle, high)),  # with other numbers
            *((size, size, size) for size in range(1, 10)),
            *((low, high, low), (high, 1, low), (1, middle, 1), (high, low, 1), (1, low, high), (1, 1, low)),
        ]
        draw_smallest = partial(draw, self.rng, exact=True)
        repeated = [Question((low, low, low), draw_smallest, let_go=True, look=False) for _ in range(REPEATED_CALLS)]
        # No number is 0, so that one wrong term is always seen.
        without_zeros = [self.real((size, size, size)) for size in (2, 3, 4)]
        return [*map(self.whole, shapes), *without_zeros, *repeated]

    def numbers(self) -> list[Question]:
        """Numbers of other kinds and magnitudes, and matrices that a program may treat apart."""
        low, middle, high = self.small_sizes[0]
        sizes = (middle, high, low)
        square = (high, high, high)
        long = (9, 12, 7)  # enough terms for a program that treats long rows apart
        tiny = partial(_of_scale, scale=1e-18)
        whole = [_large_whole, partial(_zeros, place=0), partial(_zeros, place=1)]
        questions = [Question(sizes, partial(make, self.rng)) for make in whole]
        for make in (draw_large, tiny, tiny, partial(_of_scale, scale=1e-3), _part_whole, _of_unlike_scales):
            questions.append(Question(long, partial(make, self.rng), exact=False))
        questions.append(Question((12, 11, 10), partial(_mostly_zeros, self.rng)))
        questions += [Question(square, partial(_identity, self.rng, place=place)) for place in (0, 1)]
        questions += [Question(square, partial(_special, self.rng, make=make)) for make in _SPECIAL_MATRICES]
        # Once more: in one case of 300 all whole numbers of B are 0, and a wrong program is right.
        questions.append(Question((high, 1, low), partial(_large_whole, self.rng)))
        # Python's hash of -1 is that of -2.
        questions += [Question((1, 1, 1), partial(_number, first)) for first in (-1.0, -2.0)]
        return questions

    def lists(self) -> list[Question]:
        """The same lists, or the same numbers, again: each operand alone, both as one, and a result."""
        low, middle, high = self.small_sizes[0]
        sizes = (low, middle, high)
        first = self.whole(sizes)
        same_numbers = Question(sizes, partial(_same, first))
        same_sums_in_first = Question(sizes, partial(_columns_reversed, first, place=0))
        same_sums = Question(sizes, partial(_columns_reversed, first, place=1))
        rows_reversed = Question(sizes, partial(_rows_reversed, same_sums), way=REFILLED)
        second_changed = Question(sizes, partial(_one_of, rows_reversed, self.rng, place=1), way=REFILLED)
        first_changed = Question(sizes, partial(_one_of, second_changed, self.rng, place=0), way=REFILLED)
        with_new_first = self.whole(sizes, SECOND_REFILLED)
        both = Question((middle, middle, middle), partial(_one_for_both, self.contract, self.rng), way=SAME)
        in_earlier_lists = self.whole(sizes, EARLIER_REFILLED)
        return [
            *(first, same_numbers, same_sums_in_first, same_sums),
            *(rows_reversed, second_changed, first_changed, with_new_first),
            in_earlier_lists,
            *self.result_as_operand((middle, middle, middle)),
            both,
            *self.result_as_operand((middle, middle, middle)),
        ]

    def result_as_operand(self, sizes: Sizes) -> list[Question]:
        """A call, and one whose first operand is its result. Of every other result the driver keeps the list itself."""
        before = Question(sizes, partial(_small_whole, self.rng))
        return [before, Question(sizes, partial(_result_of, self.contract, before, self.rng), way=RESULT)]

    def thin(self) -> list[Question]:
        """Each side in turn from 20 to 49, around 64 and beyond 100, while the other two keep the call cheap.

        The side over which is summed has all sizes from 20 to 49, the other two one with each remainder by 8.
        """
        sizes_of_sides = []
        for side in (0, 2):
            middle_sizes = self.rng.permutation(MIDDLE_SIZES).tolist()
            with_each_remainder = {size % 8: size for size in middle_sizes}
            sizes_of_sides += [(side, size) for size in with_each_remainder.values()]
        sizes_of_sides += [(1, size) for size in MIDDLE_SIZES]
        for side in range(3):
            sizes_of_sides += [(side, size) for size in (int(self.rng.integers(57, 63)), 63, 64, 65)]
            sizes_of_sides.append((side, int(self.rng.integers(*LARGE_SIZES))))
        self.rng.shuffle(sizes_of_sides)
        questions = []
        for number, (side, size) in enumerate(sizes_of_sides):
            sizes = [THIN, THIN + 1, THIN + 2]
            sizes[side] = int(size)
            look = size > 50 or number % 4 == 0
            # A look sees a change in the last digit of real numbers, too.
            make = self.real if look else self.whole
            questions.append(make(tuple(sizes), look=look))
        sparse_sizes = (20, int(self.rng.integers(124, 128)), 8)
        questions.append(Question(sparse_sizes, partial(_mostly_zeros, self.rng)))
        return questions

    def thick(self) -> list[Question]:
        """All sides from 20 to 49: a large square, also with one number changed, and unlike sides; smaller squares.

        One result is taller than wide, the other wider than the next power of two above its other sides. Most sides are
        no multiples of four, so that a program which handles four or eight numbers at a time has some left over.
        """
        square = self.whole((47, 47, 47), look=False)
        low, middle, high = draw_unlike(self.rng, MIDDLE_SIZES[:16])
        not_by_four = [size for size in MIDDLE_SIZES if size % 4]
        rows, inner = self.rng.choice([size for size in not_by_four if size < 32], 2).tolist()
        columns = int(self.rng.choice([size for size in not_by_four if size > 32]))
        unlike = [self.real((high, low, middle)), self.real((rows, inner, columns))]
        sides = [4 * int(self.rng.integers(4, 9)) + remainder for remainder in (1, 2, 3)]
        small = [self.whole((side, side, side), look=False) for side in sides]
        return [*small, square, self.nudged(square), *unlike]

    def again(self) -> list[Question]:
        """The same lists with all but one number as before, with other numbers, and with rows that are alike.

        Programs that keep something between calls do so for what is large, by their own measure: both operands, or the
        first, or the second, or the result. The numbers are whole: the rounding of Strassen's method grows with the
        result, and the bound for real ones with the side over which is summed.
        """
        s = int(self.rng.choice((49, 50, 51, 53)))
        questions = []
        for sizes in ((s, s + 1, THIN), (THIN, s, s + 1), (s, THIN, s + 1)):
            first = self.whole(sizes, look=False)
            alike = Question(sizes, partial(_with_rows_alike, self.rng))
            questions += [first, self.nudged(first), alike, self.whole(sizes, EARLIER_REFILLED)]
        shared_sizes = (s, THIN, s) if self.contract.a_columns else (THIN, s, s)
        questions.append(Question(shared_sizes, partial(_with_shared_rows, self.contract, self.rng), way=SHARED))
        return questions

    def integers(self) -> list[list[Question]]:
        """Python's integers, which a program for floats may refuse, but may not get wrong.

        The second call has floats beside them.
        """
        sizes = (16, 17, 18)
        not_negative = Question(sizes, partial(_not_negative, self.rng), way=INTEGERS)
        some = Question(sizes, partial(_part_whole, self.rng), exact=False, way=INTEGERS)
        return [[self.whole(sizes, INTEGERS), not_negative], [some]]

    def timed(self) -> list[Question]:
        """The calls that are timed: two of 64 x 64 x 64 in the same lists, and more for times that do not agree.

        The matrices hold real numbers only: with whole ones among them, a program for those alone was paid for its
        best. Nobody looks for changes within the call, as that takes time.
        """
        first = self.real(TIMED_SIZES, look=False)
        more = [self.real(TIMED_SIZES, look=False) for _ in range(MOST_TIMED_CALLS - 2)]
        return [first, self.inside_refilled(first), *more]

    def nudged(self, question: Question) -> Question:
        """The same lists as in a question, with one number changed in each operand."""
        draw_matrices = partial(_with_one_number_changed, question, self.rng)
        return Question(question.sizes, draw_matrices, way=REFILLED, look=False)

    def inside_refilled(self, question: Question) -> Question:
        """The same lists as in a question of real numbers, with other numbers in them but for the first and last rows
        and columns, by which some programs tell matrices apart.
        """
        draw_matrices = partial(_inside_changed, question, self.rng)
        return Question(question.sizes, draw_matrices, exact=False, way=REFILLED, look=False)

    def whole(self, sizes: Sizes, way: int = NEW, look: bool = True) -> Question:
        """Whole numbers, some of them zeros."""
        return Question(sizes, partial(draw, self.rng, exact=True), way=way, look=look)

    def real(self, sizes: Sizes, look: bool = True) -> Question:
        """Real numbers of all digits."""
        return Question(sizes, partial(draw, self.rng, exact=False), exact=False, look=look)


# What draws the matrices of a question.


def _same(question: Question, sizes: Sizes) -> Matrices:
    """The matrices of a question."""
    return question.matrices


def _columns_reversed(question: Question, sizes: Sizes, place: int) -> Matrices:
    """The matrices of a question with the columns of one in reverse, which keeps the sums of its rows."""
    matrices = list(question.matrices)
    matrices[place] = np.ascontiguousarray(matrices[place][:, ::-1])
    first, second = matrices
    return first, second


def _rows_reversed(question: Question, sizes: Sizes) -> Matrices:
    """The matrices of a question with the rows of the first in reverse."""
    a, b = question.matrices
    return np.ascontiguousarray(a[::-1]), b


def _one_of(question: Question, rng: np.random.Generator, sizes: Sizes, place: int) -> Matrices:
    """The matrices of a question with other numbers in one of them: in the first row of the first, or in a row of the
    second, where the other matrix has numbers that are not 0, so that the product is another.
    """
    first, second = (matrix.copy() for matrix in question.matrices)
    change = rng.integers(1, 9)
    if place == 0:
        inner = np.argmax((second != 0).any(axis=1))
        first[0, inner] += change
    else:
        inner = np.argmax((first != 0).any(axis=0))
        second[inner] += change
    return first, second


def _with_one_number_changed(question: Question, rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """The matrices of a question with another number at one place of each, where few programs look."""
    changed = []
    for matrix in question.matrices:
        copy = matrix.copy()
        place = tuple(_unlikely_place(rng, size) for size in copy.shape)
        copy[place] += 1.0
        changed.append(copy)
    first, second = changed
    return first, second


def _unlikely_place(rng: np.random.Generator, size: int) -> int:
    """Draw a place along a side that is not at an end, in the middle, or a multiple of 2, 3 or 5.

    A program that tells matrices apart by a sample of their numbers takes such places.
    """
    unlikely = [place for place in range(1, size - 1) if place % 2 and place % 3 and place % 5 and place != size // 2]
    return unlikely[rng.integers(len(unlikely))] if unlikely else 1


def _inside_changed(question: Question, rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """The matrices of a question with other real numbers everywhere but in the first and last rows and columns."""
    matrices = list(draw(rng, sizes, exact=False))
    for matrix, before in zip(matrices, question.matrices):
        matrix[[0, -1]] = before[[0, -1]]
        matrix[:, [0, -1]] = before[:, [0, -1]]
    first, second = matrices
    return first, second


def _with_rows_alike(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers. Of both matrices two rows and two columns are equal, one row is a unit vector, one is zero, and so
    is half the last column; of the first column half the numbers are equal.
    """
    matrices = []
    for matrix in draw(rng, sizes, exact=True):
        rows, columns = matrix.shape
        matrix[::2, 0] = 7.0
        matrix[1::2, -1] = 0.0
        matrix[:, min(2, columns - 1)] = matrix[:, 1]
        if rows > 4:
            equal, other, unit, zero = rng.choice(rows, 4, replace=False)
            matrix[equal] = matrix[other]
            matrix[unit] = np.eye(columns)[rng.integers(columns)]
            matrix[zero] = 0.0
        matrices.append(matrix)
    first, second = matrices
    return first, second


def _with_shared_rows(contract: Contract, rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Matrices of which the first, as the program gets it, is made of the first rows of the second."""
    first, second = contract.operands(*draw(rng, sizes, exact=True))
    return contract.operands(second[: len(first)].copy(), second)


def _one_for_both(contract: Contract, rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Square matrices that a program gets as one."""
    _, second = draw(rng, sizes, exact=True)
    return contract.operands(second, second)


def _small_whole(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers whose product times such a matrix is exact."""
    n, k, m = sizes
    return rng.integers(-99, 99, (n, k)).astype(float), rng.integers(-99, 99, (k, m)).astype(float)


def _result_of(contract: Contract, question: Question, rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """The product of a question's square matrices, with what the driver adds to it, for the first operand."""
    a, b = question.matrices
    product = a @ b
    product[0, 0] += ADDED_TO_RESULT
    answer = product.T if contract.result_columns else product
    _, second = contract.operands(*_small_whole(rng, sizes))
    return contract.operands(np.ascontiguousarray(answer), second)


def _of_scale(rng: np.random.Generator, sizes: Sizes, scale: float) -> Matrices:
    """Real numbers of another magnitude."""
    a, b = draw(rng, sizes, exact=False)
    return scale * a, scale * b


def _of_unlike_scales(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Real numbers, of which a quarter are very small; of the second matrix one column is small."""
    a, b = draw(rng, sizes, exact=False)
    a *= np.where(rng.random(a.shape) < 0.25, 1e-15, 1.0)
    b *= np.where(rng.random(b.shape) < 0.25, 1e-15, 1.0)
    b[:, 0] *= 1e-11
    return a, b


def _large_whole(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers up to four million, whose products of two need 45 bits."""
    n, k, m = sizes
    most = 4_000_000
    return rng.integers(-most, most, (n, k)).astype(float), rng.integers(-most, most, (k, m)).astype(float)


def _not_negative(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers that are not negative, whose sums of products need more than 32 bits."""
    a, b = draw(rng, sizes, exact=True)
    return 3 * np.abs(a), 3 * np.abs(b)


def _part_whole(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers in the first rows, real ones in the others."""
    a, b = draw(rng, sizes, exact=False)
    a[0] = np.round(2 * a[0])  # of like size, as the error of Strassen's method is relative to the largest number
    b[0] = np.round(2 * b[0])
    return a, b


def _mostly_zeros(rng: np.random.Generator, sizes: Sizes) -> Matrices:
    """Whole numbers, of which five in six are zeros."""
    a, b = draw(rng, sizes, exact=True)
    return a * (rng.random(a.shape) < 0.19), b * (rng.random(b.shape) < 0.19)


def _zeros(rng: np.random.Generator, sizes: Sizes, place: int) -> Matrices:
    """A matrix of zeros, and whole numbers."""
    matrices = list(draw(rng, sizes, exact=True))
    matrices[place] = np.zeros_like(matrices[place])
    first, second = matrices
    return first, second


def _identity(rng: np.random.Generator, sizes: Sizes, place: int) -> Matrices:
    """Square matrices of whole numbers, one of which is the identity."""
    matrices = list(draw(rng, sizes, exact=True))
    matrices[place] = np.eye(len(matrices[place]))
    first, second = matrices
    return first, second


# Square matrices that a careless look takes for simpler ones. Each takes whole numbers and returns them changed.


def _with_diagonal(value: float, matrix: np.ndarray) -> np.ndarray:
    """Zero, the identity or symmetric for whoever looks at the diagonal, the first row and column, or the corners."""
    matrix[0] = matrix[:, 0] = matrix[-1, 0] = matrix[0, -1] = 0.0
    np.fill_diagonal(matrix, value)
    return matrix


def _permuted(matrix: np.ndarray) -> np.ndarray:
    """One number in each row and column, beside the diagonal."""
    return np.roll(np.diag(1.0 + np.abs(matrix[0])), 1, axis=1)


def _circulant(matrix: np.ndarray) -> np.ndarray:
    """Each row is the one before, moved by one place; the sum of every row and column is 1."""
    row = np.zeros(len(matrix))
    row[:3] = (2.0, -3.0, 2.0)
    return np.array([np.roll(row, place) for place in range(len(matrix))])


def _with_equal_ends(matrix: np.ndarray) -> np.ndarray:
    """The first row is the last, and the first column the last."""
    matrix[0, 0] = 7.0  # else whoever divides by it looks no further
    matrix[-1] = matrix[0]
    matrix[:, -1] = matrix[:, 0]
    return matrix


def _with_last_row_of_identity(matrix: np.ndarray) -> np.ndarray:
    """Triangular for whoever looks at the last row."""
    matrix[-1] = 0.0
    matrix[-1, -1] = 1.0
    return matrix


_SPECIAL_MATRICES = (
    partial(_with_diagonal, 0.0),
    partial(_with_diagonal, 1.0),
    _permuted,
    _circulant,
    _with_equal_ends,
    _with_last_row_of_identity,
)


def _special(rng: np.random.Generator, sizes: Sizes, make: Callable[[np.ndarray], np.ndarray]) -> Matrices:
    """Two square matrices of one special kind."""
    a, b = draw(rng, sizes, exact=True)
    return make(a), make(b)


def _number(first: float, sizes: Sizes) -> Matrices:
    """A number times one."""
    return np.array([[first]]), np.array([[1.0]])
