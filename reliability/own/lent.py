"""Memory that a store lends: reservations and loans, and the views of it that a program keeps."""

from __future__ import annotations

import gc
from typing import Any

import ebbtide
import numpy as np
from reliability import outcomes
from reliability.own import arrays, forks
from reliability.own.run import Run
from reliability.own.values import Value, leaf_of

VIEWS = ("itself", "slice", "memoryview", "reshape", "bytes", "frombuffer", "transposed", "torch", "dlpack", "ctypes",
         "ravel")  # fmt: skip


def view_of(run: Run, array: Any) -> Any:
    """Another object over the same memory, made in one of the ways that there are."""
    kind = run.random.choice(VIEWS)
    run.say(f"  a view: {kind}")
    if not isinstance(array, np.ndarray):
        return array[...] if kind == "slice" else array.reshape(-1) if kind == "reshape" else array
    ways: dict[str, Any] = {
        "slice": lambda: array[: max(1, len(array) // 2)] if array.ndim else array[...],
        "memoryview": lambda: memoryview(array),
        "reshape": lambda: array.reshape(-1), "bytes": lambda: array.reshape(-1).view(np.uint8),
        "frombuffer": lambda: np.frombuffer(array, np.uint8), "transposed": lambda: array.T,
        "torch": lambda: arrays.module("torch").from_numpy(array) if arrays.module("torch") else array,
        "dlpack": lambda: np.from_dlpack(array), "ravel": lambda: array.ravel(),
        "ctypes": lambda: np.ctypeslib.as_array(np.ctypeslib.as_ctypes(array.reshape(-1).view(np.uint8))),
    }  # fmt: skip
    return ways.get(kind, lambda: array)()


def reserve(run: Run, most: int = 1 << 15) -> None:
    """Computes into the store's own memory, keeps views, and goes on writing through them where they let it."""
    name = run.pick_history()
    version = run.new_version(name)
    shape = arrays.shape_of(run.random, most)
    dtype = run.random.choice(["<f4", "<f8", "|u1", "<i4"])
    like = "torch" if arrays.module("torch") and run.random.random() < 0.25 and 0 not in shape else None
    history = run.history(name)
    held, error = run.attempt(f"reserve {name[:9]!r} {version} {shape} {dtype} {like}",
                              lambda: history.reserve(version, shape, dtype, timeout=0.5, like=like),
                              may=run.full())  # fmt: skip
    if error is not None:
        return
    array, contents = held.array, arrays.bits(run.random, shape, dtype)
    if isinstance(array, np.ndarray):
        array[...] = contents
    else:
        array.copy_(arrays.module("torch").from_numpy(contents))
    keeps = [view_of(run, array) for _ in range(run.random.choice([0, 1, 1, 2]))]
    run.views += keeps
    if run.random.random() < 0.15:
        forks.fork(run)
    if run.random.random() < 0.5:
        del array
    if run.random.random() < 0.2:
        run.attempt("  abandon", held.abandon)
    else:
        before = Value("single", (), (leaf_of(contents),))
        _, error = run.attempt("  commit", held.commit)
        if error is None:
            run.put(name, version, [before])
    del held
    if run.random.random() < 0.7:
        late_writes(run)


def late_writes(run: Run) -> None:
    """Writes through every old view that lets itself be written to: no checkpoint may show it."""
    for view in run.views:
        if isinstance(view, Lent):
            view.check(run)
        else:
            run.say(f"  a late write to a {type(view).__name__}: {'done' if forks.scrawl(view) else 'refused'}")


def let_go(run: Run) -> None:
    """Some of the views that are left."""
    for _ in range(run.random.randrange(3)):
        if run.views:
            run.views.pop(run.random.randrange(len(run.views)))
    gc.collect()
    run.say(f"let go: {len(run.views)} views are left")


class Lent:
    """A view of what was borrowed: it shows the same for as long as it lives."""

    def __init__(self, view: Any, shows: bytes, what: str) -> None:
        self.view, self.shows, self.what = view, shows, what

    def check(self, run: Run) -> None:
        if np.asarray(self.view).tobytes() != self.shows:
            run.breach(outcomes.SILENT_WRONG, f"a view of {self.what}, which was borrowed, shows something else")


def borrow(run: Run) -> None:
    name = run.pick_history()
    version = run.pick_version(name)
    entry = run.model.entries.get((name, version))
    history, keep = run.history(name), run.random.random() < 0.6
    what = f"{name[:9]!r} {version}"
    may = run.absent(name, version) + run.full() + (ebbtide.TooLarge, ebbtide.NoSpace, ebbtide.Unsupported)
    loan, error = run.attempt(f"borrow {what}", lambda: history.borrow(version, keep=keep, timeout=0.5), may=may)
    if error is not None:
        return
    found, error = run.attempt("  its arrays", lambda: loan.arrays, may=(ebbtide.Unsupported,))
    if error is not None:
        return loan.release(keep=True)
    run.compare(f"borrow {what}", entry, found)
    leaves = list(found.values()) if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else [found]
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and forks.scrawl(leaf):
            run.breach(outcomes.SILENT_WRONG, f"what was borrowed of {what} can be written to")
        try:
            if isinstance(leaf, np.ndarray) and leaf.size:
                leaf.flags.writeable = True
                run.breach(outcomes.SILENT_WRONG, f"what was borrowed of {what} lets itself be made writable")
        except ValueError:
            pass
    if run.random.random() < 0.5 and isinstance(leaves[0], np.ndarray) and leaves[0].size:
        view = leaves[0].reshape(-1)[:50]
        run.views.append(Lent(view, view.tobytes(), what))
        del view
    if run.random.random() < 0.15:
        forks.fork(run)
    found = leaves = leaf = None
    _, error = run.attempt("  release", lambda: loan.release(keep=keep))
    loan = None
    if error is None and not keep and not run.kept:
        if run.hinted or run.views:
            run.model.entries[name, version].maybe = True
        else:
            run.forget(name, version)


def late(run: Run) -> None:
    """Later, when the memory may belong to another checkpoint, and again after that one was flushed."""
    if run.random.random() < 0.5:
        run.attempt(f"wait {run.lowest}", lambda: run.store.wait(run.lowest), may=run.full())
    late_writes(run)
