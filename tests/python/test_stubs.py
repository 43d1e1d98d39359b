"""The stubs of the extension modules are those that they would have generated, and the package holds to its types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ebbtide

PACKAGE = Path(ebbtide.__file__).parent
SOURCES = Path(__file__).resolve().parents[2] / "python" / "ebbtide"


@pytest.mark.parametrize("module", ["_core", "_models"])
def test_the_stubs_are_as_generated(module: str, tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    made = tmp_path / f"{module}.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-m", f"ebbtide.{module}", "-o", made], check=True, timeout=120
    )
    kept = (PACKAGE / f"{module}.pyi").read_text()
    again = f"python -m nanobind.stubgen -m ebbtide.{module} -o python/ebbtide/{module}.pyi"
    assert made.read_text() == kept, f"the bindings changed; regenerate the stubs: {again}"


def test_mypy_finds_nothing() -> None:
    pytest.importorskip("mypy")
    names = (
        "__init__.py",
        "_arrays.py",
        "_futures.py",
        "_open.py",
        "_training",
        "_trees.py",
        "adjoint",
        "cli.py",
        "commands",
        "errors.py",
        "jax",
        "lightning",
        "mpi.py",
        "pyadjoint",
        "seismic",
        "sim",
        "torch",
        "transformers",
        "types.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *(str(SOURCES / name) for name in names)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=SOURCES.parents[1],
    )
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_documented() -> None:
    for name in ebbtide.__all__:
        value = getattr(ebbtide, name)
        assert name == "__version__" or value.__doc__, name
    for kind in (ebbtide.Store, ebbtide.History, ebbtide.Future, ebbtide.Reservation, ebbtide.Loan):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert member.__doc__, f"{kind.__name__}.{name}"
