"""The parent's side of program.py."""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
from typing import Any

from reliability.session import ANSWER_S, Clock

PROGRAM = pathlib.Path(__file__).with_name("program.py")


class Program:
    """One running program; `with` ends it."""

    def __init__(self, name: str, **given: Any) -> None:
        self.said: list[dict[str, Any]] = []
        self._buffer = b""
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name, json.dumps(given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def read(self, timeout: float = ANSWER_S, until: str | None = None) -> dict[str, Any] | None:
        """The next line (the next with the key `until`); None when the time has passed or it has ended."""
        assert self.process.stdout
        clock, descriptor = Clock(), self.process.stdout.fileno()
        while True:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                self.said.append(json.loads(line))
                if until is None or until in self.said[-1]:
                    return self.said[-1]
            ready, _, _ = select.select([descriptor], [], [], max(0.0, timeout - clock()))
            more = os.read(descriptor, 1 << 16) if ready else b""
            if not more:
                return None
            self._buffer += more

    def tell(self) -> None:
        """A line, which it waits for."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self, timeout: float = ANSWER_S) -> int | None:
        """Reads all that it still says; its status, below 0 a signal; None when the time passed."""
        clock = Clock()
        while self.read(max(0.0, timeout - clock()), until="\n") is not None:
            pass
        try:
            return self.process.wait(max(0.1, timeout - clock()))
        except subprocess.TimeoutExpired:
            return None

    def last(self, key: str) -> Any:
        return next((line[key] for line in reversed(self.said) if key in line), None)


def ran(name: str, timeout: float = ANSWER_S, **given: Any) -> tuple[int | None, Program]:
    with Program(name, **given) as program:
        return program.end(timeout), program
