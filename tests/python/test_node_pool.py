"""Stores of several processes in one node's pool, with the agent that is installed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest

import ebbtide

BYTES = 1 << 20
CHILD = """
import os, signal, sys
import numpy as np
import ebbtide

directory, rank, versions, end, agent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5] == "program"
store = ebbtide.open(directory, durability="node", node_pool="32MiB", node_chunk="1MiB", node_agent=agent, device="cpu",
                     device_cache="4MiB", disk="512MiB")
history = store.history("h", order="reverse")
for version in range(versions):
    history.checkpoint(version, np.full(1 << 17, 1000.0 * rank + version))
history.wait("node")
print("in the pool", store.stats()["node"]["agent_program"], flush=True)
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
for version in reversed(range(versions)):
    assert (history.restore(version) == 1000.0 * rank + version).all(), version
store.close()
"""


@pytest.fixture
def job():
    """A job of its own; none of its pools is left at the end."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(pool_of(name))


def pool_of(job: str) -> str:
    return f"/dev/shm/ebbtide-{os.getuid()}/job-{job}.pool"


def child(tmp_path, job: str, rank: int, versions: int, end: str = "closed", agent: str = "program"):
    environment = os.environ | {"EBBTIDE_JOB": job, "EBBTIDE_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    arguments = [sys.executable, "-c", CHILD, str(tmp_path / "run"), str(rank), str(versions), end, agent]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)


def read_back(tmp_path, versions: int, rank: int) -> None:
    with ebbtide.open(tmp_path / "run", readonly=True, device_cache="4MiB", host_cache="8MiB") as store:
        history = store.history(f"{rank}/h")
        assert history.versions() == list(range(versions))
        for version in range(versions):
            assert (history.restore(version) == 1000.0 * rank + version).all()


def until(condition, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        os.sched_yield()
    return condition()


@pytest.mark.parametrize("agent", ["program", "thread"])
def test_two_processes_share_a_pool_and_a_store(tmp_path, job, agent):
    both = [child(tmp_path, job, rank, 24, agent=agent) for rank in range(2)]
    for process in both:
        assert process.communicate(timeout=120)[0] == f"in the pool {agent == 'program'}\n"
        assert process.returncode == 0
    assert until(lambda: not os.path.exists(pool_of(job)))
    for rank in range(2):
        read_back(tmp_path, 24, rank)


def test_what_is_in_the_pool_survives_kill_9_of_its_process(tmp_path, job):
    beside = child(tmp_path, job, 0, 12)
    killed = child(tmp_path, job, 1, 12, end="killed")
    assert killed.communicate(timeout=120)[0].startswith("in the pool")
    assert killed.returncode == -signal.SIGKILL
    assert beside.communicate(timeout=120)[0].startswith("in the pool")
    assert beside.returncode == 0
    assert until(lambda: not os.path.exists(pool_of(job)))
    for rank in range(2):
        read_back(tmp_path, 12, rank)


def test_the_agent_leaves_no_child_and_no_descriptor_behind(tmp_path, job):
    process = child(tmp_path, job, 0, 2)
    assert process.communicate(timeout=120)[0]  # the pipe would stay open in an agent that had inherited it
    assert until(lambda: not os.path.exists(pool_of(job)))


def test_mistakes_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("EBBTIDE_JOB", "mistakes")
    with pytest.raises(ebbtide.InvalidArgument, match='durability="node".*node_pool'):
        ebbtide.open(tmp_path / "a", durability="node")
    with pytest.raises(ebbtide.InvalidArgument, match="node_pool.*ephemeral"):
        ebbtide.open(tmp_path, node_pool="64MiB")
    with pytest.raises(ebbtide.InvalidArgument, match="host_cache.*node_pool"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="64MiB", host_cache="8MiB")
    with pytest.raises(ebbtide.InvalidArgument, match="power of two"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="64MiB", node_chunk=3 << 20)
    with pytest.raises(ebbtide.InvalidArgument, match="two chunks"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="256KiB")
    with ebbtide.open(
        tmp_path / "b", durability="storage", device_cache="4MiB", host_cache="8MiB", disk="64MiB"
    ) as store:
        store.checkpoint(1, np.zeros(8))
        with pytest.raises(ebbtide.Unsupported, match='"node" is not supported'):
            store.wait("node")
