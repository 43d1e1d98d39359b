"""One checkpoint as plain files: one per region, or a NumPy archive; and a page of JSON."""

from __future__ import annotations

import base64
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from . import names
from .arrays import Array, arrays_of
from .folder import Folder
from .store import Checkpoint

Tell = Callable[[int], None]
_PAGE = "checkpoint.json"


class Payload:
    """A checkpoint's payload, read from start to end."""

    def __init__(self, reader: Any, tell: Tell) -> None:
        self._reader, self._tell = reader, tell
        self._piece = memoryview(b"")
        self._begin = 0  # the piece's offset in the payload

    def part(self, offset: int, size: int) -> Iterator[memoryview]:
        """The bytes of a region, in pieces; call it for the regions in the order of their offsets."""
        while size > 0:
            if offset >= self._begin + len(self._piece):
                self._next()
                continue
            found = self._piece[offset - self._begin :][:size]
            yield found
            offset += len(found)
            size -= len(found)

    def rest(self) -> None:
        """Also checks the bytes after the last region."""
        while self._next():
            pass

    def _next(self) -> bool:
        self._begin += len(self._piece)
        self._piece = memoryview(self._reader.next())
        self._tell(len(self._piece))
        return len(self._piece) > 0


def folder_name(checkpoint: Checkpoint) -> str:
    """A history's folder: ``history`` for the one without a name, ``history-NAME`` for others."""
    name = names.file_name(names.bytes_of(checkpoint.history))
    return f"history-{name}" if name else "history"


def written_name(checkpoint: Checkpoint, form: str) -> str:
    """The name in the history's folder, apart from an archive's page of JSON."""
    return f"version-{checkpoint.version}" + (".npz" if form == "npz" else "")


def page_name(checkpoint: Checkpoint, form: str) -> str:
    """The page of JSON, in the history's folder; renamed last."""
    return f"version-{checkpoint.version}" + (".json" if form == "npz" else f"/{_PAGE}")


def put(folder: Folder, checkpoint: Checkpoint, reader: Any, form: str, overwrite: bool, tell: Tell) -> None:
    """Writes it into its history's folder, completely or not at all. The reader's exceptions propagate."""
    described = reader.describe()
    arrays, payload = arrays_of(described), Payload(reader, tell)
    page = checkpoint.as_json() | {"metadata_base64": base64.b64encode(described["metadata"]).decode()}
    if form == "npz":
        with folder.batch(overwrite) as begin:
            page["regions"] = _put_archive(begin(written_name(checkpoint, form)), arrays, payload)
            _put_page(begin(page_name(checkpoint, form)), page)
        return
    name = written_name(checkpoint, form)
    try:
        with folder.folder(name) as own, own.batch(overwrite) as begin:
            page["regions"] = _put_files(begin, arrays, payload)
            _put_page(begin(_PAGE), page)
    except BaseException:
        folder.remove_if_empty(name)
        raise


def _put_page(out: IO[bytes], page: dict[str, Any]) -> None:
    out.write(json.dumps(page, indent=1).encode() + b"\n")


def _put_files(begin: Callable[[str], IO[bytes]], arrays: list[Array], payload: Payload) -> list[dict[str, Any]]:
    told = []
    for array in arrays:
        file = f"region-{array.id}.bin"
        with begin(file) as out:
            for piece in payload.part(array.offset, array.bytes):
                out.write(piece)
        told.append(array.as_json() | {"file": file})
    payload.rest()
    return told


def entry_names(arrays: list[Array]) -> list[str]:
    """Each array's name in the archive: its key, ``arr_0`` as NumPy has it, or ``region_0`` if it was none."""
    wanted = []
    for i, array in enumerate(arrays):
        if array.dtype is None:
            wanted.append(f"region_{array.id}")
        elif array.key is None:
            wanted.append(f"arr_{i}")
        else:
            wanted.append(names.file_name(names.bytes_of(str(array.key))) or "%")
    counts = Counter(wanted)
    return [f"{name}~region_{array.id}" if counts[name] > 1 else name for name, array in zip(wanted, arrays)]


def _put_archive(out: IO[bytes], arrays: list[Array], payload: Payload) -> list[dict[str, Any]]:
    import numpy as np

    told = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for array, name in zip(arrays, entry_names(arrays)):
            kind, shape = array.numpy_type(), array.shape
            fortran = other = False
            if kind is None or shape is None:
                kind, shape = np.dtype("u1"), (array.bytes,)
            else:
                fortran = array.in_fortran_order()
                other = array.strides is not None and not fortran
            header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": fortran, "shape": shape}
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array_header_2_0(entry, header)
                pieces: Iterable[Any] = payload.part(array.offset, array.bytes)
                if other:  # archives have no such order
                    pieces = [array.over(b"".join(pieces), kind).tobytes()]
                for piece in pieces:
                    entry.write(piece)
            told.append(array.as_json() | {"array": name, "array_dtype": kind.str})
        payload.rest()
    return told
