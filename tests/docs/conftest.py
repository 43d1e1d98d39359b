"""Where the examples run, and the library that they are linked with."""

import fcntl
import os
import pathlib
import subprocess

import pytest
from scratch import SCRATCH

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def library() -> pathlib.Path:
    """The folder of libebbtide.so, brought up to date in the Release tree that `make test` builds."""
    tree = ROOT / "build" / "release"
    tree.mkdir(parents=True, exist_ok=True)
    with open(tree / ".pytest-lock", "w") as lock:  # two workers must not build one tree at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / "CMakeCache.txt").exists():
            configure = ["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "-DEBB_TESTS=ON"]
            subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        built = subprocess.run(["cmake", "--build", tree, "--target", "ebbtide"], capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
    return tree / "src" / "capi"


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """As a reader's shell, with .venv/bin on PATH. The stores' files lie in build/: a temporary folder may be a tmpfs.

    The device is the reader's too: tests/python/conftest.py, in the same run, chooses "cpu" for its own tests.
    """
    return {
        **{name: value for name, value in os.environ.items() if name != "EBBTIDE_DEVICE"},
        "EBBTIDE_JOB": f"docs-{tmp_path.name}-{os.getpid()}",  # examples that run at the same time are jobs of their own
        "EBBTIDE_DIR": str(SCRATCH),
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "MPLBACKEND": "Agg",
    }
