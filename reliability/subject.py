"""The parent's side of worker.py: one subject of the trials, its processes, and what they did."""

from __future__ import annotations

import json
import pathlib
import sys
from dataclasses import dataclass, field
from typing import Any

from reliability import outcomes
from reliability.processes import Died, Hung, Process
from reliability.session import ANSWER_S, Missing

KILOBYTES = 256  # of a state, unless a trial says otherwise


class Worker(Process):
    """One process of worker.py, or of another program that answers as it does."""

    def __init__(self, key: str, log: pathlib.Path, program: str = "worker.py") -> None:
        with open(log, "ab") as printed:  # by the libraries
            super().__init__(sys.executable, pathlib.Path(__file__).parent / program, key, stderr=printed)
        self.about = self._answer(120.0)
        if "missing" in self.about:
            self.close()
            raise Missing(self.about["missing"])

    def ask(self, do: str, timeout: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Raises Hung or Died; after either this is of no more use."""
        self.tell(json.dumps({"do": do, **more}))
        return self._answer(timeout)

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            return json.loads(self.line(timeout))
        except (Hung, Died):
            self.close()
            raise


@dataclass
class Progress:
    """What a writer said of itself."""

    lines: list[list[str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: pathlib.Path) -> Progress:
        text = path.read_text() if path.exists() else ""
        return cls([line.split(" ") for line in text.splitlines()])

    def last(self, word: str) -> int | None:
        found = [int(line[1]) for line in self.lines if line[0] == word]
        return found[-1] if found else None

    def said(self, word: str) -> str | None:
        """The rest of the last such line."""
        found = [" ".join(line[1:]) for line in self.lines if line[0] == word]
        return found[-1] if found else None


class Subject:
    """One way of keeping a state, with a process that restarts and one that forks writers, made when needed."""

    def __init__(self, key: str, log: pathlib.Path) -> None:
        self.key, self._log = key, log
        self._workers: dict[str, Worker] = {}
        self.about = self._worker("restart").about  # raises Missing

    def _worker(self, what: str) -> Worker:
        if what not in self._workers:
            self._workers[what] = Worker(self.key, self._log)
        return self._workers[what]

    def restart(self, directory: pathlib.Path, seed: int, expected: int | None, *, kilobytes: int = KILOBYTES,
                in_memory: bool = False) -> tuple[str, str, int | None]:  # fmt: skip
        """The outcome of a restart that must give `expected` or a newer one, what was said, and the step it gave."""
        try:
            found = self._worker("restart").ask(
                "restart", directory=str(directory), seed=seed, kilobytes=kilobytes, in_memory=in_memory
            )
        except Hung as error:
            del self._workers["restart"]
            return outcomes.HANG, str(error), None
        except Died as error:
            del self._workers["restart"]
            return outcomes.CRASH, str(error), None
        if "error" in found:
            return outcomes.CLEAR_ERROR, found["error"], None
        step, said = found["step"], "; ".join(found["passed_over"])
        if found["wrong"]:
            return outcomes.SILENT_WRONG, f"step {step}: {found['wrong']}", step
        if expected is not None and (step is None or step < expected):
            return outcomes.OLDER_EXACT if step is not None else outcomes.CLEAR_ERROR, said or "nothing was said", step
        return outcomes.EXACT, said, step

    def _writer(self, do: str, timeout: float = ANSWER_S, **asked: Any) -> dict[str, Any]:
        try:
            return self._worker("write").ask(do, timeout, **asked)
        except (Hung, Died):
            del self._workers["write"]
            raise

    def write(self, directory: pathlib.Path, seed: int, progress: pathlib.Path, *, first: int = 0, steps: int = 1 << 30,
              keep: int = 0, kilobytes: int = KILOBYTES, in_memory: bool = False, before_limit: int = 0,
              file_limit: int = 0, ballast: list[str] | None = None, goes_on: bool = False,
              handler: bool = False) -> int:  # fmt: skip
        """The process id of a writer. `handler`: SIGTERM ends it as a program ends itself."""
        asked = {"directory": str(directory), "seed": seed, "progress": str(progress), "first": first, "steps": steps,
                 "keep": keep, "kilobytes": kilobytes, "in_memory": in_memory, "before_limit": before_limit,
                 "file_limit": file_limit, "ballast": ballast or [], "goes_on": goes_on, "handler": handler}  # fmt: skip
        return self._writer("write", **asked)["pid"]

    def reap(self, pid: int, timeout: float = ANSWER_S) -> dict[str, Any]:
        return self._writer("reap", timeout + 10.0, pid=pid, patience=timeout)

    def saved(self, directory: pathlib.Path, seed: int, progress: pathlib.Path, **more: Any) -> Progress:
        """What a writer did that was left to end by itself. Raises RuntimeError when it could not even be begun."""
        ended = self.reap(self.write(directory, seed, progress, **more))
        found = Progress.read(progress)
        if ended != {"status": 0} or found.said("failed"):
            raise RuntimeError(f"{self.key}: a writer ended with {ended}: {found.said('failed')}")
        return found

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
