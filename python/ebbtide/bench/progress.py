"""The bar of a shot, on a terminal alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

Advance = Callable[[], None]
_EVERY = 0.2  # seconds between two pictures of it


def nothing() -> None:
    pass


@contextlib.contextmanager
def calls(console: Any, count: int) -> Iterator[Advance]:
    """A bar of `count` calls; call what it gives after each. It is drawn by the caller's thread, in the time that the
    program computes: a thread of its own would count as the store's work."""
    if not console.is_terminal:
        yield nothing
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("shot", total=count)
        done, drawn = 0, 0.0

        def advance() -> None:
            nonlocal done, drawn
            if done == count:  # the shot is run once more
                done = 0
            done += 1
            bar.update(task, completed=done)
            if time.monotonic() - drawn >= _EVERY or done == count:
                bar.refresh()
                drawn = time.monotonic()

        yield advance
