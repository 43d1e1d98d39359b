"""Groups of ranks: threads of this process, and real jobs over MPI, some of whose ranks are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide
import ebbtide.mpi

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {"device_cache": "1MiB", "host_cache": "1MiB", "disk": "64MiB", "durability": "process"}


class Meeting:
    """Where the ranks of a job that are threads find minima."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.changed = threading.Condition()
        self.rounds: dict[int, list[list[int]]] = {}


class Thread:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.count, self.round = meeting, rank, meeting.count, 0

    def begin_least(self, values: list[int]) -> int:
        self.round += 1
        with self.meeting.changed:
            self.meeting.rounds.setdefault(self.round, []).append(values)
            self.meeting.changed.notify_all()
        return self.round

    def least(self, begun: int, wait: bool) -> list[int] | None:
        with self.meeting.changed:
            offers = self.meeting.rounds[begun]
            if wait:
                self.meeting.changed.wait_for(lambda: len(offers) == self.count)
            return [min(each) for each in zip(*offers)] if len(offers) == self.count else None


def run(count: int, body: Callable[[Thread], None]) -> None:
    meeting, failures = Meeting(count), []

    def one(rank: int) -> None:
        try:
            body(Thread(meeting, rank))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not failures:
            thread.join(0.1)
    if failures:
        raise failures[0]


def content(rank: int, version: int) -> Any:
    return np.random.default_rng(version * 100 + rank).integers(0, 255, 60_000, np.uint8)


def test_ranks_go_on_from_the_newest_version_that_all_have(disk: Path) -> None:
    def first(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            assert group.resume() is None
            for version in range(10):
                group.checkpoint(version, content(ranks.rank, version))
            group.wait("process")
            assert group.versions() == list(range(10))
            if ranks.rank == 1:
                group.mine.drop(9)

    def second(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            assert group.latest() == 8 and group.latest(4) == 4
            assert group.resume() == 8
            assert (group.restore(8) == content(ranks.rank, 8)).all()
            assert group.mine.versions()[-1] == 8
            group.checkpoint(9, content(ranks.rank, 9))
            other = group.history("other")
            other.checkpoint(0, content(ranks.rank, 0))
            group.store.protect(np.ones(4096, np.uint8), track="everything")
            group.snapshot(10).wait()

    run(3, first)
    run(3, second)


def test_what_all_ranks_have_is_kept_however_far_one_is_ahead(disk: Path) -> None:
    ahead = threading.Event()

    def body(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, keep_last=1, **SMALL) as group:
            group.checkpoint(0, content(ranks.rank, 0))
            group.wait("process")
            if ranks.rank == 0:
                for version in range(1, 20):
                    group.checkpoint(version, content(0, version)).wait("process")
                assert group.mine.versions()[0] == 0
                ahead.set()
            else:
                ahead.wait()
                for version in range(1, 20):
                    group.checkpoint(version, content(1, version))
            group.wait("process")
            assert group.mine.versions() == [19]

    run(2, body)


def test_one_rank_s_failure_is_told_by_all(disk: Path) -> None:
    def body(ranks: Thread) -> None:
        group = ebbtide.mpi.open(ranks, disk, **SMALL)
        group.checkpoint(0, content(ranks.rank, 0))
        if ranks.rank == 1:
            with pytest.raises(ebbtide.Error):
                group.checkpoint(1, np.zeros(100 << 20, np.uint8))
        else:
            try:
                group.checkpoint(1, content(0, 1))
            except ebbtide.Dropped:
                pass
        group.checkpoint(2, content(ranks.rank, 2))
        group.history("met")
        assert group.versions() == group.mine.versions() == [0, 2]
        with pytest.raises(ebbtide.InvalidArgument, match="nothing is protected" if ranks.rank else "rank 1 of 2"):
            if ranks.rank == 0:
                group.store.protect(np.ones(4096, np.uint8), track="everything")
            group.snapshot(3)
        with pytest.raises(ebbtide.InvalidArgument, match="not above version 3"):
            group.checkpoint(2, content(0, 2))
        group.close()

    run(2, body)
    run(
        2,
        lambda ranks: pytest.raises(
            ebbtide.Error, ebbtide.mpi.open, ranks, disk, **SMALL | {"device_cache": 1 + ranks.rank}
        ),
    )

    def of_another_size(ranks: Thread) -> None:
        with pytest.raises(ebbtide.InvalidArgument, match="a group of 2 ranks, and this one has 3"):
            ebbtide.mpi.open(ranks, disk, **SMALL)

    run(3, of_another_size)

    def unlike(ranks: Thread) -> None:
        for name, value in (("keep_last", 3), ("durability", "storage"), ("keep_every", 2)):
            with pytest.raises(ebbtide.InvalidArgument, match=f"^{name} is .* in rank {ranks.rank}, and not in all"):
                ebbtide.mpi.open(
                    ranks, disk / name, **SMALL | {"keep_last": 2} | ({name: value} if ranks.rank == 1 else {})
                )

    run(2, unlike)
    with pytest.raises(ebbtide.InvalidArgument, match="comm is of type 'int'"):
        ebbtide.mpi.open(7, disk)


def test_what_is_equal_by_definition_may_be_given_in_two_ways(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(ranks: Thread) -> None:
        kept = {"keep_last": 2} | ({"keep_last_shared": 2} if ranks.rank else {})
        with ebbtide.mpi.open(ranks, disk / "sends", **SMALL | kept | {"shared": disk / "shared"}) as group:
            group.checkpoint(0, content(ranks.rank, 0))
        with ebbtide.mpi.open(ranks, disk / "alone", **SMALL | {"durability": "storage"}) as group:
            group.checkpoint(0, content(ranks.rank, 0))

    def reads(ranks: Thread) -> None:
        for place, more in (("alone", {}), ("sends", {"shared": disk / "shared"})):
            with ebbtide.mpi.open(ranks, disk / place, **more | ({} if ranks.rank else {"readonly": True})) as group:
                assert group.versions() == [0]

    run(2, writes)
    for text in ("1", "True", " on"):
        monkeypatch.setenv("EBBTIDE_READONLY", text)
        run(2, reads)


BACK = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_mpi import SMALL, content, run
import ebbtide.mpi

def body(ranks):
    group = ebbtide.mpi.open(ranks, sys.argv[1] + "/local", shared=sys.argv[1] + "/shared", **SMALL | {"durability": "shared"})
    for version in range(10):
        group.checkpoint(version, content(ranks.rank, version))
    group.wait("shared")
    assert group.resume(4) == 4

run(2, body)
os._exit(0)  # as if it were killed
"""


def test_what_the_job_went_back_from_does_not_return(disk: Path) -> None:
    subprocess.run([sys.executable, "-c", BACK, disk, Path(__file__).parent], check=True, timeout=300)

    def body(ranks: Thread) -> None:
        shared = {"shared": disk / "shared", "durability": "shared"}
        with ebbtide.mpi.open(ranks, disk / "local", **SMALL | shared) as group:
            assert group.resume() == 4 and group.mine.versions() == [0, 1, 2, 3, 4]

    run(2, body)


def test_ranks_that_have_no_version_in_common_are_told(disk: Path) -> None:
    def write(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            group.checkpoint(3, content(ranks.rank, 3))

    def anew(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            assert group.latest() is None
            with pytest.raises(ebbtide.Lost, match="no version is intact on all ranks, and rank 0 has some"):
                group.resume()
            assert group.mine.versions() == [[3], []][ranks.rank]
            group.drop()
            assert group.resume() is None
            group.checkpoint(0, content(ranks.rank, 0))
            group.close()

    run(2, write)
    shutil.rmtree(disk / "rank-1")
    run(2, anew)
    run(2, lambda ranks: ebbtide.mpi.open(ranks, disk, **SMALL).close())


def test_a_rank_whose_store_is_closed_leaves_no_other_waiting(disk: Path) -> None:
    def body(ranks: Thread) -> None:
        group = ebbtide.mpi.open(ranks, disk, keep_last=1, **SMALL)
        group.checkpoint(0, content(ranks.rank, 0))
        group.wait("process")
        if ranks.rank == 1:
            group.store.close()
        with pytest.raises(ebbtide.Closed, match="rank 1 of 2" if ranks.rank == 0 else "closed"):
            group.latest()
        if ranks.rank == 0:
            group.store.close()

    run(2, body)


def test_a_history_is_one_however_often_it_is_asked_for(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            one, same = group.history("x"), group.history("x")
            one.checkpoint(5, content(ranks.rank, 5))
            with pytest.raises(ebbtide.InvalidArgument, match="not above version 5"):
                same.checkpoint(5, content(ranks.rank, 5))
            with pytest.raises(ebbtide.InvalidArgument, match="not above version 5"):
                group.history("x").checkpoint(4, content(ranks.rank, 4))

    run(2, body)
    with pytest.raises(ebbtide.Unsupported, match="shared_every is not for a group"):
        run(1, lambda ranks: ebbtide.mpi.open(ranks, disk / "other", shared=disk / "shared", shared_every=3))
    monkeypatch.setenv("EBBTIDE_SHARED_EVERY", "3")
    with pytest.raises(ebbtide.Unsupported, match="shared_every is not for a group"):
        run(1, lambda ranks: ebbtide.mpi.open(ranks, disk / "other", shared=disk / "shared"))


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """examples/heat.c, as a user compiles it."""
    library = ROOT / "build/release/src/capi/libebbtide.so"
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        pytest.skip("MPI is not installed")
    if not library.exists():
        pytest.skip("build/release has no libebbtide.so")
    program = tmp_path_factory.mktemp("heat") / "heat"
    link = [f"-L{library.parent}", "-lebbtide", f"-Wl,-rpath,{library.parent}"]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}"]
    subprocess.run(["mpicc", *flags, ROOT / "examples/heat.c", "-o", program, *link], check=True)
    yield program


MPIRUN = ["mpirun", "-n", "4"]


def job(program: Path, *arguments: object) -> subprocess.Popen[str]:
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    return subprocess.Popen(
        [*MPIRUN, program, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(running: subprocess.Popen[str]) -> str:
    out, error = running.communicate(timeout=600)
    assert running.returncode == 0, error[-3000:]
    return out


def ranks_of(running: subprocess.Popen[str], program: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, session = os.readlink(entry / "exe"), os.getsid(int(entry.name))
            except OSError:
                continue
            if name == str(program) and session in (running.pid, int(entry.name)):
                found.append(int(entry.name))
    return found


def test_a_stencil_whose_ranks_are_killed_ends_as_one_that_runs_through(disk: Path, heat: Path) -> None:
    steps = 300
    right = ended(job(heat, disk / "through", steps))
    assert right.startswith("heat after 300 steps: ")
    chance = random.Random(5)
    for _ in range(6):
        running = job(heat, disk / "killed", steps)
        until = time.monotonic() + chance.uniform(0.5, 2.5)
        while time.monotonic() < until and running.poll() is None:
            time.sleep(0.01)
        for one in chance.sample(there := ranks_of(running, heat), min(len(there), chance.choice([1, 4]))):
            with_it_gone(one)
        running.communicate(timeout=600)  # what mpirun says of it
    assert ended(job(heat, disk / "killed", steps)) == right


def with_it_gone(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


TORCH = """
import sys, time
import torch, torch.distributed as distributed, ebbtide.mpi
rank, meeting, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
caches = {"disk": "64MiB", "device_cache": "1MiB", "host_cache": "1MiB"}
for group in (None, distributed.group.WORLD):
    with ebbtide.mpi.open(group, directory, keep_last=2, **caches) as ranks:
        newest = ranks.resume()
        first = 0 if newest is None else newest + 1
        for step in range(first, first + 10):
            time.sleep(0.002 * (step % 3 == rank))
            sum = torch.tensor([step + rank])
            distributed.all_reduce(sum)  # the program's own
            assert sum.item() == 2 * step + 1
            ranks.checkpoint(step, torch.full((1000,), step * 10 + rank))
        ranks.wait("storage")
        assert ranks.versions() == [first + 8, first + 9]
        assert (ranks.restore(first + 9) == (first + 9) * 10 + rank).all()
distributed.barrier()
distributed.destroy_process_group()
print("newest", first + 9)
"""


def test_with_torch_distributed(disk: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    command = [sys.executable, "-W", "ignore", "-c", TORCH]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), disk / "meeting", disk / "run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [ended(rank) for rank in ranks] == ["newest 19\n"] * 2


def test_with_mpi4py(disk: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    body = """
import sys, numpy as np, ebbtide.mpi
from mpi4py import MPI
rank = MPI.COMM_WORLD.Get_rank()
with ebbtide.mpi.open(MPI.COMM_WORLD, sys.argv[1], keep_last=2, disk="64MiB", device_cache="1MiB", host_cache="1MiB") as group:
    newest = group.resume()
    for step in range(0 if newest is None else newest + 1, (newest or 0) + 20):
        group.checkpoint(step, np.full(1000, step * 10 + rank))
    group.wait("storage")
    assert (group.restore(group.latest()) == group.latest() * 10 + rank).all()
    assert len(group.versions()) == 2
    if rank == 0: print("newest", group.latest() if False else max(group.mine.versions()))
"""
    assert ended(job(Path(sys.executable), "-c", body, disk / "run")) == "newest 19\n"
    assert ended(job(Path(sys.executable), "-c", body, disk / "run")) == "newest 38\n"


def test_wrong_arguments_are_named(disk: Path) -> None:
    def body(ranks: Thread) -> None:
        with ebbtide.mpi.open(ranks, disk, **SMALL) as group:
            for version in (1.5, "1", None):
                with pytest.raises(ebbtide.InvalidArgument, match="version=.*expected an integer"):
                    group.checkpoint(version, content(0, 0))  # type: ignore[arg-type]
            group.checkpoint(np.int64(1), content(0, 0), timeout=None)

    run(1, body)


def test_what_is_no_communicator_is_named(disk: Path) -> None:
    mpi = pytest.importorskip("mpi4py.MPI", reason="needs mpi4py", exc_type=ImportError)
    for given in (mpi.INT, 5, object()):
        with pytest.raises(ebbtide.InvalidArgument, match=f"comm is of type '{type(given).__name__}'"):
            ebbtide.mpi.open(given, disk, **SMALL)
