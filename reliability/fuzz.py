"""libFuzzer with the address sanitizer, on what reads a record, an index and a configuration (tests/fuzz)."""

from __future__ import annotations

import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from reliability.outcomes import CLEAR_ERROR, CRASH, HANG, Count
from reliability.session import ROOT, Missing, Session

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import corpus as archives  # noqa: E402

FOUND = ROOT / "build" / "fuzz-found"  # what made a target crash or hang, to be looked at
MUST = (CLEAR_ERROR,)
SECONDS = 600
ONE_INPUT_S = 25
CORPUS_BYTES = 300 << 10  # of each target
_RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def program(target: str) -> pathlib.Path:
    found = [path for path in ROOT.glob(f"build/*/tests/fuzz/fuzz_{target}") if os.access(path, os.X_OK)]
    if not found:
        raise Missing(f"fuzz_{target} is not built (clang, cmake -DEBB_TESTS=ON -DEBB_FUZZ=ON)")
    return max(found, key=lambda path: path.stat().st_mtime)


def processor() -> float:
    """Seconds that it gave to the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ran(command: list[object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace")


def was_held_up(fuzzer: pathlib.Path, path: pathlib.Path) -> bool:
    """An input that took too long and by itself does not: the machine stood still. It is forgotten."""
    held_up = path.name.startswith("timeout") and not ran([fuzzer, f"-timeout={ONE_INPUT_S}", path]).returncode
    if held_up:
        path.unlink()
    return held_up


def trial(target: str) -> Callable[[Session], dict[str, Any]]:
    """The trial of this target. Its count on the command line is seconds that the processor gave it: a machine that is
    busy or stands still makes it longer, and not less."""

    def run(session: Session) -> dict[str, Any]:
        fuzzer, name = program(target), f"fuzz_{target}"
        count, limit = Count(session.seed), session.count(name, SECONDS, 5)
        begin, used, runs = time.monotonic(), processor(), 0
        with session.directory(name) as area:
            inputs, wrong = area / "inputs", area / "wrong"
            corpus = area / "corpus"
            inputs.mkdir()
            wrong.mkdir()
            archives.unpack(target, corpus)
            found: list[pathlib.Path] = []
            while not found and (left := limit - (processor() - used)) > 0:
                command = [fuzzer, f"-max_total_time={math.ceil(left)}", f"-seed={session.seed + runs}"]
                command += ["-print_final_stats=1", f"-timeout={ONE_INPUT_S}", f"-artifact_prefix={wrong}/"]
                ended = ran([*command, inputs, corpus])
                counted = _RUNS.search(ended.stderr)
                found = [path for path in sorted(wrong.iterdir()) if not path.name.startswith("slow-unit")]
                if not counted or bool(ended.returncode) != bool(found):
                    raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-300:]}")
                runs += int(counted.group(1))
                found = [path for path in found if not was_held_up(fuzzer, path)]
            seconds, used = int(time.monotonic() - begin), processor() - used
            for path in found:
                FOUND.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, FOUND / f"{name}-{path.name}")
                outcome = HANG if path.name.startswith("timeout") else CRASH
                count.add(outcome)
                count.hold(MUST, outcome, f"{path.name}: {ended.stderr[-200:]}")
            if session.keep_corpus:
                keep(fuzzer, corpus, inputs)
                archives.pack(target, corpus)
        count.outcomes[CLEAR_ERROR] += runs - len(found)
        kept = archives.sizes(target)
        return count.as_json() | {
            "by": {"seconds": seconds, "of the processor": round(used), "crashes": len(found),
                   "inputs in the corpus": len(kept), "bytes of the corpus": sum(kept)},
        }  # fmt: skip

    return run


def keep(fuzzer: pathlib.Path, corpus: pathlib.Path, inputs: pathlib.Path) -> None:
    """Makes the corpus the smallest that reaches all that it and `inputs` reach, or as much as there is room for, the
    smallest first. The seeds stay."""
    with_all = inputs.with_name("merged")
    with_all.mkdir()
    ran([fuzzer, "-merge=1", with_all, corpus, inputs]).check_returncode()
    for path in corpus.iterdir():
        if not path.name.startswith("seed"):
            path.unlink()
    kept = {path.read_bytes() for path in corpus.iterdir()}
    for path in sorted(with_all.iterdir(), key=lambda path: path.stat().st_size):
        content = path.read_bytes()
        if content not in kept and sum(map(len, kept)) + len(content) <= CORPUS_BYTES:
            kept.add(content)
            shutil.copy(path, corpus / path.name)
