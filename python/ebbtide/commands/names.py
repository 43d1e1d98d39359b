"""A history's name may be any bytes: how it is shown, how JSON has it, and how a file is named after it."""

from __future__ import annotations

import hashlib
import json
import re

_MOST = 100  # characters of a history's name in a file's


def text_of(name: bytes) -> str:
    """As Python treats file names: bytes that are not UTF-8 become lone surrogates, which `bytes_of` turns back."""
    return name.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The inverse of `text_of`; also for shell arguments."""
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
