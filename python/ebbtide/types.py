"""The types of arguments that are arrays or streams."""

from __future__ import annotations

import array
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any library that speaks DLPack (torch, JAX, CuPy, ...)."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream of any library that names its handle (cuda.core, ...)."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


Stream: TypeAlias = "int | SupportsCudaStream | Any"
"""A CUDA stream: its handle, ``torch.cuda.Stream``, ``cupy.cuda.Stream``, or anything with ``__cuda_stream__``."""

NumPyArray: TypeAlias = "np.ndarray[Any, Any]"

Array: TypeAlias = (
    "np.ndarray[Any, Any] | np.generic | SupportsDLPack | bytes | bytearray | memoryview | array.array[Any]"
)
"""One array: anything with ``__dlpack__``, ``__cuda_array_interface__`` or the buffer protocol.

Of NumPy, PyTorch, CuPy and JAX only the types that bytes, shape and element type describe fully: ``numpy.ndarray``,
``numpy.memmap`` and NumPy's scalars; ``torch.Tensor``, ``torch.nn.Parameter`` and ``torch.nn.Buffer``, neither quantised
nor nested nor named; ``cupy.ndarray``; ``jax.Array``. Others (masked arrays, other subclasses) are refused by name.
"""

Arrays: TypeAlias = "Array | list[Any] | tuple[Any, ...] | Mapping[str, Any] | Mapping[int, Any]"
"""One array, or one list, tuple or dict of arrays, not nested."""

Tree: TypeAlias = "Arrays | Mapping[Any, Any]"
"""What a checkpoint may be: :data:`Arrays`, or lists, tuples and dicts of arrays and values, up to 100 in one another.

Values are ``None``, ``bool``, ``int`` (of any length), ``float`` (NaN and infinities too), ``complex`` and ``str``; a dict's
keys may also be ``bytes``, and tuples of these. ``bytes`` are an array. ``collections.OrderedDict`` and ``collections.Counter``
come back as such; other subclasses are refused inside a tree.
"""
