"""What the benchmarks have in common: a row of the table, the table, the machine's description, a program's options and
what it leaves. It needs Python alone, so that recorded samples make the same table anywhere."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ENOUGH = 5  # repeats for a figure to count
MIB, GIB, GB = 1 << 20, 1 << 30, 1e9


def at_most(bar: float) -> Callable[[float], bool]:
    return lambda value: value <= bar


def at_least(bar: float) -> Callable[[float], bool]:
    return lambda value: value >= bar


def between(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high


@dataclass
class Row:
    """A figure, its bar and what was measured (each value one repeat)."""

    figure: str
    bar: str
    values: list[float]
    holds: Callable[[float], bool] | None  # of the median; None: told, not judged
    unit: str = ""
    percent: bool = False

    def text(self, value: float) -> str:
        return f"{value:.1%}" if self.percent else f"{value:.4g}{self.unit}"

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        if self.holds is None:
            return "-"
        return "holds" if self.holds(self.median) else "DOES NOT HOLD"

    def cells(self) -> tuple[str, str, str, str, str]:
        low, high = min(self.values), max(self.values)
        spread = f"{self.text(low)} .. {self.text(high)} (n={len(self.values)})"
        return self.figure, self.bar, self.text(self.median), spread, self.verdict

    def as_json(self) -> dict:
        return {
            "figure": self.figure,
            "bar": self.bar,
            "median": self.median,
            "values": self.values,
            "verdict": self.verdict,
        }


Rows = Iterable[Row | tuple[str, str]]  # or a name, and why there is no figure


def told(figure: str, values: list[float], unit: str = "", per: float = 1, percent: bool = False) -> Row:
    """A row that is not judged, of values in units of `per`."""
    return Row(figure, "(told)", values if per == 1 else [value / per for value in values], None, unit, percent)


def judged_if(judged: bool, row: Row) -> Row:
    if not judged:
        row.bar, row.holds = "(told)", None
    return row


def over(values: Iterable[float], others: Iterable[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]


def verdict(row: Row) -> str:
    """Whether it holds; too few repeats cannot say so (a count of wrong bytes is one number)."""
    few = row.holds is not None and row.bar != "0" and len(row.values) < ENOUGH
    return row.verdict + (f" (n < {ENOUGH})" if few else "")


def table(rows: Rows) -> str:
    """As text, with plain columns."""
    lines = [("figure", "bar", "median", "spread", "")]
    for row in rows:
        lines.append((*row.cells()[:4], verdict(row)) if isinstance(row, Row) else (row[0], "", "", "", row[1]))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = ["  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[4]]) for line in lines]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


@dataclass
class Figure:
    """A measurement: `command` writes JSON (with `--json`), `rows` reads it."""

    name: str
    command: Callable[[], list[str]]
    rows: Callable[[dict], Iterable[Row]]


def machine(directory: str) -> dict:
    """What the figures were taken on, as far as it bears on them."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    mounts = [line.split() for line in _lines("/proc/mounts")]
    where = Path(directory).resolve()
    holding = [fields for fields in mounts if where.is_relative_to(fields[1])]
    huge = _lines("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "file_system": max(holding, key=lambda fields: len(fields[1]))[2] if holding else "unknown",
        "disk_free_bytes": shutil.disk_usage(directory).free,
        "transparent_huge_pages": huge[0] if huge else "unknown",
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def run(figure: Figure, directory: str) -> list[Row]:
    """Runs a figure's program and keeps what it measured in results/<name>.json."""
    described = machine(directory)
    command = figure.command()
    out = RESULTS / f"{figure.name}.json"
    RESULTS.mkdir(exist_ok=True)
    partial = out.with_suffix(".partial")
    try:
        ran = subprocess.run([*command, "--json", str(partial)], stdout=subprocess.DEVNULL)
        if ran.returncode:
            raise RuntimeError(f"{command[0]} ended with {ran.returncode}")
        measured = json.loads(partial.read_text())
    finally:
        partial.unlink(missing_ok=True)
    rows = list(figure.rows(measured))
    shown = [Path(part).name if part.startswith("/") else part for part in command]  # no path of this machine
    document = {
        "figure": figure.name,
        "command": shown,
        "machine": described,
        "rows": [row.as_json() for row in rows],
        "measured": measured,
    }
    out.write_text(json.dumps(document, indent=1) + "\n")
    return rows


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(HERE / script), *arguments]


def options(what: str, repeats: int = 5) -> argparse.ArgumentParser:
    """Of a program that measures: those that each has."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--json", type=Path, help="where what was measured goes; default: the standard output")
    parser.add_argument("--dir", default="/tmp")
    parser.add_argument("--repeats", type=int, default=repeats)
    return parser


def leave(found: dict, path: Path | None) -> None:
    """What a program has measured, as JSON."""
    text = json.dumps(found, indent=1, default=str) + "\n"
    path.write_text(text) if path else print(text, end="")


def shot_figures(document: dict) -> dict:
    """What is kept of one shot in any case (docs/bench.md)."""
    intervals = sum(document["slept"]["forward_s"]) + sum(document["slept"]["backward_s"])
    blocked, bound = document["total"]["blocked_s"], document["bound"]["blocked_s"]
    return {
        "blocked_s": blocked,
        "checkpoint_blocked_s": sum(document["checkpoint"]["blocked_s"]),
        "restore_blocked_s": sum(document["restore"]["blocked_s"]),
        "bound_s": bound,
        "predicted_s": document["predicted"]["blocked_s"],
        "intervals_s": intervals,
        "excess": (blocked - bound) / (intervals + bound),
        "wall_s": document["total"]["wall_s"],
        "steady": document["machine"]["steady"],
        "wrong": document["verified"]["wrong"],
    }
