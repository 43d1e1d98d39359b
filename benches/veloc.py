#!/usr/bin/env python3
"""What VELOC's calls cost over what a program would do without them (veloc.cpp), with bars.

    benches/veloc.py --build build/release --dir /scratch --json benches/results/veloc.json

Ratios within one run, by turns. benches/results/veloc.json has what was measured, docs/veloc.md a table of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness
import veloc_figures
from harness import MIB

RANKS, BYTES = 4, 128 * MIB
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
# What, ranks, bytes of a rank, further options.
PARTS: dict[str, tuple[int, int, list[str]]] = {
    "calls": (1, 4096, []),
    "regions": (1, 65536, []),
    "restart-test": (RANKS, 4096, []),
    "sync": (RANKS, BYTES, []),
    "sync-persistent": (RANKS, BYTES, []),
    "stencil": (RANKS, BYTES, ["--interval-ms", "4000"]),
}


def taken(given: Any, what: str) -> dict[str, list[float]]:
    """One part, in a directory of its own."""
    ranks, size, more = PARTS[what]
    size //= given.divide if size == BYTES else 1
    with tempfile.TemporaryDirectory(prefix="veloc-", dir=given.dir) as directory:
        out = Path(directory) / "taken.json"
        words = ["mpirun", "-n", str(ranks), str(given.build / "benches" / "veloc"), "--what", what, "--dir", directory]
        words += ["--json", str(out), "--bytes", str(size), "--repeats", str(given.repeats), *more]
        subprocess.run(words, check=True, timeout=900, env=os.environ | MPI, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def main() -> int:
    """Measures, and ends with the table."""
    options = harness.options(__doc__ or "")
    options.add_argument("--build", type=Path, default=harness.HERE.parent / "build" / "release")
    options.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="PART")
    options.add_argument("--divide", type=int, default=1, help="the large sizes by this, to try it out")
    given = options.parse_args()
    document: dict[str, Any] = {"figure": "veloc", "machine": harness.machine(given.dir), "measured": {"parts": {}}}
    if given.json and given.json.exists() and set(given.only) != set(PARTS):  # the other parts stay as they were
        document["measured"] = json.loads(given.json.read_text())["measured"]
    for what in given.only:
        print(f"{what} ...", file=sys.stderr, flush=True)
        document["measured"]["parts"][what] = taken(given, what)
        found = veloc_figures.rows(document["measured"])
        document["rows"] = [row.as_json() for row in found]
        harness.leave(document, given.json)
    print(harness.table(veloc_figures.rows(document["measured"])))
    return (
        0 if all(row.holds is None or row.holds(row.median) for row in veloc_figures.rows(document["measured"])) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
