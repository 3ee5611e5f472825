"""A plausible wrong program for each function of the code task: an edge forgotten, one off, a rule misread.

Each must be wrong for every value of the prompt's parameters, and stands for itself as the references do.
"""


def sort_numbers(numbers, order):
    """Lose duplicates."""
    return sorted(set(numbers), reverse=order == "descending")


def sort_by_distance(numbers, center):
    """Forget the tie rule, and keep the order of the list."""
    return sorted(numbers, key=lambda number: (abs(number - center), -number))


def sort_words(words):
    """Do not sort words of one length."""
    return sorted(words, key=len)


def evens_first(numbers):
    """Put the odd ones first."""
    return sorted(numbers, key=lambda number: number % 2 == 0)


def merge_intervals(intervals):
    """Leave intervals apart that touch."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def evaluate_rpn(tokens):
    """Take the operands of a difference in the wrong order."""
    stack = []
    for token in tokens:
        if token == "+":
            stack.append(stack.pop() + stack.pop())
        elif token == "-":
            stack.append(stack.pop() - stack.pop())
        elif token == "*":
            stack.append(stack.pop() * stack.pop())
        else:
            stack.append(int(token))
    return stack[0]


def encode_runs(text):
    """Count letters and not runs."""
    return [[letter, text.count(letter)] for letter in dict.fromkeys(text)]


def decode_runs(runs):
    """Read the count 0 as 1."""
    return "".join(letter * max(1, count) for letter, count in runs)


def spiral(matrix):
    """Take the bottom row of a single layer again."""
    result = []
    while matrix:
        result += matrix[0]
        matrix = [list(column) for column in zip(*matrix[1:])]
    return result


def rotate_matrix(matrix, direction):
    """Transpose."""
    return [list(column) for column in zip(*matrix)]


def weekday(day, first):
    """Count the days from 0."""
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    return names[(names.index(first) + day) % 7]


def days_in_month(year, month):
    """Take every fourth year for a leap year."""
    days = [31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return days[month - 1]


def to_roman(number):
    """Know no numerals that subtract."""
    text = ""
    for value, symbol in ((1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I")):
        text += symbol * (number // value)
        number %= value
    return text


def to_base(number, base):
    """Return nothing for 0."""
    text = ""
    while number:
        text = "0123456789abcdef"[number % base] + text
        number //= base
    return text


def from_base(text, base):
    """Fail on the empty text."""
    return int(text, base)


def is_balanced(text):
    """Count, and do not look at the nesting."""
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "[]", "{}"))


def group_anagrams(words):
    """Take words with the same set of letters for anagrams."""
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(set(word))), []).append(word)
    return sorted(sorted(group) for group in groups.values())


def running_totals(numbers, start):
    """Give the totals before each number."""
    return [start + sum(numbers[:place]) for place in range(len(numbers))]


def pair_with_sum(numbers, target):
    """Use one number twice."""
    for place, number in enumerate(numbers):
        if target - number in numbers:
            return [place, numbers.index(target - number)]
    return None


def topological_order(n, pairs):
    """Ignore the pairs."""
    return list(range(n))


def digit_sum(number, base):
    """Stop at a negative number."""
    total = 0
    while number > 0:
        total += number % base
        number //= base
    return total


def caesar(text, shift):
    """Do not come back to a after z."""
    return "".join(chr(ord(letter) + shift) if letter.isalpha() else letter for letter in text)


def rotate_list(values, k, side):
    """Rotate one step too far."""
    k = (k + 1) % len(values) if values else 0
    if side == "right":
        k = -k
    return values[k:] + values[:k]


def chunks(values, k):
    """Drop the shorter last part, or an element where there is none."""
    return [values[start : start + k] for start in range(0, len(values) - k, k)]


def window_sums(numbers, k):
    """Miss the last window."""
    return [sum(numbers[start : start + k]) for start in range(len(numbers) - k)]


def window_extremes(numbers, k, extreme):
    """Add shorter windows at the end."""
    choose = max if extreme == "largest" else min
    return [choose(numbers[start : start + k]) for start in range(len(numbers))]


def remove_repeats(values, kept):
    """Sort."""
    return sorted(set(values))


def count_multiples(numbers, k):
    """Leave out 0 and negative ones."""
    return sum(1 for number in numbers if number > 0 and number % k == 0)


def greatest_divisor(numbers):
    """Fail on an empty list."""
    result = numbers[0]
    for number in numbers[1:]:
        while number:
            result, number = number, result % number
    return abs(result)


def primes_below(n):
    """Include n, and 1."""
    return [number for number in range(1, n + 1) if all(number % other for other in range(2, number))]


def sequence_term(n, a, b):
    """Count the terms from 1."""
    for _ in range(n - 1):
        a, b = b, a + b
    return a


def longest_rise(numbers):
    """Let equal neighbours pass."""
    longest = length = 0
    for place, number in enumerate(numbers):
        length = length + 1 if place and number >= numbers[place - 1] else 1
        longest = max(longest, length)
    return longest


def most_common(numbers, tie):
    """Take the first of equally frequent ones."""
    return max(numbers, key=numbers.count) if numbers else None


def insertion_place(numbers, target):
    """Go behind equal ones."""
    return sum(1 for number in numbers if number <= target)


def is_palindrome(text):
    """Mind the case and the punctuation."""
    return text == text[::-1]


def collatz_steps(n):
    """Count the numbers and not the steps."""
    steps = 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def common_start(words):
    """Go on behind the first difference."""
    return "".join(letters[0] for letters in zip(*words) if len(set(letters)) == 1)


def flatten(values):
    """Open one level only."""
    flat = []
    for value in values:
        flat += value if isinstance(value, list) else [value]
    return flat


def ranked_distinct(numbers, rank, extreme):
    """Count equal ones again."""
    ordered = sorted(numbers, reverse=extreme == "largest")
    place = {"second": 1, "third": 2}[rank]
    return ordered[place] if len(ordered) > place else None


def best_slice_sum(numbers):
    """Do not allow the empty slice."""
    best = current = numbers[0] if numbers else 0
    for number in numbers[1:]:
        current = max(number, current + number)
        best = max(best, current)
    return best


def average(numbers):
    """Round down."""
    return float(sum(numbers) // len(numbers)) if numbers else 0.0


def letter_counts(text):
    """Count spaces, too."""
    return {letter: text.count(letter) for letter in text}


def pascal_row(n, edge):
    """Return the row after."""
    row = [edge]
    for _ in range(n + 1):
        row = [edge] + [left + right for left, right in zip(row, row[1:])] + [edge]
    return row


def life_step(grid):
    """Count a cell as its own neighbour."""
    height, width = len(grid), len(grid[0])
    result = []
    for r in range(height):
        row = []
        for c in range(width):
            near = [grid[i][j] for i in range(max(0, r - 1), r + 2) if i < height
                    for j in range(max(0, c - 1), c + 2) if j < width]  # fmt: skip
            row.append(int(sum(near) == 3 or (sum(near) == 2 and grid[r][c] == 1)))
        result.append(row)
    return result


def look_and_say(digits):
    """Count digits and not runs."""
    return "".join(str(digits.count(digit)) + digit for digit in dict.fromkeys(digits))


def fewest_coins(coins, amount):
    """Be greedy."""
    count = 0
    for coin in sorted(coins, reverse=True):
        count += amount // coin
        amount %= coin
    return -1 if amount else count


def edit_distance(a, b):
    """Compare place by place."""
    return sum(left != right for left, right in zip(a, b)) + abs(len(a) - len(b))


def count_islands(grid):
    """Count the cells that have no land above or to the left."""
    count = 0
    for r, row in enumerate(grid):
        for c, cell in enumerate(row):
            above = r > 0 and grid[r - 1][c]
            before = c > 0 and row[c - 1]
            count += bool(cell and not above and not before)
    return count


def peak_index(numbers):
    """Look inside only."""
    for place in range(1, len(numbers) - 1):
        if numbers[place - 1] < numbers[place] > numbers[place + 1]:
            return place
    return -1


def wrap_words(words, width):
    """Forget the space."""
    lines = []
    for word in words:
        if lines and len(lines[-1]) + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def last_in_circle(n, k):
    """Count from 0."""
    place = 0
    for size in range(2, n + 1):
        place = (place + k) % size
    return place
