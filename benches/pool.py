#!/usr/bin/env python3
"""What a node's pool, and files in it, save programs that write checkpoints (wag-dbi, figures 2 and 7, Table II).

    make build && benches/pool.py --short && make docs    # as root: nine minutes, and docs/node.md
    benches/pool.py                                       # the figures of docs/node.md, and the curves beside them

Eight processes on two processors write the mixes of figure 2 into files of a store, beside plain files with and without
fsync; torch.save writes 1 GB. Ratios of medians within one run. As root, a slow disk too: ext4 on a loop device over a file
of a FUSE file system that writes 60 MB/s (benches/slow_disk.py). Writes benches/results/pool.json, from which docs/node.md
has its table. `--nice -15` goes before other work of the machine: the agent has 10 more.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from slow_disk import slow_disk

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
TWO = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
ON_TWO = ["taskset", "-c", TWO] if shutil.which("taskset") else []
PROCESSES, ROUNDS, SLOW_ROUNDS, WARM, COMPUTE = 8, 10, 5, 3, 500
HOLDS_ALL = {"LU.C.64": 256 * MIB, "BT.C.64": 512 * MIB}
CURVE_POOLS = [16 * MIB, 64 * MIB, 256 * MIB]
CURVE_CHUNKS = [MIB // 4, MIB, 4 * MIB, 16 * MIB]


def taken(program: pathlib.Path, directory: str, **options: object) -> dict[str, Any]:
    """One run of the program, on two processors."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = [str(program), "--dir", directory, "--json", out.name]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        subprocess.run([*ON_TWO, *words], check=True, timeout=600)
        return json.loads(pathlib.Path(out.name).read_text())


def row(mix: str, pool: int, overflow: str, found: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """A row of the table, in milliseconds: `base` has what is compared with, of the same mix and disk."""
    at = {name: statistics.median(values) for name, values in (base | found).items() if isinstance(values, list)}
    beyond = max(0.0, base["bytes"] - pool) / base["bytes"] * at["bare_write_ms"]
    ours = at["ours_blocked_ms"]
    return {
        "mix": mix,
        "pool": pool,
        "overflow": overflow,
        "bound_ms": round(max(at["copy_blocked_ms"], beyond), 1),
        "fsync_ms": round(at["fsync_blocked_ms"], 1),
        "buffered_ms": round(at["buffered_blocked_ms"], 1),
        "ours_ms": round(ours, 1),
        "durable_ms": round(at["ours_durable_ms"], 1),
        "bare_write_ms": round(at["bare_write_ms"], 1),
        "private_mib": round(found["private_bytes"] / MIB / PROCESSES, 2),
        "measured": {
            name: [round(one, 1) for one in values] for name, values in found.items() if isinstance(values, list)
        },
    }


def table(program: pathlib.Path, directory: str, rounds: int) -> list[dict[str, Any]]:
    """Both mixes on one disk, through a small pool in either way and through one that holds all."""
    rows = []
    for mix, all_of_it in HOLDS_ALL.items():
        base: dict[str, Any] = {}
        for pool, overflow in ((64 * MIB, "wait"), (64 * MIB, "page cache"), (all_of_it, "page cache")):
            found = taken(program, directory, mix=mix, pool=pool, overflow=overflow, chunk=MIB // 4, rounds=rounds,
                          only="ours" if base else "all")  # fmt: skip
            base = base or found
            rows.append(row(mix, pool, overflow, found, base))
            print({name: value for name, value in rows[-1].items() if name != "measured"}, flush=True)
    return rows


def curve(program: pathlib.Path, directory: str) -> list[dict[str, float]]:
    """t2 - t1 and t3 - t2 of LU.C.64 by the sizes of pool and chunk."""
    points = []
    for pool in CURVE_POOLS:
        for chunk in CURVE_CHUNKS:
            if pool // chunk < 2 * PROCESSES:
                continue
            found = taken(program, directory, only="ours", pool=pool, chunk=chunk, rounds=8)
            blocked = statistics.median(found["ours_blocked_ms"])
            drained = statistics.median(found["ours_durable_ms"]) - blocked
            points.append({"pool": pool, "chunk": chunk, "t2_t1_ms": round(blocked, 1), "t3_t2_ms": round(drained, 1)})
    return points


def slow_downs(program: pathlib.Path, directory: str) -> list[dict[str, Any]]:
    """How much longer a program runs with three checkpoints, which waits COMPUTE ms before each: ours over fsync."""
    rows = []
    for mix, all_of_it in HOLDS_ALL.items():
        for pool in (64 * MIB, all_of_it):
            found = taken(program, directory, only="slow-down", mix=mix, pool=pool, chunk=MIB // 4, rounds=3 + 3 * 5,
                          compute=COMPUTE)  # fmt: skip
            threes = {
                name: [sum(found[f"{name}_blocked_ms"][n : n + 3]) for n in range(0, 15, 3)]
                for name in ("fsync", "ours")
            }
            at = {name: statistics.median(sums) for name, sums in threes.items()}
            row = {"mix": mix, "pool": pool, "compute_ms": 3 * COMPUTE, "blocked_ms": threes}
            row |= {f"{name}_percent": round(100 * ms / (3 * COMPUTE), 2) for name, ms in at.items()}
            rows.append(row | {"ours over fsync": round(at["ours"] / at["fsync"], 3)})
            print(mix, pool // MIB, "MiB, slow-down", rows[-1]["ours over fsync"], flush=True)
    return rows


def buffers(program: pathlib.Path, directory: str) -> list[dict[str, Any]]:
    """A process's own work for each checkpoint beyond the copy, in per cent of t2 - t1 (figure 7a's "Buffer")."""
    rows = []
    for processes in (1, 2, 4, 8, 16):
        found = taken(program, directory, only="buffer", processes=processes, chunk=MIB // 4, rounds=ROUNDS)
        at = {name: statistics.median(values) for name, values in found.items() if isinstance(values, list)}
        own = at["ours_processor_ms"] - at["copy_processor_ms"]
        rows.append({"processes": processes, "buffer_ms": round(own, 2), "t2_t1_ms": round(at["ours_blocked_ms"], 1),
                     "percent": round(100 * own / at["ours_blocked_ms"], 2)})  # fmt: skip
    return rows


TENFOLD = """
import json, os, sys, time
import ebbtide, numpy
directory, pooled, start, rank = sys.argv[1], sys.argv[2] == "pooled", float(sys.argv[3]), int(sys.argv[4])
memory = {"node_pool": "4GiB", "durability": "node"} if pooled else {"host_cache": "1GiB", "durability": "storage"}
store = ebbtide.open(directory, device="cpu", device_cache=0, disk="16GiB", **memory)
field = numpy.ones(8 << 20)
blocked = []
for turn in range(6):
    time.sleep(max(0.0, start + turn * 10 - time.time()))
    begin = time.perf_counter()
    for version in range(36 if rank == 0 else 4):
        store.checkpoint(version, field, timeout=None)
    blocked.append(time.perf_counter() - begin)
    store.wait("storage")
    store.drop()
print(json.dumps({"blocked": blocked, "borrowed": (store.stats().get("node") or {}).get("bytes_borrowed")}))
"""


def tenfold(directory: str) -> dict[str, Any]:
    """Seconds that one of four processes is blocked, which writes 36 checkpoints of 64 MiB while the others write 4."""
    found: dict[str, Any] = {}
    for kind in ("own", "pooled"):
        start, running = time.time() + 4, []
        for rank in range(4):
            environment = os.environ | {
                "EBBTIDE_JOB": f"ten-{kind}",
                "EBBTIDE_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "4",
            }
            place = f"{directory}/ten" if kind == "pooled" else f"{directory}/ten-{rank}"
            words = [*ON_TWO, sys.executable, "-c", TENFOLD, place, kind, str(start), str(rank)]
            running.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
        told = [process.communicate(timeout=200)[0] for process in running]
        if any(process.returncode for process in running):
            sys.exit("a process of the tenfold row failed")
        busy = json.loads(told[0])
        found[kind] = [round(one, 4) for one in busy["blocked"][1:]]  # memory is touched in the first
        found["borrowed"] = busy["borrowed"]
    found["pooled over own"] = round(statistics.median(found["pooled"]) / statistics.median(found["own"]), 4)
    return found


def torch_saves(directory: str) -> dict[str, Any] | None:
    """Seconds of torch.save of 1 GB: into a file with fsync, into a store's file, and into nothing (its own work)."""
    if importlib.util.find_spec("torch") is None:
        return None
    import ebbtide
    import torch

    state = {f"layer{n}": torch.full((MIB * 31,), float(n)) for n in range(8)}  # 1.04 GB
    seconds: dict[str, list[float]] = {"fsync": [], "ours": [], "nothing": []}

    class Nothing(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            return len(data)

    path = pathlib.Path(directory) / "plain.pt"
    options = {"device": "cpu", "device_cache": 0, "host_cache": "3GiB", "disk": "16GiB", "durability": "storage"}
    with ebbtide.open(pathlib.Path(directory) / "torch", **options) as store:
        for version in range(7):
            begin = time.perf_counter()
            with path.open("wb") as plain:
                torch.save(state, plain)
                plain.flush()
                os.fsync(plain.fileno())
            seconds["fsync"].append(time.perf_counter() - begin)
            path.unlink()
            begin = time.perf_counter()
            with store.create_file("model", version) as file:
                torch.save(state, file)
            seconds["ours"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            torch.save(state, Nothing())
            seconds["nothing"].append(time.perf_counter() - begin)
            file.wait("storage")
            if version:
                store.drop_file("model", version - 1)
        with store.open_file("model") as file:
            found = torch.load(file)
        if not all(torch.equal(found[name], tensor) for name, tensor in state.items()):
            sys.exit("torch.load gave other bytes")
    later = {name: values[2:] for name, values in seconds.items()}  # the cache's memory was touched by then
    ratio = statistics.median(later["fsync"]) / statistics.median(later["ours"])
    return {"seconds": {name: [round(one, 3) for one in values] for name, values in seconds.items()}, "ratio": ratio}


def main() -> None:
    """Measures all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--dir", default=str(HERE.parent / "build"), help="where the files are written")
    parser.add_argument("--out", default=str(HERE / "results" / "pool.json"))
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="without the slow disk")
    parser.add_argument(
        "--short",
        action="store_true",
        help="the table, the slow-downs and the tenfold row; the rest stays as it was in --out",
    )
    given = parser.parse_args()
    program, agent = given.build / "benches" / "pool", given.build / "src" / "share" / "ebbtide-agent"
    shutil.copy(agent, program.parent)  # a program starts the agent that is beside it
    os.nice(given.nice)
    load = os.getloadavg()
    result: dict[str, Any] = {
        "kernel": os.uname().release,
        "processes": PROCESSES,
        "processors": 2,
        "nice": given.nice,
        "rounds": ROUNDS - WARM,
        "slow_rounds": SLOW_ROUNDS - WARM,
    }
    with tempfile.TemporaryDirectory(prefix="pool-", dir=given.dir) as directory:
        result["fast"] = table(program, directory, ROUNDS)
        result["slow_down"] = slow_downs(program, directory)
        result["tenfold"] = tenfold(directory)
        if os.geteuid() == 0 and not given.fast:
            with slow_disk(pathlib.Path(directory)) as mounted:
                result["slow"] = table(program, str(mounted), SLOW_ROUNDS)
        if not given.short:
            result["curve"] = curve(program, directory)
            result["buffer"] = buffers(program, directory)
            result["torch_save"] = torch_saves(directory)
    result["load"] = [round(value, 2) for value in (load[0], os.getloadavg()[0])]
    out = pathlib.Path(given.out)
    if given.short and out.exists():
        before = json.loads(out.read_text())
        result |= {name: before[name] for name in ("curve", "buffer", "torch_save") if name in before}
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["tenfold"], indent=1))


if __name__ == "__main__":
    main()
