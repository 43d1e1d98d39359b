"""Sizes, times and rates as people write and read them, and what is said of several of one kind."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from . import _core
from .errors import InvalidArgument

_TIME = {
    "": 1.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "y": 365.25 * 86400,
}
_LONGEST = 1e9  # seconds that anything is slept
_DIGITS = 100
_FORM = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """``"128MiB"``, ``"1.5GB"``, ``"4096"`` to bytes, as the store's own options; ValueError says what would be right."""
    try:
        return _core.parse_bytes("size", text)
    except InvalidArgument:
        right = "a size such as '128MiB', '1.5GB' or '4096', below 8 EiB"
        raise ValueError(f"{text[:_DIGITS]!r} is not {right}") from None


def parse_time(text: str, longest: float = _LONGEST) -> float:
    """``"10ms"``, ``"2s"``, ``"0.5"`` (seconds) to seconds; ValueError says what would be right."""
    form = _FORM.fullmatch(text)
    unit = _TIME.get(form[2].lower()) if form else None
    if form is None or unit is None:
        raise ValueError(f"{text!r} is not a time such as '10ms', '2s' or '0.5' (seconds)")
    if len(form[1]) > _DIGITS or float(form[1]) * unit > longest:
        raise ValueError(f"{text[:_DIGITS]!r} is longer than {longest:.0e} seconds")
    return float(form[1]) * unit


def parse_time_with_unit(text: str) -> float:
    """As `parse_time`, but a number alone is refused unless it is 0: whoever writes 1 may mean a second or 1 ms."""
    seconds, bare = parse_time(text), text.strip()
    if seconds and not bare[-1].isalpha():
        raise ValueError(f"{bare[:_DIGITS]!r} has no unit: write '{bare}ms' or '{bare}s'")
    return seconds


def format_size(count: float) -> str:
    """4294967296 to ``"4 GiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def format_time(seconds: float) -> str:
    """0.0123 to ``"12.3 ms"``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = abs(seconds) * factor
        if value >= 1 or unit == "µs":
            return f"{seconds * factor:.{'3g' if value < 1000 else '0f'}} {unit}"
    raise AssertionError


def format_rate(bytes_per_s: float | None) -> str:
    """1.5e9 to ``"1.5 GB/s"``."""
    return "-" if not bytes_per_s else f"{bytes_per_s / 1e9:.3g} GB/s"


def median(values: Sequence[float]) -> float | None:
    """None of no values."""
    return statistics.median(values) if values else None


def mean(values: Sequence[float]) -> float:
    """0 of no values."""
    return statistics.fmean(values) if values else 0.0
