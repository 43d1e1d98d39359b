"""Where a program's arrays are: ordinary memory (NumPy), or a GPU (CuPy, or PyTorch where there is no CuPy).

All of them do the same few things, so that what is written with them runs, and is tested, without a GPU. Whatever is
enqueued goes to the current stream; inside `use()` that is a stream of the program's own, never the legacy default one.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import ebbtide
from ebbtide import _core

from .torch_module import TorchModule


def aligned(count: int) -> np.ndarray:
    """`count` bytes of touched memory, aligned to a page, on huge pages where there are any (as NumPy requests too)."""
    mapped = mmap.mmap(-1, max(1, count))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapped, dtype=np.uint8, count=count)
    memory[:] = 0
    return memory


def copy_bytes(to: np.ndarray, source: np.ndarray) -> None:
    """Copies as a store without a GPU does, past the processor's caches: NumPy's copies are some 20% slower where they do not."""
    if to.nbytes != source.nbytes or not (to.flags.c_contiguous and source.flags.c_contiguous and to.flags.writeable):
        raise ValueError(f"{source.nbytes} bytes do not go into {to.nbytes}")
    _core.copy_bytes(to.ctypes.data, source.ctypes.data, to.nbytes)


class NoDevice(ebbtide.Unsupported):
    """There is no GPU, or no library that computes on it; the message says what to do."""


class _NoStream:
    def synchronize(self) -> None:
        """Nothing is ever in flight."""


class Cpu:
    """Ordinary memory. Everything is done when a call returns."""

    name = "cpu"
    model = ""  # of the GPU, as its maker calls it
    on_gpu = False
    xp: Any = np

    def use(self) -> AbstractContextManager[Any]:
        """Allocates arrays here, with a separate stream."""
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Waits for the work on the current stream."""

    def new_stream(self) -> Any:
        """One more stream; `synchronize()` waits for it."""
        return _NoStream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Makes `stream` the current one."""
        return contextlib.nullcontext()

    def bytes(self, count: int) -> Any:
        """`count` touched bytes, shape (count,)."""
        return aligned(count)

    def pinned(self, count: int) -> np.ndarray:
        """`count` touched bytes of host memory that this device moves to and from at full speed."""
        return aligned(count)

    def upload(self, array: np.ndarray) -> Any:
        """`array` in this device's memory (itself, if it is there already)."""
        return array

    def download(self, array: Any) -> np.ndarray:
        """A device array in host memory (itself, if it is there already)."""
        return array

    def copy(self, to: Any, source: Any) -> None:
        """Enqueues a bare copy of bytes between any two of device arrays and pinned memory."""
        copy_bytes(to, source)

    def read_only(self, array: Any) -> Any:
        """`array`, made read-only if the library supports that."""
        array.flags.writeable = False
        return array

    def unequal(self, one: Any, other: Any) -> int:
        """How many bytes of two arrays of bytes differ."""
        even = len(one) - len(one) % 8
        if np.array_equal(one[:even].view(np.uint64), other[:even].view(np.uint64)):
            return int(np.count_nonzero(one[even:] != other[even:]))
        return int(np.count_nonzero(one != other))

    def give_back(self) -> None:
        """Frees the memory that the array library caches for later allocations."""


class _Gpu(Cpu):
    """What both array libraries share; `number` is the GPU's."""

    on_gpu = True

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"cuda:{number}"

    def read_only(self, array: Any) -> Any:
        return array

    def unequal(self, one: Any, other: Any) -> int:
        return int(self.xp.count_nonzero(one != other))


class CupyGpu(_Gpu):
    """A GPU through CuPy."""

    def __init__(self, cupy: Any, number: int) -> None:
        super().__init__(number)
        self.xp = self._cupy = cupy

    @property
    def model(self) -> str:  # type: ignore[override]
        return self._cupy.cuda.runtime.getDeviceProperties(self.number)["name"].decode()

    def use(self) -> AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(self._cupy.cuda.Device(self.number))
        stack.enter_context(self._cupy.cuda.Stream(non_blocking=True))
        return stack

    def synchronize(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def new_stream(self) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return stream

    def bytes(self, count: int) -> Any:
        return self._cupy.zeros(count, self._cupy.uint8)

    def pinned(self, count: int) -> np.ndarray:
        memory = np.frombuffer(self._cupy.cuda.alloc_pinned_memory(count), np.uint8, count)
        memory[:] = 0
        return memory

    def upload(self, array: np.ndarray) -> Any:
        return self._cupy.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return array.get()

    def copy(self, to: Any, source: Any) -> None:
        def place(array: Any) -> int:
            return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr

        runtime = self._cupy.cuda.runtime
        stream = self._cupy.cuda.get_current_stream().ptr
        runtime.memcpyAsync(place(to), place(source), len(to), runtime.memcpyDefault, stream)

    def give_back(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()


class TorchGpu(_Gpu):
    """A GPU through PyTorch. `where`: another name of PyTorch's for the device, so that its CPU can stand in."""

    def __init__(self, torch: Any, number: int, where: str | None = None) -> None:
        super().__init__(number)
        self._torch, self._where = torch, where or self.name
        self.xp = TorchModule(torch, self._where)

    @property
    def model(self) -> str:  # type: ignore[override]
        return self._torch.cuda.get_device_name(self.number)

    def use(self) -> AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(self._torch.cuda.device(self.number))
        stack.enter_context(self._torch.cuda.stream(self._torch.cuda.Stream(self.number)))
        return stack

    def synchronize(self) -> None:
        self._torch.cuda.current_stream().synchronize()

    def new_stream(self) -> Any:
        return self._torch.cuda.Stream(self.number)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return self._torch.cuda.stream(stream)

    def bytes(self, count: int) -> Any:
        return self._torch.zeros(count, dtype=self._torch.uint8, device=self._where)

    def pinned(self, count: int) -> np.ndarray:
        return self._torch.zeros(count, dtype=self._torch.uint8, pin_memory=True).numpy()

    def upload(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()

    def copy(self, to: Any, source: Any) -> None:
        def tensor(array: Any) -> Any:
            return self._torch.from_numpy(array) if isinstance(array, np.ndarray) else array

        tensor(to).copy_(tensor(source), non_blocking=True)

    def give_back(self) -> None:
        self._torch.cuda.empty_cache()


def select(text: str, rank: int = 0) -> Cpu:
    """The device that `text` names (`cpu`, `cuda`, `cuda:N`), for one rank: the GPUs are dealt out from N on.

    Raises NoDevice, or ValueError for another text.
    """
    if text == "cpu":
        return Cpu()
    form = re.fullmatch(r"cuda(?::(\d+))?", text)
    if not form:
        raise ValueError(f"{text!r} is not a device: 'cpu', 'cuda' or 'cuda:N'")
    count, make = _found()
    number = int(form[1] or 0)
    if number >= count:
        raise NoDevice(f"there is no cuda:{number}: GPUs found are cuda:0 to cuda:{count - 1}; use one of them")
    return make((number + rank) % count)


def gpus() -> int:
    """How many GPUs there are. Raises NoDevice."""
    return _found()[0]


def _found() -> tuple[int, Callable[[int], Cpu]]:
    """The number of GPUs, and a function that makes a device of one."""
    reasons = []
    for library in (_through_cupy, _through_torch):
        try:
            return library()
        except Exception as error:  # whatever a library that finds no driver, or half of one, raises
            reasons.append(f"{library.__doc__}: {type(error).__name__}: {error}")
    raise NoDevice(
        f"no GPU to compute on ({'; '.join(reasons)}). Check with nvidia-smi whether a driver finds one, install "
        "cupy-cuda13x or torch, or use the device cpu"
    )


def _through_cupy() -> tuple[int, Callable[[int], Cpu]]:
    """CuPy"""
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    if not count:
        raise RuntimeError("it finds no GPU")
    return count, lambda number: CupyGpu(cupy, number)


def _through_torch() -> tuple[int, Callable[[int], Cpu]]:
    """PyTorch"""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("it finds no GPU")
    return torch.cuda.device_count(), lambda number: TorchGpu(torch, number)
