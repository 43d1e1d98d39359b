"""The interface that all ways of keeping a state have here."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

State = dict[str, np.ndarray]


@dataclass
class Restart:
    """What a program that starts again got."""

    step: int | None  # None: nothing is there
    state: State | None
    passed_over: list[str] = field(default_factory=list)  # what was said of newer ones that could not be had


class Saver(ABC):
    """One way of keeping a program's state, in a directory of its own.

    A program calls ``convert`` once for each state and ``save`` for each step. ``keep``: how many of the newest are
    kept, 0 for all. ``to_read``: opened to restart from, and writes nothing. ``in_memory``: the directory lies on
    a tmpfs.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    how: ClassVar[str]  # a sentence: how the library is used here
    packages: ClassVar[tuple[str, ...]]  # whose versions count
    in_place: ClassVar[bool] = True  # the state is changed where it is; else each step computes it into new memory

    def __init__(self, directory: Path, *, keep: int = 0, to_read: bool = False, in_memory: bool = False) -> None:
        self.directory, self.keep = directory, keep

    def convert(self, state: State) -> Any:
        """The same bytes in the library's own kind of array."""
        return dict(state)

    def save(self, step: int, state: Any) -> None:
        """Returns when the state is durable."""
        self.prepare(step, state)
        self.begin(step, state)
        self.finish()

    def prepare(self, step: int, state: Any) -> None:
        """The program computes its next state, where that is another's memory: no part of keeping it."""

    @abstractmethod
    def begin(self, step: int, state: Any) -> None:
        """Returns as soon as the program may change its state."""

    def finish(self) -> None:
        """Returns when what was begun is durable, files and directories synced; for those that begin() did not do."""

    @abstractmethod
    def steps(self) -> list[int]:
        """What a restart would try, newest first."""

    @abstractmethod
    def load(self, step: int) -> State:
        """Raises what the library raises."""

    @abstractmethod
    def forget(self, step: int) -> None:
        """Its bytes are given back."""

    def restart(self) -> Restart:
        """The newest state that can be had: what fails by an exception is passed over for the one before it."""
        passed_over: list[str] = []
        first: Exception | None = None
        for step in self.steps():
            try:
                return Restart(step, self.load(step), passed_over)
            except Exception as error:  # any error of the library's is a clear one
                first = first or error
                passed_over.append(f"{step}: {type(error).__name__}: {str(error)[:200]}")
        if first:
            raise first
        return Restart(None, None)

    def close(self) -> None:
        """Ends its threads, if it has any."""


class Beside(Saver):
    """One file or directory for each step, ``step-N``, finished under another name and renamed."""

    suffix: ClassVar[str] = ""

    def path(self, step: int) -> Path:
        return self.directory / f"step-{step}{self.suffix}"

    def steps(self) -> list[int]:
        if not self.directory.exists():
            return []
        names = (path.name for path in self.directory.iterdir())
        tails = (name[5 : len(name) - len(self.suffix)] for name in names
                 if name.startswith("step-") and name.endswith(self.suffix))  # fmt: skip
        return sorted((int(tail) for tail in tails if tail.isdecimal()), reverse=True)

    def retain(self) -> None:
        """After the newest is durable."""
        for step in self.steps()[self.keep :] if self.keep else []:
            self.forget(step)

    def forget(self, step: int) -> None:
        path = self.path(step)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync(path: Path) -> None:
    """A file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """All files and directories from there on, and the directory that has it."""
    for folder, _, files in os.walk(path, topdown=False):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))
    sync(path.parent)
