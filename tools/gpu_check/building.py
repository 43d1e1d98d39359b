"""Builds what the chosen stages need, with what was carried where the machine lacks it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
from importlib import metadata

from .session import ROOT, Failed, Session

TEST_ROOMS = "device;cache;transfer;store;capi"
BENCHES = ("calls", "links", "files", "memory", "digest")


def build(session: Session, stages: set[str]) -> None:
    wheels(session)
    targets = []
    if stages & {"cxx", "memcheck"}:
        targets.append("ebb_tests")
    targets += [f"bench_gpu_{name}" for name in BENCHES if name in stages]
    targets += ["bench_init"] if "init" in stages else []
    python = bool(stages & {"python", "memcheck_python", "python_calls", "shots"})
    definitions = ["-DCMAKE_BUILD_TYPE=Release", "-DEBB_BENCHES=ON", "-DEBB_WERROR=OFF"]
    if shutil.which("ccache"):
        definitions.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    if "ebb_tests" in targets:
        definitions += ["-DEBB_TESTS=ON", f"-DEBB_TEST_ROOMS={session.options.test_rooms}", *googletest(session)]
    definitions += [*uring(session), *xxhash(session)]
    configure = ["cmake", "-S", ROOT, "-B", session.build, "-G", "Ninja", *definitions]
    with_python = ["-DEBB_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    if python and session.run(*configure, *with_python):
        session.fail("configuring the Python extension; going on without")
        python = False
    if not python:
        session.need(*configure, "-DEBB_PYTHON=OFF")
    if python:
        targets.append("_core")
    if not cuda_found(session):
        raise Failed("CMake found no CUDA toolkit: what is built would not know the GPU")
    # As much as can be built: one that fails does not take the others with it.
    if targets and session.run(
        "cmake", "--build", session.build, "-j", session.options.jobs, "--target", *targets, "--", "-k", "0"
    ):
        session.fail("the build: see its output")
    if python:
        session.need(*session.python("-c", "import ebbtide; print(ebbtide.__file__)"))


def cuda_found(session: Session) -> bool:
    cache = (session.build / "CMakeCache.txt").read_text()
    found = re.search(r"^CUDAToolkit_NVCC_EXECUTABLE:\w+=(.+)$", cache, re.MULTILINE)
    return bool(found) and not found[1].endswith("NOTFOUND")


def googletest(session: Session) -> list[str]:
    """The machine's own, or the carried sources, built once."""
    if pathlib.Path("/usr/include/gtest/gtest.h").exists() and not session.options.carried_only:
        return []
    prefix = session.build.parent / "gpu-googletest"
    if not (prefix / "include" / "gtest" / "gtest.h").exists():
        sources = session.carried / "googletest"
        if not sources.exists():
            raise Failed("there is no GoogleTest: run tools/gpu-carry on a machine with network, bring .carry/ along")
        tree = prefix / "build"
        session.need("cmake", "-S", sources, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_CXX_STANDARD=17", "-DCMAKE_INSTALL_LIBDIR=lib",
                     "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5")  # fmt: skip
        session.need("cmake", "--build", tree, "-j", session.options.jobs, "--target", "install")
    return [f"-DGTest_ROOT={prefix}", f"-DGTest_DIR={prefix}/lib/cmake/GTest"]


def uring(session: Session) -> list[str]:
    if pathlib.Path("/usr/include/liburing.h").exists() and not session.options.carried_only:
        return []
    library = session.carried / "lib" / "liburing.so"
    if not library.exists():
        session.say("no liburing here and none carried: files are read and written by threads")
        return []
    return [f"-DEBB_URING_INCLUDE={session.carried / 'include'}", f"-DEBB_URING_LIBRARY={library}"]


def xxhash(session: Session) -> list[str]:
    if pathlib.Path("/usr/include/xxhash.h").exists() and not session.options.carried_only:
        return []
    if not (session.carried / "include" / "xxhash.h").exists():
        raise Failed("there is no xxhash.h: run tools/gpu-carry on a machine with network, bring .carry/ along")
    return [f"-DEBB_XXHASH_INCLUDE={session.carried / 'include'}"]


def wheels(session: Session) -> None:
    """Puts the carried wheels that this Python lacks, or has too old for pyproject.toml, into a folder on its path."""
    site = session.build.parent / "gpu-site"
    wanted = [wheel for wheel in sorted((session.carried / "wheels").glob("*.whl")) if lacking(wheel)]
    if wanted:
        session.say("taken from .carry: " + ", ".join(wheel.name.split("-")[0] for wheel in wanted))
        session.need(*session.python("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile",
                                     "--upgrade", "--target", site, *wanted))  # fmt: skip
    paths(session)


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
