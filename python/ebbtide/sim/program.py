"""What an application does: a shot as the papers have it, or a program call by call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ebbtide._models as _models
from ebbtide.sim.machine import Machine, Size, plain_bytes, plain_ns


@dataclass(frozen=True)
class Shot:
    """The papers' shot (hpdc23 sec. 5.3): one pass writes version 0, 1, ..., the other reads all of them.

    sizes: bytes of each version. interval: computing before each call; forward, backward: or one time for each call.
    wait: for every flush between the passes. restore_order: an explicit order, instead of ``order``.
    """

    sizes: Sequence[int]
    order: Literal["reverse", "sequential", "irregular"] = "reverse"
    hints: Literal["all", "one", "none"] = "all"
    interval: float = 0.01
    forward: Sequence[float] = ()
    backward: Sequence[float] = ()
    compute_after_restore: bool = False
    wait: bool = False
    barriers: bool = False
    seed: int = 1
    restore_order: Sequence[int] = ()

    def _make(self) -> _models.SimShot:
        return _models.SimShot.make(
            list(self.sizes),
            self.order,
            self.hints,
            plain_ns(self.interval),
            [plain_ns(t) for t in self.forward],
            [plain_ns(t) for t in self.backward],
            self.compute_after_restore,
            self.wait,
            self.barriers,
            self.seed,
            list(self.restore_order),
        )

    def versions(self) -> list[int]:
        """The versions in the order in which they are restored."""
        return self._make().restore_order()

    def _program(self, machine: Machine) -> tuple[int, int, list[_models.SimOp]]:
        return 0, 0, self._make().ops(len(machine._present) - 1)


class Program:
    """What one thread of an application does, built call by call; each method returns the program.

    >>> Program().hint([1, 0]).checkpoint(0, "1MiB").sleep(0.01).checkpoint(1, "1MiB").restore(1).restore(0)
    """

    def __init__(self, history: int = 0, start: float = 0.0) -> None:
        self.history = history
        self.start = start
        self._ops: list[tuple[str, dict[str, Any]]] = []

    def _add(self, kind: str, **arguments: Any) -> Program:
        self._ops.append((kind, arguments))
        return self

    def checkpoint(self, version: int, size: Size, timeout: float = 0.0, background: bool = False) -> Program:
        """Write a version of ``size`` bytes. background: continue at once; :meth:`join` waits."""
        size = plain_bytes("size", size)
        return self._add("checkpoint", version=version, bytes=size, time=plain_ns(timeout), async_=background)

    def restore(self, version: int, keep: bool = False, background: bool = False) -> Program:
        """Read a version; consumed unless ``keep`` or hinted again."""
        return self._add("restore", version=version, flag=keep, async_=background)

    def reserve(self, version: int, size: Size, timeout: float = 0.0) -> Program:
        """Ask for memory of the device cache; :meth:`commit` or :meth:`abandon` ends it."""
        return self._add("reserve", version=version, bytes=plain_bytes("size", size), time=plain_ns(timeout))

    def commit(self, version: int) -> Program:
        """Complete the reservation."""
        return self._add("commit", version=version)

    def abandon(self, version: int) -> Program:
        """Forget the reservation."""
        return self._add("abandon", version=version)

    def borrow(self, version: int) -> Program:
        """Borrow the device cache's own copy; :meth:`release` ends it."""
        return self._add("borrow", version=version)

    def release(self, version: int, keep: bool = False) -> Program:
        """Give a borrowed version back."""
        return self._add("release", version=version, flag=keep)

    def hint(self, order: Iterable[int], replace: bool = False) -> Program:
        """Announce what will be restored, in order."""
        return self._add("hint", versions=list(order), flag=replace)

    def hint_front(self, version: int) -> Program:
        """Announce that ``version`` will be restored before everything hinted so far."""
        return self._add("hint_front", version=version)

    def unhint(self, versions: Iterable[int] | None = None) -> Program:
        """Withdraw hints; all of them without an argument."""
        return self._add("unhint", versions=[] if versions is None else list(versions))

    def start_prefetch(self) -> Program:
        """Start prefetching, on a machine with ``prefetch="manual"``."""
        return self._add("start_prefetch")

    def drop(self, version: int | None = None) -> Program:
        """Forget a version, or all of the history."""
        return self._add("drop", version=version or 0, flag=version is None)

    def wait(self, level: str, version: int | None = None) -> Program:
        """Wait until a version (or each one written) is complete on a tier or below."""
        return self._add("wait", version=version or 0, flag=version is None, tier=level)

    def sleep(self, seconds: float) -> Program:
        """Compute."""
        return self._add("sleep", time=plain_ns(seconds))

    def join(self) -> Program:
        """Wait for what runs in the background."""
        return self._add("join")

    def _program(self, machine: Machine) -> tuple[int, int, list[_models.SimOp]]:
        ops = []
        for kind, arguments in self._ops:
            if "tier" in arguments:
                arguments = arguments | {"tier": machine._tier(arguments["tier"])}
            ops.append(_models.SimOp.make(kind, **arguments))
        return self.history, plain_ns(self.start), ops


Trace = Shot | Program | Sequence[Program]
"""A shot, one thread's program, or several threads'."""
