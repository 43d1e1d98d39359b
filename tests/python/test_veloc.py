"""A stencil with VELOC's calls, as a user compiles it: jobs over MPI that are killed, and whose directories are lost."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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


def test_a_job_of_another_size_is_told(disk: Path, heat: Path, right: str) -> None:
    config = configured(disk, "mode = sync")
    assert ended(job(heat, config, STEPS)) == right
    single = subprocess.run([heat, config, str(STEPS)], capture_output=True, text=True)
    assert single.returncode != 0
    assert "a group of 4 ranks, and this one has 1" in single.stderr
