"""Stores of several processes in one node's pool, with the agent that is installed."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

import ebbtide

BYTES = 1 << 20
CHILD = """
import os, signal, sys
import numpy as np
import ebbtide

directory, rank, versions, end, agent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5] == "program"
store = ebbtide.open(directory, durability="node", node_pool="32MiB", tuning={"node_chunk": "1MiB", "node_agent": agent}, device="cpu",
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


def agents_of(job: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if words[0].endswith(b"ebbtide-agent") and words[1] == f"job-{job}".encode():
                found.append(int(place.parent.name))
    return found


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


ORPHAN = """
import os, subprocess, sys
ended, tell = os.pipe()
if os.fork() == 0:  # the script, in a session or a group of its own
    os.setpgid(0, 0) if sys.argv[1] == "group" else os.setsid()
    script = os.getpid()
    if os.fork() == 0:
        while os.getppid() == script:
            os.sched_yield()
        code = subprocess.call([sys.executable, "-c", sys.argv[2], sys.argv[3]])
        os.write(tell, bytes([code]))
    os._exit(0)
os.wait()
sys.exit(os.read(ended, 1)[0])
"""
ALONE = """
import ebbtide, numpy as np, sys
with ebbtide.open(sys.argv[1], durability="node", node_pool="8MiB", device="cpu", device_cache="4MiB") as store:
    store.checkpoint(1, np.arange(1000.0))
    store.wait("node")
    assert (store.restore(1) == np.arange(1000.0)).all()
"""


@pytest.mark.parametrize("leader", ["group", "session"])
def test_a_program_has_a_pool_though_the_script_that_started_it_has_ended(tmp_path, leader):
    given = ("FLUX_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PJM_JOBID", "EBBTIDE_JOB")
    environment = {name: value for name, value in os.environ.items() if name not in given}
    orphan = [sys.executable, "-c", ORPHAN, leader, ALONE, str(tmp_path / "run")]
    done = subprocess.run(orphan, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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


FORGETS = """
import os, pathlib, signal, sys, time
import numpy as np
import ebbtide

def agent():
    for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if b"ebbtide-agent\\0" in words and os.environ["EBBTIDE_JOB"].encode() in words:
            return int(place.parent.name)

options = {"durability": "storage", "node_pool": "16MiB", "device_cache": "2MiB", "disk": "16MiB"}
store = ebbtide.open(sys.argv[1], device="cpu", **options)
store.checkpoint(8, np.full(60_000, 1.0))
with store.create_file("f", 1) as file:
    file.write(b"A" * 1_000_000)
store.wait("storage")
file.wait("storage")
running = agent()
os.kill(running, signal.SIGSTOP)  # so that it does not hear of the drops
store.drop(8)
store.checkpoint(8, np.full(60_000, 2.0))
store.drop_file("f", 1)
file = store.create_file("f", 1)
file.write(b"B" * 900_000)
os.kill(running, signal.SIGKILL)
if sys.argv[2] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
store.wait("storage", 8)
store.drop(8)
for version in range(100, 140):  # the files in which it was dropped go
    store.checkpoint(version, np.ones(1 << 17))
    store.wait("storage", version)
    store.drop(version)
file.abandon()
store.close()
"""


@pytest.mark.parametrize("end", ["lives", "dies"])
def test_what_was_dropped_while_the_agent_was_killed_is_exact_or_gone(tmp_path, job, end):
    environment = os.environ | {"EBBTIDE_JOB": job}
    done = subprocess.run([sys.executable, "-c", FORGETS, str(tmp_path / "run"), end], env=environment, timeout=120)
    assert done.returncode == (-signal.SIGKILL if end == "dies" else 0)
    drain = [sys.executable, "-c", "from ebbtide.cli import main; main()", "node", "drain", f"job-{job}"]
    subprocess.run(drain, env=environment, timeout=120)  # unless another process of this user was first
    assert until(lambda: not os.path.exists(pool_of(job)))
    with ebbtide.open(tmp_path / "run", readonly=True, device="cpu", device_cache="4MiB", host_cache="8MiB") as store:
        if end == "lives":
            assert store.history("0/").versions() == []
        for version in store.history("0/").versions():
            found = store.history("0/").restore(version)
            assert (found == found[0]).all()
        for name, version, _ in store.files():
            with store.open_file(name, version) as file:
                assert file.read() == b"A" * 1_000_000


STOPPED = """
import os, signal, sys, time
import numpy as np
import ebbtide
from ebbtide import _core

def ends_in_time(call, seconds=1.0):
    begun = time.monotonic()
    try:
        call()
    except ebbtide.TimedOut as error:
        assert f"process {agent}, does not answer" in str(error), error
        assert time.monotonic() - begun < seconds + 3, time.monotonic() - begun
        return
    raise AssertionError("it did not wait for the agent")

def fill():
    for version in range(1, 60):
        store.checkpoint(version, np.full(1 << 17, float(version)), timeout=1)
        written.append(version)

options = {"durability": "node", "node_pool": "8MiB", "device_cache": "2MiB", "disk": "64MiB"}
store = ebbtide.open(sys.argv[1], device="cpu", close_timeout=1, **options)
store.checkpoint(0, np.full(1000, 0.0))
store.wait("storage")
agent = next(pool["agent"]["pid"] for pool in _core.pools() if pool["job"] == "job-" + os.environ["EBBTIDE_JOB"])
os.kill(agent, signal.SIGSTOP)
written = [0]
ends_in_time(fill)
ends_in_time(lambda: store.checkpoint(100, np.ones(3 << 20), timeout=1))
ends_in_time(lambda: store.wait("storage", timeout=1))
ends_in_time(lambda: store.wait("storage", 1, timeout=1))
file = store.create_file("f", 1, timeout=1)
ends_in_time(lambda: file.write(bytes(8 << 20)))
file.abandon()
assert (store.restore(0, keep=True, timeout=1) == 0.0).all()
if sys.argv[2] == "closes":
    print("stopped", agent, flush=True)
    ends_in_time(store.close)
    sys.stdin.readline()
    sys.exit(0)
os.kill(agent, signal.SIGCONT)
store.wait("storage")
for version in written:
    assert (store.restore(version, keep=True) == float(version)).all(), version
store.checkpoint(100, np.ones(3 << 20))
store.wait("storage")
store.close()
"""


def stopped(tmp_path, job, end):
    arguments = [sys.executable, "-c", STOPPED, str(tmp_path / "run"), end]
    environment = os.environ | {"EBBTIDE_JOB": job, "LOCAL_WORLD_SIZE": "1"}
    return subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_calls_end_in_their_time_while_the_agent_is_stopped_and_nothing_is_lost(tmp_path, job):
    process = stopped(tmp_path, job, "goes on")
    assert process.communicate(timeout=120)[0] == ""
    assert process.returncode == 0
    assert until(lambda: not os.path.exists(pool_of(job)))


def test_a_stopped_agent_holds_up_neither_a_close_nor_an_open_and_writes_what_it_has_once_it_goes_on(tmp_path, job):
    process = stopped(tmp_path, job, "closes")
    agent = int(process.stdout.readline().removeprefix("stopped "))
    opens = "import ebbtide, sys; ebbtide.open(sys.argv[1], device='cpu', durability='node', node_pool='8MiB')"
    try:
        opened = subprocess.run(
            [sys.executable, "-c", opens, str(tmp_path / "run")],
            env=os.environ | {"EBBTIDE_JOB": job, "EBBTIDE_RANK": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert f"TimedOut: the agent of this job's pool, process {agent}, does not answer" in opened.stderr
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    finally:
        os.kill(agent, signal.SIGCONT)
    assert until(lambda: not os.path.exists(pool_of(job)))
    with ebbtide.open(tmp_path / "run", readonly=True, device="cpu", device_cache="4MiB", host_cache="8MiB") as store:
        history = store.history("0/")
        for version in history.versions():
            assert (history.restore(version) == float(version)).all()
        assert len(history.versions()) > 5


DROPS = (
    FORGETS[: FORGETS.index("running = ")]
    + """
running = agent()
store.drop(8)
os.kill(running, signal.SIGKILL)
store.close()
"""
)


def test_what_was_dropped_is_gone_after_a_close_though_the_agent_was_killed(tmp_path, job):
    environment = os.environ | {"EBBTIDE_JOB": job}
    subprocess.run([sys.executable, "-c", DROPS, str(tmp_path / "run")], env=environment, timeout=120, check=True)
    assert until(lambda: not os.path.exists(pool_of(job)))
    with ebbtide.open(tmp_path / "run", readonly=True, device="cpu", device_cache="4MiB", host_cache="8MiB") as store:
        assert store.history("0/").versions() == []


def test_the_agent_leaves_no_child_and_no_descriptor_behind(tmp_path, job):
    process = child(tmp_path, job, 0, 2)
    assert process.communicate(timeout=120)[0]  # the pipe would stay open in an agent that had inherited it
    assert until(lambda: not os.path.exists(pool_of(job)))


def test_an_ephemeral_store_keeps_its_memory_when_the_agent_is_killed(tmp_path, job, monkeypatch):
    monkeypatch.setenv("EBBTIDE_JOB", job)
    sizes = {"node_pool": "16MiB", "device": "cpu", "device_cache": "4MiB", "disk": "256MiB"}
    sizes["tuning"] = {"node_chunk": "1MiB"}
    with ebbtide.open(tmp_path, **sizes) as store:
        history = store.history("h", order="reverse")
        for version in range(80):
            if version in (0, 8):  # at 0 the share has no memory for all of it yet
                for agent in agents_of(job):
                    os.kill(agent, signal.SIGKILL)
            history.checkpoint(version, np.full(1 << 17, version))
        for version in reversed(range(80)):
            assert (history.restore(version) == version).all()
        assert store.stats()["node"]["agents"] >= 2
    assert until(lambda: not os.path.exists(pool_of(job)))
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("EBBTIDE_JOB", "mistakes")
    with pytest.raises(ebbtide.InvalidArgument, match='durability="node".*node_pool'):
        ebbtide.open(tmp_path / "a", durability="node")
    with pytest.raises(ebbtide.InvalidArgument, match="node_pool.*readonly"):
        ebbtide.open(tmp_path, node_pool="64MiB", readonly=True)
    with pytest.raises(ebbtide.InvalidArgument, match="host_cache.*node_pool"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="64MiB", host_cache="8MiB")
    with pytest.raises(ebbtide.InvalidArgument, match="power of two"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="64MiB", tuning={"node_chunk": 3 << 20})
    with pytest.raises(ebbtide.InvalidArgument, match="two chunks"):
        ebbtide.open(tmp_path / "a", durability="node", node_pool="256KiB")
    with ebbtide.open(
        tmp_path / "b", durability="storage", device_cache="4MiB", host_cache="8MiB", disk="64MiB"
    ) as store:
        store.checkpoint(1, np.zeros(8))
        with pytest.raises(ebbtide.Unsupported, match='"node" is not supported'):
            store.wait("node")


@pytest.mark.parametrize("program", [True, False])
def test_every_wait_ends_when_pool_and_disk_are_full_and_the_next_succeeds_once_a_drop_makes_room(
    tmp_path, job, monkeypatch, program
):
    monkeypatch.setenv("EBBTIDE_JOB", job)
    sizes = {
        "node_pool": "16MiB",
        "device_cache": "2MiB",
        "disk": "16MiB",
        "device": "cpu",
        "tuning": {"node_agent": program},
    }
    with ebbtide.open(tmp_path / "run", durability="node", **sizes) as store:
        written = []
        with pytest.raises(ebbtide.NoSpace):
            for version in range(40):
                written.append((version, store.checkpoint(version, np.full(375_000, float(version)), timeout=0.2)))
        for level in ("node", "storage"):
            with pytest.raises(ebbtide.NoSpace, match="room on local"):
                store.wait(level)
            with pytest.raises(ebbtide.NoSpace, match="room on local"):
                written[-1][1].wait(level)
        for version, _ in written[: len(written) // 2]:
            store.drop(version)
        store.wait("node")
        store.wait("storage")
        for version, future in written[len(written) // 2 :]:
            future.wait("storage")
            assert (store.restore(version) == version).all()


def test_snapshots_that_wait_for_room_in_a_full_pool_are_stored_when_a_drop_makes_it(tmp_path, job, monkeypatch):
    monkeypatch.setenv("EBBTIDE_JOB", job)
    array, random = np.zeros(8 << 20, np.uint8), np.random.default_rng(0)
    sizes = {"node_pool": "8MiB", "device_cache": "4MiB", "disk": "24MiB", "device": "cpu"}
    with ebbtide.open(tmp_path / "run", durability="node", **sizes) as store:
        store.protect(array, track="faults")
        for version in range(1, 5):
            array[:] = random.integers(0, 255, len(array), dtype=np.uint8)
            store.snapshot(version).wait("copied")
        held_up = [
            lambda: store.restore(4),
            lambda: store.wait("node"),
            lambda: store.wait("storage", 4),
            lambda: store.unprotect(),
            lambda: store.drop(4),
        ]
        for call in held_up:
            with pytest.raises(ebbtide.NoSpace, match="once a drop makes room"):
                call()
        store.drop(1)
        store.drop(2)
        store.wait("storage", 4)
        assert (store.restore(4) == array).all()


def test_what_a_program_keeps_of_a_reservation_does_not_reach_the_pool(tmp_path, job, monkeypatch):
    monkeypatch.setenv("EBBTIDE_JOB", job)
    with ebbtide.open(tmp_path, node_pool="32MiB", device="cpu", device_cache=0, disk="64MiB") as store:
        with store.reserve(1, (BYTES,), "u1") as array:
            array[:] = 7
            address = array.ctypes.data
        ctypes.memset(address, 9, BYTES)
        assert (store.restore(1) == 7).all()


@pytest.mark.parametrize("durability", ["node", "ephemeral"])
def test_a_closed_store_says_what_it_was(tmp_path, job, monkeypatch, durability):
    monkeypatch.setenv("EBBTIDE_JOB", job)
    (tmp_path / "run").mkdir(mode=0o700)
    sizes = {"node_pool": "8MiB", "device_cache": "4MiB", "disk": "64MiB", "device": "cpu"}
    store = ebbtide.open(tmp_path / "run", durability=durability, **sizes)
    store.close()
    assert "closed" in repr(store)
    assert store.stats()["node"]["agents"] == 1
