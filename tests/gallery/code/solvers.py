"""A second implementation of each function of the code task, written in another way than the reference.

Most are brute force or go by the definition. A solver takes the arguments of a case, then the prompt's parameters by
name. Where a property decides, the solver is the check: it takes the result first.
"""

import calendar
import datetime
import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from functools import cache

BIG = 10**9


def sort_numbers(numbers, order):
    """Insertion into place."""
    result = []
    for number in numbers:
        place = sum(other <= number for other in result)
        result.insert(place, number)
    return result if order == "ascending" else [-number for number in sort_numbers([-n for n in numbers], "ascending")]


def sort_by_distance(numbers, center):
    """Walk outwards from the centre."""
    counts = Counter(numbers)
    result = []
    for distance in range(300):
        for number in dict.fromkeys((center - distance, center + distance)):
            result += [number] * counts[number]
    return result


def sort_words(words):
    """Selection of the least, again and again."""
    left = list(words)
    result = []
    while left:
        shortest = min(map(len, left))
        word = min(word for word in left if len(word) == shortest)
        left.remove(word)
        result.append(word)
    return result


def merge_intervals(intervals):
    """Colour the half units that the intervals cover, and read the stretches off."""
    covered = {half for start, end in intervals for half in range(2 * start, 2 * end + 1)}
    starts = sorted(half for half in covered if half - 1 not in covered)
    ends = sorted(half for half in covered if half + 1 not in covered)
    return [[start // 2, end // 2] for start, end in zip(starts, ends)]


def evaluate_rpn(tokens):
    """Recursion from the last token."""
    left = list(tokens)

    def value():
        token = left.pop()
        if token not in {"+", "-", "*"}:
            return int(token)
        second = value()
        first = value()
        return {"+": first + second, "-": first - second, "*": first * second}[token]

    return value()


def encode_runs(text):
    return [[letter, len(list(group))] for letter, group in itertools.groupby(text)]


def decode_runs(runs):
    letters = []
    for letter, count in runs:
        for _ in range(count):
            letters.append(letter)
    return "".join(letters)


def spiral(matrix):
    """Walk with a heading, and turn right at walls and visited entries."""
    if not matrix:
        return []
    height, width = len(matrix), len(matrix[0])
    seen = set()
    row = column = 0
    heading = (0, 1)
    result = []
    while len(result) < height * width:
        result.append(matrix[row][column])
        seen.add((row, column))
        ahead = row + heading[0], column + heading[1]
        if not (0 <= ahead[0] < height and 0 <= ahead[1] < width) or ahead in seen:
            heading = heading[1], -heading[0]
            ahead = row + heading[0], column + heading[1]
        row, column = ahead
    return result


def rotate_matrix(matrix, direction):
    """Entry by entry."""
    height = len(matrix)
    width = len(matrix[0]) if matrix else 0
    if direction == "clockwise":
        return [[matrix[height - 1 - j][i] for j in range(height)] for i in range(width)]
    return [[matrix[j][width - 1 - i] for j in range(height)] for i in range(width)]


def weekday(day, first):
    """A real calendar: 2001 began on a Monday."""
    start = datetime.date(2001, 1, 1 + list(calendar.day_name).index(first))
    return (start + datetime.timedelta(days=day - 1)).strftime("%A")


def days_in_month(year, month):
    return calendar.monthrange(year, month)[1]


def to_roman(number):
    """Digit by digit."""
    tables = (
        "I II III IV V VI VII VIII IX",
        "X XX XXX XL L LX LXX LXXX XC",
        "C CC CCC CD D DC DCC DCCC CM",
        "M MM MMM",
    )
    text = ""
    for table, digit in zip(tables, reversed(str(number))):
        text = ["", *table.split()][int(digit)] + text
    return text


def to_base(number, base):
    """From the highest power down."""
    power = 1
    while power * base <= number:
        power *= base
    text = ""
    while power:
        text += "0123456789abcdef"[number // power]
        number %= power
        power //= base
    return text


def from_base(text, base):
    return int(text or "0", base)


def is_balanced(text):
    """Take pairs out until nothing changes."""
    before = None
    while before != text:
        before = text
        for pair in ("()", "[]", "{}"):
            text = text.replace(pair, "")
    return text == ""


def group_anagrams(words):
    """Compare every two words."""
    groups = []
    for word in sorted(words):
        for group in groups:
            if Counter(group[0]) == Counter(word):
                group.append(word)
                break
        else:
            groups.append([word])
    return sorted(groups)


def running_totals(numbers, start):
    return [start + sum(numbers[: place + 1]) for place in range(len(numbers))]


def digit_sum(number, base):
    """By the formula n - (b - 1) * (sum of the quotients by powers of b)."""
    number = abs(number)
    return number - (base - 1) * sum(number // base**power for power in range(1, 64))


def caesar(text, shift):
    small = "abcdefghijklmnopqrstuvwxyz"
    moved = small[shift:] + small[:shift]
    return text.translate(str.maketrans(small + small.upper(), moved + moved.upper()))


def rotate_list(values, k, side):
    """One step at a time."""
    values = list(values)
    for _ in range(k if values else 0):
        if side == "left":
            values.append(values.pop(0))
        else:
            values.insert(0, values.pop())
    return values


def chunks(values, k):
    result = []
    for place, value in enumerate(values):
        if place % k == 0:
            result.append([])
        result[-1].append(value)
    return result


def window_sums(numbers, k):
    """By differences of prefix sums."""
    prefix = [0, *itertools.accumulate(numbers)]
    return [after - before for before, after in zip(prefix, prefix[k:])]


def window_extremes(numbers, k, extreme):
    place = -1 if extreme == "largest" else 0
    shifted = [numbers[offset:] for offset in range(k)]
    return [sorted(window)[place] for window in zip(*shifted)]


def remove_repeats(values, kept):
    if kept == "first":
        return [value for place, value in enumerate(values) if value not in values[:place]]
    return [value for place, value in enumerate(values) if value not in values[place + 1 :]]


def count_multiples(numbers, k):
    multiples = set(range(0, 1000, k)) | set(range(0, -1000, -k))
    return len([number for number in numbers if number in multiples])


def greatest_divisor(numbers):
    """Try every divisor."""
    largest = max(map(abs, numbers), default=0)
    for divisor in range(largest, 0, -1):
        if not any(number % divisor for number in numbers):
            return divisor
    return 0


def primes_below(n):
    """The sieve."""
    is_prime = [True] * max(n, 0)
    for number in range(2, n):
        for multiple in range(2 * number, n, number):
            is_prime[multiple] = False
    return [number for number in range(2, n) if is_prime[number]]


def sequence_term(n, a, b):
    """Powers of the matrix [[1, 1], [1, 0]]."""

    def times(x, y):
        return [[sum(x[i][k] * y[k][j] for k in range(2)) for j in range(2)] for i in range(2)]

    power = [[1, 0], [0, 1]]
    for _ in range(n):
        power = times(power, [[1, 1], [1, 0]])
    return power[1][0] * b + power[1][1] * a


def longest_rise(numbers):
    """All slices."""
    best = 0
    for start, end in itertools.combinations(range(len(numbers) + 1), 2):
        part = numbers[start:end]
        if part == sorted(set(part)):
            best = max(best, end - start)
    return best


def most_common(numbers, tie):
    counts = Counter(numbers)
    sign = -1 if tie == "smallest" else 1
    return max(counts, key=lambda number: (counts[number], sign * number), default=None)


def insertion_place(numbers, target):
    return sum(number < target for number in numbers)


def is_palindrome(text):
    letters = re.sub("[^a-z0-9]", "", text.lower())
    return all(letters[place] == letters[-1 - place] for place in range(len(letters)))


def collatz_steps(n):
    return 0 if n == 1 else 1 + collatz_steps([n // 2, 3 * n + 1][n % 2])


def common_start(words):
    start = ""
    for letters in zip(*words):
        if len(set(letters)) > 1:
            break
        start += letters[0]
    return start


def flatten(values):
    """All numbers of the text."""
    return [int(number) for number in re.findall(r"-?\d+", repr(values))]


def ranked_distinct(numbers, rank, extreme):
    """Take the extreme away and look again."""
    left = set(numbers)
    choose = max if extreme == "largest" else min
    for _ in range({"second": 1, "third": 2}[rank]):
        left -= {choose(left)} if left else set()
    return choose(left) if left else None


def best_slice_sum(numbers):
    pairs = itertools.combinations_with_replacement(range(len(numbers) + 1), 2)
    return max(sum(numbers[start:end]) for start, end in pairs)


def average(numbers):
    return float(Fraction(sum(numbers), len(numbers))) if numbers else 0.0


def letter_counts(text):
    return {letter: text.count(letter) for letter in set(text) - {" "}}


def pascal_row(n, edge):
    return [edge * math.comb(n, k) for k in range(n + 1)]


def life_step(grid):
    """Each living cell adds to its neighbours."""
    living = {(r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell}
    steps = [step for step in itertools.product((-1, 0, 1), repeat=2) if step != (0, 0)]
    neighbours = Counter((r + dr, c + dc) for r, c in living for dr, dc in steps)
    return [
        [int(neighbours[r, c] == 3 or (neighbours[r, c] == 2 and (r, c) in living)) for c in range(len(row))]
        for r, row in enumerate(grid)
    ]


def look_and_say(digits):
    return re.sub(r"(.)\1*", lambda run: f"{len(run[0])}{run[1]}", digits)


def fewest_coins(coins, amount):
    """Breadth first."""
    reached = {amount}
    count = 0
    while reached and 0 not in reached:
        reached = {left - coin for left in reached for coin in coins if left >= coin}
        count += 1
    return count if 0 in reached else -1


def edit_distance(a, b):
    @cache
    def distance(i, j):
        if i == len(a) or j == len(b):
            return len(a) - i + len(b) - j
        if a[i] == b[j]:
            return distance(i + 1, j + 1)
        return 1 + min(distance(i + 1, j), distance(i, j + 1), distance(i + 1, j + 1))

    return distance(0, 0)


def count_islands(grid):
    """Join labels until none changes."""
    labels = {(r, c): (r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell}
    before = None
    while before != labels:
        before = dict(labels)
        for r, c in labels:
            near = [
                labels[place] for place in ((r, c), (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)) if place in labels
            ]
            labels[r, c] = min(near)
    return len(set(labels.values()))


def wrap_words(words, width):
    """Fill a line as long as the joined text fits."""
    lines = []
    while words:
        fitting = [n for n in range(1, len(words) + 1) if len(" ".join(words[:n])) <= width]
        count = max(fitting, default=1)
        lines.append(" ".join(words[:count]))
        words = words[count:]
    return lines


def last_in_circle(n, k):
    """The recursion of Josephus."""
    place = 0
    for size in range(2, n + 1):
        place = (place + k) % size
    return place + 1


# Properties.


def evens_first(result, numbers):
    number_of_evens = len([number for number in numbers if number % 2 == 0])
    evens, odds = result[:number_of_evens], result[number_of_evens:]
    return Counter(result) == Counter(numbers) and {n % 2 for n in evens} <= {0} and {n % 2 for n in odds} <= {1}


def pair_with_sum(result, numbers, target):
    pairs = itertools.combinations(range(len(numbers)), 2)
    return result in [[i, j] for i, j in pairs if numbers[i] + numbers[j] == target]


def topological_order(result, n, pairs):
    """Take the jobs away one by one; none may still wait for another."""
    waiting = [tuple(pair) for pair in pairs]
    for job in result:
        if any(after == job for _, after in waiting):
            return False
        waiting = [(before, after) for before, after in waiting if before != job]
    return len(result) == n and set(result) == set(range(n))


def peak_index(result, numbers):
    padded = [-BIG, *numbers, -BIG]
    peaks = [n for n in range(len(numbers)) if padded[n] < padded[n + 1] > padded[n + 2]]
    return result in (peaks or [-1])
