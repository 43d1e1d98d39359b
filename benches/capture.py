#!/usr/bin/env python3
"""What `ebbtide run --capture --fsync defer` saves a program that writes checkpoints as in figure 2 of the paper.

Eight processes write at once: with fsync, without (buffered), and captured, with a pool that holds it all. Medians of five
rounds; the first, in which the pool's memory is touched, is a row of its own. Writes benches/results/capture.json.

--gcore measures instead how long gdb's gcore takes to save a process of 1 GB. Writes
benches/results/capture_gcore.json.
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


IMAGE = "import os; hold = [bytearray(os.urandom(1 << 20)) for _ in range(1000)]; print(flush=True); input()"


def seconds(command: list[str], dump: pathlib.Path, sync: bool) -> float:
    """How long a command takes that writes a dump, which is then removed."""
    begin = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    if sync:
        with dump.open("rb") as file:
            os.fsync(file.fileno())
    took = time.monotonic() - begin
    dump.unlink()
    os.sync()
    return took


def gcore(directory: str) -> dict[str, object] | None:
    """A process of 1 GB, saved; None: there is no gdb."""
    if not shutil.which("gcore"):
        print("skipped: gcore is not installed (Debian's gdb)")
        return None
    with subprocess.Popen([sys.executable, "-c", IMAGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as image:
        image.stdout.readline()
        dump = pathlib.Path(directory) / f"dump.{image.pid}"
        plain = ["gcore", "-o", str(dump.with_suffix("")), str(image.pid)]
        captured = [str(HELPER), directory, str(2 * POOL), "defer", str(LIBRARY), str(HELPER), *plain]
        times: dict[str, list[float]] = {"fsync": [], "buffered": [], "captured, with its end": []}
        for _ in range(ROUNDS - 1):
            times["fsync"].append(seconds(plain, dump, True))
            times["buffered"].append(seconds(plain, dump, False))
            times["captured, with its end"].append(seconds(captured, dump, False))
        image.stdin.close()
    return {
        "pool_bytes": 2 * POOL,
        "rounds": ROUNDS - 1,
        "median_s": {name: round(statistics.median(some), 2) for name, some in times.items()},
        "rounds_s": {name: [round(one, 2) for one in some] for name, some in times.items()},
    }


def main() -> None:
    """Measures both mixes, or gcore."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=str(HERE.parent / "build"), help="where the files are written")
    parser.add_argument("--out", help="the result, instead of a file of benches/results")
    parser.add_argument("--gcore", action="store_true", help="save a process of 1 GB by gcore instead")
    given = parser.parse_args()
    out = pathlib.Path(given.out or HERE / "results" / ("capture_gcore.json" if given.gcore else "capture.json"))
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="capture-", dir=given.dir) as directory:
        if given.gcore:
            found = gcore(directory)
        else:
            program = pathlib.Path(directory) / "program"
            subprocess.run(["g++", "-std=c++20", "-O2", HERE / "capture_program.cpp", "-o", program], check=True)
            mixes = {mix: measure(program, mix, directory) for mix in ("LU.C.64", "BT.C.64")}
            found = {"processes": PROCESSES, "pool_bytes": POOL, "rounds": ROUNDS - 1, "mixes": mixes}
    if found is None:
        return
    result = {
        "cores": os.cpu_count(),
        "load_before": [round(value, 2) for value in load],
        "load_after": [round(value, 2) for value in os.getloadavg()],
        **found,
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
