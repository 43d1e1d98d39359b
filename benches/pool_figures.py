"""The last chapter of docs/node.md, made of benches/results/pool.json."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
BARS = {"LU.C.64": 2.23, "BT.C.64": 2.62}  # over fsync, with overflow: wag-dbi, Table II


def rows(found: list[dict[str, Any]]) -> list[str]:
    text = [
        "| mix | pool | `node_overflow` | bound | fsync | buffered | ours | of the bound | over fsync | over buffered |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        ours = one["ours_ms"]
        ratios = [one[name] / ours for name in ("bound_ms", "fsync_ms", "buffered_ms")]
        times = [f"{one[name]:.0f} ms" for name in ("bound_ms", "fsync_ms", "buffered_ms", "ours_ms")]
        named = [one["mix"], f"{one['pool'] // MIB} MiB", f'`"{one["overflow"]}"`']
        text.append(f"| {' | '.join(named + times + [f'{ratio:.2f}' for ratio in ratios])} |")
    return text


def page(measured: dict[str, Any]) -> str:
    """The chapter, rows that lose included."""
    slow = measured.get("slow", [])
    loaded = ", ".join(f"{one:.1f}" for one in measured["load"])
    text = [
        "`benches/pool.py --short` (as root, for the slow disk) writes checkpoints as in figure 2 of the paper on write aggregation: "
        f"{measured['processes']} processes on {measured['processors']} processors, two mixes of sizes, each process a file, "
        'all at once. The time is from when the first begins until the last has closed its file (and has it at `"node"`), '
        f"medians of {measured['rounds']} rounds. The load of the machine was {loaded} before and after"
        + (f", and all ran at nice {measured['nice']}, the agent at 10 more." if measured["nice"] else ".")
        + " *Bound*: what no design that keeps to the pool can beat, max(D/c, (D - P)/w) with D bytes of checkpoints, pool P, "
        "and the rates c of copying into memory and w of bare writing in the same run; through the page cache it can be beaten. "
        "Of the bound, over fsync and over buffered: how many times as fast ours is. *Buffered* promises nothing.",
        "",
        *rows(measured["fast"]),
        "",
    ]
    if slow:
        text += [
            "The same on a disk that writes 60 MB/s (ext4 on a loop device over a file of a FUSE file system, "
            f"`benches/slow_disk.py`), medians of {measured['slow_rounds']}:",
            "",
            *rows(slow),
            "",
        ]
    text += [
        "How much longer a program runs with three checkpoints, half a second of computing before each:",
        "",
        "| mix | pool | fsync | ours | ours over fsync |",
        "|---|---|---|---|---|",
    ]
    for one in measured["slow_down"]:
        text.append(
            f"| {one['mix']} | {one['pool'] // MIB} MiB | {one['fsync_percent']:.1f}% | {one['ours_percent']:.1f}% "
            f"| {one['ours over fsync']:.2f} |"
        )
    ten = measured["tenfold"]
    most = max(one["private_mib"] for one in measured["fast"])
    text += [
        "",
        "One of four processes that writes 36 checkpoints of 64 MiB while the others write 4 is blocked for "
        f"{ten['pooled over own']:.2f} of the time in one pool of 4 GiB that it is with four caches of 1 GiB. A process has "
        f"at most {most:.1f} MiB of private memory for its part in the pool after {measured['rounds'] + 3} checkpoints, "
        "of which it drops none.",
        "",
    ]
    return "\n".join(text)
