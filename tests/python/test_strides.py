"""Arrays in any order: each element is stored once, dense strides come back as they were, and `out` may be strided."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from commands_support import OK, run
from dlpack_support import Exporter
from hypothesis import strategies as st

import ebbtide

DTYPES = ["<f8", ">f4", "|u1", "<c16", "M8[s]", "S3", np.dtype([("a", "i1"), ("b", ">f8")]), "V5"]


@st.composite
def views(draw: st.DrawFn, dtypes: list[Any] = DTYPES, backwards: bool = True) -> np.ndarray:
    """A view of an array, whose elements all differ if the type has room for that: permuted, sliced, turned, repeated."""
    kind = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    room = np.arange(math.prod(shape) * kind.itemsize, dtype="<u8").astype("u1")
    array = room.view(kind).reshape(shape)
    steps = st.sampled_from([1, 1, 2, -1, -2] if backwards else [1, 1, 2])
    array = array[(..., *(slice(None, None, draw(steps)) for _ in shape))]
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        at = draw(st.integers(0, array.ndim))
        wide = np.expand_dims(array, at)
        array = np.broadcast_to(wide, wide.shape[:at] + (draw(st.integers(1, 4)),) + wide.shape[at + 1 :])
    return array


def once(array: np.ndarray) -> np.ndarray:
    """Without what axes of stride 0 repeat."""
    return array[(..., *(slice(0, 1) if step == 0 else slice(None) for step in array.strides))]


def is_run(array: np.ndarray) -> bool:
    """Whether its elements, each once, are all of the memory from the lowest to the highest."""
    low, high = np.lib.array_utils.byte_bounds(array) if hasattr(np.lib, "array_utils") else np.byte_bounds(array)
    return array.size == 0 or bool(high - low == once(array).nbytes)


def order(array: np.ndarray) -> tuple[int, ...]:
    """Its strides, where they matter."""
    return tuple(step for step, length in zip(array.strides, array.shape) if length > 1 and array.size)


def targets(like: np.ndarray) -> dict[str, np.ndarray]:
    twice = np.zeros(tuple(2 * length for length in like.shape), like.dtype)
    return {
        "C order": np.zeros(like.shape, like.dtype),
        "Fortran order": np.zeros(like.shape, like.dtype, order="F"),
        "the same order": np.zeros_like(once(like))
        if once(like).shape == like.shape
        else np.zeros(like.shape, like.dtype),
        "with gaps": twice[(..., *(slice(None, None, 2) for _ in like.shape))],
        "backwards": np.zeros(like.shape, like.dtype)[(..., *(slice(None, None, -1) for _ in like.shape))],
    }


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def equal(a: Any, b: Any) -> bool:
    """Of tensors with NaN among their numbers."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with ebbtide.open(device_cache="1MiB", host_cache="1MiB", disk=0) as store:
        yield store


@hypothesis.given(given=views())
@hypothesis.settings(deadline=None, max_examples=150)
def test_any_view_comes_back(shared: ebbtide.Store, given: np.ndarray) -> None:
    shared.checkpoint(0, {"x": given, "y": np.ones(3), "t": np.float64(2)})
    try:
        assert shared.info(0)["bytes"] <= -(-once(given).nbytes // 256) * 256 + 256 + 8
        back = shared.restore(0, keep=True)["x"]
        assert same(back, given) and is_run(back)
        if is_run(given):
            assert order(back) == order(given)
        with shared.borrow(0, keep=True) as lent:
            assert same(lent["x"], given) and order(lent["x"]) == order(back)
            del lent
        for how, out in targets(given).items():
            t = np.zeros(())
            assert shared.restore(0, out={"x": out, "y": np.zeros(3), "t": t}, keep=True)["x"] is out
            assert same(out, given) and t == 2, how
        for how, out in targets(given).items():
            shared.restore_async(0, out={"y": np.zeros(3), "t": np.zeros(()), "x": out}, keep=True).wait()
            assert same(out, given), how
    finally:
        shared.drop(0)


@hypothesis.given(given=views(["<f8", "<c16", "|u1"]))
@hypothesis.settings(deadline=None, max_examples=50)
def test_so_does_one_of_a_library_that_speaks_dlpack(shared: ebbtide.Store, given: np.ndarray) -> None:
    shared.checkpoint(0, Exporter(given))
    try:
        assert same(shared.restore(0, keep=True), given)
        for how, out in targets(given).items():
            shared.restore(0, out=Exporter(out), keep=True)
            assert same(out, given), how
    finally:
        shared.drop(0)


@hypothesis.given(
    given=views(["<f4", "<c8", "<i8"], backwards=False), lazy=st.sampled_from(["", "conj", "neg", "imag"])
)
@hypothesis.settings(deadline=None, max_examples=80)
def test_so_does_any_tensor(shared: ebbtide.Store, given: np.ndarray, lazy: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(once(given).copy("K")).expand(given.shape)
    if lazy == "conj":
        tensor = tensor.conj()
    elif lazy == "neg":
        tensor = torch._neg_view(tensor)
    elif lazy == "imag" and tensor.is_complex():
        tensor = tensor.conj().imag
    plain = tensor.resolve_conj().resolve_neg()
    shared.checkpoint(0, [tensor, torch.zeros(2)])
    try:
        back = shared.restore(0, keep=True)[0]
        assert equal(back, plain) and back.dtype == tensor.dtype
        if not lazy:
            assert not back.numel() or [step for step, n in zip(back.stride(), back.shape) if n > 1] == [
                step for step, n in zip(tensor.stride(), tensor.shape) if n > 1
            ]
        wide = torch.zeros([2 * n for n in tensor.shape], dtype=tensor.dtype)
        outs = [
            torch.zeros_like(plain),
            wide[(*(slice(None, None, 2) for _ in tensor.shape),)],
        ]
        outs.append(torch._neg_view(torch.zeros(tensor.shape, dtype=tensor.dtype)))
        if tensor.is_complex():
            outs.append(torch.zeros(tensor.shape, dtype=tensor.dtype).conj())
        for out in outs:
            out = out.contiguous() if 0 in [s for s, n in zip(out.stride(), out.shape) if n > 1] else out
            shared.restore(0, out=[out, torch.zeros(2)], keep=True)
            assert equal(out, plain)
    finally:
        shared.drop(0)


def test_tensors_keep_what_torch_calls_their_format(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    image = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    store.checkpoint(0, {"image": image, "weight": torch.nn.Parameter(torch.ones(100, 200).t())})
    back = store.restore(0, keep=True)
    assert torch.equal(back["image"], image) and back["image"].is_contiguous(memory_format=torch.channels_last)
    assert back["weight"].stride() == (1, 200)
    into = {"image": torch.zeros_like(image), "weight": torch.nn.Parameter(torch.zeros(200, 100))}
    store.restore(0, out=into)
    assert torch.equal(into["image"], image) and bool((into["weight"] == 1).all())


def test_an_out_that_overlaps_itself_is_refused_by_name(store: ebbtide.Store) -> None:
    store.checkpoint(0, np.ones((4, 3)))
    room = np.zeros(20)
    overlapping = [
        np.lib.stride_tricks.as_strided(room, (4, 3), (8, 8)),
        np.lib.stride_tricks.as_strided(room, (4, 3), (0, 8)),
    ]
    for call in (store.restore, store.restore_async):
        for out in overlapping:
            with pytest.raises(ebbtide.InvalidArgument, match=r"^out overlaps itself.*a copy of it"):
                call(0, out=out)
    assert not room.any() and store.versions() == [0]


def test_a_version_is_consumed_once_its_bytes_are_in_out(store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    given = np.arange(12.0).reshape(4, 3)
    room = np.zeros((4, 6))

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    store.checkpoint(0, given)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ebbtide._arrays, "copy", stopped)
        store.restore(0, out=room[:, ::2])
    store.hint([0, 0, 0])
    for _ in range(3):
        room[:] = 0
        store.restore(0, out=room[:, ::2])
        assert (room[:, ::2] == given).all() and not room[:, 1::2].any()
    with pytest.raises(ebbtide.Consumed):
        store.restore(0, out=room[:, ::2])
    store.checkpoint(0, given)


def test_so_is_a_snapshot(store: ebbtide.Store) -> None:
    field = np.arange(6000.0).reshape(100, 60)
    store.protect([field])
    store.snapshot(0).wait("host")
    store.snapshot(1).wait("host")
    room = np.zeros((100, 120))
    for version in (1, 0):
        store.restore(version, out=[room[:, ::2]])
        assert (room[:, ::2] == field).all()
        with pytest.raises(ebbtide.Consumed):
            store.restore(version, out=[room[:, ::2]])
    store.unprotect()


def test_a_tensor_that_refuses_to_be_written_to_consumes_nothing(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        room = torch.zeros(4, 6)
    store.checkpoint(0, torch.ones(4, 3))
    with pytest.raises(RuntimeError):
        store.restore(0, out=room[:, ::2])
    assert bool((store.restore(0) == 1).all())


@hypothesis.given(given=views(["<f8", "<c8", "<i2", "<u2", "|u1"]))
@hypothesis.settings(deadline=None, max_examples=80)
def test_what_lay_backwards_can_be_read_into_tensors(shared: ebbtide.Store, given: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(given.copy("C"))
    shared.checkpoint(0, given)
    try:
        wide = torch.zeros([2 * n for n in given.shape], dtype=plain.dtype)
        for out in (torch.zeros_like(plain), wide[(..., *(slice(None, None, 2) for _ in given.shape))]):
            shared.restore(0, out=out, keep=True)
            assert equal(out, plain)
            out.zero_()
            shared.restore_async(0, out=out, keep=True).wait()
            assert equal(out, plain)
    finally:
        shared.drop(0)


def test_tensors_of_a_type_without_arithmetic_may_have_gaps(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    numbers = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
    kinds = [getattr(torch, name) for name in ("uint4", "bits8", "float8_e5m2", "bool") if hasattr(torch, name)]
    for version, kind in enumerate(kinds):
        given, room = numbers.view(kind), torch.zeros(4, 6, dtype=torch.uint8)
        store.checkpoint(version, given[:, ::2])
        store.restore(version, out=room.view(kind)[:, ::2], keep=True)
        assert torch.equal(room[:, ::2], numbers[:, ::2]) and not room[:, 1::2].any()
        assert torch.equal(store.restore(version).view(torch.uint8), numbers[:, ::2])


def test_outs_may_lie_between_one_another_but_share_no_element(store: ebbtide.Store) -> None:
    store.checkpoint(0, [np.full(5, 1.0), np.full(5, 2.0), np.full(3, 3.0)])
    room = np.zeros(18)
    out = [room[0:10:2], room[1:11:2], room[12:18:2]]
    store.restore(0, out=out, keep=True)
    assert (room[:10].reshape(5, 2) == [1, 2]).all() and (room[12:18:2] == 3).all() and room.sum() == 24
    for wrong in ([room[0:10:2], room[2:12:2], room[12:15]], [room[0:10:2], room[5:10], room[12:15]]):
        with pytest.raises(ebbtide.InvalidArgument, match=r"out\[0\] and out\[1\] share memory"):
            store.restore(0, out=wrong)


def test_protected_arrays_may_be_in_any_order_without_gaps(store: ebbtide.Store) -> None:
    field = np.asfortranarray(np.arange(60_000.0).reshape(200, 300))
    with pytest.raises(ebbtide.InvalidArgument, match=r"arrays\[1\] has gaps"):
        store.protect([field, np.zeros((4, 4))[:, ::2]])
    store.protect([field])
    store.snapshot(0).wait("host")
    was = field.copy()
    field[3, :] = -1
    store.touch(field[3, :])
    store.snapshot(1).wait("host")
    back = store.restore(1, keep=True)[0]
    assert (back == field).all() and back.flags.f_contiguous
    for out in (np.zeros_like(field), np.zeros((200, 300))):
        store.restore(0, out=[out], keep=True)
        assert (out == was).all()
        store.restore(1, out=[out], have=0, keep=True)
        assert (out == field).all()
    store.unprotect()


def test_archives_have_arrays_of_any_order(disk: Path) -> None:
    cube = np.arange(24, dtype=">i4").reshape(2, 3, 4)
    given = {
        "fortran": np.asfortranarray(cube),
        "other": cube.transpose(1, 0, 2),
        "backwards": cube[:, ::-1],
        "repeated": np.broadcast_to(cube[:, :1], (2, 5, 4)),
        "structured": np.zeros((3, 2), DTYPES[6]).T,
    }
    with ebbtide.open(disk / "kept", durability="process", disk="8MiB") as store:
        store.checkpoint(0, given)
    assert run("export", disk / "kept", "--to", disk / "out", "--format", "npz").code == OK
    with np.load(disk / "out/history/version-0.npz") as archive:
        for name, array in given.items():
            assert same(archive[name], array), name
        assert archive["fortran"].flags.f_contiguous


def test_strides_are_stored_as_the_page_says(disk: Path) -> None:
    writer = pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
    kept = writer.Writer(disk / "kept")
    bytes_ = np.arange(6, dtype="<f4").tobytes()
    wrong = [(2, 2), (-(1 << 63), 1), (1 << 62, 1), (3,), (3, 1, 1), (6, 1)]
    leaves = [("<f4", (2, 3))]
    right: dict[int, Any] = {0: (1, 2), 1: (-3, 1), 2: (3, -1), 3: (3, 1)}
    for version, strides in right.items():
        kept.add(b"", version, bytes_, metadata=writer.layout(0, [], leaves, strides=[strides]))
    for version, strides in enumerate(wrong, 10):
        kept.add(b"", version, bytes_, metadata=writer.layout(0, [], leaves, strides=[strides]))
    numbers = np.arange(6, dtype="<f4")
    with ebbtide.open(kept.write(), readonly=True, device_cache="1MiB", host_cache="1MiB") as store:
        assert (store.restore(0, keep=True) == numbers.reshape(3, 2).T).all()
        assert (store.restore(1, keep=True) == numbers.reshape(2, 3)[::-1]).all()
        assert (store.restore(2, keep=True) == numbers.reshape(2, 3)[:, ::-1]).all()
        assert (store.restore(3, keep=True) == numbers.reshape(2, 3)).all()
        for version in range(10, 10 + len(wrong)):  # as bytes that no Python program described
            assert store.restore(version, keep=True).tobytes() == bytes_
    with ebbtide.open(disk / "new", durability="process", disk="8MiB") as store:
        store.checkpoint(0, numbers.reshape(3, 2).T)
        store.checkpoint(1, numbers.reshape(2, 3)[::-1])
        store.checkpoint(2, numbers.reshape(2, 3))
    seen = ebbtide._core.Inspection.of(disk / "new")
    found = [ebbtide._core.RecordReader(seen, i).describe()["metadata"] for i in range(3)]
    assert found[:2] == [writer.layout(0, [], leaves, strides=[right[version]]) for version in (0, 1)]
    assert found[2] == writer.layout(0, [], leaves)


@pytest.mark.parametrize(
    "caches",
    [
        {"device_cache": "8MiB", "host_cache": "8MiB"},
        {"device_cache": "3MiB", "host_cache": "4MiB"},
        {"device_cache": "1MiB", "host_cache": "8MiB"},
        {"device_cache": 0, "host_cache": "8MiB"},
        {"device_cache": "1MiB", "host_cache": 0},
    ],
    ids=str,
)
def test_packed_arrays_are_checkpoints_as_any_whatever_room_there_is(disk: Path, caches: dict[str, Any]) -> None:
    whole = np.zeros((1024, 512))
    with ebbtide.open(disk / "kept", durability="process", disk="64MiB", **caches) as store:
        futures = []
        for version in range(8):
            whole[:] = version
            futures.append(
                store.checkpoint(version, {"x": whole[:, ::2], "y": whole[::2].T, "z": whole[0]}, timeout=30)
            )
            whole[:] = -1
        with pytest.raises(ebbtide.VersionExists):
            store.checkpoint(3, whole[:, ::2])
        for future in futures:
            assert future.done() and future.result() is None
            future.wait("process", timeout=60)
            assert future.done("process") and future.error is None
        assert store.versions() == list(range(8))
    with ebbtide.open(disk / "kept", durability="process", disk="64MiB", **caches) as store:
        for version in (3, 7, 0):
            back = store.restore(version, keep=True)
            assert all((array == version).all() for array in back.values()), version
            assert back["y"].flags.f_contiguous
