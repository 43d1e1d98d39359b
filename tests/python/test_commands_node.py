"""`ebbtide node`: shows and drains the pools of real processes, one of which is killed while it holds one."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import uuid

import ebbtide
import pytest
import xxhash
from commands_support import DAMAGED, OK, REFUSED, run

CHILD = """
import os, signal, sys
import numpy as np
import ebbtide

directory, end = sys.argv[1:]
store = ebbtide.open(directory, durability="node", node_pool="32MiB", tuning={"node_chunk": "1MiB", "node_agent": False}, device="cpu",
                     device_cache="4MiB", disk="512MiB")
history = store.history("h", order="reverse")
for version in range(9):
    history.checkpoint(version, np.full(1 << 17, 1000.0 + version))
history.wait("node")
print("in the pool", flush=True)
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
store.close()
"""


@pytest.fixture
def job():
    """A job of its own; none of its pools is left at the end."""
    name = f"test-{uuid.uuid4().hex}"
    yield f"job-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(pool_of(f"job-{name}"))


def pool_of(job: str) -> str:
    return f"/dev/shm/ebbtide-{os.getuid()}/{job}.pool"


def child(directory, job: str, end: str, rank: int = 3) -> subprocess.Popen[str]:
    environment = os.environ | {"EBBTIDE_JOB": job.removeprefix("job-"), "EBBTIDE_RANK": str(rank)}
    environment |= {"LOCAL_WORLD_SIZE": "2"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), end],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "in the pool\n"
    if end == "killed":
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    return process


def content(job: str) -> tuple[int, str]:
    """The room and the bytes of a pool: its times are no part of the promise."""
    with open(pool_of(job), "rb") as file:
        return os.fstat(file.fileno()).st_blocks, xxhash.xxh3_128_hexdigest(file.read())


def shown(job: str) -> dict | None:
    done = run("node", "--json")
    assert done.code in (OK, DAMAGED)  # another test's pool may be damaged
    return next((pool for pool in done.json["pools"] if pool["job"] == job), None)


def read_back(directory) -> None:
    with ebbtide.open(directory, readonly=True, device_cache="4MiB", host_cache="8MiB") as store:
        history = store.history("3/h")
        assert history.versions() == list(range(9))
        for version in range(9):
            assert (history.restore(version) == 1000.0 + version).all()


def test_a_pool_whose_process_was_killed_is_shown_and_drained_into_its_own_store(tmp_path, job):
    killed = child(tmp_path / "run", job, "killed")
    before = content(job)
    pool = shown(job)
    assert (pool["error"], pool["agent"], pool["store"]) == (None, {"kind": "none", "pid": None}, str(tmp_path / "run"))
    assert (pool["budget"], pool["chunk"]) == (32 << 20, 1 << 20)
    (process,) = pool["processes"]
    assert (process["rank"], process["pid"], process["alive"]) == (3, killed.pid, False)
    assert process["share"] == 16 << 20
    assert process["slabs"] >= 2
    assert content(job) == before  # showing changes nothing
    assert f"rank 3, process {killed.pid}, dead" in run("node", "show").out
    done = run("node", "drain", job, "--json")
    assert (done.code, done.json["refused"]) == (OK, []), done
    expected = {"checkpoints": pool["checkpoints"], "bytes": pool["bytes"]}
    assert done.json["drained"] == [{"job": job, **expected, "removed": True}]
    assert shown(job) is None
    read_back(tmp_path / "run")


def test_the_pool_of_a_living_process_is_drained_while_it_goes_on(tmp_path, job):
    living = child(tmp_path / "run", job, "closed")
    try:
        near = run("node", "drain", job.removeprefix("job-"))
        assert (near.code, job in near.err) == (REFUSED, True)
        done = run("node", "drain", job, "--timeout", 100)
        assert (done.code, "written" in done.out, "removed" in done.out) == (OK, True, False), done
        pool = shown(job)
        assert pool["agent"] == {"kind": "thread", "pid": living.pid}
        assert [(one["alive"], one["checkpoints"], one["bytes"]) for one in pool["processes"]] == [(True, 0, 0)]
    finally:
        living.communicate("", timeout=60)
    assert living.returncode == 0
    read_back(tmp_path / "run")


def test_a_stopped_process_is_not_waited_for_beyond_the_timeout(tmp_path, job):
    """All may be written when it stops. Then there is nothing to wait for, unless that is on its way to stable storage still."""
    stopped = child(tmp_path / "run", job, "closed")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        waiting = shown(job)["checkpoints"]
        done = run("node", "drain", job, "--timeout", 0.2)
        assert done.code == REFUSED or (done.code == OK and not waiting)
        assert done.code == OK or waiting or "and 0 are not on stable storage" not in done.err
        assert (f"process {stopped.pid}" in done.err) == (done.code == REFUSED)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.communicate("", timeout=60)
    read_back(tmp_path / "run")


def other_version(header: bytearray) -> None:
    struct.pack_into("<I", header, 8, 999)
    header[496:512] = xxhash.xxh3_128(bytes(header[:496])).digest()


def flipped_bit(header: bytearray) -> None:
    header[20] ^= 1


@pytest.mark.parametrize(
    ("change", "names"), [(other_version, "version 999"), (flipped_bit, "checksum")], ids=["version", "damage"]
)
def test_what_cannot_be_drained_is_named_and_left_as_it_is(tmp_path, job, change, names):
    child(tmp_path / "run", job, "killed")
    with open(pool_of(job), "r+b") as file:
        header = bytearray(file.read(512))
        change(header)
        file.seek(0)
        file.write(header)
        file.seek(0)
        before = file.read()
    assert names in shown(job)["error"]["message"]
    done = run("node", "drain", job, "--json")
    assert (done.code, done.json["drained"]) == (REFUSED, [])
    assert names in done.json["refused"][0]["message"]
    assert job in done.err
    with open(pool_of(job), "rb") as file:
        assert file.read() == before


def test_mistakes_are_refused_by_name(job):
    done = run("node", "drain", job)
    assert (done.code, job in done.err) == (REFUSED, True)
    assert "expected letters" in run("node", "drain", "../x").err
    assert run("node", "drain", "--timeout", "-1", "--json").json["error"]["reason"] == "invalid_argument"
