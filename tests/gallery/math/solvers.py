"""Solves the math task's problems from their text alone: another implementation than the one that writes them."""

import re

#: A phrase of a story's sentence -> what it does to the quantity.
STORY_PHRASES = (
    (r"times as large|times as much|times the amount", "times"),
    (r"one (book|passenger|dollar|tree|litre) in|but one passenger in|turns .* one in", "divide"),
    (r"put on it|parcel brings|get on|come aboard|poured in|rain adds|earns|gift adds|planted|gives \d+ trees", "plus"),
    (r"sold|borrow|get off|leave|drawn off|leak takes|spends|fee takes|felled|destroys", "minus"),
)


#: What only a problem says in which something is taken away twice; the largest number is what there was.
TAKEN_TWICE = (
    r"gives away \d+ and (loses|later)|sold \d+ and later|away and then \d+ more|lost \d+ on monday"
    r"|were sold and \d+ given|drops \d+ of|gave away first|are sold, and \d+|takes \d+ of \d+|loses \d+ and drops"
)


def solve(text: str) -> int:
    """Return the answer to a problem. Raises ValueError for a text that says nothing known."""
    body = text.replace(r"Put the answer in \boxed{}.", "").strip()
    sentences = [sentence.strip() for sentence in re.split(r"(?<=[.?])\s+", body) if sentence.strip()]
    events = sentences[1:-1]
    if events and all(event_of(event) for event in events):
        return solve_story(sentences[0], events)
    return solve_short(body)


def event_of(sentence: str) -> tuple[str, int] | None:
    """Return what a sentence of a story does, and with which number."""
    numbers = re.findall(r"\d+", sentence)
    if len(numbers) != 1:
        return None
    for phrase, operation in STORY_PHRASES:
        if re.search(phrase, sentence, re.IGNORECASE):
            return operation, int(numbers[0])
    return None


def solve_story(opening: str, events: list[str]) -> int:
    (start,) = re.findall(r"\d+", opening)
    quantity = int(start)
    for event in events:
        operation, number = event_of(event)
        if operation == "plus":
            quantity = quantity + number
        elif operation == "minus":
            quantity = quantity - number
        elif operation == "times":
            quantity = sum([quantity] * number)
        else:
            shares, rest = divmod(quantity, number)
            if rest:
                raise ValueError(f"{quantity} cannot be shared by {number}")
            quantity = shares
    return quantity


def solve_short(text: str) -> int:
    """Solve a problem of one or two steps by its key words."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    words = text.lower()
    if "times" in words:
        return times_as_many(words, numbers)
    if "bag" in words:
        return bags(words, numbers)
    takes_away = re.search(r"gives away|gave away|loses|lost|sold|takes|drops|dropped", words)
    if len(numbers) == 3:
        if re.search(TAKEN_TWICE, words):
            return 2 * max(numbers) - sum(numbers)
        first, second, third = numbers
        return first + second - third
    first, second = numbers
    if takes_away:
        return max(first, second) - min(first, second)
    return first + second


def times_as_many(words: str, numbers: list[int]) -> int:
    """A person has some, a friend so many times as many: how many have both?"""
    (factor,) = [int(number) for number in re.findall(r"(\d+) times", words)]
    rest = list(numbers)
    rest.remove(factor)
    (own,) = rest
    return own * (factor + 1)


def bags(words: str, numbers: list[int]) -> int:
    (count,) = [int(number) for number in re.findall(r"(\d+) bags", words)]
    rest = list(numbers)
    rest.remove(count)
    inside = rest[0]
    loose = rest[1] if len(rest) > 1 else 0
    return count * inside + loose
