"""The parent's side of program.py."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

from reliability.processes import Died, Hung, Process
from reliability.session import ANSWER_S, Clock

PROGRAM = pathlib.Path(__file__).with_name("program.py")


class Program(Process):
    """One running program and what it said."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(sys.executable, PROGRAM, name, json.dumps(given))
        self.said: list[dict[str, Any]] = []

    def read(self, timeout: float = ANSWER_S, until: str | None = None) -> dict[str, Any] | None:
        """The next line (the next with the key `until`); None when the time has passed or it has ended."""
        clock = Clock()
        try:
            while True:
                self.said.append(json.loads(self.line(max(0.0, timeout - clock()))))
                if until is None or until in self.said[-1]:
                    return self.said[-1]
        except (Hung, Died):
            return None

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
