"""`ebbtide gc`: frees the disk space of checkpoints that can never be restored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import names, outcome


def gc(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The store's directory, or one with a store for each rank.")
    ],
    keep_last: Annotated[
        int | None,
        typer.Option(
            "--keep-last",
            metavar="N",
            min=1,
            max=outcome.MOST,
            help="In each history, remove versions older than the newest N intact ones; of what a Writer saved, steps.",
        ),
    ] = None,
    keep_every: Annotated[
        int | None,
        typer.Option(
            "--keep-every", metavar="K", min=1, max=outcome.MOST, help="With --keep-last: except multiples of K."
        ),
    ] = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Read everything, and remove damaged checkpoints.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and change nothing.")] = False,
    shared: outcome.Shared = None,
    json: outcome.Json = False,
) -> None:
    """Free the space of dropped, unfinished and replaced checkpoints, which can never be restored.

    Files without live checkpoints are removed, others get holes, and the index is rewritten. What snapshots need of
    dropped ones is packed anew where it is less than half.
    It takes the writer's lock. Damaged checkpoints stay unless --damaged is given. With --shared, both directories of a store
    are tidied, each by itself; parts of files and snapshots stay there, which the other directory may need.

    Exit code 0; 1: done, but something damaged stays, or could not be packed anew; 2: not done.
    """
    with outcome.exit_codes(json):
        from ebbtide import _core

        from .progress import bar
        from . import saves
        from .ranks import Told, each, no_summary, one_with, stores_in, tell_of_pools
        from .store import Damage

        if keep_every is not None and keep_last is None:
            raise outcome.Refused("--keep-every keeps some of what --keep-last removes: give that too")
        wanted = "checkpoints" if damaged or keep_last else None
        retired: list[str] = []
        if keep_last:
            with bar("reading what was saved by step", None) as advance:
                stores = dict.fromkeys(stores_in(directory), shared)
                retired = saves.retired(stores, keep_last, keep_every or 0, advance)

        def one_store(path: Path) -> Told:
            with bar(f"reading {wanted}" if wanted else "gc", None) as advance:
                done = _core.collect(
                    path, keep_last or 0, keep_every or 0, [saves.PREFIX], retired, damaged, dry_run, advance
                )
            damages = [Damage.of(raw) for raw in done["damages"]]
            document = _document(path, done, damages, dry_run)
            lines = [*_lines(document), *(damage.line() for damage in damages)]
            failed = any(one["failed"] for one in document["repacked"])
            return Told(document, lambda: outcome.say("\n".join(lines)), bool(damages) or failed)

        one_with(directory, shared)
        tell_of_pools(stores_in(directory))
        each(directory, json, one_store, no_summary, shared)


def _document(directory: Path, done: dict[str, Any], damages: list[Any], dry_run: bool) -> dict[str, Any]:
    removed = []
    for raw in done["removed"]:
        name = raw["history"]
        removed.append(raw | {"history": None if name is None else names.text_of(name)})
    return {
        "store": str(directory.absolute()),
        "dry_run": dry_run,
        "removed": removed,
        "repacked": [one | {"history": names.text_of(one["history"])} for one in done["repacked"]],
        "segments_removed": done["segments"],
        "left_over_removed": done["left_over"],
        "allocated_before": done["allocated_before"],
        "allocated_after": done["allocated_after"],
        "damaged": [damage.as_json() for damage in damages],
    }


_WHY = {
    "superseded": "replaced by a newer one",
    "retention": "older than the versions kept",
    "damaged": "damaged",
}


def _lines(document: dict[str, Any]) -> list[str]:
    from ebbtide import _core

    from .files import unfinished

    lines = []
    would = "would be " if document["dry_run"] else ""
    pieces: dict[str, list[int]] = {}
    for one in document["removed"]:
        if one["why"] == "unfinished":
            pieces.setdefault(unfinished(one["history"]), []).append(one["bytes"])
            continue
        name = "a record" if one["version"] is None else f"version {one['version']}"
        if one["history"] is not None:
            name += f" of history {names.shown(one['history'])}"
        lines.append(f"{would}removed: {name} ({_WHY[one['why']]})")
    for what, sizes in sorted(pieces.items()):
        many = f"{len(sizes)} piece{'s' * (len(sizes) != 1)}"
        lines.append(f"{would}removed: {many} of {what}, {_core.format_bytes(sum(sizes))}")
    for one in document["repacked"]:
        before, after = (_core.format_bytes(one[key]) for key in ("bytes_before", "bytes_after"))
        what = (
            f"snapshot {one['version']} of history {names.shown(one['history'])}, which is dropped: {before} stored, "
        )
        what += f"{after} needed by {one['needed_by']} others"
        lines.append(f"not packed anew: {what} ({one['failed']})" if one["failed"] else f"{would}packed anew: {what}")
    for path in document["segments_removed"]:
        lines.append(f"{would}removed: {names.line(path)}, which has no live checkpoints")
    before, after = document["allocated_before"], document["allocated_after"]
    lines.append(
        f"{_core.format_bytes(max(0, before - after))} {would}freed: "
        f"{_core.format_bytes(before)} on the disk before, {_core.format_bytes(after)} after"
    )
    return lines


command = gc
cls = outcome.Command
