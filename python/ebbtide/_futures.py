"""Operations in progress, as Python's own futures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ebbtide._core import Operation
from ebbtide.errors import Unsupported

if TYPE_CHECKING:
    from ebbtide._core import Endings

_OF_PYTHON = frozenset(vars(concurrent.futures.Future()))


class Future(Operation, concurrent.futures.Future[Any]):
    """An operation in progress: a :class:`concurrent.futures.Future` that can also be awaited.

    ``checkpoint`` returns one that is done at once (the source may be overwritten) and shows which tier the bytes have
    reached, and in a persistent store how durable they are; ``restore_async`` returns one that keeps its arrays alive until
    they are filled.

    ``await``, ``asyncio.wrap_future``, ``concurrent.futures.wait`` and ``as_completed`` take it. ``cancel`` returns False:
    what was begun goes on, so an ``await`` that is cancelled loses nothing, and ``result`` still has the arrays. Callbacks run
    on a Python thread that the store starts when it first needs one, and ends when it is closed. The same thread fills an
    ``out`` that is not in the order that was written, whether anybody asks for it or not.

    >>> future = store.checkpoint(step, state)
    >>> future.done("storage")             # never waits
    False
    >>> future.wait("storage", timeout=60) # from here on it survives a power loss
    >>> fields = await store.restore_async(7)
    """

    # What concurrent.futures keeps of a future is made when somebody first asks for it: most are only waited for.
    def __getattr__(self, name: str) -> Any:
        if name not in _OF_PYTHON:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        if "_made" not in self.__dict__:
            made = concurrent.futures.Future[Any]()
            made.set_running_or_notify_cancel()
            if self.done() or not self._tell_of_end():
                _end(made, self.exception(0))
            self.__dict__.setdefault("_made", made)  # another thread, or a signal handler, may have been here
        return vars(self.__dict__["_made"])[name]

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            import asyncio

            yield from asyncio.wrap_future(self).__await__()
        return self.result()

    def __repr__(self) -> str:
        try:
            state = "done" if self.done() else "in progress"
        except Unsupported:
            state = "of another process"  # which forked this one
        return f"<ebbtide.Future at {id(self):#x}, {state}>"

    def cancel(self) -> bool:
        """False: what was begun goes on."""
        return False

    def cancelled(self) -> bool:
        """False, as :meth:`cancel`."""
        return False

    def running(self) -> bool:
        """Whether it has not ended yet; never waits."""
        return not self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as :meth:`result` does, and return what that would raise; None if it has not failed.

        Raises :class:`ebbtide.TimedOut` when the time passes first.
        """
        try:
            self.wait(timeout=timeout)
        except Exception:
            if not self.done() or self.error is None:  # it is not its own
                raise
        return self.error


def _end(future: concurrent.futures.Future[Any], error: BaseException | None) -> None:
    """``result`` and ``exception`` of a Future ask the store; Python's side has to know that it has ended."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has ended already
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class Watcher(threading.Thread):
    """Ends the futures of one store for those who watch them, in the order in which they end."""

    def __init__(self, endings: Endings) -> None:
        super().__init__(name="ebbtide-futures", daemon=True)  # the store's end ends it, at exit too
        self._endings = endings

    def run(self) -> None:
        while self._endings.give(lambda future: _end(future, future._settle())):
            pass

    def finish(self) -> None:
        """Ends the futures that are left, and the thread: the store is closed."""
        self._endings.close()
        if threading.current_thread() is not self and self.is_alive():
            self.join()
