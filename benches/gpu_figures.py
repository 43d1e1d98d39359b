"""The figures of a GPU: what each section of the measurements says of them, and the machine they were taken on.

A section is what one of the programs here wrote (gpu_calls, gpu_links, ...); tools/gpu-check runs them. Nothing is
measured here, so that recorded samples make the same table anywhere.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import init_figures
from harness import GB, GIB, MIB, Row, Rows, at_least, at_most, between, over, told, verdict


def call_rows(found: dict) -> Iterable[Row]:
    for where in ("alone", "beside"):
        when = {"alone": "quiet", "beside": "beside flushes"}[where]
        for call in ("checkpoint", "restore"):
            of = {name: found[f"{call}_{name}_{where}_us"] for name in (
                "blocking", "bare", "ordered_host", "ordered_stream", "ordered_bare_stream",
                "ordered_idle_host", "ordered_idle_stream", "ordered_bare_idle_stream")}  # fmt: skip
            yield Row(
                f"{call} blocking over bare copy, C++, {when}",
                "<= 1.04",
                over(of["blocking"], of["bare"]),
                at_most(1.04),
            )
            yield Row(
                f"{call} in stream order, host time, C++, {when}", "<= 12 µs", of["ordered_host"], at_most(12), " µs"
            )
            ratio = over(of["ordered_stream"], of["ordered_bare_stream"])
            yield Row(f"{call} in stream order, stream's delay over bare copy, {when}", "<= 1.15", ratio, at_most(1.15))
            if where == "alone":
                ratio = over(of["ordered_idle_stream"], of["ordered_bare_idle_stream"])
                yield told(f"{call}: the same on an idle stream (the host's time in it)", ratio)
                yield told(f"{call}: a bare copy with synchronise", of["bare"], " µs")
        for pair in ("reserve + commit", "borrow + release"):
            values = found[f"{pair.replace(' + ', '_')}_{where}_us"]
            yield Row(f"{pair}, host time, C++, {when}", "<= 4 µs", values, at_most(4), " µs")


def python_call_rows(found: dict) -> Iterable[Row]:
    for call in ("checkpoint", "restore"):
        ratio = over(found[f"{call}_blocking_us"], found[f"{call}_blocking_bare_us"])
        yield Row(f"{call} blocking over bare copy, Python", "<= 1.3", ratio, at_most(1.3))
        yield Row(
            f"{call} in stream order, host time, Python", "<= 18 µs", found[f"{call}_ordered_us"], at_most(18), " µs"
        )


def calls_chapter(found: dict) -> str:
    """What a call costs, for docs/design/streams.md: of what gpu-check wrote for its stages `calls` and `python_calls`."""
    measured, machine = found["measured"], found["machine"]
    lines = [
        f"Calls of 128 MiB that need no transfer, on an {machine['gpu']['name']} (`tools/gpu-check --only build,calls,python_calls`,",
        "`benches/results/gpu_calls.json`; medians of five, and the least and the most). The host's time varies by half from one",
        f"machine to the next: here a bare `cudaMemcpyAsync` takes it {statistics.median(measured['calls']['checkpoint_ordered_bare_host_alone_us']):.1f} µs where the store is quiet, and",
        f"{statistics.median(measured['calls']['checkpoint_ordered_bare_host_beside_us']):.1f} beside flushes. **The calls miss their bars**: the copy is not delayed, but the host is held up for longer.",
        "",
        "| figure | bar | median | spread | |",
        "|---|---|---|---|---|",
    ]
    rows = [*call_rows(measured["calls"]), *python_call_rows(measured["python_calls"])]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows if row.holds]
    return "\n".join(lines) + "\n"


def link_rows(found: dict) -> Iterable[Row]:
    for way, words, bar in (("down", "D2H", 0.95), ("up", "H2D", 0.95), ("both", "both at once", 0.93)):
        bare = found[f"{way}_bare_bytes_per_s"]
        ratio = over(found[f"{way}_bytes_per_s"], bare)
        yield Row(f"background {words} over bare pinned copy", f">= {bar:.0%}", ratio, at_least(bar), percent=True)
        yield told(f"bare pinned {words}", bare, " GB/s", GB)


def peer_rows(found: dict) -> Iterable[Row]:
    """Parts that failed have no row."""
    for way in ("store", "load"):
        bare = found.get(f"bare_{way}_bytes_per_s")
        for key, words in (("", "one process"), ("two_processes_", "two processes")):
            values = found.get(f"{key}{way}_bytes_per_s")
            if bare and values:
                name = f"{way} of a peer's memory over bare peer copy, {words}"
                yield Row(name, ">= 95%", over(values, bare), at_least(0.95), percent=True)
        if bare:
            yield told(f"bare peer copy, {way}", bare, " GB/s", GB)
    for way, words in (("down", "D2H"), ("up", "H2D")):
        alone, both = (found.get(f"relay_{way}_{links}_bytes_per_s") for links in ("alone", "both"))
        if alone and both:
            yield Row(f"{words} over two links, by a relay, over one", ">= 1.8", over(both, alone), at_least(1.8))
            yield told(f"{words} over two links", both, " GB/s", GB)
    if host := found.get("burst_host_s"):
        size = f"burst of {found['burst'] / GIB:g} GiB"
        yield Row(f"{size}: host only over peer", ">= 6", over(host, found["burst_peer_s"]), at_least(6))
        ratio = over(found["burst_both_s"], found["burst_least_s"])
        yield Row(f"{size}: over the least time of both links", "<= 1.10", ratio, at_most(1.1))


def file_rows(found: dict) -> Iterable[Row]:
    for way in ("write", "read"):
        yield Row(f"file {way}s from pinned memory over bare O_DIRECT", ">= 95%", found[f"{way}_ratio"], at_least(0.95),
                  percent=True)  # fmt: skip
        yield told(f"bare O_DIRECT {way}", found[f"bare_{way}_bytes_per_s"], " GB/s", GB)
        if wide := found.get(f"bare_{way}_wide_bytes_per_s"):
            words = f"bare O_DIRECT {way}, through as much memory as ours"
            yield told(words, wide, " GB/s", GB)


def memory_rows(found: dict) -> Iterable[Row]:
    beyond = [value / MIB for value in found["beyond_bytes"]]
    yield Row("device memory beyond the cache and the context", "<= 64 MiB", beyond, at_most(64), " MiB")


def digest_rows(found: dict) -> Iterable[Row]:
    for size in ("128MiB", "4096MiB"):
        ratio = over(found[f"digest_read_GBps_{size}"], found[f"copy_read_and_write_GBps_{size}"])
        yield told(f"digest of {size}: bytes read a second over those of a copy", ratio)
    for call in ("commit", "restore"):
        for kind in ("", "_checked"):
            values = found[f"{call}{kind}_host_us"]
            yield told(f"{call}, host time{kind.replace('_', ', ')}", values, " µs")


def disk_rows(case: str, shots: list[dict]) -> Iterable[Row]:
    """What the disk gave bare around each shot, and what crossed it in the shot; files of earlier runs do not tell."""
    shots = [shot for shot in shots if "mean" in (shot.get("disk") or {})]
    for way, link in (("write", "host>local"), ("read", "local>host")):
        if shots:
            bare = [shot["disk"]["mean"][way] for shot in shots]
            crossed = [shot["moved"][link]["bytes"] / GB for shot in shots]
            yield told(f"shot, {case}: bare {way} around it", bare, " GB/s", GB)
            rates = [one / max(shot["moved"][link]["busy_s"], 1e-9) for one, shot in zip(crossed, shots, strict=True)]
            yield told(f"shot, {case}: {way} in it", crossed, " GB")
            yield told(f"shot, {case}: {way} in it, while at work", rates, " GB/s")


def shot_rows(found: dict) -> Iterable[Row]:
    def runs(group: str) -> dict[str, list[dict]]:
        return found.get(group, {}).get("runs", {})

    def values(shots: list[dict], name: str) -> list[float]:
        return [shot[name] for shot in shots if shot[name] is not None]

    for case, shots in runs("memory").items():
        yield Row(f"shot, {case}: found on the device", ">= 98%", values(shots, "found_on_device"), at_least(0.98),
                  percent=True)  # fmt: skip
        for call in ("checkpoint", "restore"):
            if ratio := values(shots, f"{call}_over_bare"):
                yield Row(f"shot, {case}: mean {call} over bare copy", "<= 1.3", ratio, at_most(1.3))
        if "10ms" in case:
            yield Row(f"shot, {case}: cores of the runtime", "<= 1.5", values(shots, "cores"), at_most(1.5))
    for case, shots in runs("disk").items():
        yield Row(f"shot, {case}: above the bound", "-2% to 5%", values(shots, "excess"), between(-0.02, 0.05),
                  percent=True)  # fmt: skip
        yield from disk_rows(case, shots)
        if "no wait" in case:
            yield Row(f"shot, {case}: longest restore over what it is allowed", "<= 1",
                      values(shots, "longest_of_allowed"), at_most(1))  # fmt: skip
            yield told(f"shot, {case}: any restore, however short, over that", values(shots, "largest_share"))
            yield told(f"shot, {case}: longest restore", values(shots, "longest_restore_s"), " s")
        elif "wait" in case:
            yield told(f"shot, {case}: flush wait", values(shots, "flush_wait_s"), " s")
        if "variable" not in case:
            yield Row(f"shot, {case}: cores of the runtime", "<= 1.5", values(shots, "cores"), at_most(1.5))
    for group in found:
        if opens := [shot["open_s"] for shots in runs(group).values() for shot in shots[:1]]:
            host = found[group]["store"]["host_cache"] / GIB
            yield told(f"open with {host:g} GiB of host cache", opens[:1], " s")
        if fills := [shot["fill_s"] for shots in runs(group).values() for shot in shots[:1] if "fill_s" in shot]:
            yield told(f"{group}: writing all once before anything counts", fills[:1], " s")
        if "touched_s" in found[group]:
            yield told(f"{group}: memory touched once beforehand in", [found[group]["touched_s"]], " s")
    for group in found:  # what was compared byte by byte must be right, however often
        checked = [shot for shots in runs(group).values() for shot in shots if shot["verified"]]
        if checked:
            row = Row(f"{group}: restores with wrong bytes, of {sum(s['verified'] for s in checked)}", "0",
                      [sum(shot["wrong"] for shot in checked)], at_most(0))  # fmt: skip
            yield row


@dataclass
class Section:
    """A measurement: what it is called, and what it says."""

    name: str
    title: str
    rows: Callable[[dict], Rows]


SECTIONS = [
    Section("calls", "calls from C++", call_rows),
    Section("python_calls", "calls from Python", python_call_rows),
    Section("links", "background transfers", link_rows),
    Section("peers", "memory of other GPUs", peer_rows),
    Section("files", "files from pinned memory", file_rows),
    Section("memory", "device memory", memory_rows),
    Section("digest", "checked commits", digest_rows),
    Section("init", "opening", init_figures.rows),
    Section("shots", "shots", shot_rows),
]


def rows_of(measured: Mapping[str, Any]) -> list[Row | tuple[str, str]]:
    """Every row, in the table's order; in place of what is lacking, its name and why."""
    rows: list[Row | tuple[str, str]] = []
    for section in SECTIONS:
        found = measured.get(section.name)
        if not found:
            rows.append((section.title, "not measured"))
            continue
        if "failed" in found:
            rows.append((section.title, f"not measured: {found['failed']}"))
            continue
        try:
            rows += section.rows(found)
        except (KeyError, ValueError, TypeError, statistics.StatisticsError) as error:
            rows.append((section.title, f"cannot be read: {error!r}"))
        if section.name == "shots":
            rows += [(f"shot, {case}", f"not measured: {why}") for group in found.values()
                     for case, why in group.get("left_out", {}).items()]  # fmt: skip
    return rows


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds later measurements: a section as a whole, of the shots case by case."""
    for name, section in more.items():
        if "failed" in section and into.get(name):
            continue
        if name != "shots" or not into.get("shots"):
            into[name] = section
            continue
        for group, found in section.items():
            known = into["shots"].setdefault(group, {"store": found["store"], "runs": {}, "left_out": {}})
            known["runs"] |= found["runs"]
            known["left_out"] = {case: why for case, why in (known["left_out"] | found["left_out"]).items()
                                 if case in found["left_out"] or case not in found["runs"]}  # fmt: skip


def document(measured: Mapping[str, Any], machine: Mapping[str, Any], stages: list[dict]) -> dict:
    """What benches/results/ holds of it; every sample of a call is left out, their medians are there."""
    kept = {name: {key: value for key, value in section.items() if not key.startswith("raw_")}
            for name, section in measured.items()}  # fmt: skip
    rows = [row.as_json() | {"verdict": verdict(row)} if isinstance(row, Row) else {"figure": row[0], "verdict": row[1]}
            for row in rows_of(measured)]  # fmt: skip
    machine = dict(machine) | {"bare_bytes_per_s": bare_rates(measured)}
    return {"figure": "gpu", "machine": machine, "stages": stages, "rows": rows, "measured": kept}


def bare_rates(measured: Mapping[str, Any]) -> dict[str, float]:
    """The machine's own rates as this run met them: medians, bytes/s (both: the two directions together)."""
    links, files, calls = (measured.get(name, {}) for name in ("links", "files", "calls"))
    copies = [calls["bytes"] / us * 1e6 for us in calls.get("checkpoint_bare_alone_us", [])]
    lists = {"d2h": links.get("down_bare_bytes_per_s"), "h2d": links.get("up_bare_bytes_per_s"),
             "both": links.get("both_bare_bytes_per_s"), "write": files.get("bare_write_bytes_per_s"),
             "read": files.get("bare_read_bytes_per_s"),
             "device_copy": copies}  # fmt: skip
    return {name: statistics.median(values) for name, values in lists.items() if values}


# --- the machine -----------------------------------------------------------------------------------------------------


def said(*command: str) -> str:
    """What a command prints, in one line; empty when there is no such command or it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(ran.stdout.split()) if ran.returncode == 0 else ""


def describe(directory: str, root: Path) -> dict[str, Any]:
    """The machine and what was measured on it; unknown is empty."""
    asked = (
        "name",
        "driver_version",
        "memory.total",
        "pcie.link.gen.current",
        "pcie.link.width.current",
        "clocks.max.sm",
    )
    gpus = said("nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader")
    release = re.search(r"release ([0-9.]+)", said("nvcc", "--version"))
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    dirty = "-dirty" if said("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no") else ""
    commit = said("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    return harness.machine(directory) | {
        "gpu": dict(zip(asked, (field.strip() for field in gpus.split(",")))) if gpus else {},
        "gpus": len(said("nvidia-smi", "-L").split("GPU ")) - 1,
        "cuda": release[1] if release else "",
        "compiler": said("c++", "--version").split(" Copyright")[0],
        "memory_lock_bytes": None if locked == resource.RLIM_INFINITY else locked,
        "disk_bytes": shutil.disk_usage(directory).total,
        "shm_bytes": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0,
        "commit": os.environ.get("EBB_COMMIT") or (commit + dirty if commit else ""),
    }


def read(path: Path) -> dict[str, Any]:
    """The measurements that an earlier document holds."""
    return json.loads(path.read_text())["measured"]
