"""Values that no call can take are refused by name, and what an object of the program's raises comes through."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlpack_support import Exporter

import ebbtide

HUGE = 10**5000  # which Python does not write out


def short(value: Any) -> str:
    return "HUGE" if value is HUGE else ascii(value)[:20]


class Mine(BaseException):
    """No error of ebbtide's, nor of Python's."""


class Index:
    def __index__(self) -> int:
        raise Mine("index")


@pytest.mark.parametrize("version", [2**63, 2**64, -(2**63) - 1, HUGE, 1.5, "1", None], ids=short)
def test_versions_of_more_than_64_bits(store: ebbtide.Store, version: Any) -> None:
    for call in (lambda: store.checkpoint(version, np.zeros(1)), lambda: store.restore(version),
                 lambda: store.reserve(version, 3), lambda: store.hint([version])):  # fmt: skip
        with pytest.raises(
            ebbtide.InvalidArgument, match=r"^version=.* is not valid: expected an int of 64 bits, from -2\*\*63"
        ):
            call()


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (
            2**63,
            r"^shape=9223372036854775808 is not valid: expected a length, or an iterable of lengths \(ints from 0 to 2\*\*63 - 1\)",
        ),
        (2**64, "^shape=18446744073709551616 is not valid: expected a length"),
        (HUGE, "^shape=an int of 16610 bits is not valid: expected a length"),
        (3.5, "^shape=3.5 is not valid: expected a length"),
        ((2, 3.5), r"^shape=\(2, 3.5\) is not valid: expected a length"),
        (-1, "^shape=-1 is not valid: expected a length"),
        ((3, -1), r"^shape=\(3, -1\) is not valid: expected a length"),
        (None, "^shape=None is not valid: expected a length"),
        ("ab", "^shape='ab' is not valid: expected a length"),
        (
            (2**40, 2**40),
            r"^shape=\(1099511627776, 1099511627776\) is not valid: at 8 bytes an element, expected less than 8 EiB",
        ),
        ((0, 2**40, 2**40), "less than 8 EiB"),
        (2**60, "less than 8 EiB"),
        ((1,) * 65, r"^shape=\(1, 1.* has 65 axes, and NumPy arrays have at most"),
    ],
    ids=short,
)
def test_shapes_that_no_array_has(store: ebbtide.Store, shape: Any, words: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=words):
        store.reserve(5, shape)
    assert store.versions() == []


def test_as_many_axes_as_an_array_can_have_come_back(store: ebbtide.Store) -> None:
    from ebbtide._arrays import MOST_AXES

    shape = (1,) * MOST_AXES
    with pytest.raises(ValueError):
        np.empty((*shape, 1))
    with store.reserve(0, shape) as array:
        array[...] = 3
    back = store.restore(0)
    assert back.shape == shape and (back == 3).all()


def test_more_axes_than_numpy_has_are_refused_of_arrays_too(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ebbtide.InvalidArgument, match="^arrays has 65 axes"):
        store.checkpoint(0, torch.ones((1,) * 65))


@pytest.mark.parametrize("dtype", ["nonsense", 5, "\ud800", [("a", "nonsense")]], ids=short)
def test_types_that_numpy_does_not_know(store: ebbtide.Store, dtype: Any) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match="^dtype=.* is not valid: expected what numpy.dtype takes"):
        store.reserve(5, 3, dtype)


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, -math.inf])
def test_times_that_are_none(store: ebbtide.Store, timeout: float, disk: Path) -> None:
    with pytest.raises(
        ebbtide.InvalidArgument, match=f"^timeout={float(timeout)} is not valid: expected seconds, not negative"
    ):
        store.checkpoint(0, np.zeros(1), timeout=timeout)
    with pytest.raises(
        ebbtide.InvalidArgument, match=f"^close_timeout={timeout} is not valid: expected seconds, not negative"
    ):
        ebbtide.open(disk / "kept", durability="process", close_timeout=timeout)


@pytest.mark.parametrize("timeout", [math.inf, 2**64, HUGE, 1e300, 1e-7, 0], ids=short)
def test_times_of_any_length(timeout: float, disk: Path) -> None:
    sizes = {"device_cache": "1MiB", "host_cache": "1MiB", "disk": "8MiB"}
    with ebbtide.open(disk / "kept", durability="process", close_timeout=timeout, **sizes) as store:
        if timeout != HUGE:
            store.checkpoint(0, np.zeros(1), timeout=timeout)
        store.wait("process")
    with ebbtide.open(disk / "kept", readonly=True, device_cache="1MiB", host_cache="1MiB") as store:
        assert store.versions() in ([0], [])


@pytest.mark.parametrize("size", [2**63, 2**64, HUGE, -1, 1.5, math.inf, math.nan, [], "\ud800"], ids=short)
@pytest.mark.parametrize("key", ["device_cache", "host_cache", "memory", "disk", "keep_last", "keep_every"])
def test_sizes_that_none_has(disk: Path, key: str, size: Any) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=f"^{key}=") as refused:
        ebbtide.open(disk / "kept", durability="process", **{key: size})
    assert "expected" in str(refused.value)
    if isinstance(size, int) and 0 < size < HUGE:
        assert "below" in str(refused.value)


def test_a_directory_whose_name_is_no_text(disk: Path) -> None:
    name = os.fsdecode(os.fsencode(disk) + b"/\xff")
    sizes = {"device_cache": "1MiB", "host_cache": "1MiB", "disk": "8MiB"}
    with ebbtide.open(name, durability="process", **sizes) as store:
        store.checkpoint(0, np.arange(3))
    assert os.fsencode(name) in [os.path.join(os.fsencode(disk), one) for one in os.listdir(os.fsencode(disk))]


def test_keys_that_no_file_can_hold(store: ebbtide.Store) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=r"arrays\['\\ud800'\]: .*UTF-8"):
        store.checkpoint(0, {"\ud800": np.zeros(1)})
    with pytest.raises(ebbtide.InvalidArgument, match=r"^order='\\ud800' is not valid"):
        store.history("x", order="\ud800")


# --- objects that raise, or say what cannot be


class Raises:
    """Raises from one of the protocols' attributes."""

    def __init__(self, name: str, error: BaseException) -> None:
        self.name, self.error = name, error

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            raise self.error
        if name == "__dlpack_device__" and self.name == "call":
            return lambda: (1, 0)
        if name == "__dlpack__" and self.name == "call":
            return self.call
        raise AttributeError(name)

    def call(self, **_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [Mine("x"), TypeError("x"), BufferError("x"), ValueError("x"), KeyboardInterrupt("x")],
                         ids=lambda one: type(one).__name__)  # fmt: skip
@pytest.mark.parametrize("name", ["call", "__dlpack__", "__cuda_array_interface__"])
def test_what_an_array_raises_comes_through(store: ebbtide.Store, name: str, error: BaseException) -> None:
    store.checkpoint(0, np.zeros(3))
    given = Raises(name, error)
    for call in (lambda: store.checkpoint(1, given), lambda: store.checkpoint(1, [given]),
                 lambda: store.restore(0, out=given), lambda: store.restore_async(0, out={"a": given})):  # fmt: skip
        with pytest.raises(type(error)) as raised:
            call()
        assert raised.value is error
    assert store.versions() == [0]


def test_what_other_protocols_raise_comes_through(store: ebbtide.Store) -> None:
    class Old(Exporter):
        @property
        def __array_interface__(self) -> Any:
            raise Mine("interface")

    class Iterates:
        def __iter__(self) -> Any:
            raise Mine("iter")

    class Shown(str):
        def __repr__(self) -> str:
            raise Mine("repr")

    store.checkpoint(0, np.zeros(3))
    for call in (lambda: store.restore(0, out=Old(np.zeros(3), versioned=False)),
                 lambda: store.checkpoint(Index(), np.zeros(3)), lambda: store.reserve(1, (3, Index())),
                 lambda: store.reserve(1, Iterates()), lambda: store.hint(Iterates()),
                 lambda: store.checkpoint(1, {Shown("a"): np.zeros(3)}),
                 lambda: store.checkpoint(1, Exporter(np.zeros(3), device=(Index(), 0)))):  # fmt: skip
        with pytest.raises(Mine):
            call()
    assert store.versions() == [0]


@pytest.mark.parametrize("device", [None, 3, "ab", (1,), (1, 0, 0), ("a", 0), (2**64, 0), (1.5, 0)], ids=str)
def test_a_device_that_is_none(store: ebbtide.Store, device: Any) -> None:
    with pytest.raises(
        ebbtide.InvalidArgument, match="^arrays .*gives .* as its __dlpack_device__: expected a tuple of two ints"
    ):
        store.checkpoint(0, Exporter(np.zeros(3), device=device))


@pytest.mark.parametrize("capsule", [None, 3, b"dltensor"])
def test_an_export_that_is_none(store: ebbtide.Store, capsule: Any) -> None:
    class Odd(Exporter):
        def __dlpack__(self, **_: Any) -> Any:
            return capsule

    with pytest.raises(
        ebbtide.Unsupported, match="^arrays .*was exported as .*, in no version of DLPack that is known"
    ):
        store.checkpoint(0, Odd(np.zeros(3)))


def test_a_buffer_that_numpy_cannot_lay_out(store: ebbtide.Store) -> None:
    released = memoryview(b"abc")
    released.release()
    with pytest.raises(ebbtide.InvalidArgument, match="^arrays exports a buffer that is not an array of numbers"):
        store.checkpoint(0, released)


SURROGATES = ["\udcff", "a\ud800b", "\udc80\udc80"]
TEXT_CALLS = {
    "history": lambda store, text: store.history(text),
    "order": lambda store, text: store.history("h", order=text),
    "versions": lambda store, text: store.versions(text),
    "latest": lambda store, text: store.latest(text),
    "create_file": lambda store, text: store.create_file(text, 1),
    "open_file": lambda store, text: store.open_file(text),
    "files": lambda store, text: store.files(text),
    "drop_file": lambda store, text: store.drop_file(text, 1),
    "wait": lambda store, text: store.wait(text),
    "future": lambda store, text: store.checkpoint(1, np.zeros(1)).wait(text),
    "done": lambda store, text: store.checkpoint(1, np.zeros(1)).done(text),
    "dtype": lambda store, text: store.reserve(1, 3, dtype=text),
    "like": lambda store, text: store.reserve(1, 3, like=text),
    "track": lambda store, text: store.protect(np.zeros(1), track=text),
    "zone": lambda store, text: store.protect(np.zeros(1), zone=text),
    "suspend_on": lambda store, text: store.suspend_on(10, level=text),
    "device": lambda store, text: ebbtide.open(device=text),
    "eviction": lambda store, text: ebbtide.open(eviction=text),
    "memory": lambda store, text: ebbtide.open(memory=text),
    "durability": lambda store, text: ebbtide.open(durability=text),
    "parse_bytes": lambda store, text: ebbtide._core.parse_bytes("key", text),
    "drain": lambda store, text: ebbtide._core.drain(text, 0.0),
}


@pytest.mark.parametrize("text", SURROGATES, ids=short)
@pytest.mark.parametrize("call", TEXT_CALLS)
def test_text_that_utf8_cannot_encode(tmp_path: Path, call: str, text: str) -> None:
    options: dict[str, Any] = {"device_cache": "4MiB", "host_cache": "4MiB", "disk": "64MiB", "device": "cpu"}
    with ebbtide.open(tmp_path / "run", durability="storage", **options) as store:
        with pytest.raises((ebbtide.InvalidArgument, ebbtide.Unsupported), match="expected|lone surrogates") as caught:
            TEXT_CALLS[call](store, text)
        assert str(caught.value).encode()
        assert store.histories() in ([], [""])
