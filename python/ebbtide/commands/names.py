"""A history's name may hold any bytes: how it is shown, how JSON has it, and how a file is called after it."""

from __future__ import annotations

import hashlib
import json
import re

_MOST = 100  # characters of a file's name that stand for a history's


def text_of(name: bytes) -> str:
    """As Python has file names: bytes that are no UTF-8 become lone surrogates, and come back by `bytes_of`."""
    return name.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """What `text_of` was made from, or a shell's argument."""
    return text.encode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    """For a terminal: plain words as they are, everything else in quotes, with escapes for what does not print."""
    if text and text.isprintable() and not re.search(r"[\s\"'\\]", text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def line(text: str) -> str:
    """A sentence that may quote names, fit for a terminal: nothing in it moves the cursor."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def file_name(name: bytes) -> str:
    """A name for a file: letters, digits, ``_``, ``-`` and inner dots stay, other bytes become ``%XX``.

    Different names stay different: a long one is cut and ends in a ``~`` and a hash. Never empty but for an empty name,
    never ``.`` or ``..``.
    """
    out = re.sub(rb"[^A-Za-z0-9_.-]", lambda found: b"%%%02X" % found[0][0], name).decode("ascii")
    if out.startswith("."):
        out = "%2E" + out[1:]
    if len(out) > _MOST:
        out = f"{out[:_MOST]}~{hashlib.sha256(name).hexdigest()[:16]}"
    return out
