"""What the trials share: where things are, how long they may take, the seed, and what is printed."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]
ANSWER_S = 30.0  # after that something hangs


@dataclass
class Session:
    """One run of reliability/run."""

    scratch: pathlib.Path  # on the disk whose behaviour is tried
    seed: int
    short: bool
    counts: dict[str, int]  # of the command line: trial to count
    native: pathlib.Path | None  # the program ebb_trials
    keep_corpus: bool = False
    failures: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def random(self, *names: object) -> random.Random:
        """The numbers of one trial, apart from those of the others."""
        return random.Random(f"{self.seed} {' '.join(map(str, names))}")

    def count(self, trial: str, full: int, short: int) -> int:
        return self.counts.get(trial, short if self.short else full)

    @contextmanager
    def directory(self, name: str) -> Iterator[pathlib.Path]:
        """An empty one, which goes when it is no longer used."""
        path = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, path: pathlib.Path) -> pathlib.Path:
        """What is left of a case that went wrong, to be looked at after the run. Where it is then."""
        kept = self.scratch.parent / f"kept-{self.seed}-{path.name}"
        shutil.move(path, kept)
        self.say(f"kept: {kept}")
        return kept

    @contextmanager
    def small_disk(self, megabytes: int) -> Iterator[pathlib.Path]:
        """A tmpfs of that size; raises Missing where none can be mounted."""
        with self.directory("disk") as path:
            if os.geteuid() != 0:
                raise Missing("mounting a tmpfs needs root")
            command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "ebb-trials", str(path)]
            mounted = subprocess.run(command, capture_output=True, text=True)
            if mounted.returncode:
                raise Missing(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
            try:
                yield path
            finally:
                subprocess.run(["umount", "-l", str(path)], check=False)


class Missing(Exception):
    """The trial cannot be made here; the message says what is missing."""


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._start
