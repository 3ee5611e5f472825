"""The functions that the code task asks for: how a prompt says it, what a right program is, and cases to test with.

`SPECS` are for training, monitoring and confirming; `PROBE_SPECS` are in the split "probe" alone.
"""

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from helpers.gallery.code import references
from helpers.tasks.wording import Wordings

Case = list  # the arguments of one call
Parameters = Mapping[str, object]
DrawCase = Callable[[random.Random, int, Parameters], Case]

VISIBLE_SIZE = 5  # of a list or a text in a visible example, at most
HIDDEN_SIZES = (3, 6, 12)
HIDDEN_DRAWN = 18  # cases beside the edge cases
MOST_EXAMPLE_CHARACTERS = 70
DRAWS = 200  # after which a small set of cases is taken to be exhausted

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Spec:
    """A function to ask for.

    reference: a right function, of the arguments and of the parameters by name. signature: the names of the arguments.
    wordings: sentences, with fields for the parameters. draw: f(random generator, size, parameters) -> arguments.
    edges: cases that are always tested. parameters: name -> the values that a prompt may have. property: the name of a
    check in `properties` where there are several right results, else "". tolerance: for floats.
    """

    reference: Callable
    signature: str
    wordings: Wordings
    draw: DrawCase
    edges: tuple[Case, ...]
    parameters: Parameters = field(default_factory=dict)
    property: str = ""
    tolerance: float = 0.0

    def draw_parameters(self, rng: random.Random) -> dict:
        """Draw the parameters of a prompt: name -> value."""
        return {name: rng.choice(values) for name, values in self.parameters.items()}

    def result(self, case: Case, parameters: Parameters) -> object:
        """Return a right result."""
        return self.reference(*case, **parameters)

    def draw_examples(self, rng: random.Random, parameters: Parameters, count: int = 2) -> list[Case]:
        """Draw different visible examples. None of them is an edge case."""
        examples = []
        while len(examples) < count:
            case = self.draw(rng, VISIBLE_SIZE, parameters)
            is_new = case not in examples and case not in self.edges
            if is_new and len(example_text(self, case, parameters)) <= MOST_EXAMPLE_CHARACTERS:
                examples.append(case)
        return examples

    def draw_hidden(self, rng: random.Random, parameters: Parameters, visible: list[Case]) -> list[Case]:
        """Return the edge cases, and draw different others; none of them is a visible example."""
        cases = list(self.edges)
        for draw in range(DRAWS):
            if len(cases) == len(self.edges) + HIDDEN_DRAWN:
                break
            case = self.draw(rng, HIDDEN_SIZES[draw % len(HIDDEN_SIZES)], parameters)
            if case not in cases and case not in visible:
                cases.append(case)
        return cases

    def program(self, parameters: Parameters) -> str:
        """Return the source of a right program."""
        name = self.reference.__name__
        source = inspect.getsource(self.reference)
        fixed = [f"{parameter}={value!r}" for parameter, value in parameters.items()]
        arguments = ", ".join([self.signature, *fixed])
        return f"{source}\n\ndef solve({self.signature}):\n    return {name}({arguments})"


def example_text(spec: Spec, case: Case, parameters: Parameters) -> str:
    """Return an example as a prompt shows it, such as "solve([2, 1]) == [1, 2]"."""
    arguments = ", ".join(map(repr, case))
    return f"solve({arguments}) == {spec.result(case, parameters)!r}"


# Drawing arguments.


def _ints(rng, size, low=-20, high=20):
    return [rng.randint(low, high) for _ in range(rng.randint(1, size))]


def _text(rng, size, letters):
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, size)))


def _words(rng, size, letters="abcd", longest=4):
    return [_text(rng, longest, letters) for _ in range(rng.randint(1, size))]


def _numbers(rng, size, parameters):
    return [_ints(rng, size)]


def _close_numbers(rng, size, parameters):
    """Draw numbers of which many are equal."""
    return [_ints(rng, size, -3, 3)]


def _intervals(rng, size, parameters):
    intervals = []
    for _ in range(rng.randint(1, size)):
        start = rng.randint(-5, 3 * size)
        intervals.append([start, start + rng.randint(0, 4)])
    return [intervals]


def _rpn(rng, size, parameters):
    """Draw an expression of up to `size` numbers, in reverse Polish notation."""
    tokens = [str(rng.randint(-9, 9))]
    for _ in range(rng.randint(1, max(1, size // 2))):
        number = str(rng.randint(-9, 9))
        operator = rng.choice("+-*")
        tokens = [*tokens, number, operator] if rng.random() < 0.6 else [number, *tokens, operator]
    return [tokens]


def _runs(rng, size, parameters):
    count = rng.randint(1, max(2, size // 2))
    return [[[rng.choice("abcx "), rng.randint(0, 4)] for _ in range(count)]]


def _matrix(rng, size, low, high):
    longest = max(3, size // 2)
    rows = rng.randint(1, longest)
    columns = rng.randint(1, longest)
    return [[rng.randint(low, high) for _ in range(columns)] for _ in range(rows)]


def _number_matrix(rng, size, parameters):
    return [_matrix(rng, size, -9, 9)]


def _bit_matrix(rng, size, parameters):
    return [_matrix(rng, size, 0, 1)]


def _month(rng, size, parameters):
    month = 2 if rng.random() < 0.4 else rng.randint(1, 12)
    return [rng.choice((rng.randint(1890, 2110), rng.randrange(1600, 2500, 100))), month]


def _brackets(rng, size, parameters):
    """Draw brackets that match; in half of the cases one of them is changed."""
    text = ""
    for _ in range(rng.randint(1, max(2, size // 2))):
        pair = rng.choice(("()", "[]", "{}"))
        text = pair[0] + text + pair[1] if rng.random() < 0.5 else text + pair
    if rng.random() < 0.5:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("()[]{}") + text[place + 1 :]
    return [text]


def _target_sum(rng, size, parameters):
    numbers = _ints(rng, size, -9, 9) + [rng.randint(-9, 9), rng.randint(-9, 9)]
    first, second = rng.sample(range(len(numbers)), 2)
    return [numbers, numbers[first] + numbers[second]]


def _dependencies(rng, size, parameters):
    count = rng.randint(2, max(3, size))
    order = list(range(count))
    rng.shuffle(order)
    pairs = []
    for _ in range(rng.randint(1, count)):
        first, second = sorted(rng.sample(range(count), 2))
        pair = [order[first], order[second]]
        if pair not in pairs:
            pairs.append(pair)
    return [count, pairs]


def _palindrome(rng, size, parameters):
    half = _text(rng, max(2, size // 2), "abAB ,")
    text = half + half[::-1].swapcase()
    return [text + rng.choice(("", "", "!", "b", "a."))]


def _starts(rng, size, parameters):
    start = _text(rng, 4, "abc")
    words = [start + _text(rng, 3, "abc") for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.2:
        words.append(start[:-1])
    return [words]


def _nested(rng, size, parameters):
    values = [rng.randint(0, 9)]
    for _ in range(rng.randint(1, size)):
        roll = rng.random()
        if roll < 0.4:
            values = [values, rng.randint(0, 9)]
        elif roll < 0.6:
            values = [rng.randint(0, 9), values]
        elif roll < 0.7:
            values = [*values, []]
        else:
            values = [*values, rng.randint(0, 9)]
    return [values]


def _sorted_and_target(rng, size, parameters):
    return [sorted(_ints(rng, size, -9, 9)), rng.randint(-11, 11)]


def _different_numbers(rng, size, parameters):
    return [rng.sample(range(-20, 21), rng.randint(2, size))]


def _coins(rng, size, parameters):
    coins = sorted(rng.sample((1, 2, 3, 4, 5, 7, 9, 10), rng.randint(1, 3)))
    return [coins, rng.randint(1, 16)]  # the recursion without a memory is right, too


#: Edge cases of functions of one list of integers: empty, one element, duplicates, negatives, in both orders.
_LISTS = (
    [[]], [[0]], [[-7]], [[4]], [[2, 2]], [[5, 5, 5, 5]], [[-1, -1, -2]], [[3, -3, 3, 0]], [[1, 2, 3, 4]],
    [[4, 3, 2, 1]], [[-4, -9, -5]], [[100, -100, 7]],
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


SPECS: dict[str, Spec] = {
    "sort_numbers": Spec(
        references.sort_numbers,
        "numbers",
        Wordings(
            seen=(
                "Return a list of integers sorted in {order} order.",
                "Sort the integers of a list so that they are {order}.",
                "Given integers, put them into {order} order and return the list.",
            ),
            unseen=(
                "The result holds the same integers, arranged in {order} order.",
                "Bring the given integers into {order} order.",
            ),
        ),
        _close_numbers,
        _LISTS,
        {"order": ("ascending", "descending")},
    ),
    "sort_by_distance": Spec(
        references.sort_by_distance,
        "numbers",
        Wordings(
            seen=(
                "Sort integers by their distance from {center}, the nearest first; of two equally near the smaller "
                "comes first.",
                "Order the integers by how far they are from {center}, nearest first. Ties: smaller first.",
                "Return the integers sorted by abs(x - {center}), and where that is equal by x.",
            ),
            unseen=(
                "The closer an integer is to {center}, the earlier it comes; equally close ones ascend.",
                "Rank the integers by closeness to {center}, and equally close ones from small to large.",
            ),
        ),
        _numbers,
        _LISTS,
        {"center": (0, 1, 3, 5, 10)},
    ),
    "sort_words": Spec(
        references.sort_words,
        "words",
        Wordings(
            seen=(
                "Sort words by length, shortest first; words of one length alphabetically.",
                "Order a list of words from short to long, and equally long words from a to z.",
                "Return the words with the shortest first; where lengths are equal, in alphabetical order.",
            ),
            unseen=(
                "Arrange the words by their number of letters, then by the alphabet.",
                "Shorter words come before longer ones, and the alphabet decides between words of equal length.",
            ),
        ),
        lambda rng, size, parameters: [_words(rng, size)],
        ([[]], [["a"]], [["b", "a"]], [["bb", "a", "bb"]], [["abc", "ab", "a"]], [["ba", "ab", "c"]]),
    ),
    "evens_first": Spec(
        references.evens_first,
        "numbers",
        Wordings(
            seen=(
                "Reorder a list of integers so that all even ones come before the odd ones. Any such order is right.",
                "Return the same integers with the even ones first and the odd ones after them, in any order.",
                "Move the even integers of a list to the front. The order is free otherwise.",
            ),
            unseen=(
                "Put every even integer in front of every odd one; nothing else about the order matters.",
                "Split by parity: evens, then odds, in one list. Within the two parts any order will do.",
            ),
        ),
        _numbers,
        _LISTS,
        property="evens_first",
    ),
    "merge_intervals": Spec(
        references.merge_intervals,
        "intervals",
        Wordings(
            seen=(
                "Merge intervals [start, end] that overlap or share an end point, and return them sorted.",
                "Given closed intervals [start, end], join those that touch or overlap; sort the result.",
                "Return the union of closed intervals [start, end] as a sorted list of separate intervals.",
            ),
            unseen=(
                "Intervals [start, end] with a common point become one. Return what is left, sorted.",
                "Combine closed intervals [start, end] until no two meet, and list them from left to right.",
            ),
        ),
        _intervals,
        (
            [[]],
            [[[1, 1]]],
            [[[1, 2], [2, 3]]],
            [[[1, 2], [3, 4]]],
            [[[5, 6], [1, 2]]],
            [[[1, 9], [2, 3]]],
            [[[1, 2], [1, 2]]],
            [[[-5, -3], [-4, 0], [0, 0]]],
            [[[1, 9], [2, 3], [4, 5], [9, 10]]],
        ),
    ),
    "evaluate_rpn": Spec(
        references.evaluate_rpn,
        "tokens",
        Wordings(
            seen=(
                "Evaluate an expression in reverse Polish notation: a list of texts, integers and + - *.",
                "Compute the integer value of postfix tokens such as '2', '-3', '+', '-' and '*'.",
                "The tokens are an expression in postfix notation with + - * and integers; return its value.",
            ),
            unseen=(
                "Operators + - * follow their two operands. Return the integer that the tokens amount to.",
                "Work out a reverse Polish expression, given as a list of integers and + - * in texts.",
            ),
        ),
        _rpn,
        ([["7"]], [["-3"]], [["2", "5", "-"]], [["0", "4", "*"]], [["1", "2", "3", "-", "-"]], [["-2", "-3", "*"]]),
    ),
    "encode_runs": Spec(
        references.encode_runs,
        "text",
        Wordings(
            seen=(
                "Run-length encode a text: return a list of [letter, count] for each run of equal letters.",
                "Replace each run of one letter in a text by [letter, length of the run]; return the list.",
                "Describe a text by its runs of equal letters, as a list of [letter, count].",
            ),
            unseen=(
                "Neighbouring equal letters form a group. List every group as [letter, size], from left to right.",
                "Give the run-length code of a text, a list of pairs [letter, count].",
            ),
        ),
        lambda rng, size, parameters: [_text(rng, 2 * size, "aab")],
        ([""], ["a"], ["aa"], ["ab"], ["aba"], ["abba"], ["aaab"], ["Aa"], ["  "], ["1122"]),
    ),
    "decode_runs": Spec(
        references.decode_runs,
        "runs",
        Wordings(
            seen=(
                "Decode runs, a list of [letter, count], to the text in which each letter stands count times.",
                "Build a text from [letter, count] pairs: each letter is repeated count times, in order.",
                "Undo a run-length code: [letter, count] stands for count copies of the letter. Return the text.",
            ),
            unseen=(
                "Expand the pairs [letter, count] into one text.",
                "Each pair [letter, count] adds count copies of a letter to the text that is returned.",
            ),
        ),
        _runs,
        ([[]], [[["a", 1]]], [[["a", 0]]], [[["a", 2], ["a", 3]]], [[["b", 12]]], [[[" ", 2], ["x", 1]]]),
    ),
    "spiral": Spec(
        references.spiral,
        "matrix",
        Wordings(
            seen=(
                "Return the entries of a matrix in a clockwise spiral from the top left corner inwards.",
                "Read a matrix, a list of rows, in a spiral: right, down, left, up, and so on inwards.",
                "List all entries of a matrix in clockwise spiral order, beginning at the top left.",
            ),
            unseen=(
                "Walk around a matrix clockwise from its top left entry, ever further inside; return what you pass.",
                "Unroll a list of rows along the spiral that begins at matrix[0][0] and goes right.",
            ),
        ),
        _number_matrix,
        ([[]], [[[1]]], [[[1, 2, 3]]], [[[1], [2], [3]]], [[[1, 2], [3, 4]]], [[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]),
    ),
    "rotate_matrix": Spec(
        references.rotate_matrix,
        "matrix",
        Wordings(
            seen=(
                "Rotate a matrix, a list of rows, by 90 degrees {direction}.",
                "Turn a matrix {direction} by a quarter and return the list of its new rows.",
                "Return the rows of a matrix after a rotation by 90 degrees {direction}.",
            ),
            unseen=(
                "Give the list of rows that a quarter turn {direction} makes of the matrix.",
                "What are the rows of the matrix once it is turned {direction} by 90 degrees?",
            ),
        ),
        _number_matrix,
        ([[]], [[[1]]], [[[1, 2, 3]]], [[[1], [2], [3]]], [[[1, 2], [3, 4]]], [[[1, 2], [3, 4], [5, 6]]]),
        {"direction": ("clockwise", "counterclockwise")},
    ),
    "weekday": Spec(
        references.weekday,
        "day",
        Wordings(
            seen=(
                "Day 1 of a year is a {first}. Return the name of the weekday of a given day of that year.",
                "If day 1 is a {first}, which weekday is the given day? Return its English name.",
                "Return the weekday's name of a day's number, where number 1 is a {first}.",
            ),
            unseen=(
                "A calendar begins with day 1, a {first}. Name the weekday of the given day.",
                "Counting from 1, a {first}, tell the name of the weekday on which a day falls.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(8, 366)],
        ([1], [2], [6], [7], [365], [366]),
        {"first": DAYS},
    ),
    "days_in_month": Spec(
        references.days_in_month,
        "year, month",
        Wordings(
            seen=(
                "Return the number of days of a month (1 to 12) of a year in the Gregorian calendar.",
                "How many days has the given month, 1 to 12, in the given year? Mind leap years.",
                "Given a year and a month from 1 to 12, return how many days that month has.",
            ),
            unseen=(
                "Compute the length in days of a month (1 to 12) of a Gregorian year.",
                "Tell how long a month is, in days. February depends on the Gregorian rule for leap years.",
            ),
        ),
        _month,
        ([2000, 2], [1900, 2], [2024, 2], [2023, 2], [2023, 1], [2023, 4], [2023, 12], [2100, 2], [2400, 2], [2023, 8]),
    ),
    "to_roman": Spec(
        references.to_roman,
        "number",
        Wordings(
            seen=(
                "Write an integer from 1 to 3999 as a Roman numeral.",
                "Convert a number between 1 and 3999 to Roman numerals, such as 4 to 'IV'.",
                "Return the Roman numeral, in capitals, of an integer from 1 to 3999.",
            ),
            unseen=(
                "How did the Romans write this number, 1 to 3999? Use the modern form, such as 'IX' for 9.",
                "Turn an integer (1 to 3999) into its standard Roman numeral.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(1, 3999)],
        ([1], [4], [9], [40], [90], [400], [900], [3999], [1994], [3888], [14]),
    ),
    "to_base": Spec(
        references.to_base,
        "number",
        Wordings(
            seen=(
                "Write a non-negative integer in base {base}, as a text with small letters.",
                "Convert an integer, 0 or more, to its digits in base {base}; return a text.",
                "Return the text of a number in base {base}. Digits above 9 are small letters.",
            ),
            unseen=(
                "What does a non-negative integer look like in base {base}? Return lower-case text.",
                "Give the representation in base {base} of an integer that is not negative, as a text.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(1, 10 ** min(6, size))],
        ([0], [1], [2], [9], [10], [15], [16], [17], [255], [4096]),
        {"base": (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16)},
    ),
    "from_base": Spec(
        references.from_base,
        "text",
        Wordings(
            seen=(
                "Read a text of digits in base {base} (small letters above 9) as an integer; no digits mean 0.",
                "Return the integer that a text stands for in base {base}; the empty text is 0.",
                "Convert a numeral in base {base}, with small letters above 9, to an integer; '' is 0.",
            ),
            unseen=(
                "The text is a number written in base {base}, lower case. Which integer is it? An empty text is 0.",
                "Compute the value of lower-case digits in base {base}, 0 if there are none.",
            ),
        ),
        lambda rng, size, parameters: [_text(rng, size, "0123456789abcdef"[: parameters["base"]])],
        ([""], ["0"], ["1"], ["10"], ["001"], ["1000"], ["1101"]),
        {"base": (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16)},
    ),
    "is_balanced": Spec(
        references.is_balanced,
        "text",
        Wordings(
            seen=(
                "Tell whether the brackets in a text of ()[]{{}} match; return True or False.",
                "Return True if every bracket of (), [] and {{}} is closed in the right order, else False.",
                "Is a text of the brackets ()[]{{}} balanced and properly nested? Return a bool.",
            ),
            unseen=(
                "Check that brackets ()[]{{}} are well nested: True if so, False if not.",
                "A text consists of ()[]{{}}. Return whether each opening one has its partner in good order.",
            ),
        ),
        _brackets,
        ([""], ["("], [")"], ["()"], ["(]"], ["([)]"], ["([])"], ["())"], ["(()"], ["}{"], ["()[]{}"], [")("]),
    ),
    "group_anagrams": Spec(
        references.group_anagrams,
        "words",
        Wordings(
            seen=(
                "Group words that are anagrams of each other. Sort every group, and then the list of groups.",
                "Return the sorted list of groups of anagrams among the words, each group sorted.",
                "Words with the same letters belong together: return sorted groups in a sorted list.",
            ),
            unseen=(
                "Put anagrams into one list each. These lists are sorted, and so is the list of them.",
                "Partition the words into anagram classes; sort within the classes, then sort the classes.",
            ),
        ),
        lambda rng, size, parameters: [_words(rng, size, "abc", 3)],
        ([[]], [["a"]], [["ab", "ba"]], [["a", "a"]], [["ab", "abb"]], [["c", "b", "a"]], [["ba", "c", "ab", "ba"]]),
    ),
    "running_totals": Spec(
        references.running_totals,
        "numbers",
        Wordings(
            seen=(
                "Return the running totals of a list of integers, beginning from {start}.",
                "Start at {start}, add the integers one by one and return the list of totals, one for each.",
                "Entry i of the result is {start} plus the sum of the numbers up to and with number i.",
            ),
            unseen=(
                "An account holds {start}. After each of the payments, what does it hold? Return the list.",
                "Give the cumulative sums of the integers, each increased by {start}.",
            ),
        ),
        _numbers,
        _LISTS,
        {"start": (0, 1, 5, 10, 100)},
    ),
    "pair_with_sum": Spec(
        references.pair_with_sum,
        "numbers, target",
        Wordings(
            seen=(
                "Return [i, j] with i < j and numbers[i] + numbers[j] == target. Such a pair exists; any is right.",
                "Find two different places whose numbers add up to target; return [smaller, larger], from 0.",
                "Return the indices [i, j], i < j, of two numbers with the sum target. There is always one.",
            ),
            unseen=(
                "Which two numbers make target together? Return their indices in ascending order; any pair counts.",
                "The answer is a list of two indices, ascending, at which the numbers sum to target.",
            ),
        ),
        _target_sum,
        (
            [[1, 2], 3],
            [[3, 3], 6],
            [[0, 0], 0],
            [[-1, 1], 0],
            [[5, 1, 2], 3],
            [[4, 2, 6, 3], 7],
            [[2, 4, 1, 2], 4],
            [[-3, -7, 5], -10],
            [[3, 1, 5], 6],
        ),
        property="pair_with_sum",
    ),
    "topological_order": Spec(
        references.topological_order,
        "n, pairs",
        Wordings(
            seen=(
                "Order the jobs 0 to n - 1 so that for each pair [a, b] job a comes before b. Any such order is right.",
                "Return a topological order of 0, ..., n - 1 for the edges [before, after] in pairs.",
                "List 0, ..., n - 1 so that a stands before b for all [a, b] in pairs. There may be many right lists.",
            ),
            unseen=(
                "Tasks have the numbers 0 to n - 1, and [a, b] says that a is done first. Return a possible schedule.",
                "Find a permutation of range(n) that respects every [first, later] in pairs.",
            ),
        ),
        _dependencies,
        (
            [0, []],
            [1, []],
            [2, [[1, 0]]],
            [3, []],
            [3, [[2, 1], [1, 0]]],
            [4, [[3, 0], [0, 2], [2, 1]]],
            [4, [[0, 1], [0, 2], [1, 3], [2, 3]]],
        ),
        property="topological_order",
    ),
    "digit_sum": Spec(
        references.digit_sum,
        "number",
        Wordings(
            seen=(
                "Return the sum of the digits of an integer in base {base}. Ignore its sign.",
                "Add up the base {base} digits of an integer; a minus sign does not count.",
                "Compute the digit sum in base {base} of the absolute value of an integer.",
            ),
            unseen=(
                "Write an integer in base {base}, without its sign: what is the sum of its digits?",
                "Find the cross sum in base {base} of an integer, whether negative or not.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(-(10 ** min(6, size)), 10 ** min(6, size))],
        ([0], [1], [-1], [9], [10], [-10], [99], [100], [-12345], [1023]),
        {"base": (2, 3, 5, 8, 10, 16)},
    ),
    "caesar": Spec(
        references.caesar,
        "text",
        Wordings(
            seen=(
                "Shift each letter a-z and A-Z by {shift} places, from z on to a. Keep case and other characters.",
                "Encrypt a text with the Caesar cipher and shift {shift}; change letters a-z, A-Z only, keep their "
                "case.",
                "Move every English letter {shift} places on in the alphabet, cyclically; leave all else.",
            ),
            unseen=(
                "Rotate the alphabet by {shift}: each English letter becomes the one {shift} later, in the same case.",
                "Apply a cyclic shift of {shift} to all letters from a to z, small or capital, and to nothing else.",
            ),
        ),
        lambda rng, size, parameters: [_text(rng, size, _LETTERS + "XYZ !")],
        ([""], ["a"], ["z"], ["Z"], ["Hello, World!"], ["xyz XYZ"], ["123"], [_LETTERS]),
        {"shift": (1, 2, 3, 5, 7, 11, 13, 20, 25)},
    ),
    "rotate_list": Spec(
        references.rotate_list,
        "values",
        Wordings(
            seen=(
                "Rotate a list by {k} places to the {side}, cyclically.",
                "Move every element of a list {k} places to the {side}; what falls off comes back at the other end.",
                "Return a list after a cyclic shift by {k} to the {side}.",
            ),
            unseen=(
                "Turn the list like a wheel, {k} steps to the {side}.",
                "Shift the elements {side}wards by {k}, wrapping around.",
            ),
        ),
        _numbers,
        _LISTS,
        {"k": (1, 2, 3, 4, 7), "side": ("left", "right")},
    ),
    "chunks": Spec(
        references.chunks,
        "values",
        Wordings(
            seen=(
                "Cut a list into consecutive parts of length {k}; the last one may be shorter.",
                "Split a list into chunks of {k} elements, and a shorter last chunk if some remain.",
                "Return a list of lists with {k} elements each, in order; the rest forms the last one.",
            ),
            unseen=(
                "Pack the elements in order into boxes of {k}. Only the last box may have fewer.",
                "Group neighbours into lists of {k}, from the left; leftovers form a last list.",
            ),
        ),
        _numbers,
        _LISTS,
        {"k": (1, 2, 3, 4, 5)},
    ),
    "window_sums": Spec(
        references.window_sums,
        "numbers",
        Wordings(
            seen=(
                "Return the sums of all {k} neighbouring integers in a list; no sums if there are fewer than {k}.",
                "Slide a window of length {k} over a list and return the sum in each place. Too short a list gives [].",
                "List the sum of each run of {k} consecutive integers, from left to right; [] if there is none.",
            ),
            unseen=(
                "For every {k} integers that stand side by side, give their total. The list may be too short: [].",
                "Compute moving sums over {k} integers, whole windows only.",
            ),
        ),
        _numbers,
        _LISTS,
        {"k": (2, 3, 4)},
    ),
    "window_extremes": Spec(
        references.window_extremes,
        "numbers",
        Wordings(
            seen=(
                "Return the {extreme} integer of every {k} neighbours in a list; [] if there are fewer than {k}.",
                "Slide a window of length {k} over a list and return the {extreme} number in each place, or [].",
                "List the {extreme} of each {k} consecutive integers, from left to right; [] if there is no window.",
            ),
            unseen=(
                "For every {k} integers in a row, which is the {extreme}? Return the list, [] for too short a list.",
                "Give the {extreme} number in all whole windows of size {k}.",
            ),
        ),
        _numbers,
        _LISTS,
        {"k": (2, 3, 4), "extreme": ("largest", "smallest")},
    ),
    "remove_repeats": Spec(
        references.remove_repeats,
        "values",
        Wordings(
            seen=(
                "Remove repeated values from a list: keep the {kept} of each, and the order.",
                "Return a list without duplicates. Of equal values the {kept} one stays where it is.",
                "Keep only the {kept} occurrence of each value; the rest of the list stays in order.",
            ),
            unseen=(
                "Delete every value that occurs again, except its {kept} occurrence, without reordering.",
                "Each value shall stand there once, namely where it occurs {kept}.",
            ),
        ),
        _close_numbers,
        (*_LISTS, [[1, 2, 1, 3, 2]], [[2, 1, 1, 2]]),
        {"kept": ("first", "last")},
    ),
    "count_multiples": Spec(
        references.count_multiples,
        "numbers",
        Wordings(
            seen=(
                "Count the integers in a list that are divisible by {k}.",
                "How many numbers of a list are multiples of {k}? Zero is one.",
                "Return how many of the integers leave no remainder when divided by {k}.",
            ),
            unseen=(
                "The answer is the number of integers that {k} divides.",
                "Find how often a multiple of {k}, 0 and negative ones included, occurs in the list.",
            ),
        ),
        lambda rng, size, parameters: [_ints(rng, size, -12, 12)],
        (*_LISTS, [[2, 4, 6, 8]], [[3, 6, -9]], [[5, -10, 35, 7]]),
        {"k": (2, 3, 4, 5, 7)},
    ),
    "greatest_divisor": Spec(
        references.greatest_divisor,
        "numbers",
        Wordings(
            seen=(
                "Return the greatest common divisor of a list of integers; 0 if all are 0 or there are none.",
                "Compute the gcd of all numbers in a list. It is never negative, and 0 for an empty list.",
                "What is the largest integer that divides all numbers of a list? Return 0 for none or only zeros.",
            ),
            unseen=(
                "Find the gcd of the integers, 0 where none is different from 0.",
                "Return the largest common divisor of the given integers, or 0 if there is no nonzero one.",
            ),
        ),
        lambda rng, size, parameters: [[rng.choice((2, 3, 4, 6)) * number for number in _ints(rng, size)]],
        (*_LISTS, [[0, 0]], [[12, -18]], [[6, 0, 9]]),
    ),
    "primes_below": Spec(
        references.primes_below,
        "n",
        Wordings(
            seen=(
                "Return all prime numbers below n in ascending order.",
                "List the primes smaller than n, from 2 on.",
                "Return the sorted list of the primes p with p < n.",
            ),
            unseen=(
                "Which primes are less than n? Return them in ascending order.",
                "Give every prime number that does not reach n, smallest first.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(4, 10 * size)],
        ([0], [1], [2], [3], [-5], [9], [10], [25], [26], [50], [121], [122]),
    ),
    "sequence_term": Spec(
        references.sequence_term,
        "n",
        Wordings(
            seen=(
                "A sequence begins {a}, {b}; each later term is the sum of the two before. Return term n, from 0.",
                "Return x(n), where x(0) = {a}, x(1) = {b} and x(n) = x(n - 1) + x(n - 2).",
                "Like Fibonacci's, but starting {a}, {b}: return the term with the index n, counted from 0.",
            ),
            unseen=(
                "Start with {a} and {b} and always add the last two. Which number has the index n (from 0)?",
                "Term 0 is {a}, term 1 is {b}, and any two neighbours add up to the next. Compute term n.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(4, 24)],  # the recursion without a memory is right, too
        ([0], [1], [2], [3], [25]),
        {"a": (0, 1, 2, 3), "b": (1, 2, 4, 5, 7)},
    ),
    "longest_rise": Spec(
        references.longest_rise,
        "numbers",
        Wordings(
            seen=(
                "Return the length of the longest run of neighbours in which each integer is larger than the one "
                "before.",
                "How long is the longest strictly increasing stretch of consecutive elements? An empty list has 0.",
                "Find the longest contiguous strictly rising part of a list of integers; return its length.",
            ),
            unseen=(
                "Return how many elements the longest strictly ascending slice of the list has.",
                "Of all slices that strictly increase, the longest counts: return its number of integers.",
            ),
        ),
        lambda rng, size, parameters: [_ints(rng, size, -4, 9)],
        (*_LISTS, [[1, 2, 2, 3, 4]], [[5, 1, 2, 3]], [[1, 2, 3, 0, 1]]),
    ),
    "most_common": Spec(
        references.most_common,
        "numbers",
        Wordings(
            seen=(
                "Return the most frequent integer of a list, the {tie} if several are; None for an empty list.",
                "Which integer occurs most often? Of equally frequent ones take the {tie}. Nothing at all: None.",
                "Find the mode of a list of integers. Ties go to the {tie}, and an empty list gives None.",
            ),
            unseen=(
                "Return the integer with the most occurrences, the {tie} among equals, or None if there is none.",
                "The commonest integer wins, and the {tie} of the commonest; an empty list has None.",
            ),
        ),
        _close_numbers,
        (*_LISTS, [[1, 2, 2, 1]], [[3, 1, 3, 2, 1]]),
        {"tie": ("smallest", "largest")},
    ),
    "insertion_place": Spec(
        references.insertion_place,
        "numbers, target",
        Wordings(
            seen=(
                "The numbers are sorted. Return the first index whose number is at least target, or their count.",
                "Where does target go into the sorted numbers, in front of equal ones? Return the index.",
                "Return how many of the sorted numbers are smaller than target.",
            ),
            unseen=(
                "Find the leftmost index at which target can be inserted so that numbers stays sorted.",
                "Numbers ascend. At which index stands the first that is not below target? Their count if none does.",
            ),
        ),
        _sorted_and_target,
        (
            [[], 5],
            [[3], 3],
            [[3], 2],
            [[3], 4],
            [[1, 3, 3, 3, 5], 3],
            [[1, 2], 9],
            [[-5, -2], -9],
            [[1, 2, 4], 3],
            [[0, 0, 0], 0],
            [[-3, -1, 2], -1],
        ),
    ),
    "is_palindrome": Spec(
        references.is_palindrome,
        "text",
        Wordings(
            seen=(
                "Tell whether a text reads the same backwards; case and all but letters and digits do not count.",
                "Return True if the letters and digits of a text form a palindrome, ignoring case, else False.",
                "Is a text a palindrome, if you skip spaces and punctuation and ignore case? Return a bool.",
            ),
            unseen=(
                "Only letters and digits matter, in any case: return whether they read alike from both ends.",
                "Check for a palindrome. Punctuation, blanks and capitals make no difference; return True or False.",
            ),
        ),
        _palindrome,
        ([""], ["a"], ["ab"], ["Aa"], ["a b a"], [".,"], ["A man, a plan, a canal: Panama"], ["1 2 1"], ["1a2"]),
    ),
    "collatz_steps": Spec(
        references.collatz_steps,
        "n",
        Wordings(
            seen=(
                "Halve n if it is even, else take 3n + 1, until it is 1. Return the number of steps.",
                "How many Collatz steps (n / 2 or 3n + 1) lead from n to 1?",
                "Count the steps of the Collatz rule, even: n / 2, odd: 3n + 1, from n until 1 is reached.",
            ),
            unseen=(
                "Return the number of times that the Collatz map must be applied to n until the value is 1.",
                "An even n becomes n / 2, an odd one 3n + 1. After how many such moves is it 1?",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(2, 50 * size)],
        ([1], [2], [3], [4], [7], [27], [97], [1024]),
    ),
    "common_start": Spec(
        references.common_start,
        "words",
        Wordings(
            seen=(
                "Return the longest text with which all words begin; '' for an empty list.",
                "Find the longest common prefix of a list of words. No words have the prefix ''.",
                "With which letters do all the words start? Return as many as possible, '' if there is no word.",
            ),
            unseen=(
                "Return the longest beginning that every word shares, or '' where there is none.",
                "All words agree up to some letter: return what they have in common until there, '' for no words.",
            ),
        ),
        _starts,
        ([[]], [["abc"]], [["a", "b"]], [["ab", "abc"]], [["abc", "ab"]], [["", "a"]], [["aa", "aa"]], [["ab", "cb"]]),
    ),
    "flatten": Spec(
        references.flatten,
        "values",
        Wordings(
            seen=(
                "Flatten a list of integers and lists, nested to any depth, to one list of integers.",
                "Return all integers in a nested list, from left to right, as one flat list.",
                "Remove all inner brackets: turn nested lists of integers into a single list.",
            ),
            unseen=(
                "Lists may hold integers or further lists. Return the integers alone, in order.",
                "Unpack a list of lists of any depth into the plain list of its integers.",
            ),
        ),
        _nested,
        ([[]], [[1]], [[[]]], [[[1], [2]]], [[[[3]]]], [[1, [2, [3, [4, [5]]]]]], [[[], [[], 7]]], [[-1, [-1]]]),
    ),
    "ranked_distinct": Spec(
        references.ranked_distinct,
        "numbers",
        Wordings(
            seen=(
                "Return the {rank} {extreme} of the different integers in a list; None if there are too few.",
                "Which integer of a list is the {rank} {extreme}, equal ones counted once? None if there is none.",
                "Drop duplicates from a list and return the {rank} {extreme} integer, or None if it does not exist.",
            ),
            unseen=(
                "Count equal integers once: what is the {rank} {extreme}? Too few different ones give None.",
                "Of the set of the integers return the {rank} {extreme} element, or None where there is no such.",
            ),
        ),
        _close_numbers,
        (*_LISTS, [[1, 1, 2, 2]], [[3, 2, 1]], [[9, 8, 9, 7]]),
        {"rank": ("second", "third"), "extreme": ("largest", "smallest")},
    ),
    "best_slice_sum": Spec(
        references.best_slice_sum,
        "numbers",
        Wordings(
            seen=(
                "Return the largest sum of consecutive integers in a list. The empty slice counts, with the sum 0.",
                "Which slice of a list has the largest sum? Return that sum; an empty slice has 0.",
                "Find the maximum sum over all contiguous parts of a list, the empty one (0) included.",
            ),
            unseen=(
                "Choose neighbouring integers, or none at all, so that their sum is as large as possible; return it.",
                "Return the best total that a stretch of the list can have. No stretch at all makes 0.",
            ),
        ),
        _numbers,
        (*_LISTS, [[-2, 1, -3, 4, -1, 2, 1, -5, 4]], [[5, -1, 5]], [[-1, 6, -7, 6]]),
    ),
    "average": Spec(
        references.average,
        "numbers",
        Wordings(
            seen=(
                "Return the mean of a list of integers as a float; 0.0 for an empty list.",
                "Compute the average of integers. No integers have the average 0.0.",
                "What is the arithmetic mean of the integers? Return 0.0 if there are none.",
            ),
            unseen=(
                "Divide the sum of the integers by their number, and return 0.0 where there is none.",
                "Return the average value, a float, or 0.0 for nothing.",
            ),
        ),
        _numbers,
        _LISTS,
        tolerance=1e-9,
    ),
    "letter_counts": Spec(
        references.letter_counts,
        "text",
        Wordings(
            seen=(
                "Count the characters of a text in a dict, spaces left out.",
                "Return a dict from each character of a text, except spaces, to how often it occurs.",
                "How often does each character occur? Return a dict, and ignore spaces.",
            ),
            unseen=(
                "Make a dict of the characters and their frequencies; spaces are no characters here.",
                "Tally the characters other than spaces of a text, as a dict.",
            ),
        ),
        lambda rng, size, parameters: [_text(rng, 2 * size, "aabcA ")],
        ([""], ["a"], [" "], ["aa"], ["aA"], ["a b a"], ["1,1"]),
    ),
}

PROBE_SPECS: dict[str, Spec] = {
    "pascal_row": Spec(
        references.pascal_row,
        "n",
        Wordings(
            seen=(
                "A triangle like Pascal's has {edge} at both ends of each row, and row 0 is [{edge}]. Each other entry "
                "is the sum of the two above. Return row n.",
                "Row 0 is [{edge}]. Each further row begins and ends with {edge}, and between them stand the sums of "
                "neighbours in the row before. Return row n.",
            ),
            unseen=("Return the list of {edge} times the binomial coefficients of n over 0, 1, ..., n.",),
        ),
        lambda rng, size, parameters: [rng.randint(2, 11)],
        ([0], [1], [12], [14]),
        {"edge": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)},
    ),
    "life_step": Spec(
        references.life_step,
        "grid",
        Wordings(
            seen=(
                "Return the next generation of Conway's game of life. Cells are 0 or 1; outside all are 0.",
                "In a grid of 0 and 1, with 0 outside, a cell is 1 next if just 3 of its 8 neighbours are 1, or 2 and "
                "it is 1 now. Return the new grid.",
            ),
            unseen=("Apply one step of the game of life to a grid of 0 and 1 that is surrounded by 0.",),
        ),
        _bit_matrix,
        ([[[0]]], [[[1]]], [[[1, 1], [1, 1]]], [[[0, 1, 0], [0, 1, 0], [0, 1, 0]]], [[[1, 1, 1]]], [[[1], [1], [1]]]),
    ),
    "look_and_say": Spec(
        references.look_and_say,
        "digits",
        Wordings(
            seen=(
                "Say what you see: replace each run of equal digits in a text by its length and the digit.",
                "Return the next term of a look-and-say sequence, such as '1211' for '21'. Both are texts.",
            ),
            unseen=("Read the digits aloud, run by run, as count and digit; return the text, such as '21' for '11'.",),
        ),
        lambda rng, size, parameters: [_text(rng, 2 * size, "1123")],
        ([""], ["1"], ["11"], ["21"], ["1211"], ["111221"], ["33333333333"]),
    ),
    "fewest_coins": Spec(
        references.fewest_coins,
        "coins, amount",
        Wordings(
            seen=(
                "Return the least number of coins that make amount; each may be used again. -1 if it is impossible.",
                "How few coins of these values pay amount exactly? Any number of each; -1 if none do.",
            ),
            unseen=("Pay amount with as few coins as you can and return their number, or -1 if it cannot be paid.",),
        ),
        _coins,
        ([[1], 0], [[2], 3], [[5], 5], [[1, 3, 4], 6], [[], 0], [[], 7], [[2, 10], 8], [[1, 5, 10], 29], [[7], 6]),
    ),
    "edit_distance": Spec(
        references.edit_distance,
        "a, b",
        Wordings(
            seen=(
                "Return the least number of letters to insert, delete or replace to turn text a into text b.",
                "Compute the Levenshtein distance of two texts.",
            ),
            unseen=("How many edits (insert, delete, replace one letter) lead from a to b at least?",),
        ),
        lambda rng, size, parameters: [_text(rng, min(size, 6), "abc"), _text(rng, min(size, 6), "abc")],
        (["", ""], ["", "abc"], ["abc", ""], ["abc", "abc"], ["abc", "acb"], ["ab", "bab"], ["kitten", "sitting"]),
    ),
    "count_islands": Spec(
        references.count_islands,
        "grid",
        Wordings(
            seen=(
                "Count the islands in a grid of 0 and 1: groups of 1 that hang together up, down, left or right.",
                "How many connected groups of 1 has a grid? Diagonal neighbours are not connected.",
            ),
            unseen=("Cells with 1 are land, joined along sides only. Return the number of separate pieces of land.",),
        ),
        _bit_matrix,
        ([[]], [[[0]]], [[[1]]], [[[1, 0], [0, 1]]], [[[1, 1], [0, 1]]], [[[1, 0, 1]]], [[[1, 0, 1], [1, 1, 1]]]),
    ),
    "peak_index": Spec(
        references.peak_index,
        "numbers",
        Wordings(
            seen=(
                "All numbers differ. Return the index of one that is larger than its neighbours; -1 for an empty list.",
                "Find any local maximum of a list of different integers and return its index, or -1 in an empty list.",
            ),
            unseen=("Return the index of any peak: a number above those next to it. No two are equal. Empty: -1.",),
        ),
        _different_numbers,
        ([[]], [[5]], [[1, 2]], [[2, 1]], [[1, 3, 2]], [[3, 1, 2]], [[-5, -9, -1, -2]], [[1, 2, 3, 4]], [[4, 3, 2]]),
        property="peak_index",
    ),
    "wrap_words": Spec(
        references.wrap_words,
        "words",
        Wordings(
            seen=(
                "Fill lines with words, one space between two: a word that would make a line longer than {width} "
                "starts a new one. Return the lines.",
                "Break words into lines of at most {width} characters, filling each as far as possible; longer words "
                "stand alone. Return the lines.",
            ),
            unseen=(
                "Wrap words greedily at width {width} and return the list of lines. A longer word has its own line.",
            ),
        ),
        lambda rng, size, parameters: [_words(rng, size, "abc", 6)],
        ([[]], [["a"]], [["abcdefghijklmn"]], [["ab", "abcdefghijklmn", "c"]], [["a"] * 12], [["abc", "abcd", "ab"]]),
        {"width": (5, 6, 8, 10)},
    ),
    "last_in_circle": Spec(
        references.last_in_circle,
        "n",
        Wordings(
            seen=(
                "1 to n stand in a circle. From 1 on, every k-th drops out, k = {k}, until one is left: return it.",
                "Solve the Josephus problem for the people 1 to n and the step {k}: who remains?",
            ),
            unseen=(
                "People 1, ..., n in a circle count to {k} again and again; who says {k} leaves. Return the last one.",
            ),
        ),
        lambda rng, size, parameters: [rng.randint(3, 8 * size)],
        ([1], [2], [5], [7], [41], [60]),
        {"k": (2, 3, 4, 5)},
    ),
}
#: every function, for those who grade and test
ALL_SPECS = {**SPECS, **PROBE_SPECS}
