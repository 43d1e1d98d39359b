"""``memory=``: one budget of host memory, which the process keeps to; ``warm=``: all of it is there from `open` on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from memory_support import resident

import ebbtide

MIB = 1 << 20
BUDGET = 200_000_000

# The most that the process grows from before `open` on, in bytes. Its own arrays are there before. The kernel keeps the
# peak, so what is taken and given back within one call counts too.
SHOT = """
import sys
import zlib
from pathlib import Path
import numpy as np
import ebbtide

directory, durability, size, count, budget = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def bytes_of(key):
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(key + ":"))
    return int(line.split()[1]) << 10

field, target = np.arange(size, dtype=np.uint8), np.ones(size, np.uint8)
sums = []
Path("/proc/self/clear_refs").write_text("5")
before = bytes_of("VmRSS")
with ebbtide.open(
    directory, device="cpu", memory=budget, durability=durability, disk=count * size + (64 << 20)
) as store:
    for version in range(count):
        field[:8] = version
        sums.append(zlib.crc32(field))  # comparing arrays would make one of the program's own
        store.checkpoint(version, field)
        store.hint_front(version)
    for version in reversed(range(count)):
        store.restore(version, out=target)
        assert zlib.crc32(target) == sums.pop()
    print(bytes_of("VmHWM") - before)
"""


@pytest.mark.parametrize("durability", ["ephemeral", "process"])
@pytest.mark.parametrize(("size", "count"), [(4 * MIB, 100), (BUDGET // 2, 6)], ids=["small", "half"])
def test_a_shot_stays_within_the_budget(disk: Path, durability: str, size: int, count: int) -> None:
    command = [sys.executable, "-c", SHOT, str(disk / "store"), durability, str(size), str(count), str(BUDGET)]
    (disk / "store").mkdir()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    grown = int(run.stdout)
    assert grown >= BUDGET // 2, "or the caches were not used, and nothing was measured"
    assert grown <= BUDGET + BUDGET // 20 + 16 * MIB


def test_the_caches_are_what_the_ring_leaves(disk: Path) -> None:
    with ebbtide.open(disk, device="cpu", memory="64MB", disk="64MiB") as store:
        tiers = {tier["name"]: tier["capacity"] for tier in store.stats()["tiers"]}
        assert set(tiers) == {"host", "local"}
        assert 64_000_000 * 7 // 8 <= tiers["host"] + 4096 <= 64_000_000
        with store.reserve(0, 32_000_000, "u1") as room:
            room[:] = 7
        store.checkpoint(1, np.ones(32_000_000, np.uint8))
        with store.borrow(0) as view:
            assert (view == 7).all()


def test_what_it_replaces_is_refused_by_name(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("device_cache", "host_cache", "node_pool"):
        with pytest.raises(ebbtide.InvalidArgument, match=f'^{key}="1048576".*memory=67108864'):
            ebbtide.open(disk, device="cpu", memory="64MiB", **{key: "1MiB"})
    with pytest.raises(ebbtide.InvalidArgument, match=r'^memory="1000000".*at least 1048576 bytes \(1 MiB\)'):
        ebbtide.open(disk, device="cpu", memory="1MB")
    monkeypatch.setenv("EBBTIDE_MEMORY", "1MiB")
    with ebbtide.open(disk, device="cpu", disk="8MiB") as store:
        store.checkpoint(0, np.ones(512 << 10, np.uint8))


@pytest.mark.parametrize("sizes", [{"memory": "64MiB"}, {"device_cache": "24MiB", "host_cache": "40MiB"}], ids=str)
def test_the_first_checkpoint_of_a_warm_store_touches_no_new_memory(disk: Path, sizes: dict[str, str]) -> None:
    field = np.ones(20 * MIB, np.uint8)
    before = resident()
    with ebbtide.open(disk, device="cpu", warm=True, disk="64MiB", **sizes) as store:
        opened = resident()
        assert opened - before >= 56 * MIB
        store.checkpoint(0, field)
        assert resident() - opened < 2 * MIB
        assert {tier["arena"]["strategy"] for tier in store.stats()["tiers"] if tier["name"] != "local"} == {"direct"}
