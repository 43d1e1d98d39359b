"""Calls in stream order: overwriting, freeing and computing around them, and what they block."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_support import Cupy, Interface, Torch, by_library, needs_gpu, open_gpu

import ebbtide
from ebbtide import _arrays

pytestmark = needs_gpu
COUNT = 1 << 20  # of float32


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with open_gpu(disk) as store:
        yield store


@pytest.fixture(autouse=True)
def nothing_left_on_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for kind in (Torch, Cupy):
        try:
            kind().synchronize()
        except pytest.skip.Exception:
            pass


@by_library
def test_overwritten_right_after_the_checkpoint_returns(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        x = lib.full(COUNT, 0)
        lib.spin()
        for version in range(1, 5):
            lib.fill(x, version)
            store.checkpoint(version, x)
            lib.fill(x, -1)
        assert lib.busy(stream)
        for version in (3, 1, 4, 2):
            assert lib.same(store.restore(version), version)


@by_library
@pytest.mark.parametrize("named", [False, True])
def test_an_array_with_gaps_is_packed_and_filled_in_stream_order(store: ebbtide.Store, make: Any, named: bool) -> None:
    lib = make()
    stream = lib.stream()
    whole, out = lib.full((1024, 2048), 0), lib.full((1024, 2048), 0)
    store.checkpoint(0, whole[:, ::2])
    store.restore(0, out=out[:, ::2])  # its kernels are loaded
    lib.synchronize()
    how: dict[str, Any] = {"stream": stream} if named else {}

    def call(work: Any, *given: Any, **more: Any) -> None:
        with nullcontext() if named else lib.on(stream):
            work(*given, **how, **more)

    with lib.on(stream):
        lib.spin()
    for version in range(1, 5):
        with lib.on(stream):
            lib.fill(whole, version)
        call(store.checkpoint, version, whole[:, ::2])
        with lib.on(stream):
            lib.fill(whole, -1)
    assert lib.busy(stream)
    seen = []
    for version in (3, 1, 4, 2):
        call(store.restore, version, out=out[:, ::2])
        with lib.on(stream):
            seen.append(out + 0)
            lib.fill(out, 0)
    lib.synchronize()
    for version, found in zip((3, 1, 4, 2), seen):
        assert lib.same(found[:, ::2], version) and lib.same(found[:, 1::2], 0)


@by_library
def test_freed_right_after_the_checkpoint_returns(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        lib.spin()
        for version in range(1, 5):
            x = lib.full(COUNT, version)
            store.checkpoint(version, x)
            del x
            lib.full(COUNT, -1)  # the caching allocator gives the same memory
        assert lib.busy(stream)
        for version in range(1, 5):
            assert lib.same(store.restore(version), version)


@by_library
def test_freed_right_after_the_restore_returns(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        for version in range(1, 5):
            store.checkpoint(version, lib.full(COUNT, version))
        store.wait("device")
        seen = {}
        lib.spin()
        for version in range(1, 5):
            out = lib.full(COUNT, 0)
            store.restore(version, out=out)
            seen[version] = out * 1
            del out
            lib.full(COUNT, -1)  # the caching allocator gives the same memory
        assert lib.busy(stream)
        for version in range(1, 5):
            assert lib.same(seen[version], version)


@by_library
@pytest.mark.parametrize("default", [False, True], ids=["own", "default"])
def test_the_host_is_not_held_up_when_there_is_room(store: ebbtide.Store, make: Any, default: bool) -> None:
    lib = make()
    stream = lib.stream()
    x = lib.full(COUNT, 7)
    store.checkpoint(0, x)
    store.restore(0, out=x)  # everything has been called once
    lib.synchronize()
    if default:
        lib.spin()
        start = time.perf_counter()
        store.checkpoint(1, x)
        assert time.perf_counter() - start < 0.05
    else:
        with lib.on(stream):
            lib.spin()
            start = time.perf_counter()
            store.checkpoint(1, x)
            assert time.perf_counter() - start < 0.05
            assert lib.busy(stream)
    lib.synchronize()
    assert lib.same(store.restore(1), 7)


@by_library
def test_a_restore_in_stream_order_and_work_after_it(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        store.checkpoint(0, lib.full(COUNT, 5))
        store.wait("device")
        out = lib.full(COUNT, 1)
        lib.synchronize()
        lib.spin()
        lib.fill(out, 2)  # must come before the bytes
        start = time.perf_counter()
        store.restore(0, out=out)
        took = time.perf_counter() - start
        doubled = out * 2
        assert lib.busy(stream) and took < 0.05
        assert lib.same(doubled, 10)


@by_library
def test_a_checkpoint_still_under_way_is_restored_in_order(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.on(lib.stream()):
        lib.spin()
        x = lib.full(COUNT, 3)
        store.checkpoint(0, x)
        lib.fill(x, 0)
        store.restore(0, out=x)
        assert lib.same(x, 3)


class NamesAHandle:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@by_library
@pytest.mark.parametrize("given", ["handle", "stream", "protocol"])
def test_a_stream_is_given(store: ebbtide.Store, make: Any, given: str) -> None:
    lib = make()
    stream = lib.stream()
    handle = lib.handle(stream)
    named = {"handle": handle, "stream": stream, "protocol": NamesAHandle(handle)}[given]
    with lib.on(stream):
        x = lib.full(COUNT, 1)
        lib.spin()
        lib.fill(x, 2)
    store.checkpoint(0, x, stream=named)  # the current stream is another
    with lib.on(stream):
        lib.fill(x, 3)
    store.restore(0, out=x, stream=named)
    store.checkpoint(1, x, stream=named)
    back = store.restore(1, stream=named)
    with lib.on(stream):
        assert lib.same(x, 2)
        assert lib.same(back, 2)


@by_library
def test_memory_is_not_used_again_before_a_stream_that_was_given(store: ebbtide.Store, make: Any) -> None:
    """Allocated on the current stream, copied on another one that is late, and freed at once."""
    lib = make()
    late = lib.stream()
    for version in range(3):
        x = lib.full(COUNT, version)
        lib.synchronize()
        with lib.on(late):
            lib.spin()
        store.checkpoint(version, x, stream=late)
        del x
        again = [lib.full(COUNT, 77) for _ in range(4)]  # perhaps the very same memory
        del again
    with lib.on(late):
        lib.spin()
    for version in range(3):
        out = lib.full(COUNT, 5)
        lib.synchronize()
        store.restore(version, out=out, stream=late)
        with lib.on(late):
            assert lib.same(out, version)


@by_library
def test_allocators_are_told_however_a_call_ends(disk: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = make()
    told: list[int] = []
    monkeypatch.setattr(_arrays, "in_use_on", lambda array, stream, gpu: told.append(stream))
    stream = lib.stream()
    x = lib.full(COUNT, 1)
    lib.synchronize()
    with open_gpu(disk, device_cache="16MiB", host_cache=0, disk=0) as store:
        with pytest.raises(ebbtide.NoSpace):
            for version in range(20):
                store.checkpoint(version, x, stream=stream)
        assert told == [lib.handle(stream)] * (version + 1)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, _thread.interrupt_main).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                store.checkpoint(version, x, stream=stream, timeout=30)
        finally:
            signal.signal(signal.SIGINT, before)
        assert len(told) == version + 2
        store.restore(0, out=x, stream=stream, keep=True)
        assert len(told) == version + 3


@by_library
def test_host_memory_in_the_same_call_makes_it_block(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    given = np.arange(1000.0)
    with lib.on(stream):
        x = lib.full(COUNT, 1)
        lib.spin()
        lib.fill(x, 2)
        store.checkpoint(0, {"gpu": x, "host": given})
        assert not lib.busy(stream)
        lib.fill(x, 3)
        lib.spin()
        lib.fill(x, 4)
        back = np.zeros(1000)
        store.restore(0, out={"gpu": x, "host": back}, keep=True)
        assert (back == given).all() and lib.same(x, 2)
        with pytest.raises(ebbtide.InvalidArgument, match="host memory"):
            store.checkpoint(1, [x, given], stream=stream)
        found = store.restore(0)
        assert lib.same(found["gpu"], 2) and (found["host"] == given).all()


@by_library
def test_the_stream_that_an_array_names_is_waited_for_where_a_call_blocks(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    given, back = np.arange(1000.0), np.zeros(1000)
    with lib.on(stream):
        x = lib.full(COUNT, 1)
        named = Interface(x, stream=lib.handle(stream))
        lib.spin()
        lib.fill(x, 2)
        store.checkpoint(0, {"gpu": named, "host": given})
        assert not lib.busy(stream)
        lib.fill(x, 3)
        lib.spin()
        lib.fill(x, 4)
        store.restore(0, out={"gpu": named, "host": back}, keep=True)
        assert (back == given).all() and lib.same(x, 2)
        lib.spin()
        lib.fill(x, 5)
        store.restore_async(0, out={"gpu": named, "host": back}).result(timeout=30)
        assert lib.same(x, 2)


@by_library
def test_a_restore_that_failed_writes_nothing_later(disk: Path, make: Any) -> None:
    """Into arrays of libraries that do not use memory again in stream order."""
    lib = make()
    with open_gpu(disk / "kept", durability="process") as store:
        store.checkpoint(0, lib.full(COUNT, 5))
    stream = lib.stream()
    x = lib.full(COUNT, 1)
    lib.synchronize()
    with open_gpu(disk / "kept", durability="process") as store:  # it is only in a file
        with lib.on(stream):
            lib.spin()
            with pytest.raises(ebbtide.TimedOut):
                store.restore(0, out=Interface(x, stream=lib.handle(stream)), timeout=0)
            assert not lib.busy(stream)
            store.restore(0, out=x)
            assert lib.same(x, 5)


def test_arrays_on_different_streams_are_refused(store: ebbtide.Store) -> None:
    torch, cupy = Torch(), Cupy()
    one, other = torch.stream(), cupy.stream()
    with torch.on(one), cupy.on(other):
        pair = [torch.full(10, 1), cupy.full(10, 2)]
        with pytest.raises(ebbtide.InvalidArgument, match="different streams.*stream="):
            store.checkpoint(0, pair)
        torch.synchronize()
        store.checkpoint(0, pair, stream=one)
        back = store.restore(0, stream=one)
        torch.synchronize()
    assert torch.is_one(back[0]) and cupy.is_one(back[1])
    assert torch.same(back[0], 1) and cupy.same(back[1], 2)


@by_library
def test_two_threads_with_streams_of_their_own(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    wrong: list[str] = []

    def work(number: int) -> None:
        history = store.history(f"thread {number}", order="reverse")
        with lib.on(lib.stream()):
            x = lib.full(COUNT // 4, 0)
            for version in range(60):  # past the device cache
                lib.fill(x, 1000 * number + version)
                history.checkpoint(version, x, timeout=30)
                lib.fill(x, -1)
            for version in reversed(range(60)):
                history.restore(version, out=x)
                if not lib.same(x, 1000 * number + version):
                    wrong.append(f"{number}: {version}")

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@by_library
def test_two_stores_on_one_gpu(store: ebbtide.Store, disk: Path, make: Any) -> None:
    lib = make()
    with open_gpu(disk, device_cache="32MiB") as second, lib.on(lib.stream()):
        x = lib.full(COUNT, 0)
        lib.spin()
        for version in range(20):
            for number, one in enumerate((store, second)):
                lib.fill(x, 100 * number + version)
                one.checkpoint(version, x, timeout=30)
        for version in reversed(range(20)):
            for number, one in enumerate((store, second)):
                one.restore(version, out=x)
                assert lib.same(x, 100 * number + version)


@by_library
def test_a_restore_in_the_background(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        store.checkpoint(0, lib.full(COUNT, 5))
        x = lib.full(COUNT, 0)
        lib.spin()
        lib.fill(x, 1)
        future = store.restore_async(0, out=x, keep=True)
        assert future.result(timeout=30) is x
        assert lib.same(x, 5)
        assert lib.same(store.restore_async(0).result(timeout=30), 5)


def test_a_capture_by_torch_is_refused_and_survives(store: ebbtide.Store) -> None:
    lib = Torch()
    torch = lib.torch
    x, y = lib.full(COUNT, 1), lib.full(COUNT, 0)
    for version in range(4):
        store.checkpoint(version, x)  # the engine is at work meanwhile
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y += 1
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.checkpoint(9, x)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.restore(0, out=x)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.checkpoint(9, [x, np.zeros(4)])
        y += 1
    graph.replay()
    lib.synchronize()
    assert lib.same(y, 2) and 9 not in store.versions()
    store.restore(0, out=x)
    assert lib.same(x, 1)


def test_a_capture_by_cupy_is_refused_and_survives(store: ebbtide.Store) -> None:
    lib = Cupy()
    x, y = lib.full(COUNT, 1), lib.full(COUNT, 0)
    lib.cupy.add(y, 0, out=y)
    for version in range(4):
        store.checkpoint(version, x)
    lib.synchronize()
    stream = lib.stream()
    with stream:
        stream.begin_capture()
        lib.cupy.add(y, 1, out=y)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.checkpoint(9, x)
        lib.cupy.add(y, 1, out=y)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert lib.same(y, 2) and 9 not in store.versions()
