#!/usr/bin/env python3
"""How long a short program stands in opening its store, in checkpoints and in restores, for each way in which the
memory of the caches may come to be (hipc22 sec. V).

Each run is a process of benches/init.cpp for each GPU, all begun at once. Runs are made in the order of PARTS, each
part with what it is compared with in turn; what no longer fits the budget is left out and told. Ends with the table of
figures. What was measured is in --json, which further calls may take up with --samples; with --only-table nothing is
measured, so that a plot can be made of it anywhere.

  benches/init.py --build build/gpu --parts main --json one.json
  benches/init.py --build build/gpu --parts sweep --samples one.json --json both.json
  benches/init.py --only-table --samples both.json --json benches/results/init.json --plot docs/init.svg
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_figures
import harness
import init_figures
from init_figures import FULL_CHECKPOINTS, FULL_SIZE, HOST

HERE = Path(__file__).resolve().parent
GIB = harness.GIB
PARTS = ("cold", "touch", "shots", "beside", "flush", "turns", "copies", "small", "device", "sweep")
MAIN = PARTS[:-1]
OTHERS = 7  # that register memory too, of eight on a node
START = 1.7  # seconds for a process to have its context, its raw rates and its end
# Bytes a second at which memory is provisioned, for the estimate alone.
RATES = {"cuda_host_alloc": 3e9, "direct": 18e9, "incremental": 1e12}


@dataclass
class Run:
    """Processes of one kind, all at once."""

    part: str
    strategy: str  # of the cache that the part is about
    config: str = "large-host"
    interval: float = 0.0  # seconds
    restores: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def name(self) -> str:
        interval = f", {self.interval * 1e3:g} ms" if self.config and self.part not in ("copies", "touch") else ""
        return f"{self.part}: {self.strategy}, {self.config}{interval}"


def plan(given: argparse.Namespace) -> Iterator[Run]:
    """Every run, in the order in which they are made."""
    few = given.quick
    main = given.main_interval / 1e3
    host = [name for name in HOST if name != "cuda_host_alloc" or cuda(given)]
    alone = given.processes == 1
    ours, direct, whole = (2, 1, int(alone)) if few else (5, 3, 1) if alone else (3, 2, 0)
    ours, direct = given.repeats or ours, given.repeats or direct
    for part in given.parts:
        if part == "cold":
            yield Run("cold", "incremental", interval=main, options={"beside": 1})
        elif part == "touch":
            yield Run("touch", "", options={"mode": "touch", "bytes": touched_bytes(given)})
        elif part == "shots":
            counts = {"incremental": ours, "cuda_host_alloc": direct, "direct": 1, "touch_then_register": whole}
            for turn in range(max(counts.values())):
                for name in HOST:
                    if name in host and turn < counts.get(name, 0):
                        yield Run("shots", name, interval=main, restores=True)
        elif part in ("beside", "flush"):
            option = {"beside": 1} if part == "beside" else {"watch": 1}
            for _ in range(given.repeats or (1 if few else 5)):
                yield Run(part, "incremental", options=option)
            if part == "beside":
                yield Run(part, "incremental", interval=main, options=option)
            if not few:
                yield Run(part, "touch_then_register", options=option)
        elif part == "turns":
            others = max(0, OTHERS + 1 - given.processes) // given.processes  # of each: on the node they are eight
            for _ in range(given.repeats or (1 if few else 3)):
                yield Run(part, "incremental", interval=main, restores=True, options={"others": others})
        elif part == "copies":
            more = {"mode": "copies", "host_cache": given.size * given.checkpoints // 8, "repeats": given.repeats or 5}
            yield Run("copies", "", options=more)
        elif part == "small":  # a sixteenth of what the caches would hold
            yield Run("small", "incremental", interval=main, restores=True,
                      options={"checkpoints": max(1, given.checkpoints // 16)})  # fmt: skip
        elif part == "device":
            for _ in range(given.repeats or (1 if few else 3)):
                for name in ("mapped", "direct", *(["cuda_malloc"] if cuda(given) else [])):
                    yield Run("device", name, "large-device", interval=0.005)
        elif part == "sweep":
            # What is known to stand longest comes last, for its time to open alone is more than all else.
            early = ["incremental", "touch_then_register", "concurrent", "sequential"]
            for _ in range(given.sweep_repeats):
                for names in (early, [name for name in host if name not in early]):
                    for interval in given.intervals:
                        for name in names:
                            yield Run("sweep", name, interval=interval / 1e3)


def cuda(given: argparse.Namespace) -> bool:
    return given.device != "cpu"


def touched_bytes(given: argparse.Namespace) -> int:
    """For a GPU nearly all the machine's free memory, for nobody knows which of it the processes will be given; else as
    much as they will use, and some more."""
    most = available_bytes() * 9 // 10
    wanted = given.processes * given.size * (given.checkpoints + 24) + given.size
    return most if cuda(given) and not given.quick else min(wanted, most)


def available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def caches(run: Run, given: argparse.Namespace) -> dict[str, int]:
    history = given.size * given.checkpoints
    if run.config == "large-device":
        return {"device_cache": history, "host_cache": 0}
    return {"device_cache": max(given.size, history // 8), "host_cache": history}


def estimate(run: Run, given: argparse.Namespace) -> float:
    """Seconds that a run takes, about."""
    history = given.size * given.checkpoints
    if run.part == "touch":
        return run.options["bytes"] * (1 / 8e9 + cuda(given) / 15e9) + START
    if run.part == "copies":
        return START + 40 * run.options["host_cache"] / 50e9 + run.options["host_cache"] / RATES["direct"]
    count = run.options.get("checkpoints", given.checkpoints)
    opened = history / RATES.get(run.strategy, 10e9) * (given.processes if run.config == "large-host" else 0.02)
    moving = 2 * count * given.size / 50e9 if run.part in ("beside", "flush") else 0
    alone = 1.0 if "beside" in run.options else 0
    return START + opened + moving + alone + count * run.interval * (2 if run.restores else 1)


def command(run: Run, given: argparse.Namespace) -> list[str]:
    own = {"size": given.size, "checkpoints": given.checkpoints, "interval": run.interval, "device": given.device,
           "restores": int(run.restores), "barrier": 1} | caches(run, given)  # fmt: skip
    if run.part == "touch":
        own = {"device": given.device}
    elif run.config == "large-device":
        own["device_strategy"] = run.strategy
    elif run.part != "copies":
        own["host_strategy"] = run.strategy
    words = [str(given.build / "benches" / "init")]
    for name, value in (own | run.options).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name."""
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return named.split(",")
    listing = gpu_figures.said("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
    return listing.split()


def execute(words: list[str], processes: int, visible: list[str], limit: float) -> list[dict]:
    """What each process measured. All open their store at the same moment, and take their raw rates together."""
    barriers = 2 if "--barrier" in words else 0
    with tempfile.TemporaryFile() as errors:
        running: list[subprocess.Popen] = []

        def end() -> None:
            for process in running:
                with suppress(ProcessLookupError):
                    process.kill()

        clock = threading.Timer(limit, end)
        clock.start()
        try:
            for i in range(processes):
                chosen = {"CUDA_VISIBLE_DEVICES": visible[i % len(visible)]} if visible and processes > 1 else {}
                running.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                                env={**os.environ, **chosen}, text=True))  # fmt: skip
            for _ in range(barriers):
                for process in running:
                    if process.stdout.readline() != "ready\n":
                        raise RuntimeError(f"a process ended early: {told(errors)}")
                for process in running:
                    process.stdin.write("go\n")
                    process.stdin.flush()
            found = [process.communicate()[0] for process in running]
            if any(process.returncode for process in running):
                codes = [process.returncode for process in running]
                raise RuntimeError(f"ended with {codes}: {told(errors)}")
            return [json.loads(text) for text in found]
        except OSError as error:  # a pipe whose reader is gone
            raise RuntimeError(f"{error}: {told(errors)}") from error
        finally:
            clock.cancel()
            end()
            for process in running:
                for pipe in (process.stdin, process.stdout):
                    with suppress(OSError):
                        pipe.close()
                process.wait()


def told(errors: Any) -> str:
    errors.seek(0)
    return " ".join(errors.read().decode(errors="replace").split())[-400:] or "it said nothing"


def measure(given: argparse.Namespace) -> dict[str, Any]:
    begin = time.monotonic()
    visible = gpus() if cuda(given) else []
    if cuda(given) and not visible and not given.dry_run:
        raise SystemExit("init: there is no GPU here; --device cpu measures ordinary memory")
    given.processes = given.processes or max(1, len(visible))
    runs = list(plan(given))
    needed = sum(estimate(run, given) for run in runs)
    if given.dry_run:
        for run in runs:
            print(f"{estimate(run, given):6.1f} s  {run.name()}")
    print(f"{len(runs)} runs of {given.processes} process(es), about {needed:.0f} s; budget {given.budget:.0f} s",
          flush=True)  # fmt: skip
    if given.dry_run:
        raise SystemExit(0)
    found: dict[str, Any] = {"runs": [], "left_out": {}, "failures": []}
    if not cuda(given):
        found["left_out"] |= {name: "needs a GPU" for name in ("cuda_host_alloc", "cuda_malloc")}
    for run in runs:
        left = given.budget - (time.monotonic() - begin)
        if estimate(run, given) > left:
            found["left_out"][run.name()] = "no time"
            continue
        began = time.monotonic()
        try:
            processes = 1 if run.part == "touch" else given.processes
            results = execute(command(run, given), processes, visible, min(left + 20, 30 + 4 * estimate(run, given)))
        except (RuntimeError, ValueError) as error:
            found["failures"].append({"run": run.name(), "why": str(error)})
            print(f"FAILED {run.name()}: {error}", flush=True)
            continue
        took = time.monotonic() - began
        found["runs"].append({
            "part": run.part, "strategy": run.strategy, "config": run.config, "interval_ms": run.interval * 1e3,
            "processes": given.processes, "size": given.size, "checkpoints": given.checkpoints, "device": given.device,
            "took_s": round(took, 2), "commit": described(given).get("commit"), "results": results,
        })  # fmt: skip
        print(f"{time.monotonic() - begin:6.1f} s  {run.name()}: {summary(results)}, {took:.1f} s", flush=True)
        if given.json:  # whatever happens to the next one
            save(given, found)
    return found


def summary(results: list[dict]) -> str:
    first = results[0]
    if "touch_s" in first:
        return f"{first['touched_bytes'] / GIB:.1f} GiB in {first['touch_s']:.2f} s"
    if "grown_d2h_bytes_per_s" in first:
        return f"complete after {first['complete_s']:.3f} s"
    mean = {name: sum(result.get(name, 0.0) for result in results) / len(results) * 1e3
            for name in ("open_s", "checkpoints_s", "restores_s", "copy_beside_longest_s", "flush_bytes_per_s")}  # fmt: skip
    text = f"open {mean['open_s']:.1f}, checkpoints {mean['checkpoints_s']:.1f}"
    text += f", restores {mean['restores_s']:.1f} ms" if mean["restores_s"] else " ms"
    if mean["copy_beside_longest_s"]:
        text += f", longest copy {mean['copy_beside_longest_s']:.2f} ms"
    if mean["flush_bytes_per_s"]:
        text += f", flushed {mean['flush_bytes_per_s'] / 1e12:.1f} GB/s"
    if wrong := sum(result.get("wrong", 0) for result in results):
        text += f", {wrong:.0f} WRONG RESTORES"
    return text


def described(given: argparse.Namespace) -> dict[str, Any]:
    """The machine, seen once."""
    given.machine = given.machine or gpu_figures.describe("/tmp", HERE.parent)
    return given.machine


def save(given: argparse.Namespace, found: dict[str, Any]) -> None:
    machine = described(given)
    document = init_figures.document(init_figures.joined([*given.earlier, found]), machine)
    others = [other for other in given.machines if other != machine]
    document["other_machines"] = [other for at, other in enumerate(others) if other not in others[:at]]
    partial = given.json.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(given.json)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=Path, default=HERE.parent / "build" / "gpu")
    add("--json", type=Path, help="what was measured, its figures and the machine; written after each run")
    add("--samples", type=Path, nargs="+", default=[], help="earlier such files, taken up")
    add("--only-table", action="store_true", help="of --samples; nothing is measured")
    add("--plot", type=Path, help="as the paper's figures 4 to 6; needs matplotlib")
    add("--parts", default="all", help=f"with commas between: {', '.join(PARTS)}; or main (all but sweep), or all")
    add("--dry-run", action="store_true", help="only says what would be run, and how long it would take")
    add("--quick", action="store_true", help="a quarter of the checkpoints and caches, few repeats: told, not judged")
    add("--budget", type=float, default=560, metavar="SECONDS", help="no run is begun that would end later")
    add("--processes", type=int, default=0, help="at once, one a GPU; 0: as many as there are GPUs")
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--dir", help="not used: nothing is on a disk")
    add("--size", type=int, default=FULL_SIZE, help="bytes of a checkpoint")
    add("--checkpoints", type=int, help=f"{FULL_CHECKPOINTS} unless --quick; caches hold as many")
    add("--main-interval", type=float, default=20, metavar="MS")
    add("--intervals", default="5,10,20,40,60", metavar="MS,...", help="of the sweep")
    add("--repeats", type=int, default=0, help="of each run but the sweep's, in place of the usual")
    add("--sweep-repeats", type=int, default=1)
    given = parser.parse_args()
    named = {"all": PARTS, "main": MAIN}.get(given.parts, tuple(given.parts.split(",")))
    if unknown := set(named) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.quick and given.parts == "all":
        named = MAIN  # a sweep is never quick
    given.parts = [part for part in PARTS if part in named]
    given.intervals = [float(text) for text in given.intervals.split(",")]
    given.checkpoints = given.checkpoints or (FULL_CHECKPOINTS // 4 if given.quick else FULL_CHECKPOINTS)
    given.machine = None
    given.machines = []  # of the samples
    given.earlier = []
    for path in given.samples:
        document = json.loads(path.read_text())
        given.earlier.append(document["measured"])
        given.machine = given.machine or (document["machine"] if given.only_table else None)
        given.machines += [document["machine"], *document.get("other_machines", [])]
    return given


def main() -> int:
    given = parse()
    found = {"runs": [], "left_out": {}, "failures": []} if given.only_table else measure(given)
    everything = init_figures.joined([*given.earlier, found])
    if given.json:
        save(given, found)
    print(harness.table(init_figures.rows(everything)))
    if given.plot:
        import init_plot

        init_plot.plot(everything, given.plot)
    for failure in found["failures"]:
        print(f"FAILED: {failure['run']}: {failure['why']}")
    wrong = sum(result.get("wrong", 0) for run in found["runs"] for result in run["results"])
    return 1 if found["failures"] or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
