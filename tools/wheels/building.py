"""How a wheel is built, and how it gets the tag of the oldest system that it runs on."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from . import debian, readme

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build/wheels"
SOURCE = WORK / "source"
BESIDE = WORK / "python3.13"


def say(text: str) -> None:
    print(f"[wheels] {text}", file=sys.stderr, flush=True)


def copy_tree(home: str | None) -> None:
    """What git knows of this checkout, with the README as a package's page shows it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    wanted = {ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    for stale in [
        path for path in SOURCE.rglob("*") if path.is_file() and ROOT / path.relative_to(SOURCE) not in wanted
    ]:
        stale.unlink()
    for path in wanted:
        copy = SOURCE / path.relative_to(ROOT)
        if not copy.exists() or copy.read_bytes() != path.read_bytes():  # else it would be compiled again
            copy.parent.mkdir(parents=True, exist_ok=True)
            # With the time of this copy, so that what a compiler made meanwhile of what was there is older.
            shutil.copy(path, copy)
    (SOURCE / "README.md").write_text(readme.packaged((ROOT / "README.md").read_text(), home))
    if home:
        table = f'[project.urls]\nHomepage = "{home}"\n\n[project.scripts]'
        settings = SOURCE / "pyproject.toml"
        settings.write_text((ROOT / "pyproject.toml").read_text().replace("[project.scripts]", table))


def build(python: pathlib.Path, name: str, cuda: str, jobs: int, *settings: str) -> pathlib.Path:
    """The wheel that `python` makes of the tree, as the linker left it."""
    raw = WORK / "raw" / name
    shutil.rmtree(raw, ignore_errors=True)
    defines = {"EBB_PORTABLE": "ON", "EBB_CUDA": cuda}
    options = [
        f"build-dir={WORK / name}",
        *(f"cmake.define.{key}={value}" for key, value in defines.items()),
        *settings,
    ]
    environment = os.environ | {
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "CCACHE_BASEDIR": str(SOURCE),
        "CCACHE_NOHASHDIR": "1",
    }
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         *(f"--config-settings={option}" for option in options), "--wheel-dir", str(raw), str(SOURCE)],
        check=True, env=environment,
    )  # fmt: skip
    return next(raw.glob("*.whl"))


def auditing() -> pathlib.Path:
    """The programs of an environment with auditwheel."""
    venv, pinned = WORK / "tools", ROOT / "tools/wheels/requirements.txt"
    installed = venv / "installed.txt"
    if not installed.exists() or installed.read_text() != pinned.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", "-r", str(pinned)], check=True)
        installed.write_text(pinned.read_text())
    return venv / "bin"


def repair(wheel: pathlib.Path, dist: pathlib.Path) -> None:
    """Into `dist`, with the tag that it has earned."""
    programs = auditing()
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(
        [programs / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", dist, wheel], check=True, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def python_beside() -> pathlib.Path:
    """Debian 13's Python 3.13, with the build backend of this one: scikit-build-core and nanobind are Python alone."""
    python = debian.python_beside(BESIDE, "trixie", "3.13")
    packages = BESIDE / "venv/lib/python3.13/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "backend.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
