"""What `offload` has saved: tensors that stay in memory, or bytes as versions of a history, and the order in which they are needed."""

from __future__ import annotations

import collections
import ctypes
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import drop, history_of
from ebbtide.torch._compiled import Compiled
from ebbtide.torch._steps import Plan, Step, plan

_WASTE = 4  # a storage is stored whole if it has at most so many times the bytes of the tensor
_TRIM = 64 << 20  # bytes that were let go
_MOST_GROUP = 128 << 20  # bytes
_GROUPS = 16  # that the fastest cache has room for, at the least
_Key: TypeAlias = tuple[int, int, int, int]
"""Of bytes of a storage: which one, the count of its changes, and where they begin and end."""
_Layout: TypeAlias = tuple[torch.dtype, int, torch.Size, tuple[int, ...]]
"""Of a tensor over them: its offset in elements from where they begin, its shape and strides."""
_handle_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda gpu: 0)
"""The handle of a GPU's current stream. A PyTorch for processors has no such function."""


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
        self._there = collections.deque(one for one in self._there if (entry := one()) is not None and entry.counts)

    def takes(self, entry: Entry) -> bool:
        """Whether it may stay, a whole storage of no more than ``most`` bytes; then it counts."""
        if self._leaving > 0:
            self._leaving -= entry.bytes
            self._left += entry.bytes
            return False
        self._used += entry.bytes
        entry.counts = True
        self._there.append(entry.me)
        return True

    def surplus(self) -> Iterator[Entry]:
        """What was saved long ago, and has to leave before the next is asked for."""
        self._settle()
        while self._used > self.most and len(self._there) > 1:
            oldest = self._there[0]()
            if oldest is not None and oldest.counts:
                yield oldest
                self._left += oldest.bytes
                self.remove(oldest)
            del oldest
            self._there.popleft()
            self._settle()
        self._peak = max(self._peak, self._used)

    def remove(self, entry: Entry) -> None:
        """The entry no longer counts. Any thread may call this."""
        entry.counts = False
        self._gone.append(entry.bytes)

    def _settle(self) -> None:
        while self._gone:
            self._used -= self._gone.popleft()


class Saved:
    """The versions of an offload. Its history is dropped when neither the offload nor a graph needs it any more.

    A block is expected to store what the one before did, and to need it in the same order. Its versions are hinted in one call
    before the first is written, and small neighbours are gathered (see :class:`Plan`): a call costs the same for a group as
    for one of its members, but for the copies. What is not expected is stored alone, and hinted ahead of what was before it:
    what was saved last is needed first. A group is a small part of the fastest cache, so that what waits for the rest of its group,
    or came back with it before it is needed, is little beside the cache.
    """

    def __init__(self, store: ebbtide.Store, memory: int) -> None:
        self.history = history_of(self, store, "activations")
        self.window = Window(memory)
        self.entries: dict[_Key, weakref.ref[Entry]] = {}
        self.step = Step(0)
        fastest = next(tier["capacity"] for tier in store.stats()["tiers"] if tier["capacity"])
        self._most = min(_MOST_GROUP, fastest // _GROUPS)
        self._plan: Plan | None = None
        self._as_planned = False  # so far
        self._gathered: list[weakref.ref[Entry]] = []  # they leave with the next
        self._next = 0
        self._compiled = Compiled()

    def begin(self) -> None:
        if self.step.kinds:
            self._plan = plan(self.step, self._most, self._plan)
        self._as_planned = self._plan is not None
        self.step = Step(self._next)
        self.window.begin()

    def end(self, failed: bool) -> None:
        """Stores what was gathered, unless the block ``failed``, and withdraws the hints of what was expected, and not written."""
        if failed:
            self._gathered.clear()
        elif self._gathered:
            self._store_gathered()
        first, written, expected = self.step.first, self.step.versions, self._plan
        if expected is None:
            return
        if 0 < written < expected.versions:
            self.history.unhint([first + one for one in expected.order if one >= written])
            self._next = first + expected.versions
        if self._compiled.looks:
            self._compiled.end()

    def number(self) -> int:
        """Of the version that is written next. It is hinted."""
        version, step, expected = self._next, self.step, self._plan
        self._next += 1
        if expected is None or step.versions >= expected.versions:
            self.history.hint_front(version)
        elif step.versions == 0:
            self.history.hint([step.first + one for one in expected.order])
        step.versions += 1
        return version

    def omit(self) -> None:
        """Nothing is written as the version that was expected next, so those behind it keep the numbers that were hinted."""
        step, expected = self.step, self._plan
        if expected is not None and step.versions < expected.versions:
            hinted = expected.order.count(step.versions)
            self.history.unhint([self.number()] * hinted)

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
        is_new = entry is None or entry.source() is not storage
        if is_new:
            entry = Entry(self, key, storage, tensor)
        assert entry is not None
        if entry.parts is None:
            parts: list[Any] = entry.layouts
            parts.append(entry.layout(tensor))
        else:
            parts = entry.parts
            parts.append(tensor.detach())  # an output itself would hold the graph that holds it
        base = tensor._base
        packed = Packed(entry, len(parts) - 1, weakref.ref(tensor if base is None else base))
        if is_new:
            window = self.window
            if entry.is_whole and entry.bytes <= window.most and window.takes(entry):
                for oldest in window.surplus():
                    self.leave(oldest)
            else:
                self.leave(entry)
            if self._plan and self._compiled.looks and self._compiled.saves():
                self._compiled.look(self._stored_and_in_memory(), self._plan.bytes)
        return packed

    def leave(self, entry: Entry) -> None:
        """Stores an entry that is in memory, at once or with the next."""
        kind = entry.bytes, entry.gpu, entry.handle, entry.is_whole
        kinds, expected = self.step.kinds, self._plan
        place = entry.place = len(kinds)
        entry.step = self.step
        kinds.append(kind)
        ends = place + 1  # the group of what is not expected
        if expected is not None and self._as_planned and expected.expects(place, kind):
            ends = expected.ends[place]
        else:
            self._as_planned = False
            if self._gathered:
                self._store_gathered()
        if ends == place + 1 and not self._gathered:
            store(self, [entry])
            return
        self._gathered.append(entry.me)
        if ends == place + 1:
            self._store_gathered()

    def _store_gathered(self) -> None:
        entries = [entry for one in self._gathered if (entry := one()) is not None]
        self._gathered.clear()
        store(self, entries)

    def _stored_and_in_memory(self) -> int:
        """Bytes of this step."""
        there = 0
        for found in list(self.entries.values()):
            entry = found()
            if entry and entry.group and entry.step is self.step and entry.source() is not None:
                there += entry.bytes
        return there


class Entry:
    """Bytes of a storage: in memory as long as they stay in the window or wait for their group, after that a part of a version.

    The last tensor that needs them takes them with it.
    """

    __slots__ = (
        "saved", "key", "bytes", "is_whole", "device", "gpu", "handle", "source", "me", "counts", "step", "place", "parts", "layouts",
        "group", "back", "kept", "left", "__weakref__",
    )  # fmt: skip

    def __init__(self, saved: Saved, key: _Key, storage: torch.UntypedStorage, tensor: torch.Tensor) -> None:
        self.key, self.bytes = key, key[3] - key[2]
        self.is_whole = self.bytes == storage.nbytes()
        self.device, self.gpu = tensor.device, tensor.get_device()  # -1: it is in host memory
        self.handle: int | None = (
            None if self.gpu < 0 else _handle_of(self.gpu)
        )  # of its stream, and then of the one on which it came back
        self.source = weakref.ref(storage)  # PyTorch keeps this object as long as the memory
        self.counts = False  # in the window
        self.step: Step | None = None  # in which it leaves
        self.place = -1  # there
        self.parts: list[torch.Tensor] | None = []  # None: they are not in memory
        self.layouts: list[_Layout] = []  # of the tensors over them, then
        self.group: Group | None = None
        self.back: weakref.ref[torch.UntypedStorage] | None = None
        self.kept: torch.UntypedStorage | None = None  # what came back with its group, until all tensors over it had it
        self.left = 0  # tensors that did not have it yet
        self.me = weakref.ref(self)
        self.saved = saved
        saved.entries[key] = self.me

    def is_as_saved(self, part: torch.Tensor) -> bool:
        """Whether bytes that are in memory were neither changed nor resized."""
        size = part.untyped_storage().nbytes()
        return bool(part._version == self.key[1]) and (size == self.bytes if self.is_whole else size >= self.key[3])

    def whole(self) -> torch.Tensor:
        """The storage's bytes, in memory."""
        assert self.parts is not None
        storage = self.parts[0].untyped_storage()
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, self.key[2], (self.bytes,), (1,))

    def let_go(self, group: Group) -> None:
        """The bytes are not in memory any more, but in ``group``."""
        assert self.parts is not None
        layouts = []
        for part in self.parts:
            layouts.append(self.layout(part))
        self.layouts = layouts  # first: another thread may unpack one
        self.group = group
        self.parts = None

    def layout(self, tensor: torch.Tensor) -> _Layout:
        offset = tensor.storage_offset() - self.key[2] // tensor.itemsize
        return tensor.dtype, offset, tensor.shape, tensor.stride()

    def __del__(self) -> None:
        saved = getattr(self, "saved", None)
        if saved is None:  # it was interrupted as it began
            return
        if saved.entries.get(self.key) is self.me:
            del saved.entries[self.key]
        if self.counts:
            saved.window.remove(self)

    def storage(self) -> torch.UntypedStorage:
        """Of what is stored, in memory; the same as long as some tensor has it."""
        group, back = self.group, self.kept
        assert group is not None
        if back is None and self.back is not None:
            back = self.back()
        if back is None:
            back = group.fetch(self)
        elif self.gpu >= 0:
            self._follow(back)
        if self.left == len(self.layouts):
            self.step.ask(self.place)  # type: ignore[union-attr]
        self.left -= 1
        if self.left <= 0:
            self.kept = None
        return back

    def _follow(self, back: torch.UntypedStorage) -> None:
        """The current stream waits for the one on which the bytes came back, and the allocator for both."""
        if self.handle == _handle_of(self.gpu):
            return
        stream = torch.cuda.current_stream(self.device)
        stream.wait_stream(_stream(self.handle, self.device))
        torch.empty(0, dtype=torch.uint8, device=self.device).set_(back).record_stream(stream)


def store(saved: Saved, entries: list[Entry]) -> None:
    """Stores entries of one stream as one version, and lets go of their memory.

    What was changed stays in memory, and its next use raises. What was resized may be back when it is needed, as FSDP's parameters are.
    """
    entries = [entry for entry in entries if entry.is_as_saved(entry.parts[0])]  # type: ignore[index]
    if entries:
        group = Group(saved, entries)
        for entry in entries:
            entry.let_go(group)
    else:
        saved.omit()


class Group:
    """A version: the bytes of one entry, or of several of one stream. The last of them takes it along."""

    __slots__ = ("saved", "version", "bytes", "members")

    def __init__(self, saved: Saved, entries: list[Entry]) -> None:
        self.saved, self.bytes = saved, 0
        self.members: list[tuple[weakref.ref[Entry], int]] = []
        one, regions = entries[0], []
        for entry in entries:
            part = entry.parts[0]  # type: ignore[index]
            if one.gpu >= 0:  # it may be let go of before the stream of its memory waits for the copy
                part.record_stream(_stream(one.handle, one.device))
            regions.append((part.untyped_storage().data_ptr() + entry.key[2], entry.bytes))
            self.members.append((entry.me, entry.bytes))
            self.bytes += entry.bytes
        if one.gpu < 0:
            free_memory.after(self.bytes)
        history = saved.history
        self.version: int | None = saved.number()
        try:
            if not history._write(self.version, regions, one.gpu, one.handle):  # type: ignore[attr-defined]
                history.checkpoint(self.version, [entry.whole() for entry in entries], stream=one.handle)
        except BaseException:  # an interrupt may come as soon as it is there
            version, self.version = self.version, None
            drop(history, version)
            raise

    def __del__(self) -> None:
        if getattr(self, "version", None) is None:  # it was not written
            return
        try:
            self.saved.history.drop(self.version)
        except (errors.Closed, errors.Unsupported):  # Unsupported: in a process that was forked
            pass

    def fetch(self, wanted: Entry) -> torch.UntypedStorage:
        """Brings back all that is needed of it, and returns what is ``wanted``. The others stay until they were asked for.

        Each storage has a tensor of no bytes, ``changes``, which counts the changes of all tensors over it.
        """
        wholes, regions, handle = [], [], None
        for _, size in self.members:
            whole = torch.empty(size, dtype=torch.uint8, device=wanted.device)
            wholes.append(whole)
            regions.append((whole.data_ptr(), size))
        if wanted.gpu < 0:
            free_memory.after(self.bytes)
        else:
            handle = _handle_of(wanted.gpu)
        history = self.saved.history
        assert self.version is not None
        if not history._read(self.version, regions, wanted.gpu, handle):  # type: ignore[attr-defined]
            history.restore(self.version, wholes, keep=True)
        for (one, _), whole in zip(self.members, wholes):
            member = one()
            if member is None or not (member is wanted or member.back is None or member.back() is None):
                continue  # nothing needs it any more, or it is back
            storage: Any = whole.untyped_storage()  # with the count of changes beside its bytes
            if member is wanted:
                found = storage
            storage.changes = torch.empty(0, dtype=torch.uint8, device=wanted.device)
            member.handle, member.left = handle, len(member.layouts)
            member.back = weakref.ref(storage)
            member.kept = storage if len(wholes) > 1 else None
        return found


@functools.lru_cache(maxsize=64)
def _stream(handle: int | None, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.ExternalStream(handle, device) if handle else torch.cuda.default_stream(device)


class Packed:
    """A tensor over the bytes of an entry."""

    __slots__ = ("entry", "part", "source")

    def __init__(self, entry: Entry, part: int, source: weakref.ref[torch.Tensor]) -> None:
        self.entry, self.part, self.source = entry, part, source  # source: shares the count of changes

    def unpack(self) -> torch.Tensor:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # in it, a new tensor counts no changes
                return self.unpack()
        entry = self.entry
        if (parts := entry.parts) is not None:
            part = parts[self.part]
            if not entry.is_as_saved(part):
                raise changed(part.shape, part._version, entry.key[1], "left in memory")
            if entry.step is not None:  # it waits for its group
                entry.step.ask(entry.place)
            return part
        dtype, offset, shape, strides = entry.layouts[self.part]
        source = self.source()
        if source is not None and source._version != entry.key[1]:
            raise changed(shape, source._version, entry.key[1], "stored")
        storage: Any = entry.storage()
        changes: torch.Tensor = storage.changes
        if changes._version:  # by a backward pass, of a tensor that was handed out
            raise changed(shape, entry.key[1] + changes._version, entry.key[1], "brought back")
        tensor = changes.detach()  # counts changes with it
        tensor.data = torch.empty(0, dtype=dtype, device=entry.device).set_(storage, offset, shape, strides)
        return tensor


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
