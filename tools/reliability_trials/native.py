"""The trials of the program ebb_trials: on files in memory or small stores, with nothing left to luck."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from reliability_trials.outcomes import OUTCOMES
from reliability_trials.session import ROOT, Missing, Session

NAME = "ebb_trials"
LIMIT_S = 3600


def find() -> Any:
    """The newest one that was built in this checkout."""
    places = (f"build/*/{NAME}", f"build/*/*/{NAME}", f"build/*/*/*/{NAME}")
    found = [path for place in places for path in ROOT.glob(place) if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def run(session: Session, name: str, words: tuple[str, ...]) -> dict[str, Any]:
    """What its trial counted, the first of `words`, with the rest as options.

    Raises Missing where it is not built, RuntimeError when it gives no count.
    """
    if session.native is None:
        raise Missing(f"{NAME} is not built (cmake -DEBB_TESTS=ON, target {NAME})")
    with session.directory(name) as scratch:
        out = scratch / "counts.json"
        store = scratch / "stores"
        store.mkdir(mode=0o700)
        command = [session.native, *words, "--seed", session.seed, "--dir", store, "--json", out]
        command += ["--count", session.counts[name]] if name in session.counts else []
        command += ["--short"] if session.short else []
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S)
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
