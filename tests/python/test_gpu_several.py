"""Several GPUs in one process: a store on each, and arrays on another GPU than the store's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_support import Interface, OnlyDLPack, Torch, by_library, needs_two_gpus, open_gpu

import ebbtide

pytestmark = needs_two_gpus
COUNT = 1 << 20  # of float32


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with open_gpu(disk, device="cuda:0", device_cache="16MiB", host_cache="32MiB", disk="256MiB") as store:
        yield store


@by_library
def test_an_array_on_another_gpu_is_copied_when_the_call_returns(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.gpu(1):
        stream = lib.stream()
        with lib.on(stream):
            x = lib.full(COUNT, 1)
            lib.spin()
            lib.fill(x, 2)
            store.checkpoint(0, x)
            lib.fill(x, 3)
            assert lib.same(x, 3)
            lib.spin()
            lib.fill(x, 4)  # comes before what is restored
            store.restore(0, out=x, keep=True)
            assert lib.same(x, 2)
            del x
    with lib.gpu(0):
        out = lib.full(COUNT, 0)
        store.restore(0, out=out)
        assert lib.same(out, 2)


def as_it_is(lib: Any, x: Any) -> Any:
    return x


def by_dlpack(lib: Any, x: Any) -> Any:
    return OnlyDLPack(x, lib.gpu(1))


def by_interface(lib: Any, x: Any) -> Any:
    """It names the stream on which it is computed, if that is not the default one."""
    return Interface(x, stream=lib.handle(lib.current()) or None)


@by_library
@pytest.mark.parametrize("given", [as_it_is, by_dlpack, by_interface])
@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
def test_an_array_on_a_gpu_that_is_not_the_current_one(store: ebbtide.Store, make: Any, given: Any, own: bool) -> None:
    lib = make()
    with lib.gpu(1), lib.on(lib.stream() if own else lib.current()):
        x = lib.full(COUNT, 1)
        array = given(lib, x)
        lib.spin()
        lib.fill(x, 2)
        with lib.gpu(0):
            store.checkpoint(0, array)
        lib.fill(x, 3)
        lib.spin()
        lib.fill(x, 4)
        with lib.gpu(0):
            store.restore(0, out=array, keep=True)
        assert lib.same(x, 2)
        lib.spin()
        lib.fill(x, 5)
        with lib.gpu(0):
            store.restore_async(0, out=array).result(timeout=30)
        assert lib.same(x, 2)


@by_library
def test_an_array_on_another_gpu_by_dlpack_is_waited_for_with_a_stream_too(store: ebbtide.Store, make: Any) -> None:
    """The default stream by its number is another one on each GPU."""
    lib = make()
    with lib.gpu(1):
        x = lib.full(COUNT, 1)
        lib.spin()
        lib.fill(x, 2)
        store.checkpoint(0, by_dlpack(lib, x), stream=1)
        with lib.gpu(0):
            lib.synchronize()
        lib.fill(x, 3)
        lib.spin()
        lib.fill(x, 4)
        store.restore(0, out=by_dlpack(lib, x), stream=1)
        with lib.gpu(0):
            lib.synchronize()
        assert lib.same(x, 2)


def test_a_capture_on_another_gpu_is_refused_and_survives(store: ebbtide.Store) -> None:
    lib = Torch()
    with lib.gpu(1):
        x, y = lib.full(COUNT, 1), lib.full(COUNT, 0)
        y += 0
        lib.synchronize()
        stream, graph = lib.stream(), lib.torch.cuda.CUDAGraph()
        with lib.torch.cuda.graph(graph, stream=stream):
            y += 1
            with pytest.raises(ebbtide.Unsupported, match="cuda:1.*captured"):
                store.checkpoint(0, Interface(x, stream=lib.handle(stream)))
            y += 1
        graph.replay()
        assert lib.same(y, 2) and store.versions() == []


@by_library
def test_arrays_on_another_gpu_go_past_the_caches(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.gpu(1):
        x = lib.full(COUNT, 0)
        for version in range(20):  # 80 MiB: most of it comes back from the disk
            lib.fill(x, version)
            store.checkpoint(version, x, timeout=30)
        for version in reversed(range(20)):
            lib.fill(x, -1)
            store.restore(version, out=x)
            assert lib.same(x, version)


@by_library
def test_arrays_on_both_gpus_in_one_call(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    arrays = {}
    for number in range(2):
        with lib.gpu(number):
            arrays[number] = lib.full(COUNT, 10 + number)
            lib.spin()
            lib.fill(arrays[number], 20 + number)
    store.checkpoint(0, arrays)
    for number in range(2):
        with lib.gpu(number):
            lib.fill(arrays[number], 0)
    store.restore(0, out=arrays)
    for number in range(2):
        with lib.gpu(number):
            assert lib.same(arrays[number], 20 + number)


@by_library
def test_an_array_on_another_gpu_in_the_order_of_a_stream_of_the_stores(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.gpu(0):
        stream = lib.stream()
    with lib.gpu(1):
        for version in range(3):
            x = lib.full(COUNT, version)
            lib.synchronize()
            with lib.gpu(0), lib.on(stream):
                lib.spin()
            store.checkpoint(version, x, stream=stream)
            del x
            again = [lib.full(COUNT, 77) for _ in range(4)]  # perhaps the very same memory
            del again
        for version in range(3):
            out = lib.full(COUNT, 5)
            lib.synchronize()
            store.restore(version, out=out, stream=stream)
            with lib.gpu(0):
                lib.synchronize()
            assert lib.same(out, version)
        x = lib.full(COUNT, 3)
        store.checkpoint(3, x)
        lib.spin()
        del x  # what computes there may still use the memory that the new one gets
        made = store.restore(3, stream=stream)
        with lib.gpu(0):
            lib.synchronize()
        assert lib.is_one(made) and lib.same(made, 3)


@by_library
def test_a_stream_of_another_gpu_is_refused_by_name(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.gpu(1):
        others = lib.stream()
    with lib.gpu(0):
        x = lib.full(COUNT, 5)
        lib.synchronize()
        with pytest.raises(ebbtide.InvalidArgument, match="another GPU"):
            store.checkpoint(0, x, stream=others)
        assert store.versions() == []
        store.checkpoint(0, x)
        with pytest.raises(ebbtide.InvalidArgument, match="another GPU"):
            store.restore(0, out=x, stream=others)
        assert store.versions() == [0]
        store.restore(0, out=x)
        assert lib.same(x, 5)


@by_library
def test_a_stream_of_another_gpu_ends_neither_reservation_nor_loan(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.gpu(1):
        others = lib.stream()
    with lib.gpu(0):
        reservation = store.reserve(0, COUNT, "float32")
        x = lib.over(reservation.array)
        lib.fill(x, 5)
        with pytest.raises(ebbtide.InvalidArgument, match="another GPU"):
            reservation.commit(stream=others)
        lib.fill(lib.over(reservation.array), 6)
        reservation.commit()
        loan = store.borrow(0)
        with pytest.raises(ebbtide.InvalidArgument, match="another GPU"):
            loan.release(stream=others)
        assert store.versions() == [0]
        assert lib.same(lib.over(loan.arrays), 6)
        loan.release(keep=True)
        del x
        out = lib.full(COUNT, 0)
        store.restore(0, out=out)
        assert lib.same(out, 6)


@by_library
def test_a_store_on_each_gpu_used_from_a_thread_each(store: ebbtide.Store, disk: Path, make: Any) -> None:
    lib = make()
    wrong: list[str] = []

    def work(number: int, one: ebbtide.Store) -> None:
        try:
            with lib.gpu(number), lib.on(lib.stream()):
                x = lib.full(COUNT, 0)
                for version in range(20):
                    lib.fill(x, 100 * number + version)
                    one.checkpoint(version, x, timeout=30)
                    lib.fill(x, -1)
                for version in reversed(range(20)):
                    one.restore(version, out=x)
                    if not lib.same(x, 100 * number + version):
                        wrong.append(f"{number}: {version}")
        except Exception as error:
            wrong.append(f"{number}: {error!r}")

    with open_gpu(disk, device="cuda:1", device_cache="16MiB", host_cache="32MiB", disk="256MiB") as second:
        threads = [threading.Thread(target=work, args=pair) for pair in ((0, store), (1, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
