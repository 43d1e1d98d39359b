"""Which streams PyTorch and CuPy are asked for and told of, with stand-ins of both where there is no GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ebbtide import _arrays


class Libraries:
    """Both, each with a current stream a GPU; `said` has what was asked of whom, and of which GPU it was asked."""

    def __init__(self, torch: dict[int, int], cupy: dict[int, int]) -> None:
        self.said: list[Any] = []
        self.device = 0
        self.begun = True
        self.torch = SimpleNamespace(
            version=SimpleNamespace(cuda="13.0"),
            cuda=SimpleNamespace(
                is_initialized=lambda: self.begun,
                current_stream=lambda gpu: SimpleNamespace(cuda_stream=torch[gpu]),
            ),
        )
        self.cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda gpu: SimpleNamespace(ptr=cupy[gpu])))


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
