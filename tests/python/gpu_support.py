"""What the tests on a GPU share: PyTorch and CuPy by the same few verbs, and why they are skipped without one."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide
from ebbtide import _core

HERE = _core.cuda_devices()
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HERE, reason=f"there is no GPU: {_core.cuda_absent_reason()}")]
needs_two_gpus = [*needs_gpu, pytest.mark.skipif(len(HERE) < 2, reason=f"needs two GPUs, and there are {len(HERE)}")]

SPIN = 400_000_000  # cycles: 200 ms at 2 GHz, and longer at any lower clock


def _warm(lib: Any) -> None:
    """A kernel that is loaded for the first time may wait for all others."""
    x = lib.full(1 << 20, 1)
    lib.fill(x, 2)
    assert lib.same(x * 2, 4) and lib.same(x * 1, 2)
    x += 1
    lib.synchronize()


class Torch:
    name = "torch"

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        if not self.torch.cuda.is_available():
            pytest.skip("PyTorch finds no GPU")
        self.torch.cuda._sleep(1)
        _warm(self)

    def full(self, shape: Any, value: Any, dtype: str = "float32") -> Any:
        return self.torch.full(
            shape if isinstance(shape, tuple) else (shape,), value, dtype=getattr(self.torch, dtype), device="cuda"
        )

    def put(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).cuda()

    def get(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()

    def fill(self, array: Any, value: Any) -> None:
        array.fill_(value)

    def same(self, array: Any, value: Any) -> bool:
        return bool((array == value).all())

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.torch.Tensor) and array.is_cuda

    def over(self, lent: Any) -> Any:
        return self.torch.from_dlpack(lent)

    def stream(self) -> Any:
        return self.torch.cuda.Stream()

    def current(self) -> Any:
        return self.torch.cuda.current_stream()

    def on(self, stream: Any) -> Any:
        return self.torch.cuda.stream(stream)

    def handle(self, stream: Any) -> int:
        return stream.cuda_stream

    def gpu(self, number: int) -> Any:
        return self.torch.cuda.device(number)

    def busy(self, stream: Any) -> bool:
        return not stream.query()

    def spin(self) -> None:
        self.torch.cuda._sleep(SPIN)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()


class Cupy:
    name = "cupy"

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")
        try:
            self.cupy.cuda.runtime.getDeviceCount()
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            pytest.skip(f"CuPy finds no GPU: {error}")
        code = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }'
        self.kernel = self.cupy.RawKernel(code, "spin")
        self.kernel((1,), (1,), (np.int64(1),))
        _warm(self)

    def full(self, shape: Any, value: Any, dtype: str = "float32") -> Any:
        return self.cupy.full(shape, value, dtype)

    def put(self, array: np.ndarray) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> np.ndarray:
        return array.get()

    def fill(self, array: Any, value: Any) -> None:
        array.fill(value)

    def same(self, array: Any, value: Any) -> bool:
        return bool((array == value).all())

    def is_one(self, array: Any) -> bool:
        return isinstance(array, self.cupy.ndarray)

    def over(self, lent: Any) -> Any:
        return self.cupy.asarray(lent)

    def stream(self) -> Any:
        return self.cupy.cuda.Stream(non_blocking=True)

    def current(self) -> Any:
        return self.cupy.cuda.get_current_stream()

    def on(self, stream: Any) -> Any:
        return stream

    def handle(self, stream: Any) -> int:
        return stream.ptr

    def gpu(self, number: int) -> Any:
        return self.cupy.cuda.Device(number)

    def busy(self, stream: Any) -> bool:
        return not stream.done

    def spin(self) -> None:
        self.kernel((1,), (1,), (np.int64(SPIN),))

    def synchronize(self) -> None:
        self.cupy.cuda.Device().synchronize()


LIBRARIES = [Torch, Cupy]
by_library = pytest.mark.parametrize("make", LIBRARIES, ids=lambda kind: kind.name)


class Interface:
    """An array of a library that ebbtide has never heard of."""

    def __init__(self, inner: Any, read_only: bool = False, stream: int | None = None) -> None:
        self.inner, self.more = inner, {"stream": stream, "version": 3}
        self.read_only = read_only

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        gives = dict(self.inner.__cuda_array_interface__) | self.more
        return gives | {"data": (gives["data"][0], self.read_only)}


class OnlyDLPack:
    """The same by the other protocol; `gpu` is current while it is exported."""

    def __init__(self, inner: Any, gpu: Any = None) -> None:
        self.inner, self.gpu = inner, gpu or nullcontext()

    def __dlpack__(self, *given: Any, **named: Any) -> Any:
        with self.gpu:
            return self.inner.__dlpack__(*given, **named)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.inner.__dlpack_device__()
        return int(kind), int(number)


def open_gpu(directory: Path, **given: Any) -> ebbtide.Store:
    options: dict[str, Any] = {"device": "cuda", "device_cache": "64MiB", "host_cache": "128MiB", "disk": "512MiB"}
    return ebbtide.open(directory, **(options | given))


def scratch() -> str:
    """For a process of its own."""
    return os.environ.get("EBBTIDE_DIR") or str(Path(__file__).resolve().parents[2])
