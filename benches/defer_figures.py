"""docs/defer-fsync.md's table of measured figures, from benches/results."""

from __future__ import annotations

from typing import Any

HEAD = [
    "| | the program, ms: buffered, `fsync`, deferred | of buffered speed (bar {speed_of_buffered:.2f}) "
    "| times `fsync` (bar {times_fsync:g}) | stable over bare (bar {t3_over_bare:.2f}) |",
    "|---|---|---|---|---|",
]


def page(measured: dict[str, Any]) -> str:
    bars, disks = measured["bars"], measured["disks"]
    names = {"this disk": "the disk at hand", "60 MB/s": "the slow one"}
    rounds = " and of ".join(f"{of['rounds']} rounds on {names[disk]}" for disk, of in disks.items())
    lines = [
        f"On {measured['cores']} cores (load average before: {measured['load_before'][0]:.2g}), median of {rounds}:",
        "",
        *(line.format(**bars) for line in HEAD),
    ]
    late = []
    for disk, of in disks.items():
        for mix, found in of["mixes"].items():
            program, stable = found["t2_median_ms"], found["t3_median_ms"]
            times = ", ".join(_ms(program[way]) for way in ("buffered", "fsync", "deferred"))
            lines.append(f"| {disk}, {mix} | {times} | {' | '.join(_against(found, bar, bars[bar]) for bar in bars)} |")
            if disk == "this disk":
                late.append(stable["deferred"] - stable["bare"])
    lines += [
        "",
        f"On a fast disk the data are stable some {min(late):.0f} to {max(late):.0f} ms later than by bare writing: such a short "
        "program ends before early write-out helps, and the end still looks for its files and syncs each of them.",
        "",
    ]
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _against(found: dict[str, Any], bar: str, limit: float) -> str:
    value = found[bar]
    held = value <= limit if bar == "t3_over_bare" else value >= limit
    text = f"{value:.0f}" if value >= 20 else f"{value:.2f}"
    return text if held else f"**{text}, missed**"
