"""What a store's directory holds, as plain values: the basis of every command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ebbtide import _core

from . import names


def time_text(ns: int) -> str | None:
    """ISO 8601, UTC, to the second; None for a time out of range."""
    try:
        return datetime.fromtimestamp(ns // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(frozen=True)
class Damage:
    """Something that is not as it was written; `history` and `version` if known."""

    file: str
    offset: int
    what: str
    history: str | None = None
    version: int | None = None
    whole_in: str | None = None  # the file with a whole copy of the checkpoint, in the store's other directory

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Damage:
        """From the extension module's dict."""
        history = raw["history"]
        return cls(
            raw["file"], raw["offset"], raw["what"], None if history is None else names.text_of(history), raw["version"]
        )

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "history": self.history,
            "version": self.version,
            "file": self.file,
            "offset": self.offset,
            "what": self.what,
        } | ({"whole_in": self.whole_in} if self.whole_in is not None else {})

    def line(self) -> str:
        """For a person."""
        whose = "" if self.version is None else f"version {self.version}"
        if self.history is not None:
            whose += f" of history {names.shown(self.history)}"
        begin = f"damaged: {whose}: " if whose else "damaged: "
        whole = "" if self.whole_in is None else f"; its copy in {names.line(self.whole_in)} is whole"
        return f"{begin}{names.line(self.file)}, offset {self.offset}: {names.line(self.what)}{whole}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that can be restored, or (`superseded`) one that a newer record replaced."""

    index: int  # among the inspection's records
    history: str
    version: int
    bytes: int
    regions: int
    written_ns: int
    file: str
    offset: int
    record_bytes: int
    superseded: bool
    shared: bool  # in the shared directory
    copy: bool  # there, of one that is in the directory itself

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "history": self.history,
            "version": self.version,
            "bytes": self.bytes,
            "written": time_text(self.written_ns),
            "written_ns": self.written_ns,
            "file": self.file,
            "offset": self.offset,
            "record_bytes": self.record_bytes,
        } | ({"shared": True} if self.shared else {})


class Store:
    """A store's directory. Nothing is written to it, and another process may be writing.

    shared: the store's shared directory; what only that one has is there too.
    """

    def __init__(self, directory: Path, shared: Path | None = None) -> None:
        self.inspection = _core.Inspection.of(directory, shared)
        self.shared = shared
        self.about: dict[str, Any] = self.inspection.summary()
        self.directory = Path(self.about["directory"])
        self.damages = [Damage.of(raw) for raw in self.about["damages"]]
        self.records = [
            Checkpoint(
                index,
                names.text_of(raw["history"]),
                raw["version"],
                raw["bytes"],
                raw["regions"],
                raw["written_ns"],
                raw["file"],
                raw["offset"],
                raw["record_bytes"],
                raw["superseded"],
                raw["shared"],
                raw["copy"],
            )
            for index, raw in enumerate(self.inspection.records())
        ]
        here = [record for record in self.records if not record.superseded and not record.copy]
        self.checkpoints = sorted(here, key=lambda one: (names.bytes_of(one.history), one.version)) if shared else here

    def place_of(self, checkpoint: Checkpoint) -> Path:
        """The checkpoint's file."""
        return Path(self.about["shared"] if checkpoint.shared else self.directory) / checkpoint.file

    def whole_beside(self, damage: Damage, intact: list[Checkpoint]) -> str | None:
        """The file in the other directory that has a damaged checkpoint whole, given what was found `intact`."""
        if self.shared is None or damage.version is None:
            return None
        for one in intact:
            if not one.superseded and (one.history, one.version) == (damage.history, damage.version):
                if self.place_of(one).parent != Path(damage.file).parent:
                    return str(self.place_of(one))
        return None

    def head(self) -> dict[str, Any]:
        """The beginning of every command's JSON document."""
        return {
            "store": str(self.directory),
            "id": self.about["id"].hex(),
            "format": self.about["format"],
            "durability": self.about["durability"],
            "created": time_text(self.about["created_ns"]),
        }

    def reader(self, checkpoint: Checkpoint) -> Any:
        """Reads and checks a checkpoint's header; raises if something is wrong with it."""
        return _core.RecordReader(self.inspection, checkpoint.index)
