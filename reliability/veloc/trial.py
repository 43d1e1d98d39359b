"""Jobs of four ranks that write with VELOC's calls: a rank, all of them or their node's disk is lost, a file is deleted, cut
or flipped, a change to a file fails, or, where a backend runs, that, the agent of the node's pool or both with all ranks are killed.
Some jobs write one version again and again, or two by turns: the next one finds the last that was durable, or a later one.
The next job must go on from the newest version that is complete on all ranks.
`python reliability/veloc/trial.py SEED` makes the moments of a seed again, as far as the machine's pace agrees.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from reliability.outcomes import CRASH, EXACT, HANG, SILENT_WRONG, Count
from reliability.session import ROOT, Missing, Session

MUST = (EXACT,)
RANKS, STEPS, ANSWER_S = 4, 30, 120.0
AGAIN = ("again, a rank killed", "again, all ranks killed", "again, all killed, scratch lost",
         "again, backend and all ranks killed")  # fmt: skip
WITH_BACKEND = ("agent killed", "backend killed", "agent, backend and all ranks killed", AGAIN[3])
KINDS = ("a rank killed", "all ranks killed", "MPI_Abort", "all killed, scratch lost", "a file deleted", "a file cut",
         "a file flipped", "ENOSPC", "EIO", *WITH_BACKEND[:3], *AGAIN)  # fmt: skip
NEEDS_FILES = (*KINDS[3:7], AGAIN[2])  # every version goes to persistent
ABORTED = 7
MOMENTS, SHORT = 200, 1  # of each kind
TEN, AT_ONCE = 10, 3  # moments in one directory; directories at a time: a job mostly waits
DRAWS = 5  # for one moment, at most, on average
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Breach(Exception):
    """An outcome that must not be, and what happened."""


BACKEND, AGENT = ROOT / "build/release/src/veloc/veloc-backend", ROOT / "build/release/src/share/ebbtide-agent"


def built(area: Path) -> tuple[Path, Path]:
    """The job's program, and what makes its calls fail."""
    libraries = [ROOT / "build/release/src/veloc/libveloc-client.so", ROOT / "build/release/src/capi/libebbtide.so"]
    if not all(file.exists() for file in (*libraries, BACKEND, AGENT)):
        raise Missing("build/release has no libveloc-client.so, veloc-backend or ebbtide-agent")
    shutil.copy(AGENT, area)  # where the job's program is, the agent of its pool is found
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        raise Missing("MPI is not installed")
    here, program, shim = Path(__file__).parent, area / "job", area / "fail.so"
    places = [str(library.parent) for library in libraries]
    link = [f"-L{places[0]}", "-lveloc-client", f"-Wl,-rpath,{':'.join(places)}", f"-Wl,-rpath-link,{places[1]}"]
    subprocess.run(["mpicc", "-O1", f"-I{ROOT / 'include'}", here / "job.c", "-o", program, *link], check=True)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", here / "fail.c", "-o", shim, "-ldl"], check=True)
    return program, shim


def regions(data: bytes) -> dict[int, bytes]:
    """Of a file of VELOC's format; ValueError: it is none."""
    count = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else -1
    if not 0 <= count < 10 or len(data) < 8 + 12 * count:
        raise ValueError("its table is not whole")
    found, at = {}, 8 + 12 * count
    for name, size in (struct.unpack_from("<iQ", data, 8 + 12 * i) for i in range(count)):
        found[name] = data[at : at + size]
        at += size
    if at != len(data):
        raise ValueError("it is cut, or longer than its table says")
    return found


def is_right(file: Path, routed: bool = False) -> bool:
    """Whether it has what the job wrote into it."""
    _, rank, version = file.stem.rsplit("-", 2)
    try:
        data = file.read_bytes()
        found = {0: data[:16], 1: data[16:]} if routed else regions(data)
        state, words = np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.int64)
    except (ValueError, KeyError, struct.error):
        return False
    first = state[0] * 1000003 + state[1] * 15485863 + int(rank) * 7919
    return len(state) == 2 and int(version) == state[0] and bool((words == first + np.arange(len(words))).all())


@dataclass
class Case:
    """One directory, and the jobs that follow each other in it."""

    area: Path
    program: Path
    shim: Path
    chance: random.Random
    kind: str
    generation: int = 0
    least: int = -1  # the next job finds this version, or a newer one
    exactly: int | None = None  # it finds this one
    harmed: set[Path] = field(default_factory=set)
    sums: bool = False  # there are checksum files
    files: str = "persistent"  # where they are
    writes: dict[str, str] = field(default_factory=dict)  # how versions are written again
    written: int = 0  # the next job finds this write, or a later one
    backend: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        places = ("scratch", "persistent", "meta")
        for each in places:
            (self.area / each).mkdir()
        if self.kind in AGAIN:
            self.writes["AGAIN"] = self.chance.choice("12")
            if self.chance.random() < 0.3:
                self.writes["ROUTED"] = str(self.area / "out")
            if self.kind in AGAIN[:2] and self.chance.random() < 0.3:
                places, self.files = ("scratch", "meta"), "scratch"
        lines = [f"{name} = {self.area / name}" for name in places]
        mode = "async" if self.kind in WITH_BACKEND else self.chance.choice(["sync", "async"])
        kept = self.chance.choice([0, 1, 3]) if self.kind in AGAIN else 3
        lines += [f"mode = {mode}", f"max_versions = {kept}"]
        self.sums = self.chance.random() < 0.5
        lines.append(f"chksum = {str(self.sums).lower()}")
        if self.kind not in NEEDS_FILES and self.chance.random() < 0.3:
            lines.append("persistent_interval = 1")
        (self.area / "veloc.cfg").write_text("\n".join([*lines, ""]))

    def start(self, steps: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        self.generation += 1
        environment = environment | self.writes
        log = self.area / f"log-{self.generation}"
        exports = [word for name in environment for word in ("-x", name)]
        words = ["mpirun", "-n", str(RANKS), *exports, self.program, self.area / "veloc.cfg", log, str(self.generation)]
        with open(self.area / "said", "ab") as said:
            return subprocess.Popen([*map(str, words), str(steps)], env=os.environ | MPI | environment, stdout=said,
                                    stderr=said, start_new_session=True)  # fmt: skip

    def serve(self) -> None:
        """A backend runs, and every job from here on uses it."""
        with open(self.area / "said", "ab") as said:
            self.backend = subprocess.Popen([str(BACKEND), str(self.area / "veloc.cfg")], stdout=said, stderr=said)
        until = time.monotonic() + ANSWER_S
        while not list((self.area / "scratch").glob(".ebbtide-backend*/lock")):
            if self.backend.poll() is not None or time.monotonic() > until:
                raise Breach(CRASH, "the backend did not begin")
            time.sleep(0.01)

    def end_backend(self) -> None:
        if self.backend is not None:
            self.backend.kill()
            self.backend.wait()
        self.backend = None

    def agents(self) -> list[int]:
        """The agent of this directory's pool, by its environment: that of the rank that started it."""
        mark, found = f"TRIAL_AREA={self.area}".encode(), []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                name, environment = (path / "comm").read_bytes(), (path / "environ").read_bytes()
                if name.startswith(b"ebbtide-agent") and mark in environment.split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                pass
        return found

    def said(self) -> list[tuple[str, int, int]]:
        """What the last job told."""
        log = self.area / f"log-{self.generation}"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(what, int(version), int(more)) for what, version, more in map(str.split, lines)]

    def end(self, job: subprocess.Popen[bytes]) -> int:
        """Its status."""
        try:
            return job.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            ranks = self.ranks()
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            if ranks:
                raise Breach(HANG, "a job did not end") from None
            return 0  # the launcher alone: mpirun of Open MPI 4.1.4 may wait for itself in its own end

    def accept(self, status: int) -> None:
        """Of a job that nothing befell."""
        if status:
            text = (self.area / "said").read_text(errors="replace")[-600:]
            raise Breach(CRASH, f"a job ended with {status}: {text}")

    def has_its_sum(self, file: Path) -> bool:
        """Whether VELOC would restart from it with `chksum`."""
        sums = self.area / "meta" / f"{file.name}.chksum"
        return not self.sums or (sums.exists() and sums.read_bytes() == hashlib.sha256(file.read_bytes()).digest())

    def judge(self, killed: bool = True) -> None:
        """What the last job found and told, and what `persistent` holds now."""
        for what, version, more in self.said():
            if what == "restarted":
                if more:
                    raise Breach(SILENT_WRONG, f"version {version} has wrong bytes")
            if what == "restarted" and not self.writes:
                if version < self.least or self.exactly not in (None, version):
                    raise Breach(SILENT_WRONG, f"version {version}, and not {self.exactly or self.least}")
                self.least, self.exactly = version, None
            if what == "durable":
                self.least = max(self.least, version)
                self.written = max(self.written, more)
            if what == "found" and more < self.written:
                raise Breach(SILENT_WRONG, f"write {more} of version {version}, and not {self.written}")
        for file in (self.area / self.files).glob("heat-*.dat"):
            if file not in self.harmed and not is_right(file, "ROUTED" in self.writes):
                raise Breach(SILENT_WRONG, f"{file.name} has its name, and not what was written")
            if self.writes and killed:
                continue  # the newer edition's may be there before it
            if file not in self.harmed and not self.has_its_sum(file):
                raise Breach(SILENT_WRONG, f"{file.name} does not match its checksum file")

    def kill(self, job: subprocess.Popen[bytes], kind: str) -> bool:
        """At a random moment of the job, once it has restarted. Whether there was a process to kill."""
        until = time.monotonic() + ANSWER_S
        while not self.said() and job.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0, 0.6))
        ranks, killed = self.ranks(), 0
        one = self.chance.sample(ranks, min(1, len(ranks)))
        chosen = ranks if "all" in kind else one if "a rank" in kind else []
        chosen += self.agents() if "agent" in kind else []
        if "backend" in kind and ranks:
            self.end_backend()
            killed += 1
        for process in chosen:
            try:
                os.kill(process, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        return killed > 0

    def ranks(self) -> list[int]:
        """The processes of the job."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/exe") if self.is_rank(path)]

    def is_rank(self, path: Path) -> bool:
        try:
            command = (path.parent / "cmdline").read_bytes()
            return os.readlink(path) == str(self.program) and str(self.area).encode() in command
        except OSError:
            return False

    def lose_scratch(self) -> None:
        shutil.rmtree(self.area / "scratch")
        (self.area / "scratch").mkdir()

    def common(self) -> list[int]:
        """Versions of which all ranks have a file that is whole, ascending."""
        ranks: dict[int, int] = {}
        for file in (self.area / "persistent").glob("heat-*.dat"):
            version = int(file.stem.rsplit("-", 1)[1])
            ranks[version] = ranks.get(version, 0) + is_right(file)
        return sorted(version for version, count in ranks.items() if count == RANKS)

    def harm(self, kind: str) -> bool:
        """To the newest version's file of one rank. False: there is no older one, and nothing is done."""
        there = self.common()
        if len(there) < 2:
            return False
        self.lose_scratch()
        file = self.area / "persistent" / f"heat-{self.chance.randrange(RANKS)}-{there[-1]}.dat"
        was, data = file.stat(), bytearray(file.read_bytes())
        if kind == "a file deleted":
            file.unlink()
        elif kind == "a file cut":
            file.write_bytes(data[: self.chance.randrange(len(data))])
        else:
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
            file.write_bytes(data)
            os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))  # as a disk does it
        self.harmed.add(file)
        self.least = self.exactly = there[-2]
        return True

    def moment(self, kind: str) -> bool:
        """A job, what befalls it, and what it left. False: nothing befell it, because it had ended, or changed too little."""
        environment, killed, told = {}, "killed" in kind, self.area / "told"
        told.unlink(missing_ok=True)
        if kind in ("ENOSPC", "EIO"):
            environment = {
                "LD_PRELOAD": str(self.shim),
                "FAIL_RANK": str(self.chance.randrange(RANKS)),
                "FAIL_AT": str(self.chance.randint(1, 120)),
                "FAIL_ERRNO": str(getattr(errno, kind)),
                "FAIL_IN": str(self.area / self.chance.choice(["persistent", "scratch"])),
                "FAIL_TOLD": str(told),
                "EBBTIDE_TUNING": "io=threads",  # io_uring makes no call that could fail
            }
        if kind == "MPI_Abort":
            environment = {
                "ABORT_RANK": str(self.chance.randrange(RANKS)),
                "ABORT_AT": str(self.chance.randint(1, STEPS)),
                "ABORT_US": str(self.chance.randint(0, 50_000)),
            }
        if kind in WITH_BACKEND:
            environment = {"TRIAL_AREA": str(self.area)}
            if self.backend is None:
                self.serve()
        ends = "rank" in kind or "all" in kind or kind == "MPI_Abort"  # its job, whatever number of steps it has
        job = self.start(200 if ends else self.chance.randint(4, STEPS), environment)
        befell = killed and self.kill(job, kind)
        status = self.end(job)
        befell = befell or told.exists() or (kind == "MPI_Abort" and status == ABORTED)
        if not befell:  # else it may refuse to open what it cannot write
            self.accept(status)
        self.judge(befell)
        if kind.startswith("a file"):
            return self.harm(kind)
        if befell and "scratch lost" in kind:
            self.lose_scratch()
        if befell and kind == "all killed, scratch lost":
            self.exactly = max(self.common(), default=-1)
        return befell

    def last(self) -> None:
        """One more job, which nothing befalls."""
        self.accept(self.end(self.start(3, {})))
        self.judge(killed=False)


def play(seed: int, kind: str, moments: int, area: Path, programs: tuple[Path, Path]) -> tuple[int, str, str]:
    """So many moments one after the other: how many were as they must be, and what came of the last.

    One in which nothing befell the job is drawn again, and does not count; after so many draws fewer moments count.
    """
    case, done = Case(area, *programs, random.Random(seed), kind), 0
    try:
        for _ in range(DRAWS * moments):
            done += case.moment(kind)
            if done == moments:
                break
        case.last()
    except Breach as breach:
        outcome, told = breach.args
        return done, outcome, f"{kind}, seed {seed}, job {case.generation}: {told}"
    finally:
        case.end_backend()
    return done, EXACT, ""


def trial(session: Session) -> Count:
    """Each kind, ten moments to a directory."""
    count, drawn = Count(session.seed), session.random("veloc")
    moments = session.count("veloc", MOMENTS, SHORT)
    cases = [(kind, drawn.getrandbits(31), min(TEN, moments - at)) for kind in KINDS for at in range(0, moments, TEN)]
    with session.directory("veloc-programs") as area:
        programs = built(area)

        def one(kind: str, seed: int, few: int) -> tuple[str, tuple[int, str, str]]:
            with session.directory("veloc") as case:
                found = play(seed, kind, few, case, programs)
                if found[1] != EXACT:
                    session.keep(case)
                return kind, found

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for kind, (done, outcome, told) in pool.map(lambda case: one(*case), cases):
                for _ in range(done):
                    count.add(EXACT, kind)
                if outcome != EXACT:
                    count.add(outcome, kind, told)
                    count.hold(MUST, outcome, told)
    return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        made = built(Path(scratch))
        for given in map(int, sys.argv[1:]):
            for number, which in enumerate(KINDS):
                place = Path(scratch) / f"{given}-{number}"
                place.mkdir()
                print(which, json.dumps(play(given, which, 3, place, made)), flush=True)
