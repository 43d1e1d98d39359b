"""Children forked at any point, who live on for as long as the case does, each with the parent's store in its hands."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from random import Random

import ebbtide
import numpy as np
from reliability import outcomes
from reliability.own.run import Run

WAYS = ("stays", "stays", "lets go", "closes", "calls", "writes to views", "forks again", "executes", "ends")


def fork(run: Run) -> None:
    """One child; what it finds wrong it says in a file, which the parent reads at the end of the case."""
    way = run.random.choice(WAYS)
    run.say(f"  forked: a child that {way}")
    if way == "executes":
        run.children.append(subprocess.Popen(["sleep", "100"], close_fds=run.random.random() < 0.5).pid)
        return
    seed, number = run.random.getrandbits(32), len(run.children)
    told, done = os.pipe()
    pid = os.fork()
    if pid:
        os.close(done)
        os.read(told, 1)  # it has done what it does
        os.close(told)
        run.children.append(pid)
        return
    try:
        os.close(told)
        child(run, way, Random(seed), number)
    except BaseException as error:
        complain(run, number, f"{type(error).__name__}: {error}")
    finally:
        os.write(done, b"\n")
        while way != "ends":
            signal.pause()
        os._exit(0)


def complain(run: Run, number: int, what: str) -> None:
    (run.area / f"child-{number}").write_text(what)


def child(run: Run, way: str, random: Random, number: int) -> None:
    if way == "lets go":
        run.store = run.reader = None
        run.views.clear()
        gc.collect()
    elif way == "closes" and run.store is not None:
        try:
            run.store.close()
        except ebbtide.Error:
            pass
    elif way == "calls" and run.store is not None:
        calls = (lambda: run.store.checkpoint(10**6, np.arange(4)), lambda: run.store.restore(0),
                 lambda: run.store.wait("device"), lambda: run.store.borrow(0))  # fmt: skip
        try:
            random.choice(calls)()
            complain(run, number, "a call in a child went well")
        except ebbtide.Error:
            pass
    elif way == "writes to views":
        for view in run.views:
            scrawl(view)
    elif way == "forks again" and os.fork() == 0:
        while True:
            signal.pause()


def scrawl(view: object) -> bool:
    """Writes to it, if it lets itself be written to."""
    if getattr(view, "nbytes", 1) == 0:
        return False
    try:
        if isinstance(view, np.ndarray):
            straight = view if view.flags.c_contiguous else view.T
            straight.reshape(-1).view(np.uint8)[...] ^= 0xFF
        elif isinstance(view, memoryview):
            flat = view.cast("B")
            flat[:] = bytes(byte ^ 0xFF for byte in flat)
        else:
            view.zero_().add_(77)  # type: ignore[attr-defined]
    except (ValueError, TypeError, RuntimeError, AttributeError):
        return False
    return True


def complaints(run: Run) -> None:
    for path in sorted(run.area.glob("child-*")):
        run.breach(outcomes.SILENT_WRONG, f"a forked child: {path.read_text()}")
