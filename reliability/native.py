"""The trials of the program ebb_trials: on files in memory or small stores, with nothing left to luck."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

from reliability.outcomes import OUTCOMES
from reliability.session import ROOT, Missing, Session

NAME = "ebb_trials"
LIMIT_S, HANG_S = 2 * 3600, 300
ADDRESSES = "address,undefined"  # the sanitizers that see a read or a write outside


def find(sanitizers: str = "") -> pathlib.Path | None:
    """The newest one that was built in this checkout with these sanitizers."""
    found = []
    for cache in ROOT.glob("build/*/CMakeCache.txt"):
        path = cache.parent / "reliability" / "cpp" / NAME
        if path.is_file() and f"EBB_SANITIZE:STRING={sanitizers}" in cache.read_text().splitlines():
            found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def run(session: Session, name: str, words: tuple[str, ...], sanitized: bool = False) -> dict[str, Any]:
    """What its trial counted, the first of `words`, with the rest as options.

    Raises Missing where it is not built, RuntimeError when it gives no count.
    """
    program = find(ADDRESSES) if sanitized else session.native
    if program is None:
        how = f" -DEBB_SANITIZE={ADDRESSES}" if sanitized else ""
        raise Missing(f"{NAME} is not built (cmake -DEBB_TESTS=ON{how}, target {NAME})")
    with session.directory(name) as scratch:
        out = scratch / "counts.json"
        store = scratch / "stores"
        store.mkdir(mode=0o700)
        command = [program, *words, "--hang", HANG_S, "--seed", session.seed, "--dir", store, "--json", out]
        command += ["--count", session.counts[name]] if name in session.counts else []
        command += ["--short"] if session.short else []
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace",
                               timeout=LIMIT_S,
                               env=os.environ | {"ASAN_OPTIONS": "detect_stack_use_after_return=1"})  # fmt: skip
        if not out.exists():
            raise RuntimeError(
                f"{NAME} {words[0]} ended with {ended.returncode}: {(ended.stderr or ended.stdout)[-300:]}"
            )
        found = json.loads(out.read_text())
    outcomes = {name: found["outcomes"].get(name, 0) for name in OUTCOMES}
    violations = found.get("violations", [])
    if ended.returncode and not violations:
        violations = [f"{NAME} {words[0]} ended with {ended.returncode}: {ended.stderr[-200:]}"]
    return {
        "count": found["count"],
        "seed": found["seed"],
        "outcomes": outcomes,
        "by": found.get("by", {}),
        "told": {},
        "violations": violations,
    }
