"""What a block of `offload` stored, and what the next is therefore expected to store: pure rules, without tensors."""

from __future__ import annotations

from typing import TypeAlias

_MOST_ASKED = 4  # times that are remembered, for each that was stored: a graph may be used again without end
_MOST_MEMBERS = 64  # of a group


Kind: TypeAlias = tuple[int, int, int | None, bool]
"""Of something that is stored: bytes, GPU, handle of a stream, and whether it may wait in memory until others are stored with
it. Only one of the same kind is taken for what was expected."""


class Step:
    """What one block stored, from the version ``first`` on, and the order in which it was needed, some more than once."""

    __slots__ = ("first", "versions", "kinds", "asked")

    def __init__(self, first: int) -> None:
        self.first, self.versions = first, 0
        self.kinds: list[Kind] = []
        self.asked: list[int] = []  # places in `kinds`

    def ask(self, place: int) -> None:
        if len(self.asked) < _MOST_ASKED * len(self.kinds):
            self.asked.append(place)


class Plan:
    """What a block is expected to store, learned from the one before.

    Small neighbours are one *group*, stored and brought back by one call: those that were needed one behind the other, in
    whatever order, with nothing else between. So a group is in memory no longer than its members are needed.

    most: bytes of a group. No group is made of what is larger, of other streams, or of what may not wait.
    """

    def __init__(self, kinds: list[Kind], asked: list[int], most: int) -> None:
        self.kinds, self.asked = kinds, asked
        self.bytes = sum(kind[0] for kind in kinds)
        self.ends: list[int] = []  # by place: the place behind the last of its group
        groups: list[int] = []  # by place
        self.versions = 0
        for start, end in _groups(kinds, asked, most):
            self.ends += [end] * (end - start)
            groups += [self.versions] * (end - start)
            self.versions += 1
        self.order = [  # versions, counted from the block's first; of a group once, of others as often as they are needed
            groups[place]
            for i, place in enumerate(asked)
            if i == 0 or groups[asked[i - 1]] != groups[place] or self._alone(place)
        ]

    def expects(self, place: int, kind: Kind) -> bool:
        return place < len(self.kinds) and self.kinds[place] == kind

    def _alone(self, place: int) -> bool:
        return self.ends[place] == place + 1 and (place == 0 or self.ends[place - 1] == place)


def plan(step: Step, most: int, old: Plan | None) -> Plan | None:
    """For the block after ``step``. None: some of what was stored was never needed, so nothing is known of the next."""
    if old is not None and step.kinds == old.kinds and step.asked == old.asked:
        return old
    return Plan(step.kinds, step.asked, most) if len(set(step.asked)) == len(step.kinds) > 0 else None


def _groups(kinds: list[Kind], asked: list[int], most: int) -> list[tuple[int, int]]:
    """Where each begins and ends."""
    count = len(kinds)
    first, last, times = [len(asked)] * count, [-1] * count, [0] * count
    for when, place in enumerate(asked):
        first[place] = min(first[place], when)
        last[place] = when
        times[place] += 1
    groups = []
    start = 0
    while start < count:
        end, size, begins, ends, asks = start + 1, 0, len(asked), -1, 0
        for place in range(start, min(start + _MOST_MEMBERS, count)):
            kind = kinds[place]
            size += kind[0]
            if size > most or not kind[3] or kind[1:] != kinds[start][1:]:
                break
            begins, ends, asks = min(begins, first[place]), max(ends, last[place]), asks + times[place]
            if ends - begins + 1 == asks:
                end = place + 1
        groups.append((start, end))
        start = end
    return groups
