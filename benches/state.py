#!/usr/bin/env python3
r"""The same program's state, a dict of tensors of mixed sizes, kept in different ways: until durable, and time blocked.

Durable: the bytes are on stable storage under their names, so that a restart after a loss of power finds them; where a
library leaves syncs to the program, they are made and counted. Blocked: until the program may change its state again; a
library of arrays that are never changed in place need not copy them, and is set against our way of not copying: a state
that is computed inside the store's own memory.
Each way has a process of its own, which keeps all that it would keep between saves; they take turns, each repeat in
another order, with the disk at rest before each. The first save of each is not counted; the last is read again and
compared. The one before is removed when the next is durable, and that is not counted.

  pip install -r benches/peers/requirements.txt
  benches/state.py --dir /mnt/disk                   # writes benches/results/state.json
  benches/state.py --dir /mnt/disk --repeats 7 --json benches/results/torch_state.json \
    --only ebbtide_reserve,ebbtide_torch,torch_save,dcp,dcp_async,orbax_async,orbax_jax_async
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
import peers

LAYER = {"attention.qkv": 3 << 20, "attention.out": 1 << 20, "mlp.up": 4 << 20, "mlp.down": 4 << 20, "norm1": 1 << 10,
         "norm2": 1 << 10, "mlp.bias": 4 << 10}  # fmt: skip
EMBEDDING = 32 << 20
CHECK = -1  # instead of a step: what was saved last is read again
LAYERS = 17  # with the embedding about 1 GB of float32


def layout(total: int) -> dict[str, int]:
    """Names and elements of float32: an embedding and the layers of a transformer, scaled to `total` bytes."""
    whole = {"embedding": EMBEDDING}
    for layer in range(LAYERS):
        whole |= {f"layers.{layer}.{name}": elements for name, elements in LAYER.items()}
    scale = total / 4 / sum(whole.values())
    return {name: max(1, round(elements * scale)) for name, elements in whole.items()}


def state(memory: memoryview, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    out, at = {}, 0
    for name, elements in sizes.items():
        out[name] = np.frombuffer(memory, np.float32, elements, at)
        at += 4 * elements
    return out


def serve(key: str, directory: Path, memory: shared_memory.SharedMemory, sizes: dict[str, int], pipe: Any) -> None:
    """A way's process: saves what it is asked to, and says how long it took."""
    try:
        kind = peers.adapter(key)
        total = 4 * sum(sizes.values())
        options: dict[str, Any] = {}
        if key.startswith("ebbtide"):  # room for the state and what each array is rounded up to
            options = {"device_cache": total + (64 << 20), "host_cache": 0, "disk": 4 * total + (64 << 20)}
        saver = kind(directory, **options)
        kept = saver.convert(state(memory.buf, sizes))
        pipe.send({"title": kind.title, "in_place": kind.in_place, "how": kind.how, "versions": peers.versions(kind)})
    except ImportError as error:
        pipe.send({"missing": str(error)})
        return
    while (step := pipe.recv()) != CHECK:
        saver.prepare(step, kept)
        start = time.perf_counter()
        saver.begin(step, kept)
        blocked = time.perf_counter() - start
        saver.finish()
        pipe.send((time.perf_counter() - start, blocked))
        for old in saver.steps()[1:]:
            saver.forget(old)
    saver.close()
    reader = kind(directory, to_read=True, **options)
    pipe.send(same(reader.restart().state, state(memory.buf, sizes)))
    reader.close()


def same(found: dict[str, np.ndarray] | None, expected: dict[str, np.ndarray]) -> bool:
    """All bytes; `found` may be one array of all of them."""
    if found is not None and len(found) == 1:
        (whole,), ends = found.values(), np.cumsum([array.nbytes for array in expected.values()])
        found = dict(zip(expected, np.split(whole.reshape(-1).view(np.uint8), ends[:-1]), strict=True))
    return found is not None and all(
        np.array_equal(found[name].reshape(-1).view(np.uint8), array.view(np.uint8)) for name, array in expected.items()
    )


class Way:
    """The parent's side of a process."""

    def __init__(self, key: str, directory: Path, memory: shared_memory.SharedMemory, sizes: dict[str, int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(key, directory, memory, sizes, theirs))
        self._process.start()
        theirs.close()
        self.about = self._pipe.recv()

    def save(self, step: int) -> tuple[float, float]:
        self._pipe.send(step)
        return self._pipe.recv()

    def check(self) -> bool:
        """What a restart gets is what was saved last, bit for bit."""
        self._pipe.send(CHECK)
        return self._pipe.recv()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def measure(given: argparse.Namespace, keys: list[str]) -> dict[str, Any]:
    sizes = layout(given.bytes)
    total = 4 * sum(sizes.values())
    memory = shared_memory.SharedMemory(create=True, size=total)
    found: dict[str, Any] = {"bytes": total, "tensors": len(sizes), "ways": {}}
    ways: dict[str, Way] = {}
    try:
        fill = np.random.default_rng(given.seed)
        for array in state(memory.buf, sizes).values():
            array[:] = fill.standard_normal(array.size, dtype=np.float32)
        del array
        with tempfile.TemporaryDirectory(prefix="state-", dir=given.dir) as scratch:
            try:
                for key in keys:
                    ways[key] = Way(key, Path(scratch) / key, memory, sizes)
                    if "missing" in ways[key].about:
                        print(f"{key}: not there: {ways[key].about['missing']}", file=sys.stderr)
                        ways.pop(key).close()
                        continue
                    found["ways"][key] = ways[key].about | {"durable_s": [], "blocked_s": []}
                turns(given, ways, found["ways"])
                for key, way in ways.items():
                    if not way.check():
                        raise RuntimeError(f"{key}: what was read again is not what was saved")
                    print(f"{key:16} read again, bit for bit", flush=True)
            finally:
                for way in ways.values():
                    way.close()
    finally:
        try:
            memory.close()
        except BufferError:
            pass  # views of it that go with this process
        memory.unlink()
    return found


def turns(given: argparse.Namespace, ways: dict[str, Way], found: dict[str, Any]) -> None:
    order, shuffled = list(ways), random.Random(given.seed)
    for repeat in range(given.repeats + 1):
        shuffled.shuffle(order)
        for key in order:
            os.sync()
            time.sleep(given.rest)
            durable, blocked = ways[key].save(repeat)
            if repeat:
                found[key]["durable_s"].append(durable)
                found[key]["blocked_s"].append(blocked)
            print(
                f"{key:16} durable {durable:7.3f} s, blocked {blocked:7.3f} s{'' if repeat else ' (not counted)'}",
                flush=True,
            )


def rows(found: dict[str, Any]) -> list[harness.Row]:
    """Ours, and each other's over ours: at least 1. What is not changed in place is set against what is not either."""
    out = []
    for what, name in (("durable_s", "time until durable"), ("blocked_s", "time blocked")):
        for key, way in found["ways"].items():
            out.append(harness.Row(f"{name}: {way['title']}", "", way[what], None, " s"))
            peers_of_ours = ("ebbtide", "ebbtide_torch") if way["in_place"] else ("ebbtide_reserve",)
            ours = next((found["ways"][one] for one in peers_of_ours if one in found["ways"]), None)
            if ours and not key.startswith("ebbtide"):
                ratios = harness.over(way[what], ours[what])
                words = f"{name}: {way['title']} over ours"
                out.append(harness.Row(words, "at least 1", ratios, harness.at_least(1), " times"))
    return out


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, default=harness.RESULTS / "state.json")
    options.add_argument("--dir", type=Path, default=Path("/tmp"), help="on the disk to be measured")
    options.add_argument("--bytes", type=int, default=10**9)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--rest", type=float, default=1.0, help="seconds before each save")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default=",".join(peers.KEYS), help="with commas between: " + ", ".join(peers.KEYS))
    given = options.parse_args()
    keys = [key for key in peers.KEYS if key in given.only.split(",")]
    described = harness.machine(str(given.dir))
    found = measure(given, keys)
    described["load_after"] = os.getloadavg()[0]
    table = rows(found)
    print(harness.table(table))
    document = {
        "figure": "state",
        "command": ["state.py", "--bytes", str(given.bytes), "--repeats", str(given.repeats), "--only", given.only],
        "machine": described,
        "rows": [row.as_json() for row in table],
        "measured": found
        | {"medians": {key: {what: statistics.median(way[what]) for what in ("durable_s", "blocked_s")}
                       for key, way in found["ways"].items()}},
    }  # fmt: skip
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
