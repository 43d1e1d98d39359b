"""A store's files as Python file objects."""

from __future__ import annotations

import io
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from ebbtide._core import FileHandle


class File(io.RawIOBase):
    """An open binary file of a store, made by ``Store.create_file`` and ``Store.open_file``.

    A file object for ``torch.save``, ``numpy.save``, ``pickle``, ``h5py`` and anything else that takes one. Reads and
    writes are of the whole length asked for, and cost a copy. Many reads of a few bytes are faster through
    ``io.BufferedReader(file)``.

    One that was created is closed whole: ``close`` makes it visible. Leaving ``with`` by an exception, or losing the
    last reference before it is closed, leaves nothing of it.

    >>> with store.create_file("weights", 3) as file:
    ...     numpy.save(file, weights)
    >>> with store.open_file("weights") as file:      # the newest
    ...     weights = numpy.load(file)
    """

    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle
        self._writable = handle.writable
        self.name = handle.name
        self.version = handle.version
        self.mode = "w+b" if self._writable else "rb"

    def readable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def writable(self) -> bool:
        self._check_open()
        return self._writable

    def readinto(self, buffer: Any, /) -> int:
        self._check_open()
        return self._handle.read_into(buffer)

    def readall(self) -> bytes:
        self._check_open()
        rest = bytearray(max(0, self._handle.size - self._handle.tell()))
        return bytes(memoryview(rest)[: self._handle.read_into(rest)])

    def write(self, buffer: Any, /) -> int:
        self._check_writable()
        return self._handle.write(buffer)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._handle.tell(), io.SEEK_END: self._handle.size}
        if whence not in starts:
            raise ValueError(f"whence={whence} is not valid: expected 0, 1 or 2")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"position {position} is before the start of the file")
        self._handle.seek(position)
        return position

    def tell(self) -> int:
        self._check_open()
        return self._handle.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._check_writable()
        size = self._handle.tell() if size is None else operator.index(size)
        if size < 0:
            raise ValueError(f"size={size} is not valid: expected a number of bytes from 0, or None for the position")
        self._handle.truncate(min(size, 2**64 - 1))
        return size

    def close(self) -> None:
        """End it; one that was created is a file of the store from now on.

        Raises what could not be stored (:class:`ebbtide.NoSpace`, ...); it is still open then.
        """
        if not self.closed:
            self._handle.close()
        super().close()

    def abandon(self) -> None:
        """End it without a trace, if it was created and is not closed."""
        if not self.closed:
            self._handle.abandon()
        super().close()

    def wait(self, level: str, timeout: float | None = None) -> None:
        """Wait until all of it is on tier ``level``, or as durable as ``level``: as ``History.wait``, once it is closed."""
        self._handle.wait(level, timeout)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.abandon()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _check_writable(self) -> None:
        if not self.writable():
            raise io.UnsupportedOperation("this file is open to be read")
