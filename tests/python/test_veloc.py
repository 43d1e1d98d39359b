"""A stencil with VELOC's calls, as a user compiles it: jobs over MPI that are killed, and whose directories are lost."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_mpi import ROOT, ended, job, ranks_of, with_it_gone

STEPS = 300


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    libraries = [ROOT / "build/release/src/veloc/libveloc-client.so", ROOT / "build/release/src/capi/libebbtide.so"]
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        pytest.skip("MPI is not installed")
    if not all(library.exists() for library in libraries):
        pytest.skip("build/release has no libveloc-client.so")
    program = tmp_path_factory.mktemp("heat") / "heat"
    places = [str(library.parent) for library in libraries]
    link = [f"-L{places[0]}", "-lveloc-client", f"-Wl,-rpath,{':'.join(places)}", f"-Wl,-rpath-link,{places[1]}"]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}"]
    subprocess.run(["mpicc", *flags, ROOT / "examples/heat_veloc.c", "-o", program, *link], check=True)
    yield program


def configured(at: Path, *lines: str) -> Path:
    """A configuration with directories of its own."""
    for each in ("scratch", "persistent"):
        (at / each).mkdir(parents=True, exist_ok=True)
    file = at / "veloc.cfg"
    file.write_text("\n".join([f"scratch = {at}/scratch", f"persistent = {at}/persistent", *lines, ""]))
    return file


@pytest.fixture(scope="module")
def right(heat: Path) -> str:
    """What a job prints that runs through."""
    with tempfile.TemporaryDirectory(prefix=".test-", dir=ROOT) as directory:
        out = ended(job(heat, configured(Path(directory), "mode = sync"), STEPS))
    assert out.startswith(f"heat after {STEPS} steps: ")
    return out


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stencil_whose_ranks_are_killed_ends_as_one_that_runs_through(
    disk: Path, heat: Path, right: str, mode: str
) -> None:
    chance = random.Random(mode)
    config = configured(disk, f"mode = {mode}", "max_versions = 2")
    for kill in range(5):
        running = job(heat, config, STEPS)
        until = time.monotonic() + chance.uniform(0.5, 2.5)
        while time.monotonic() < until and running.poll() is None:
            time.sleep(0.01)
        for one in chance.sample(there := ranks_of(running, heat), min(len(there), chance.choice([1, 4]))):
            with_it_gone(one)
        running.communicate(timeout=600)
        if kill == 2:  # as on other nodes
            shutil.rmtree(disk / "scratch")
            (disk / "scratch").mkdir()
    assert ended(job(heat, config, STEPS)) == right


Regions = dict[int, bytes]


def read(file: Path) -> Regions:
    """A file of VELOC's format, whoever wrote it."""
    data = file.read_bytes()
    table = [struct.unpack_from("<iQ", data, 8 + 12 * i) for i in range(struct.unpack_from("<Q", data)[0])]
    found, at = {}, 8 + 12 * len(table)
    for id, size in table:
        found[id] = data[at : at + size]
        at += size
    assert at == len(data)
    return found


def write(file: Path, regions: Regions) -> None:
    table = b"".join(struct.pack("<iQ", id, len(data)) for id, data in regions.items())
    file.write_bytes(struct.pack("<Q", len(regions)) + table + b"".join(regions.values()))


def test_a_job_goes_on_from_files_that_another_program_wrote(disk: Path, heat: Path, right: str) -> None:
    ended(job(heat, configured(disk / "first", "mode = sync", "max_versions = 1"), 100))
    config = configured(disk / "second")
    for file in (disk / "first/persistent").glob("heat-*.dat"):
        regions = read(file)
        assert struct.unpack("i", regions[0]) == (100,) and file.name.endswith("-100.dat")
        doubled = (np.frombuffer(regions[1]) * 2).tobytes()  # the equation is linear
        write(disk / "second/persistent" / file.name, {0: regions[0], 1: doubled})
    assert len(list((disk / "second/persistent").glob("heat-*-100.dat"))) == 4
    heat_of = float(ended(job(heat, config, STEPS)).split(": ")[1])
    assert heat_of == pytest.approx(2 * float(right.split(": ")[1]), rel=1e-9)


@pytest.mark.parametrize("damage", ["deleted", "cut", "flipped"])
def test_damage_on_one_rank_takes_all_to_the_version_before(disk: Path, heat: Path, right: str, damage: str) -> None:
    config = configured(disk, "mode = sync", "max_versions = 2")
    ended(job(heat, config, 100))
    shutil.rmtree(disk / "scratch")
    (disk / "scratch").mkdir()
    file = disk / "persistent/heat-2-100.dat"
    was, data = file.stat(), bytearray(file.read_bytes())
    if damage == "deleted":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-1000])
    else:
        data[-1000] ^= 4
        file.write_bytes(data)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))  # as the disk does it
    assert ended(job(heat, config, STEPS)) == right


def test_where_one_rank_misses_its_files_nothing_of_the_others_goes(disk: Path, heat: Path, right: str) -> None:
    config = configured(disk, "mode = sync")
    ended(job(heat, config, 100))
    shutil.rmtree(disk / "scratch")
    for file in (disk / "persistent").glob("heat-1-*.dat"):
        file.unlink()
    ended(job(heat, config, 10))  # from the start
    assert len(list((disk / "persistent").glob("heat-*-100.dat"))) == 3
    assert ended(job(heat, config, STEPS)) == right


def test_a_job_of_another_size_is_told(disk: Path, heat: Path, right: str) -> None:
    config = configured(disk, "mode = sync")
    assert ended(job(heat, config, STEPS)) == right
    single = subprocess.run([heat, config, str(STEPS)], capture_output=True, text=True)
    assert single.returncode != 0
    assert "a group of 4 ranks, and this one has 1" in single.stderr
