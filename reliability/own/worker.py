#!/usr/bin/env python3
"""A process that plays cases of own/case.py, each in a process forked for it, and has others look at what they left.

As a program it plays the cases of the seeds that it is given, and prints what they did:

  python reliability/own/worker.py 1234         # that case again
  python reliability/own/worker.py 1000-1999    # many: one line for each that is not as it must be
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # not this folder, whose names are common

from reliability import outcomes
from reliability.own import arrays, case, check, themes

LIMIT_S = 30.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SHOWN = 60  # lines of a case, of the last that it said


def forked(area: pathlib.Path, seed: int, work: Any) -> tuple[int, str, str]:
    """(process group, what became of it, what it said on stderr); "" is an ordinary end."""
    log, parent = area / f"{work.__module__.rpartition('.')[2]}.log", os.getpid()
    pid = os.fork()
    if pid == 0:
        child(log, seed, area, work, parent)
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        pass  # it has done so, or ended
    ready, _, _ = select.select([ended := os.pidfd_open(pid)], [], [], LIMIT_S)
    os.close(ended)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    what = "hang" if not ready else f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
    return pid, what or (f"status {os.WEXITSTATUS(status)}" if status else ""), log.read_text(errors="replace")


def child(log: pathlib.Path, seed: int, area: pathlib.Path, work: Any, parent: int) -> None:
    """Does the work, and ends this process."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.dup2(null := os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(null, 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(LIMIT_S - 2, file=2)
    try:
        work(seed, area)
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(3)


def play(seed: int, area: pathlib.Path) -> dict[str, Any]:
    """{outcome, kind, breaches, told, lines} of one case."""
    groups = []
    found: dict[str, Any] = {"outcome": outcomes.EXACT, "breaches": [], "told": [], "lines": []}
    try:
        for work in (case.play, check.look):
            if work is check.look and (area / "verdict").exists():
                break  # an ephemeral store left nothing to look at
            group, what, said = forked(area, seed, work)
            groups.append(group)
            killed_itself = work is case.play and what == f"signal {int(signal.SIGKILL)}" and (area / "report").exists()
            if what and not killed_itself:
                found["outcome"] = outcomes.HANG if what == "hang" else outcomes.CRASH
                found["breaches"] = [(found["outcome"], f"{what}: {trouble(said)}")]
                found["lines"] = said.splitlines()
                break
        if (area / "verdict").exists() and not found["breaches"]:
            found = json.loads((area / "verdict").read_text())
    finally:
        for group in groups:
            end_of(group)
    return found | {"kind": themes.theme_of(seed), "lines": found["lines"][-SHOWN:]}


def trouble(said: str) -> str:
    """The line of an error's end, or of what was called when a signal came."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    inside = [line for line in lines if line.startswith("File")]
    return f"{inside[0] if inside else ''} {lines[-1] if lines else ''}"[:200] if lines else ""


def end_of(group: int) -> None:
    """The children that a case left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    while True:
        try:
            os.waitpid(-group, 0)
        except (ChildProcessError, ProcessLookupError):
            return


def ready() -> None:
    warnings.filterwarnings("ignore")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for name in ("torch", "jax", "numpy.ma", "ebbtide.commands.verify", "ebbtide.commands.store"):
        arrays.module(name)
    gc.collect()
    gc.freeze()  # what is loaded here is no part of any case, and need not be looked through in each


def answer() -> None:
    """Requests as lines of JSON: {seed, area}; the answers likewise."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    absent = [name for name in ("torch", "jax") if arrays.module(name) is None]
    print(json.dumps({"absent": absent}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(play(asked["seed"], pathlib.Path(asked["area"]))), file=answers, flush=True)


def main() -> int:
    ready()
    if sys.argv[1:] == ["--answer"]:
        answer()
        return 0
    bad = 0
    base = ROOT / "build" / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    for text in sys.argv[1:]:
        first, _, last = text.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            area = pathlib.Path(tempfile.mkdtemp(prefix="own-", dir=base))
            found = play(seed, area)
            shutil.rmtree(area, ignore_errors=True)
            bad += bool(found["breaches"])
            if not last:
                print("\n".join(found["lines"]))
            if found["breaches"] or not last:
                what = "; ".join(": ".join(one) for one in found["breaches"][:3])
                print(f"{seed} {found['kind']}: {found['outcome']} {what}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
