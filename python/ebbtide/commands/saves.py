"""What `ebbtide.torch.Writer` saved, by step: its parts are in the stores of all ranks, and what makes them one in rank 0's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREFIX = "dcp/"  # of the names of its histories
_OF_SAVE = re.compile(PREFIX + r"(?P<step>-?\d+)(?P<parts>/\d+)?", re.ASCII)


@dataclass
class Save:
    """One step, as far as it was seen."""

    ranks: set[str] = field(default_factory=set)
    histories: set[str] = field(default_factory=set)
    bytes: int = 0
    whole: bool = False
    damaged: bool = False


def step_of(history: str | None) -> int | None:
    """The step that a history is of; None: of none."""
    found = _OF_SAVE.fullmatch(history or "")
    return int(found["step"]) if found else None


def steps_of(checkpoints: Iterable[tuple[str, str, int, bool]]) -> dict[int, Save]:
    """Of checkpoints: their store, their history, their bytes, and whether they are intact."""
    steps: dict[int, Save] = {}
    for store, history, size, intact in checkpoints:
        if not (found := _OF_SAVE.fullmatch(history)):
            continue
        step = steps.setdefault(int(found["step"]), Save())
        step.ranks.add(store)
        step.histories.add(history)
        step.bytes += size
        step.whole |= found["parts"] is None
        step.damaged |= not intact
    return steps


def listed(stores: Mapping[Path, Path | None]) -> dict[int, Save]:
    """The steps of all ranks, and what is listed of each. stores: with their shared directories."""
    from .store import Store

    return steps_of(
        (str(path), one.history, one.bytes, True)
        for path, shared in stores.items()
        for one in Store(path, shared).checkpoints
    )


def unfinished(steps: dict[int, Save], stores: int) -> set[int]:
    """Those that were never finished. A rank other than 0 alone does not show which steps are whole."""
    tells = stores > 1 or any(save.whole for save in steps.values())
    return {step for step, save in steps.items() if tells and not save.whole}


def lines(documents: list[Any]) -> list[str]:
    """For a person, of the documents of `ebbtide ls`."""
    steps = steps_of(
        (document["store"], one["history"], one["bytes"], True)
        for document in documents
        for one in document["checkpoints"]
    )
    never = unfinished(steps, len(documents))
    return [line(step, save) + (", never finished" if step in never else "") for step, save in sorted(steps.items())]


def line(step: int, save: Save) -> str:
    """For a person."""
    from ebbtide import _core

    return (
        f"step {step} of DCP: {_core.format_bytes(save.bytes)} in {len(save.ranks)} rank{'s' * (len(save.ranks) != 1)}"
    )


def damaged_lines(documents: list[Any]) -> list[str]:
    """For a person, of the documents of `ebbtide verify`."""
    ranks: dict[int, set[str]] = {}
    for document in documents:
        for one in document["damaged"]:
            if (step := step_of(one["history"])) is not None:
                ranks.setdefault(step, set()).add(Path(document["store"]).name)
    return [f"step {step} of DCP is damaged, in {', '.join(sorted(of))}" for step, of in sorted(ranks.items())]


def retired(
    stores: Mapping[Path, Path | None], keep_last: int, keep_every: int, advance: Callable[[int], Any] | None
) -> list[str]:
    """The histories of the steps older than the newest `keep_last` that are whole and intact in all ranks. stores: with
    their shared directories; what is intact in either counts."""
    from .store import Store

    found: list[tuple[str, str, int, bool]] = []
    for path, shared in stores.items():
        store = Store(path, shared)
        if any(damage.history is None for damage in store.damages):
            return []  # which may be of any step
        intact = {(damage.history or "", damage.version): (0, False) for damage in store.damages}
        has_steps = any(step_of(one.history) is not None for one in store.checkpoints)
        for one, verdict in zip(store.records, store.inspection.verify(advance) if has_steps else []):
            if not one.superseded and not intact.get((one.history, one.version), (0, False))[1]:
                intact[one.history, one.version] = (one.bytes, verdict["verdict"] == "intact")
        found += [(str(path), history, size, right) for (history, _), (size, right) in intact.items()]
    steps = steps_of(found)
    good = sorted(step for step, save in steps.items() if save.whole and not save.damaged)
    if len(good) < keep_last:
        return []
    oldest = good[-keep_last]
    spared = {step for step, save in steps.items() if keep_every and save.whole and step % keep_every == 0}
    goes = [save for step, save in steps.items() if step < oldest and step not in spared]
    return sorted(name for save in goes for name in save.histories)
