"""`ebbtide ls`: lists a store, from its headers only."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import names, outcome

if TYPE_CHECKING:
    from .files import StoredFile
    from .store import Checkpoint, Store


def ls(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The store's directory, or one with a store for each rank.")
    ],
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Regions, places, and the use of each file.")
    ] = False,
    history: Annotated[str | None, typer.Option("--history", metavar="NAME", help="Only this history.")] = None,
    shared: outcome.Shared = None,
    alone: outcome.Alone = False,
    json: outcome.Json = False,
) -> None:
    """List a store's checkpoints (history, version, size and when each was written) and its files.

    Headers are read and checked, payloads are not (`ebbtide verify` does). Another process may be writing.

    Exit code 0; 1: something is damaged, and named; 2: the store could not be read.
    """
    with outcome.exit_codes(json):
        from . import saves
        from .ranks import Told, each, looked_at
        from .store import Store

        stores = looked_at(directory, shared, alone)

        def one_store(path: Path) -> Told:
            store = Store(path, stores[path])
            chosen = [one for one in store.checkpoints if history is None or one.history == history]
            regions = _regions(store, chosen) if verbose else {}
            document = _document(store, chosen, regions, verbose)
            return Told(document, lambda: _show(store, chosen, regions, verbose), bool(store.damages))

        each(directory, json, one_store, saves.lines)


def _regions(store: Store, chosen: list[Checkpoint]) -> dict[int, list[dict[str, Any]]]:
    """Regions by checkpoint index. Damage found now is noted; checkpoints dropped meanwhile have no entry."""
    import ebbtide

    from .arrays import arrays_of
    from .store import Damage

    out = {}
    for one in chosen:
        try:
            out[one.index] = [array.as_json() for array in arrays_of(store.reader(one).describe())]
        except ebbtide.UnknownVersion:
            continue
        except (ebbtide.Damaged, ebbtide.IOFailed) as error:
            file = str(store.place_of(one))
            store.damages.append(Damage(file, one.offset, str(error), one.history, one.version))
    return out


def _document(store: Store, chosen: list[Checkpoint], regions: dict[int, Any], verbose: bool) -> dict[str, Any]:
    from .files import files_of
    from .snapshots import snapshots_of
    from .store import time_text
    from .suspend import is_mark

    checkpoints = []
    for one in chosen:
        values = one.as_json()
        if verbose:
            values["regions"] = regions.get(one.index)
        checkpoints.append(values)
    return store.head() | {
        "checkpoints": checkpoints,
        "bytes": sum(one.bytes for one in chosen),
        "files": [dataclasses.asdict(file) for file in files_of(store)],
        "snapshots": [snapshot.as_json() for snapshot in snapshots_of(store, chosen).values()],
        "suspended": next((time_text(one.version) for one in store.checkpoints if is_mark(one)), None),
        "superseded": len(store.records) - len(store.checkpoints),
        "segments": store.about["segments"],
        "damaged": [damage.as_json() for damage in store.damages],
        "left_over": store.about["left_over"],
        "other_files": store.about["others"],
    }


def _show(store: Store, chosen: list[Checkpoint], regions: dict[int, Any], verbose: bool) -> None:
    from ebbtide import _core

    from .files import files_of, is_part
    from .saves import step_of
    from .snapshots import is_piece, snapshots_of
    from .store import time_text
    from .suspend import is_mark

    whole = len(chosen) == len(store.checkpoints)  # no history was asked for
    if whole and not verbose:
        chosen = [one for one in chosen if not is_part(one) and not is_piece(one) and not is_mark(one)]
        chosen = [one for one in chosen if step_of(one.history) is None]
    snapshots = snapshots_of(store, chosen)
    sizes = {one.index: snapshots[one.index].stored if one.index in snapshots else one.bytes for one in chosen}
    rows = [["HISTORY", "VERSION", "SIZE", "WRITTEN"] + (["FILE", "OFFSET"] if verbose else [])]
    for one in chosen:
        row = [
            names.shown(one.history),
            str(one.version),
            _core.format_bytes(sizes[one.index]),
            time_text(one.written_ns) or "?",
        ]
        file = str(store.place_of(one)) if one.shared else one.file
        rows.append(row + ([file, str(one.offset)] if verbose else []))
    widths = [max(map(len, column)) for column in zip(*rows)]
    right = {1, 2, 5}
    lines = []
    for number, row in enumerate(rows):
        cells = [
            text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
        for region in regions.get(chosen[number - 1].index, []) if number else []:
            lines.append(f"    {_region_line(region)}")
    histories = len({one.history for one in chosen})
    allocated = sum(segment["allocated"] for segment in store.about["segments"])
    lines.append(
        f"{len(chosen)} checkpoint{'s' * (len(chosen) != 1)} in {histories} histor{'y' if histories == 1 else 'ies'}, "
        f"{_core.format_bytes(sum(sizes.values()))}; "
        f'durability "{store.about["durability"]}", {_core.format_bytes(allocated)} on the disk'
    )
    lines += [snapshot.line() for snapshot in snapshots.values()]
    lines += _stored_files(files_of(store)) if whole else []
    lines += [f"suspended at {time_text(one.version)}" for one in store.checkpoints if whole and is_mark(one)]
    if verbose:
        lines += _file_lines(store)
    outcome.say("\n".join([*lines, *(damage.line() for damage in store.damages)]))


def _stored_files(files: list[StoredFile]) -> list[str]:
    from ebbtide import _core

    lines = []
    for file in files:
        whole = "" if file.whole else ", never closed"
        lines.append(
            f"file {names.shown(file.name)}, version {file.version}: {_core.format_bytes(file.bytes)} in {file.pieces} "
            f"piece{'s' * (file.pieces != 1)}{whole}"
        )
    return lines


def _region_line(region: dict[str, Any]) -> str:
    from ebbtide import _core

    text = f"region {region['id']}: {_core.format_bytes(region['bytes'])} at {region['offset']}"
    if region["dtype"] is not None:
        text += f", {names.line(region['dtype'])} {tuple(region['shape'])}"
    if region["key"] is not None:
        key = region["key"]
        text += f", key {key if isinstance(key, int) else names.shown(key)}"
    return text


def _file_lines(store: Store) -> list[str]:
    from ebbtide import _core

    lines = []
    for segment in store.about["segments"]:
        parts = [f"{segment['checkpoints']} checkpoints", f"live {_core.format_bytes(segment['live'])}"]
        for kind in ("superseded", "dropped", "gaps", "damaged", "unused"):
            if segment[kind]:
                parts.append(f"{kind} {_core.format_bytes(segment[kind])}")
        parts.append(f"{_core.format_bytes(segment['allocated'])} on the disk")
        lines.append(f"{segment['file']}: {', '.join(parts)}")
    for name in store.about["left_over"]:
        lines.append(f"{names.shown(name)}: left over from a crash, without meaning")
    for name in store.about["others"]:
        lines.append(f"{names.shown(name)}: not a store's file")
    return lines


command = ls
cls = outcome.Command
