"""Checks of results for which there are several right ones: f(arguments, result) -> bool.

They run on our side, on our copy of the arguments, and get whatever plain value a program returned: none of them
raises, whatever that is.
"""

from collections.abc import Callable

Property = Callable[[list, object], bool]


def is_pair_with_sum(arguments: list, result: object) -> bool:
    """Tell whether [i, j] names two places, i < j, whose numbers add up to the target. arguments: numbers, target."""
    numbers, target = arguments
    if not _is_list_of_ints(result) or len(result) != 2:
        return False
    first, second = result
    if not 0 <= first < second < len(numbers):
        return False
    return numbers[first] + numbers[second] == target


def is_topological_order(arguments: list, result: object) -> bool:
    """Tell whether 0, ..., n - 1 stand in an order that every [before, after] keeps. arguments: n, pairs."""
    count, pairs = arguments
    if not _is_list_of_ints(result) or sorted(result) != list(range(count)):
        return False
    place = {item: number for number, item in enumerate(result)}
    return all(place[before] < place[after] for before, after in pairs)


def is_peak_index(arguments: list, result: object) -> bool:
    """Tell whether the index names a number larger than its neighbours; -1 in an empty list. arguments: numbers."""
    (numbers,) = arguments
    if type(result) is not int:
        return False
    if not numbers:
        return result == -1
    if not 0 <= result < len(numbers):
        return False
    neighbours = numbers[max(0, result - 1) : result] + numbers[result + 1 : result + 2]
    return all(neighbour < numbers[result] for neighbour in neighbours)


def is_evens_first(arguments: list, result: object) -> bool:
    """Tell whether the same integers stand there, all even ones before the odd ones. arguments: numbers."""
    (numbers,) = arguments
    if not _is_list_of_ints(result) or sorted(result) != sorted(numbers):
        return False
    parities = [number % 2 for number in result]
    return parities == sorted(parities)


def _is_list_of_ints(value):
    """Tell whether a value is a list of integers. A bool is not an integer here."""
    return type(value) is list and all(type(part) is int for part in value)


#: name -> check
PROPERTIES: dict[str, Property] = {
    "evens_first": is_evens_first,
    "pair_with_sum": is_pair_with_sum,
    "peak_index": is_peak_index,
    "topological_order": is_topological_order,
}
