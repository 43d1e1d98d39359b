#!/usr/bin/env python3
"""Counts what calls cost in instructions and allocations, and compares it with benches/results/instructions.json.

  tools/instructions.py            # ends with 1 if a count has grown by more than 2%
  tools/instructions.py --record   # records the counts: a commit that does so says why they changed

`benches/instructions.cpp` makes the calls, and callgrind (Debian's valgrind) counts: the calling thread alone, in Release
without -march=native (build/release). Each count is the median of three rounds. Counts of other versions of the compiler,
the C library or valgrind are not compared.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "release"
RECORDED = ROOT / "benches" / "results" / "instructions.json"
MOST_GROWTH = 0.02
# What the C library chooses by the processor is the same everywhere, and no call is the first to look up a function.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-BMI2,-SSE4_2,-SSE4_1,-SSSE3",
    "LD_BIND_NOW": "1",
}


@dataclasses.dataclass
class Counts:
    tools: dict[str, str]
    calls: dict[str, float]  # of one call: its instructions, and how often it takes memory


def absent() -> str | None:
    """Why nothing can be counted here."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if "EBB_CALLGRIND:PATH=EBB_CALLGRIND-NOTFOUND" in (TREE / "CMakeCache.txt").read_text():
        return "valgrind's headers were not installed when build/release was configured"
    return None


def count() -> Counts:
    """Builds the program and runs it, for some seconds."""
    subprocess.run(["cmake", "--build", TREE, "--target", "bench_instructions"], check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="instructions-") as scratch:
        out = pathlib.Path(scratch) / "out"
        callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
        quiet = ["--quiet", "--fair-sched=try", f"--callgrind-out-file={out}"]
        said = subprocess.run(
            [*callgrind, *quiet, TREE / "benches" / "instructions"],
            env={**os.environ, **ENVIRONMENT}, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
        rounds = collections.defaultdict(list)
        for file in sorted(pathlib.Path(scratch).iterdir()):
            text = file.read_text(errors="replace")
            if row := re.search(r"^desc: Trigger: Client Request: (\d+) (\d+) (.*)$", text, re.MULTILINE):
                summary = re.search(r"^summary: (\d+)$", text, re.MULTILINE)
                rounds[row[3]].append(int(summary[1]) / int(row[1]))
                rounds[f"allocations, {row[3]}"].append(int(row[2]) / int(row[1]))
    valgrind = subprocess.run(["valgrind", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    tools = {**json.loads(said), "valgrind": valgrind.strip().removeprefix("valgrind-"), "machine": platform.machine()}
    return Counts(tools, {row: round(statistics.median(counts), 1) for row, counts in sorted(rounds.items())})


def recorded() -> Counts:
    return Counts(**json.loads(RECORDED.read_text()))


def not_comparable(before: Counts, now: Counts) -> str | None:
    differ = [f"{tool} {now.tools.get(tool)} here, {value} recorded"
              for tool, value in before.tools.items() if now.tools.get(tool) != value]  # fmt: skip
    return "; ".join(differ) or None


def growth(now: float, was: float | None) -> str:
    if was is None:
        return "new"
    return f"{now / was - 1:+.1%}" if was else f"{now:+.1f}"


def compare(before: Counts, now: Counts) -> dict[str, str | None]:
    """For each row what is wrong with it, if anything."""
    found = {}
    for row in sorted({*before.calls, *now.calls}):
        was, is_now = before.calls.get(row), now.calls.get(row)
        if was is None or is_now is None:
            found[row] = f"{row}: {'not recorded' if was is None else 'recorded, and not counted any more'}"
        elif is_now > was * (1 + MOST_GROWTH):
            found[row] = f"{row}: {is_now:,.1f}, {was:,.1f} recorded ({growth(is_now, was)})"
        else:
            found[row] = None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write what was counted to benches/results")
    arguments = parser.parse_args()
    if why := absent():
        print(f"tools/instructions.py: {why}", file=sys.stderr)
        return 2
    now = count()
    before = recorded() if RECORDED.exists() else Counts({}, {})
    for row, counted in now.calls.items():
        print(f"{counted:10,.1f} {growth(counted, before.calls.get(row)):>7}  {row}")
    if arguments.record:
        RECORDED.write_text(json.dumps(dataclasses.asdict(now), indent=1) + "\n")
        return 0
    if why := not_comparable(before, now):
        print(f"not compared: {why}")
        return 0
    wrong = [what for what in compare(before, now).values() if what]
    for what in wrong:
        print(f"FAILED: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
