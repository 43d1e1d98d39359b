"""Opening a store: keyword arguments become options as text, which C++ reads as it reads the environment."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import logging
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Literal

from ebbtide._core import Store
from ebbtide.errors import InvalidArgument

_log = logging.getLogger("ebbtide")
_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_process = os.getpid()

_OPTIONS = (
    "directory",
    "device",
    "device_cache",
    "host_cache",
    "device_arena",
    "host_arena",
    "disk",
    "durability",
    "readonly",
    "keep_last",
    "keep_every",
    "verify",
    "prefetch",
    "eviction",
    "io",
    "direct_io",
    "close_timeout",
    "event_log",
)

_NAMES = {
    "device": 'one of "auto", "cpu", "cuda", "cuda:N"',
    "device_arena": 'one of "mapped", "direct"',
    "host_arena": 'one of "incremental", "direct"',
    "durability": 'one of "ephemeral", "process", "storage"',
    "verify": 'one of "files", "all"',
}
_FLAGS = ("direct_io", "readonly")
_AS_LONG_AS_IT_TAKES = 1e9  # seconds
_LONGEST = 512  # bits of an int in a message

Size = int | str
"""Bytes: an int, or text such as ``"4GiB"``, ``"512 MiB"``, ``"1.5GB"``."""


def open(
    directory: str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    device_cache: Size | None = None,
    host_cache: Size | None = None,
    device_arena: Literal["mapped", "direct"] | None = None,
    host_arena: Literal["incremental", "direct"] | None = None,
    disk: Size | None = None,
    durability: Literal["ephemeral", "process", "storage"] | None = None,
    readonly: bool | None = None,
    keep_last: int | None = None,
    keep_every: int | None = None,
    verify: Literal["files", "all"] | None = None,
    prefetch: Literal["auto", "manual"] | None = None,
    eviction: Literal["score", "score_paper", "lru", "fifo"] | None = None,
    io: Literal["auto", "uring", "threads"] | None = None,
    direct_io: bool | None = None,
    close_timeout: float | str | None = None,
    event_log: str | os.PathLike[str] | None = None,
    **unknown: object,
) -> Store:
    """Open a store.

    What is left out comes from the environment (``EBBTIDE_DEVICE_CACHE=4GiB`` and so on), then from the defaults.

    directory: where the local tier's file goes; else ``$EBBTIDE_DIR``, ``$TMPDIR``, ``/tmp``. A tmpfs is refused. Of a store
    that is kept it is the store itself, made if it is not there.
    device: where the device cache lies: ``"cuda"`` (the calling thread's current GPU), ``"cuda:N"``, ``"cpu"`` (ordinary
    memory), or ``"auto"``: a GPU if there is one, else ordinary memory.
    device_cache, host_cache, disk: bytes of each tier, as an int or as text (``"4GiB"``); 0 leaves the tier out.
    device_arena: ``"mapped"`` (default: memory for the device cache by pieces, behind the program's back) or
    ``"direct"`` (all of it before ``open`` returns).
    host_arena: ``"incremental"`` (default: touched and pinned by pieces, as far as it will be needed) or ``"direct"``:
    ``open`` then takes about a second for each 3 GiB on a GPU (hipc22 sec. IV-A).
    durability: ``"ephemeral"`` (default: nothing outlives the process; consumed means discarded), ``"process"`` (handed to
    the operating system: outlives the process, whatever ends it) or ``"storage"`` (on stable storage: outlives a loss of
    power). ``docs/durability.md`` says what each promises for which fault.
    readonly: look at a store that is kept, at its own level, beside the process that writes it. Nothing is written.
    keep_last: in each history, once a version is durable, those before the newest so many are dropped, but for the
    multiples of keep_every. 0 (default): none is dropped. A version goes only when a newer one is durable. ``disk``
    must hold what stays and one checkpoint more; the first checkpoint that shows that it does not raises NoSpace.
    verify: ``"files"`` (default: what comes from a file is checked against its checksum) or ``"all"`` (the bytes are hashed
    when given and checked when handed out, whatever tier they came from; not on a GPU).
    prefetch: ``"manual"`` prefetches nothing before ``store.start_prefetch()``.
    eviction: ``"score"``, ``"score_paper"`` (hpdc23 algorithm 1 as printed), ``"lru"``, ``"fifo"``.
    io: ``"auto"``, ``"uring"``, ``"threads"``; direct_io=False goes through the page cache.
    close_timeout: how long closing may drain a store that is kept, in seconds or as text such as ``"30s"``; default
    (and ``math.inf``): as long as it takes.
    event_log: a file in which the planner's events are recorded for replay.

    Raises :class:`ebbtide.InvalidArgument` naming the key, the value and what would be right;
    :class:`ebbtide.Unsupported` (a tmpfs, an engine or a GPU that is not there, a store of a newer format, keep_last in an
    ephemeral store), :class:`ebbtide.OutOfMemory`, :class:`ebbtide.IOFailed`; of a store that is kept also
    :class:`ebbtide.InUse` (another process writes it), :class:`ebbtide.NotAStore`, :class:`ebbtide.NotPermitted`,
    :class:`ebbtide.Damaged`, :class:`ebbtide.NoSpace`. The sizes chosen are told once through the logger ``ebbtide`` (level
    INFO) and in ``stats()``. What is found damaged is told by :class:`ebbtide.DamagedWarning`, and through the logger.

    >>> with ebbtide.open("/scratch", device_cache="4GiB", host_cache="32GiB") as store:
    ...     store.checkpoint(0, field)
    >>> with ebbtide.open("run-7", durability="storage", keep_last=3, keep_every=100) as store:
    ...     print(store.latest())     # None, or the newest version that an earlier run left whole
    >>> store = ebbtide.open(host_cache="32GiB", host_arena="direct")     # wait now, rather than while it runs
    >>> [tier["arena"]["ready"] for tier in store.stats()["tiers"] if tier["name"] == "host"]
    [34359738368]
    """
    if unknown:
        raise InvalidArgument(_unknown_option(next(iter(unknown))))
    given: dict[str, object] = {
        "directory": None if directory is None else os.fspath(directory),
        "device": device,
        "device_cache": device_cache,
        "host_cache": host_cache,
        "device_arena": device_arena,
        "host_arena": host_arena,
        "disk": disk,
        "durability": durability,
        "readonly": readonly,
        "keep_last": keep_last,
        "keep_every": keep_every,
        "verify": verify,
        "prefetch": prefetch,
        "eviction": eviction,
        "io": io,
        "direct_io": direct_io,
        "close_timeout": close_timeout,
        "event_log": None if event_log is None else os.fspath(event_log),
    }
    options = {key: _as_text(key, value) for key, value in given.items() if value is not None}
    store = Store.open_with(options, _tell)
    _open_stores.add(store)
    return store


def _tell(severity: str, text: str) -> None:
    """A line of the store's log; ``EBBTIDE_LOG`` has it on stderr, as in every language."""
    warning = severity == "warning"
    if "EBBTIDE_LOG" in os.environ:
        if os.environ["EBBTIDE_LOG"].strip().lower() == "info":
            print(f"ebbtide: {'warning: ' if warning else ''}{text}", file=sys.stderr, flush=True)
    else:
        _log.log(logging.WARNING if warning else logging.INFO, "%s", text)


def _unknown_option(name: str) -> str:
    near = difflib.get_close_matches(name, _OPTIONS, n=1, cutoff=0.0)
    return f"unknown option {name}: did you mean {near[0]}? The options are {', '.join(_OPTIONS)}"


def _as_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        if key in _FLAGS:
            return "true" if value else "false"
    elif isinstance(value, str):
        return value
    elif key == "close_timeout" and isinstance(value, (int, float)):
        if value >= 0:
            return f"{min(value, _AS_LONG_AS_IT_TAKES):.9f}"
    elif hasattr(value, "__index__") and key not in _NAMES:
        number: int = value.__index__()
        if number.bit_length() <= _LONGEST:
            return str(number)
    right = _NAMES | {
        "direct_io": "True or False",
        "readonly": "True or False",
        "keep_last": "a number of versions, or 0 for no limit",
        "keep_every": "a number of versions, or 0 for no limit",
        "close_timeout": 'seconds, none negative, or text such as "30s"',
        "device_cache": 'bytes as an int, or text such as "4GiB"',
        "host_cache": 'bytes as an int, or text such as "32GiB"',
        "disk": 'bytes as an int, or text such as "100GiB"',
    }
    bits = value.bit_length() if isinstance(value, int) else 0
    shown = repr(value) if bits <= _LONGEST else f"an int of {bits} bits"  # which Python may refuse to write out
    raise InvalidArgument(f"{key}={shown} is wrong: {right.get(key, 'text')} would be right")


def _close_all() -> None:
    """At exit: close what is open, and let the threads that waited in it come out before the interpreter goes."""
    if os.getpid() != _process:
        return  # a fork: the stores are the parent's
    stores = list(_open_stores)
    interrupted = None
    for store in stores:
        try:
            _close(store)
        except BaseException as error:  # what a signal's handler raised; it must not keep the others open
            interrupted = error
    deadline = time.monotonic() + 1.0
    while any(store.calls_inside for store in stores) and time.monotonic() < deadline:
        time.sleep(0.001)
    if interrupted is not None:
        raise interrupted


def _close(store: Store) -> None:
    """Closes it for good, whatever a signal's handler raises meanwhile; then raises that."""
    try:
        _try_to_close(store)
    except BaseException:
        # It is open still, and nobody is left to close it later: it is drained after all. Who will not wait for that may
        # end the process, which a store that is kept outlives.
        with _signals_that_end():
            _try_to_close(store)
        raise


def _try_to_close(store: Store) -> None:
    try:
        store.close()
    except Exception:
        _log.exception("closing a store at exit failed")


@contextlib.contextmanager
def _signals_that_end() -> Iterator[None]:
    """SIGINT and SIGTERM end the process at once, as if Python had no handlers of theirs."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


atexit.register(_close_all)
