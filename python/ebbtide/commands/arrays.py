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


@dataclass(frozen=True)
class Array:
    """One region; `dtype`, `shape` and `key` as they were written, or None."""

    id: int
    bytes: int
    offset: int
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    key: int | str | None = None

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
        if min(self.shape, default=0) < 0 or math.prod(self.shape) * kind.itemsize != self.bytes:
            return None
        return kind


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
            )
        )
    return out
