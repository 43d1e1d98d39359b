"""State dicts as checkpoints: the memory of their tensors are the arrays, all else is text.

A tensor is a place in a *storage*: type, shape, strides and offset. Tensors that shared a storage share one again. Of a storage
only the bytes are kept that lie between the first and the last that some tensor uses; those of one packed tensor are an array of
its type. The text is JSON as in
:mod:`ebbtide._trees`, with these tags of its own:

``["x", storage, dtype, shape, strides, offset, kind]`` a tensor; ``["y", storage, dtype, shape]`` an array of NumPy's
(a fifth part are its axes, slowest first, if it is not in C order), ``["s", ...]`` a scalar of NumPy's; ``["k", name]`` a dtype, ``["v", name]`` a device of torch's; ``["m", dict, metadata]`` what
``Module.state_dict`` returns; ``["p", base64]`` a pickled object. Large text, bytes and pickled objects are storages too:
``["w", storage]`` text in UTF-8, ``["u", storage]`` bytes, ``["q", storage]`` a pickled object.
"""

from __future__ import annotations

import base64
import pickle
from collections import OrderedDict
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import torch

from ebbtide import _arrays, _trees
from ebbtide.errors import InvalidArgument, Unsupported

_ALIGNMENT = 16  # bytes; an offset that is a multiple of it is one of every element's size
SMALL = 64 * 1024  # bytes
HAS_NAMES = hasattr(torch.Tensor, "has_names")  # not since 2.13


class Storage:
    """The bytes from ``start`` to ``end`` of a storage, or of an array of NumPy's; ``tensor`` if they are one packed tensor."""

    def __init__(self, of: Any, where: str, start: int = -1, end: int = 0, tensor: Any = None) -> None:
        self.of, self.where = of, where  # the path of the first that uses it
        self.start, self.end, self.tensor = start, end, tensor

    def include(self, start: int, end: int, tensor: Any = None) -> None:
        if self.start < 0:
            self.start, self.end, self.tensor = start, end, tensor
        else:
            self.start, self.end, self.tensor = min(self.start, start), max(self.end, end), None

    def on_gpu(self) -> bool:
        return not isinstance(self.of, np.ndarray) and self.of.device.type != "cpu"

    def align(self) -> None:
        """Several tensors of several types may begin anywhere."""
        if self.tensor is None:
            self.start -= self.start % _ALIGNMENT

    def array(self) -> Any:
        if self.tensor is not None:
            return self.tensor.detach() if self.tensor.requires_grad else self.tensor
        return self.bytes()

    def bytes(self) -> Any:
        if isinstance(self.of, np.ndarray):
            return self.of
        whole = torch.empty(0, dtype=torch.uint8, device=self.of.device)
        return whole.set_(self.of, self.start, (self.end - self.start,), (1,))

    def text(self) -> str:
        return base64.b64encode(np.asarray(self.bytes()).tobytes()).decode("ascii")


class Shared(Exception):
    """A tensor is in memory that was not to be used."""


class Taken(_trees.Taken):
    """Numbers its storages from ``first`` on. Raises :class:`Shared` for a tensor in one of ``others``, by identity."""

    def __init__(self, may_pickle: bool, first: int = 0, others: Container[int] = ()) -> None:
        super().__init__()
        self.storages: list[Storage] = []
        self._first, self._others = first, others
        self._numbers: dict[int, int] = {}  # of storages, by identity
        self._tensors: list[tuple[list[Any], int]] = []  # nodes, and bytes of an element
        self._may_pickle = may_pickle

    def node(self, thing: Any, where: str) -> Any:
        metadata = getattr(thing, "_metadata", None) if type(thing) is OrderedDict else None
        if metadata is None:
            if type(thing) is str and len(thing) > SMALL:
                return self._bytes("w", thing.encode("utf-8", "surrogatepass"), where)
            return super().node(thing, where)
        return ["m", super().node(thing, where), super().node(metadata, where + "._metadata")]

    def other(self, thing: Any, where: str) -> Any:
        if isinstance(thing, torch.Tensor):
            return self._tensor(thing, where)
        if isinstance(thing, (np.ndarray, np.generic)):
            return self._array(thing, where)
        if type(thing) is bytes:
            return _trees.bytes_node(thing) if len(thing) <= SMALL else self._bytes("u", thing, where)
        if isinstance(thing, torch.dtype):
            return ["k", str(thing).rpartition(".")[2]]
        if isinstance(thing, torch.device):
            return ["v", str(thing)]
        if self._may_pickle:
            pickled = pickle.dumps(thing)
            if len(pickled) > SMALL:
                return self._bytes("q", pickled, where)
            return ["p", base64.b64encode(pickled).decode("ascii")]
        if isinstance(thing, (dict, list, tuple)):
            return super().other(thing, where)
        raise InvalidArgument(
            f"{where} is a {type(thing).__module__}.{type(thing).__qualname__}: expected tensors, arrays of NumPy, numbers, "
            "text, bytes, None, and lists, tuples and dicts of these; pickle=True stores other objects, and runs code when "
            "they are read"
        )

    def _tensor(self, tensor: torch.Tensor, where: str) -> list[Any]:
        plain = (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout is torch.strided
            and not (tensor.is_quantized or tensor.is_nested or (HAS_NAMES and tensor.has_names()))
            and _arrays.has_memory(tensor)
            and not _arrays.is_dual(tensor)
        )
        if not plain and hasattr(tensor, "to_local"):
            raise Unsupported(
                f"{where} is a part of a tensor that several ranks share ({type(tensor).__name__}): torch.distributed.checkpoint "
                "with ebbtide.torch.Writer saves those, and x.full_tensor() makes a whole one"
            )
        if not plain or tensor.device.type not in ("cpu", "cuda"):
            raise Unsupported(where + _arrays.why_partial(tensor))
        kind = 2 * (type(tensor) is torch.nn.Parameter) + tensor.requires_grad
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.detach().resolve_conj().resolve_neg()
        storage = tensor.untyped_storage()
        if storage._cdata in self._others:
            raise Shared
        number = self._numbers.setdefault(storage._cdata, len(self.storages))
        if number == len(self.storages):
            self.storages.append(Storage(storage, where))
        shape, strides, first, item = (
            list(tensor.shape),
            list(tensor.stride()),
            tensor.storage_offset(),
            tensor.itemsize,
        )
        last = first + sum((n - 1) * stride for n, stride in zip(shape, strides))
        end = first if 0 in shape else last + 1
        if end * item > storage.nbytes():
            raise Unsupported(
                f"{where} has lost its memory: {end * item} bytes of its storage are in use, of which {storage.nbytes()} are there "
                "(a sharded model frees what it has gathered): save what its own state_dict gives"
            )
        packed = tensor if end > first and tensor.is_contiguous() else None
        self.storages[number].include(first * item, end * item, packed)
        node = ["x", self._first + number, str(tensor.dtype)[len("torch.") :], shape, strides, first, kind]
        self._tensors.append((node, item))
        return node

    def _bytes(self, tag: str, data: bytes, where: str) -> list[Any]:
        self.storages.append(Storage(np.frombuffer(data, np.uint8), where))
        self.storages[-1].include(0, len(data))
        return [tag, self._first + len(self.storages) - 1]

    def _array(self, array: Any, where: str) -> list[Any]:
        whole = np.asarray(array)
        if type(array) not in (np.ndarray, np.memmap) and type(whole[()]) is not type(array):
            raise Unsupported(where + _arrays.why_partial(array))
        kinds = _arrays.dtype_text(whole.dtype, where)
        axes = list(range(whole.ndim))
        if not whole.flags.c_contiguous:
            axes.sort(key=lambda axis: -abs(whole.strides[axis]))
        storage = Storage(np.array(whole.transpose(axes), order="C").reshape(-1).view(np.uint8), where)
        storage.include(0, storage.of.nbytes)
        self.storages.append(storage)
        order = [axes] if axes != list(range(whole.ndim)) else []
        tag = "s" if isinstance(array, np.generic) else "y"
        return [tag, self._first + len(self.storages) - 1, kinds, list(whole.shape), *order]

    def on_gpu(self) -> bool:
        return any(storage.on_gpu() for storage in self.storages)

    def finish(
        self, bytes_of: Callable[[Storage], Any], inline: int, arrays: list[Any], leaves: list[str]
    ) -> list[int | str]:
        """Where each storage is: as text, if it has fewer bytes than ``inline``, or among the arrays, which are appended."""
        for storage in self.storages:
            storage.align()
        for node, item in self._tensors:
            node[5] -= self.storages[node[1] - self._first].start // item
        listed: list[int | str] = []
        for storage in self.storages:
            unchanging = isinstance(storage.of, np.ndarray) and not storage.of.flags.writeable
            beside = unchanging and bytes_of is not Storage.array  # such copies are of a GPU's memory alone
            if beside or (not storage.on_gpu() and storage.end - storage.start < inline):
                listed.append(storage.text())
            else:
                listed.append(len(arrays))
                arrays.append(bytes_of(storage))
                leaves.append(storage.where)
        return listed


def inline(on_gpu: bool) -> int:
    """Bytes of a storage in host memory that become text: an array there would keep the host waiting for a GPU's copies."""
    return SMALL if on_gpu else 0


class _Built(_trees.Built):
    def __init__(self, storages: list[Any], may_pickle: bool) -> None:
        super().__init__([])
        self._storages = storages
        self._may_pickle = may_pickle

    def other(self, tag: str, parts: list[Any]) -> Any:
        if tag == "x":
            number, name, shape, strides, offset, kind = parts
            whole = self._storages[number]
            if isinstance(whole, np.ndarray):
                whole = self._storages[number] = torch.from_numpy(whole)
            tensor = torch.empty(0, dtype=getattr(torch, name), device=whole.device)
            tensor.set_(whole.untyped_storage(), offset, shape, strides)
            wants_grad = bool(kind % 2)
            return torch.nn.Parameter(tensor, wants_grad) if kind >= 2 else tensor.requires_grad_(wants_grad)
        if tag in ("y", "s"):
            number, name, shape, *order = parts
            axes = order[0] if order else range(len(shape))
            flat = np.asarray(self._storages[number]).view(_arrays.dtype_from(name))
            array = flat.reshape([shape[axis] for axis in axes])
            if tag == "s":
                return array[()]
            return array.transpose(np.argsort(axes)) if order else array
        if tag == "k":
            return getattr(torch, parts[0])
        if tag == "v":
            return torch.device(parts[0])
        if tag == "m":
            made = self.thing(parts[0])
            made._metadata = self.thing(parts[1])
            return made
        if tag in ("u", "w"):
            data = np.asarray(self._storages[parts[0]]).tobytes()
            return data if tag == "u" else data.decode("utf-8", "surrogatepass")
        if tag in ("p", "q"):
            if not self._may_pickle:
                raise Unsupported(
                    "a pickled object is in this checkpoint: reading it runs its code; pickle=True allows that"
                )
            stored: Any = base64.b64decode(parts[0]) if tag == "p" else np.asarray(self._storages[parts[0]])
            return pickle.loads(stored)
        return super().other(tag, parts)


def dump(
    parts: dict[str, Any], *, may_pickle: bool = False, bytes_of: Callable[[Storage], Any] = Storage.array
) -> tuple[dict[str, Any], list[str]]:
    """The checkpoint of a state, for :meth:`ebbtide.History.checkpoint`, and the paths of its arrays.

    bytes_of: makes the array that is written of a storage.

    Raises :class:`ebbtide.InvalidArgument` and :class:`ebbtide.Unsupported` with the path of what cannot be stored.
    """
    taken = Taken(may_pickle)
    nodes = {name: taken.node(part, name) for name, part in parts.items()}
    arrays: list[Any] = []
    leaves: list[str] = []
    storages = taken.finish(bytes_of, inline(taken.on_gpu()), arrays, leaves)
    text = _trees.to_text({"parts": nodes, "storages": storages})
    _trees.check_text(text, nodes)
    return {"state": text, "arrays": arrays}, leaves


def load(checkpoint: Any, *, may_pickle: bool = False) -> dict[str, Any]:
    """The state of what :func:`dump` returned and a store gave back."""
    if not isinstance(checkpoint, dict) or set(checkpoint) != {"state", "arrays"}:
        raise InvalidArgument("it was not written by ebbtide.torch: restore() of its history reads it")
    text = _trees.of_text(checkpoint["state"])
    arrays = checkpoint["arrays"]
    storages = [
        arrays[at] if isinstance(at, int) else np.frombuffer(bytearray(base64.b64decode(at)), np.uint8)
        for at in text["storages"]
    ]
    built = _Built(storages, may_pickle)
    return {name: built.thing(node) for name, node in text["parts"].items()}
