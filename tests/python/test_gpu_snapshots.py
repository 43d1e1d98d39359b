"""Snapshots of arrays on a GPU: cut at a point of a stream, restored to either memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_support import by_library, needs_gpu, open_gpu

import ebbtide

pytestmark = needs_gpu
COUNT = 1 << 20  # of float32: 64 zones of 64 KiB
OTHER = 1 << 14  # of float32: one zone


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with open_gpu(disk) as store:
        yield store


@by_library
@pytest.mark.parametrize("fenced", [False, True])
def test_overwritten_right_after_the_cut(store: ebbtide.Store, make: Any, fenced: bool) -> None:
    lib = make()
    beside = np.zeros(COUNT, "float32")
    with lib.on(lib.stream()):
        x = lib.full(COUNT, 0)
        store.protect({"x": x, "beside": beside})
        cut = None
        for version in range(5):
            if cut is not None:
                cut.before_write(x)
            lib.fill(x[version * OTHER : (version + 1) * OTHER], version + 1)
            beside[version] = version + 1
            cut = store.snapshot(version, fenced=fenced)
        cut.before_write(x)
        lib.fill(x, -1)
        beside[:] = -1
        cut.wait("copied")
        for version in (3, 0, 4):
            found = store.restore(version, keep=True)
            expected = np.zeros(COUNT, "float32")
            expected[: (version + 1) * OTHER] = np.repeat(np.arange(1, version + 2), OTHER)
            assert np.array_equal(lib.get(found["x"]), expected)
            assert list(found["beside"][:6]) == [step + 1 if step <= version else 0 for step in range(6)]
        lib.synchronize()


@by_library
def test_only_what_was_written_is_stored(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.on(lib.stream()):
        x = lib.full(16 * COUNT, 0)
        store.protect(x)

        def stored(version: int) -> int:
            before = store.stats()["snapshots"]["bytes_gathered"]
            store.snapshot(version).wait("ephemeral")
            return (store.stats()["snapshots"]["bytes_gathered"] - before) // (64 << 10)

        assert stored(0) == 1024
        lib.fill(x[5 * OTHER : 5 * OTHER + 1], 7)
        assert stored(1) == 1
        lib.synchronize()
        store.restore(0, out=x, keep=True)
        assert stored(2) == 0
        store.restore(1, out=x, keep=True, have=0)
        assert lib.get(x[5 * OTHER : 5 * OTHER + 1])[0] == 7
        assert stored(3) == 0
        store.unprotect()


@by_library
def test_restored_to_the_other_memory(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.on(lib.stream()):
        x, y = lib.full(COUNT, 3), np.full(COUNT, 4, "float32")
        store.protect([x, y])
        store.snapshot(0)
        to_host, to_gpu = np.zeros(COUNT, "float32"), lib.full(COUNT, 0)
        lib.synchronize()
        store.restore(0, out=[to_host, to_gpu])
        assert (to_host == 3).all() and lib.same(to_gpu, 4)


@by_library
def test_mistakes_are_refused_by_name(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    x = lib.full(COUNT, 0)
    lib.synchronize()
    for track in ("faults", "scan"):
        with pytest.raises(ebbtide.Unsupported, match="no page protection"):
            store.protect(x, track=track)
    with pytest.raises(ebbtide.Unsupported, match="multiple of 16 bytes"):
        store.protect(x[1:])
    future = store.checkpoint(0, x)
    with pytest.raises(ebbtide.InvalidArgument, match="no snapshot"):
        future.before_write(x)
