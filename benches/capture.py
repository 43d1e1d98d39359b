#!/usr/bin/env python3
"""What `ebbtide run --capture --fsync defer` saves a program that writes checkpoints as in figure 2 of the paper.

Eight processes write at once: with fsync, without (buffered), and captured, with a pool that holds it all. Medians of five
rounds; the first, in which the pool's memory is touched, is a row of its own. Writes benches/results/capture.json.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import ebbtide

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(ebbtide.__file__).parent
HELPER, LIBRARY = PACKAGE / "ebbtide-capture", PACKAGE / "libebbtide_capture.so"
PROCESSES, ROUNDS, POOL = 8, 6, 1 << 30


def rounds(program: pathlib.Path, mix: str, sync: str, captured: bool, directory: str) -> list[float]:
    """t2 - t1 of each round, in milliseconds."""
    words = [str(program), mix, str(PROCESSES), str(ROUNDS), sync, directory]
    if captured:
        words = [str(HELPER), directory, str(POOL), "defer", str(LIBRARY), str(HELPER), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines()]


def measure(program: pathlib.Path, mix: str, directory: str) -> dict[str, object]:
    """One mix: medians in milliseconds, and the ratios of this run."""
    found = {
        "fsync": rounds(program, mix, "fsync", False, directory),
        "buffered": rounds(program, mix, "buffered", False, directory),
        "captured": rounds(program, mix, "fsync", True, directory),
    }
    medians = {name: round(statistics.median(times[1:]), 1) for name, times in found.items()}
    return {
        "median_ms": medians,
        "first_round_ms": {name: round(times[0], 1) for name, times in found.items()},
        "rounds_ms": {name: [round(time, 1) for time in times[1:]] for name, times in found.items()},
        "over_fsync": round(medians["fsync"] / medians["captured"], 2),
        "over_buffered": round(medians["buffered"] / medians["captured"], 2),
    }


def main() -> None:
    """Measures both mixes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=str(HERE.parent / "build"), help="where the files are written")
    parser.add_argument("--out", default=str(HERE / "results" / "capture.json"))
    given = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="capture-", dir=given.dir) as directory:
        program = pathlib.Path(directory) / "program"
        subprocess.run(["g++", "-std=c++20", "-O2", HERE / "capture_program.cpp", "-o", program], check=True)
        mixes = {mix: measure(program, mix, directory) for mix in ("LU.C.64", "BT.C.64")}
    result = {
        "processes": PROCESSES,
        "pool_bytes": POOL,
        "rounds": ROUNDS - 1,
        "cores": os.cpu_count(),
        "load_before": [round(value, 2) for value in load],
        "load_after": [round(value, 2) for value in os.getloadavg()],
        "mixes": mixes,
    }
    pathlib.Path(given.out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
