"""Stores that are kept, and programs of their own that write them and end as a test wants."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from child import ended
import numpy as np
import pytest

import ebbtide

KIB = 1024
CACHES: dict[str, Any] = {"device_cache": "256KiB", "host_cache": "256KiB", "disk": "64MiB"}
levels = pytest.mark.parametrize("level", ["process", "storage"])


def content(version: int, size: int = 48 * KIB) -> dict[str, np.ndarray]:
    """What version `version` holds, in this process and in every other."""
    random = np.random.default_rng(version)
    return {"x": random.integers(0, 256, size, "u1"), "step": np.array([version])}


def same(found: Any, version: int, size: int = 48 * KIB) -> bool:
    expected = content(version, size)
    return found.keys() == expected.keys() and all(np.array_equal(found[key], expected[key]) for key in expected)


def kept(directory: Path, level: str = "storage", **more: Any) -> ebbtide.Store:
    return ebbtide.open(directory / "kept", durability=level, **(CACHES | more))


def looked_at(directory: Path, **more: Any) -> ebbtide.Store:
    return ebbtide.open(directory / "kept", readonly=True, **(CACHES | more))


HEAD = """
import os, resource, signal, sys, threading, time
sys.path.insert(0, {here!r})
from pathlib import Path
import numpy as np
import ebbtide
from kept_support import content, kept, looked_at, same
directory, level = Path({directory!r}), {level!r}
"""


def program(directory: Path, level: str, body: str) -> list[str]:
    head = HEAD.format(here=str(Path(__file__).parent), directory=str(directory), level=level)
    return [sys.executable, "-c", head + textwrap.dedent(body)]


def run(directory: Path, level: str, body: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, whatever that is."""
    return ended(*program(directory, level, body))


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "kept").glob("segment-*.ebb"))


def flip(path: Path, offset: int, bit: int = 3) -> None:
    """One bit of a file, from its end if `offset` is negative."""
    with path.open("r+b") as file:
        file.seek(offset, 0 if offset >= 0 else 2)
        at = file.tell()
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def payload_of(directory: Path, version: int) -> tuple[Path, int]:
    """The segment file in which a version's bytes lie, and where they begin."""
    wanted = content(version)["x"].tobytes()[:64]
    for path in segments(directory):
        at = path.read_bytes().find(wanted)
        if at >= 0:
            return path, at
    raise AssertionError(f"version {version} is in no segment")
