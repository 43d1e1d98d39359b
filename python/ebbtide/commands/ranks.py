"""The stores of a directory: itself, or those of a job's ranks in it, which a command goes through one after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from . import names, outcome


@dataclass
class Told:
    """What a command has to say of one store: a JSON document, and how to show it to a person."""

    document: dict[str, Any]
    show: Callable[[], None]
    damaged: bool


def stores_in(directory: Path) -> list[Path]:
    """The directory, if it is a store; else the stores in it, `rank-2` before `rank-10`. Refuses one that has neither."""
    if (directory / "store").exists() or not directory.is_dir() or not any(directory.iterdir()):
        return [directory]
    found = [one for one in directory.iterdir() if (one / "store").is_file() and not one.is_symlink()]
    by_number = sorted(
        found, key=lambda one: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", one.name)]
    )
    if not by_number:
        other = names.shown(min(one.name for one in directory.iterdir()))
        raise outcome.Refused(
            f"{directory}: there are other files in it ({other}), and no store, nor is one in a directory of it",
            "not_a_store",
        )
    return sorted(by_number, key=lambda one: re.sub(r"\d+", "", one.name))


def missing_ranks(directory: Path) -> list[Path]:
    """The stores that are not there, of a directory that says how many ranks wrote it (its file `ranks`)."""
    try:
        count = int((directory / "ranks").read_text())
    except (OSError, ValueError):
        return []
    places = [directory / f"rank-{rank}" for rank in range(count)]
    return [place for place in places if not (place / "store").is_file()]


_ID_AT = 16  # of the store's id in its file `store` (docs/format.md)


def shared_of(directory: Path) -> Path | None:
    """The shared directory that a store's file `pair` names, if that names the store back: the run may have gone on in
    another local directory since. Refuses one whose shared directory is not there: what is local may be a part."""
    ours = _pair(directory)
    if ours is None or ours[2:] != ["local"]:
        return None
    shared = Path(ours[1])
    if not os.path.exists(shared / "store"):
        raise outcome.Refused(
            f"{directory}: its shared directory {shared} is not there, or cannot be read, and may have more: mount it, name "
            "it with --shared if it was moved, or look at this one with --alone",
            "io_error",
        )
    theirs = _pair(shared)
    return shared if theirs is not None and theirs[:1] == [_store_id(directory)] else None


def tell_of_pools(stores: Iterable[Path]) -> None:
    """Says where else versions may be: of a node's pool, the local directory has those of all ranks, and each rank has a
    shared directory of its own."""
    for store in stores:
        marks = [_pair(store, mark.name) for mark in sorted(store.glob("pair.*")) if mark.suffix != ".new"]
        below = [mark[1] for mark in marks if mark is not None and mark[2:] == ["local"]]
        if below:
            outcome.complain(
                f"ebbtide: {store} is the local directory of a node's pool. Its ranks have shared directories, which may have "
                f"more: {', '.join(map(names.shown, below))}. Name them as well"
            )


def _pair(directory: Path, mark: str = "pair") -> list[str] | None:
    try:
        return (directory / mark).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None


def _store_id(directory: Path) -> str:
    try:
        return (directory / "store").read_bytes()[_ID_AT : _ID_AT + 16].hex()
    except OSError:
        return ""


def looked_at(directory: Path, shared: Path | None, alone: bool) -> dict[Path, Path | None]:
    """The stores of a directory, each with the shared directory to look at as well: the one that was given or, unless
    `alone`, that of the store."""
    if shared is not None and alone:
        raise outcome.Refused("--alone and --shared exclude each other")
    one_with(directory, shared)
    found = shared is None and not alone
    stores = {store: shared_of(store) if found else shared for store in stores_in(directory)}
    if found:
        tell_of_pools(stores)
    return stores


def one_with(directory: Path, shared: Path | None) -> None:
    """Refuses a shared directory beside several stores: it is one store's."""
    if shared is not None and len(stores_in(directory)) > 1:
        raise outcome.Refused(
            f"--shared names the shared directory of one store, and {directory} has several: name one"
        )


def each(
    directory: Path,
    json: bool,
    command: Callable[[Path], Told],
    summary: Callable[[list[Any]], list[str]],
    beside: Path | None = None,
    missing: list[Path] | None = None,
) -> None:
    """Runs it on each store, and ends as the worst of them does. `summary`: lines about all documents.

    beside: on this one too. missing: stores that are not there, which is damage.
    """
    stores = stores_in(directory) + ([] if beside is None else stores_in(beside))
    documents, damaged = [], False
    for store in stores:
        told = command(store)
        if not json:
            if len(stores) > 1:
                outcome.say(f"{store.name}:")
            told.show()
        documents.append(told.document)
        damaged |= told.damaged
    for store in missing or []:
        if not json:
            outcome.say(f"{store.name}: missing: its directory has no store, so no version is whole")
        documents.append({"store": str(store.absolute()), "intact": False, "missing": True})
        damaged = True
    if json:
        outcome.show_json(documents[0] if len(documents) == 1 else {"directory": str(directory), "stores": documents})
    else:
        for line in summary(documents):
            outcome.say(line)
    if damaged:
        raise typer.Exit(outcome.DAMAGED)


def no_summary(documents: list[Any]) -> list[str]:
    """Of a command that says all of each store."""
    return []
