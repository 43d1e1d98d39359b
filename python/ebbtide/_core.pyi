"""The C++ side of ebbtide. Use the names of the package ebbtide."""

from collections.abc import Callable, Iterable, Sequence
import os
from typing import Any, Literal, Self

import ebbtide._files
import ebbtide._futures
import ebbtide.types


def version() -> str:
    """The package's version."""

class Endings:
    """The futures of a store that are watched, as they end."""

    def give(self, take: Callable[[ebbtide._futures.Future], object]) -> bool:
        """
        Waits for the next one that has ended, and calls `take` with it. False: the store is closed, and all were given.
        """

    def close(self) -> None:
        """All that are watched count as ended."""

class Operation:
    """What the store knows of a Future. Use :class:`ebbtide.Future`."""

    def done(self, level: str | None = None) -> bool:
        """
        True once it has ended, successfully or not, and the arrays of a restore are filled; never waits.

        level: a tier's name (``"device"``, ``"host"``, ``"local"``), complete there or below, or a durability
        (``"ephemeral"``, ``"process"``, ``"node"``, ``"storage"``, ``"shared"``): True once it is that durable, and never before; of a snapshot
        also ``"copied"``: True once it no longer depends on the protected arrays.
        Raises as :meth:`wait` does for a durability that it failed to reach (it may still be retried), and for what can never
        happen; so a loop that polls until it is True always ends.
        """

    def wait(self, level: str | None = None, timeout: float | None = None) -> None:
        """
        Wait for it to end, or to reach ``level``, at most ``timeout`` seconds (None: as long as it takes).

        level: as in :meth:`done`.
        Raises :class:`ebbtide.TimedOut` when the time passes first (the operation continues), :class:`ebbtide.Unsupported` for a
        tier or a durability that the store does not have, :class:`ebbtide.InvalidArgument` for any other word, or the
        operation's own error: :class:`ebbtide.NoSpace` and :class:`ebbtide.IOFailed` when it could not be stored.
        ``KeyboardInterrupt`` ends the wait, not the operation.
        """

    @property
    def error(self) -> BaseException | None:
        """
        Its failure as an exception, which is not raised; None if it has not failed.
        """

    def result(self, timeout: float | None = None) -> Any:
        """
        Wait, then return the arrays of a ``restore_async`` (None for a checkpoint).

        Raises as :meth:`wait` does.
        """

    def before_write(self, array: ebbtide.types.Array, *, stream: ebbtide.types.Stream | None = None) -> None:
        """
        Call this before work on ``stream`` writes to a protected array on the GPU: copies the zones not copied yet, and orders it.

        Needed before the first write after ``snapshot(fenced=True)``, and on any other stream than the snapshot's own. It waits for
        room in the device cache, and for nothing else. For arrays in host memory, and once the snapshot has failed, it does nothing.

        stream: None: the current stream of the array's library, as for ``checkpoint``.

        Raises :class:`ebbtide.InvalidArgument` (this is no snapshot's, no part of a protected array, a stream of another GPU),
        :class:`ebbtide.Unsupported` (a store without a GPU, a stream that is being captured).

        >>> cut = store.snapshot(7, fenced=True)
        >>> norm = field.norm()                # reads go on at once
        >>> cut.before_write(field)
        >>> field += update
        """

class DeviceArray:
    """
    Memory of a store on a GPU, lent by ``reserve`` and ``borrow``.

    It computes nothing itself: ``torch.from_dlpack(a)``, ``cupy.from_dlpack(a)`` or ``cupy.asarray(a)`` make an array over
    the same memory. That array may outlive the reservation or the loan: the memory stays mapped, and is not reused before
    the array is gone (after an exception it may be reused, though it stays mapped). Borrowed memory must not be written to,
    whether or not the library prevents it.
    """

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        The memory as a DLPack capsule, marked read-only (if ``max_version`` allows it) when it was borrowed.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, the GPU's ordinal)."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """
        The memory in version 3 of that protocol, read-only when it was borrowed. The protocol does not name the reader's stream: if PyTorch and CuPy are on different ones, ``commit`` and ``release`` need ``stream``.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def dtype(self) -> Any:
        """The type as NumPy's."""

    @property
    def nbytes(self) -> int:
        """Bytes."""

    def __repr__(self) -> str: ...

class Reservation:
    """
    Memory inside the device cache to compute into; :meth:`commit` makes it the checkpoint.

    As a context manager it returns the array, commits when the block ends and abandons when it ends by an exception.

    In host memory, any view of the array that is left when it is committed (the array itself, a slice, a memoryview, a
    tensor) keeps a private copy of the bytes: writing to it changes no checkpoint. The arrays handed out become read-only,
    to reveal the mistake. That costs a copy of the bytes to new memory, and as much memory until the last view is gone.
    With no view left the pages are moved instead, which takes some 10 microseconds for a few MiB: so ``del`` the array as
    the last line of the block::

        with history.reserve(step, shape, dtype) as a:
            compute(out=a)
            del a                                            # nothing is copied

    On a GPU the array is a :class:`ebbtide.DeviceArray`, or one of the library named by ``like``. A tensor made of it
    that outlives the commit still shows the checkpoint and keeps the memory from being reused. It must not be written to,
    and nothing can prevent that: ``commit(check=True)`` detects it.
    """

    @property
    def array(self) -> Any:
        """
        A writable array over the memory. Raises :class:`ebbtide.Closed` once committed or abandoned.
        """

    def commit(self, stream: ebbtide.types.Stream | None = None, check: bool = False) -> None:
        """
        Make the contents of the memory the checkpoint.

        stream: on a GPU, the stream whose present work computes it; the host does not wait. Without it, that of
        ``reserve``, else the one on which a library, or a call of the store's with ``stream``, took the memory.

        check: compute a digest of the memory, in stream order, and compare it at each flush, restore and borrow from it. If the
        memory was written to after the commit, for example through a tensor that outlived it, ``restore``, ``borrow`` and
        ``wait`` raise :class:`ebbtide.Damaged` with the version's name, and it is never reported durable. Each comparison reads
        the memory once more (a flush twice), on a GPU at memory bandwidth, with ``restore`` and ``borrow`` waiting for their
        stream. It is for finding mistakes on a GPU: in host memory no view can write to a checkpoint.

        Raises :class:`ebbtide.Closed` when committed or abandoned already.
        """

    def abandon(self) -> None:
        """
        Forget the version as if it had never been reserved. Calling it twice is fine.
        """

    def __enter__(self) -> Any: ...

    def __exit__(self, type: object, value: object, traceback: object) -> None: ...

class Loan:
    """
    The cached checkpoint itself, read-only.

    As a context manager it returns the arrays in the structure in which they were written. When the block has ended *and*
    no array over the memory is left, it is given back and the checkpoint is consumed (kept, when the block ended by an
    exception): until then the memory stays as it is, so that no view of it ever shows another checkpoint. ``del`` the last
    array to give it back at once.

    On a GPU the arrays are :class:`ebbtide.DeviceArray`, and arrays that other libraries made of them count too. Work on
    the memory must be on the stream that it is released with, or done before the last of them is gone.
    """

    @property
    def arrays(self) -> Any:
        """
        Read-only arrays over the memory. Raises :class:`ebbtide.Closed` once released.
        """

    def release(self, keep: bool = False, stream: ebbtide.types.Stream | None = None) -> None:
        """
        Give it back, as soon as the last array over it is gone. Calling it twice is fine.

        stream: on a GPU, the memory is reused only after this stream's present work; the host does not wait. Without it, that
        of ``borrow``, else the one on which a library, or a call of the store's with ``stream``, took the memory.

        Consumed, unless ``keep`` (here or when it was borrowed) or hinted again.
        """

    def __enter__(self) -> Any: ...

    def __exit__(self, type: object, value: object, traceback: object) -> None: ...

class History:
    """
    The versions of one name over a store's caches.

    A checkpoint is written whole under an int version and read whole. Its arrays may be anything with ``__dlpack__`` or
    the buffer protocol, alone or in lists, tuples and dicts, with numbers, text and ``None`` beside them; shape and element
    type are kept. An array that is more than that (masked, quantised, of a subclass) is refused by name.
    ``version in history`` and ``len(history)`` are about :meth:`versions`.
    Several threads may use one history. A waiting call lets other Python threads run. ``KeyboardInterrupt`` ends it within
    about 50 ms, as if its timeout had passed: nothing stored is lost and nothing is consumed. Neither a timeout nor a signal
    ends a call without ``stream`` while it waits for work on a GPU's stream.
    A signal at the very end of a successful call raises its exception but undoes nothing: a checkpoint is written, a restore
    has filled ``out`` and consumed its version, a reservation is abandoned, and a loan is given back with its version kept.
    :meth:`versions` shows which it was.

    As a context manager, leaving drops every version of it, but not in a persistent store (``durability="process"`` or
    ``"storage"``).
    """

    @property
    def name(self) -> str:
        """Its name; the store itself is ``""``."""

    def checkpoint(self, version: int, arrays: ebbtide.types.Tree, timeout: float | None = 0.0, stream: ebbtide.types.Stream | None = None, adopt: bool = False, check: bool = False) -> ebbtide._futures.Future:
        """
        Write ``arrays`` as ``version`` and return once they may be overwritten.

        Costs a copy into the device cache; the rest happens in the background (hpdc23 sec. 4.1).

        An array may be in any order: transposed, sliced, ``channels_last``, backwards, expanded. Each element is stored once. One
        whose memory is a single run (in Fortran's order, say) is copied byte for byte, and comes back with its strides; one with gaps
        is packed first, on its device and in the order of its stream, and comes back packed, with its axes in the same order. Of
        PyTorch, conjugated and negated views are resolved.

        arrays: one array, one list, tuple or dict of them, or a tree: up to 100 of these in one another, with values beside the
        arrays (see :data:`ebbtide.types.Tree`), which come back with their type.

        timeout: seconds to wait for another thread to make room when no transfer in flight can, or for the agent of a node's
        pool if that is stopped.
        stream: a CUDA stream of the store's GPU (an int handle, a stream of PyTorch or CuPy, or anything with
        ``__cuda_stream__``). The copy runs after what is on the stream already, and later work on it waits for the copy; the
        host does not wait when the device cache has room, and work on that stream may overwrite the arrays at once. Without it,
        arrays of PyTorch and CuPy are ordered on their library's current stream, and an array that names a stream (``"stream"``
        of its ``__cuda_array_interface__``) on that one; for any other, and when some array is in host memory or on another GPU,
        the call blocks until the arrays are copied.
        adopt: ``arrays`` is one array, which the program promises not to write to. In a store with ``adopted`` bytes it is not
        copied: it is itself the replica in the device cache. The store keeps a reference to it until that replica is evicted, or
        the version is consumed or dropped. Beyond ``adopted``, and if it is not on the store's device, it is copied.
        check: with ``adopt``, a digest of the array is computed at the call and compared at each flush, restore and borrow from
        it, as by :meth:`Reservation.commit`: one that was written to raises :class:`ebbtide.Damaged` there.

        Raises :class:`ebbtide.VersionExists`, :class:`ebbtide.TooLarge`, :class:`ebbtide.NoSpace`,
        :class:`ebbtide.InvalidArgument` (what is neither array nor value, by its path; a tree that contains itself; Python
        objects inside an array; memory that cannot be read; GPU arrays on different streams), :class:`ebbtide.Unsupported` (arrays that are more than their bytes, GPU arrays in a store without a
        GPU, a stream that is being captured into a graph), RuntimeError (the list or dict changed while its arrays were
        read: nothing is written), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`, and whatever the arrays' own methods
        raise.

        >>> f = store.checkpoint(7, {"p": pressure, "v": velocity})
        >>> f.wait("local")          # until it is in a file
        >>> store.checkpoint(8, activation, adopt=True)     # no copy: ``activation`` is not written to again
        >>> del activation
        """

    def reserve(self, version: int, shape: int | Iterable[int], dtype: Any = 'float64', timeout: float | None = 0.0, stream: ebbtide.types.Stream | None = None, like: Literal['torch', 'cupy'] | None = None) -> Reservation:
        """
        Allocate one array inside the device cache, to compute into without any copy.

        stream: the stream that will compute it, for the commit (see :meth:`checkpoint`).
        like: the library of the array; without it, NumPy, or on a GPU a :class:`ebbtide.DeviceArray`.

        Raises as :meth:`checkpoint` does.

        >>> with store.reserve(8, (512, 512), "float32") as a:
        ...     a[...] = 0.25 * previous    # committed when the block ends, abandoned when it ends by an exception
        """

    def restore(self, version: int, out: ebbtide.types.Tree | None = None, keep: bool = False, timeout: float | None = None, stream: ebbtide.types.Stream | None = None, have: int | None = None, adopt: bool = False) -> Any:
        """
        Read ``version`` and return when the bytes are usable.

        out: arrays to fill, in the structure, shapes and element types that were written (a list may stand for a tuple);
        returned. Of a tree, the values that ``out`` has count for nothing: a new tree with the values that were written and the
        arrays of ``out`` is returned. Each must show that it is writable: by the buffer protocol, by DLPack since version 1 (older exports do not
        say), or by its ``__array_interface__`` or ``__cuda_array_interface__``. Arrays of PyTorch and CuPy count as writable;
        those of JAX never are. They may be in any order, with gaps too; where that is not the order that was written, the bytes are
        copied once more. No two may share memory, nor may one overlap itself.
        Without it, new arrays of the library and on the GPU that they came from (of PyTorch and JAX if that can be imported, else of
        NumPy; in host memory if that GPU does not exist here), with the strides that they had, or would have without gaps.
        keep: True leaves the checkpoint restorable; otherwise it is consumed, unless another hint names it.
        timeout: seconds; None for as long as it takes.
        stream: as in :meth:`checkpoint`: the arrays are overwritten only after what is on the stream already, and later work on
        it finds the bytes in them. The host waits only until every copy is enqueued; arrays that are neither PyTorch's nor
        CuPy's must live until the stream gets there.
        have: ``out`` has the bytes of this version: of a snapshot, only the zones in which both differ are read and written. If
        either is no snapshot, or their memory differs in size, all is restored.
        adopt: the arrays returned are the cache's own memory, or that of the array that it adopted, as those of :meth:`borrow`:
        nothing is copied, they must not be written to, and the memory is given back with the last of them. If the device cache
        has no room for it, they are new arrays. In host memory they are NumPy's.

        Removes the version's first hint. Raises :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Consumed`,
        :class:`ebbtide.SizeMismatch` (naming both layouts), :class:`ebbtide.InvalidArgument` (``out``
        is read-only, or its memory is, a copy, shared, or overlaps itself), RuntimeError (``out`` changed while its arrays were read),
        :class:`ebbtide.TimedOut`, :class:`ebbtide.Lost`, :class:`ebbtide.Damaged` (bytes from a file do not match their
        checksum: ``out`` then holds nothing of use), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`; on any of them nothing
        is consumed.

        >>> fields = store.restore(7)
        >>> store.restore(6, out={"p": pressure, "v": velocity})
        """

    def restore_async(self, version: int, out: ebbtide.types.Tree | None = None, keep: bool = False) -> ebbtide._futures.Future:
        """
        Like :meth:`restore`, in the background: ``result()`` of the future returns the arrays.

        ``out`` must not be touched before the future is done; it is kept alive until then, and filled even if the future is dropped.
        """

    def borrow(self, version: int, keep: bool = False, timeout: float | None = None, stream: ebbtide.types.Stream | None = None) -> Loan:
        """
        The device cache's own copy of ``version``, read-only, fetched first if necessary.

        stream: the stream that will use it, for the release. The bytes are complete, for any stream, when the call returns.

        Raises as :meth:`restore` does.

        >>> with store.borrow(8) as a:
        ...     total += a.sum()
        """

    def hint(self, order: Iterable[int], replace: bool = False) -> None:
        """
        Announce that the versions of ``order`` will be restored, in this order, after what was hinted before.

        May name versions that are not written yet, and may repeat one. A wrong hint costs time, never correctness.
        replace: forget earlier hints.
        """

    def hint_front(self, version: int) -> None:
        """
        Announce that ``version`` will be restored before everything hinted so far.
        """

    def unhint(self, versions: Iterable[int] | None = None) -> None:
        """Withdraw the first hint of each of ``versions``, or every hint."""

    def start_prefetch(self) -> None:
        """Start prefetching, in a store opened with ``prefetch="manual"``."""

    def wait(self, level: str, version: int | None = None, timeout: float | None = None) -> None:
        """
        Wait until ``version`` (None: each one written so far) is complete on tier ``level`` or below, or that durable.

        Does not wait for later checkpoints, nor for other histories.

        level: a tier, ``"device"``, ``"host"`` or ``"local"``; or a durability: ``"ephemeral"`` (once written), ``"process"``
        (outlives the process, however it ends), ``"node"`` (in the pool of its node), ``"storage"`` (outlives a power loss too) or ``"shared"`` (outlives the node).
        timeout: seconds; None for as long as it takes. ``KeyboardInterrupt`` ends the wait, and nothing else.
        Raises :class:`ebbtide.TimedOut`, :class:`ebbtide.Unsupported` for a tier or a durability that this store does not have,
        :class:`ebbtide.InvalidArgument` for any other word, :class:`ebbtide.NoSpace` and :class:`ebbtide.IOFailed` naming what
        could not be stored, :class:`ebbtide.Closed`.

        >>> for step in range(100):
        ...     store.checkpoint(step, state)
        >>> store.wait("storage")     # one sync serves all waiting calls
        """

    def agree(self, version: int) -> None:
        """
        Every process that checkpoints along with this one has ``version`` and what is older, durable; -1: none in common.

        In a store opened with ``agreed=True``, ``keep_last`` counts up to there. :func:`ebbtide.mpi.open` does it for its ranks.
        Raises :class:`ebbtide.Unsupported` (the store was opened without), :class:`ebbtide.Closed`.
        """

    def wait_for_drops(self, timeout: float | None = None) -> None:
        """
        Wait until nothing brings back what was dropped so far: no kill, and no loss of power where the store promises it.

        Raises :class:`ebbtide.TimedOut`, :class:`ebbtide.Closed`.
        """

    def drop(self, version: int | None = None) -> None:
        """
        Forget ``version`` (None: every version of this history), its bytes and its hints. It may be written again.

        A history that was dropped whole uses no memory once nothing refers to it, as if it had never existed.
        """

    def __enter__(self) -> Self: ...

    def __reduce__(self) -> Any: ...

    def __exit__(self, type: object, value: object, traceback: object) -> None: ...

    def info(self, version: int) -> dict[str, Any]:
        """
        What is stored of ``version``: its payload is not read.

        ``bytes``: in the store, of a snapshot without what it shares with others; ``leans_on``: the versions whose bytes it needs
        beside its own, ascending (``[]`` of a checkpoint, and of a snapshot that stored everything). They may be dropped: what is
        needed stays.
        Raises :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Consumed`, :class:`ebbtide.Damaged`, :class:`ebbtide.Closed`.
        """

    def versions(self) -> list[int]:
        """
        The versions that can be restored, ascending; in a persistent store also those of earlier processes.

        Those of earlier processes are not read for this: a damaged one is listed, and :meth:`restore` of it raises
        :class:`ebbtide.Damaged`. A store opened with ``readonly=True`` also lists what another process is adding.
        Raises :class:`ebbtide.Closed`.
        """

    def latest(self, *, at_most: int | None = None) -> int | None:
        """
        The newest version that is complete and intact; None if there is none.

        Versions of earlier processes are read and checked. A damaged one is skipped, with a :class:`ebbtide.DamagedWarning`
        and a line in the log that name file, offset and what is wrong. The version may be one that this store wrote and that
        is not durable yet; :meth:`wait` waits for that.

        at_most: the newest version not above this one, for example to go back before a state that turned out to be wrong.
        Raises :class:`ebbtide.Unsupported` (an ephemeral store has no earlier process), :class:`ebbtide.IOFailed`,
        :class:`ebbtide.Closed`.

        >>> step = history.latest()
        >>> state = initial() if step is None else history.restore(step)
        """

    def __contains__(self, version: object) -> bool: ...

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def __repr__(self) -> str: ...

class Store(History):
    """
    An open store; it is itself the history named ``""``. Made by :func:`ebbtide.open`.

    As a context manager, leaving closes it, by an exception too. In an ephemeral store nothing outlives the process, and
    closing drops pending flushes. Closing a persistent store first waits until its checkpoints are as durable as it was
    opened for, or :meth:`close` says which are not.

    A process forked from the one that opened it is refused by name. At interpreter exit an open store is closed.
    """

    def history(self, name: str, order: str | None = None) -> History:
        """
        The history called ``name``: the same calls over the same caches, with versions and hints of its own.

        name: at most 65,536 bytes in UTF-8; a longer one is refused by its first checkpoint.
        order: ``"reverse"`` hints each checkpoint, when it is written, ahead of the earlier ones; ``"lifo"`` is the same.
        """

    def stats(self) -> dict[str, Any]:
        """
        Every counter needed to explain a run.

        ``tiers`` (fastest first) and ``links``: lists of dicts of counters (bytes, seconds), each with its ``name``
        (``"device"``; ``"device>host"``).
        ``arena`` of a tier: how its memory is allocated. ``strategy`` (``"direct"``, ``"mapped"``, ``"incremental"``; ``""`` for
        files); in bytes ``ready`` (usable now), ``limit`` (that will ever be usable), ``touched``, ``pinned``, ``mapped`` and
        ``piece`` (the most that one registration takes); ``pieces``: registrations so far; ``huge_pages``: a bool;
        ``trouble``: what went wrong, else ``""``.
        ``blocked_s``: seconds that calls were blocked, by cause. ``found_on``: at each restore, the index of the fastest tier
        with a complete replica, or -1; ``prefetch_distance``: at each restore, how many hinted successors were complete on the
        fastest tier. Both cover the newest restores, at least 16384.
        ``node``, of a store in a node's pool: bytes and checkpoints ``handed_over`` and ``written``, ``agents`` so far,
        ``bytes_borrowed`` (now, of what other processes of the pool do not use), ``bytes_beside`` (now, of the whole pool: in the page
        cache, and not on stable storage yet), and of the checkpoints since all was durable before, from the first call to the return of the last (``last_blocked_s``), to all of
        them durable (``last_durable_s``), and between the two (``last_drain_s``).
        ``leases``, of a store that lends memory or borrows it: bytes ``offered`` to others, the ``share`` of the link's rate at which
        they may copy, bytes ``lent`` (until they can be allocated here again), of these ``overdue``, and ``borrowed``; and ``leases``, each with ``lender`` and ``borrower`` (processes; 0: it
        has ended), ``bytes`` and ``state`` (``"lent"``, ``"recalled"``, ``"overdue"``, ``"orphaned"``).
        ``snapshots``, of protected arrays: ``zones`` that are protected now and how many of them are known to be ``dirty``,
        ``snapshots`` taken, ``failures`` after the cut, ``faults`` (first writes seen), ``duplicates`` (zones copied because a write
        came first), ``blocked_s`` (seconds that writers waited) and ``bytes_gathered`` (copied from protected arrays).
        ``settings``: the sizes and engines chosen at open.
        """

    def lend(self, bytes: int | str, timeout: float | None = 10.0) -> None:
        """
        Lend so much of this device's memory to other processes from now on, in place of ``lend`` of ``open``.

        bytes: an int, or text such as ``"8GiB"``; 0, or at least 64 MiB. Less than before: the call returns once the rest can be
        allocated here again. What others do not use is not allocated.
        timeout: seconds to wait for that; None: as long as it takes. A signal handler's exception ends the wait, and what others
        are to return comes back all the same.

        Raises :class:`ebbtide.TimedOut`, with the processes that have not returned it and how much: it is not free until they have.

        >>> store = ebbtide.open(device_cache="4GiB", lend="32GiB")
        >>> store.lend("8GiB")      # 24 GiB can be allocated now
        """

    def close(self) -> None:
        """
        End every transfer and free the caches. Waiting calls end with :class:`ebbtide.Closed`. Calling it twice is fine.

        A persistent store first waits, up to its ``close_timeout``, until its checkpoints are durable. Meanwhile writes by other
        threads raise :class:`ebbtide.Closed`.
        Raises :class:`ebbtide.TimedOut`, or the error of what failed (:class:`ebbtide.NoSpace`, :class:`ebbtide.IOFailed`),
        naming a checkpoint that is not durable. The store is closed all the same.
        A signal handler's exception (Ctrl-C: KeyboardInterrupt) interrupts the wait and leaves the store open: nothing is lost,
        and it must be closed again, though other threads may have received ``Closed`` meanwhile. One that only waits for memory
        that it lent is closed then.
        """

    def suspend_on(self, signal: int, *, level: str | None = None, within: float | None = None) -> None:
        """
        From now on ``signal`` suspends the store, so that a job that must go can end and be started again (sc22, slide 53).

        In the background, and whatever the program does meanwhile, everything written so far becomes as durable as ``level``, and
        then a mark is written. The program's next call waits for that and raises :class:`ebbtide.Suspended`, as every later one
        does, except those that only look (:meth:`versions`, :meth:`histories`, :meth:`stats`, :attr:`suspended`), what is in hand
        (``commit`` of a reservation, ``close`` of a file, futures) and :meth:`close`. The program ends itself; the library never
        does. If the store cannot be suspended, or not in time, there is no mark and older versions are as they were; the next call
        raises the error, and the ones after it go on.

        signal: such as ``signal.SIGTERM``. The handler that is there is called too, also one of :func:`signal.signal`; one that
        is set later takes the place of this one. May be called for several signals.
        level: ``"process"``, ``"node"``, ``"storage"`` or ``"shared"``; default: the store's durability.
        within: seconds from the signal to the mark, such as a scheduler's grace period less some; default: as long as it takes.

        Raises :class:`ebbtide.InvalidArgument` (a signal that cannot be caught or means a bug, a level),
        :class:`ebbtide.Unsupported` (an ephemeral store, a read-only one, a level that it does not have),
        :class:`ebbtide.InUse` (16 stores of this process do this already), :class:`ebbtide.Closed`.

        >>> store.suspend_on(signal.SIGTERM, within=20)
        >>> try:
        ...     for step in range(first, 1000):
        ...         state = advance(state)
        ...         store.checkpoint(step, state)
        ... except ebbtide.Suspended:
        ...     sys.exit(0)              # started again, store.suspended is not None
        """

    def check_suspended(self) -> None:
        """
        Do nothing but raise what every other call would, for a program that makes few of them.

        Waits while the store is being suspended. Raises :class:`ebbtide.Suspended`, or the error of an attempt that failed.
        """

    @property
    def suspended(self) -> float | None:
        """
        When the store was suspended, in seconds since 1970, also by an earlier process; None: it was not.

        Stays until :meth:`clear_suspended`. Raises :class:`ebbtide.Closed`.
        """

    def clear_suspended(self) -> None:
        """
        Remove the mark, durably, and let calls begin again: the program has taken up its work.

        Raises :class:`ebbtide.Unsupported` (a read-only store), :class:`ebbtide.TimedOut` (the disk does not answer),
        :class:`ebbtide.Closed`.
        """

    @property
    def durability(self) -> str:
        """
        ``"ephemeral"``, ``"process"``, ``"node"`` or ``"storage"``; ``"readonly"`` if it is not for writing.
        """

    @property
    def calls_inside(self) -> int:
        """Calls that are waiting without the GIL now."""

    def __exit__(self, type: object, value: object, traceback: object) -> None: ...

    def __repr__(self) -> str: ...

    def histories(self) -> list[str]:
        """
        The names of the histories that have versions, ascending; the store's own is ``""``.

        In a persistent store also those of earlier processes. Raises :class:`ebbtide.Closed`.
        """

    def versions(self, name: str = '') -> list[int]:
        """
        The versions of the history called ``name``; see :meth:`History.versions`.
        """

    def latest(self, name: str = '', at_most: int | None = None) -> int | None:
        """
        The newest version of the history called ``name`` that is complete and intact; see :meth:`History.latest`.

        >>> with ebbtide.open("run-7", durability="storage", keep_last=3) as store:
        ...     newest = store.latest()
        ...     first, state = (0, initial()) if newest is None else (newest + 1, store.restore(newest))
        ...     for step in range(first, 1000):
        ...         state = advance(state)
        ...         store.checkpoint(step, state)
        """

    def protect(self, arrays: ebbtide.types.Arrays, zone: int | str = '64KiB', track: str = 'auto', *, hints: bool = True, duplicate: bool = True) -> None:
        """
        From now on :meth:`snapshot` stores these arrays, in place, and only what was written since the one before.

        The arrays stay the program's, and are kept alive until :meth:`unprotect`, or until the store is closed. The first snapshot
        stores all of them.

        arrays: in host memory or on the store's GPU, writable, in any order without gaps, no two sharing memory. All of them in one call.
        zone: bytes that are stored whole if one of them was written: a power of two from 4 KiB to 16 MiB (1 MiB on a GPU).
        track: how writes are found (ics19 sec. 4). ``"faults"``: the first write to a zone is seen as it happens, so a snapshot does
        not stop the program. ``"scan"``: the kernel notes written pages. ``"digest"``: a snapshot reads all of it. ``"declared"``:
        :meth:`touch` says what was written. ``"everything"``: nothing is tracked. ``"auto"``: faults while few zones are written
        between snapshots, everything where most are. With all but ``"faults"``, nothing may be written to the arrays while
        :meth:`snapshot` runs. Writes of a GPU's or of a device's to pinned memory are not seen by ``"faults"`` and ``"scan"``: use
        ``"digest"`` or ``"declared"`` for such arrays. On a GPU no page protection exists: there ``"auto"`` is ``"digest"``, at the
        bandwidth of its memory, and arrays are cut at a point of a stream, so the program may write to them right after.
        hints, duplicate: the paper's modes H and D (sec. 4.1.5 and 4.3.2), for comparison; the same for all memory of a store.
        Without ``hints``, a zone may be written when all of its snapshot is copied; without ``duplicate``, a write to a zone that is
        not copied yet waits for the zone's turn.

        Raises :class:`ebbtide.InvalidArgument` (what is no array, a zone that is no power of two, arrays that are protected
        already, arrays of another GPU), :class:`ebbtide.Unsupported` (a way of tracking that this machine does not allow: ``ebbtide
        doctor`` says which it does; ``"faults"`` or ``"scan"`` of arrays on a GPU, or such that do not begin at a multiple of 16
        bytes; a read-only store), :class:`ebbtide.OutOfMemory`, :class:`ebbtide.Closed`.

        >>> store.protect({"p": pressure, "v": velocity})
        >>> for step in range(1000):
        ...     advance(pressure, velocity)
        ...     if step % 10 == 0:
        ...         store.snapshot(step)
        >>> store.restore(500, out={"p": pressure, "v": velocity})
        """

    def unprotect(self) -> None:
        """
        Track the protected arrays no longer. It waits until the snapshots in flight have ended.

        Raises :class:`ebbtide.InvalidArgument` (nothing is protected), :class:`ebbtide.Closed`.
        """

    def touch(self, array: ebbtide.types.Array) -> None:
        """
        Say that a protected array, or a slice of one, was written: the next snapshot stores it.

        Needed with ``track="declared"``, and after writes that page protection does not see (see :meth:`protect`).
        Raises :class:`ebbtide.InvalidArgument` (no part of a protected array), :class:`ebbtide.Closed`.

        >>> field[lo:hi] = update
        >>> store.touch(field[lo:hi])
        """

    def snapshot(self, version: int, *, full: bool = False, dedup: bool = False, stream: ebbtide.types.Stream | None = None, fenced: bool = False) -> ebbtide._futures.Future:
        """
        Take a cut of all protected arrays and return: ``version`` is what they are now, whatever is written afterwards.

        It is stored in the background, as a version like any other: :meth:`restore` reads it, :meth:`wait`, :meth:`drop`,
        :meth:`latest` and ``keep_last`` act on it. Until it is stored whole, the version does not exist. A write to a zone that is
        not copied yet waits for its copy (with ``track="faults"``; ics19 sec. 4.3.2).

        full: store everything, whatever was written.
        dedup: store no zone that is stored already, by this snapshot or by one it leans on (not for arrays on a GPU).
        stream: where arrays on the GPU are cut, as for ``checkpoint``: they are what they are when the stream gets there, and later
        work on it may write to them. The host waits until the stream has read them.
        fenced: before arrays on the GPU are written to, ``before_write`` of what this returns is called. Until then they are copied
        beside the stream, as the device cache has room.
        The future's levels are those of a checkpoint's, and ``"copied"``: it no longer depends on the arrays.

        Raises :class:`ebbtide.VersionExists`, :class:`ebbtide.InvalidArgument` (nothing is protected), :class:`ebbtide.Lost`
        (a protected array has other memory than when it was protected, or its memory is gone), :class:`ebbtide.OutOfMemory`,
        :class:`ebbtide.Closed`; the future, also :class:`ebbtide.TimedOut` (a write waited too long for the buffer).

        >>> cut = store.snapshot(7)
        >>> advance(field)               # while it is copied
        >>> cut.wait("storage")
        """

    def create_file(self, name: str, version: int, timeout: float | None = 10.0) -> ebbtide._files.File:
        """
        A new binary file, to be written (and read, and truncated) anywhere: see :class:`ebbtide.File`.

        Closing it makes it visible under ``version``, whole; leaving ``with`` by an exception leaves nothing, as does a process
        that dies. timeout: seconds that a write waits for memory of the cache that no transfer can free; None: as long as it takes.
        With ``keep_last``, a file that is durable drops older ones of its name that enough durable ones make up for.
        Raises :class:`ebbtide.VersionExists` (it is there, or being written), :class:`ebbtide.InvalidArgument`,
        :class:`ebbtide.Unsupported` (a read-only store).

        >>> with store.create_file("model", epoch) as file:
        ...     torch.save(model.state_dict(), file)
        >>> file.wait("storage")
        """

    def open_file(self, name: str, version: int | None = None) -> ebbtide._files.File:
        """
        A file to be read; ``version`` None: the newest.

        Raises :class:`ebbtide.UnknownVersion` (it is not there, or not whole), :class:`ebbtide.Damaged`.
        """

    def files(self, name: str | None = None) -> list[tuple[str, int, int]]:
        """
        The files that are there, whole, as (name, version, bytes), ascending; only those called ``name``, if given.
        """

    def drop_file(self, name: str, version: int) -> None:
        """Forget a file and its bytes. Raises :class:`ebbtide.UnknownVersion`."""

    @staticmethod
    def open_with(options: dict[str, str], log: Callable[[str, str], None] | None = None) -> Store:
        """
        Open with options as text; ``log`` gets severity (``info``, ``warning``) and text. See :func:`ebbtide.open`.
        """

class FileHandle:
    """An open file of a store, as :class:`ebbtide.File` uses it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def writable(self) -> bool: ...

    @property
    def size(self) -> int: ...

    def tell(self) -> int: ...

    def read_into(self, buffer: Any) -> int: ...

    def write(self, buffer: Any) -> int: ...

    def seek(self, position: int) -> None: ...

    def truncate(self, bytes: int) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def wait(self, level: str, timeout: float | None = None) -> None: ...

def option_table() -> list[tuple[str, str, str]]:
    """
    Name, kind and what is expected, of each option and of each of ``tuning``.
    """

def parse_bytes(key: str, text: str) -> int:
    """``"4GiB"`` as a number of bytes; a refusal names ``key``."""

def format_bytes(bytes: int) -> str:
    """``4294967296`` as ``"4 GiB"``."""

class Inspection:
    """
    A store's directory, read without opening the store: headers, no payload.
    """

    @staticmethod
    def of(directory: str | os.PathLike[str], shared: str | os.PathLike[str] | None = None) -> Inspection:
        """
        Reads all headers and the index; writes nothing. ``shared``: of the shared directory too.
        """

    def summary(self) -> dict[str, Any]:
        """The store, its segments, damages and other files."""

    def records(self) -> list[dict[str, Any]]:
        """
        Its checkpoints, ascending by history and version; each superseded one after the valid one.
        """

    def verify(self, tell: Callable[[int], None] | None = None, threads: int = 0) -> list[dict[str, Any]]:
        """
        Reads all of them; returns a verdict on each. ``tell`` gets the bytes read so far, some 20 times a second.
        """

class RecordReader:
    """One checkpoint, read piece by piece, each checked."""

    def __init__(self, inspection: Inspection, index: int) -> None: ...

    def describe(self) -> dict[str, Any]:
        """
        Regions as (id, bytes, offset), metadata, the arrays that it describes, and what a snapshot leans on.
        """

    def next(self) -> bytes:
        """The payload's next bytes; none at the end."""

    def trouble(self) -> dict[str, Any]:
        """What next() raised, in parts."""

def collect(directory: str | os.PathLike[str], keep_last: int = 0, keep_every: int = 0, apart: Sequence[str] = [], retired: Sequence[str] = [], damaged: bool = False, dry_run: bool = False, tell: Callable[[int], None] | None = None) -> dict[str, Any]:
    """
    Frees the space of checkpoints that can never be restored; see ``ebbtide gc``.
    """

def retained(versions: Sequence[int], keep_last: int, keep_every: int) -> list[int]:
    """Of a history's intact versions, ascending, those that are kept."""

def build_info() -> dict[str, Any]:
    """
    What the extension was built with: ``version``, ``cuda`` (the toolkit's version, or None), ``io_uring``
    (whether it was compiled in), ``compiler``.
    """

def cuda_devices(open: bool = False) -> list[dict[str, Any]]:
    """
    The GPUs that this process may use: ``ordinal``, ``name``, ``total_bytes``, ``free_bytes``, ``pci``.

    ``free_bytes`` is None for a GPU that the process does not use yet, unless ``open``: then a context is
    opened on each to ask, and closed again.
    """

def cuda_absent_reason() -> str:
    """Why there is no GPU; empty when there is one."""

def copy_bytes(to: int, source: int, bytes: int) -> None:
    """
    Copies between two addresses of host memory as a store without a GPU does.
    """

def link_rates(device: str, span: int = 268435456) -> dict[str, float]:
    """
    Bytes/s of bare copies on a device (``"cuda:0"``, ``"cpu"``): ``device_copy`` within it,
    ``device_to_host`` and ``host_to_device`` between it and pinned memory, ``both`` at once, together.
    """

def peer_links(span: int = 134217728) -> list[dict[str, Any]]:
    """
    How each GPU uses the memory of each other one: ``from``, ``to``, ``usable``, ``reason`` (why not),
    ``damaged`` (bytes that were probed did not arrive), ``store`` and ``load`` (bytes/s to and from it).

    Each ordered pair is probed with bytes that are read back. Empty with fewer than two GPUs.
    """

def io_uring_absent_reason() -> str:
    """
    Why io_uring cannot be used, according to an attempt; empty when it can.
    """

def write_tracking() -> dict[str, Any]:
    """
    How snapshots find writes here: ``auto`` (what ``track="auto"`` uses: ``"faults"``, ``"scan"`` or
    ``"digest"``), and ``watches``, each tried out: ``name``, ``usable``, ``user_faults_only`` (a read() into
    protected memory fails), ``note`` (why it is not usable, or limited).
    """

def file_system(directory: str) -> dict[str, Any]:
    """
    ``kind``, ``in_memory``, ``free_bytes`` and ``total_bytes`` of the file system that a directory is on.
    """

def memory_limits() -> dict[str, int | None]:
    """
    Bytes of memory ``available``, the lowest limit of the ``cgroup`` and what is left of it, ``cgroup_left``
    (None without a limit), and ``local_ranks``.
    """

def planned(options: dict[str, str]) -> dict[str, Any]:
    """
    What a store opened with these options would choose, without opening it: bytes of the tiers ``device``,
    ``host`` and ``local`` (0: absent), ``directory``, ``settings``. Raises as :func:`ebbtide.open` does.
    """

def pools() -> list[dict[str, Any]]:
    """
    The pools of this user on this node, each as `ebbtide node --json` has it.
    """

def lenders() -> list[dict[str, Any]]:
    """
    The stores of this user on this node that lend memory, each as `ebbtide node --json` has it.
    """

def drain(job: str, timeout: float) -> dict[str, Any]:
    """
    Waits until what a pool's processes have handed over is written; see ``ebbtide node drain``.
    """

class WriteRecorder:
    """Records first writes to pages; see ebbtide.sim.WriteRecorder."""

    @staticmethod
    def start(address: int, bytes: int) -> WriteRecorder: ...

    def cut(self) -> None: ...

    def stop(self) -> list[tuple[int, int]]:
        """Nanoseconds since the cut and page, of each."""

class Agreement:
    """
    What one member of a group knows; see ebbtide/agreement.hpp and ebbtide.mpi.
    """

    def __init__(self) -> None: ...

    def add_history(self) -> int: ...

    def written(self, history: int, version: int) -> None: ...

    def durable(self, history: int, version: int) -> None: ...

    def failed(self, history: int, version: int) -> None: ...

    def restart(self, history: int, version: int) -> None: ...

    def is_void(self, history: int, version: int) -> bool: ...

    def last(self, history: int) -> int: ...

    def arrive(self) -> None: ...

    def met(self) -> bool: ...

    def offer(self) -> list[int]: ...

    def take(self, minima: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What is void, and what is agreed on: (history, version) of each."""
