"""Recomputing in place of storing: as many snapshots as the caches hold, placed by the binomial schedule (Griewank and
Walther's revolve), and the steps between them computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkpoint_schedules import Copy, Forward, Move, MultistageCheckpointSchedule, Reverse

from . import Given, Peer
from .files import padded


def open(given: Given) -> Peer:
    if list(given.order) != list(range(len(given.sizes)))[::-1]:
        raise ValueError("a binomial schedule goes back in reverse order alone")
    return Binomial(given)


class Binomial(Peer):
    tiers = ("host",)

    def __init__(self, given: Given) -> None:
        self._device, self._compute = given.device, given.compute
        room = padded(max(given.sizes))
        count = (given.store["device_cache"] + given.store["host_cache"]) // room
        if count < 1:
            raise ValueError(f"the caches do not hold one checkpoint of {max(given.sizes)} bytes")
        steps = len(given.sizes)
        self._free = [given.device.pinned(room) for _ in range(min(count, steps))]
        self._kept: dict[int, Any] = {}
        self._schedule = MultistageCheckpointSchedule(steps, snapshots_in_ram=count, snapshots_on_disk=0)
        self._actions: Iterator[Any] = iter(self._schedule)
        # What is kept on the way to the last step, which the schedule says in advance.
        self._first: set[int] = set()
        for action in self._actions:
            if not isinstance(action, Forward) or action.write_adj_deps:
                break
            self._first.add(action.n0)

    def checkpoint(self, version: int, window: Any) -> None:
        if version in self._first:
            self._keep(version, window)

    def _keep(self, version: int, state: Any) -> None:
        self._kept[version] = self._free.pop()[: len(state)]
        self._device.copy(self._kept[version], state)
        self._device.synchronize()

    def restore(self, version: int, out: Any) -> None:
        state = self._compute(version, 0)  # the last one is still there
        for action in self._actions:
            if isinstance(action, Reverse):
                break
            if isinstance(action, (Copy, Move)):
                state = self._kept[action.n]
                if isinstance(action, Move):
                    self._free.append(self._kept.pop(action.n).base)
            elif isinstance(action, Forward) and not action.write_adj_deps:
                if action.write_ics:
                    self._keep(action.n0, state)
                state = self._compute(action.n1, action.n1 - action.n0)
        self._device.copy(out, state)
        self._device.synchronize()
