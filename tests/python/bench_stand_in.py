"""What the benchmark's tests share: a tiny shot, rates that cost nothing, and a GPU made of ordinary memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ebbtide._machine import copies, files
from ebbtide._machine.device import Cpu, CupyGpu, NoDevice, TorchGpu, select
from ebbtide.bench import rates
from ebbtide.bench.config import Config

COUNT = 12


class StandInGpu(Cpu):
    """Is asked for as a GPU and behaves as one; the store beneath it has none."""

    on_gpu = True


class _Stream(contextlib.nullcontext):
    ptr = 0

    def synchronize(self) -> None:
        pass


class _CupyOnTheCpu(CupyGpu):
    def download(self, array: Any) -> np.ndarray:
        return array.copy()  # NumPy's arrays have no `get`


def cupy_on_the_cpu() -> CupyGpu:
    """CuPy's path, through what of CuPy it calls, with NumPy's arrays in CuPy's place."""
    runtime = types.SimpleNamespace(
        memcpyDefault=4, memcpyAsync=lambda to, source, size, kind, stream: ctypes.memmove(to, source, size)
    )
    cuda = types.SimpleNamespace(
        Device=lambda number: contextlib.nullcontext(),
        Stream=lambda non_blocking: _Stream(),
        get_current_stream=_Stream,
        alloc_pinned_memory=lambda size: mmap.mmap(-1, size),
        runtime=runtime,
    )
    pool = types.SimpleNamespace(free_all_blocks=lambda: None)
    same = ("add", "asarray", "count_nonzero", "empty", "float32", "multiply", "uint8", "zeros", "zeros_like")
    cupy = types.SimpleNamespace(
        cuda=cuda,
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pool,
        **{name: getattr(np, name) for name in same},
    )
    gpu = _CupyOnTheCpu(cupy, 0)
    gpu.name = "cpu"  # for the store beneath it
    return gpu


def torch_on_the_cpu() -> TorchGpu:
    """PyTorch's path, its tensors in ordinary memory."""
    torch = pytest.importorskip("torch")
    cuda = types.SimpleNamespace(
        device=lambda number: contextlib.nullcontext(),
        stream=lambda stream: stream,
        Stream=lambda number: _Stream(),
        current_stream=_Stream,
        empty_cache=lambda: None,
    )
    same = ("empty", "tensor", "from_numpy", "add", "mul", "zeros_like", "count_nonzero", "float32", "uint8")
    aligned = types.SimpleNamespace(
        cuda=cuda,
        zeros=lambda shape, dtype, device="cpu", pin_memory=False: (
            torch.from_numpy(np.frombuffer(mmap.mmap(-1, shape), np.uint8))
            if pin_memory
            else torch.zeros(shape, dtype=dtype, device=device)
        ),
        **{name: getattr(torch, name) for name in same},
    )
    gpu = TorchGpu(aligned, 0, where="cpu")
    gpu.name = "cpu"
    return gpu


def a_gpu() -> Cpu:
    """The real thing, where there is one."""
    try:
        return select("cuda")
    except NoDevice as error:
        pytest.skip(str(error))


#: Makers of what is written for GPUs: three without one, and a GPU.
GPUS = [StandInGpu, cupy_on_the_cpu, torch_on_the_cpu, pytest.param(a_gpu, marks=pytest.mark.device)]


def tiny_config(directory: Path, **changed: Any) -> Config:
    fields = {
        "sizes": ((1 << 16,) * COUNT,),
        "order": "reverse",
        "hints": "all",
        "interval": 0.0,
        "device_cache": 1 << 18,
        "host_cache": 1 << 18,
        "disk": 1 << 24,
        "directory": directory,
        "wait": False,
        "policy": "score",
        "prefetch": "manual",
        "coupling": "free",
        "verify": True,
        "seed": 0,
    }
    return Config(**(fields | changed))


def some_rates(config: Config, copy_in: float = 5e9) -> rates.Rates:
    """As `rates.measure` gives them, without measuring."""
    file = files.FileRate(1e9, 2, 1 << 20, True) if config.disk else None
    below = files.FileRate(5e8, 2, 1 << 20, True) if config.shared else None
    if config.on_gpu:
        copied = copies.DeviceCopies(config.median_size(), 1e-5, 2e-5, 5e10, 5e10, 9e10)
        return rates.Rates(copied, file, file, None, below, below)
    return rates.Rates(copies.HostCopies(copy_in, 5e9, 8e9), file, file, None, below, below)
