"""Sizes and times as people write them on a command line; the grammar is that of the store's own options."""

from __future__ import annotations

import re

_SIZE = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_TIME = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_LONGEST = 1e9  # seconds that anything is slept
_DIGITS = 100
_FORM = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


def _split(text: str, units: dict, right: str) -> tuple[str, float]:
    form = _FORM.fullmatch(text)
    unit = units.get(form[2].lower()) if form else None
    if unit is None:
        raise ValueError(f"{text!r} is not {right}")
    return form[1], unit


def parse_size(text: str) -> int:
    """``"128MiB"``, ``"1.5GB"``, ``"4096"`` to bytes; ValueError says what would be right."""
    number, unit = _split(text, _SIZE, "a size such as '128MiB', '1.5GB' or '4096'")
    if len(number) > _DIGITS:
        raise ValueError(f"a number of {len(number)} digits is no size below 8 EiB")
    size = int(number) * unit if number.isdigit() else round(float(number) * unit)
    if size >= 1 << 63:
        raise ValueError(f"{text!r} is not a size below 8 EiB")
    return size


def parse_time(text: str) -> float:
    """``"10ms"``, ``"2s"``, ``"0.5"`` (seconds) to seconds; ValueError says what would be right."""
    number, unit = _split(text, _TIME, "a time such as '10ms', '2s' or '0.5' (seconds)")
    if len(number) > _DIGITS or float(number) * unit > _LONGEST:
        raise ValueError(f"{text[:_DIGITS]!r} is longer than {_LONGEST:.0e} seconds")
    return float(number) * unit


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
        if abs(seconds) * factor >= 1 or unit == "µs":
            return (
                f"{seconds * factor:.3g} {unit}" if abs(seconds) * factor < 1000 else f"{seconds * factor:.0f} {unit}"
            )
    raise AssertionError


def format_rate(bytes_per_s: float | None) -> str:
    """1.5e9 to ``"1.5 GB/s"``."""
    return "-" if not bytes_per_s else f"{bytes_per_s / 1e9:.3g} GB/s"
