"""Generates docs/lifecycle.md, docs/zones.md and docs/leases.md (from the planner's own tables), docs/overview.svg, and the
last chapters of docs/snapshots.md, docs/torch.md, docs/trainers.md, docs/design/streams.md, docs/papers.md, docs/veloc.md, docs/recompute-or-store.md and docs/comparison.md (from benches/results),
docs/peers.md and docs/design/peers.md (from the simulator) and docs/planning.md (from data/ and the models), with docs/planning.svg,
docs/zone_machine.svg and docs/cluster.svg. `make docs` calls it.

With --check it writes nothing, names the pages that are out of date, and exits with 1 if there are any.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lifecycle_page(*which: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        tool = pathlib.Path(scratch) / "lifecycle_page"
        sources = [
            ROOT / "tools/lifecycle_page.cpp",
            *(ROOT / "src/planner" / f"{table}.cpp" for table in ("lifecycle", "checkpoint_state", "zones", "lease")),
        ]
        subprocess.run(
            [os.environ.get("CXX", "g++"), "-std=c++20", f"-I{ROOT / 'src'}", *sources, "-o", tool], check=True
        )
        return subprocess.run([tool, *which], check=True, capture_output=True, text=True).stdout


class Drawing:
    """A few shapes of SVG, in one type size and three colours that are readable on white and on black. Like the models'
    pictures it is written without matplotlib, whose output changes with its version: a test compares the bytes."""

    def __init__(self, width: int, height: int, *colours: str):
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="Helvetica, Arial, sans-serif" font-size="14">',
            "<defs>"
            + "".join(
                f'<marker id="tip{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
                f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
                for colour in colours
            )
            + "</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def box(self, x: int, y: int, w: int, h: int, fill: str, title: str, *below: str) -> None:
        self.lines.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{fill}" stroke="#445566"/>')
        top = y + h // 2 - 9 * len(below) + 5
        self.text(x + w // 2, top, title, "bold")
        for i, line in enumerate(below):
            self.text(x + w // 2, top + 18 * (i + 1), line)

    def text(self, x: int, y: int, text: str, weight: str = "normal", colour: str = "#223344") -> None:
        self.lines.append(
            f'<text x="{x}" y="{y}" text-anchor="middle" font-weight="{weight}" fill="{colour}">{text}</text>'
        )

    def arrow(self, x1: int, y1: int, x2: int, y2: int, colour: str, label: str, above: bool) -> None:
        self.lines.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="2.5" marker-end="url(#tip{colour[1:]})"/>'
        )
        self.text((x1 + x2) // 2, (y1 + y2) // 2 + (-8 if above else 19), label, "normal", colour)

    def svg(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def overview() -> str:
    out, back = "#a04010", "#106080"
    drawing = Drawing(980, 250, out, back)
    boxes = [
        (20, "#fff3d6", "your program", "computes forward,", "then back"),
        (275, "#ffe0c2", "device cache", "GPU memory", "(or plain memory)"),
        (530, "#d9ecf7", "host cache", "main memory"),
        (785, "#dfeedd", "local files", "NVMe, O_DIRECT"),
    ]
    for x, fill, title, *below in boxes:
        drawing.box(x, 75, 160, 100, fill, title, *below)
    for (x, *_), label in zip(boxes, ["checkpoint", "flush", "flush"]):
        drawing.arrow(x + 165, 105, x + 250, 105, out, label, True)
    for (x, *_), label in zip(boxes, ["restore", "prefetch", "prefetch"]):
        drawing.arrow(x + 250, 145, x + 165, 145, back, label, False)
    drawing.text(
        490,
        35,
        "forward pass: each checkpoint costs one copy; flushes run in the background",
        "normal",
        out,
    )
    drawing.text(
        490,
        225,
        "backward pass: the order is known, so each checkpoint is prefetched before its restore",
        "normal",
        back,
    )
    return drawing.svg()


def last_chapter(page: str, heading: str, text: str) -> str:
    """The page as it is, with this last chapter."""
    chapter = f"## {heading}\n"
    kept, found, _ = (ROOT / page).read_text().partition(chapter)
    assert found, f"{page} has lost its last chapter"
    return f"{kept}{chapter}\n{text}"


def bench_page() -> str:
    """A table in it is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import small_figures

    measured = json.loads((ROOT / "benches/results/small_versions.json").read_text())
    kept, found, after = (ROOT / "docs/bench.md").read_text().partition("One run of ")
    assert found, "docs/bench.md has lost its table of many small versions"
    return kept + small_figures.page(measured) + after[after.index("\n## ") :]


def snapshots_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import gpu_snapshot_figures
    import snapshot_figures

    measured = json.loads((ROOT / "benches/results/snapshots.json").read_text())
    gpu = json.loads((ROOT / "benches/results/gpu_snapshots.json").read_text())
    chapter = snapshot_figures.page(measured) + gpu_snapshot_figures.page(gpu)
    return last_chapter("docs/snapshots.md", "What was measured", chapter)


def torch_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import torch_figures

    measured = [
        json.loads((ROOT / f"benches/results/{name}.json").read_text())
        for name in ("torch_gpu", "gpt", "gpt_ranks", "torch_state", "warm", "torch_strided")
    ]
    return last_chapter("docs/torch.md", "What was measured", torch_figures.page(*measured))


def trainers_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import trainers_figures

    measured = json.loads((ROOT / "benches/results/trainers.json").read_text())
    return last_chapter("docs/trainers.md", "What was measured", trainers_figures.page(measured))


def streams_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import gpu_figures

    measured = json.loads((ROOT / "benches/results/gpu_calls.json").read_text())
    return last_chapter("docs/design/streams.md", "What a call costs", gpu_figures.calls_chapter(measured))


def papers_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import paper_figures

    found = [json.loads(path.read_text()) for path in sorted((ROOT / "benches/results/papers").glob("*.json"))]
    return last_chapter("docs/papers.md", "What was measured", paper_figures.page(found))


def defer_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import defer_figures

    measured = json.loads((ROOT / "benches/results/defer_fsync.json").read_text())
    return last_chapter("docs/defer-fsync.md", "What was measured", defer_figures.page(measured))


def node_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import pool_figures

    measured = json.loads((ROOT / "benches/results/pool.json").read_text())
    return last_chapter("docs/node.md", "What was measured", pool_figures.page(measured))


def veloc_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import veloc_figures

    measured = json.loads((ROOT / "benches/results/veloc.json").read_text())
    on_gpu = json.loads((ROOT / "benches/results/gpu_veloc.json").read_text())
    return last_chapter("docs/veloc.md", "What was measured", veloc_figures.page(measured, on_gpu))


def jax_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import jax_figures

    measured = [
        json.loads((ROOT / f"benches/results/{name}.json").read_text())
        for name in ("gradients", "gradients_large", "gradients_large_malloc", "gradients_gpu")
    ]
    return last_chapter("docs/jax.md", "What was measured", jax_figures.page(*measured))


def adjoint_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import schedule_figures

    measured = json.loads((ROOT / "benches/results/schedules.json").read_text())
    return last_chapter("docs/adjoint.md", "What was measured", schedule_figures.page(measured))


def readme() -> str:
    """Its paragraph about new memory is made of what was measured."""
    begin = "The first checkpoint in each place of a cache"
    before, found, after = (ROOT / "README.md").read_text().partition(begin)
    assert found, "README.md has lost its paragraph about new memory"
    measured = json.loads((ROOT / "benches/results/first_write.json").read_text())
    values = {row["figure"]: sorted(1e3 * value for value in row["values"]) for row in measured["rows"]}
    machine = measured["machine"]

    def spread(figure: str) -> str:
        ordered = values[figure]
        return f"{statistics.median(ordered):.3g} ms ({ordered[0]:.3g} to {ordered[-1]:.3g})"

    text = (
        f"{begin} waits for the kernel to make its pages. In a run of `benches/first_write.py` on {machine['cpus']} processors "
        f"(load {machine['load_before']:.1f} to {machine['load_after']:.1f}; medians, the fastest and the slowest), checkpoints "
        f"of 64 MiB in such places took {spread('64 MiB, not warm: checkpoint')}, and of 256 MiB "
        f"{spread('256 MiB, not warm: checkpoint')}. `warm=True` makes all pages in `open`: the checkpoints then took "
        f"{spread('64 MiB, warm: checkpoint')} and {spread('256 MiB, warm: checkpoint')}, and `open` "
        f"{spread('256 MiB, warm: open')} for {measured['places'] / 4:g} GiB. On a GPU, where pages are pinned too, `open` takes "
        "about a second for each 3 GiB."
    )
    return f"{before}{textwrap.fill(text, 120, break_on_hyphens=False)}\n\n{after.partition(chr(10) * 2)[2]}"


def recompute_page() -> str:
    """Its last chapter is made of what was measured."""
    sys.path.insert(0, str(ROOT / "benches"))
    import recompute_figures

    measured = json.loads((ROOT / "benches/results/recompute_or_store.json").read_text())
    return last_chapter("docs/recompute-or-store.md", "What was measured", recompute_figures.page(measured))


def planning_page() -> str:
    """Its last chapter is what the models make of the paper's machines."""
    import planning_page

    return last_chapter("docs/planning.md", "What comes out", planning_page.page(ROOT / "data/ics19.csv"))


def planning_picture() -> str:
    from ebbtide.models.efficiency import figures

    return figures.picture(figures.figures())


def zones_picture() -> str:
    import planning_page
    from ebbtide.models.zones import report

    return report.picture(planning_page.zones())


def cluster_picture() -> str:
    import planning_page
    from ebbtide.models.cluster import report

    return report.picture(planning_page.cluster_sweep())


def peers_measured() -> list[str]:
    """What benches/gpu_peers measured: medians."""
    found = json.loads((ROOT / "benches/results/gpu_peers.json").read_text())
    of = {name: statistics.median(values) for name, values in found.items() if isinstance(values, list)}
    alone, both = "relay_down_alone_bytes_per_s", "relay_down_both_bytes_per_s"
    up_alone, up_both = "relay_up_alone_bytes_per_s", "relay_up_both_bytes_per_s"
    bare, store = "bare_store_bytes_per_s", "store_bytes_per_s"
    two = "two_processes_store_bytes_per_s"
    rows = [
        (
            "copies of 128 MiB to a peer",
            f"{of[store] / 1e9:.0f} GB/s",
            f"{of[store] / of[bare]:.3f} of a bare peer copy",
        ),
        ("the same, to another process", f"{of[two] / 1e9:.0f} GB/s", f"{of[two] / of[bare]:.3f}"),
        (
            "to the host over both GPUs' links",
            f"{of[both] / 1e9:.0f} GB/s",
            f"{of[both] / of[alone]:.2f} times one link",
        ),
        (
            "from the host over both",
            f"{of[up_both] / 1e9:.0f} GB/s",
            f"{of[up_both] / of[up_alone]:.2f} times one link",
        ),
        (
            "8 GiB to a peer",
            f"{of['burst_peer_s'] * 1e3:.1f} ms",
            f"{of['burst_host_s'] / of['burst_peer_s']:.1f} times as fast as to the host",
        ),
        (
            "8 GiB to a peer and the host",
            f"{of['burst_both_s'] * 1e3:.1f} ms",
            f"{of['burst_both_s'] / of['burst_least_s']:.2f} of the least time",
        ),
    ]
    return [
        f"Measured on {found['machine']} (`build/gpu/benches/gpu_peers`), every byte compared:",
        "",
        "| | | |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def leases_measured() -> list[str]:
    """What benches/gpu_leases measured."""
    found = json.loads((ROOT / "benches/results/gpu_leases.json").read_text())
    of = {name: statistics.median(values) for name, values in found.items() if isinstance(values, list)}
    wrong = sum(sum(values) for name, values in found.items() if name.endswith("_wrong"))
    lenders, borrowers = len(found["lender_killed_wrong"]), len(found["borrower_killed_recall_s"])

    def recall(where: str) -> str:
        times = found[f"{where}_recall_s"]
        return f"{of[f'{where}_recall_s'] * 1e3:.0f} ms ({min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}); "

    def copied(where: str) -> str:
        room = of[f"{where}_used_bytes"]
        return f"copying its {room / 1e9:.1f} GB alone takes {room / of['bare_bytes_per_s'] * 1e3:.0f} ms"

    return [
        f"Leases between two processes, measured on {found['machine']} (`build/gpu/benches/gpu_leases`):",
        f"{found['bytes'] / 2**30:g} GiB are lent, as much is written, and the lender recalls all of it.",
        "",
        "| | |",
        "|---|---|",
        f"| recall, with room in the host cache | {recall('room')}{copied('room')} |",
        f"| the same, all of it pinned before (tuning `host_arena=direct`) | {recall('warm')}{copied('warm')} |",
        f"| the first recall of a process, as soon as it has borrowed and written | {recall('at_once')}{copied('at_once')} |",
        f"| the same, where it writes two seconds after it has borrowed | {recall('later')}{copied('later')} |",
        f"| recall, with the host cache full | {recall('full')}its {of['full_used_bytes'] / 1e9:.1f} GB go to files |",
        f"| {lenders} lenders killed while the borrower writes | all its checkpoints compared, here as above: {wrong:g} wrong or missing |",
        f"| {borrowers} borrowers killed while they write | {sum(found['borrower_killed_still_lent']):g} bytes still lent |",
        "",
        "With room in the host cache, the planner copied a part of it to the host before the lender wanted it back. The first recall",
        "of a process waits for memory to be pinned, unless the borrower had the time to pin it in the background.",
    ]


def shot_lent() -> list[str]:
    """A shot with memory of another GPU, and without it (`ebbtide bench shot --lend`)."""
    found = json.loads((ROOT / "benches/results/shot_lent.json").read_text())
    lent, bare = found["with"], found["without"]
    config, blocked, least = lent["config"], lent["total"]["blocked_s"], lent["bound"]["blocked_s"]
    slept = sum(lent["slept"]["forward_s"] + lent["slept"]["backward_s"])
    text = (
        f"A store on {found['machine']}, {lent['config']['checkpoints']} checkpoints of {config['size'] >> 20} MiB with "
        f"{config['device_cache'] >> 30} + {config['host_cache'] >> 30} GiB of caches, {config['lend'] >> 30} GiB borrowed "
        f"of the other GPU, and a disk (`ebbtide bench shot --device cuda --lend {config['lend'] >> 30}GiB`):"
    )
    return [
        textwrap.fill(text, 120),
        "",
        "| | |",
        "|---|---|",
        f"| blocked in all, with and without lent memory | {blocked * 1e3:.0f} ms and {bare['total']['blocked_s']:.1f} s, "
        f"{bare['total']['blocked_s'] / blocked:.0f} times |",
        f"| above the bound of {least * 1e3:.0f} ms | {(blocked - least) / (slept + least):.2%} of the intervals and the bound |",
        f"| written to the peer, and to the disk | {lent['total']['moved_bytes']['device>peer'] / 2**30:.0f} GiB and "
        f"{lent['total']['moved_bytes']['host>local'] / 2**30:.0f} GiB; without {bare['total']['moved_bytes']['host>local'] / 2**30:.0f} GiB "
        f"to the disk |",
        "",
        "Without lent memory the program was blocked for less than the bare disk would need: files go through the page cache.",
    ]


def relays() -> list[str]:
    """What benches/relays.py measured."""
    found = json.loads((ROOT / "benches/results/relays.json").read_text())

    def over(figure: str) -> str:
        values = found[f"{figure}_over_alone"]
        rate = statistics.median(one[figure]["bytes_per_s"] for one in found["lent"])
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}), {rate / 1e9:.0f} GB/s"

    text = (
        f"A store on one of two {found['machine']['gpu']} writes 48 GiB to the host and reads them back, while the other GPU lends "
        "8 GiB and is idle (`benches/relays.py`). Rates of both GPUs' links to the host, over that of one alone:"
    )
    return [
        textwrap.fill(text, 120),
        "",
        "| | to the host | from the host |",
        "|---|---|---|",
        f"| while the links set the pace | {over('down_sustained')} | {over('up_sustained')} |",
        f"| to the last byte | {over('down_whole')} | {over('up_whole')} |",
        "",
        "At the end only the lender's link has bytes left to carry: those of checkpoints in lent memory.",
    ]


def bursts() -> list[str]:
    """What benches/bursts.py measured."""
    found = json.loads((ROOT / "benches/results/bursts.json").read_text())

    def row(name: str, room: dict) -> str:
        over, relayed = room["over_least"], [one["relayed"] for one in room["bursts"]]
        times = f"{statistics.median(over):.2f} ({min(over):.2f} to {max(over):.2f})"
        took = statistics.median(one["s"] for one in room["bursts"])
        return f"| {name} | {times} | {took * 1e3:.0f} ms | {room['least_s'] * 1e3:.0f} ms | {statistics.median(relayed):.0f} |"

    text = (
        f"On hardware, two {found['machine']['gpu']}: 8 GiB of 128 MiB checkpoints, without hints, into a device cache of two "
        "(`benches/bursts.py`). The least time is by the bare rates of the same run. Every byte was compared. The bar is 1.15. "
        "The room is that of the leases that were borrowed: whether a burst could use all of it was not observed, so the two lower "
        "rows may be too high."
    )
    return [
        textwrap.fill(text, 120),
        "",
        "| room for | over the least time | until the last call returned | least | chunks relayed |",
        "|---|---|---|---|---|",
        *(row(name, room) for name, room in found["rooms"].items()),
    ]


def lender_kernel() -> list[str]:
    """What benches/lender_kernel.py measured."""
    found = json.loads((ROOT / "benches/results/lender_kernel.json").read_text())
    of = {name: statistics.median(values) for name, values in found.items() if isinstance(values, list)}
    over = found["over_predicted"]
    text = (
        f"A kernel that is bound by its memory's bandwidth, on a lender ({found['machine']['gpu']}, `benches/lender_kernel.py`), "
        f"takes {of['alone_s'] * 1e3:.3f} ms alone, and {of['under_spill_s'] * 1e3:.3f} ms while a borrower copies "
        f"{of['spilled_bytes_per_s'] / 1e9:.0f} GB/s to and from the lent memory: {of['over_predicted']:.3f} ({min(over):.3f} to "
        f"{max(over):.3f}) of what it would take with the bandwidth that the copies leave."
    )
    return [textwrap.fill(text, 120)]


def peers_page() -> str:
    """Its last chapter is what the simulator makes of the published trace."""
    from ebbtide import _traces as traces
    from ebbtide.models.spill import lent, report, steps
    from ebbtide.sim import Topology

    trace = traces.read_trace(ROOT / "data/sc22-sample-trace.csv")
    lines = ["| strategy | time over the least | mean of the steps' ratios |", "|---|---|---|"]
    for unit in (10**6, 10**5, 10**4):
        document = {"topology": "dgx1v", **steps.trace_document(Topology.dgx1v(), trace, 128 << 20, unit)}
        if unit == 10**6:
            note = report.notes(document)[0]
        for strategy, over in document["over_flow"].items():
            in_units = f", units of {unit / 1e6:g} MB" if strategy.startswith("flow_paper") else ""
            if in_units or (unit == 10**6 and strategy != "flow"):
                lines.append(f"| `{strategy}`{in_units} | {over['in_all']:+.1%} | {over['mean_ratio']:.2f} |")
    about = (
        "The 30 published steps of the slides' trace (`data/sc22-sample-trace.csv`), on their machine with 128 MiB free on "
        "each GPU:"
    )
    text = [
        textwrap.fill(about, 120),
        "",
        *lines,
        "",
        textwrap.fill(note, 120),
        "",
        *lent.page(),
        "",
        *peers_measured(),
        "",
        *leases_measured(),
        "",
        *shot_lent(),
        "",
        *relays(),
        "",
        *lender_kernel(),
        "",
    ]
    return last_chapter("docs/design/peers.md", "What comes out", "\n".join(text))


def rooms_page() -> str:
    """Its last chapter is what the simulator makes of bursts."""
    from ebbtide.models.spill import lent

    return last_chapter("docs/peers.md", "How long a burst takes", "\n".join([*lent.room_page(), "", *bursts(), ""]))


def comparison_page() -> str:
    """Its last chapter is what was measured and tried, on others too."""
    sys.path.insert(0, str(ROOT / "benches"))
    import comparison_figures

    results = [
        json.loads((ROOT / f"benches/results/{name}.json").read_text())
        for name in ("state", "torch_state", "gradients", "reliability")
    ]
    return last_chapter("docs/comparison.md", "What was measured", comparison_figures.page(*results))


PAGES = {
    "README.md": readme,
    "docs/lifecycle.md": lifecycle_page,
    "docs/zones.md": lambda: lifecycle_page("zones"),
    "docs/leases.md": lambda: lifecycle_page("leases"),
    "docs/overview.svg": overview,
    "docs/planning.md": planning_page,
    "docs/planning.svg": planning_picture,
    "docs/zone_machine.svg": zones_picture,
    "docs/cluster.svg": cluster_picture,
    "docs/snapshots.md": snapshots_page,
    "docs/bench.md": bench_page,
    "docs/torch.md": torch_page,
    "docs/trainers.md": trainers_page,
    "docs/papers.md": papers_page,
    "docs/design/streams.md": streams_page,
    "docs/defer-fsync.md": defer_page,
    "docs/node.md": node_page,
    "docs/veloc.md": veloc_page,
    "docs/jax.md": jax_page,
    "docs/adjoint.md": adjoint_page,
    "docs/recompute-or-store.md": recompute_page,
    "docs/design/peers.md": peers_page,
    "docs/peers.md": rooms_page,
    "docs/comparison.md": comparison_page,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
    for name in stale:
        print(("out of date, run `make docs`: " if "--check" in sys.argv[1:] else "generated ") + name)
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
