"""What benches/snapshots measured: its rows of the table of figures, and the last chapter of docs/snapshots.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from harness import MIB, Row, at_most, over, told

SHARES = ("0.1%", "1%", "10%", "30%", "60%", "100%")
TRACKERS = ("faults", "scan", "digest", "everything", "auto")
WRITERS = (1, 2, 4, 8, 16)


def best(found: dict, zone: str, share: str) -> list[float]:
    """Seconds of an interval with the fixed way of tracking that is best in the median."""
    return min((found[f"track_{zone}_{share}_{name}_s"] for name in TRACKERS[:-1]), key=statistics.median)


def rows(found: dict) -> Iterable[Row]:
    for pages in ("", "_huge"):
        for zone in ("64k", "4k"):
            cut = f"cut_{zone}_10%{pages}_"
            copy = [statistics.median(found[cut + "copy_s"])]
            judged = not pages and zone == "64k"
            what = f"snapshot() until it returns, d = 10%, zones of {zone}, {'huge' if pages else '4 KiB'} pages, over a copy"
            share = over(found[cut + "s"], copy * len(found[cut + "s"]))
            yield Row(what, "<= 0.1", share, at_most(0.1)) if judged else told(what, share)
            yield told(f"the first, {what.removeprefix('snapshot() ')}", over(found[cut + "first_s"], copy))
    for zone in ("64k", "4k"):
        ratio = over(found[f"fault_{zone}_ours_us"], found[f"fault_{zone}_bare_us"])
        what = f"a fault that duplicates, zones of {zone}, over a bare one"
        yield Row(what, "<= 1.5", ratio, at_most(1.5)) if zone == "64k" else told(what, ratio)
        for share in SHARES:
            ratio = over(found[f"track_{zone}_{share}_auto_s"], best(found, zone, share))
            what = f"auto over the best fixed tracker, zones of {zone}, d = {share}"
            yield Row(what, "<= 1.2", ratio, at_most(1.2)) if zone == "64k" else told(what, ratio)
    alone = found["plain_alone_s"]
    lost = [
        [with_it - without for with_it, without in zip(found[f"plain_{name}_s"], alone)]
        for name in ("snapshot", "checkpoint")
    ]
    yield Row("everything is written: time lost, auto over checkpoints", "<= 1.05", over(*lost), at_most(1.05))
    full = over(found["restore_eight_s"], found["restore_full_s"])
    yield Row(f"restore from {found['restore_sources']:.0f} sources over a full one", "<= 1.2", full, at_most(1.2))
    yield Row("bytes that have= moves over zones that differ", "<= 1.02", found["have_moved"], at_most(1.02))
    yield Row("bytes stored over dirty zones and map", "<= 1.02", found["stored_over"], at_most(1.02))


def page(document: dict) -> str:
    """The chapter: curves over d, zone size and writers."""
    found, machine = document["measured"], document["machine"]
    median = {name: statistics.median(values) for name, values in found.items() if isinstance(values, list)}

    def ms(name: str) -> str:
        return f"{median[name] * 1e3:.2g}"

    mib = found["bytes"] / MIB
    lines = [
        f"Measured on {machine['cpus']} processors ({machine['cpu']}, Linux {machine['kernel'].split('-')[0]}) by "
        "`benches/figures --only snapshots`, in milliseconds, medians; d is the share of zones that are written between two "
        "snapshots, spread over all of the memory.",
        "",
        f"**Until `snapshot` returns**, with `faults`, for {mib:.0f} MiB:",
        "",
        "| zones, pages | d = 0.1% | 1% | 10% | the first | a copy of all |",
        "|---|---|---|---|---|---|",
    ]
    for zone in ("64k", "4k"):
        for pages in ("", "_huge"):
            cuts = [ms(f"cut_{zone}_{share}{pages}_s") for share in ("0.1%", "1%", "10%")]
            last = f"cut_{zone}_10%{pages}_"
            of = f"{zone[:-1]} KiB, {'huge' if pages else '4 KiB'}"
            lines.append(f"| {of} | {' | '.join(cuts)} | {ms(last + 'first_s')} | {ms(last + 'copy_s')} |")
    lines += [
        "",
        "Arming memory for the first time splits its huge pages, which is why the first takes longer.",
        "",
        f"**An interval**, its writes and its snapshot, for {mib / 4:.0f} MiB, of which the program does nothing but write d:",
        "",
        f"| zones, d | no snapshots | {' | '.join(TRACKERS)} |",
        "|---|---|" + "---|" * len(TRACKERS),
    ]
    for zone in ("64k", "4k"):
        for share in SHARES:
            name = f"track_{zone}_{share}_"
            cells = [ms(f"{name}{tracker}_s") for tracker in ("alone", *TRACKERS)]
            lines.append(f"| {zone[:-1]} KiB, {share} | {' | '.join(cells)} |")
    lines += [
        "",
        f"**Writers** that each write 64 KiB and sleep, with a snapshot every 50 ms of {mib / 4:.0f} MiB, by `faults`: zones "
        "written a second, and the share of its time that a writer waits.",
        "",
        "| writers | no snapshots | snapshots | waits |",
        "|---|---|---|---|",
    ]
    for count in WRITERS:
        name = f"writers_{count}_"
        lines.append(
            f"| {count} | {median[name + 'alone_zones']:.0f} | {median[name + 'zones']:.0f} | {median[name + 'blocked']:.2%} |"
        )
    fault = {zone: (median[f"fault_{zone}_ours_us"], median[f"fault_{zone}_bare_us"]) for zone in ("64k", "4k")}
    lines += [
        "",
        f"A write to a zone that is not copied yet takes {fault['64k'][0]:.0f} µs with zones of 64 KiB and {fault['4k'][0]:.0f} "
        f"µs with zones of 4 KiB; a thread that does no more than copy the zone and let the writer go on takes "
        f"{fault['64k'][1]:.0f} and {fault['4k'][1]:.0f} µs.",
    ]
    return "\n".join(lines) + "\n"
