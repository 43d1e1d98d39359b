"""Rolling windows on small disks: one that holds what keep_last and keep_every keep, and a checkpoint more, is enough."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_support import run, KIB, kept, levels, program

import ebbtide

PAGE = 4 * KIB


def array(version: int, size: int) -> np.ndarray:
    return np.full(size, version % 251, "u1")


def there(directory: Path, name: str = "", **options: Any) -> list[int]:
    """The versions that another process finds, each of them whole."""
    with ebbtide.open(directory / "kept", readonly=True, device_cache="1MiB", host_cache="1MiB", **options) as store:
        history = store.history(name)
        for version in store.versions(name):
            found = history.restore(version)
            assert (found == version % 251).all()
        return store.versions(name)


@levels
@pytest.mark.parametrize("wait", [False, True])
def test_as_fast_as_checkpoints_come(disk: Path, level: str, wait: bool) -> None:
    with ebbtide.open(
        disk / "kept", device_cache="4MiB", host_cache="4MiB", disk="4MiB", durability=level, keep_last=1
    ) as store:
        for version in range(60):
            store.checkpoint(version, array(version, 512 * KIB))
        if wait:
            store.wait(level, timeout=120)
            assert store.versions() == [59]
    assert there(disk) == [59]


@pytest.mark.parametrize("records", [4, 31, 63, 127])
def test_three_of_many(disk: Path, records: int) -> None:
    size = 64 * KIB
    with kept(disk, disk=records * size, keep_last=3) as store:
        futures = [store.checkpoint(version, array(version, size)) for version in range(2 * records + 20)]
        newest = len(futures) - 1
        futures[-1].wait("storage", timeout=120)
    assert there(disk) == [newest - 2, newest - 1, newest]
    assert all(future.done("storage") for future in futures)  # each of them was, before it was dropped


@levels
def test_a_disk_that_is_too_small_is_refused_by_the_first_checkpoint_that_shows_it(disk: Path, level: str) -> None:
    size = 64 * KIB
    with kept(disk, level, disk=3 * size + PAGE, keep_last=2, keep_every=2) as store:
        for version in range(3):
            store.checkpoint(version, array(version, size))  # 1 goes when 3 is durable
        with pytest.raises(ebbtide.NoSpace) as refused:
            store.checkpoint(3, array(3, size))
        for part in ("version 3", f"{4 * size} bytes", f"{3 * size + PAGE}", "keep_last=2", "keep_every=2"):
            assert part in str(refused.value)
        store.wait(level, timeout=60)
        assert store.versions() == [0, 1, 2]
        store.drop(0)
        store.checkpoint(3, array(3, size))
    assert there(disk) == [2, 3]


def test_an_error_names_the_version_that_has_no_room(disk: Path) -> None:
    with kept(disk, disk="128KiB") as store:
        for version in (7, 8, 9):
            store.checkpoint(version, array(version, 64 * KIB))
        with pytest.raises(ebbtide.NoSpace, match="version 9 could not be written") as refused:
            store.wait("storage", timeout=60)
        assert str(64 * KIB) in str(refused.value) and "local" in str(refused.value)
        with pytest.raises(ebbtide.NoSpace, match="version 9"):
            store.close()


class Window:
    """The versions that exist, according to the documentation, once all are durable."""

    def __init__(self, keep_last: int, keep_every: int) -> None:
        self.keep_last, self.keep_every = keep_last, keep_every
        self.sizes: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.writes = 0

    def write(self, version: int, size: int) -> None:
        self.writes += 1
        self.sizes[version], self.written[version] = -(-size // PAGE) * PAGE, self.writes
        for old in sorted(self.sizes):
            newer = [other for other in self.sizes if other > old]
            later = any(self.written[other] > self.written[old] for other in newer)
            multiple = self.keep_every and old % self.keep_every == 0
            if len(newer) >= self.keep_last and later and not multiple:
                self.drop(old)

    def drop(self, version: int) -> None:
        del self.sizes[version], self.written[version]


def draw(seed: int) -> tuple[dict[str, Any], list[tuple[str, int, int]], list[int]]:
    """Options with the smallest sufficient disk, the steps, and the versions at the end."""
    rng = random.Random(seed)
    window = Window(rng.randint(1, 4), rng.choice([0, 0, 3, 5]))
    most, largest, version = 0, rng.randint(1, 96) * KIB, 0
    steps: list[tuple[str, int, int]] = []
    for _ in range(rng.randint(20, 80)):
        kind = rng.choices(["write", "wait", "restore", "drop", "anew", "back", "close"], [70, 5, 8, 4, 4, 4, 2])[0]
        held = sorted(window.sizes)
        if kind in ("restore", "drop", "anew") and not held:
            continue
        target = version
        if kind == "write":
            version += rng.randint(1, 2)
        elif kind == "back":
            target = rng.randint(0, max(0, version - 1))
            if version == 0 or target in window.sizes:
                continue
        elif held:
            target = rng.choice(held)
        size = rng.randint(0, largest)
        steps.append((kind, target, size))
        if kind in ("drop", "anew"):
            window.drop(target)
        if kind in ("write", "anew", "back"):
            most = max(most, sum(window.sizes.values()) + -(-size // PAGE) * PAGE)
            window.write(target, size)
        if kind == "close":  # versions that are not read afterwards count only for newer ones
            window.written = {old: 0 for old in window.written}
            steps.append(("read", 0, 0))
    options = {
        "disk": max(most, PAGE),
        "device_cache": rng.choice([0, "96KiB", "512KiB"]),
        "host_cache": "128KiB",
        "keep_last": window.keep_last,
        "keep_every": window.keep_every,
    }
    return options, steps, sorted(window.sizes)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_on_the_smallest_disk(disk: Path, seed: int) -> None:
    options, steps, expected = draw(seed)
    level = "process" if seed % 4 == 0 else "storage"
    store = kept(disk, level, **options)
    sizes: dict[int, int] = {}
    for kind, version, size in steps:
        if kind in ("drop", "anew", "back", "restore"):
            store.wait(level, timeout=60)  # so that the existing versions are known
        if kind == "wait":
            store.wait(level, timeout=60)
        elif kind == "restore":
            assert np.array_equal(store.restore(version), array(version, sizes[version]))
        elif kind == "close":
            store.close()
            store = kept(disk, level, **options)
        elif kind == "read":
            for at in reversed(store.versions()):
                assert store.latest(at_most=at) == at
        if kind in ("drop", "anew"):
            store.drop(version)
        if kind in ("write", "anew", "back"):
            store.checkpoint(version, array(version, size))
            sizes[version] = size
    store.close()
    assert there(disk) == expected


WRITER = """
with kept(directory, level, disk={disk}, keep_last=2, keep_every=0) as store:
    newest = store.latest()
    for version in range(0 if newest is None else newest + 1, {end}):
        store.checkpoint(version, np.full({size}, version % 251, "u1"))
        if version % 7 == 6:
            store.wait(level)
            print(version, flush=True)
"""


@levels
def test_killed_at_any_time_it_goes_on_with_the_same_disk(disk: Path, level: str) -> None:
    size, reported = 64 * KIB, -1
    body = WRITER.format(disk=3 * size, size=size, end=10**9)
    for lines in (1, 5, 2, 9, 1, 3):
        command = program(disk, level, body)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout and child.stderr
            for _ in range(lines):
                line = child.stdout.readline()
                assert line, child.stderr.read()
                reported = int(line)
            child.send_signal(signal.SIGKILL)
            child.wait(timeout=60)
        assert there(disk)[-1] >= reported
    end = there(disk)[-1] + 30
    done = run(disk, level, WRITER.format(disk=3 * size, size=size, end=end))
    assert done.returncode == 0, done.stderr
    assert there(disk) == [end - 2, end - 1]
