"""Integer arithmetic word problems with their worked answers: small numbers, one or two steps."""

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Iris", "Jon")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "marbles", "pens")

#: family -> (text, range of a, range of b, range of c, operations on them)
FAMILIES = {
    "more": (
        "{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have?",
        (2, 9), (2, 9), (0, 0), ("a+b",),
    ),
    "less": (
        "{name} has {a} {thing} and gives away {b}. How many {thing} are left?",
        (7, 12), (2, 6), (0, 0), ("a-b",),
    ),
    "bags": ("{name} buys {a} bags with {b} {thing} each. How many {thing} is that?", (2, 5), (2, 6), (0, 0), ("a*b",)),
    "bags_and": (
        "{name} buys {a} bags with {b} {thing} each and finds {c} more. How many {thing} is that?",
        (2, 4), (2, 4), (2, 5), ("a*b", "+c"),
    ),
    "two_days": (
        "{name} finds {a} {thing} on Monday and {b} on Tuesday, then loses {c}. How many {thing} remain?",
        (3, 6), (3, 6), (2, 5), ("a+b", "-c"),
    ),
    "twice": (
        "{name} has {a} {thing}. A friend has {b} times as many. How many {thing} do both have?",
        (2, 5), (2, 3), (0, 0), ("a*b", "+a"),
    ),
}  # fmt: skip
_APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def draw_problem(rng):
    """One problem: `(text, family, steps, answer)`.

    `steps` are the lines of the working, such as "12 + 7 = 19."; `answer` is an integer.
    """
    family = rng.choice(tuple(FAMILIES))
    text, *ranges, operations = FAMILIES[family]
    numbers = dict(zip("abc", (rng.randint(*bounds) for bounds in ranges)))
    text = text.format(name=rng.choice(NAMES), thing=rng.choice(THINGS), **numbers)
    steps, value = [], None
    for operation in operations:
        sign, right = operation[-2], numbers[operation[-1]]
        left = numbers[operation[0]] if value is None else value
        value = _APPLY[sign](left, right)
        steps.append(f"{left} {sign} {right} = {value}.")
    return text, family, steps, value
