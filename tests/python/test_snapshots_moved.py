"""Protected arrays whose memory moves: the next snapshot is refused by name, and no version has other bytes."""

from __future__ import annotations

import array
import ctypes
import importlib
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_snapshots import TRACKS, can_track

import ebbtide
from ebbtide import _core

SIDE = 150  # of a square of float64: 180,000 bytes
COUNT = SIDE * SIDE
FLAT = np.arange(COUNT, dtype="f8")
HERE = _core.cuda_devices()


class Case(NamedTuple):
    name: str
    moves: bool
    make: Callable[[Any], Any]  # the object that is protected, with the values of FLAT
    change: Callable[[Any, Any], object]  # may replace its memory
    needs: str = "numpy"


class Exports:
    """A library that is not known, with an array that it may replace."""

    def __init__(self) -> None:
        self.array = FLAT.copy()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def make_numpy(numpy: Any) -> Any:
    return FLAT.copy()


def make_torch(torch: Any) -> Any:
    return torch.from_numpy(FLAT.reshape(SIDE, SIDE).copy()).clone()


def make_layer(torch: Any) -> Any:
    layer = torch.nn.Linear(SIDE, SIDE, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(make_torch(torch))
    layer.weight.layer = layer
    return layer.weight


def make_from_jax(jax: Any) -> Any:
    jax.config.update("jax_enable_x64", True)
    torch = importlib.import_module("torch")
    theirs = jax.numpy.asarray(FLAT.copy())
    tensor = torch.from_dlpack(theirs)
    tensor.theirs = theirs
    return tensor


def donate(jax: Any, tensor: Any) -> None:
    jax.jit(lambda x: x + 1, donate_argnums=0)(tensor.theirs).block_until_ready()


def refused(kind: type[Exception], call: Callable[..., object], *given: Any, **named: Any) -> None:
    """The library itself keeps the memory while it is protected."""
    with pytest.raises(kind):
        call(*given, **named)


def other(torch: Any) -> Any:
    return torch.full((SIDE, SIDE), 3.0, dtype=torch.float64)


def to_and_back(torch: Any, weight: Any) -> None:
    weight.layer.to(torch.float32).to(torch.float64)


def channels_last(torch: Any, tensor: Any) -> None:
    tensor.data = tensor.reshape(1, SIDE, SIDE, 1).permute(0, 2, 1, 3)


def swap(torch: Any, tensor: Any) -> None:
    torch.utils.swap_tensors(tensor, other(torch))


def exchange(numpy: Any, exports: Exports) -> None:
    exports.array = FLAT + 1


def vector(numpy: Any) -> Any:
    return (ctypes.c_double * COUNT)(*FLAT)


def grow(numpy: Any, made: Any) -> None:
    """Until it is elsewhere: there may be room behind it."""
    place, size = ctypes.addressof(made), FLAT.nbytes
    while ctypes.addressof(made) == place:
        size *= 2
        ctypes.resize(made, size)


def mapped(numpy: Any) -> Any:
    made = mmap.mmap(-1, FLAT.nbytes)
    made[:] = FLAT.tobytes()
    return made


CASES = [
    Case("numpy-resize", True, make_numpy, lambda np, x: x.resize(50 * COUNT, refcheck=False)),
    Case("numpy-resize-smaller", True, make_numpy, lambda np, x: x.resize(10, refcheck=False)),
    Case("numpy-resize-checked", False, make_numpy, lambda np, x: refused(ValueError, x.resize, 50 * COUNT)),
    Case("numpy-view", False, make_numpy, lambda np, x: x.reshape(SIDE, SIDE).fill(4)),
    Case("bytearray", False, lambda np: bytearray(FLAT), lambda np, x: refused(BufferError, x.extend, bytes(10))),
    Case("array", False, lambda np: array.array("d", FLAT), lambda np, x: refused(BufferError, x.append, 1.0)),
    Case("ctypes-resize", True, vector, grow),
    Case("mmap-resize", False, mapped, lambda np, x: refused(BufferError, x.resize, 50 * FLAT.nbytes)),
    Case("mmap-close", False, mapped, lambda np, x: refused(BufferError, x.close)),
    Case("dlpack", True, lambda np: Exports(), exchange),
    Case("torch-resize_", True, make_torch, lambda torch, x: x.resize_(50 * COUNT), "torch"),
    Case("torch-resize_-smaller", True, make_torch, lambda torch, x: x.resize_(10), "torch"),
    Case(
        "torch-resize_-and-back", False, make_torch, lambda torch, x: x.resize_(10).resize_(SIDE, SIDE).fill_(4), "torch"
    ),
    Case("torch-storage-resize_", True, make_torch, lambda torch, x: x.untyped_storage().resize_(0), "torch"),
    Case("torch-set_", True, make_torch, lambda torch, x: x.set_(other(torch)), "torch"),
    Case("torch-data", True, make_torch, lambda torch, x: setattr(x, "data", other(torch)), "torch"),
    Case("torch-share_memory_", True, make_torch, lambda torch, x: x.share_memory_(), "torch"),
    Case("torch-swap_tensors", True, make_torch, swap, "torch"),
    Case("torch-t_", True, make_torch, lambda torch, x: x.t_(), "torch"),
    Case("torch-channels_last", True, make_torch, channels_last, "torch"),
    Case("torch-module.to", True, make_layer, to_and_back, "torch"),
    Case("torch-module.half", True, make_layer, lambda torch, x: x.layer.half(), "torch"),
    Case("torch-copy_", False, make_torch, lambda torch, x: x.copy_(other(torch)), "torch"),
    Case("torch-requires_grad_", False, make_torch, lambda torch, x: x.requires_grad_(), "torch"),
    Case("jax-donation", False, make_from_jax, donate, "jax"),
]  # fmt: skip
ON_GPU = [
    Case("torch-resize_", True, make_torch, lambda torch, x: x.resize_(50 * COUNT), "torch"),
    Case("torch-set_", True, make_torch, lambda torch, x: x.set_(other(torch).cuda()), "torch"),
    Case("torch-data", True, make_torch, lambda torch, x: setattr(x, "data", other(torch).cuda()), "torch"),
    Case("torch-module.cpu", True, make_layer, lambda torch, x: x.layer.cpu(), "torch"),
    Case("torch-module.to", True, make_layer, to_and_back, "torch"),
]


def values(thing: Any) -> np.ndarray:
    """What an array of any library holds now, as numbers in a row."""
    if isinstance(thing, Exports):
        thing = thing.array
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu().numpy()
    return np.frombuffer(np.ascontiguousarray(thing).tobytes(), "f8")


def library(name: str) -> Any:
    return importlib.import_module(name) if name == "numpy" else pytest.importorskip(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(tmp_path, device="cpu", device_cache="64MiB", host_cache=0, disk=0) as store:
        yield store


def check(store: ebbtide.Store, case: Case, made: Any, module: Any, track: str) -> None:
    state = {"still": np.zeros(5000), "x": made}
    store.protect(state, track=track, zone="4KiB")
    store.snapshot(0).wait("copied")
    case.change(module, made)
    state["still"][:] = 1
    if case.moves:
        for version in (1, 2):  # again as well
            with pytest.raises(ebbtide.Lost, match=r"arrays\['x'\] .* when it was protected: unprotect"):
                store.snapshot(version)
    else:
        for one in state.values():
            store.touch(one)
        store.snapshot(1)
        assert np.array_equal(values(store.restore(1, keep=True)["x"]), values(made))
    first = store.restore(0, keep=True)
    assert np.array_equal(values(first["x"]), FLAT) and not first["still"].any()
    store.unprotect()
    state["x"] = np.ones(10)  # what was moved need not be an array that can be protected
    store.protect(state, track=track, zone="4KiB")
    store.snapshot(3)
    assert store.restore(3, keep=True)["still"].all()


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_moved_memory_is_never_stored(store: ebbtide.Store, case: Case, track: str) -> None:
    if not can_track(track):
        pytest.skip(f"this machine does not allow {track}")
    module = library(case.needs)
    check(store, case, case.make(module), module, track)


@pytest.mark.gpu
@pytest.mark.skipif(not HERE, reason=f"there is no GPU: {_core.cuda_absent_reason()}")
@pytest.mark.parametrize("track", [track for track in TRACKS if track not in ("faults", "scan")])
@pytest.mark.parametrize("case", ON_GPU, ids=lambda case: case.name)
def test_moved_memory_of_a_gpu_is_never_stored(disk: Path, case: Case, track: str) -> None:
    torch = library("torch")
    made = case.make(torch)
    if hasattr(made, "layer"):
        made.layer.cuda()
    else:
        made = made.cuda()
    with ebbtide.open(disk, device="cuda", device_cache="64MiB", host_cache="64MiB", disk=0) as store:
        check(store, case, made, torch, track)


def test_an_array_of_jax_cannot_be_protected(store: ebbtide.Store) -> None:
    jax = library("jax")
    with pytest.raises(ebbtide.InvalidArgument, match="immutable"):
        store.protect(jax.numpy.zeros(10))


def test_an_array_that_only_the_store_knows_stays(store: ebbtide.Store) -> None:
    state = {"x": FLAT.copy()}
    store.protect(state)
    del state["x"]
    store.snapshot(0)
    store.snapshot(1)
    assert np.array_equal(store.restore(1)["x"], FLAT)
