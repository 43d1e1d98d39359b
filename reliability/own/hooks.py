"""What the program's own code does in the midst of a call that converts its objects."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass, field
from typing import Any

import ebbtide
import numpy as np
from reliability.own import forks
from reliability.own.arrays import Bundle, Hooked
from reliability.own.run import Kinds, OwnError, Run
from reliability.own.themes import OUTSIDE
from reliability.own.values import value_of

JUNK = 0xA5
CHANGES_LIST = ("pop", "clear", "append", "insert", "replace", "extend", "swap", "cut", "put back")
CHANGES_DICT = ("pop", "clear", "add", "replace", "put back", "many", "popitem")
OTHERS = ("overwrite", "overwrite", "grow", "raise", "interrupt", "fork", "collect", "checkpoint it", "checkpoint",
          "restore", "drop", "wait", "versions", "close", "thread", "set", "nothing")  # fmt: skip


@dataclass
class Plan:
    """What one hook does, and what a call may then end with."""

    run: Run
    bundle: Bundle
    name: str  # of the history
    version: int
    action: str
    hooked: Hooked
    fired: bool = False
    overwrote: bool = False
    closed: bool = False
    may: list[type[BaseException]] = field(default_factory=list)
    raised: Any = None
    before: list[Any] = field(default_factory=list)
    after: list[Any] | None = None  # when the call returned, if the program went on changing them
    guards: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = self.items()
        self.hooked.at = self.run.random.choice(["__dlpack__", "__dlpack__", "__dlpack_device__"])
        self.hooked.hook = self.fire
        self.turn = self.run.random.choice([1, 1, 1, 2])
        if self.action in ("raise", "interrupt"):
            self.may.append(OwnError if self.action == "raise" else KeyboardInterrupt)

    def items(self) -> list[Any]:
        given = self.bundle.object
        if isinstance(given, dict):
            return [(key, id(one)) for key, one in given.items()]
        return [id(one) for one in given] if isinstance(given, (list, tuple)) else []

    def returned(self) -> None:
        """The container may be changed from now on."""
        self.after = self.items()

    def changed(self) -> bool:
        return self.fired and (self.items() if self.after is None else self.after) != self.before

    def reordered(self) -> bool:
        """Whether a dict holds the very same under the same keys, in another order."""
        after = self.items() if self.after is None else self.after
        return isinstance(self.bundle.object, dict) and dict(after) == dict(self.before)

    def unnoticed(self) -> bool:
        """Whether it went wrong if the call went well."""
        return self.changed() and not self.reordered()

    def causes(self) -> Kinds:
        return tuple(self.may) + ((RuntimeError,) if self.changed() else ())

    def fire(self) -> None:
        if self.fired or self.hooked.calls < self.turn:
            return
        self.fired = True
        self.run.say(f"  in the midst ({self.hooked.at}, call {self.hooked.calls}): {self.action}")
        given = self.bundle.object
        if self.action in CHANGES_LIST and isinstance(given, list):
            change_list(self.action, given)
        elif self.action in CHANGES_DICT and isinstance(given, dict):
            change_dict(self.action, given)
        else:
            self.other()

    def other(self) -> None:
        run, action = self.run, self.action
        if action == "overwrite":
            self.overwrote = True
            self.bundle.overwrite(run.seed)
        elif action == "grow":
            for thing in self.bundle.things:
                if isinstance(thing.object, bytearray):
                    try:
                        thing.object.extend(b"more" * 5000)
                        self.overwrote = True
                    except BufferError:
                        run.say("  a buffer in use does not grow")
        elif action == "raise":
            raise OwnError(f"error of seed {run.seed}")
        elif action == "interrupt":
            raise KeyboardInterrupt("the program's own")
        elif action == "fork":
            forks.fork(run)
        elif action == "collect":
            gc.collect()
        elif action == "from outside" and run.disturb:
            run.disturb(run)
        elif action == "set":
            moved, self.guards = set_elsewhere(self.bundle)
            self.overwrote = self.overwrote or moved
        elif action == "thread":
            helper = threading.Thread(target=self.call, args=("checkpoint",))
            helper.start()
            helper.join()
        else:
            self.call(action)

    def call(self, action: str) -> None:
        """The program calls the store again from within."""
        run, history = self.run, self.run.history(self.name)
        if action in ("checkpoint it", "checkpoint"):
            version = self.version if action == "checkpoint it" else run.new_version(self.name) + 50
            array = np.arange(run.random.randrange(1, 999))
            known = (self.name, version) in run.model.entries
            _, error = run.attempt(f"  within: checkpoint {version}", lambda: history.checkpoint(version, array),
                                   may=(ebbtide.VersionExists,) if known else run.full())  # fmt: skip
            if error is None:
                run.put(self.name, version, [value_of(array)])
                self.may += run.absent(self.name, self.version)  # retention may have dropped it for this one
            if version == self.version:
                self.may.append(ebbtide.VersionExists)
        elif action == "restore":
            run.attempt("  within: restore", lambda: history.restore(self.version, keep=True),
                        may=(ebbtide.UnknownVersion, ebbtide.Consumed, ebbtide.Dropped))  # fmt: skip
        elif action == "drop":
            _, error = run.attempt("  within: drop", lambda: history.drop(self.version), may=(ebbtide.UnknownVersion,))
            if error is None:
                run.forget(self.name, self.version)
            self.may += [ebbtide.UnknownVersion, ebbtide.Consumed, ebbtide.Dropped]
        elif action == "wait":
            run.attempt("  within: wait", lambda: history.wait(run.level), may=run.full())
        elif action == "versions":
            run.attempt("  within: versions", history.versions)
        elif action == "close":
            run.close("  within: close")
            self.closed = True
            self.may.append(ebbtide.Closed)


def set_elsewhere(bundle: Bundle) -> tuple[bool, list[Any]]:
    """Gives tensors other memory, and what they had to others: nothing but the call may keep it. Whether there were
    any, and those others, full of JUNK."""
    sizes = []
    for number, thing in enumerate(bundle.things):
        if type(thing.object).__module__ == "torch":
            sizes.append(thing.object.nbytes)
            other = thing.object.clone() + 1
            if number % 2:
                thing.object.data = other
            else:
                thing.object.set_(other)
            del other
    gc.collect()
    return bool(sizes), [np.full(size, JUNK, np.uint8) for size in sizes for _ in range(8)]


def planned(run: Run, bundle: Bundle, name: str, version: int) -> Plan | None:
    """Something for one of its hooks to do; None where none has any."""
    hooked = bundle.hooked()
    if not hooked:
        return None
    if run.theme == OUTSIDE and run.random.random() < 0.4:
        return Plan(run, bundle, name, version, "from outside", run.random.choice(hooked))
    changes = CHANGES_LIST if bundle.structure == "list" else CHANGES_DICT if bundle.structure == "dict" else OTHERS
    action = run.random.choice(changes if run.random.random() < 0.5 else OTHERS)
    return Plan(run, bundle, name, version, action, run.random.choice(hooked))


def change_list(action: str, given: list[Any]) -> None:
    if action in ("pop", "replace", "put back", "swap"):
        last = given.pop()
        if action == "replace":
            given.append(np.arange(7.0))
        elif action == "put back":
            given.append(last)
        elif action == "swap":
            given.insert(0, last)
    elif action == "clear":
        given.clear()
    elif action == "append":
        given.append(np.arange(5))
    elif action == "insert":
        given.insert(0, np.arange(5))
    elif action == "extend":
        given.extend(np.arange(3) for _ in range(500))
    elif action == "cut":
        del given[len(given) // 2 :]
    gc.collect()


def change_dict(action: str, given: dict[Any, Any]) -> None:
    first = next(iter(given))
    if action in ("pop", "put back"):
        one = given.pop(first)
        if action == "put back":
            given[first] = one
    elif action == "clear":
        given.clear()
    elif action == "popitem":
        given.popitem()
    elif action == "add":
        given["another"] = np.arange(5)
    elif action == "replace":
        given[next(reversed(given))] = np.arange(7.0)
    elif action == "many":
        given.update((f"more {number}", np.arange(3)) for number in range(500))
    gc.collect()
