"""What a case left, looked at by another process: opened, read and verified, with its forked children still alive."""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import ebbtide
from reliability import outcomes
from reliability.own.run import Run
from reliability.own.values import Entry


def look(seed: int, area: Path) -> None:
    """Writes `verdict` into the case's directory."""
    left = pickle.loads((area / "report").read_bytes())
    run = Run(seed, left["theme"], area)
    run.model, run.options, run.hurt = left["model"], left["options"], left["hurt"]
    run.lines, run.breaches, run.told = left["lines"], left["breaches"], left["told"]
    run.say(f"another process, after it was {left['ended']}")
    after(run, left["ended"], left["missing_dir"])
    run.judge()


def verified(run: Run) -> tuple[int | None, str]:
    """The exit code of `ebbtide verify`, and what it printed."""
    import typer
    from ebbtide.commands.verify import verify

    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
        try:
            verify(run.directory, json=True)
            code: int | None = 0
        except typer.Exit as ended:
            code = ended.exit_code
    run.say(f"verify: {code}")
    return code, text.getvalue()


def after(run: Run, ended: str, missing_dir: bool) -> None:
    code, text = verified(run)
    if code and not run.hurt:
        run.breach(outcomes.OLDER_EXACT, f"verify ends with {code}: {text[-300:]}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store, _ = run.attempt("open again", lambda: ebbtide.open(**run.options),
                               may=(ebbtide.Unsupported,) if run.hurt else ())  # fmt: skip
        if store is None:
            return
        run.store = store
        names = {key[0] for key in run.model.entries} | {key[0] for key in run.model.past} | {""}
        for name in sorted(names):
            history(run, name, ended, told=code == 1 or bool(caught) or missing_dir)
        run.attempt("close again", store.close)
    if caught and not run.hurt:
        run.breach(outcomes.OLDER_EXACT, f"a warning without a cause: {caught[0].message}")


def history(run: Run, name: str, ended: str, told: bool) -> None:
    found, error = run.attempt(f"versions of {name[:9]!r}", run.history(name).versions)
    if error is not None:
        return
    entries, keep = run.model.of(name), run.model.retained(name)
    for version, entry in entries.items():
        what = f"history {name[:9]!r} version {version}"
        if version in found:
            read(run, name, version, entry, ended)
        elif entry.hurt:
            if entry.reported and ended == "closed" and not told and version in keep:
                unnamed = "is gone with a file, and neither opening nor verify names it"
                run.breach(outcomes.SILENT_WRONG, f"{what} {unnamed}")
        elif version in keep and not entry.maybe and (entry.reported or ended == "closed"):
            told_so = "was reported durable" if entry.reported else "was written, and closing was fine"
            run.breach(outcomes.SILENT_WRONG, f"{what} {told_so}, and is not there; there are {found[:9]}")
    reported = [version for version, entry in entries.items() if entry.reported and not entry.hurt and not entry.maybe]
    if reported and (not found or max(found) < max(reported)):
        newest = max(found, default=None)
        run.breach(outcomes.SILENT_WRONG, f"the newest of history {name[:9]!r} is {newest}, not {max(reported)}")
    for version in set(found) - set(entries):
        past = run.model.past.get((name, version))
        if ended == "killed" and past:
            read(run, name, version, Entry(past, hurt=run.hurt), ended)
        elif not (run.hurt and ended == "not closed"):  # then the drop may be what could not be written
            run.breach(outcomes.SILENT_WRONG, f"history {name[:9]!r} version {version} was dropped, and is there")
    if ended == "closed" and run.model.keep_last and not run.hurt and (more := set(found) - keep):
        run.breach(outcomes.SILENT_WRONG, f"retention left {sorted(more)[:9]}, and keeps {sorted(keep)[:9]}")


def read(run: Run, name: str, version: int, entry: Entry, ended: str) -> None:
    may: Any = (ebbtide.Damaged, ebbtide.IOFailed, ebbtide.Lost) if entry.hurt else ()
    found, error = run.attempt(f"restore {name[:9]!r} {version}", lambda: run.history(name).restore(version), may=may)
    if error is None:
        if ended == "killed" and not entry.reported:
            entry = Entry(entry.allowed + run.model.past.get((name, version), []), entry.mixed)
        run.compare(f"restore of {name[:9]!r} {version}", entry, found)
