"""What autograd saves for the backward pass, in a store instead of in memory."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_pre_hook

import ebbtide
from ebbtide import _arrays, errors
from ebbtide._core import parse_bytes
from ebbtide._training.histories import drop, history_of

Skip: TypeAlias = "torch.nn.Module | Callable[[torch.Tensor], bool] | Iterable[torch.Tensor]"

_WASTE = 4  # a storage is stored whole if it has at most so many times the bytes of the tensor


class offload:
    """Saves the activations of what runs inside the ``with`` block in a store, and brings them back for the backward pass.

    The store knows that the last saved is needed first, and prefetches it. Memory of an activation goes back to the
    allocator as soon as autograd lets go of it; it is fetched again when the backward pass gets to it, and dropped with the graph. The backward pass may run
    inside or after the block, and more than once (``retain_graph``).

    store: an ephemeral :class:`ebbtide.Store`; tensors on a GPU need one on a GPU.
    min_bytes: smaller tensors stay in memory.
    skip: a module whose parameters and buffers stay, tensors that do, or a function that is True of those that do. Parameters of
    modules that are called inside the block stay without being named.

    Tensors that share memory are stored once and share it again. Sparse, quantised, nested and dual tensors, subclasses,
    and tensors without memory of their own stay.
    May be entered again, but not while it is entered. For one thread; the backward pass may run in others.

    Raises :class:`ebbtide.InvalidArgument` (a persistent store); the forward pass, what :meth:`ebbtide.History.checkpoint`
    raises (:class:`ebbtide.NoSpace`: the store is too small for the activations), and the backward pass what :meth:`ebbtide.History.restore` raises.

    >>> with ebbtide.open(device_cache="1GiB", host_cache="32GiB") as store:
    ...     keep = ebbtide.torch.offload(store)
    ...     for batch in data:
    ...         with keep:
    ...             loss = model(batch)
    ...         loss.backward()
    """

    def __init__(self, store: ebbtide.Store, *, min_bytes: int | str = "1MiB", skip: Skip | None = None) -> None:
        if store.durability != "ephemeral":
            raise errors.InvalidArgument(
                "the store is persistent: activations need one that forgets them (an ephemeral one)"
            )
        self._held = _Held()
        self._history = history_of(self._held, store, "activations", "lifo")
        self._least = parse_bytes("min_bytes", min_bytes) if isinstance(min_bytes, str) else int(min_bytes)
        self._skip = skip
        self._versions = itertools.count()
        self._parameters: dict[int, torch.UntypedStorage] = {}  # by identity; of those seen inside the block
        self._entries: weakref.WeakValueDictionary[tuple[int, ...], _Entry] = weakref.WeakValueDictionary()
        self._hooks: Any = None
        self._handle: Any = None

    def __enter__(self) -> offload:
        if self._hooks is not None:
            raise errors.InvalidArgument("this offload is entered already")
        skip = self._skip
        if isinstance(skip, torch.nn.Module):
            self._note(itertools.chain(skip.parameters(), skip.buffers()))
        elif skip is not None and not callable(skip):
            skip = self._skip = list(skip)
            self._note(skip)
        # torch.compile would compile the hooks too, wherever a compiled function calls them.
        hooks = [torch.compiler.disable(hook) for hook in (self._pack, _unpack)]
        entered = torch.autograd.graph.saved_tensors_hooks(*hooks)
        entered.__enter__()
        self._hooks, self._handle = entered, register_module_forward_pre_hook(self._see)
        return self

    def __exit__(self, *error: object) -> None:
        hooks, self._hooks = self._hooks, None
        hooks.__exit__(*error)
        self._handle.remove()
        self._parameters.clear()

    def _see(self, module: torch.nn.Module, _inputs: Any) -> None:
        self._note(parameter for parameter in module._parameters.values() if parameter is not None)

    def _note(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self._parameters[storage._cdata] = storage

    def _stays(self, tensor: torch.Tensor) -> bool:
        return (
            type(tensor) is not torch.Tensor
            or tensor.layout is not torch.strided
            or tensor.nbytes < max(self._least, 1)
            or not _arrays.has_memory(tensor)
            or _arrays.is_dual(tensor)
            or tensor.untyped_storage().nbytes() < self._least  # an expanded one
            or tensor.device.type not in ("cpu", "cuda")
            or tensor.is_quantized
            or tensor.is_nested
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.untyped_storage()._cdata in self._parameters
            or (callable(self._skip) and not isinstance(self._skip, torch.nn.Module) and bool(self._skip(tensor)))
        )

    def _pack(self, tensor: torch.Tensor) -> _Packed | _Stayed:
        if self._stays(tensor):
            return _Stayed(tensor.detach(), tensor._version)  # an output itself would hold the graph that holds it
        storage = tensor.untyped_storage()
        begin = tensor.storage_offset() * tensor.itemsize
        last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
        start, end = (0, storage.nbytes())
        if end > _WASTE * tensor.nbytes:
            start, end = begin, begin + (last + 1) * tensor.itemsize
        # Autograd forbids changes of what it saved, and counts them: the same count means the same bytes.
        key = (storage._cdata, tensor._version, start, end)
        entry = self._entries.get(key)
        if entry is None or entry.source.expired():
            entry = self._entries[key] = _Entry(self._held, self._history, next(self._versions), storage, start, end)
        offset = (begin - start) // tensor.itemsize
        return _Packed(entry, tensor.dtype, tuple(tensor.shape), tensor.stride(), offset)


class _Held:
    """What an offload and its entries hold: the history is dropped when none of them is left."""


class _Entry:
    """Bytes of a storage, as a version of the history. The version is dropped with the last tensor that needs it."""

    def __init__(
        self,
        held: _Held,
        history: ebbtide.History,
        version: int,
        storage: torch.UntypedStorage,
        start: int,
        end: int,
    ) -> None:
        self.source = StorageWeakRef(storage)
        self._held, self._history, self._version = held, history, version
        self._back: StorageWeakRef | None = None
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        # First, since an interrupt may come as soon as the version is there.
        weakref.finalize(self, drop, history, version).atexit = False
        history.checkpoint(version, whole.set_(storage, start, (end - start,), (1,)))

    def storage(self) -> torch.UntypedStorage:
        """In memory; the same as long as some tensor has it."""
        back = None if self._back is None else torch.UntypedStorage._new_with_weak_ptr(self._back.cdata)
        if back is None:
            back = self._history.restore(self._version, keep=True).untyped_storage()
            self._back = StorageWeakRef(back)
        return back


class _Packed:
    __slots__ = ("entry", "dtype", "shape", "strides", "offset")

    def __init__(
        self, entry: _Entry, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        self.entry, self.dtype, self.shape, self.strides, self.offset = entry, dtype, shape, strides, offset


class _Stayed(NamedTuple):
    """A tensor that stays in memory, and the count of its changes: autograd does not check what hooks return."""

    tensor: torch.Tensor
    version: int


def _unpack(packed: _Packed | _Stayed) -> torch.Tensor:
    if isinstance(packed, _Stayed):
        tensor, version = packed
        if tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
                f"the shape {tuple(tensor.shape)}, which offload left in memory, is at version {tensor._version}; expected "
                f"{version}"
            )
        return tensor
    storage = packed.entry.storage()
    tensor = torch.empty(0, dtype=packed.dtype, device=storage.device)
    tensor.set_(storage, packed.offset, packed.shape, packed.strides)
    return tensor
