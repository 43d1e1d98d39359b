"""What a case is mostly about."""

from __future__ import annotations

from random import Random

OBJECTS = "objects that change while they are converted"
MORE = "arrays that are more than their bytes"
TARGETS = "targets that cannot be filled"
VIEWS = "views that are written to later"
SMALL_DISK = "a small disk and retention"
OUTSIDE = "files changed from outside"
BESIDE = "a reader beside a writer that writes anew"
FORKS = "forked children that live on"
WAITING = "calls that wait, and what happens meanwhile"
WORDS = "arguments that are no good"
ANY = "any of them"
THEMES = (OBJECTS, MORE, TARGETS, VIEWS, SMALL_DISK, OUTSIDE, BESIDE, FORKS, WAITING, WORDS, ANY)


def theme_of(seed: int) -> str:
    return Random(f"theme {seed}").choice(THEMES)
