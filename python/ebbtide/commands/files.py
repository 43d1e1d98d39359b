"""A store's files: rows of checkpoints, which the commands show and export as what was written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import names, outcome

if TYPE_CHECKING:
    from .folder import Folder
    from .store import Checkpoint, Store
    from .versions import Versions

_PART = re.compile(r"(?P<name>.*)/\.ebbtide-file/(?P<version>-?(?:0|[1-9]\d*))/(?P<part>[^/]*)", re.DOTALL)
_COPIED = 4 << 20  # bytes at once


@dataclass
class StoredFile:
    """A version of a file; `bytes` as stored, without the zeros at the ends of pieces."""

    name: str
    version: int
    bytes: int = 0
    pieces: int = 0
    whole: bool = False  # it was closed


def is_part(one: Checkpoint) -> bool:
    """Whether a checkpoint is a piece of a file, or its record."""
    return _PART.fullmatch(one.history) is not None


def unfinished(history: str) -> str:
    """What a piece that `gc` removes was a part of."""
    part = _PART.fullmatch(history)
    if part is None:
        return "snapshots that are gone"
    return f"version {part['version']} of file {names.shown(part['name'])}, which was never closed"


def files_of(store: Store) -> list[StoredFile]:
    """By name and version; also those that were never closed."""
    found: dict[tuple[str, int], StoredFile] = {}
    for one in store.checkpoints:
        part = _PART.fullmatch(one.history)
        if part is None:
            continue
        key = (part["name"], int(part["version"]))
        file = found.setdefault(key, StoredFile(*key))
        if part["part"] == "record":
            file.whole = True
        else:
            file.bytes += one.bytes
            file.pieces += 1
    return [found[key] for key in sorted(found)]


def export_files(store: Store, name: str, versions: Versions, to: Path, force: bool) -> list[dict[str, Any]]:
    """Writes OUT/file-NAME/version-N of each whole version that is wanted. What is damaged raises, and gets no name."""
    import ebbtide

    from .folder import Folder

    there = [file.version for file in files_of(store) if file.name == name and file.whole]
    missing = [str(version) for version in versions.named() if version not in there]
    if not there or missing:
        what = f"version {', '.join(missing)} of file" if there else "file"
        raise outcome.Refused(
            f"{store.directory}: there is no {what} {names.shown(name)}; `ebbtide ls` lists what exists",
            "unknown_version",
        )
    folder = f"file-{names.file_name(names.bytes_of(name))}"
    chosen = [version for version in there if version in versions]
    for version in chosen:
        if not force and os.path.lexists(to / folder / f"version-{version}"):
            raise outcome.Refused(f"{to / folder / f'version-{version}'} exists already; --force overwrites it")
    written = []
    with (
        ebbtide.open(store.directory, readonly=True, device="cpu", device_cache=0, host_cache=0) as opened,
        Folder.at(to) as out,
        out.folder(folder) as inside,
    ):
        for version in chosen:
            size = _copy(opened, name, version, inside, force)
            path = to / folder / f"version-{version}"
            written.append({"name": name, "version": version, "bytes": size, "path": str(path)})
    return written


def _copy(opened: Any, name: str, version: int, inside: Folder, force: bool) -> int:
    with opened.open_file(name, version) as file, inside.batch(force) as begin:
        out = begin(f"version-{version}")
        while piece := file.read(_COPIED):
            out.write(piece)
        return int(file.tell())
