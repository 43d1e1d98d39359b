"""`ebbtide verify`: compares every byte of a store's checkpoints with its checksum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import names, outcome

if TYPE_CHECKING:
    from .ranks import Told


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The store's directory, or one with a store for each rank.")
    ],
    shared: outcome.Shared = None,
    alone: outcome.Alone = False,
    json: outcome.Json = False,
) -> None:
    """Read all of a store and check it: headers, payloads, the index, and that they agree.

    Each damaged checkpoint is named, with its file, the offset and what is wrong. Another process may be writing:
    what it drops meanwhile is not damage, and what it adds is not read.

    Exit code 0: all is intact; 1: something is damaged; 2: the store could not be read.
    """
    with outcome.exit_codes(json):
        from . import saves
        from .ranks import each, looked_at, missing_ranks

        stores = looked_at(directory, shared, alone)
        goes_on = json or len(stores) > 1
        missing = missing_ranks(directory)
        goes_on = goes_on or bool(missing)
        each(
            directory,
            json,
            lambda path: _one(path, stores[path], goes_on),
            lambda documents: saves.damaged_lines([one for one in documents if "missing" not in one]),
            missing=missing,
        )


def _one(directory: Path, shared: Path | None, goes_on: bool) -> Told:
    from ebbtide import Damaged

    from .ranks import Told
    from .store import Damage, Store

    try:
        store = Store(directory, shared)
    except Damaged as error:  # the file `store`: without it, nothing else can be read
        if not goes_on:
            raise
        damage = Damage(str(directory.absolute() / "store"), 0, str(error))
        broken = {"store": str(directory.absolute()), "intact": False, "damaged": [damage.as_json()]}
        return Told(broken, lambda: outcome.say(damage.line()), True)
    counts = _read(store)
    document = store.head() | {
        "intact": not store.damages,
        **counts,
        "damaged": [damage.as_json() for damage in store.damages],
        "left_over": store.about["left_over"],
        "other_files": store.about["others"],
    }
    return Told(document, lambda: _show(document, [damage.line() for damage in store.damages]), bool(store.damages))


def _read(store: Any) -> dict[str, int]:
    """Adds damage to the store's damages; counts the rest."""
    from .files import is_part
    from .progress import bar
    from .snapshots import is_piece
    from .store import Damage
    from .suspend import is_mark

    with bar("verify", sum(one.record_bytes for one in store.records)) as advance:
        verdicts = store.inspection.verify(advance)
    told = {(damage.file, damage.offset) for damage in store.damages}
    whole = [one for one, verdict in zip(store.records, verdicts) if verdict["verdict"] == "intact"]
    intact = list(
        {(one.history, one.version): one for one in whole if not one.superseded}.values()
    )  # in either directory
    pieces = sum(is_part(one) or is_piece(one) or is_mark(one) for one in intact)
    for verdict in verdicts:
        if verdict["verdict"] not in ("damaged", "unreadable"):
            continue
        damage = Damage.of(verdict)
        if (damage.file, damage.offset) not in told:
            store.damages.append(damage)
    store.damages = [replace(damage, whole_in=store.whole_beside(damage, whole)) for damage in store.damages]
    return {
        "checkpoints": len(intact) - pieces,
        "pieces": pieces,
        "bytes": sum(one.bytes for one in intact),
        "superseded": sum(one.superseded for one in whole),
        "dropped_meanwhile": sum(verdict["verdict"] == "gone" for verdict in verdicts),
    }


def _show(document: dict[str, Any], damages: list[str]) -> None:
    from ebbtide import _core

    count, pieces = document["checkpoints"], document["pieces"]
    of = f" and {pieces} piece{'s' * (pieces != 1)} of files and snapshots" if pieces else ""
    outcome.say(f"{count} checkpoint{'s' * (count != 1)}{of} intact, {_core.format_bytes(document['bytes'])}")
    if document["dropped_meanwhile"]:
        outcome.say(f"{document['dropped_meanwhile']} were dropped meanwhile")
    if damages:
        outcome.say("\n".join(damages))
    for name in document["left_over"]:
        outcome.say(f"note: {names.shown(name)}: left over from a crash, without meaning")
    for name in document["other_files"]:
        outcome.say(f"note: {names.shown(name)}: not a store's file")


command = verify
cls = outcome.Command
