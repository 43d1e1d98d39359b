"""Builds and installs into build/ of this checkout all that the trials need; what cannot be had is left out by name."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

SANITIZED = ["-DEBB_SANITIZE=address,undefined"]
FUZZERS = ["fuzz_record", "fuzz_index", "fuzz_config"]
CLANG = ["-DEBB_FUZZ=ON", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++"]


def call(*words: object, must: bool = True) -> None:
    print("+", *words, flush=True)
    ended = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, errors="replace")
    if not ended.returncode:
        return
    print(ended.stdout[-4000:], flush=True)
    if must:
        sys.exit(f"reliability: it ended with {ended.returncode}: {' '.join(map(str, words))}")
    print(f"it ended with {ended.returncode}: what needs it is left out", flush=True)


def build(root: pathlib.Path, tree: str, targets: list[str], definitions: list[str]) -> None:
    place = root / "build" / tree
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not (place / "Makefile").exists() else []
    call("cmake", "-S", root, "-B", place, *generator, "-DEBB_TESTS=ON", *definitions, *launcher)
    call("cmake", "--build", place, "-j", os.cpu_count() or 1, "--target", *targets)


def python(root: pathlib.Path) -> pathlib.Path:
    """One that has Ebbtide as it is here, and the others."""
    venv = root / "build" / "peers-venv"
    own = venv / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not own.exists():
        call(sys.executable, "-m", "venv", venv)
    call(*pip, "-r", root / "benches" / "peers" / "requirements.txt", must=False)
    call(*pip, f"--config-settings=build-dir={root / 'build' / 'peers-python'}", root)
    return own


def run_again(root: pathlib.Path) -> None:
    """Prepares, and starts the same command anew with that Python."""
    build(root, "release", ["ebb_trials"], [])
    build(root, "trials-asan", ["ebb_trials"], SANITIZED)
    if shutil.which("clang++"):
        build(root, "fuzz", FUZZERS, CLANG)
    own = python(root)
    words = [word for word in sys.argv[1:] if word != "--prepare"]
    os.execv(own, [str(own), str(root / "reliability" / "run"), *words])
