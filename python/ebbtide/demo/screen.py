"""The live display of the demo: a bar for each pass, and how full each of the store's tiers is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from .._units import format_size

_LOOK_EVERY = 0.1  # seconds between two calls of the store's statistics


class Screen:
    """A live display: `with Screen(console) as screen`.

    Thread safety: bars may be advanced from any thread; the store is looked at by one.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), console=console
        )
        self._tiers = Progress(
            TextColumn("in the store: {task.description:6}"),
            BarColumn(complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.fields[usage]}"),
            console=console,
        )
        self._tier_bars: dict[str, Any] = {}
        self._looked = 0.0
        self._live = Live(Group(self._bars, self._tiers), console=console, refresh_per_second=8)

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(*error)
        if not self._console.is_terminal:  # there the display is printed once, without an end of line
            self._console.line()

    def bar(self, description: str, steps: int) -> Callable[[], None]:
        """A bar of `steps` steps; call the returned function after each."""
        bar = self._bars.add_task(description, total=steps)

        def advance() -> None:
            self._bars.advance(bar)

        return advance

    def look(self, store: Any) -> None:
        """Shows the bytes on each tier of `store`; cheap to call often."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        for tier in store.stats()["tiers"]:
            name = tier["name"]
            if name not in self._tier_bars:
                self._tier_bars[name] = self._tiers.add_task(name, total=tier["capacity"], usage="")
            usage = f"{format_size(tier['used'])} of {format_size(tier['capacity'])}"
            self._tiers.update(self._tier_bars[name], completed=tier["used"], total=tier["capacity"], usage=usage)

    def forget_store(self) -> None:
        """Removes the tiers: their store is closed."""
        for bar in self._tier_bars.values():
            self._tiers.remove_task(bar)
        self._tier_bars.clear()
