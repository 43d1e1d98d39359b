"""The trials of the program ebb_trials: on files in memory or small stores, with nothing left to luck."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from reliability.outcomes import CRASH, HANG, Count
from reliability.processes import Died, Hung, Process
from reliability.session import ROOT, Missing, Session

NAME = "ebb_trials"
HANG_S = 300.0  # between two lines
ADDRESSES = "address,undefined"  # the sanitizers that see a read or a write outside
SANITIZER = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_stack_use_after_return=1")}


def find(sanitizers: str = "") -> pathlib.Path | None:
    """The newest one that was built in this checkout with these sanitizers."""
    found = []
    for cache in ROOT.glob("build/*/CMakeCache.txt"):
        path = cache.parent / "reliability" / "cpp" / NAME
        if path.is_file() and f"EBB_SANITIZE:STRING={sanitizers}" in cache.read_text().splitlines():
            found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def run(session: Session, name: str, words: tuple[str, ...], sanitized: bool = False) -> dict[str, Any]:
    """What its trial counted, the first of `words`, with the rest as options. Raises Missing where it is not built."""
    program = find(ADDRESSES) if sanitized else session.native
    if program is None:
        how = f" -DEBB_SANITIZE={ADDRESSES}" if sanitized else ""
        raise Missing(f"{NAME} is not built (cmake -DEBB_TESTS=ON{how}, target {NAME})")
    with session.directory(name) as scratch:
        command = [program, *words, "--seed", session.seed, "--dir", scratch]
        command += ["--count", session.counts[name]] if name in session.counts else []
        command += ["--short"] if session.short else []
        with open(scratch / "errors.log", "w+b") as errors:
            with Process(*command, stderr=errors, **SANITIZER) as process:
                count = counted(session, process, 60 if session.short else HANG_S)
            errors.seek(0)
            if said := errors.read().decode(errors="replace").strip():
                session.say(said[-4000:])
        return count


def counted(session: Session, process: Process, hang_s: float) -> dict[str, Any]:
    """What it says, line by line (reliability/cpp/report.cpp). A crash or a hang is one more case."""
    count = Count(session.seed)
    by: dict[str, int] = {}
    case, done = "", False
    try:
        while not done:
            kind, _, text = process.line(hang_s).partition(" ")
            if kind == "case":
                case = text
            elif kind in ("count", "by"):
                many, _, what = text.partition(" ")
                into = count.outcomes if kind == "count" else by
                into[what] = into.get(what, 0) + int(many)
            elif kind == "violation":
                count.violate(text)
            elif kind == "say":
                session.say(text)
            done = kind == "done"
    except Hung:
        count.outcomes[HANG] += 1
        count.violate(f"it hangs: {case}")
    except Died as error:
        count.outcomes[CRASH] += 1
        count.violate(f"it crashed ({error}): {case}")
    return count.as_json() | {"by": by}
