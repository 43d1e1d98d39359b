#!/usr/bin/env python3
"""What `ebbtide run --defer-fsync` saves a program that writes checkpoints as in figure 2 of the paper.

Eight processes write a file each, all at once: buffered, with fsync, and with deferred fsync. In each round every mode
takes its turn on new files: t1, the first process begins; t2, the last has closed its file; t3, all is on stable storage.
Bare writing is the time from t1 until then of a program that writes the same bytes 4 MiB at a time and syncs. Medians of
the rounds. As root, a slow disk too: ext4 on a loop device over a file of a FUSE file system that writes 60 MB/s
(benches/slow_disk.cpp; needs Debian's libfuse3-dev). Writes benches/results/defer_fsync.json; exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import ebbtide
from slow_disk import slow_disk

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(ebbtide.__file__).parent
HELPER, LIBRARY = PACKAGE / "ebbtide-defer", PACKAGE / "libebbtide_defer.so"
PROCESSES = 8
MODES = {  # mode of the program, whether its syncs are deferred
    "buffered": ("buffered", False),
    "fsync": ("fsync", False),
    "deferred": ("fsync", True),
    "bare": ("bare", False),
}
BARS = {"speed_of_buffered": 0.95, "times_fsync": 3.0, "t3_over_bare": 1.15}


def run_once(program: pathlib.Path, mix: str, mode: str, directory: pathlib.Path) -> tuple[float, float]:
    """t2 - t1 and t3 - t1 of one run, in milliseconds."""
    sync, deferred = MODES[mode]
    at = directory / "files"
    at.mkdir()
    words = [str(program), mix, str(PROCESSES), sync, str(at)]
    if deferred:
        words = [str(HELPER), str(at), "0", str(LIBRARY), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    if mode == "buffered":
        os.sync()
    t3 = time.monotonic() * 1e3
    t1, t2 = map(float, done.stdout.split())
    shutil.rmtree(at)
    os.sync()
    return t2 - t1, t3 - t1


def measure(program: pathlib.Path, mix: str, directory: pathlib.Path, rounds: int) -> dict[str, object]:
    """One mix: medians in milliseconds, and what the bars ask for."""
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for turn in range(rounds + 1):
        for mode in MODES:
            times = run_once(program, mix, mode, directory)
            if turn:  # in the first, the page cache gets its memory
                found[mode].append(times)
    written = {mode: statistics.median(t2 for t2, _ in times) for mode, times in found.items()}
    stored = {mode: statistics.median(t3 for _, t3 in times) for mode, times in found.items()}
    return {
        "t2_median_ms": {mode: round(value, 1) for mode, value in written.items()},
        "t3_median_ms": {mode: round(value, 1) for mode, value in stored.items()},
        "rounds_ms": {mode: [[round(t2, 1), round(t3, 1)] for t2, t3 in times] for mode, times in found.items()},
        "speed_of_buffered": round(written["buffered"] / written["deferred"], 2),
        "times_fsync": round(written["fsync"] / written["deferred"], 2),
        "t3_over_bare": round(stored["deferred"] / stored["bare"], 2),
    }


def measure_all(program: pathlib.Path, directory: pathlib.Path, rounds: int) -> dict[str, object]:
    """Both mixes."""
    return {mix: measure(program, mix, directory, rounds) for mix in ("LU.C.64", "BT.C.64")}


def main() -> None:
    """Measures this disk and, if possible, a slow one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=pathlib.Path, default=HERE.parent / "build", help="where the files are written")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results" / "defer_fsync.json")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slow-rounds", type=int, default=3, help="0: without the slow disk")
    given = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="defer-", dir=given.dir) as name:
        directory = pathlib.Path(name)
        program = directory / "program"
        source = HERE / "defer_fsync_program.cpp"
        subprocess.run(["g++", "-std=c++20", "-O2", source, "-o", program], check=True)
        disks = {"this disk": {"rounds": given.rounds, "mixes": measure_all(program, directory, given.rounds)}}
        if given.slow_rounds and os.geteuid() == 0:
            with slow_disk(directory) as mounted:
                mixes = measure_all(program, mounted, given.slow_rounds)
            disks["60 MB/s"] = {"rounds": given.slow_rounds, "mixes": mixes}
    result = {
        "processes": PROCESSES,
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "load_before": [round(value, 2) for value in load],
        "load_after": [round(value, 2) for value in os.getloadavg()],
        "bars": BARS,
        "disks": disks,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    missed = 0
    for disk, found in disks.items():
        for mix, of in found["mixes"].items():
            for bar, value in BARS.items():
                held = of[bar] <= value if bar == "t3_over_bare" else of[bar] >= value
                missed += not held
                print(f"{disk}, {mix}: {bar} {of[bar]}, bar {value}{'' if held else ', MISSED'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
