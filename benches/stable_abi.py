#!/usr/bin/env python3
"""What a call costs more in the wheel for several versions of Python (the stable ABI) than in one for one version.

Builds both for Debian 13's Python, as `make wheels` builds the first, and runs call_overhead.py with them in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

sys.path.insert(0, str(harness.HERE.parent / "tools"))
from wheels import building


def installed(python: Path, name: str, *settings: str) -> Path:
    """A folder with the package, and what it needs."""
    wheel = building.build(python, name, "ON", os.cpu_count() or 1, *settings)
    folder = building.WORK / "stable_abi" / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--target",
            str(folder),
            str(wheel),
        ],
        check=True,
    )
    return folder


def measured(python: Path, packages: Path, directory: str) -> dict[str, list[float]]:
    """Microseconds a call beyond its copy, by figure."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [python, harness.HERE / "call_overhead.py", "--dir", directory, "--repeats", "5", "--json", file.name]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(packages)}, stdout=subprocess.DEVNULL)
        return json.loads(Path(file.name).read_text())


def main() -> int:
    given = harness.options(__doc__, repeats=5).parse_args()
    building.copy_tree(None)
    python = building.python_beside()
    stable = installed(python, "abi3", "wheel.py-api=cp312")
    single = installed(python, "cp313")
    found: dict[str, list[float]] = {}
    for _ in range(given.repeats):
        for kind, packages in (("one_version", single), ("stable", stable)):
            for name, values in measured(python, packages, given.dir).items():
                if isinstance(values, list):
                    found.setdefault(f"{name}_{kind}", []).append(statistics.median(values))
    for name in [name.removesuffix("_stable") for name in found if name.endswith("_stable")]:
        one, several = (statistics.median(found[f"{name}_{kind}"]) for kind in ("one_version", "stable"))
        print(f"{name}: {one:.2f} us in one for one version, {several:.2f} us in the stable one")
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
