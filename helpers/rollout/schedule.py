"""Which request is decoded in which row of the cache, known on the host by counting steps."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from helpers.rollout.backends import Request


class Start(NamedTuple):
    """Completions of one prompt that begin now, and the rows they get."""

    prompt_ids: list[int]
    rows: list[int]
    keys: list[int]


def packs(starts: list[Start], most_tokens: int) -> Iterator[list[Start]]:
    """Cut into lists that are prefilled together: prompts of up to `most_tokens` together, or one long one."""
    pack = []
    widest = 0
    for start in starts:
        widest = max(widest, len(start.prompt_ids))
        if pack and widest * (len(pack) + 1) > most_tokens:
            yield pack
            pack = []
            widest = len(start.prompt_ids)
        pack.append(start)
    if pack:
        yield pack


def _by_prompt(requests: Sequence[Request]) -> list[int]:
    """The numbers of the requests, those of one prompt next to each other, by where the prompt stands first."""
    first = {}
    for number, request in enumerate(requests):
        first.setdefault(tuple(request.prompt_ids), number)
    return sorted(range(len(requests)), key=lambda number: first[tuple(requests[number].prompt_ids)])


class Schedule:
    """Which request is in which row, known on the host by counting.

    buckets: the numbers of rows that can be decoded together, ascending; the last is that of all rows. positions: of
    each row, at least the position that it has reached. kept_prompt: the one in the cache's prompt row.
    """

    def __init__(self, requests: Sequence[Request], buckets: Sequence[int]):
        rows = buckets[-1]
        self.requests = requests
        self.buckets = buckets
        self.queue = deque(_by_prompt(requests))
        self.in_row = [None] * rows  # number of a request
        self.positions = [0] * rows
        self.steps = [0] * rows
        self.kept_prompt = None

    @property
    def is_open(self) -> bool:
        """True until every request is finished."""
        return bool(self.queue or self.occupied())

    def occupied(self) -> list[int]:
        """The rows that hold a request."""
        return [row for row, request in enumerate(self.in_row) if request is not None]

    @property
    def bucket(self) -> int:
        """The smallest bucket that holds every row with a request."""
        return smallest(self.buckets, self.occupied()[-1] + 1)

    @property
    def longest(self) -> int:
        """Tokens of the longest row, at most."""
        return max(self.positions[row] for row in self.occupied())

    def steps_left(self, max_new_tokens: int) -> int:
        """Steps until the row that began last must be finished."""
        return max(max_new_tokens - self.steps[row] for row in self.occupied())

    @property
    def next_prompt(self) -> list[int] | None:
        """The prompt at the head of the queue."""
        return self.requests[self.queue[0]].prompt_ids if self.queue else None

    def fill(self) -> list["Start"]:
        """Give free rows to requests of the queue."""
        free = [row for row, request in enumerate(self.in_row) if request is None]
        starts = []
        while free and self.queue:
            start = Start(self.next_prompt, [], [])
            while free and self.next_prompt == start.prompt_ids:
                number = self.queue.popleft()
                row = free.pop(0)
                self.in_row[row] = number
                self.positions[row] = len(start.prompt_ids) - 1
                self.steps[row] = 0
                start.rows.append(row)
                start.keys.append(self.requests[number].key)
            starts.append(start)
        return starts

    def moves(self) -> list[tuple[int, int]]:
        """With an empty queue, move requests from the last rows to free ones before. Returns (source, target) pairs."""
        occupied = self.occupied()
        bucket = smallest(self.buckets, len(occupied))
        if self.queue or occupied[-1] < bucket:
            return []
        free = [row for row in range(bucket) if self.in_row[row] is None]
        moves = []
        for source in [row for row in occupied if row >= bucket]:
            target = free.pop(0)
            for column in (self.in_row, self.positions, self.steps):
                column[target] = column[source]
            self.in_row[source] = None
            moves.append((source, target))
        return moves

    def count(self, steps: int) -> None:
        """Note that every row has made so many steps."""
        for row in self.occupied():
            self.positions[row] += steps
            self.steps[row] += steps

    def release(self, row: int) -> int:
        """Free a row; returns the number of its request."""
        number = self.in_row[row]
        self.in_row[row] = None
        return number


def powers_of_two(most: int) -> list[int]:
    """The powers of two below `most`, and `most`."""
    powers = []
    count = 1
    while count < most:
        powers.append(count)
        count *= 2
    return [*powers, most]


def smallest(sizes: Sequence[int], wanted: int) -> int:
    """The smallest of some ascending sizes that is not below the one wanted."""
    return next(size for size in sizes if size >= wanted)
