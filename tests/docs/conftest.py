"""Where the examples run, and the library that they are linked with."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def library() -> pathlib.Path:
    """The folder of libebbtide.so, brought up to date in the Release tree that `make test` builds."""
    tree = ROOT / "build" / "release"
    if not (tree / "CMakeCache.txt").exists():
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        subprocess.run(
            ["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "-DEBB_TESTS=ON", *launcher],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    subprocess.run(["cmake", "--build", tree, "--target", "ebbtide"], check=True, stdout=subprocess.DEVNULL)
    return tree / "src" / "capi"


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """As a reader's shell, with .venv/bin on PATH. The stores' files lie in build/: a temporary folder may be a tmpfs."""
    scratch = ROOT / "build" / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "EBBTIDE_DIR": str(scratch),
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "MPLBACKEND": "Agg",
    }
