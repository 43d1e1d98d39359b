"""CUDA's managed memory through NVIDIA's Python bindings (cuda-bindings)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import Given


class Cuda:
    """`count` places of `room` bytes each. Raises ImportError where cuda-bindings is missing, ValueError where the card has
    too little memory."""

    PAGE = 2 << 20

    def __init__(self, given: Given, count: int, room: int) -> None:
        from cuda.bindings import runtime

        self._cuda, self._gpu = runtime, given.device.number  # type: ignore[attr-defined]
        self._said(runtime.cudaSetDevice(self._gpu))
        free, _ = self._said(runtime.cudaMemGetInfo())
        if count * room > free // 2:  # what is managed beyond the card's memory can hang it
            raise ValueError(
                f"{count * room} bytes of managed memory are more than half of the {free} that the GPU has free"
            )
        (self._begin,) = self._said(runtime.cudaMallocManaged(count * room, runtime.cudaMemAttachGlobal))
        self.places: Sequence[int] = [self._begin + number * room for number in range(count)]

    def _said(self, answer: tuple[Any, ...]) -> tuple[Any, ...]:
        error, *values = answer
        if error != self._cuda.cudaError_t.cudaSuccess:
            raise OSError(f"CUDA: {error.name}")
        return tuple(values)

    def lane(self) -> _Lane:
        return _Lane(self._cuda, self._said, self._gpu)

    def close(self) -> None:
        self._said(self._cuda.cudaFree(self._begin))


class _Lane:
    def __init__(self, cuda: Any, said: Callable[[tuple[Any, ...]], tuple[Any, ...]], gpu: int) -> None:
        self._cuda, self._said = cuda, said
        said(cuda.cudaSetDevice(gpu))
        (self._stream,) = said(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        kinds = cuda.cudaMemLocationType
        self._where = {}
        for on_device, kind in ((True, kinds.cudaMemLocationTypeDevice), (False, kinds.cudaMemLocationTypeHost)):
            place = self._where[on_device] = cuda.cudaMemLocation()
            place.type, place.id = kind, gpu if on_device else 0

    def copy(self, to: Any, source: Any, size: int) -> None:
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDefault
        self._said(self._cuda.cudaMemcpyAsync(_address(to), _address(source), size, kind, self._stream))
        self._said(self._cuda.cudaStreamSynchronize(self._stream))

    def move(self, place: Any, size: int, to_device: bool) -> None:
        self._said(self._cuda.cudaMemPrefetchAsync(place, size, self._where[to_device], 0, self._stream))
        self._said(self._cuda.cudaStreamSynchronize(self._stream))

    def advise(self, place: Any, size: int, on_device: bool) -> None:
        preferred = self._cuda.cudaMemoryAdvise.cudaMemAdviseSetPreferredLocation
        self._said(self._cuda.cudaMemAdvise(place, size, preferred, self._where[on_device]))


def _address(memory: Any) -> int:
    """Of a place, an array on the GPU or one in host memory."""
    if isinstance(memory, int):
        return memory
    if hasattr(memory, "__cuda_array_interface__"):
        return memory.__cuda_array_interface__["data"][0]
    return memory.ctypes.data
