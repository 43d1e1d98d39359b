"""Measures a figure, row by row."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from ..._machine.device import aligned
from .. import contest, shot
from ..config import Config
from ..peers import PEERS
from .figure import Cell, Figure, Labels, Place, Scale, Shots, Values

OURS = "score"


def document(key: str, figure: Figure, scale: Scale, gpu: str = "") -> dict[str, Any]:
    """Without rows yet. gpu: its model; "": on processors."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    kind: dict[str, Any] = {}
    if isinstance(figure, Values):
        kind = {"y": figure.y, "computed": figure.computed}
    elif isinstance(figure, Shots):
        kind = {"by_iteration": figure.by_iteration}
    return {
        "figure": key,
        "what": figure.what,
        "paper": figure.paper,
        "differs": figure.differs,
        "x": figure.x,
        **kind,
        "scale": scale.name,
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "system": system}
        | ({"gpu": gpu} if gpu else {}),
        "rows": [],
    }


def earlier(there: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any] | None:
    """What an earlier run has measured of the same figure, to be added to; None: it is another."""
    same = all(there.get(name) == fresh[name] for name in ("figure", "scale", "what"))
    return there if same and there["machine"].get("gpu") == fresh["machine"].get("gpu") else None


def chosen(figure: Shots, scale: Scale, place: Place, only: Labels) -> list[Cell]:
    """The places that have all labels of `only`. Raises ValueError where no place has one of them."""
    cells = figure.cells(scale, place)
    for name, value in only.items():
        known = list(dict.fromkeys(label for cell in cells for label in cell.labels))
        if (name, value) not in known:
            raise ValueError(f"{name}={value} is not known; known are {', '.join(f'{a}={b}' for a, b in known)}")
    return [cell for cell in cells if only.items() <= dict(cell.labels).items()]


def measure(
    figure: Figure,
    scale: Scale,
    place: Place,
    peers: list[str] | None,
    only: Labels,
    limit: float,
    say: Callable[[str], None],
    measured: Callable[[dict[str, Any]], None],
) -> None:
    """`measured` gets one row after another, each of one turn. peers: these alone, beside the store. only: the places that
    have these labels. limit: seconds for one turn."""
    if isinstance(figure, Values):
        for labels, value in figure.values(scale, place, say):
            measured({"labels": labels, "values": [value]})
    elif isinstance(figure, Shots):
        _shots(figure, scale, place, peers, only, limit, say, measured)


def _shots(
    figure: Shots,
    scale: Scale,
    place: Place,
    peers: list[str] | None,
    only: Labels,
    limit: float,
    say: Callable[[str], None],
    measured: Callable[[dict[str, Any]], None],
) -> None:
    cells = chosen(figure, scale, place, only)
    if figure.opening:
        touch(2 * max(cell.config.ranks * cell.config.host_cache for cell in cells))
    for cell in cells:
        words = ", ".join(f"{name} {value}" for name, value in cell.labels)
        say(words)
        beside = [key for key in cell.peers if peers is None or key in peers]
        row = {"labels": dict(cell.labels), "bytes": sum(map(sum, cell.config.sizes)) // cell.config.ranks}
        if cell.config.ranks > 1 or figure.by_iteration:
            for key in (OURS, *beside):
                measured(row | _together(cell.config, key, figure))
            continue

        def in_its_place(one: dict[str, Any], row: dict[str, Any] = row) -> None:
            for turn in one["turns"] if figure.opening else ():
                turn["checkpoint_s"] += turn["open_s"]
                turn["blocked_s"] += turn["open_s"]
            measured(row | {name: one[name] for name in ("peer", "ours", "failed", "turns")})

        tell = partial(_tell, say, words)
        contest.run(cell.config, [OURS, *beside], limit, say=tell, measured=in_its_place)


def _tell(say: Callable[[str], None], words: str, text: str) -> None:
    say(f"{words}: {text}")


def touch(size: int) -> None:
    """Writes to so many bytes of memory, or half of what is free, and frees them: a virtual machine gets its memory at the
    first use, which would count against whoever comes first."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    piece = 256 << 20
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        kept = list(threads.map(lambda _: aligned(piece), range(min(size, pages // 2) // piece)))
    del kept


def _together(config: Config, key: str, figure: Shots) -> dict[str, Any]:
    """A shot of several ranks, or one whose every restore counts: with the store, as the peer `key` opens it."""
    found = shot.run(replace(config, options=PEERS[key].options))
    opening = found["open_s"] if figure.opening else 0.0
    turn: dict[str, Any] = {
        "blocked_s": opening + found["total"]["blocked_s"] / config.ranks,
        "checkpoint_s": opening + sum(found["checkpoint"]["blocked_s"]) / config.ranks,
        "restore_s": sum(found["restore"]["blocked_s"]) / config.ranks,
        "bound_s": found["bound"]["blocked_s"] / config.ranks,
        "wrong": found["verified"]["wrong"],
    }
    if figure.by_iteration:
        turn["restores_s"], turn["prefetch_distance"] = (
            found["restore"][name] for name in ("blocked_s", "prefetch_distance")
        )
    return {"peer": key, "ours": PEERS[key].ours, "failed": None, "turns": [turn]}


def add(found: dict[str, Any], row: dict[str, Any]) -> None:
    """A row's turns beside those that are there of it; a failure stands only as long as no turn has ended well."""
    for there in found["rows"]:
        if there.get("peer") != row.get("peer") or there["labels"] != row["labels"]:
            continue
        if found.get("computed"):
            there["values"] = row["values"]
        elif "values" in row:
            there["values"] += row["values"]
        else:
            there["turns"] += row["turns"]
            there["failed"] = None if there["turns"] else row["failed"]
        return
    found["rows"].append(row)
