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
    from .store import Checkpoint, Damage, Store
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


def files_named(store: Store, name: str, versions: Versions) -> list[StoredFile]:
    """The whole versions of a file that are wanted. Refuses what is not there."""
    there = [file for file in files_of(store) if file.name == name and file.whole]
    found = {file.version for file in there}
    missing = [str(version) for version in versions.named() if version not in found]
    if not there or missing:
        what = f"version {', '.join(missing)} of file" if there else "file"
        raise outcome.Refused(
            f"{store.directory}: there is no {what} {names.shown(name)}; `ebbtide ls` lists what exists",
            "unknown_version",
        )
    return [file for file in there if file.version in versions]


def _folder_of(file: StoredFile) -> str:
    return f"file-{names.file_name(names.bytes_of(file.name))}"


def refuse_existing_files(files: list[StoredFile], to: Path) -> None:
    """Refuses what would replace something."""
    for path in (to / _folder_of(file) / f"version-{file.version}" for file in files):
        if os.path.lexists(path):
            raise outcome.Refused(f"{path} exists already; --force overwrites it")


def export_files(
    store: Store, files: list[StoredFile], to: Path, force: bool, damages: list[Damage] | None = None
) -> list[dict[str, Any]]:
    """Writes OUT/file-NAME/version-N of each. What is damaged gets no name, and raises or is added to `damages`."""
    import ebbtide

    from .folder import Folder
    from .store import Damage

    if not files:
        return []
    if not force:
        refuse_existing_files(files, to)
    written = []
    with (
        ebbtide.open(
            store.directory, shared=store.shared, readonly=True, device="cpu", device_cache=0, host_cache=0
        ) as opened,
        Folder.at(to) as out,
    ):
        for file in files:
            try:
                with out.folder(_folder_of(file)) as inside:
                    size = _copy(opened, file.name, file.version, inside, force)
            except (ebbtide.Damaged, ebbtide.IOFailed) as error:
                if damages is None:
                    raise
                damages.append(Damage(str(store.directory), 0, str(error)))
                out.remove_if_empty(_folder_of(file))
                continue
            path = to / _folder_of(file) / f"version-{file.version}"
            written.append({"name": file.name, "version": file.version, "bytes": size, "path": str(path)})
    return written


def _copy(opened: Any, name: str, version: int, inside: Folder, force: bool) -> int:
    with opened.open_file(name, version) as file, inside.batch(force) as begin:
        out = begin(f"version-{version}")
        while piece := file.read(_COPIED):
            out.write(piece)
        return int(file.tell())
