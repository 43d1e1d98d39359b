#!/usr/bin/env python3
"""Processor time of `import ebbtide` beyond `import numpy`, and of `import ebbtide.torch` beyond `import torch` where that
is installed, in new processes that take turns.

benches/import_cost.py                             # writes benches/results/import_cost.json
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import harness

BARS = {"numpy": ("ebbtide", 30), "torch": ("ebbtide.torch", 60)}  # what is imported beyond it, and its ms
PROGRAM = "import {}, resource; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"


def seconds(packages: str) -> float:
    return float(subprocess.check_output([sys.executable, "-c", PROGRAM.format(packages)], text=True))


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=21)
    parser.set_defaults(json=harness.RESULTS / "import_cost.json")
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    rows = []
    for beside, (package, bar) in BARS.items():
        if importlib.util.find_spec(beside) is None:
            continue
        both = f"{beside}, {package}"
        for packages in (beside, both):  # their files are in the page cache, and compiled
            seconds(packages)
        pairs = [(seconds(beside), seconds(both)) for _ in range(given.repeats)]
        beyond = [whole - bare for bare, whole in pairs]
        rows += [
            harness.told(f"import {beside}", [bare for bare, _ in pairs], " s"),
            harness.Row(f"import {package} beyond it", f"at most {bar} ms", beyond, harness.at_most(bar / 1e3), " s"),
        ]
    machine["load_after"] = os.getloadavg()[0]
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
