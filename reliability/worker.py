"""A process that holds one subject's library, and does for the trials what a program would do.

Reads one line of JSON for each request and answers with one: see `restart` and `write`. It never restarts and writes in
one process: what writes are children of it, forked before the library did anything, for imports take seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:1] = [  # and not this folder, whose names are common
    str(HERE.parents[1]),
    str(HERE.parents[1] / "benches"),
]

import peers
from reliability import states

warnings.filterwarnings("ignore", message=".*fork.*")

PR_SET_PDEATHSIG = 1


def restart(kind: type[peers.Saver], asked: dict[str, Any]) -> dict[str, Any]:
    """What a program that starts again gets, and what is wrong with it: {step, wrong, passed_over} or {error}."""
    try:
        saver = kind(Path(asked["directory"]), to_read=True, in_memory=asked["in_memory"])
        try:
            found = saver.restart()
        finally:
            saver.close()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:400]}
    out: dict[str, Any] = {"step": found.step, "passed_over": found.passed_over[:3], "wrong": ""}
    if found.step is not None:
        out["wrong"] = states.wrong(found.state, states.make(asked["seed"], found.step, asked["kilobytes"]))
    return out


class Writer:
    """The child: saves step after step and says in the file `progress` how far it got."""

    def __init__(self, kind: type[peers.Saver], asked: dict[str, Any]) -> None:
        self.kind, self.asked = kind, asked
        self.progress = os.open(asked["progress"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, *words: object) -> None:
        os.write(self.progress, (" ".join(map(str, words)).replace("\n", " ") + "\n").encode())

    def run(self) -> None:
        saver = self.kind(Path(self.asked["directory"]), keep=self.asked["keep"], in_memory=self.asked["in_memory"])
        try:
            self.save_all(saver)
        except (KeyboardInterrupt, SystemExit) as error:  # as a program that leaves its block
            self.say("interrupted", type(error).__name__)
        try:
            saver.close()
            self.say("closed")
        except Exception as error:
            self.say("not-closed", type(error).__name__, str(error)[:300])

    def save_all(self, saver: peers.Saver) -> None:
        asked = self.asked
        step, last = asked["first"], asked["first"] + asked["steps"]
        while step < last:
            state = saver.convert(states.make(asked["seed"], step, asked["kilobytes"]))
            if step == asked["first"] + asked["before_limit"] and asked["file_limit"]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_limit"], resource.RLIM_INFINITY))
            self.say("begun", step)
            try:
                saver.save(step, state)
            except Exception as error:
                self.say("refused", step, type(error).__name__, str(error)[:300])
                break
            self.say("durable", step)
            step += 1
        if asked["goes_on"]:
            self.go_on(saver, step)

    def go_on(self, saver: peers.Saver, step: int) -> None:
        """There is room again: the same program saves the next step."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for path in self.asked["ballast"]:
            Path(path).unlink(missing_ok=True)
        for attempt in (step + 1, step + 2):
            self.say("begun", attempt)
            try:
                saver.save(attempt, saver.convert(states.make(self.asked["seed"], attempt, self.asked["kilobytes"])))
                self.say("durable", attempt)
                return
            except Exception as error:
                self.say("still-refused", attempt, type(error).__name__, str(error)[:300])


def end(number: int, frame: object) -> None:
    raise SystemExit


def write(kind: type[peers.Saver], asked: dict[str, Any]) -> dict[str, Any]:
    """Forks a writer: {pid}."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return {"pid": pid}
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it would save for ever
        if os.getppid() != parent:
            os._exit(status)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the trials may ignore it
        signal.signal(signal.SIGTERM, end if asked["handler"] else signal.SIG_DFL)
        Writer(kind, asked).run()
        status = 0
    except BaseException as error:
        Writer(kind, asked).say("failed", type(error).__name__, str(error)[:300])
    finally:
        os._exit(status)


def reap(asked: dict[str, Any]) -> dict[str, Any]:
    """Waits for a writer: {signal} or {status}; {hung} when the time passed and it was ended."""
    expired = threading.Event()

    def end() -> None:
        expired.set()
        os.kill(asked["pid"], signal.SIGKILL)

    timer = threading.Timer(asked["patience"], end)
    timer.start()
    _, status = os.waitpid(asked["pid"], 0)
    timer.cancel()
    if expired.is_set():
        return {"hung": True}
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"status": os.WEXITSTATUS(status)}


def main() -> int:
    # Libraries print: what the trials read is another descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        kind = peers.adapter(sys.argv[1])
        about: dict[str, Any] = {"versions": peers.versions(kind), "title": kind.title, "how": kind.how}
    except ImportError as error:
        about = {"missing": str(error)}
    print(json.dumps(about), file=answers, flush=True)
    if "missing" in about:
        return 0
    calls = {"restart": restart, "write": write}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked.pop("do")
        answer = reap(asked) if name == "reap" else calls[name](kind, asked)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
