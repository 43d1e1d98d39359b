"""docs/bench.md's table of many small versions, from benches/results."""

from __future__ import annotations

from typing import Any

ROWS = (
    ("processor of a persistent checkpoint, from Python", "processor_us", "µs", 20),
    ("what a store knows of a version, with files and a host cache", "memory_bytes", "B", 1000),
    ("the same once it is only in files", "open_memory_bytes", "B", 300),
    ("in the files", "disk_bytes", "B", None),
    ("in a host cache that holds all, with what is known", "held_bytes", "B", None),
    ("in a node's pool: known in the process", "pool_memory_bytes", "B", 1000),
    ("in a node's pool: known in the agent", "agent_memory_bytes", "B", None),
    ("opening after a clean close", "open_s", "s", 1),
    ("its processor time", "open_processor_s", "s", None),
    ("resident after it", "open_rss_mib", "MiB", 1431),
)


def page(measured: dict[str, Any]) -> str:
    figures = measured["figures"]
    lines = [
        f"One run of {measured['versions']:,} versions (load {measured['load']:.1f} before it; `benches/results/small_versions.json`):",
        "",
        "| | measured | at most | |",
        "|---|---|---|---|",
    ]
    for what, key, unit, bar in ROWS:
        holds = "" if bar is None else "holds" if figures[key] <= bar else "DOES NOT HOLD"
        lines.append(f"| {what} | {figures[key]:,.4g} {unit} | {f'{bar:,} {unit}' if bar else ''} | {holds} |")
    return "\n".join(lines) + "\n"
