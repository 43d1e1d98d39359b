"""Arrays of a library that ebbtide has never heard of, which export themselves by DLPack in any way that one may."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

READ_ONLY, COPIED = 1, 2


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAMES = {Managed: b"dltensor", ManagedVersioned: b"dltensor_versioned"}  # a capsule keeps the address of its name
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Exporter:
    """The memory of ``inner`` by DLPack.

    versioned: of version 1, with ``flags``, where the consumer asks for it; else of before.
    copies: each export is of another copy, without a word.
    hook: called by each export before anything else.
    """

    def __init__(
        self,
        inner: np.ndarray,
        *,
        versioned: bool = True,
        flags: int = 0,
        copies: bool = False,
        device: Any = (1, 0),
        hook: Callable[[], Any] = lambda: None,
    ) -> None:
        self.inner, self.versioned, self.flags, self.copies = inner, versioned, flags, copies
        self.device, self.hook = device, hook
        self._kept: list[Any] = []

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        self.hook()
        if more and not self.versioned:
            raise TypeError(f"unexpected arguments {list(more)}")
        array = self.inner.copy() if self.copies else self.inner
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
        code = _CODES[array.dtype.kind]
        tensor = Tensor(array.ctypes.data, 1, 0, array.ndim, code, 8 * array.itemsize, 1, shape, strides, 0)
        managed = (
            ManagedVersioned(1, 0, None, None, self.flags, tensor) if self.versioned else Managed(tensor, None, None)
        )
        self._kept += [array, shape, strides, managed]
        return _new(ctypes.addressof(managed), _NAMES[type(managed)], None)
