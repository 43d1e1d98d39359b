"""The option `--versions`: which versions a command is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import outcome


@dataclass(frozen=True)
class Versions:
    """The versions of `--versions`: ranges, both ends included; a single version must exist."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """``"3,7,10..20"``; None: all. An error says what is expected."""
        ranges: list[tuple[int, int]] = []
        if text is None:
            return cls()
        for part in text.split(","):
            form = re.fullmatch(r"\s*(-?\d{1,19})\s*(?:\.\.\s*(-?\d{1,19})\s*)?", part, re.ASCII)
            if form is None:
                raise outcome.Refused(f"--versions: {part!r} is neither a version nor a range such as '10..20'")
            first = int(form[1])
            ranges.append((first, int(form[2]) if form[2] else first))
        return cls(tuple(ranges))

    def __contains__(self, version: int) -> bool:
        return not self.ranges or any(first <= version <= last for first, last in self.ranges)

    def named(self) -> list[int]:
        """The versions that are listed on their own."""
        return [first for first, last in self.ranges if first == last]
