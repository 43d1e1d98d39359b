#!/usr/bin/env python3
"""Listing 1 of hpdc23 with VELOC's calls (gpu_veloc.cpp) over the shot of `ebbtide bench shot`, by turns.

    benches/gpu_veloc.py --build build/gpu --dir /scratch --json veloc.json

Each is a process of its own, with the same sizes, caches and intervals. A shot's store is ephemeral: what was restored need
not go to the disk. VELOC's client keeps all that is written, so there is a third way: the shot over a store as durable as
the client's ("kept"), whose restores keep the version too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from harness import GIB, MIB, Row, over, told

BAR = 1.03


def config(given: Any, directory: Path) -> str:
    return (
        f"scratch = {directory}\nmode = async\ndisable_persistence = true\n"
        f"gpu_cache_size = {given.device_cache / GIB}\nhost_cache_size = {given.host_cache / GIB}\n"
    )


def listing(given: Any, directory: Path) -> dict[str, Any]:
    """One run of Listing 1."""
    file, out = directory / "veloc.cfg", directory / "listing.json"
    file.write_text(config(given, directory))
    program = given.build / "benches" / "gpu_veloc"
    words = [str(program), "--device", given.device, "--config", str(file), "--json", str(out)]
    words += ["--checkpoints", str(given.checkpoints), "--size", str(given.size)]
    words += ["--interval-us", str(round(given.interval * 1e6))]
    subprocess.run(words, check=True, timeout=given.seconds)
    found = json.loads(out.read_text())
    return {
        "wall_s": found["wall_s"],
        "blocked_s": sum(found["checkpoint_s"]) + sum(found["restore_s"]),
        "checkpoint_s": sum(found["checkpoint_s"]),
        "restore_s": sum(found["restore_s"]),
        "slept_s": sum(found["slept_s"]),
        "wrong": found["wrong"],
    }


SHOT = """
import json, sys
from ebbtide.bench import config, rank, shot
given = json.loads(sys.argv[1])
settings = config.Config(
    sizes=((given["size"],) * given["checkpoints"],), order="reverse", hints="all", interval=given["interval"],
    device_cache=given["device_cache"], host_cache=given["host_cache"], disk=given["disk"], directory=given["directory"],
    wait=False, policy="score", prefetch="manual", coupling="free", verify=False, seed=0, device=given["device"])
job = shot.jobs(settings)[0]
if given["kept"]:
    job.store["durability"] = "storage"
    del job.store["disk"]
    import ebbtide
    plain = ebbtide.Store.restore
    ebbtide.Store.restore = lambda self, version, **more: plain(self, version, keep=True, **more)
out = rank.run(job, lambda: None, lambda: None)
print(json.dumps({
    "wall_s": out.wall_s, "blocked_s": sum(out.checkpoint_s) + sum(out.restore_s), "checkpoint_s": sum(out.checkpoint_s),
    "restore_s": sum(out.restore_s), "slept_s": sum(out.slept_forward_s) + sum(out.slept_backward_s)}), flush=True)
import os
os._exit(0)
"""


def shot(given: Any, directory: Path, kept: bool) -> dict[str, Any]:
    """One shot, as `ebbtide bench shot` makes it."""
    options = {"size": given.size, "checkpoints": given.checkpoints, "interval": given.interval, "device": given.device,
               "device_cache": given.device_cache, "host_cache": given.host_cache, "directory": str(directory),
               "disk": given.checkpoints * given.size + 64 * MIB, "kept": kept}  # fmt: skip
    words = [sys.executable, "-c", SHOT, json.dumps(options)]
    ran = subprocess.run(words, check=True, timeout=given.seconds, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


WAYS = {
    "listing": listing,
    "shot": lambda given, directory: shot(given, directory, False),
    "kept": lambda given, directory: shot(given, directory, True),
}


def rows(found: dict[str, Any]) -> list[Row]:
    """Of the turns that were whole."""
    runs = found["runs"]
    turns = min(len(each) for each in runs.values())

    def values(way: str, name: str) -> list[float]:
        return [run[name] for run in runs[way][:turns]]

    ours = values("listing", "wall_s")
    table = [
        Row("Listing 1 over bench shot, time of a shot", f"<= {BAR:.0%}", over(ours, values("shot", "wall_s")),
            lambda value: value <= BAR, percent=True),
        Row("Listing 1 over the shot that keeps all, time of a shot", f"<= {BAR:.0%}", over(ours, values("kept", "wall_s")),
            lambda value: value <= BAR, percent=True),
        Row("Listing 1, restores with a wrong mark", "0", values("listing", "wrong"), lambda value: value == 0),
    ]  # fmt: skip
    for way in WAYS:
        for name in ("wall_s", "blocked_s", "checkpoint_s", "restore_s", "slept_s"):
            table.append(told(f"{way}, {name.removesuffix('_s')}", values(way, name), " s"))
    return table


def main() -> int:
    """Measures, and ends with the table."""
    options = harness.options(__doc__ or "", repeats=3)
    options.add_argument("--build", type=Path, default=harness.HERE.parent / "build" / "gpu")
    options.add_argument("--device", default="cuda")
    options.add_argument("--checkpoints", type=int, default=384)
    options.add_argument("--size", type=int, default=128 * MIB)
    options.add_argument("--interval", type=float, default=0.01, help="seconds")
    options.add_argument("--device-cache", type=int, default=4 * GIB)
    options.add_argument("--host-cache", type=int, default=32 * GIB)
    options.add_argument("--seconds", type=float, default=110, help="no turn is begun that would end after them")
    given = options.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    begun, longest = time.monotonic(), 0.0
    found = {"machine": harness.machine(given.dir), "checkpoints": given.checkpoints, "size": given.size,
             "interval": given.interval, "device_cache": given.device_cache, "host_cache": given.host_cache,
             "device": given.device, "runs": runs}  # fmt: skip
    for _ in range(given.repeats):
        turn = time.monotonic()
        if turn - begun + longest > given.seconds:
            break
        for way, run in WAYS.items():
            directory = Path(tempfile.mkdtemp(prefix="veloc-", dir=given.dir))
            try:
                runs[way].append(run(given, directory))
            finally:
                shutil.rmtree(directory)
            print(way, runs[way][-1], file=sys.stderr, flush=True)
            harness.leave(found, given.json)  # after each run: the machine may be taken away
        longest = max(longest, time.monotonic() - turn)
    print(harness.table(rows(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
