"""Ebbtide: a checkpoint cache for programs that go back.

Write a long history of checkpoints at memory speed, and read it back in a declared order with the next ones prefetched.

>>> import ebbtide
>>> with ebbtide.open(device_cache="1GiB", host_cache="4GiB") as store:
...     with store.history("forward", order="reverse") as history:
...         for step in range(1000):
...             history.checkpoint(step, advance(field))
...         for step in reversed(range(1000)):
...             history.restore(step, out=field)

A store opened with a durability is persistent: it outlives the process, and a later process continues from it.

>>> with ebbtide.open("run-7", durability="storage", keep_last=3) as store:
...     newest = store.latest()      # complete and intact; None: there is none
...     field = initial() if newest is None else store.restore(newest)
"""

from typing import TYPE_CHECKING, Any

# _core asks for _arrays and _trees: a program that has no descriptor left cannot import them at its first checkpoint.
from ebbtide import _arrays, _trees, errors, types  # noqa: F401
from ebbtide._core import DeviceArray, History, Loan, Reservation, Store, version
from ebbtide._files import File
from ebbtide._open import open
from ebbtide.errors import (
    Closed,
    Consumed,
    Damaged,
    DamagedWarning,
    Dropped,
    Error,
    InUse,
    InvalidArgument,
    IOFailed,
    Lost,
    NoSpace,
    NotAStore,
    NotPermitted,
    OutOfMemory,
    SizeMismatch,
    Suspended,
    TimedOut,
    TooLarge,
    UnknownVersion,
    Unsupported,
    VersionExists,
)

if TYPE_CHECKING:
    from ebbtide import sim
    from ebbtide._futures import Future
    from ebbtide.sim import Estimate, estimate

__version__: str = version()

__all__ = [
    "Closed",
    "Consumed",
    "Damaged",
    "DamagedWarning",
    "DeviceArray",
    "Dropped",
    "Error",
    "Estimate",
    "File",
    "Future",
    "History",
    "IOFailed",
    "InUse",
    "InvalidArgument",
    "Loan",
    "Lost",
    "NoSpace",
    "NotAStore",
    "NotPermitted",
    "OutOfMemory",
    "Reservation",
    "SizeMismatch",
    "Store",
    "Suspended",
    "TimedOut",
    "TooLarge",
    "UnknownVersion",
    "Unsupported",
    "VersionExists",
    "__version__",
    "errors",
    "estimate",
    "open",
    "sim",
    "types",
]


def __getattr__(name: str) -> Any:
    """The simulator and Future, which are imported when they are first asked for, or (Future) by the first ``open``."""
    if name == "Future":
        from ebbtide._futures import Future

        return Future
    if name not in ("Estimate", "estimate", "sim"):
        raise AttributeError(f"module 'ebbtide' has no attribute {name!r}")
    from importlib import import_module

    simulator = import_module("ebbtide.sim")
    return simulator if name == "sim" else getattr(simulator, name)


def __dir__() -> list[str]:
    return __all__
