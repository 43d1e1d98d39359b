"""The processes of the trials: each prints lines, may get some to read, and is ended when it hangs."""

from __future__ import annotations

import os
import select
import subprocess
from collections import deque
from typing import Any

from reliability.session import ANSWER_S, Clock


class Hung(Exception):
    """No answer in time."""


class Died(Exception):
    """The process ended without an answer; the message says how."""


class Process:
    """One child; `with` ends it."""

    def __init__(self, *command: object, stderr: Any = subprocess.PIPE, **environment: str) -> None:
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=stderr, env=os.environ | environment)  # fmt: skip
        self._lines: deque[bytes] = deque()
        self._rest = b""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self, timeout: float = ANSWER_S) -> str:
        """The next one. Raises Hung or Died."""
        assert self.process.stdout
        clock, descriptor = Clock(), self.process.stdout.fileno()
        while not self._lines:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, timeout - clock()))
            more = os.read(descriptor, 1 << 16) if ready else b""
            if not ready:
                raise Hung(f"no answer in {timeout:.0f} s")
            if not more:
                raise Died(self.ended(timeout - clock()))
            *whole, self._rest = (self._rest + more).split(b"\n")
            self._lines.extend(whole)
        return self._lines.popleft().decode(errors="replace")

    def ended(self, timeout: float) -> str:
        """How, in words. Raises Hung."""
        try:
            status = self.process.wait(max(0.1, timeout))
        except subprocess.TimeoutExpired:
            raise Hung(f"it said all and did not end in {timeout:.0f} s") from None
        return f"signal {-status}" if status < 0 else f"status {status}"

    def tell(self, line: str = "") -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what it says next says how it died
