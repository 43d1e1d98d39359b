"""The exceptions of ebbtide: one class for each reason, each also a fitting built-in exception."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Base of all refusals and failures. ``reason`` is the name of the kind, the same as in C and C++."""

    reason: ClassVar[str] = "error"

    def __str__(self) -> str:  # KeyError would quote the message
        return Exception.__str__(self)


class InvalidArgument(Error, ValueError):
    """A wrong option, size or object; the message names the key, the value and what is expected."""

    reason = "invalid_argument"


class VersionExists(Error):
    """This version exists: it was neither dropped nor consumed."""

    reason = "version_exists"


class UnknownVersion(Error, KeyError):
    """No such checkpoint was ever written, or it was dropped."""

    reason = "unknown_version"


class Consumed(Error):
    """Restored from an ephemeral store without a further hint: its bytes are gone."""

    reason = "consumed"


class TooLarge(Error):
    """Larger than every tier."""

    reason = "too_large"


class NoSpace(Error):
    """No transfer in flight can make room; the message names each tier's size and use."""

    reason = "no_space"


class SizeMismatch(Error, ValueError):
    """The targets of a restore do not match what was written; the message names both. Nothing was consumed."""

    reason = "size_mismatch"


class TimedOut(Error, TimeoutError):
    """The call's time limit passed; the operation may still complete."""

    reason = "timed_out"


class IOFailed(Error, OSError):
    """The operating system failed a transfer permanently."""

    reason = "io_error"


class Lost(Error):
    """The checkpoint's only copy could not be written or read back."""

    reason = "lost"


class Dropped(Error):
    """Dropped while the call waited for it."""

    reason = "dropped"


class Closed(Error):
    """The store is closed, or memory that it lent was returned."""

    reason = "closed"


class Unsupported(Error):
    """Not possible here: a level, tier, file system, device or process that this store does not support."""

    reason = "unsupported"


class OutOfMemory(Error, MemoryError):
    """A cache could not be allocated, or there was no memory to read a file; nothing is lost."""

    reason = "out_of_memory"


class Damaged(Error, OSError):
    """Bytes on the disk do not match their checksum; the message names file and offset.

    Or memory was written to after ``commit(check=True)``; the message names the version.
    """

    reason = "damaged"


class InUse(Error):
    """Another process has this store open for writing."""

    reason = "in_use"


class NotAStore(Error, ValueError):
    """A directory with other contents."""

    reason = "not_a_store"


class NotPermitted(Error, PermissionError):
    """Another user's store, or one that others can write to."""

    reason = "not_permitted"


class Suspended(Error):
    """A signal asked for it (:meth:`ebbtide.Store.suspend_on`): what was written is durable, and the program may end."""

    reason = "suspended"


class DamagedWarning(UserWarning):
    """Damage on the disk was skipped; the message names file, offset and damage."""


_CLASSES: tuple[type[Error], ...] = (
    InvalidArgument,
    VersionExists,
    UnknownVersion,
    Consumed,
    TooLarge,
    NoSpace,
    SizeMismatch,
    TimedOut,
    IOFailed,
    Lost,
    Dropped,
    Closed,
    Unsupported,
    OutOfMemory,
    Damaged,
    InUse,
    NotAStore,
    NotPermitted,
    Suspended,
)
BY_REASON: dict[str, type[Error]] = {kind.reason: kind for kind in _CLASSES}
