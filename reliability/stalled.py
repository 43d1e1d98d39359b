"""A file system that stops answering while a store writes to it, and one that answers again."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reliability import outcomes
from reliability.outcomes import Count
from reliability.programs import Program
from reliability.session import Clock, Missing, Session
from reliability.signals import checked

LIMIT_S = 1.0  # that the calls are given
GRACE_S = 3.0  # how much later they may come back on a busy machine
LONG_S = 20.0
IN_TIME, DRAINED = (outcomes.CLEAR_ERROR,), (outcomes.EXACT,)


class PassedOn:
    """A mounted file system that passes everything on to a directory, and the process that serves it."""

    def __init__(self, area: Path) -> None:
        self.behind, self.mounted = area / "behind", area / "mounted"
        self.behind.mkdir(mode=0o700)
        self.mounted.mkdir(mode=0o700)
        self.plug_in()

    def plug_in(self) -> None:
        program = Path(__file__).with_name("fuse_server.py")
        command = [sys.executable, str(program), str(self.behind), str(self.mounted)]
        self.server = subprocess.Popen(command, stderr=subprocess.PIPE)
        clock = Clock()
        while not os.path.ismount(self.mounted):
            if self.server.poll() is not None or clock() > 10:
                raise Missing(f"no FUSE file system can be mounted: {self.server.communicate()[1].decode()[-200:]}")
            time.sleep(0.01)

    def unplug(self) -> None:
        if self.server.poll() is None:
            self.server.kill()  # the kernel then ends what is asked of it with an error
        self.server.communicate()
        subprocess.run(["umount", "-l", str(self.mounted)], check=False, capture_output=True)


@contextmanager
def passed_on(area: Path) -> Iterator[PassedOn]:
    if importlib.util.find_spec("mfusepy") is None:
        raise Missing("mfusepy is not installed")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Missing("/dev/fuse cannot be used here")
    there = PassedOn(area)
    try:
        yield there
    finally:
        there.unplug()


def trial(session: Session) -> Count:
    count = Count(session.seed)
    for _ in range(session.count("stalled", 5, 1)):
        for answers_again in (False, True):
            with session.directory("stalled") as area:
                one(session, count, area, answers_again)
    return count


def one(session: Session, count: Count, area: Path, answers_again: bool) -> None:
    limit = LONG_S if answers_again else LIMIT_S
    must = DRAINED if answers_again else IN_TIME
    when = "it answers again" if answers_again else "it stays silent"
    with passed_on(area) as there:
        mounted, server = there.mounted, there.server.pid
        given = {"directory": str(mounted / "store"), "seed": session.seed, "timeout": limit, "close_timeout": limit}
        with Program("stall", **given) as program:
            if program.read(until="ready") is None:
                raise RuntimeError(f"no store could be made there: {program.said}, {program.process.poll()}")
            stop(server)
            try:
                program.tell()
                if answers_again:
                    time.sleep(0.5)
                    os.kill(server, signal.SIGCONT)
                for call in ("wait", "close"):
                    outcome, told = answer(program, call, limit, str(mounted))
                    count.add(outcome, f"{call}, {when}", told if outcome != outcomes.CLEAR_ERROR else "")
                    count.hold(must, outcome, f"{call}, {when}: {told}")
                    if outcome == outcomes.HANG:
                        break  # the next call has not begun
            finally:
                os.kill(server, signal.SIGCONT)
            status = program.end()
            outcome = outcomes.HANG if status is None else outcomes.CRASH if status < 0 else outcomes.EXACT
            count.add(outcome, f"the process ends, {when}")
            count.hold(DRAINED, outcome, f"the process ends, {when}: {status}")
        outcome, told = checked(mounted / "store", session.seed, 1 if answers_again else 0)
        count.add(outcome, f"restart, {when}", told)
        count.hold(DRAINED, outcome, f"restart, {when}: {told}")


def stop(server: int) -> None:
    """Until each of its threads has stopped: one that has not been told yet would still answer."""
    os.kill(server, signal.SIGSTOP)
    clock = Clock()
    while not all(state == "T" for state in states_of(server)):
        if clock() > 10:
            raise RuntimeError("the server of the file system does not stop")
        time.sleep(0.001)


def states_of(process: int) -> list[str]:
    return [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{process}/task").glob("*/stat")]


def answer(program: Program, call: str, limit: float, place: str) -> tuple[str, str]:
    said = program.read(limit + GRACE_S, until="call")
    if said is None:
        return outcomes.HANG, f"no answer in {limit + GRACE_S:.0f} s to a call that was given {limit:.0f} s"
    if said["error"] is None:
        return outcomes.EXACT, ""
    if said["seconds"] > limit + GRACE_S:
        return outcomes.HANG, f"after {said['seconds']:.1f} s: {said['error']}"
    if said["kind"] != "timed_out" or ("version" not in said["error"] and place not in said["error"]):
        return outcomes.CRASH, f"an error that does not say what was waited for: {said['kind']}: {said['error']}"
    return outcomes.CLEAR_ERROR, said["error"]
