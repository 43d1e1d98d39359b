"""Calls that wait for room in one thread, while another does something to what they were given."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import ebbtide
import numpy as np
from reliability import outcomes
from reliability.own import arrays, forks
from reliability.own.run import Run
from reliability.own.values import Entry, Value, value_of

HALF = 1 << 19
ACTIONS = ("overwrite", "clear", "replace", "let go", "fork", "collect", "close", "drop it", "drop all", "write it",
           "nothing")  # fmt: skip


def blocked(run: Run) -> None:
    """A store of one cache, full of two reservations: a checkpoint waits until one of them is given back."""
    place = run.area / "blocked"
    place.mkdir(exist_ok=True)
    store = ebbtide.open(str(place), device="cpu", device_cache="1MiB", host_cache=0, disk=0)
    held = [store.reserve(version, HALF, "u1") for version in (1, 2)]
    bundle = arrays.bundle(run.random, 1 << 12)
    reserves = run.random.random() < 0.2
    before = Value(bundle.structure, tuple(bundle.keys), bundle.leaves())
    ended: list[Any] = []

    def call() -> None:
        try:
            if reserves:
                ended.append(store.reserve(7, HALF, "u1", timeout=None))
            else:
                ended.append(store.checkpoint(7, bundle.object, timeout=None))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    until = time.monotonic() + 10
    while not store.calls_inside and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.0005)
    action = run.random.choice(ACTIONS)
    run.say(f"blocked: {'reserve' if reserves else 'checkpoint'}, and meanwhile: {action}")
    after = disturb(run, store, bundle, action)
    for one in held:
        one.abandon()
    thread.join(15)
    if thread.is_alive():
        return run.breach(outcomes.HANG, f"a call that waited for room does not end, after: {action}")
    judge(run, store, ended[0], action, [before, after], reserves)
    ended.clear()
    store.close()


def disturb(run: Run, store: Any, bundle: arrays.Bundle, action: str) -> Value:
    if action == "overwrite":
        bundle.overwrite(run.seed)
    after = Value(bundle.structure, tuple(bundle.keys), bundle.leaves())
    if action in ("clear", "let go") and isinstance(bundle.object, (list, dict)):
        bundle.object.clear()
    elif action == "replace" and isinstance(bundle.object, list):
        bundle.object[:] = [np.zeros(3)]
    if action == "let go":
        bundle.things.clear()
        bundle.object = None
    elif action == "fork":
        forks.fork(run)
    elif action == "close":
        store.close()
    elif action in ("drop it", "drop all"):
        run.attempt("  drop", lambda: store.drop(7 if action == "drop it" else None), may=(ebbtide.UnknownVersion,))
    elif action == "write it":
        run.attempt("  checkpoint 7", lambda: store.checkpoint(7, b"another"),
                    must=(ebbtide.VersionExists, ebbtide.NoSpace))  # fmt: skip
    gc.collect()
    return after


def judge(run: Run, store: Any, ended: Any, action: str, allowed: list[Value], reserves: bool) -> None:
    error = ended if isinstance(ended, BaseException) else None
    may = {"close": (ebbtide.Closed,), "drop it": (ebbtide.Dropped, ebbtide.UnknownVersion),
           "drop all": (ebbtide.Dropped, ebbtide.UnknownVersion)}.get(action, ())  # fmt: skip

    def result() -> None:
        if error is not None:
            raise error

    run.attempt("  the call that waited", result, may=may)
    if error is not None or reserves:
        return
    found, error = run.attempt("  restore 7", lambda: store.restore(7), may=may + (ebbtide.Consumed,) if may else ())
    if error is None:
        run.compare(f"written while it waited for room ({action})", Entry(allowed, mixed=True), value_of(found))
