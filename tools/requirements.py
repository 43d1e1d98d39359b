"""Prints what pyproject.toml asks for to build, run and test, one a line; CMake and Ninja too where they are missing."""

import pathlib
import re
import shutil
import subprocess

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def has(tool: str, oldest: tuple[int, int]) -> bool:
    if not shutil.which(tool):
        return False
    done = subprocess.run([tool, "--version"], capture_output=True, text=True)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    return bool(found) and (int(found[1]), int(found[2])) >= oldest


def main() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = tables["build-system"]["requires"] + tables["project"]["dependencies"]
    extras = tables["project"]["optional-dependencies"]
    wanted += extras["plots"] + extras["test"]
    if not has("cmake", (3, 22)):
        wanted.append("cmake>=3.22,<5")
    if not has("ninja", (1, 10)):
        wanted.append("ninja>=1.10,<2")
    print("\n".join(wanted))


if __name__ == "__main__":
    main()
