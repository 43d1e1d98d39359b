"""What `offload` has saved: bytes of a tensor's memory as a version of a history, and the order in which they are needed."""

from __future__ import annotations

import ctypes
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import history_of

_WASTE = 4  # a storage is stored whole if it has at most so many times the bytes of the tensor
_TRIM = 64 << 20  # bytes that were let go
_MOST_ASKED = 4  # restores that are remembered, for each version: a graph may be used again without end
_Any = TypeVar("_Any", bound=Callable[..., Any])
_dynamo = torch._C._dynamo.eval_frame
compile_with = _dynamo.set_eval_frame
"""Sets what compiles the functions that this thread calls, None for nothing, and returns what did."""


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


class Saved:
    """The versions of an offload. Its history is dropped when neither the offload nor a graph needs it any more.

    A block is expected to write as many versions as the one before, and to need them in the same order: they are hinted in
    one call before the first is written. Otherwise each is hinted ahead of those before it: what was saved last is needed first.
    """

    def __init__(self, store: ebbtide.Store) -> None:
        self.history = history_of(self, store, "activations")
        self.entries: dict[tuple[int, int, int, int], weakref.ref[Entry]] = {}
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

    def end(self) -> None:
        """Withdraws the hints of what was expected, and not written."""
        first, count = self.step.first, self.step.count
        if 0 < count < self._expected:
            self.history.unhint([first + one for one in self._order if one >= count])
            self.next = first + self._expected
        if self._expected and self._compiled.looks:
            self._compiled.end()

    def hint(self, version: int) -> None:
        """Before ``version`` is written."""
        step = self.step
        if step.count >= self._expected:
            self.history.hint_front(version)
        elif step.count == 0:
            self.history.hint([step.first + one for one in self._order])
        step.count += 1

    def pack(self, tensor: torch.Tensor) -> Packed:
        storage = tensor.untyped_storage()
        shape, strides, item = tensor.shape, tensor.stride(), tensor.itemsize
        begin = tensor.storage_offset() * item
        start, end, own = 0, storage.nbytes(), tensor.nbytes
        if end != own:
            span = (1 + sum((length - 1) * stride for length, stride in zip(shape, strides))) * item
            if end > _WASTE * min(own, span):
                start, end = begin, begin + span
        # Autograd forbids changes of what it saved, and counts them: the same count means the same bytes.
        key = (storage._cdata, tensor._version, start, end)
        found = self.entries.get(key)
        entry = None if found is None else found()
        if entry is None or entry.source() is not storage:
            entry = Entry(self, key, storage, tensor)
            self.step.bytes += entry.bytes
            if self._expected and self._compiled.looks:
                self._compiled.look(self, self._bytes)
        base = tensor._base
        return Packed(
            entry, weakref.ref(tensor if base is None else base), tensor.dtype, shape, strides, (begin - start) // item
        )


class _Compiled:
    """Finds out, in one step, whether one compiled function saves most of it: it saves everything at its end."""

    def __init__(self) -> None:
        self.looks = True
        self._found = ""

    def look(self, saved: Saved, expected: int) -> None:
        """As a tensor of a step of ``expected`` bytes is saved."""
        caller: types.FrameType | None = sys._getframe()
        for _ in range(4):  # itself, pack, the hook, Function.apply
            caller = caller and caller.f_back
        if caller is None or "_functorch" not in caller.f_code.co_filename:
            return
        entries = [entry for found in list(saved.entries.values()) if (entry := found()) and entry.step is saved.step]
        there = sum(entry.bytes for entry in entries if entry.source() is not None and not entry.is_kept())
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
    """Bytes of a storage, as a version of the history. The version is dropped with the last tensor that needs it."""

    __slots__ = (
        "saved",
        "version",
        "key",
        "bytes",
        "me",
        "source",
        "kept",
        "changed",
        "step",
        "device",
        "back",
        "stream",
        "__weakref__",
    )

    def __init__(
        self, saved: Saved, key: tuple[int, int, int, int], storage: torch.UntypedStorage, tensor: torch.Tensor
    ) -> None:
        self.key, self.bytes = key, key[3] - key[2]
        device = tensor.device
        self.me = saved.entries[key] = weakref.ref(self)
        self.source = weakref.ref(storage)  # PyTorch keeps this object as long as the memory
        self.back: weakref.ref[torch.UntypedStorage] | None = None
        self.kept: weakref.ref[Kept] | None = None
        self.changed: int | None = None  # the count of changes after which the store let go of it
        self.step, self.device, self.stream = saved.step, device, None
        self.version = saved.next
        saved.next += 1
        self.saved = saved  # from here on the version is dropped: an interrupt may come as soon as it is there
        saved.hint(self.version)
        if key[2] == 0 and 2 * tensor.nbytes > key[3]:
            kept = Kept()
            kept.entry, kept.tensor = self.me, tensor.detach()
            kept.address = storage.data_ptr()
            gpu, stream = -1, None
            if tensor.is_cuda:
                gpu = device.index
                stream = torch._C._cuda_getCurrentRawStream(gpu)
            adopted = saved.history._adopt(self.version, kept.address, self.bytes, gpu, stream, kept)  # type: ignore[attr-defined]
            if adopted is not None:
                self.kept = weakref.ref(kept) if adopted else None
                return
        whole = torch.empty(0, dtype=torch.uint8, device=device)
        if whole.is_cpu:
            free_memory.after(self.bytes)
        saved.history.checkpoint(self.version, whole.set_(storage, key[2], (self.bytes,), (1,)))

    def __del__(self) -> None:
        saved = getattr(self, "saved", None)
        if saved is None:
            return
        if saved.entries.get(self.key) is self.me:
            del saved.entries[self.key]
        try:
            saved.history.drop(self.version)
        except (errors.Closed, errors.Unsupported):  # Unsupported: in a process that was forked
            pass

    def is_kept(self) -> bool:
        """By the store, which has adopted it."""
        return self.kept is not None and self.kept() is not None

    def storage(self) -> torch.UntypedStorage:
        """In memory; the same as long as some tensor has it."""
        back = None if self.back is None else self.back()
        if back is not None:
            if self.stream is not None:
                self._follow(back)
            return back
        self.step.ask(self.version)
        whole = torch.empty(self.bytes, dtype=torch.uint8, device=self.device)
        if whole.is_cpu:
            free_memory.after(self.bytes)
        else:
            self.stream = torch.cuda.current_stream(self.device)
        self.saved.history.restore(self.version, whole, keep=True)
        back = whole.untyped_storage()
        self.back = weakref.ref(back)
        return back

    def _follow(self, back: torch.UntypedStorage) -> None:
        """The current stream waits for the one on which the bytes came back, and the allocator for both."""
        stream = torch.cuda.current_stream(self.device)
        if stream != self.stream:
            stream.wait_stream(self.stream)
            torch.empty(0, dtype=torch.uint8, device=self.device).set_(back).record_stream(stream)


class Kept:
    """A tensor that the store has adopted, as long as it has it. Nothing else refers to this."""

    __slots__ = ("tensor", "entry", "address", "__weakref__")

    entry: weakref.ref[Entry]
    tensor: torch.Tensor  # shares the count of changes with what was saved
    address: int

    def changes(self, entry: Entry) -> int:
        """Their count; -1: the storage was resized, and its bytes are no longer where the store reads them."""
        storage = self.tensor.untyped_storage()
        there = storage.data_ptr() == self.address and storage.nbytes() >= entry.bytes
        return self.tensor._version if there else -1

    def __del__(self) -> None:
        """The store has read what it needs of it: that is what was saved, or the entry learns that it was changed."""
        tensor, entry = self.tensor, self.entry()
        if entry is not None and (changes := self.changes(entry)) != entry.key[1]:
            entry.changed = changes
        if tensor.is_cpu:
            free_memory.after(tensor.nbytes)


class Packed:
    """A tensor over the memory of an entry."""

    __slots__ = ("entry", "source", "dtype", "shape", "strides", "offset")

    def __init__(
        self,
        entry: Entry,
        source: weakref.ref[torch.Tensor],
        dtype: torch.dtype,
        shape: torch.Size,
        strides: tuple[int, ...],
        offset: int,
    ) -> None:
        self.entry, self.source, self.dtype = entry, source, dtype  # source: shares the count of changes
        self.shape, self.strides, self.offset = shape, strides, offset

    def unpack(self) -> torch.Tensor:
        source = self.source()
        if source is not None and source._version != self.entry.key[1]:
            raise changed(self.shape, source._version, self.entry.key[1], "stored")
        entry = self.entry
        kept = None if entry.kept is None else entry.kept()
        version = entry.changed if kept is None else kept.changes(entry)
        if version is not None and version != entry.key[1]:
            raise changed(self.shape, version, entry.key[1], "stored")
        if kept is None:
            storage = entry.storage()
        else:  # the store still has what was saved itself
            entry.step.ask(entry.version)
            storage = kept.tensor.untyped_storage()
        return torch.empty(0, dtype=self.dtype, device=self.entry.device).set_(
            storage, self.offset, self.shape, self.strides
        )


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
