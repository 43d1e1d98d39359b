"""What autograd saves for the backward pass, in a store instead of in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch

import ebbtide
from ebbtide import _arrays, errors
from ebbtide._core import parse_bytes
from ebbtide.torch._compiled import compile_with, unseen
from ebbtide.torch._saved import Packed, Saved, changed

Skip: TypeAlias = "torch.nn.Module | Callable[[torch.Tensor], bool] | Iterable[torch.Tensor]"
_Left: TypeAlias = tuple[torch.Tensor, int]
"""A tensor that is never stored, and the count of its changes: autograd does not check what hooks return."""


class offload:
    """Saves the activations of what runs inside the ``with`` block in a store, and brings them back for the backward pass.

    The store knows that the last saved is needed first, and prefetches it. Memory of an activation goes back to the
    allocator as soon as autograd lets go of it; it is fetched again when the backward pass gets to it, and dropped with the graph. The backward pass may run
    inside or after the block, and more than once (``retain_graph``).

    store: an ephemeral :class:`ebbtide.Store`; tensors on a GPU need one on a GPU.
    memory: bytes (or text, ``"9GiB"``) of what was saved last that stay in PyTorch's memory, beside the store: they are
    needed first. Only what was saved before them is stored.
    min_bytes: smaller tensors stay in memory, and do not count.
    skip: a module whose parameters and buffers stay, tensors that do, or a function that is True of those that do. Parameters and
    their views stay without being named.

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

    def __init__(
        self,
        store: ebbtide.Store,
        *,
        memory: int | str = 0,
        min_bytes: int | str = "1MiB",
        skip: Skip | None = None,
    ) -> None:
        if store.durability != "ephemeral":
            raise errors.InvalidArgument(
                "the store is persistent: activations need one that forgets them (an ephemeral one)"
            )
        self._saved = Saved(store, _bytes("memory", memory))
        self._least = max(_bytes("min_bytes", min_bytes), 1)
        self._skip = skip
        self._asks = callable(skip) and not isinstance(skip, torch.nn.Module)
        self._named: dict[int, torch.UntypedStorage] = {}  # by identity; those that `skip` names
        self._hooks: Any = None

    def __enter__(self) -> offload:
        if self._hooks is not None:
            raise errors.InvalidArgument("this offload is entered already")
        skip = self._skip
        if isinstance(skip, torch.nn.Module):
            self._name(itertools.chain(skip.parameters(), skip.buffers()))
        elif skip is not None and not callable(skip):
            skip = self._skip = list(skip)
            self._name(skip)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        hooks.__enter__()
        self._hooks = hooks
        self._saved.begin()
        return self

    def __exit__(self, *error: object) -> None:
        hooks, self._hooks = self._hooks, None
        hooks.__exit__(*error)
        self._named.clear()
        self._saved.end(failed=error[0] is not None)

    def _name(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self._named[storage._cdata] = storage

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        """Of a tensor that is to be stored. None: it is not."""
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.nbytes < self._least:
            return None
        base = tensor._base
        if base is not None and type(base) is not torch.Tensor:  # a view of a parameter, say
            return None
        if not (tensor.is_cuda or tensor.is_cpu) or not _arrays.has_memory(tensor) or _arrays.is_dual(tensor):
            return None
        storage = tensor.untyped_storage()
        if (
            storage.nbytes() < self._least  # an expanded one
            or tensor.is_quantized
            or tensor.is_nested
            or tensor.is_conj()
            or tensor.is_neg()
            or storage._cdata in self._named
            or (self._asks and self._skip(tensor))  # type: ignore[operator, misc]
        ):
            return None
        return storage

    @unseen
    def _pack(self, tensor: torch.Tensor) -> Packed | _Left:
        compiler = compile_with(None)
        try:
            storage = self._storage(tensor)
            if storage is None:
                return tensor.detach(), tensor._version  # an output itself would hold the graph that holds it
            return self._saved.pack(tensor, storage)
        finally:
            compile_with(compiler)


def _bytes(name: str, given: int | str) -> int:
    return parse_bytes(name, given) if isinstance(given, str) else int(given)


@unseen
def _unpack(packed: Packed | _Left) -> torch.Tensor:
    if isinstance(packed, tuple):
        tensor, version = packed
        if tensor._version != version:
            raise changed(tensor.shape, tensor._version, version, "left in memory")
        return tensor
    compiler = compile_with(None)
    try:
        return packed.unpack()
    finally:
        compile_with(compiler)
