"""`import ebbtide` costs little and brings no framework along."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FRAMEWORKS = (
    "torch",
    "lightning",
    "transformers",
    "jax",
    "cupy",
    "deepwave",
    "devito",
    "pyrevolve",
    "matplotlib",
    "typer",
    "rich",
)


def child(program: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_no_framework_is_imported() -> None:
    found = child("import ebbtide, json, sys; print(json.dumps({name: 1 for name in sys.modules}))")
    assert not set(FRAMEWORKS) & set(found)


def test_what_few_programs_need_is_not_imported() -> None:
    found = child(
        "import json, sys, numpy; before = set(sys.modules); import ebbtide;"
        "print(json.dumps({name: 1 for name in set(sys.modules) - before}))"
    )
    assert "ebbtide._core" in found and not {"logging", "difflib", "dataclasses", "asyncio"} & set(found)


def test_the_simulator_is_imported_when_it_is_asked_for() -> None:
    found = child(
        "import ebbtide, json, sys; before = 'ebbtide.sim' in sys.modules; bytes = ebbtide.estimate.__name__;"
        "print(json.dumps({'before': before, 'name': bytes, 'sim': ebbtide.sim.__name__}))"
    )
    assert found == {"before": False, "name": "estimate", "sim": "ebbtide.sim"}


@pytest.mark.parametrize("name", ["torch", "lightning", "transformers", "jax"])
def test_without_a_framework_the_line_that_installs_it_is_named(name: str) -> None:
    program = (
        f"import json, sys\nsys.modules[{name!r}] = None\n"
        f"try:\n import ebbtide.{name}\nexcept ImportError as error:\n print(json.dumps({{'words': str(error)}}))"
    )
    assert f'pip install "ebbtide[{name}]"' in str(child(program)["words"])


def test_the_helpers_for_seismic_codes_need_no_framework() -> None:
    found = child("import ebbtide.seismic, json, sys; print(json.dumps({name: 1 for name in sys.modules}))")
    assert not set(FRAMEWORKS) & set(found)
