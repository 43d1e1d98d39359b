"""Processes on a GPU that share a node's pool, one of which is killed while copies to its memory are under way."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from gpu_support import needs_gpu

pytestmark = needs_gpu

ROUNDS, SIDE = 4, 1 << 20  # float32: 4 MiB
CHILD = """
import os, signal, sys, threading
import torch
import ebbtide

directory, rank, salt, dies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "dies"
store = ebbtide.open(directory, durability="node", node_pool="256MiB", device="cuda", device_cache="64MiB", disk="4GiB")
history = store.history("h")
if dies:
    for version in history.versions():  # what rounds before were killed in: exact, or not there
        x = history.restore(version)
        assert bool((x == version % 1000 + version // 1000 * 7).all()), version
x = torch.zeros(SIDE, device="cuda")
# It dies while the copies of these are on their way from the GPU into the pool.
if dies:
    print("begun", flush=True)
    threading.Timer(0.02 + salt % 7 * 0.015, os.kill, (os.getpid(), signal.SIGKILL)).start()
for version in range(salt * 1000, salt * 1000 + (10_000 if dies else 40)):
    x.fill_(version % 1000 + version // 1000 * 7)
    history.checkpoint(version, x, timeout=None)
if not dies:
    history.wait("storage")
    for version in range(salt * 1000, salt * 1000 + 40):
        found = history.restore(version)
        assert bool((found == version % 1000 + version // 1000 * 7).all()), version
        history.drop(version)
    print("intact", flush=True)
store.close()
""".replace("SIDE", str(SIDE))


def start(directory: Path, job: str, rank: int, salt: int, end: str) -> subprocess.Popen[str]:
    environment = os.environ | {"EBBTIDE_JOB": job, "EBBTIDE_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    words = [sys.executable, "-c", CHILD, str(directory), str(rank), str(salt), end]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_in_mid_copy_spoils_no_memory(disk: Path) -> None:
    job = f"test-{uuid.uuid4().hex}"
    for salt in range(ROUNDS):
        dying, living = start(disk / "run", job, 0, salt, "dies"), start(disk / "run", job, 1, salt, "lives")
        said, errors = dying.communicate(timeout=120)
        assert said.strip() == "begun", errors
        assert dying.returncode == -9, errors
        said, errors = living.communicate(timeout=120)
        assert said.strip() == "intact", errors
        assert living.returncode == 0


BORROWS = """
import os, sys, time
import torch
import ebbtide

job = {"durability": "node", "node_pool": "1GiB", "device": "cuda", "device_cache": "192MiB", "disk": "16GiB"}
os.environ["EBBTIDE_RANK"] = "0"
busy = ebbtide.open(sys.argv[1], **job)
os.environ["EBBTIDE_RANK"] = "1"
idle = ebbtide.open(sys.argv[1], **job)
x = torch.zeros(SIDE * 8, device="cuda")  # 32 MiB


def write(store, versions):
    for version in versions:
        store.checkpoint(version, x.fill_(version), timeout=None)


def borrowed(wanted):
    until = time.monotonic() + 60
    while bool(busy.stats()["node"]["bytes_borrowed"]) != wanted:
        assert time.monotonic() < until, "loans"
        time.sleep(0.01)


write(busy, range(24))
borrowed(True)
write(busy, range(24, 60))
pinned = [tier["arena"]["pinned"] for tier in busy.stats()["tiers"] if tier["name"] == "host"][0]
assert pinned > 512 << 20, pinned  # its share, and what it has borrowed
write(idle, range(30))
idle.wait("storage")
borrowed(False)
write(busy, range(60, 80))
busy.wait("storage")
for store, last in ((busy, 80), (idle, 30)):
    for version in range(last):
        found = store.restore(version)
        assert bool((found == version).all()), version
idle.close()
busy.close()
""".replace("SIDE", str(SIDE))


def test_what_is_borrowed_is_registered_and_returned_before_its_owner_uses_it(disk: Path) -> None:
    environment = os.environ | {"EBBTIDE_JOB": f"test-{uuid.uuid4().hex}", "LOCAL_WORLD_SIZE": "2"}
    subprocess.run([sys.executable, "-c", BORROWS, str(disk / "run")], env=environment, check=True, timeout=200)
