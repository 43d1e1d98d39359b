"""The layout of the sources is that of clang-format and ruff, in the versions that pyproject.toml names."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


def sources(*endings: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *endings],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    assert found
    return found


def run(*command: str) -> str:
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-3000:]


def test_clang_format_changes_nothing():
    files = sources("*.cpp", "*.hpp", "*.c", "*.h", "*.cu")
    assert not run("clang-format", "--dry-run", "--Werror", *files), "clang-format -i would lay them out"


def test_ruff_changes_nothing():
    assert not run("ruff", "format", "--check", "."), "ruff format . would lay them out"


def test_ruff_finds_no_mistake():
    assert not run("ruff", "check", ".")
