"""The last chapter of docs/veloc.md, made of benches/results/veloc.json and gpu_veloc.json, and the rows with their bars."""

from __future__ import annotations

from typing import Any

import gpu_veloc
import harness
from harness import Row, at_least, at_most, over, told


def less(values: list[float], others: list[float]) -> list[float]:
    return [one - other for one, other in zip(values, others, strict=True)]


def rows(found: dict[str, Any]) -> list[Row]:
    """Of the parts that were measured."""
    table: list[Row] = []
    parts = found["parts"]
    if part := parts.get("calls"):
        checkpoint = less(part["checkpoint_us"], part["store_checkpoint_us"])
        restart = less(part["restart_us"], part["store_restore_us"])
        table += [
            Row("`VELOC_Checkpoint` of 4 KiB, beyond the store's own call", "<= 2 µs", checkpoint, at_most(2), " µs"),
            Row("`VELOC_Restart` of 4 KiB, beyond the store's own call", "<= 2 µs", restart, at_most(2), " µs"),
        ]
    if part := parts.get("regions"):
        ratio = over(part["many_us"], part["one_us"])
        table.append(Row("64 regions of 1 KiB over one of 64 KiB", "<= 1.2", ratio, at_most(1.2)))
    if part := parts.get("restart-test"):
        first, again = ([value * 1e3 for value in part[name]] for name in ("first_s", "again_s"))
        table += [
            Row(
                "`VELOC_Restart_test`, 1,000 versions, 4 ranks, after `VELOC_Init`",
                "<= 50 ms",
                first,
                at_most(50),
                " ms",
            ),
            Row("the same, again", "<= 50 ms", again, at_most(50), " ms"),
            told("`VELOC_Init` there", [value * 1e3 for value in part["init_s"]], " ms"),
        ]
    if part := parts.get("stencil"):
        ratio = over(part["plain_s"], part["ours_s"])
        table += [
            Row("stencil, `async`: blocked by write, fsync and rename, over ours", ">= 5", ratio, at_least(5)),
            told("the same: blocked by write, fsync and rename", part["plain_s"], " s"),
            told("the same: blocked by ours", part["ours_s"], " s"),
        ]
    if part := parts.get("sync"):
        write, read = over(part["sync_s"], part["bare_write_s"]), over(part["bare_read_s"], part["restart_s"])
        table += [
            Row("`sync` without `persistent`, over bare O_DIRECT of the same bytes", "<= 1.15", write, at_most(1.15)),
            Row("`VELOC_Restart` there: bare reading over it", ">= 0.9", read, at_least(0.9)),
            told("`VELOC_Restart_test` before it, which reads all", part["restart_test_s"], " s"),
        ]
    if part := parts.get("sync-persistent"):
        twice = over(part["sync_s"], [2 * value for value in part["bare_write_s"]])
        read = over(part["bare_read_s"], part["restart_s"])
        table += [
            told("`sync` with a `persistent` on the same disk, over bare O_DIRECT of the bytes twice", twice),
            told("`VELOC_Restart` there: bare reading over it", read),
        ]
    return table


def line(row: Row) -> str:
    figure, bar, median, spread, _ = row.cells()
    return f"| {figure} | {bar} | {median} | {spread} | {harness.verdict(row)} |"


def page(document: dict[str, Any], on_gpu: dict[str, Any]) -> str:
    """The chapter of docs/veloc.md. `on_gpu`: what benches/gpu_veloc.py measured."""
    machine = document["machine"]
    lines = [
        "`benches/veloc.py` measures, with four ranks of 128 MiB unless a row says otherwise, and times of the slowest rank. "
        "Ratios are of turns beside each other in one run, on a disk that other programs use too "
        f"({machine['cpus']} processors, a load of {machine['load_before']:.0f} before). *Bare*: requests of 1 MiB by eight threads of "
        "each rank, past the page cache, to a file that is allocated anew and synced at the end.",
        "",
        "| what | bar | median | spread | |",
        "|---|---|---|---|---|",
    ]
    for row in rows(document["measured"]):
        lines.append(line(row))
    caches = [f"{on_gpu[name] / harness.GIB:g}" for name in ("device_cache", "host_cache")]
    lines += [
        "",
        f"On one GPU, `benches/gpu_veloc.py`: Listing 1 of the paper's program ({on_gpu['checkpoints']} checkpoints of "
        f"{on_gpu['size'] / harness.MIB:g} MiB, caches of {' and '.join(caches)} GiB) beside `ebbtide bench shot`, which keeps nothing "
        "in files that outlive it, and beside a shot of a persistent store, as that of VELOC's calls is.",
        "",
        "| what | bar | median | spread | |",
        "|---|---|---|---|---|",
    ]
    lines += [line(row) for row in gpu_veloc.rows(on_gpu) if row.holds or row.figure.endswith(("wall", "blocked"))]
    return "\n".join(lines) + "\n"
