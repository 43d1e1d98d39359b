"""What the runs of init.py say: the rows of its table. Nothing is measured here."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import GB, GIB, MIB, Row, Rows, at_least, at_most, judged_if, over, told, verdict

FULL_SIZE, FULL_CHECKPOINTS = 128 << 20, 256
HOST = ("incremental", "cuda_host_alloc", "direct", "touch_then_register", "concurrent", "sequential")
# How many times less ours may stand than cudaHostAlloc, by the processes at once: with and without restores.
BARS = {1: (25, 12), 8: (60, 30)}


@dataclass
class Worst(Row):
    """It is the largest of all repeats that must hold."""

    @property
    def verdict(self) -> str:
        if self.holds is None:
            return "-"
        return "holds" if self.holds(max(self.values)) else "DOES NOT HOLD"


Runs = list[dict[str, Any]]


def joined(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Several calls' measurements as one."""
    all_of: dict[str, Any] = {"runs": [], "left_out": {}, "failures": []}
    for one in found:
        all_of["runs"] += one["runs"]
        all_of["left_out"] |= one["left_out"]
        all_of["failures"] += one["failures"]
    return all_of


def mean(run: Mapping[str, Any], *names: str) -> float:
    """Summed over `names`, the mean of the processes (hipc22 sec. V-E counts so)."""
    return statistics.mean(sum(result.get(name, 0.0) for name in names) for result in run["results"])


def chosen(runs: Runs, **wanted: Any) -> Runs:
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def written(run: Mapping[str, Any]) -> float:
    return mean(run, "open_s", "hint_s", "checkpoints_s")


def total(run: Mapping[str, Any]) -> float:
    return mean(run, "open_s", "hint_s", "checkpoints_s", "restores_s")


def rows(found: Mapping[str, Any]) -> Rows:
    by_kind = defaultdict(list)
    for run in found["runs"]:
        by_kind[run["processes"], run["size"], run["checkpoints"], run["device"]].append(run)
    rows: list[Row | tuple[str, str]] = []
    for (processes, size, checkpoints, device), runs in sorted(by_kind.items()):
        full = (size, checkpoints, device) == (FULL_SIZE, FULL_CHECKPOINTS, "cuda")
        # A smaller run shows that everything works: its figures are told and not judged.
        smaller = "" if full else f"{device}, {checkpoints} x {size / MIB:g} MiB, "
        head = f"{smaller}{processes} process{'es' if processes > 1 else ''}: "
        for row in of_kind(runs, processes):
            alone = processes == 1 or "over ours" in row.figure  # whether its bar is for so many at once
            row.figure = head + row.figure
            if not (full and alone) and row.bar != "0":
                row.holds = None
            rows.append(row)
    rows += [(f"left out: {name}", why) for name, why in found["left_out"].items()]
    rows += [(f"failed: {failure['run']}", failure["why"]) for failure in found["failures"]]
    return rows


def of_kind(runs: Runs, processes: int) -> Iterable[Row]:
    yield from raw_rows(runs)
    yield from shot_rows(runs, processes)
    yield from beside_rows(runs)
    yield from flush_rows(runs)
    yield from turn_rows(runs)
    yield from copy_rows(runs)
    yield from memory_rows(runs)
    yield from device_rows(runs, processes)
    yield from sweep_rows(runs, processes)
    if troubles := Counter(value for run in runs for result in run["results"] for key, value in result.items()
                           if key.endswith("trouble") and value):  # fmt: skip
        said = "; ".join(f"{text} ({count})" for text, count in troubles.most_common(3))
        yield told(f"troubles that arenas told: {said}", [sum(troubles.values())])
    wrong = [sum(result.get("wrong", 0) for result in run["results"]) for run in runs if run["part"] != "touch"]
    if wrong:
        yield Worst(f"restores with wrong bytes, of {len(wrong)} runs", "0", wrong, at_most(0))


def raw_rows(runs: Runs) -> Iterable[Row]:
    for name, words, scale, unit in (("device_copy_s", "device copy of a checkpoint", 1e6, " µs"),
                                     ("d2h_bytes_per_s", "pinned D2H", 1e-9, " GB/s"),
                                     ("h2d_bytes_per_s", "pinned H2D", 1e-9, " GB/s")):  # fmt: skip
        if values := [mean(run, name) * scale for run in runs if name in run["results"][0]]:
            yield told(f"bare {words}", values, unit)


def shot_rows(runs: Runs, processes: int) -> Iterable[Row]:
    shots = {name: chosen(runs, part="shots", strategy=name) for name in HOST}
    ours = shots["incremental"]
    if first := [mean(run, "first_s") * 1e3 for run in ours]:
        row = Row("open to the first checkpoint returned", "< 5 ms", first, at_most(5), " ms")
        yield judged_if(processes == 1, row)
    for name, found in shots.items():
        if not found:
            continue
        words = f"large-host, {found[0]['interval_ms']:g} ms, {name}"
        yield told(f"{words}: open", [mean(run, "open_s") * 1e3 for run in found], " ms")
        blocked = [written(run) * 1e3 for run in found]
        row = Row(f"{words}: open + checkpoints", "<= 100 ms", blocked, at_most(100), " ms")
        yield judged_if(name == "incremental" and processes == 1, row)
        yield told(f"{words}: open + checkpoints + restores", [total(run) * 1e3 for run in found], " ms")
    bars = BARS.get(processes, (None, None))
    for against in ("cuda_host_alloc", "direct", "touch_then_register"):
        if not ours or not shots[against]:
            continue
        cases = (("open + checkpoints", written), ("open + checkpoints + restores", total))
        for (words, blocked), bar in zip(cases, bars, strict=True):
            other = statistics.median(blocked(run) for run in shots[against])
            ratio = [other / blocked(run) for run in ours]
            row = Row(f"{words}, {against} over ours", f">= {bar}", ratio, at_least(bar or 0))
            yield judged_if(bar is not None and against == "cuda_host_alloc", row)
    for run in chosen(runs, part="cold"):
        words = "memory never used before, incremental"
        yield told(f"{words}: open + checkpoints", [written(run) * 1e3], " ms")
        longest = max(result.get("copy_beside_longest_s", 0) for result in run["results"])
        if longest:  # else no copy of any process fell into that time
            words += ": longest of the program's own copies while memory is pinned"
            yield told(words, [longest * 1e3], " ms")
    for run in chosen(runs, part="touch"):
        for done, doing in (("touch", "touching"), ("register", "registering")):
            result = run["results"][0]
            if f"{done}ed_bytes" in result:
                words = f"{doing} {result[f'{done}ed_bytes'] / GIB:.4g} GiB of the machine's memory first"
                yield told(words, [result[f"{done}_s"]], " s")


def beside_rows(runs: Runs) -> Iterable[Row]:
    # A run in which no copy fell into that time says nothing of it.
    beside = [run for run in chosen(runs, part="beside") if all(result["copies_beside"] for result in run["results"])]
    for name in HOST:
        kinds = sorted({run["interval_ms"] for run in chosen(beside, strategy=name)})
        for interval in kinds:
            found = chosen(beside, strategy=name, interval_ms=interval)
            longest = [max(result["copy_beside_longest_s"] for result in run["results"]) * 1e3 for run in found]
            words = f"{name}, {interval:g} ms, the program's own copies while memory is pinned"
            row = Worst(f"{words}: longest", "<= 3 ms", longest, at_most(3), " ms")
            yield judged_if(name == "incremental", row)
            for key in ("median", "p99"):
                values = [mean(run, f"copy_beside_{key}_s") * 1e3 for run in found]
                yield told(f"{words}: {key}", values, " ms")
            yield from told_of_copies(words, found)
            yield told(f"{words}: how long that was", [mean(run, "growing_s") for run in found], " s")
            pinned = [mean(run, "host_written_pinned_bytes") for run in found]
            yield told(f"{words}: pinned in it", pinned, " GiB", GIB)


#: What is told of those copies besides, of the process that has most of it.
TOLD = (
    ("copy_alone_longest_s", "the same without a store: longest", 1e3, " ms"),
    ("copy_alone_median_s", "the same without a store: median", 1e3, " ms"),
    ("copy_beside_gpu_longest_s", "by the GPU's own clock: longest", 1e3, " ms"),
    ("copy_beside_gpu_median_s", "by the GPU's own clock: median", 1e3, " ms"),
    ("copy_alone_gpu_median_s", "by the GPU's own clock, without a store: median", 1e3, " ms"),
    ("copy_beside_longest_met", "registrations that the longest met", 1, ""),
    ("copy_beside_most_met", "registrations that one met at most", 1, ""),
    ("registration_longest_s", "longest registration", 1e3, " ms"),
    ("registration_median_s", "median registration", 1e3, " ms"),
    ("registering_s", "registering", 1, " s"),
    ("between_registrations_s", "between registrations", 1, " s"),
)


def told_of_copies(words: str, found: Runs) -> Iterable[Row]:
    """Runs of before this was measured tell nothing of it."""
    for name, what, scale, unit in TOLD:
        most = [max(result[name] for result in run["results"]) * scale for run in found if name in run["results"][0]]
        if most:
            yield told(f"{words}: {what}", most, unit)


def flush_rows(runs: Runs) -> Iterable[Row]:
    for name in HOST:
        found = [run for run in chosen(runs, part="flush", strategy=name) if "flush_bytes_per_s" in run["results"][0]]
        if not found:
            continue
        share = [mean(run, "flush_bytes_per_s") / mean(run, "d2h_bytes_per_s") for run in found]
        words = f"{name}: flushed in the first second, no interval"
        row = Row(f"{words}, over bare pinned D2H", ">= 40%", share, at_least(0.4), percent=True)
        yield judged_if(name == "incremental", row)
        yield told(words, [mean(run, "flush_bytes_per_s") for run in found], " GB/s", GB)


def turn_rows(runs: Runs) -> Iterable[Row]:
    if not (found := chosen(runs, part="turns")):
        return
    result = found[0]["results"][0]
    others, turn = result.get("others", 0) * found[0]["processes"], result.get("turn_s", 0) * 1e3
    words = f"beside {others:g} others that take turns of {turn:g} ms"
    yield told(f"{words}: open + checkpoints", [written(run) * 1e3 for run in found], " ms")
    yield told(f"{words}: open + checkpoints + restores", [total(run) * 1e3 for run in found], " ms")
    pinned = [mean(run, "host_read_pinned_bytes") for run in found]
    yield told(f"{words}: pinned by the end", pinned, " GiB", GIB)


def copy_rows(runs: Runs) -> Iterable[Row]:
    for run in chosen(runs, part="copies"):
        lacking = sum(not result["complete"] for result in run["results"])
        yield Worst("processes whose arenas were not complete before the copies", "0", [lacking], at_most(0))
        of = {}
        for name in run["results"][0]:
            if name.startswith(("grown_", "direct_")):
                of[name] = [statistics.mean(values) for values in zip(*(result[name] for result in run["results"]))]
        for name, words in (("d2h_bytes_per_s", "D2H"), ("h2d_bytes_per_s", "H2D")):
            ratio = over(of[f"grown_{name}"], of[f"direct_{name}"])
            yield Row(f"all pinned: {words} rate over direct's", ">= 97%", ratio, at_least(0.97), percent=True)
            yield told(f"all pinned: {words}", of[f"grown_{name}"], " GB/s", GB)
        for name, words in (("into_device_s", "into"), ("out_of_device_s", "out of")):
            ratio = over(of[f"grown_{name}"], of[f"direct_{name}"])
            words = f"all mapped: device copy {words} the cache over direct's"
            yield Row(words, "<= 103%", ratio, at_most(1.03), percent=True)


def memory_rows(runs: Runs) -> Iterable[Row]:
    for run in chosen(runs, part="small"):
        history = run["size"] * max(1, run["checkpoints"] // 16) / GIB
        for name in ("touched", "pinned"):
            values = [result.get(f"host_read_{name}_bytes", 0) for result in run["results"]]
            yield told(f"a program that writes {history:.3g} GiB: {name}", values, " GiB", GIB)


def device_rows(runs: Runs, processes: int) -> Iterable[Row]:
    devices = {name: chosen(runs, part="device", strategy=name) for name in ("mapped", "direct", "cuda_malloc")}
    for name, found in devices.items():
        if found:
            words = f"large-device, {found[0]['interval_ms']:g} ms, {name}: open + checkpoints"
            yield told(words, [written(run) * 1e3 for run in found], " ms")
            opens = [mean(run, "open_s") * 1e3 for run in found]
            yield told(f"large-device, {name}: open", opens, " ms")
    for name in ("direct", "cuda_malloc"):
        if devices[name] and devices["mapped"]:
            other = statistics.median(written(run) for run in devices[name])
            bar = ">= 1.5, or why not" if processes > 1 else "(told)"
            ratio = [other / written(run) for run in devices["mapped"]]
            yield Row(f"large-device: open + checkpoints, {name} over ours", bar, ratio, None)


def sweep_rows(runs: Runs, processes: int) -> Iterable[Row]:
    sweep = chosen(runs, part="sweep")
    shots = chosen(runs, part="shots")
    for interval in sorted({run["interval_ms"] for run in sweep}):
        here = chosen([*sweep, *shots], interval_ms=interval)
        at = {name: [written(run) for run in chosen(here, strategy=name)] for name in HOST}
        for name, values in at.items():
            if values:
                blocked = [value * 1e3 for value in values]
                yield told(f"{interval:g} ms, {name}: open + checkpoints", blocked, " ms")
            elif opens := [mean(run, "open_s") for run in shots if run["strategy"] == name]:
                at[name] = opens  # not measured at this interval: its open alone is no less than that
        others = {name: statistics.median(values) for name, values in at.items() if values and name != "incremental"}
        if at["incremental"] and others:
            best = min(others, key=lambda name: others[name])
            ratio = [value / others[best] for value in at["incremental"]]
            words = f"{interval:g} ms: open + checkpoints over the best other ({best})"
            yield judged_if(processes == 1, Row(words, "<= 1.03", ratio, at_most(1.03)))


def document(found: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """What benches/results/ holds: the rows, and of the runs all but each single call."""
    kept = [run | {"results": [{key: value for key, value in result.items() if not key.startswith("raw_")}
                               for result in run["results"]]} for run in found["runs"]]  # fmt: skip
    said = []
    for row in rows(found):
        if isinstance(row, Row):
            spread = {"n": len(row.values), "spread": [min(row.values), max(row.values)]}
            said.append(row.as_json() | spread | {"unit": row.unit.strip(), "verdict": verdict(row)})
        else:
            said.append({"figure": row[0], "verdict": row[1]})
    return {"figure": "init", "machine": dict(machine), "rows": said, "measured": dict(found) | {"runs": kept}}
