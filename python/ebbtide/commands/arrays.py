"""A checkpoint's regions: arrays if its metadata plausibly says so, else bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import names

if TYPE_CHECKING:
    import numpy as np

_PLAIN = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\w{1,8}\])?", re.ASCII)
_LONGEST = 10_000  # characters of a description that are read
_MOST_REPEATED = 1 << 30  # bytes of an array that has some of its elements many times


@dataclass(frozen=True)
class Array:
    """One region; `dtype`, `shape` and `key` as they were written, or None; `strides` in elements, None: C order."""

    id: int
    bytes: int
    offset: int
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    key: int | str | None = None
    strides: tuple[int, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        shape = None if self.shape is None else list(self.shape)
        return {
            "id": self.id,
            "bytes": self.bytes,
            "offset": self.offset,
            "dtype": self.dtype,
            "shape": shape,
            "key": self.key,
            "strides": None if self.strides is None else list(self.strides),
        }

    def numpy_type(self) -> np.dtype[Any] | None:
        """The array's NumPy type; None if it is of another library, or does not fit the bytes."""
        import numpy as np

        from ebbtide._arrays import dtype_from

        if self.dtype is None or self.shape is None or len(self.dtype) > _LONGEST:
            return None
        if not _PLAIN.fullmatch(self.dtype) and not self.dtype.startswith("descr:"):
            return None
        try:
            kind = dtype_from(self.dtype)
        except Exception:  # any error that an invented description causes: then it is bytes
            return None
        if not isinstance(kind, np.dtype) or kind.hasobject or kind.subdtype is not None or len(self.shape) > 32:
            return None
        if min(self.shape, default=0) < 0 or math.prod(self._once()) * kind.itemsize != self.bytes:
            return None
        repeats = math.prod(self.shape) * kind.itemsize > max(self.bytes, _MOST_REPEATED)
        return None if repeats else kind

    def in_fortran_order(self) -> bool:
        """Whether its bytes are in that order, which archives have beside C's."""
        if self.strides is None or self.shape is None:
            return False
        steps = [math.prod(self.shape[:axis]) for axis in range(len(self.shape))]
        return all(n == 1 or one == step for n, one, step in zip(self.shape, self.strides, steps))

    def over(self, data: Any, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The array of all its bytes."""
        import numpy as np

        from ebbtide._arrays import laid_out

        strides, shape = self.strides or (), self.shape or ()
        first = sum(-(n - 1) * stride for n, stride in zip(shape, strides) if stride < 0)
        array: np.ndarray[Any, Any] = laid_out(np.frombuffer(data, kind), shape, strides, first)
        return array

    def _once(self) -> tuple[int, ...]:
        """The shape without what is there several times."""
        shape = self.shape or ()
        return tuple(n for n, stride in zip(shape, self.strides or shape) if stride != 0 or n < 2)


def arrays_of(description: dict[str, Any]) -> list[Array]:
    """Of a reader's `describe()`, in the order of the regions."""
    leaves = description["arrays"] or [None] * len(description["regions"])
    out = []
    for (number, size, offset), leaf in zip(description["regions"], leaves):
        if leaf is None:
            out.append(Array(number, size, offset))
            continue
        key = leaf["key"]
        out.append(
            Array(
                number,
                size,
                offset,
                names.text_of(leaf["dtype"]),
                tuple(leaf["shape"]),
                names.text_of(key) if isinstance(key, bytes) else key,
                None if leaf["strides"] is None else tuple(leaf["strides"]),
            )
        )
    return out
