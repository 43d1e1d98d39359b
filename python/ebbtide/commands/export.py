"""`ebbtide export`: checkpoints as files that need no Ebbtide."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import names, outcome
from .versions import Versions

if TYPE_CHECKING:
    from .store import Checkpoint, Damage, Store


class Form(str, Enum):
    """The values of `--format`."""

    files = "files"
    npz = "npz"


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The store's directory, or one with a store for each rank.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="OUT", help="Where the files go; created if necessary.")],
    history: Annotated[str | None, typer.Option("--history", metavar="NAME", help="Only this history.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="This file, as it was written.")] = None,
    versions: Annotated[str | None, typer.Option(metavar="LIST", help="Only these, such as '3,7,10..20'.")] = None,
    form: Annotated[Form, typer.Option("--format", help="One file per region, or NumPy archives.")] = Form.files,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    shared: outcome.Shared = None,
    alone: outcome.Alone = False,
    json: outcome.Json = False,
) -> None:
    """Write checkpoints as plain files, each with a page of JSON that describes it, and files as they were written.

    With --file only that file; of a directory of ranks each rank's below OUT, under its name. What a Writer saved goes
    by step: --versions names steps of it, and a step that was never finished is left out.

    Every byte is checked before its file gets its name; damaged checkpoints are named and left out. Nothing is written
    outside OUT.

    Exit code 0; 1: something is damaged, and was left out; 2: nothing could be done, or not all of it.
    """
    with outcome.exit_codes(json):
        from . import saves
        from .files import export_files, files_named, files_of, is_part, refuse_existing_files
        from .ranks import Told, each, looked_at
        from .snapshots import is_piece
        from .store import Store
        from .suspend import is_mark

        wanted = Versions.parse(versions)
        if file is not None and history is not None:
            raise outcome.Refused("--file and --history exclude each other: a file has a name of its own")
        stores = looked_at(directory, shared, alone)
        _refuse_inside([directory, *filter(None, stores.values())], to)
        several = len(stores) > 1
        steps = saves.listed(stores) if file is None and history is None else {}
        never = saves.unfinished(steps, len(stores))
        saved = {step: save for step, save in steps.items() if step in wanted and step not in never}

        def number(one: Checkpoint | Damage) -> int | None:
            """What --versions names: with --history the version, else of what a Writer saved the step."""
            step = saves.step_of(one.history) if history is None else None
            return one.version if step is None else step

        def is_wanted(one: Checkpoint) -> bool:
            named = number(one)
            return named is not None and named in wanted

        def one_store(path: Path) -> Told:
            store = Store(path, stores[path])
            out = to / path.name if several else to
            damages: list[Damage] = []
            if file is not None:
                written = export_files(store, files_named(store, file, wanted), out, force)
            else:
                chosen = [one for one in store.checkpoints if history in (None, one.history) and is_wanted(one)]
                files = []
                if history is None:  # pieces are in the snapshots and files that need them
                    chosen = [one for one in chosen if not is_piece(one) and not is_mark(one) and not is_part(one)]
                    chosen = [one for one in chosen if saves.step_of(one.history) not in never]
                    files = [one for one in files_of(store) if one.whole and one.version in wanted]
                damages = [damage for damage in store.damages if _concerns(damage, number(damage), history, wanted)]
                there = {one.version for one in files} | set(saved) | {number(one) for one in chosen}
                there |= {number(damage) for damage in damages}
                _require(store, there, damages, history, wanted)
                if files and not force:
                    refuse_existing_files(files, out)
                written = _write(store, chosen, damages, out, form.value, force)
                written += export_files(store, files, out, force, damages)
            document = store.head() | {"to": str(out), "written": written}
            document |= {"damaged": [damage.as_json() for damage in damages]}
            return Told(document, lambda: _show(written, damages, out), bool(damages))

        def summary(documents: list[Any]) -> list[str]:
            lines = [saves.line(step, save) for step, save in sorted(saved.items())]
            left_out = sorted(step for step in never if step in wanted)
            lines += [f"step {step} of DCP was never finished, and is left out" for step in left_out]
            return lines + saves.damaged_lines(documents)

        each(directory, json, one_store, summary)


def _concerns(damage: Damage, number: int | None, history: str | None, versions: Versions) -> bool:
    """All damage if everything is exported, else the damage known to be in what is."""
    if history is None and not versions.ranges:
        return True
    if number is None or number not in versions:
        return False
    return history is None or damage.history is None or damage.history == history


def _require(
    store: Store, there: set[int | None], damages: list[Damage], history: str | None, versions: Versions
) -> None:
    """Refuses names and versions that do not exist; without any, the store may be empty."""
    of = "" if history is None else f" of history {names.shown(history)}"
    missing = ", ".join(str(version) for version in versions.named() if version not in there)
    if history is not None and history not in {one.history for one in store.checkpoints} and not damages:
        what = f"history {names.shown(history)}"
    elif missing:
        what = f"version {missing}{of}"
    elif versions.ranges and not there:
        what = f"version{of} among these"
    else:
        return
    raise outcome.Refused(f"{store.directory}: there is no {what}; `ebbtide ls` lists what exists", "unknown_version")


def _write(
    store: Store, chosen: list[Checkpoint], damages: list[Damage], to: Path, form: str, force: bool
) -> list[dict[str, Any]]:
    import ebbtide

    from .folder import Folder
    from .progress import bar
    from .store import Damage
    from .writing import folder_name, put, written_name

    written = []
    with Folder.at(to) as out, bar("export", sum(one.bytes for one in chosen)) as advance:
        if not force:
            for one in chosen:
                _refuse_existing(to / folder_name(one), one, form)
        done = 0

        def tell(count: int) -> None:
            nonlocal done
            done += count
            if advance:
                advance(done)

        def attempt(one: Checkpoint) -> Damage | None:
            reader = None
            try:
                reader = store.reader(one)
                described = reader.describe()
                if described["snapshot"]:
                    one = replace(one, bytes=sum(size for _, size, _ in described["regions"]))
                with out.folder(folder_name(one)) as folder:
                    put(folder, one, reader, form, force, tell)
            except ebbtide.UnknownVersion:
                return None  # dropped by a process that writes
            except (ebbtide.Damaged, ebbtide.IOFailed) as error:
                out.remove_if_empty(folder_name(one))
                if reader is not None:
                    return Damage.of(reader.trouble())
                return Damage(str(store.place_of(one)), one.offset, str(error), one.history, one.version)
            path = to / folder_name(one) / written_name(one, form)
            written.append({"history": one.history, "version": one.version, "bytes": one.bytes, "path": str(path)})
            return None

        copies = {(one.history, one.version): one for one in store.records if one.copy and not one.superseded}
        for one in chosen:
            damage = attempt(one)
            if damage is not None and (copy := copies.get((one.history, one.version))):
                damage = attempt(copy)  # in the shared directory
            if damage is not None:
                damages.append(damage)
    return written


def _refuse_inside(directories: list[Path], to: Path) -> None:
    place = to.resolve()
    given = {directory.resolve() for directory in directories}
    for path in (place, *place.parents):
        if path in given or (path / "store").is_file():
            raise outcome.Refused(f"{to} is inside the store {path}: name another place")


def _refuse_existing(folder: Path, one: Checkpoint, form: str) -> None:
    import os

    from .folder import is_left_over
    from .writing import page_name, written_name

    path = folder / written_name(one, form)
    if not os.path.lexists(path):
        return
    page = folder / page_name(one, form)
    if path.is_dir() and not path.is_symlink() and all(map(is_left_over, os.listdir(path))):
        return  # none of its files has a name yet
    unfinished = "" if os.path.lexists(page) else f" (it has no {page.name}: an export was interrupted)"
    raise outcome.Refused(f"{path} exists already; --force overwrites it{unfinished}")


def _show(written: list[dict[str, Any]], damages: list[Damage], to: Path) -> None:
    from ebbtide import _core

    files = sum("name" in one for one in written)
    counts = [(len(written) - files, "checkpoint"), (files, "file")]
    what = " and ".join(
        f"{n} {kind}{'s' * (n != 1)}" for n, kind in counts if n or (kind == "checkpoint" and not files)
    )
    size = _core.format_bytes(sum(one["bytes"] for one in written))
    outcome.say(f"{what} written to {names.line(str(to))}, {size}")
    if damages:
        outcome.say("\n".join(damage.line() for damage in damages))


command = export
cls = outcome.Command
