"""One case under way: its store, its model, what was seen to be wrong, and what it did, line by line."""

from __future__ import annotations

import json
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import ebbtide
from reliability import outcomes
from reliability.own.themes import SMALL_DISK
from reliability.own.values import Entry, Model, Value, value_of, wrong

Kinds = tuple[type[BaseException], ...]
STORAGE = (ebbtide.IOFailed, ebbtide.Damaged, ebbtide.Lost, ebbtide.NotAStore, ebbtide.NotPermitted)
PRECEDENCE = (outcomes.EXACT, outcomes.CLEAR_ERROR, outcomes.OLDER_EXACT, outcomes.SILENT_WRONG, outcomes.HANG,
              outcomes.CRASH)  # fmt: skip


class OwnError(Exception):
    """Raised by the program's own code in the midst of a call."""


class Over(Exception):
    """The case cannot go on: the store could not be opened again."""


@dataclass
class Run:
    seed: int
    theme: str
    area: Path
    random: Random = field(init=False)
    model: Model = field(default_factory=Model)
    options: dict[str, Any] = field(default_factory=dict)
    store: Any = None
    lines: list[str] = field(default_factory=list)
    breaches: list[tuple[str, str]] = field(default_factory=list)  # outcome, what
    told: list[str] = field(default_factory=list)  # errors that had to be
    views: list[Any] = field(default_factory=list)  # what keeps memory of the store alive, or may be written through
    children: list[int] = field(default_factory=list)
    reader: Any = None
    hurt: bool = False  # the store's files are no longer as it left them
    missing_dir: bool = False  # and its directory is not at its place
    hinted: bool = False
    burst_bytes: int = 0
    tight: bool = False  # the disk does not hold what retention keeps and one more
    disturb: Callable[[Run], None] | None = None  # changes the store's files from outside
    moved: bool = False  # the tensors of the last call have other memory now
    serial: int = 0
    ended: str = "not closed"

    def __post_init__(self) -> None:
        self.random = Random(f"own {self.seed}")

    @property
    def kept(self) -> bool:
        return self.options.get("durability", "ephemeral") != "ephemeral"

    @property
    def level(self) -> str:
        return self.options["durability"] if self.kept else self.lowest

    @property
    def lowest(self) -> str:
        return "local" if self.options["disk"] else "host" if self.options["host_cache"] else "device"

    @property
    def directory(self) -> Path:
        return Path(self.options["directory"])

    def say(self, text: str) -> None:
        self.lines.append(text)

    def breach(self, outcome: str, what: str) -> None:
        """Something that must not be; the last line says in which call."""
        self.say(f"!!! {outcome}: {what}")
        self.breaches.append((outcome, what))

    def open(self, **more: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store = ebbtide.open(**(self.options | more))
        for one in caught:
            if issubclass(one.category, ebbtide.DamagedWarning) and not self.hurt:
                self.breach(outcomes.OLDER_EXACT, f"a warning without a cause: {one.message}")
        return store

    def attempt(self, name: str, call: Callable[[], Any], may: Kinds = (), must: Kinds = ()) -> tuple[Any, Any]:
        """(result, error) of a call. `may`: the errors that have a cause; `must`: it may not succeed either."""
        allowed = may + must + (STORAGE if self.hurt and self.kept else ())
        try:
            result = call()
        except OwnError as error:
            self.say(f"{name}: the program's own {error}")
            if OwnError not in allowed:
                self.breach(outcomes.CRASH, f"{name}: a strange {error!r}")
            return None, error
        except BaseException as error:
            text = f"{name}: {type(error).__name__}: {error}"
            self.say(text[:400])
            if not isinstance(error, (ebbtide.Error, *allowed)) or "std::" in str(error) or not str(error):
                self.breach(outcomes.CRASH, f"an error without a name: {text}")
            elif not isinstance(error, allowed):
                self.breach(outcomes.CLEAR_ERROR, f"an error without a cause: {text}")
            else:
                self.told.append(text)
            return None, error
        self.say(name)
        if must:
            self.breach(outcomes.SILENT_WRONG, f"{name}: went well, and had to fail")
        return result, None

    def close(self, tells: str = "close") -> Any:
        """The error that it ended with, if it did; and what is known to be durable, or not, by that."""
        _, error = self.attempt(tells, self.store.close, may=self.full() if self.tight else ())
        self.ended = "not closed" if error else "closed"
        for (name, version), entry in list(self.model.entries.items()) if self.kept else []:
            if error is not None:
                entry.maybe = entry.maybe or not entry.reported
            elif version in self.model.retained(name):
                entry.reported = True
            elif not self.hurt:
                self.forget(name, version)
        return error

    def history(self, name: str) -> Any:
        return self.store if name == "" else self.store.history(name)

    def pick_history(self) -> str:
        if self.theme == SMALL_DISK:
            return ""
        return self.random.choice(["", "", "", "forward", "ünï/..", "x" * 200])

    def new_version(self, name: str) -> int:
        """Ascending where retention looks at the order; anything else now and then."""
        known = self.model.of(name)
        top = max((version for version in known), default=-1)
        self.serial += 1
        if self.model.keep_last or self.random.random() < 0.8:
            return max(top + 1, self.serial)
        return self.random.choice([self.serial + 1000, (1 << 62) + self.serial, self.serial])

    def pick_version(self, name: str) -> int:
        """One that is there, mostly."""
        known = list(self.model.of(name))
        return self.random.choice(known) if known and self.random.random() < 0.93 else self.serial + 500

    def put(self, name: str, version: int, allowed: list[Value], **more: Any) -> None:
        self.model.entries[name, version] = Entry(allowed, **more)
        keep = self.model.retained(name)
        for older, entry in self.model.of(name).items():
            entry.maybe = entry.maybe or older not in keep  # retention may take it from now on

    def forget(self, name: str, version: int | None = None) -> None:
        for key in [key for key in self.model.entries if key[0] == name and version in (None, key[1])]:
            self.model.past.setdefault(key, []).extend(self.model.entries.pop(key).allowed)

    def compare(self, what: str, entry: Entry | None, found: Any) -> None:
        if entry is None:
            return self.breach(outcomes.SILENT_WRONG, f"{what}: it is not there, and was given")
        fault = wrong(entry, found if isinstance(found, Value) else value_of(found))
        if fault:
            self.breach(outcomes.SILENT_WRONG, f"{what}: {fault}")

    def report(self, name: str, versions: list[int]) -> None:
        for version in versions:
            entry = self.model.entries.get((name, version))
            if entry:
                entry.reported = True

    def absent(self, name: str, version: int) -> Kinds:
        """The errors that a restore of it has a cause for."""
        entry = self.model.entries.get((name, version))
        if entry is None or entry.maybe or version not in self.model.retained(name):
            return (ebbtide.UnknownVersion, ebbtide.Consumed, ebbtide.Dropped)
        return ()

    def full(self) -> Kinds:
        """Memory that the program holds may be missing elsewhere; a disk may be too small."""
        return (ebbtide.NoSpace, ebbtide.TimedOut) if self.views or self.tight else ()

    def save(self) -> None:
        """What another process needs to look at what this one left; where it can have left nothing, the verdict."""
        if not self.kept:
            return self.judge()
        self.store = self.reader = None
        found = {"ended": self.ended, "model": self.model, "options": self.options, "hurt": self.hurt,
                 "missing_dir": self.missing_dir, "breaches": self.breaches, "lines": self.lines,
                 "told": self.told, "theme": self.theme}  # fmt: skip
        partial = self.area / "report.partial"
        partial.write_bytes(pickle.dumps(found))
        partial.rename(self.area / "report")

    def judge(self) -> None:
        outcome = outcomes.CLEAR_ERROR if self.told else outcomes.EXACT
        for found, _ in self.breaches:
            outcome = max(outcome, found, key=PRECEDENCE.index)
        verdict = {"outcome": outcome, "breaches": self.breaches, "told": self.told[:3], "lines": self.lines}
        (self.area / "verdict").write_text(json.dumps(verdict))

    def killed(self) -> None:
        """Ends this process as nothing else does."""
        self.say("SIGKILL")
        self.ended, store = "killed", self.store
        self.save()
        self.store = store  # until the last moment
        os.kill(os.getpid(), signal.SIGKILL)
