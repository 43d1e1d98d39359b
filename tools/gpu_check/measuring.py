"""Runs the GPU's benchmark programs; what they measured goes into the session's sections."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from .session import ROOT, Failed, Session

sys.path.insert(0, str(ROOT / "benches"))
import gpu_figures

SIZE = 128 << 20  # bytes of a checkpoint
MARGIN = 20.0  # seconds kept of a stage's time: for the shots' bounds and the table


def program(session: Session, name: str, *arguments: object) -> dict:
    """One run of a C++ program."""
    return taken(session, session.build / "benches" / f"gpu_{name}", *arguments)


def script(session: Session, name: str, *arguments: object) -> dict:
    return taken(session, *session.python(ROOT / "benches" / f"gpu_{name}.py"), *arguments)


def taken(session: Session, *command: object) -> dict:
    name = next(Path(str(word)).name for word in command if "gpu_" in Path(str(word)).name)
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        path = Path(folder) / "taken.json"
        status = session.run(*command, "--dir", session.scratch, "--json", path)
        if status and not path.exists():
            raise Failed(f"{name} ended with {status}")
        found = json.loads(path.read_text())
        if status:
            session.fail(f"{name} ended with {status}; what it had measured is kept")
        return found


def measure(session: Session, name: str) -> None:
    """The section `name`; that it could not be had is told in its place, too."""
    try:
        found = SECTIONS[name](session)
    except (Failed, OSError, ValueError) as error:
        gpu_figures.merge(session.measured, {name: {"failed": str(error)}} if name != "shots" else {})
        raise Failed(str(error)) from error
    gpu_figures.merge(session.measured, {name: found})


def memory(session: Session) -> dict:
    """A process each: a context is made once in it."""
    return by_name(session, "memory", *common(session))


def peers(session: Session) -> dict:
    """With fewer than two GPUs, or without NVLink between them, the reason alone: that is no failure."""
    divide = session.options.divide
    found = program(
        session, "peers", *repeated(session), "--burst", (8 << 30) // divide, "--relay", (4 << 30) // divide
    )
    reason = found.get("nothing_measured")
    return {"failed": reason} if reason else found


def by_name(session: Session, name: str, *arguments: object) -> dict:
    """Several runs of a program that gives one value a name."""
    found = defaultdict(list)
    for _ in range(session.options.repeats):
        for key, value in program(session, name, *arguments).items():
            found[key].append(value)
    return dict(found)


def shots(session: Session) -> dict:
    given = session.options
    budget = session.left() - MARGIN
    return script(session, "shots", "--device", given.device, "--budget", f"{budget:.0f}", "--repeats", given.repeats,
                  "--groups", given.shots_groups, "--cases", given.shots_cases, "--divide", given.divide)  # fmt: skip


def init(session: Session) -> dict:
    """Its whole document stays in `out`, for more runs to be added (benches/init.py --samples)."""
    given = session.options
    if not (session.build / "benches" / "init").exists():
        raise Failed(f"benches/init is not built in {session.build}: give the stage build in the same call")
    path = session.out / "init.json"
    path.unlink(missing_ok=True)
    status = session.run(*session.python(ROOT / "benches" / "init.py"), "--build", session.build, "--json", path,
                         "--device", "cpu" if given.device == "cpu" else "cuda",
                         "--budget", f"{session.left() - MARGIN:.0f}", *shlex.split(given.init))  # fmt: skip
    if not path.exists():
        raise Failed(f"init.py ended with {status}")
    if status:
        session.fail(f"init.py ended with {status}; what it had measured is kept")
    return json.loads(path.read_text())["measured"]


def common(session: Session) -> list[object]:
    return ["--device", session.options.device, "--size", SIZE // session.options.divide]


def repeated(session: Session) -> list[object]:
    return [*common(session), "--repeats", session.options.repeats]


SECTIONS = {
    "calls": lambda session: program(session, "calls", *repeated(session)),
    "python_calls": lambda session: script(session, "calls", *repeated(session)),
    "links": lambda session: program(session, "links", *repeated(session)),
    "peers": peers,
    "files": lambda session: program(session, "files", "--repeats", max(7, session.options.repeats)),
    "memory": memory,
    "digest": lambda session: by_name(session, "digest"),
    "init": init,
    "shots": shots,
}
