"""Opening a store: keyword arguments become options as text, which C++ parses like the environment's."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Literal

from ebbtide._core import Store, option_table
from ebbtide.errors import InvalidArgument

_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_process = os.getpid()

_AS_LONG_AS_IT_TAKES = 1e9  # seconds
_LONGEST = 512  # bits of an int in a message

Size = int | str
"""Bytes: an int, or text such as ``"4GiB"``, ``"512 MiB"``, ``"1.5GB"``."""


def open(
    directory: str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    device_cache: Size | None = None,
    adopted: Size | None = None,
    host_cache: Size | None = None,
    memory: Size | None = None,
    warm: bool | None = None,
    disk: Size | None = None,
    durability: Literal["ephemeral", "process", "node", "storage", "shared"] | None = None,
    shared: str | os.PathLike[str] | None = None,
    keep_last_shared: int | None = None,
    shared_every: int | None = None,
    limit_shared: Size | None = None,
    veloc_rank: int | None = None,
    veloc_meta: str | os.PathLike[str] | None = None,
    veloc_chksum: bool | None = None,
    readonly: bool | None = None,
    keep_last: int | None = None,
    keep_every: int | None = None,
    agreed: bool | None = None,
    node_pool: Size | None = None,
    node_overflow: Literal["page cache", "wait"] | None = None,
    lend: Size | None = None,
    lend_share: float | str | None = None,
    borrow: Size | None = None,
    verify: Literal["files", "all"] | None = None,
    prefetch: Literal["auto", "manual"] | None = None,
    eviction: Literal["score", "score_paper", "lru", "fifo"] | None = None,
    close_timeout: float | str | None = None,
    event_log: str | os.PathLike[str] | None = None,
    tuning: Mapping[str, bool | Size] | None = None,
    **unknown: object,
) -> Store:
    """Open a store.

    Options that are left out come from the environment (``EBBTIDE_DEVICE_CACHE=4GiB`` and so on), else have defaults.

    directory: for the local tier's file; else ``$EBBTIDE_DIR``, ``$TMPDIR``, ``/tmp``. A tmpfs is refused. A persistent
    store is this directory itself, created if necessary.
    device: the device of the device cache: ``"cuda"`` (the calling thread's current GPU), ``"cuda:N"``, ``"cpu"`` (ordinary
    memory), or ``"auto"``: a GPU if there is one, else ordinary memory.
    device_cache, host_cache, disk: bytes of each tier, as an int or as text (``"4GiB"``); 0 leaves the tier out.
    adopted: bytes of the program's own memory that may be replicas in the device cache, beside ``device_cache``, in place of
    copies there (``checkpoint(adopt=True)``); 0 (default): none.
    memory: bytes of host memory for the whole store, its staging ring included, at least 1 MiB (``memory="200MB"``). It sizes
    the host cache, in place of host_cache; without a GPU there is no device cache beside it, since both would be the same
    memory. A checkpoint of half of it still fits. Without a GPU, a shot of checkpoints makes the process grow by at most
    this, 5% of it and 16 MiB.
    warm: ``True``: ``open`` waits for all cache memory (about a second for each 3 GiB on a GPU; hipc22 sec. IV-A), and the
    first checkpoint costs what the later ones do. Else it is allocated in pieces, in the background, on demand.
    durability: ``"ephemeral"`` (default: nothing outlives the process; a consumed checkpoint is discarded), ``"process"``
    (handed to the operating system: survives the process, however it ends), ``"node"`` (in the node's pool: survives the
    process, and goes on to stable storage in the background), ``"storage"`` (on stable storage: survives a power loss) or
    ``"shared"`` (in the shared directory: survives the node; the default with ``shared``). ``docs/durability.md`` says what
    each guarantees for which fault.
    shared: a directory on a parallel file system. Each version goes on to it once it is on the local disk, which then is a
    cache of it: local space is given back to newer versions, and what is not there is read from the shared directory. With an
    empty ``directory``, on any node, the store continues from what is there. Both directories are this store's alone.
    keep_last_shared: as keep_last, there (default: keep_last). What is durable there alone stays until keep_last newer ones are.
    shared_every: only versions that are multiples of it go there; 0 (default): all.
    limit_shared: how much may be written there in a second (``"200MB/s"``); 0 (default): no limit.
    veloc_rank: ``shared`` has VELOC's files of this rank, ``<history>-<rank>-<version>.dat``: what VELOC wrote there is found,
    and VELOC restarts from what is written (docs/veloc.md). Histories need a name then: ``store.history("heat")``.
    veloc_meta: with veloc_rank, VELOC's directory of metadata. Its aggregated files are read then.
    veloc_chksum: with veloc_meta, each data file has a checksum file there, as VELOC's ``chksum`` has it: one that is written
    gets it, and one that is found is read if it matches it. Needs OpenSSL's libcrypto.
    readonly: read a persistent store, at its own durability, while another process may write it. Nothing is written. With
    ``shared``, a version is found in either directory; the local one may be missing.
    keep_last: in each history, once a version is durable, all but the newest so many before it are dropped, except
    multiples of keep_every. 0 (default): none is dropped. A version is dropped only when a newer one is durable. ``disk``
    must hold the versions kept and one checkpoint more; the first checkpoint that does not fit raises NoSpace.
    agreed: of the newest keep_last, only versions that ``agree()`` has named count, or older ones: for processes that checkpoint
    together and need a version that all of them have. :func:`ebbtide.mpi.open` sets it.
    node_pool: bytes of shared memory in which the processes of this job on this node have their host caches, each an equal
    share, which takes the place of host_cache; what one does not use is lent to others. One agent writes what they hand over
    to the store in ``directory``; each process's histories are its own (wag-dbi sec. III, ``docs/node.md``). Ephemeral stores
    share the memory alone, and have a file each.
    node_overflow: with a pool, what the agent does for a process whose share is full. ``"page cache"`` (default): it writes
    through the page cache, which stands beside the pool: at most an eighth of the memory that is left, none while processes
    wait for memory (``stats()["node"]["bytes_beside"]``). ``"wait"``: all goes past the page cache, at the disk's pace.
    lend: bytes of the device's memory, beside the device cache, that other processes of this user on this node may use for their
    checkpoints; 0 (default): none; else at least 64 MiB. It is allocated when it is lent; ``store.lend`` changes it later.
    lend_share: of the bandwidth at which others may copy to and from this memory, as a share of the link's rate: above 0, at most 1
    (default: no limit). The borrowers keep to it, each to as much of it as it has of the memory.
    borrow: what this store may use of theirs: ``"auto"`` (as much as is lent), bytes, or 0 (default). It is a tier,
    ``"peer"``, between the device cache and the host cache (SC'22, ``docs/peers.md``). Who lends to whom: the processes of
    the scheduler's job, or of ``EBBTIDE_JOB``, or else all.
    verify: ``"files"`` (default: bytes from a file are checked against their checksum) or ``"all"`` (bytes are hashed when
    written and checked when they are returned, from any tier; not on a GPU).
    prefetch: ``"manual"`` prefetches nothing before ``store.start_prefetch()``.
    eviction: ``"score"``, ``"score_paper"`` (hpdc23 algorithm 1 as printed), ``"lru"``, ``"fifo"``.
    close_timeout: how long closing may wait for a persistent store's checkpoints to become durable, in seconds or as text
    such as ``"30s"``; default (and ``math.inf``): as long as it takes.
    event_log: a file in which the planner's events are recorded for replay.
    tuning: what few programs need, by name. ``device_arena``: ``"mapped"`` or ``"direct"``, ``host_arena``: ``"incremental"`` or
    ``"direct"``: what ``warm`` says, for one cache. ``io``: ``"auto"``, ``"uring"``, ``"threads"``; ``direct_io``: ``False`` goes
    through the page cache. Of a node's pool, ``node_agent``: whether the agent is a program of its own (default) or a thread of
    one of the processes; ``node_chunk``: bytes of a chunk, a power of two (default: 256 KiB).

    Raises :class:`ebbtide.InvalidArgument` naming the key, the value and what is expected;
    :class:`ebbtide.Unsupported` (a tmpfs, a missing engine or GPU, a store of a newer format, keep_last in an ephemeral
    store), :class:`ebbtide.OutOfMemory`, :class:`ebbtide.IOFailed`; for a persistent store also
    :class:`ebbtide.InUse` (another process writes it), :class:`ebbtide.NotAStore`, :class:`ebbtide.NotPermitted`,
    :class:`ebbtide.Damaged`, :class:`ebbtide.NoSpace`. The logger ``ebbtide`` (level INFO) and ``stats()`` have the sizes
    chosen. Damage that is found raises :class:`ebbtide.DamagedWarning`, and is logged.

    >>> with ebbtide.open("/scratch", device_cache="4GiB", host_cache="32GiB") as store:
    ...     store.checkpoint(0, field)
    >>> with ebbtide.open("run-7", durability="storage", keep_last=3, keep_every=100) as store:
    ...     print(store.latest())     # None, or the newest intact version of an earlier run
    >>> store = ebbtide.open("/nvme/run-7", shared="/lustre/run-7", keep_last=2, keep_last_shared=5)
    >>> store = ebbtide.open("/scratch", memory="8GiB")    # no more than that of host memory, whatever is stored
    >>> idle = ebbtide.open(device="cuda:3", lend="40GiB")              # in a process that leaves memory free
    >>> store = ebbtide.open("/scratch", device_cache="4GiB", borrow="auto")    # in one that needs more
    >>> store = ebbtide.open(host_cache="32GiB", warm=True)     # wait now, not while it runs
    >>> [tier["arena"]["ready"] for tier in store.stats()["tiers"] if tier["name"] == "host"]
    [34359738368]
    """
    given = locals() | {"tuning": None}
    if given.pop("unknown"):
        raise InvalidArgument(_unknown_option(next(iter(unknown))))
    if tuning is not None:
        given["tuning"] = _tuning_text(tuning)
    options = {key: _as_text(key, value) for key, value in given.items() if value is not None}
    store = Store.open_with(options, _tell)
    _open_stores.add(store)
    return store


def _tell(severity: str, text: str) -> None:
    """A line of the store's log; with ``EBBTIDE_LOG`` it goes to stderr, as in every language."""
    warning = severity == "warning"
    if "EBBTIDE_LOG" in os.environ:
        if os.environ["EBBTIDE_LOG"].strip().lower() == "info":
            print(f"ebbtide: {'warning: ' if warning else ''}{text}", file=sys.stderr, flush=True)
    else:
        import logging  # by the first open, not by the import of this package

        logging.getLogger("ebbtide").log(logging.WARNING if warning else logging.INFO, "%s", text)


def _unknown_option(name: str) -> str:
    import difflib  # for this message alone

    names = [key for key in _table() if "." not in key]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"unknown option {name}: did you mean {near[0]}? The options are {', '.join(names)}"


@functools.cache
def _table() -> dict[str, tuple[str, str]]:
    """Of each option: its kind, and what is expected of it."""
    return {name: (kind, expected) for name, kind, expected in option_table()}


def _tuning_text(tuning: Mapping[str, bool | Size]) -> str:
    if not isinstance(tuning, Mapping):
        raise InvalidArgument(f"tuning={tuning!r} is not valid: expected {_table()['tuning'][1]}")
    return ", ".join(f"{name}={_as_text(f'tuning.{name}', value)}" for name, value in tuning.items())


def _as_text(key: str, value: object) -> str:
    kind, expected = _table().get(key, ("number", "text"))  # what is unknown is refused where text is read
    if isinstance(value, bool):
        if kind == "flag":
            return "true" if value else "false"
    elif isinstance(value, str):
        return value
    elif kind == "path" and isinstance(path := os.fspath(value) if isinstance(value, os.PathLike) else None, str):
        return path
    elif kind == "seconds" and isinstance(value, (int, float)):
        if value >= 0:
            return f"{min(value, _AS_LONG_AS_IT_TAKES):.9f}"
    elif kind == "share" and isinstance(value, (int, float)):
        if 0 < value <= 1:
            return repr(float(value))
    elif kind in ("number", "flag") and hasattr(value, "__index__"):
        number: int = value.__index__()
        if number.bit_length() <= _LONGEST:
            return str(number)
    bits = value.bit_length() if isinstance(value, int) else 0
    shown = repr(value) if bits <= _LONGEST else f"an int of {bits} bits"  # Python may refuse to convert it
    raise InvalidArgument(f"{key}={shown} is not valid: expected {expected}")


def _close_all() -> None:
    """At exit: close open stores, and let the threads that wait in them return before the interpreter shuts down."""
    if os.getpid() != _process:
        return  # a fork: the stores are the parent's
    stores = list(_open_stores)
    interrupted = None
    for store in stores:
        try:
            _close(store)
        except BaseException as error:  # a signal handler's exception; it must not keep the others open
            interrupted = error
    deadline = time.monotonic() + 1.0
    while any(store.calls_inside for store in stores) and time.monotonic() < deadline:
        time.sleep(0.001)
    if interrupted is not None:
        raise interrupted


def _close(store: Store) -> None:
    """Closes it, whatever signal handlers raise meanwhile; then raises that."""
    try:
        _try_to_close(store)
    except BaseException:
        # The store is still open, and nothing will close it later: wait until it is durable after all. A user who does not want
        # to wait may kill the process, which a persistent store outlives.
        with _signals_that_end():
            _try_to_close(store)
        raise


def _try_to_close(store: Store) -> None:
    try:
        store.close()
    except Exception:
        import logging

        logging.getLogger("ebbtide").exception("closing a store at exit failed")


@contextlib.contextmanager
def _signals_that_end() -> Iterator[None]:
    """SIGINT and SIGTERM end the process at once, as if Python had no handlers for them."""
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
