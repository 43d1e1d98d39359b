"""What the kernel allows. `root` is the root of its files: tests have their own."""

from __future__ import annotations

import resource
from pathlib import Path

from .._units import format_size
from .finding import Finding, change, note, ok

ROOT = Path("/")
_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
_RING_SWITCH = "proc/sys/kernel/io_uring_disabled"


def read(path: Path) -> str | None:
    """A file's text without white space around it; None if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def memlock(ring_reason: str, limit: int | None = None) -> Finding:
    """`ulimit -l`. Pinning for a GPU and the kernels since 5.12 do not count against it; an older one's io_uring does."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if limit is None else limit
    unlimited = limit == resource.RLIM_INFINITY
    values = {"bytes": None if unlimited else limit}
    text = "unlimited" if unlimited else format_size(limit)
    if "ENOMEM" in ring_reason and not unlimited:
        advice = "raise it before the program starts: ulimit -l unlimited (or 'memlock' in /etc/security/limits.conf)"
        return change("ulimit -l", f"{text} may be locked: io_uring is refused for it", advice, **values)
    text += " may be locked; pinning the host cache for a GPU does not count against it"
    return ok("ulimit -l", text, **values)


def huge_pages(root: Path = ROOT) -> Finding:
    """Whether the caches, which ask for huge pages, get them: they are then ready several times sooner."""
    name = "huge pages"
    text = read(root / _HUGE_PAGES)
    if text is None:
        return note(name, "not known", "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE: caches open faster", mode=None)
    mode = text[text.find("[") + 1 : text.find("]")] if "[" in text else text
    if mode == "never":
        advice = f"echo madvise | sudo tee /{_HUGE_PAGES}"
        text = "transparent ones: never; the host cache is touched and pinned by 4 KiB, several times slower"
        return change(name, text, advice, mode=mode)
    return ok(name, f"transparent ones: {mode}; the host cache gets them", mode=mode)


def io_uring(built_in: bool, ring_reason: str, root: Path = ROOT) -> Finding:
    """Whether files are read and written through io_uring: the system setting, and an attempt."""
    text = read(root / _RING_SWITCH)
    switch = int(text) if text and text.isdigit() else None
    values = {"works": not ring_reason, "reason": ring_reason, "disabled": switch}
    if not ring_reason:
        return ok("io_uring", "works", **values)
    instead = f"threads read and write the files instead ({ring_reason})"
    if not built_in:
        advice = "install liburing's headers (apt-get install liburing-dev), then install ebbtide again"
        return note("io_uring", instead, advice, **values)
    if switch:
        return change("io_uring", instead, "sudo sysctl kernel.io_uring_disabled=0", **values)
    if "ENOSYS" in ring_reason or "no plain reads" in ring_reason:
        return note("io_uring", instead, "use Linux 5.6 or later", **values)
    if "ENOMEM" in ring_reason:
        return note("io_uring", instead, "raise the limit of locked memory: ulimit -l unlimited", **values)
    advice = "let the container call io_uring_setup (docker run --security-opt seccomp=PROFILE that allows it)"
    return note("io_uring", instead, advice, **values)


def findings(built_in: bool, ring_reason: str, root: Path = ROOT) -> list[Finding]:
    """All of them."""
    return [memlock(ring_reason), huge_pages(root), io_uring(built_in, ring_reason, root)]
