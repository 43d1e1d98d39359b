"""One check and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Level(str, Enum):
    """ok: nothing to do. note: it works, but not as well as it could. change: something is broken or much too slow."""

    ok = "ok"
    note = "note"
    change = "change"


@dataclass(frozen=True)
class Finding:
    """`advice` is one line that says exactly what to do; all but ok have it. `values` are the numbers, in SI units."""

    name: str
    text: str
    level: Level = Level.ok
    advice: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.level is Level.ok) == bool(self.advice):
            raise ValueError(f"{self.name}: a finding has advice if, and only if, it is not ok")

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"level": self.level.value}


def ok(name: str, text: str, /, **values: Any) -> Finding:
    """Nothing to do."""
    return Finding(name, text, values=values)


def note(name: str, text: str, advice: str, /, **values: Any) -> Finding:
    """What is checked works, but not as well as it could."""
    return Finding(name, text, Level.note, advice, values)


def change(name: str, text: str, advice: str, /, **values: Any) -> Finding:
    """Something is broken or much too slow."""
    return Finding(name, text, Level.change, advice, values)
