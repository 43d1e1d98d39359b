"""The same shot with the store and with each of its peers: a process, a directory and a time limit for each row."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from .._machine.device import select
from . import model, rates, shot
from .config import Config
from .peers import PEERS, About, Given, open_peer
from .progress import nothing
from .rank import Arrays, Job, Outcome, play

_PREFIX = "ebbtide-peers-"


def run(
    config: Config,
    keys: Sequence[str],
    limit: float,
    cold: bool = True,
    repeats: int = 1,
    say: Callable[[str], None] = lambda text: None,
    measured: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """A document with a row for each of `keys`, keys of PEERS, in that order.

    config: of one rank. limit: seconds for a turn of a row, after which its process is killed. cold: files are read from
    the disk; otherwise whatever memory is free may hold them. repeats: turns, in each of which all rows have one. A row
    that could not be measured says why in `failed`; the others are run all the same. Bare rates are taken before and
    after each turn of a row, and its `bound_s` is computed from their mean; then `measured` gets the row.
    """
    say("measuring the bare machine")
    before = first = rates.measure(config)
    rows: dict[str, dict[str, Any]] = {key: _empty_row(key) for key in keys}
    with _own_directory(config.directory) as place:
        for turn in range(repeats):
            for key, row in rows.items():
                if row["failed"]:
                    continue
                say(f"{key}, turn {turn + 1} of {repeats}: {row['what']}")
                (directory := place / f"{turn}-{key}").mkdir()
                said = _in_a_process(config, PEERS[key], directory, cold, limit)
                shutil.rmtree(directory, ignore_errors=True)
                after = rates.measure(config)
                if isinstance(said, str):
                    row["failed"] = said
                else:
                    row["turns"].append(_turn(config, said, rates.mean(before, after)))
                before = after
                measured(row)
    return {
        "config": config.as_json() | {"cold": cold, "limit_s": limit, "repeats": repeats},
        "machine": {
            "before": first.as_json(),
            "after": before.as_json(),
            "drift": rates.drift(first, before),
            "steady": shot.drifted(first, before)[1],
            "cpus": os.cpu_count(),
        },
        "rows": list(rows.values()),
    }


def _empty_row(key: str) -> dict[str, Any]:
    about = PEERS[key]
    return {"peer": key, "what": about.what, "ours": about.ours, "stores": about.stores, "failed": None, "turns": []}


def _turn(config: Config, out: Outcome, bare: dict[str, float]) -> dict[str, Any]:
    checkpoints, restores = sum(out.checkpoint_s), sum(out.restore_s)
    return {
        "blocked_s": checkpoints + restores,
        "checkpoint_s": checkpoints,
        "restore_s": restores,
        "wall_s": out.wall_s,
        "open_s": out.open_s,
        "bound_s": model.least(config, [out], bare)["blocked_s"],
        "wrong": out.wrong,
    }


# --- one row ----------------------------------------------------------------------------------------------------------


def _in_a_process(config: Config, about: About, directory: Path, cold: bool, limit: float) -> Outcome | str:
    """Why it failed, where it did."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    job = replace(shot.jobs(config)[0], verify=config.verify and about.gives_back)
    process = context.Process(target=_child, args=(job, about, directory, cold, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            return f"it did not end within {limit:g} s"
        said = ours.recv()
        process.join(limit)
        return said
    except EOFError:
        process.join()
        return f"its process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _end_with_parent() -> None:
    wait([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
    os._exit(1)


def _child(job: Job, about: About, directory: Path, cold: bool, pipe: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        said: Outcome | str = play_peer(job, about, directory, cold)
    except ImportError as error:
        said = f"not installed: {error}"
    except BaseException as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}"
    pipe.send(said)


def play_peer(job: Job, about: About, directory: Path, cold: bool) -> Outcome:
    """One shot through a peer, in this process."""
    device = select(job.device, job.rank)
    with device.use():
        arrays = Arrays(device, job.rank, len(job.sizes), max(job.sizes))

        def compute(version: int, steps: int) -> Any:
            time.sleep(steps * job.interval)
            return arrays.contents.of(version, job.sizes[version])

        given = Given(device, directory, job.sizes, job.order, cold, job.store, compute)
        start = time.perf_counter()
        with contextlib.closing(open_peer(about, given)) as peer:
            open_s = time.perf_counter() - start
            out = play(peer, peer, job, arrays, nothing)
    out.open_s = open_s
    return out


# --- its directory ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _own_directory(parent: Path) -> Iterator[Path]:
    """Removed at the end. What a run that was killed has left there is removed first."""
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _lock(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    place, lock = _made(parent)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _made(parent: Path) -> tuple[Path, int | None]:
    """A new directory with its lock, or without where the file system has none: then no other run removes it either."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            lock = _lock(place)
        except (BlockingIOError, FileNotFoundError):  # another run takes it for a left one
            continue
        except OSError:
            return place, None
        if place.exists():
            return place, lock
        os.close(lock)


def _lock(place: Path) -> int:
    """A descriptor that holds it. Raises OSError: BlockingIOError while another process has it."""
    file = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file
