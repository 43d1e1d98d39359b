"""What the stages share: where things are, how a command runs within its time, and what went wrong."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOWN = 60  # lines of a failed command's output


class Failed(Exception):
    """A stage cannot go on; the message says why."""


@dataclass
class Session:
    """One run of tools/gpu-check."""

    build: pathlib.Path
    out: pathlib.Path  # at most a handful of files: log.txt, gpu_figures.json, junit files, memcheck.txt
    scratch: pathlib.Path  # on the disk to be measured
    deadline: float  # on the monotonic clock: nothing runs after it
    options: Any  # the command line
    environment: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    stages: list[dict] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    limit: float = 0  # of the present stage, on the monotonic clock

    @property
    def carried(self) -> pathlib.Path:
        return ROOT / ".carry"

    def left(self) -> float:
        return max(0.0, min(self.limit, self.deadline) - time.monotonic())

    def say(self, text: str) -> None:
        print(text, flush=True)
        with open(self.out / "log.txt", "a", encoding="utf-8") as log:
            log.write(text + "\n")

    def fail(self, text: str) -> None:
        self.failures.append(text)
        self.say(f"FAILED: {text}")

    def run(self, *command: object, quiet: bool = True, log: str = "log.txt", **environment: str) -> int:
        """The command's status; its output goes to `log` in `out` (its end also here when it fails or is not quiet).
        124: it ran out of the stage's time and was ended with all its children."""
        words = [str(word) for word in command]
        path = self.out / log
        with open(path, "ab") as file:
            file.write(f"+ {' '.join(words)}\n".encode())
            file.flush()
            begin = file.tell()
            process = subprocess.Popen(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **self.environment, **environment},
            )  # fmt: skip
            try:
                status = process.wait(self.left())
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # the group that was made for it
                    process.wait()
        if status or not quiet:
            lines = path.read_bytes()[begin:].decode(errors="replace").splitlines()
            print("\n".join(["+ " + " ".join(words), *lines[-SHOWN:]]), flush=True)
        if status == 124:
            self.say(f"{words[0]}: out of time")
        return status

    def need(self, *command: object, **more: Any) -> None:
        status = self.run(*command, **more)
        if status:
            raise Failed(f"{pathlib.Path(str(command[0])).name} ended with {status}")

    def python(self, *words: object) -> list[object]:
        return [sys.executable, *words]
