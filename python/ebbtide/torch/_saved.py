"""What `offload` has saved: tensors that stay in memory, or bytes as versions of a history, and the order in which they are needed."""

from __future__ import annotations

import collections
import ctypes
import functools
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import drop, history_of

_WASTE = 4  # a storage is stored whole if it has at most so many times the bytes of the tensor
_TRIM = 64 << 20  # bytes that were let go
_MOST_ASKED = 4  # restores that are remembered, for each version: a graph may be used again without end
_Any = TypeVar("_Any", bound=Callable[..., Any])
_Key: TypeAlias = tuple[int, int, int, int]
"""Of bytes of a storage: which one, the count of its changes, and where they begin and end."""
_Layout: TypeAlias = tuple[torch.dtype, int, torch.Size, tuple[int, ...]]
"""Of a tensor over them: its offset in elements from where they begin, its shape and strides."""
_dynamo = torch._C._dynamo.eval_frame
compile_with = _dynamo.set_eval_frame
"""Sets what compiles the functions that this thread calls, None for nothing, and returns what did."""
_handle_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda gpu: 0)
"""The handle of a GPU's current stream. A PyTorch for processors has no such function."""


def unseen(function: _Any) -> _Any:
    """``function``, which torch.compile does not compile where compiled code calls it, and which nothing wraps."""
    if hasattr(_dynamo, "set_code_exec_strategy"):
        skip = _dynamo._FrameAction.SKIP
        _dynamo.set_code_exec_strategy(
            function.__code__, _dynamo._FrameExecStrategy(skip, _dynamo._FrameAction.DEFAULT)
        )
    else:  # until PyTorch 2.7
        _dynamo.skip_code(function.__code__)
    return function


class Step:
    """The versions that one block wrote, from ``first`` on, and the order in which they were restored, some more than once."""

    __slots__ = ("first", "count", "bytes", "asked")

    def __init__(self, first: int) -> None:
        self.first, self.count, self.bytes = first, 0, 0
        self.asked: list[int] = []

    def ask(self, version: int) -> None:
        if len(self.asked) < _MOST_ASKED * self.count:
            self.asked.append(version - self.first)

    def order(self) -> list[int] | None:
        """None if some were never restored."""
        return self.asked if len(set(self.asked)) == self.count else None


class Window:
    """What stays in memory: of all that was saved, the last ``most`` bytes, which are needed first.

    What had to leave in one block is expected to leave in the next. The larger part of it then goes at once, so that the
    links have all of the block's time to carry it away. The rest goes when its room is needed, so that nothing has to wait
    at the end for the last of it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._used = self._peak = 0
        self._gone: collections.deque[int] = collections.deque()  # bytes, from whichever thread lets go of an entry
        self._there: collections.deque[weakref.ref[Entry]] = collections.deque()  # the oldest first
        self._left = 0  # bytes, in this block
        self._leaving = 0  # bytes that are expected to leave, and have not

    def begin(self) -> None:
        """A block begins."""
        self._settle()
        left = max(0, self._left - (self.most - self._peak))
        self._leaving = max(left - self.most, left // 2)
        self._left, self._peak = 0, self._used
        self._there = collections.deque(one for one in self._there if (entry := one()) is not None and entry.stays())

    def takes(self, size: int) -> bool:
        """Whether bytes that are saved now, no more than ``most``, may stay; then they are counted."""
        if self._leaving > 0:
            self._leaving -= size
            self._left += size
            return False
        self._used += size
        return True

    def add(self, entry: Entry) -> None:
        """It stays, and what was saved long before it leaves."""
        self._there.append(entry.me)
        self._settle()
        while self._used > self.most and len(self._there) > 1:
            oldest = self._there[0]()
            if oldest is not None and oldest.stays():
                oldest.leave()
                self._left += oldest.bytes
            del oldest
            self._there.popleft()
            self._settle()
        self._peak = max(self._peak, self._used)

    def remove(self, size: int) -> None:
        """Bytes no longer stay. Any thread may call this."""
        self._gone.append(size)

    def _settle(self) -> None:
        while self._gone:
            self._used -= self._gone.popleft()


class Saved:
    """The versions of an offload. Its history is dropped when neither the offload nor a graph needs it any more.

    A block is expected to write as many versions as the one before, and to need them in the same order: they are hinted in
    one call before the first is written. Otherwise each is hinted ahead of those before it: what was saved last is needed first.
    """

    def __init__(self, store: ebbtide.Store, memory: int) -> None:
        self.history = history_of(self, store, "activations")
        self.window = Window(memory)
        self.entries: dict[_Key, weakref.ref[Entry]] = {}
        self.next = 0
        self.step = Step(0)
        self._order: list[int] = []  # that is expected
        self._expected = self._bytes = 0  # versions, and bytes of them all
        self._compiled = _Compiled()

    def begin(self) -> None:
        if self.step.count > 0:
            self._order = self.step.order() or []
            self._expected = self.step.count if self._order else 0
            self._bytes = self.step.bytes
        self.step = Step(self.next)
        self.window.begin()

    def end(self) -> None:
        """Withdraws the hints of what was expected, and not written."""
        first, count = self.step.first, self.step.count
        if 0 < count < self._expected:
            self.history.unhint([first + one for one in self._order if one >= count])
            self.next = first + self._expected
        if self._expected and self._compiled.looks:
            self._compiled.end()

    def number(self, size: int) -> int:
        """Of the version that is written next, with so many bytes. It is hinted."""
        version, step = self.next, self.step
        self.next += 1
        if step.count >= self._expected:
            self.history.hint_front(version)
        elif step.count == 0:
            self.history.hint([step.first + one for one in self._order])
        step.count += 1
        step.bytes += size
        return version

    def pack(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> Packed:
        start, end, own = 0, storage.nbytes(), tensor.nbytes
        if end != own:
            item = tensor.itemsize
            span = (1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))) * item
            if end > _WASTE * min(own, span):
                start = tensor.storage_offset() * item
                end = start + span
        # Autograd forbids changes of what it saved, and counts them: the same count means the same bytes.
        key = (storage._cdata, tensor._version, start, end)
        found = self.entries.get(key)
        entry = None if found is None else found()
        if entry is None or entry.source() is not storage:
            entry = Entry(self, key, storage, tensor)
            if self._expected and self._compiled.looks:
                self._compiled.look(self, self._bytes)
        if entry.parts is None:
            entry.layouts.append(entry.layout(tensor))
            part = len(entry.layouts)
        else:
            entry.parts.append(tensor.detach())  # an output itself would hold the graph that holds it
            part = len(entry.parts)
        base = tensor._base
        return Packed(entry, part - 1, weakref.ref(tensor if base is None else base))


class _Compiled:
    """Finds out, in one step, whether one compiled function saves most of it: it saves everything at its end."""

    def __init__(self) -> None:
        self.looks = True
        self._found = ""

    def look(self, saved: Saved, expected: int) -> None:
        """As a tensor of a step that stored ``expected`` bytes is saved."""
        caller: types.FrameType | None = sys._getframe()
        for _ in range(4):  # itself, pack, the hook, Function.apply
            caller = caller and caller.f_back
        if caller is None or "_functorch" not in caller.f_code.co_filename:
            return
        entries = [entry for found in list(saved.entries.values()) if (entry := found()) and entry.step is saved.step]
        there = sum(entry.bytes for entry in entries if entry.source() is not None and not entry.stays())
        if 2 * there > expected:
            self._found = (
                f"{there} of {expected} bytes that were stored were in memory at one time: a function that torch.compile made saves "
                "everything at its end, so offload frees nothing before. Compile the blocks of a model one by one instead "
                "(for block in model.blocks: block.compile())"
            )

    def end(self) -> None:
        self.looks = False
        if self._found:
            warnings.warn(self._found, RuntimeWarning, stacklevel=4)


class Entry:
    """Bytes of a storage: in memory as long as they stay in the window, and after that a version of the history.

    The last tensor that needs them takes both with it.
    """

    __slots__ = (
        "saved",
        "key",
        "bytes",
        "device",
        "gpu",
        "handle",
        "source",
        "me",
        "parts",
        "layouts",
        "changed",
        "version",
        "step",
        "back",
        "__weakref__",
    )

    def __init__(self, saved: Saved, key: _Key, storage: torch.UntypedStorage, tensor: torch.Tensor) -> None:
        self.key, self.bytes = key, key[3] - key[2]
        self.device, self.gpu = tensor.device, tensor.get_device()  # -1: it is in host memory
        self.handle: int | None = (
            None if self.gpu < 0 else _handle_of(self.gpu)
        )  # of its stream, and then of the one on which it came back
        self.source = weakref.ref(storage)  # PyTorch keeps this object as long as the memory
        self.parts: list[torch.Tensor] | None = None  # None: they do not stay
        self.layouts: list[_Layout] = []  # of the tensors over them, once they do not stay
        self.changed: int | None = None  # the count of changes for which they were not stored
        self.version: int | None = None
        self.back: weakref.ref[torch.UntypedStorage] | None = None
        self.me = weakref.ref(self)
        self.saved = saved
        saved.entries[key] = self.me
        window = saved.window
        if window.most >= self.bytes == storage.nbytes() and window.takes(self.bytes):
            self.parts = []
            window.add(self)
        else:
            self._write(tensor, storage)

    def stays(self) -> bool:
        return self.parts is not None

    def leave(self) -> None:
        """Stores what has stayed until now, and lets go of it."""
        assert self.parts is not None
        first = self.parts[0]
        storage = first.untyped_storage()
        if self.is_as_saved(first, storage):
            self._write(first, storage)
        else:
            self.changed = first._version
        self.layouts = [self.layout(part) for part in self.parts]  # first: another thread may unpack one
        self.parts = None
        self.saved.window.remove(self.bytes)

    def is_as_saved(self, part: torch.Tensor, storage: torch.UntypedStorage) -> bool:
        """Whether bytes that stay were neither changed nor resized."""
        return bool(part._version == self.key[1]) and storage.nbytes() == self.bytes

    def layout(self, tensor: torch.Tensor) -> _Layout:
        offset = tensor.storage_offset() - self.key[2] // tensor.itemsize
        return tensor.dtype, offset, tensor.shape, tensor.stride()

    def _write(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        if self.gpu >= 0:  # it may be let go of before the stream of its memory waits for the copy
            tensor.record_stream(_stream(self.handle, self.device))
        self.step = self.saved.step
        self.version = self.saved.number(self.bytes)
        if self.gpu < 0:
            free_memory.after(self.bytes)
        history, start = self.saved.history, self.key[2]
        current = None if self.gpu < 0 else _handle_of(self.gpu)
        try:
            if current == self.handle and history._write(  # type: ignore[attr-defined]
                self.version, storage.data_ptr() + start, self.bytes, self.gpu, current
            ):
                return
            whole = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, start, (self.bytes,), (1,))
            history.checkpoint(self.version, whole, stream=None if current == self.handle else self.handle)
        except BaseException:  # an interrupt may come as soon as it is there
            version, self.version = self.version, None
            drop(history, version)
            raise

    def __del__(self) -> None:
        saved = getattr(self, "saved", None)
        if saved is None:  # it was interrupted as it began
            return
        if saved.entries.get(self.key) is self.me:
            del saved.entries[self.key]
        if self.parts is not None:
            saved.window.remove(self.bytes)
        if self.version is not None:
            try:
                saved.history.drop(self.version)
            except (errors.Closed, errors.Unsupported):  # Unsupported: in a process that was forked
                pass

    def storage(self) -> torch.UntypedStorage:
        """Of what is stored, in memory; the same as long as some tensor has it."""
        back = None if self.back is None else self.back()
        if back is not None:
            if self.gpu >= 0:
                self._follow(back)
            return back
        assert self.version is not None
        self.step.ask(self.version)
        whole = torch.empty(self.bytes, dtype=torch.uint8, device=self.device)
        if self.gpu < 0:
            free_memory.after(self.bytes)
        else:
            self.handle = _handle_of(self.gpu)
        history = self.saved.history
        if not history._read(self.version, whole.data_ptr(), self.bytes, self.gpu, self.handle):  # type: ignore[attr-defined]
            history.restore(self.version, whole, keep=True)
        back = whole.untyped_storage()
        self.back = weakref.ref(back)
        return back

    def _follow(self, back: torch.UntypedStorage) -> None:
        """The current stream waits for the one on which the bytes came back, and the allocator for both."""
        if self.handle == _handle_of(self.gpu):
            return
        stream = torch.cuda.current_stream(self.device)
        stream.wait_stream(_stream(self.handle, self.device))
        torch.empty(0, dtype=torch.uint8, device=self.device).set_(back).record_stream(stream)


@functools.lru_cache(maxsize=64)
def _stream(handle: int | None, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.ExternalStream(handle, device) if handle else torch.cuda.default_stream(device)


class Packed:
    """A tensor over the bytes of an entry."""

    __slots__ = ("entry", "part", "source")

    def __init__(self, entry: Entry, part: int, source: weakref.ref[torch.Tensor]) -> None:
        self.entry, self.part, self.source = entry, part, source  # source: shares the count of changes

    def unpack(self) -> torch.Tensor:
        entry = self.entry
        if (parts := entry.parts) is not None:
            part = parts[self.part]
            if not entry.is_as_saved(part, part.untyped_storage()):
                raise changed(part.shape, part._version, entry.key[1], "left in memory")
            return part
        dtype, offset, shape, strides = entry.layouts[self.part]
        source = self.source()
        version = entry.changed if source is None else source._version
        if version is not None and (version != entry.key[1] or entry.version is None):
            raise changed(shape, version, entry.key[1], "stored")
        return torch.empty(0, dtype=dtype, device=entry.device).set_(entry.storage(), offset, shape, strides)


class _FreeMemory:
    """Gives memory that was freed back to the system: glibc keeps it, and cannot use all of it again for tensors."""

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        self._since = 0  # bytes

    def after(self, count: int) -> None:
        """So many bytes are let go: a tensor that is stored soon after this, and one that came back before the next does."""
        self._since += count
        if self._since >= _TRIM and self._trim is not None:
            self._since = 0
            self._trim(0)


free_memory = _FreeMemory()


def changed(shape: torch.Size, version: int, expected: int, what: str) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of the shape "
        f"{tuple(shape)}, which offload {what}, is at version {version}; expected {expected}"
    )
