#!/usr/bin/env python3
"""Processor time of `import ebbtide` beyond `import numpy`, in new processes that take turns.

benches/import_cost.py                             # writes benches/results/import_cost.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import harness

BAR = 0.030  # s
PROGRAM = "import {}, resource; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"


def seconds(packages: str) -> float:
    return float(subprocess.check_output([sys.executable, "-c", PROGRAM.format(packages)], text=True))


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=21)
    parser.set_defaults(json=harness.RESULTS / "import_cost.json")
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    for packages in ("numpy", "numpy, ebbtide"):  # their files are in the page cache, and compiled
        seconds(packages)
    pairs = [(seconds("numpy"), seconds("numpy, ebbtide")) for _ in range(given.repeats)]
    machine["load_after"] = os.getloadavg()[0]
    rows = [
        harness.told("import numpy", [bare for bare, _ in pairs], " s"),
        harness.Row("import ebbtide beyond it", "at most 30 ms", [both - bare for bare, both in pairs], harness.at_most(BAR), " s"),
    ]  # fmt: skip
    print(harness.table(rows))
    document = {
        "figure": "import_cost",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "rows": [row.as_json() for row in rows],
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
