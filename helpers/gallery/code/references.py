"""A right program for each function that the code task asks for.

`specs` gives a prompt's answer the source of one of these, so each stands for itself: it uses built-in names and what
it imports inside, and is called with the arguments of the prompt first and the prompt's parameters by name.
"""


def sort_numbers(numbers, order):
    return sorted(numbers, reverse=order == "descending")


def sort_by_distance(numbers, center):
    return sorted(numbers, key=lambda number: (abs(number - center), number))


def sort_words(words):
    return sorted(words, key=lambda word: (len(word), word))


def evens_first(numbers):
    evens = [number for number in numbers if number % 2 == 0]
    odds = [number for number in numbers if number % 2]
    return evens + odds


def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def evaluate_rpn(tokens):
    stack = []
    for token in tokens:
        if token in ("+", "-", "*"):
            right = stack.pop()
            left = stack.pop()
            if token == "+":
                stack.append(left + right)
            elif token == "-":
                stack.append(left - right)
            else:
                stack.append(left * right)
        else:
            stack.append(int(token))
    return stack[0]


def encode_runs(text):
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    return runs


def decode_runs(runs):
    return "".join(letter * count for letter, count in runs)


def spiral(matrix):
    rows = [list(row) for row in matrix]
    result = []
    while rows:
        result += rows.pop(0)
        rows = [list(column) for column in zip(*rows)][::-1]
    return result


def rotate_matrix(matrix, direction):
    if direction == "clockwise":
        return [list(column)[::-1] for column in zip(*matrix)]
    return [list(column) for column in zip(*matrix)][::-1]


def weekday(day, first):
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    return names[(names.index(first) + day - 1) % 7]


def days_in_month(year, month):
    if month == 2:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if is_leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


def to_roman(number):
    symbols = [
        (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
        (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
    ]  # fmt: skip
    text = ""
    for value, symbol in symbols:
        while number >= value:
            text += symbol
            number -= value
    return text


def to_base(number, base):
    digits = "0123456789abcdef"
    text = ""
    while number:
        text = digits[number % base] + text
        number //= base
    return text or "0"


def from_base(text, base):
    value = 0
    for digit in text:
        value = value * base + "0123456789abcdef".index(digit)
    return value


def is_balanced(text):
    opening = {")": "(", "]": "[", "}": "{"}
    stack = []
    for bracket in text:
        if bracket not in opening:
            stack.append(bracket)
        elif not stack or stack.pop() != opening[bracket]:
            return False
    return not stack


def group_anagrams(words):
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(word)), []).append(word)
    return sorted(sorted(group) for group in groups.values())


def running_totals(numbers, start):
    totals = []
    total = start
    for number in numbers:
        total += number
        totals.append(total)
    return totals


def pair_with_sum(numbers, target):
    seen = {}
    for place, number in enumerate(numbers):
        if target - number in seen:
            return [seen[target - number], place]
        seen[number] = place
    return None


def topological_order(n, pairs):
    missing = [0] * n
    for _, after in pairs:
        missing[after] += 1
    order = [item for item in range(n) if not missing[item]]
    for item in order:
        for before, after in pairs:
            if before == item:
                missing[after] -= 1
                if not missing[after]:
                    order.append(after)
    return order


def digit_sum(number, base):
    number = abs(number)
    total = 0
    while number:
        total += number % base
        number //= base
    return total


def caesar(text, shift):
    letters = "abcdefghijklmnopqrstuvwxyz"
    result = ""
    for letter in text:
        if letter in letters:
            letter = letters[(letters.index(letter) + shift) % 26]
        elif letter.lower() in letters:
            letter = letters[(letters.index(letter.lower()) + shift) % 26].upper()
        result += letter
    return result


def rotate_list(values, k, side):
    if not values:
        return []
    k %= len(values)
    if side == "right":
        k = -k
    return values[k:] + values[:k]


def chunks(values, k):
    return [values[start : start + k] for start in range(0, len(values), k)]


def window_sums(numbers, k):
    return [sum(numbers[start : start + k]) for start in range(len(numbers) - k + 1)]


def window_extremes(numbers, k, extreme):
    choose = max if extreme == "largest" else min
    return [choose(numbers[start : start + k]) for start in range(len(numbers) - k + 1)]


def remove_repeats(values, kept):
    if kept == "first":
        return list(dict.fromkeys(values))
    return list(dict.fromkeys(reversed(values)))[::-1]


def count_multiples(numbers, k):
    return sum(1 for number in numbers if number % k == 0)


def greatest_divisor(numbers):
    result = 0
    for number in numbers:
        number = abs(number)
        while number:
            result, number = number, result % number
    return result


def primes_below(n):
    primes = []
    for number in range(2, n):
        if all(number % prime for prime in primes):
            primes.append(number)
    return primes


def sequence_term(n, a, b):
    for _ in range(n):
        a, b = b, a + b
    return a


def longest_rise(numbers):
    longest = 0
    length = 0
    for place, number in enumerate(numbers):
        if place and number > numbers[place - 1]:
            length += 1
        else:
            length = 1
        longest = max(longest, length)
    return longest


def most_common(numbers, tie):
    if not numbers:
        return None
    most = max(numbers.count(number) for number in numbers)
    candidates = [number for number in numbers if numbers.count(number) == most]
    return min(candidates) if tie == "smallest" else max(candidates)


def insertion_place(numbers, target):
    place = 0
    while place < len(numbers) and numbers[place] < target:
        place += 1
    return place


def is_palindrome(text):
    letters = [letter.lower() for letter in text if letter.isalnum()]
    return letters == letters[::-1]


def collatz_steps(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def common_start(words):
    start = words[0] if words else ""
    for word in words:
        while not word.startswith(start):
            start = start[:-1]
    return start


def flatten(values):
    flat = []
    for value in values:
        if isinstance(value, list):
            flat += flatten(value)
        else:
            flat.append(value)
    return flat


def ranked_distinct(numbers, rank, extreme):
    distinct = sorted(set(numbers), reverse=extreme == "largest")
    place = {"second": 1, "third": 2}[rank]
    return distinct[place] if len(distinct) > place else None


def best_slice_sum(numbers):
    best = 0
    current = 0
    for number in numbers:
        current = max(0, current + number)
        best = max(best, current)
    return best


def average(numbers):
    if not numbers:
        return 0.0
    return sum(numbers) / len(numbers)


def letter_counts(text):
    counts = {}
    for letter in text:
        if letter != " ":
            counts[letter] = counts.get(letter, 0) + 1
    return counts


# The functions of the split "probe".


def pascal_row(n, edge):
    row = [edge]
    for _ in range(n):
        row = [edge] + [left + right for left, right in zip(row, row[1:])] + [edge]
    return row


def life_step(grid):
    height = len(grid)
    width = len(grid[0])
    result = []
    for row in range(height):
        new_row = []
        for column in range(width):
            living = -grid[row][column]
            for r in range(max(0, row - 1), min(height, row + 2)):
                for c in range(max(0, column - 1), min(width, column + 2)):
                    living += grid[r][c]
            new_row.append(1 if living == 3 or (living == 2 and grid[row][column]) else 0)
        result.append(new_row)
    return result


def look_and_say(digits):
    result = ""
    count = 0
    for place, digit in enumerate(digits):
        count += 1
        if place + 1 == len(digits) or digits[place + 1] != digit:
            result += str(count) + digit
            count = 0
    return result


def fewest_coins(coins, amount):
    fewest = [0] + [None] * amount
    for value in range(1, amount + 1):
        options = [fewest[value - coin] for coin in coins if coin <= value and fewest[value - coin] is not None]
        if options:
            fewest[value] = min(options) + 1
    return -1 if fewest[amount] is None else fewest[amount]


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        new_row = [i]
        for j, right in enumerate(b, 1):
            new_row.append(min(row[j] + 1, new_row[-1] + 1, row[j - 1] + (left != right)))
        row = new_row
    return row[-1]


def count_islands(grid):
    land = {(r, c) for r, row in enumerate(grid) for c, cell in enumerate(row) if cell}
    count = 0
    while land:
        count += 1
        stack = [land.pop()]
        while stack:
            r, c = stack.pop()
            for place in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if place in land:
                    land.remove(place)
                    stack.append(place)
    return count


def peak_index(numbers):
    if not numbers:
        return -1
    return numbers.index(max(numbers))


def wrap_words(words, width):
    lines = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def last_in_circle(n, k):
    circle = list(range(1, n + 1))
    place = 0
    while len(circle) > 1:
        place = (place + k - 1) % len(circle)
        circle.pop(place)
    return circle[0]
