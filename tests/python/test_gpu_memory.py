"""The memory of a store on a GPU in other hands: reserved, borrowed, and longer than either."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_support import Cupy, Torch, by_library, needs_gpu, open_gpu

import ebbtide

pytestmark = needs_gpu
MIB = 1 << 20


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with open_gpu(disk, device_cache="16MiB", host_cache="32MiB", disk="256MiB") as store:
        yield store


def push_out(store: ebbtide.Store, lib: Any) -> None:
    """Writes far more than the device cache holds: every byte of it that may be used again is."""
    history = store.history("others")
    x = lib.full(MIB, 0)  # 4 MiB
    for version in range(12):
        lib.fill(x, -version)
        history.checkpoint(version, x, timeout=30)
    history.drop()


@by_library
def test_computed_in_place(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with store.reserve(0, (4, MIB // 4), "float32") as lent:
        assert lent.shape == (4, MIB // 4) and lent.dtype == "float32" and lent.__dlpack_device__()[0] == 2
        x = lib.over(lent)
        assert lib.is_one(x) and tuple(x.shape) == (4, MIB // 4)
        lib.fill(x, 3)
    del x
    with store.borrow(0, keep=True) as lent:
        y = lib.over(lent)
        assert lib.same(y, 3)
    del y
    assert lib.same(lib.over(store.borrow(0, keep=True).arrays), 3)
    assert store.versions() == [0], "not consumed, though it was never released"


@by_library
def test_a_tensor_of_the_library_asked_for(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with lib.on(lib.stream()):
        with store.reserve(0, MIB, "float32", like=lib.name) as x:
            assert lib.is_one(x)
            lib.spin()
            lib.fill(x, 4)
        x = None
        back = store.restore(0)
        assert lib.is_one(back) and lib.same(back, 4)


@by_library
@pytest.mark.parametrize("given", ["found", "reserve", "commit"])
def test_a_commit_is_in_stream_order(store: ebbtide.Store, make: Any, given: str) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        at_first = stream if given == "reserve" else None
        reservation = store.reserve(0, MIB, "float32", stream=at_first, like=lib.name)
        x = reservation.array
        lib.spin()
        lib.fill(x, 5)
        reservation.commit(stream=stream if given == "commit" else None)
        assert lib.busy(stream)
        del x
        out = lib.full(MIB, 0)
        store.restore(0, out=out)
        assert lib.same(out, 5)


@by_library
def test_a_release_is_in_stream_order(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        store.checkpoint(0, lib.full(MIB, 6))
        store.wait("device")
        loan = store.borrow(0)
        x = lib.over(loan.arrays)
        lib.spin()
        copy = x * 1
        loan.release(stream=stream)
        assert lib.busy(stream)
        del x
        push_out(store, lib)
        assert lib.same(copy, 6)
    assert store.versions() == []


@by_library
def test_what_is_still_looked_at_is_not_used_again(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with store.reserve(0, MIB, "float32") as lent:
        x = lib.over(lent)
        lib.fill(x, 7)
    with store.borrow(0, keep=True) as other:
        y = lib.over(other)
    push_out(store, lib)
    assert lib.same(x, 7) and lib.same(y, 7)
    store.restore(0)
    push_out(store, lib)
    assert lib.same(x, 7) and lib.same(y, 7)
    del lent, other
    del x, y
    with store.reserve(1, 12 * MIB, "uint8", timeout=30):  # there is room again
        pass


@by_library
def test_views_outlive_the_store(disk: Path, make: Any) -> None:
    lib = make()
    store = open_gpu(disk, device_cache="16MiB", host_cache="16MiB", disk=0)
    with store.reserve(0, MIB, "float32") as lent:
        x = lib.over(lent)
        lib.fill(x, 8)
    loan = store.borrow(0)
    y = lib.over(loan.arrays)
    kept = store.reserve(1, MIB, "float32")
    z = lib.over(kept.array)
    lib.fill(z, 9)
    store.close()
    del store, loan, kept, lent
    with open_gpu(disk, device_cache="16MiB", host_cache="48MiB", disk=0) as second:
        push_out(second, lib)
    assert lib.same(x, 8) and lib.same(y, 8) and lib.same(z, 9)
    del x, y, z


@by_library
def test_an_exception_abandons(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    for _ in range(20):  # more than the device cache holds, were it not given back
        with pytest.raises(ZeroDivisionError), lib.on(lib.stream()):
            with store.reserve(0, MIB, "float32") as lent:
                x = lib.over(lent)
                lib.fill(x, 1)
                raise ZeroDivisionError
        del x, lent
        assert store.versions() == []
    store.checkpoint(0, lib.full(MIB, 2))
    push_out(store, lib)
    assert lib.same(store.restore(0), 2)


@by_library
def test_an_exception_in_a_loan_keeps_the_version(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    store.checkpoint(0, lib.full(MIB, 2))
    with pytest.raises(ZeroDivisionError), store.borrow(0) as lent:
        x = lib.over(lent)
        raise ZeroDivisionError
    del x
    assert lib.same(store.restore(0), 2)


@by_library
def test_several_arrays_are_borrowed(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    store.checkpoint(0, {"a": lib.full((3, 5), 1), "b": lib.full(7, 2, "int64"), "c": lib.full(0, 0)})
    with store.borrow(0) as lent:
        a, b = lib.over(lent["a"]), lib.over(lent["b"])
        assert tuple(a.shape) == (3, 5) and lib.same(a, 1) and lib.same(b, 2)
        assert lent["c"].nbytes == 0
        assert lent["a"].__cuda_array_interface__["data"][1], "read-only"


@by_library
def test_it_may_be_given_to_the_store_itself(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    store.checkpoint(0, lib.full(100, 3))
    with store.borrow(0) as lent:
        store.checkpoint(1, lent)
        with pytest.raises(ebbtide.InvalidArgument, match="read-only"):
            store.restore(1, out=lent)
    out = lib.full(100, 0)
    store.restore(1, out=out)
    assert lib.same(out, 3)


@by_library
@pytest.mark.parametrize("default", [False, True], ids=["own", "default"])
def test_a_stream_on_which_the_store_itself_takes_it_counts(store: ebbtide.Store, make: Any, default: bool) -> None:
    lib = make()
    stream = lib.current() if default else lib.stream()
    side = lib.stream() if default else lib.current()
    store.checkpoint(0, lib.full(MIB, 6))
    store.wait("device")
    lib.synchronize()
    with lib.on(stream):
        lib.spin()
    with store.reserve(1, MIB, "float32") as lent:
        store.restore(0, out=lent, stream=stream)
    assert lib.busy(stream)
    with lib.on(side):
        assert lib.same(store.restore(1, out=lib.full(MIB, 0), keep=True), 6)
    with lib.on(stream):
        lib.spin()
    with store.borrow(1) as lent:
        store.checkpoint(2, lent, stream=stream)
    assert lib.busy(stream)
    with lib.on(side):
        push_out(store, lib)
        assert lib.same(store.restore(2, out=lib.full(MIB, 0)), 6)


@by_library
def test_memory_that_was_used_on_several_streams_needs_to_be_told_which(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    one, other = lib.stream(), lib.stream()
    store.checkpoint(0, lib.full(MIB, 6))
    store.wait("device")
    lib.synchronize()
    reservation = store.reserve(1, MIB, "float32")
    store.restore(0, out=reservation.array, keep=True, stream=one)
    store.restore(0, out=reservation.array, stream=other)
    for refused in (reservation.commit, lambda: store.checkpoint(2, reservation.array)):
        with pytest.raises(ebbtide.InvalidArgument, match="several streams.*stream="):
            refused()
    lib.synchronize()
    reservation.commit(stream=other)
    assert lib.same(store.restore(1, out=lib.full(MIB, 0)), 6)


@by_library
def test_a_store_that_is_dropped_is_closed_whatever_was_under_way_on_its_memory(disk: Path, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    store = open_gpu(disk / "kept", durability="process")
    with lib.on(stream), store.reserve(0, MIB, "float32", like=lib.name) as x:
        lib.fill(x, 3)
    del x
    with lib.on(stream):
        lib.spin()
    with store.borrow(0) as lent:
        store.checkpoint(1, lent, stream=stream)
    del lent, store
    with open_gpu(disk / "kept", durability="process") as store:
        assert lib.same(store.restore(1), 3)


@by_library
def test_nothing_is_made_of_what_was_given_back(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    with store.reserve(0, 10, "float32") as lent:
        pass
    with store.borrow(0) as other:
        pass
    for gone in (lent, other):
        with pytest.raises(ebbtide.Closed):
            lib.over(gone)


def test_memory_taken_on_several_streams_needs_to_be_told_which(store: ebbtide.Store) -> None:
    lib = Torch()
    one, other = lib.stream(), lib.stream()
    reservation = store.reserve(0, 100, "float32")
    with lib.on(one):
        x = lib.over(reservation.array)
    with lib.on(other):
        y = lib.over(reservation.array)
        y.fill_(2)
    with pytest.raises(ebbtide.InvalidArgument, match="several streams"):
        reservation.commit()
    reservation.commit(stream=other)
    del x, y
    assert lib.same(store.restore(0, out=lib.full(100, 0)), 2)


def over_by_interface(lib: Any, lent: Any) -> Any:
    x = lib.torch.as_tensor(lent, device="cuda")
    assert x.is_cuda and x.data_ptr() == lent.__cuda_array_interface__["data"][0]
    return x


def over_by_capsule(lib: Torch, lent: Any) -> Any:
    """Asked for without a stream."""
    return lib.torch.utils.dlpack.from_dlpack(lent.__dlpack__(stream=-1))


@pytest.mark.parametrize("over", [over_by_interface, over_by_capsule])
def test_torch_reads_on_its_current_stream_what_names_none(
    store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch, over: Any
) -> None:
    lib = Torch()
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    side = lib.stream()
    with lib.on(side):
        reservation = store.reserve(0, MIB, "float32")
        x = over(lib, reservation.array)
        lib.fill(x, 1)
        lib.spin()
        lib.fill(x, 5)
        reservation.commit()
        assert lib.busy(side)
        del x
        assert lib.same(store.restore(0, out=lib.full(MIB, 0)), 5)


def test_the_interface_is_read_on_one_of_several_streams(store: ebbtide.Store) -> None:
    lib = Torch()
    Cupy()  # whose current stream is another
    side = lib.stream()
    with lib.on(side):
        reservation = store.reserve(0, MIB, "float32")
        x = over_by_interface(lib, reservation.array)
        lib.spin()
        lib.fill(x, 5)
        with pytest.raises(ebbtide.InvalidArgument, match="several streams.*stream="):
            reservation.commit()
        store.checkpoint(1, reservation.array, stream=side)
        reservation.commit(stream=side)
        del x
        for version in range(2):
            assert lib.same(store.restore(version, out=lib.full(MIB, 0)), 5)


def test_a_capture_ends_neither_reservation_nor_loan(store: ebbtide.Store) -> None:
    lib = Torch()
    torch = lib.torch
    store.checkpoint(1, lib.full(MIB, 2))
    reservation, loan = store.reserve(0, MIB, "float32", like="torch"), store.borrow(1)
    x, y, seen = reservation.array, lib.full(MIB, 0), lib.over(loan.arrays)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.fill_(3)
        captured = torch.cuda.current_stream()
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            reservation.commit(stream=captured)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            loan.release(stream=captured)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.reserve(2, MIB, stream=captured)
        with pytest.raises(ebbtide.Unsupported, match="captured"):
            store.borrow(1, stream=captured)
        y.copy_(seen)
    graph.replay()
    reservation.commit()
    loan.release()
    assert lib.same(y, 2)
    del x, seen
    assert lib.same(store.restore(0, out=lib.full(MIB, 0)), 3)
    assert store.versions() == []


def test_bfloat16_is_reserved(store: ebbtide.Store) -> None:
    lib = Torch()
    with store.reserve(0, 100, lib.torch.bfloat16, like="torch") as x:
        assert x.dtype == lib.torch.bfloat16
        x.fill_(1)
    back = store.restore(0)
    assert back.dtype == lib.torch.bfloat16 and lib.same(back.float(), 1)


def test_capsules_of_both_kinds(store: ebbtide.Store) -> None:
    with store.reserve(0, 10, "float32") as lent:
        assert '"dltensor"' in repr(lent.__dlpack__(stream=1))
        assert '"dltensor_versioned"' in repr(lent.__dlpack__(stream=1, max_version=(1, 0)))
        with pytest.raises(BufferError):
            lent.__dlpack__(copy=True)
        with pytest.raises(BufferError):
            lent.__dlpack__(dl_device=(1, 0))
    assert store.versions() == [0]


@by_library
def test_a_checked_commit_finds_out_who_writes_to_it_later(disk: Path, make: Any) -> None:
    lib = make()
    store = open_gpu(disk, host_cache=0, disk=0)  # there is no copy below to read instead
    for stream in (None, lib.stream()):
        reservation = store.reserve(0, MIB + 3, "float32")
        with lib.on(stream or lib.current()):
            x = lib.over(reservation.array)
            lib.fill(x, 7)
            reservation.commit(check=True, stream=stream)
            lib.fill(x[MIB:], 8)
            lib.synchronize()
        out = lib.full(MIB + 3, 0)
        with pytest.raises(ebbtide.Damaged, match="version 0 .*written to after it had been committed"):
            store.restore(0, out=out)
        assert lib.same(out, 0)
        del x
        store.checkpoint(0, lib.full(MIB, 1))
        assert lib.same(store.restore(0), 1)
    store.close()


@by_library
def test_what_was_written_to_after_a_checked_commit_is_never_durable(disk: Path, make: Any) -> None:
    lib = make()
    with open_gpu(disk / "kept", durability="storage") as store:
        with store.reserve(0, MIB, "float32") as lent:
            x = lib.over(lent)
            lib.fill(x, 3)
        stream = lib.stream()
        with lib.on(stream):
            reservation = store.reserve(1, MIB, "float32")
            y = lib.over(reservation.array)
            lib.fill(y, 4)
            lib.spin()  # so that the flush cannot be first
            reservation.commit(check=True, stream=stream)
            lib.fill(y, 5)
        found = []
        for version in (None, 1):
            try:
                store.wait("storage") if version is None else store.wait("storage", version)
            except ebbtide.Damaged as error:
                assert "version 1" in str(error)
                found.append(version)
        assert found in ([None, 1], [])
        lib.synchronize()
        del x, y
        if found:
            with pytest.raises(ebbtide.Damaged, match="version 1"):
                store.close()
    with open_gpu(disk / "kept", durability="storage") as store:
        assert store.versions() == ([0] if found else [0, 1])
        assert lib.same(store.restore(0), 3)
        assert found or lib.same(store.restore(1), 4)


@by_library
def test_a_checked_commit_of_what_nobody_writes_to_is_as_any(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    for version in range(12):  # three times what the device cache holds
        reservation = store.reserve(version, MIB, "float32", timeout=30)
        x = lib.over(reservation.array)
        lib.fill(x, version)
        reservation.commit(check=True)
        del x, reservation
    with store.borrow(11, keep=True) as lent:
        assert lib.same(lib.over(lent), 11)
    del lent
    for version in reversed(range(12)):
        assert lib.same(store.restore(version, out=lib.full(MIB, -1)), version)
