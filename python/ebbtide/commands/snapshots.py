"""Snapshots: maps in the histories themselves, and pieces in hidden ones, which the commands show as what they restore."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import names

if TYPE_CHECKING:
    from .store import Checkpoint, Store

_PIECE = re.compile(r".*/\.ebbtide-snapshot/[0-9a-f]{16}-[0-9a-f]{16}/(?:0|[1-9]\d*)", re.DOTALL)


@dataclass(frozen=True)
class Snapshot:
    """A version that is a snapshot: `bytes` that it restores, `stored` of its own, and the versions that it needs."""

    history: str
    version: int
    bytes: int
    stored: int
    leans_on: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "history": self.history,
            "version": self.version,
            "bytes": self.bytes,
            "stored": self.stored,
            "leans_on": list(self.leans_on),
        }

    def line(self) -> str:
        """For a person."""
        from ebbtide import _core

        leans = f", leans on {', '.join(map(str, self.leans_on))}" if self.leans_on else ""
        of = f" of history {names.shown(self.history)}"
        return f"snapshot {self.version}{of}: restores {_core.format_bytes(self.bytes)}{leans}"


def is_piece(one: Checkpoint) -> bool:
    """Whether a checkpoint is a piece of a snapshot."""
    return _PIECE.fullmatch(one.history) is not None


def snapshots_of(store: Store, chosen: list[Checkpoint]) -> dict[int, Snapshot]:
    """By checkpoint index. What cannot be read is left out: it is damaged, or was dropped meanwhile."""
    import ebbtide

    if not any(is_piece(one) for one in store.checkpoints):
        return {}
    out = {}
    for one in chosen:
        if one.regions != 2 or is_piece(one):
            continue
        try:
            described = store.reader(one).describe()
        except (ebbtide.UnknownVersion, ebbtide.Damaged, ebbtide.IOFailed):
            continue
        if described["snapshot"]:
            restores = sum(size for _, size, _ in described["regions"])
            leans_on = tuple(described["leans_on"])
            out[one.index] = Snapshot(one.history, one.version, restores, described["bytes"], leans_on)
    return out
