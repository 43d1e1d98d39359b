"""The streams that PyTorch and CuPy are asked for and notified of, with stand-ins for both without a GPU."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ebbtide
from ebbtide import _arrays


class Device:
    """A GPU that is current for as long as a block lasts."""

    def __init__(self, of: Libraries, number: int) -> None:
        self.of, self.id = of, number

    def __enter__(self) -> None:
        self.before, self.of.current = self.of.current, self.id

    def __exit__(self, *_: object) -> None:
        self.of.current = self.before


class Stream:
    """One of either library; handle 0 is another stream on each GPU that is current."""

    def __init__(self, of: Libraries, handle: int) -> None:
        self.of, self.ptr, self.cuda_stream = of, handle, handle

    def __enter__(self) -> None:
        self.of.said.append(f"on {self.ptr:#x}")

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, event: Any) -> str:
        return f"{event}, passed by {self.ptr:#x} on GPU {self.of.current}"

    def is_capturing(self) -> bool:
        return self.of.current in self.of.capturing

    def synchronize(self) -> None:
        self.of.said.append(f"waited for {self.ptr:#x} on GPU {self.of.current}")

    def wait_event(self, event: Any) -> None:
        self.of.said.append(f"{self.ptr:#x} on GPU {self.of.current} waits for {event}")


class Libraries:
    """Both, each with a current stream on either GPU; `said` is what they were told, and with which GPU current."""

    def __init__(self, torch: dict[int, int], cupy: dict[int, int]) -> None:
        self.said: list[str] = []
        self.current = 0  # the GPU
        self.capturing: set[int] = set()  # GPUs
        self.begun = True
        self.torch = SimpleNamespace(
            version=SimpleNamespace(cuda="13.0"),
            float32="float32",
            empty=lambda shape, dtype, device: self.said.append(f"made on {device}"),
            from_numpy=lambda array: self.said.append("made in host memory") or array,
            cuda=SimpleNamespace(
                device_count=lambda: 2,
                is_initialized=lambda: self.begun,
                device=lambda gpu: Device(self, gpu),
                current_stream=lambda gpu=None: Stream(self, torch[self.current if gpu is None else gpu]),
                is_current_stream_capturing=lambda: self.current in self.capturing,
                default_stream=lambda gpu: f"the default of GPU {gpu}",
                ExternalStream=lambda handle, device: f"{handle:#x} of GPU {device}",
                stream=lambda stream: self.said.append(f"on {stream}") or nullcontext(),
            ),
        )
        streams = {"null": Stream(self, 0), "ptds": Stream(self, 2)}
        self.cupy = SimpleNamespace(
            empty=lambda shape, kind: self.said.append(f"made on cuda:{self.current}"),
            cuda=SimpleNamespace(
                runtime=SimpleNamespace(getDeviceCount=lambda: 2),
                get_current_stream=lambda gpu=None: Stream(self, cupy[self.current if gpu is None else gpu]),
                Device=lambda gpu: Device(self, gpu),
                Event=lambda disable_timing: f"an event of GPU {self.current}",
                ExternalStream=lambda handle: Stream(self, handle),
                Stream=SimpleNamespace(**streams),
            ),
        )

    def array(self, library: str, gpu: int) -> Any:
        members = {"device": Device(self, gpu), "record_stream": self.said.append}
        return type("Array", (), {"__module__": f"{library}.core"} | members)()


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a program has imported is this, and nothing else of the kind."""

    def load(**modules: Any) -> None:
        for name in ("torch", "cupy", "numba.cuda"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name.replace("_", "."), module)

    return load


def test_memory_may_be_read_on_the_current_stream_of_each_library(load: Any) -> None:
    both = Libraries(torch={0: 0x10, 1: 0}, cupy={0: 0x20, 1: 0})
    load()
    assert _arrays.current_streams(0) == [1]
    load(torch=both.torch)
    assert _arrays.current_streams(0) == [0x10]
    load(cupy=both.cupy)
    assert _arrays.current_streams(0) == [0x20]
    load(torch=both.torch, cupy=both.cupy)
    assert _arrays.current_streams(0) == [0x10, 0x20]
    assert _arrays.current_streams(1) == [1, 1], "one stream by both its names"
    load(torch=both.torch, numba_cuda=object())
    assert _arrays.current_streams(0) == [0x10, 1]


def test_pytorch_that_computes_on_no_gpu_reads_none(load: Any) -> None:
    both = Libraries(torch={}, cupy={0: 0x20})
    load(torch=both.torch, cupy=both.cupy)
    both.begun = False
    assert _arrays.current_streams(0) == [1, 0x20], "it would begin with its default stream"
    both.torch.version.cuda = None
    assert _arrays.current_streams(0) == [0x20]
    load(torch=both.torch)
    assert _arrays.current_streams(0) == [1]


@pytest.mark.parametrize(
    ("stream", "named"),
    [(0x30, "0x30 of GPU 1"), (2, "0x2 of GPU 1"), (0, "the default of GPU 1"), (1, "the default of GPU 1")],
)
def test_pytorch_is_told_of_the_streams_own_gpu(load: Any, stream: int, named: str) -> None:
    both = Libraries(torch={}, cupy={})
    load(torch=both.torch)
    for gpu in (0, 1):
        _arrays.in_use_on(both.array("torch", gpu), stream, 1)
    assert both.said == [named, named]


@pytest.mark.parametrize(("stream", "handle"), [(0x30, 0x30), (2, 2), (0, 0), (1, 0)])
def test_cupys_current_stream_waits_for_an_event_of_the_streams_own_gpu(load: Any, stream: int, handle: int) -> None:
    both = Libraries(torch={}, cupy={0: 0x20, 1: 0x21})
    load(cupy=both.cupy)
    for gpu in (0, 1):
        _arrays.in_use_on(both.array("cupy", gpu), stream, 1)
    passed = f"an event of GPU 1, passed by {handle:#x} on GPU 1"
    assert both.said == [f"0x20 on GPU 0 waits for {passed}", f"0x21 on GPU 1 waits for {passed}"]


def test_cupys_current_stream_does_not_wait_for_itself(load: Any) -> None:
    both = Libraries(torch={}, cupy={0: 0, 1: 0x30})
    load(cupy=both.cupy)
    for stream, gpu in ((0x30, 1), (0, 0), (1, 0)):
        _arrays.in_use_on(both.array("cupy", gpu), stream, gpu)
    assert both.said == []
    _arrays.in_use_on(both.array("cupy", 0), 1, 1)
    assert both.said == ["0x0 on GPU 0 waits for an event of GPU 1, passed by 0x0 on GPU 1"], "each GPU has a default"


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_the_stream_of_another_gpu_is_waited_for_there(load: Any, library: str) -> None:
    both = Libraries(torch={0: 0x10, 1: 0}, cupy={0: 0x10, 1: 0})
    load(torch=both.torch, cupy=both.cupy)
    both.capturing = {0}
    _arrays.synchronize(library, 1)
    assert both.said == ["waited for 0x0 on GPU 1"] and both.current == 0
    both.current, both.capturing = 1, {1}
    _arrays.synchronize(library, 0)
    assert both.said[1:] == ["waited for 0x10 on GPU 0"]
    both.current = 0
    with pytest.raises(ebbtide.Unsupported, match="captured"):
        _arrays.synchronize(library, 1)
    assert len(both.said) == 2 and both.current == 0


@pytest.mark.parametrize(("library", "named"), [("torch", "0x30 of GPU 1"), ("cupy", "0x30")])
def test_a_new_array_is_free_for_the_stream(load: Any, library: str, named: str) -> None:
    both = Libraries(torch={0: 0x10, 1: 0}, cupy={0: 0x10, 1: 0})
    load(torch=both.torch, cupy=both.cupy)
    for stream, gpu, said in (
        (0x30, 1, [f"on {named}", "made on cuda:1"]),
        (0x30, 0, ["made on cuda:0", "waited for 0x10 on GPU 0"]),  # whose own streams may have used the memory before
        (None, 0, ["made on cuda:0"]),
    ):
        both.said.clear()
        _arrays.new_gpu_array(library, "<f4", (3,), gpu, stream, 1)
        assert both.said == said


def test_a_new_array_of_a_gpu_that_is_not_there_lies_in_host_memory(load: Any) -> None:
    both = Libraries(torch={}, cupy={})
    for modules, library, said in (
        ({"torch": both.torch, "cupy": both.cupy}, "torch", ["made in host memory"]),
        ({"torch": both.torch, "cupy": both.cupy}, "cupy", []),
        ({"torch": both.torch}, "jax", []),
        ({"cupy": both.cupy}, "torch", []),
    ):
        both.said.clear()
        load(**modules)
        array = _arrays.new_gpu_array(library, "<f4", (2, 3), 2, None, 0)
        assert both.said == said
        assert isinstance(array, np.ndarray) and array.shape == (2, 3) and array.dtype == "f4"
