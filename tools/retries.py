"""Tells a test that is flaky from one that is broken: what failed runs again, twice and alone.

A test that passes both times is flaky. A run names it in its last lines and in build/flaky.txt, and is still green with at
most MOST_FLAKY of them. A crash, a hang, a report of a sanitizer and wrong data never count as flaky: one such failure is a
defect, however often the test passes afterwards.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable

MOST_FLAKY = 2
AGAIN = 2

SANITIZER = re.compile(r"(Address|Thread|Memory|Leak|UndefinedBehavior)Sanitizer|: runtime error: ")
CRASH = re.compile(r"\bSIG(SEGV|BUS|ABRT|ILL|FPE|TRAP)\b|[Ff]atal Python error|Segmentation fault|worker '\w+' crashed")
# How the suites compare the contents of memory and files. Only what failed is searched: pytest marks it with > and E.
WRONG_DATA = re.compile(
    r"SILENT_WRONG|\bWRONG\b|wrong byte|memcmp|ranges::equal|'\\x[0-9A-Fa-f]|\b(reads|holds|stored|download|is_poison|bytes)\("
    r"|\bcontents?\b|\.all\(\)|array_equal|assert_array|torch\.equal|tobytes|Mismatched elements|\bb['\"]"
)


@dataclasses.dataclass
class Failure:
    name: str
    said: str  # its own output
    crashed: bool  # or hung: its process did not end as it should
    passes_again: Callable[[], bool]  # runs it once more, alone


def never_flaky(failure: Failure) -> bool:
    if failure.crashed or SANITIZER.search(failure.said) or CRASH.search(failure.said):
        return True
    lines = failure.said.splitlines()
    marked = [line for line in lines if re.match(r"(>|E) {2,}", line)]
    return WRONG_DATA.search("\n".join(marked or lines)) is not None


def is_flaky(failure: Failure) -> bool:
    return not never_flaky(failure) and all(failure.passes_again() for _ in range(AGAIN))


def record(names: list[str], build: pathlib.Path) -> int:
    """Writes them into build/flaky.txt and returns how many it has. Continuous integration runs several sets of suites
    and removes the file before the first; any other run begins it anew."""
    file = build / "flaky.txt"
    before = file.read_text().splitlines() if os.environ.get("CI") and file.exists() else []
    file.write_text("".join(f"{name}\n" for name in before + names))
    return len(before) + len(names)
