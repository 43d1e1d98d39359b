"""The environment of the tests of the helpers for frameworks, build/frameworks: the versions of tests/frameworks.txt."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "frameworks"
WANTED = ROOT / "tests" / "frameworks.txt"
TESTS = ROOT / "tests" / "python"
SUITES = ("torch_*", "lightning*", "transformers*", "jax_*", "seismic_*", "adjoint*", "recompute_*", "kinds", "targets", "import", "mpi", "arrays", "strides", "device_option", "files",
          "odd_values", "views", "bench_peers")  # fmt: skip


def made() -> pathlib.Path:
    """Its interpreter. Behind its own packages it has those of the caller: what is tested, and what tests it."""
    python = PLACE / "bin" / "python"
    installed = PLACE / "installed.txt"
    if not installed.exists() or installed.read_text() != WANTED.read_text():
        print(f"+ installing the packages of {WANTED.relative_to(ROOT)}", flush=True)
        shutil.rmtree(PLACE, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", WANTED], check=True)
        installed.write_text(WANTED.read_text())
    its_own = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    (pathlib.Path(its_own.strip()) / "ebbtide-under-test.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def files() -> list[pathlib.Path]:
    return [file for suite in SUITES for file in sorted(TESTS.glob(f"test_{suite}.py"))]


def arguments() -> dict[str, list[object]]:
    """Of pytest, for each of its runs."""
    return {
        "helpers": ["-m", "not gpu and not device", *files()],
        "pages": ["-m", "frameworks", ROOT / "tests" / "docs" / "test_examples.py"],
    }
