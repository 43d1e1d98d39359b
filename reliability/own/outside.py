"""What others do to a store's files while it is open, a second store that reads beside the writer, and a small disk."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import ebbtide
from reliability import outcomes
from reliability.own import arrays, steps
from reliability.own.run import Run
from reliability.own.values import Entry, Value, value_of

HARMLESS = ("a stray file", "index removed", "directory renamed and back", "lock read")
REFUSED = ("lock removed", "lock replaced")  # nothing is lost by it, and nothing more is reported durable
HARMFUL = ("segment removed", "segment removed", "segment renamed", "segment moved away", "segment linked and removed",
           "segment replaced by a copy", "segment replaced by nothing", "directory renamed", "directory removed",
           "directory replaced by a copy", "directory replaced by an empty one", "directory moved, a link in its place",
           "segments removed", "segment exchanged with another store's")  # fmt: skip


def disturb(run: Run) -> None:
    """Between two calls, with transfers under way or none; then more is written, and waited for."""
    if not run.kept or run.hurt:
        return
    if run.random.random() < 0.4:
        run.attempt(f"wait {run.level}", lambda: run.store.wait(run.level), may=run.full())
        run.report("", list(run.model.of("")))
    change(run)
    for _ in range(run.random.randrange(4)):
        steps.checkpoint(run, hooked=False)
    if run.random.random() < 0.7:
        steps.wait(run)


def change(run: Run) -> None:
    """Once in a case, between two calls or in the midst of one."""
    if not run.kept or run.hurt:
        return
    kind = run.random.choice(HARMLESS + REFUSED if run.random.random() < 0.2 else HARMFUL)
    segments = sorted(run.directory.glob("segment-*"))
    if kind.startswith("segment") and not segments:
        return
    run.say(f"from outside: {kind}")
    one = run.random.choice(segments) if segments else run.directory / "none"
    run.hurt = kind not in HARMLESS
    if kind in HARMFUL:
        run.missing_dir = kind.startswith("directory")
        for entry in run.model.entries.values():
            entry.hurt = True
    hurt(run, kind, one, segments)


def hurt(run: Run, kind: str, one: Path, segments: list[Path]) -> None:
    place, away = run.directory, run.area / "away"
    if kind == "a stray file":
        (place / "notes.txt").write_text("somebody's")
    elif kind == "index removed":
        (place / "index").unlink(missing_ok=True)
    elif kind == "lock removed":
        (place / "lock").unlink()
    elif kind == "lock replaced":
        (run.area / "lock").write_bytes((place / "lock").read_bytes())
        os.replace(run.area / "lock", place / "lock")
    elif kind == "lock read":
        os.close(os.open(place / "lock", os.O_RDONLY))
    elif kind == "directory renamed and back":
        place.rename(away)
        away.rename(place)
    elif kind == "segments removed":
        for path in segments:
            path.unlink()
    elif kind == "segment removed":
        one.unlink()
    elif kind == "segment renamed":
        one.rename(one.with_name("backup-" + one.name))
    elif kind == "segment moved away":
        one.rename(run.area / "moved")
    elif kind == "segment linked and removed":
        os.link(one, run.area / "linked")
        one.unlink()
    elif kind == "segment replaced by a copy":
        shutil.copy2(one, run.area / "copy")
        os.replace(run.area / "copy", one)
    elif kind == "segment replaced by nothing":
        (run.area / "copy").touch(0o600)
        os.replace(run.area / "copy", one)
    elif kind == "segment exchanged with another store's":
        options = run.options | {"directory": str(run.area / "other")}
        with ebbtide.open(**options) as other:
            other.checkpoint(0, b"of another")
        os.replace(sorted((run.area / "other").glob("segment-*"))[0], one)
    else:
        directory(kind, place, away)


def directory(kind: str, place: Path, away: Path) -> None:
    if kind == "directory removed":
        shutil.rmtree(place)
        return
    place.rename(away)
    if kind == "directory replaced by a copy":
        shutil.copytree(away, place)
    elif kind == "directory replaced by an empty one":
        place.mkdir(mode=0o700)
    elif kind == "directory moved, a link in its place":
        place.symlink_to(away)


def read_beside(run: Run) -> None:
    """A second store reads what this one writes: what was reported, as it is now, without being told to look."""
    if not run.kept or run.hurt:
        return
    if run.reader is None:
        mine = {key: one for key, one in run.options.items() if not key.startswith("keep_")}
        run.reader, _ = run.attempt("open to read", lambda: ebbtide.open(**(mine | {"readonly": True})))
        if run.reader is None:
            return
    name = run.pick_history()
    if run.random.random() < 0.6:
        anew(run, name)
    for _ in range(run.random.randrange(1, 4)):
        look(run, name)


def anew(run: Run, name: str) -> None:
    """The writer drops a version, which the reader may have in its caches, and writes it again."""
    known = list(run.model.of(name))
    if run.model.keep_last and known:
        return steps.checkpoint(run, hooked=False)
    version = run.random.choice(known) if known else run.new_version(name)
    history = run.history(name)
    if known:
        if run.random.random() < 0.7:
            look(run, name, version)
        _, error = run.attempt(f"drop {name[:9]!r} {version}", lambda: history.drop(version),
                               may=run.absent(name, version))  # fmt: skip
        if error is None:
            run.forget(name, version)
    bundle = arrays.bundle(run.random, 1 << 12)
    known_now = (name, version) in run.model.entries
    _, error = run.attempt(f"checkpoint {name[:9]!r} {version}",
                           lambda: history.checkpoint(version, bundle.object, timeout=steps.patience(run)),
                           may=run.full() + ((ebbtide.VersionExists,) if known_now else ()))  # fmt: skip
    if error is None:
        run.put(name, version, [steps.value(bundle)])
        if run.random.random() < 0.8:
            _, error = run.attempt("wait", lambda: history.wait(run.level, version), may=run.full())
            if error is None:
                run.report(name, [version])
    look(run, name, version)


def look(run: Run, name: str, version: int | None = None) -> None:
    history = run.reader if name == "" else run.reader.history(name)
    known = list(run.model.of(name))
    if version is None and not known:
        return
    version = run.random.choice(known) if version is None else version
    entry = run.model.entries.get((name, version))
    sure = entry is not None and entry.reported and not entry.maybe and version in run.model.retained(name)
    sure = sure and not entry.hurt  # its file may be gone
    may: Any = () if sure else steps.GONE
    how = run.random.choice(["restore", "restore", "async", "borrow", "versions", "latest"])
    tells = f"the reader: {how} {name[:9]!r} {version}"
    if how == "latest":
        found, error = run.attempt(tells, history.latest)
        of_name = run.model.of(name).items()
        certain = [one for one, other in of_name if other.reported and not other.maybe and not other.hurt]
        if error is None and certain and (found is None or found < max(certain)):
            run.breach(outcomes.SILENT_WRONG, f"{tells}: {found}, not {max(certain)}")
        return
    if how == "versions":
        found, error = run.attempt(tells, history.versions)
        if error is None and sure and version not in found:
            run.breach(outcomes.SILENT_WRONG, f"{tells}: it is not among {found[:9]}")
        return

    def call() -> Value:
        if how == "borrow":
            with history.borrow(version, timeout=0.5) as lent:
                return value_of(lent)
        return value_of(history.restore(version) if how == "restore" else history.restore_async(version).result(20))

    more: Any = (ebbtide.TooLarge, ebbtide.NoSpace, ebbtide.Unsupported) if how == "borrow" else ()
    found, error = run.attempt(tells, call, may=may + more)
    if error is None:
        allowed = list(entry.allowed) if entry else []
        past = [] if sure else run.model.past.get((name, version), [])
        if found in past and entry is not None and sure:
            run.breach(outcomes.SILENT_WRONG, f"{tells}: what it held before")
        elif found not in past:
            run.compare(tells, Entry(allowed + past, bool(entry and entry.mixed)) if allowed + past else None, found)


def burst(run: Run) -> None:
    """Checkpoints as fast as they come, on a disk that holds what retention keeps and one more."""
    size = int(run.options["disk"]) // 4 if not run.model.keep_last else run.burst_bytes
    array = arrays.bits(run.random, (size // 4,))
    more: dict[str, Any] = {"timeout": 1.0 if run.tight else None} if run.random.random() < 0.6 else {}
    for _ in range(run.random.randrange(3, 25)):
        version = run.new_version("")
        array[:] = version
        value = value_of(array)
        call = functools.partial(run.store.checkpoint, version, array, **more)
        _, error = run.attempt(f"checkpoint {version} of {size} bytes, {more}", call, may=run.full())
        if error is not None:
            return
        run.put("", version, [value])
        array[:] = -1
        if run.random.random() < 0.05:
            steps.drop(run)
