"""`import ebbtide` costs little and brings no framework along."""

from __future__ import annotations

import json
import subprocess
import sys

FRAMEWORKS = ("torch", "jax", "cupy", "deepwave", "devito", "pyrevolve", "matplotlib", "typer", "rich")


def child(program: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_no_framework_is_imported() -> None:
    found = child("import ebbtide, json, sys; print(json.dumps({name: 1 for name in sys.modules}))")
    assert not set(FRAMEWORKS) & set(found)


def test_it_costs_at_most_30_ms_of_processor_time() -> None:
    program = (
        "import json, time, numpy; begin = time.process_time(); import ebbtide; "
        "print(json.dumps({'s': time.process_time() - begin}))"
    )
    costs = sorted(float(str(child(program)["s"])) for _ in range(7))
    assert costs[0] < 0.030, costs  # the least: other programs only add to it


def test_without_torch_the_line_that_installs_it_is_named() -> None:
    program = (
        "import json, sys\nsys.modules['torch'] = None\n"
        "try:\n import ebbtide.torch\nexcept ImportError as error:\n print(json.dumps({'words': str(error)}))"
    )
    assert 'pip install "ebbtide[torch]"' in str(child(program)["words"])
