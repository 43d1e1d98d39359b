"""The rarely used parts of describing arrays, which the extension module leaves to NumPy and torch.

Each checkpoint's metadata has its arrays' types as text. Plain NumPy types are their ``dtype.str`` (``"<f4"``); others carry a kind
before a colon: ``descr:`` (structured), ``name:`` (registered by another package), ``torch:`` (unknown to NumPy).
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ebbtide.errors import InvalidArgument, Unsupported

MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""The most axes of a NumPy array."""


_REGISTERED = 2  # `isbuiltin` of types of other packages, which may say that they are one of NumPy's kinds


def dtype_text(dtype: np.dtype[Any], where: str) -> str:
    """The text from which :func:`dtype_from` makes an equal type; refuses types that hold Python objects."""
    if dtype.kind in "biufcmMSU" and dtype.isbuiltin != _REGISTERED:
        return str(dtype.str)
    if dtype.hasobject:
        raise InvalidArgument(
            f"{where} holds Python objects (dtype {dtype}): only plain bytes can be stored; use a numeric or fixed-width dtype"
        )
    if dtype.names is not None:
        text = "descr:" + repr(np.lib.format.dtype_to_descr(dtype))
    elif dtype.type is np.void:
        return str(dtype.str)
    else:
        text = "name:" + dtype.name
    try:
        same = dtype_from(text) == dtype
    except (TypeError, ValueError, SyntaxError):
        same = False
    if not same:
        raise Unsupported(
            f"{where} has dtype {dtype}, which has no text form; view it as a plain dtype of the same size"
        )
    return text


def dtype_from(text: str) -> np.dtype[Any]:
    """The type that ``text`` describes."""
    kind, colon, rest = text.partition(":")
    if not colon:
        return np.dtype(text)
    if kind == "descr":
        return np.lib.format.descr_to_dtype(ast.literal_eval(rest))
    if kind == "name":
        try:
            return np.dtype(rest)
        except TypeError:
            importlib.import_module("ml_dtypes")  # registers bfloat16 and similar types by name
            return np.dtype(rest)
    raise Unsupported(f"NumPy has no dtype for {rest}: give `out`, or install torch")


def dtype_name(text: str) -> str:
    """The type's name for messages: ``float32`` for ``<f4``."""
    try:
        return str(dtype_from(text))
    except (Unsupported, TypeError, ValueError, SyntaxError, ImportError):
        return text


def from_buffer(source: Any, where: str) -> np.ndarray[Any, Any]:
    """The memory of an object with the buffer protocol, as an array that shares it."""
    try:
        return np.asarray(memoryview(source))
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: NumPy cannot lay out the element type
        raise InvalidArgument(f"{where} exports a buffer that is not an array of numbers: {error}") from error


def from_scalar(scalar: Any, where: str) -> np.ndarray[Any, Any]:
    """One element, as a read-only array of its type without axes."""
    array: np.ndarray[Any, Any] = np.asarray(scalar)
    if not array.dtype.hasobject and type(array[()]) is not type(scalar):
        raise Unsupported(where + why_partial(scalar))
    array.flags.writeable = False
    return array


def why_partial(array: Any) -> str:
    """Why the stored bytes would not be all of ``array``, and which expression makes a plain array: ends a refusal."""
    kind = type(array)
    name = f"{kind.__module__}.{kind.__qualname__}"
    torch = sys.modules.get("torch")
    if isinstance(array, np.ma.MaskedArray):
        return (
            f" is a masked array ({name}), which would lose its mask: give numpy.ma.getdata(x) and "
            "numpy.ma.getmaskarray(x) both, or x.filled(value)"
        )
    if isinstance(array, (np.ndarray, np.generic)):
        return f" is a {name}, whose additions to NumPy's arrays would be lost: numpy.asarray(x) makes a plain array"
    if torch is not None and isinstance(array, torch.Tensor):
        return _why_partial_tensor(torch, array, name)
    if "jax" in sys.modules and isinstance(array, sys.modules["jax"].Array):
        if any(base.__name__ == "Tracer" for base in kind.__mro__):
            return (
                f" is a value that JAX is tracing ({name}), without memory: make the call outside the traced function, or "
                "use ebbtide.jax.adjoint"
            )
        return f" is a {name}, which is more than its bytes: for random keys, jax.random.key_data(x) is a plain array"
    return f" is a {name}, whose additions to CuPy's arrays would be lost: cupy.asarray(x) makes a plain array"


def _why_partial_tensor(torch: Any, tensor: Any, name: str) -> str:
    if getattr(tensor, "is_quantized", False):
        return (
            " is a quantised tensor, which would lose its scale and zero point: give x.int_repr() with x.q_scale() and "
            "x.q_zero_point() (of channels: x.q_per_channel_scales(), x.q_per_channel_zero_points() and "
            "x.q_per_channel_axis()), or x.dequantize()"
        )
    if getattr(tensor, "is_nested", False):
        return f" is a nested tensor ({name}), which would lose the bounds of its parts: give the list x.unbind()"
    if type(tensor) not in (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", None)):
        return (
            f" is a {name}, whose additions to torch.Tensor would be lost: give the tensors that it is made of, or "
            "x.as_subclass(torch.Tensor) if it is a single one"
        )
    if hasattr(tensor, "has_names") and tensor.has_names():
        return " is a named tensor, which would lose its names: x.rename(None) removes them"
    if is_dual(tensor):
        return (
            " is a dual tensor, which would lose its tangent: give both tensors of "
            "torch.autograd.forward_ad.unpack_dual(x)"
        )
    layout = getattr(tensor, "layout", None)
    if layout is not getattr(torch, "strided", layout):
        return f" is a tensor without plain memory of its own ({layout}): x.to_dense() makes a dense one"
    return (
        f" ({name}) is a tensor without memory of its own (wrapped by a PyTorch transform, or zeros without "
        "storage): give the tensor that it is made of, or x.clone()"
    )


def is_dual(tensor: Any) -> bool:
    """Whether PyTorch's forward mode has given the tensor a tangent, which is in other memory."""
    forward = sys.modules.get("torch.autograd.forward_ad")
    if forward is None or forward._current_level < 0:
        return False
    return forward.unpack_dual(tensor).tangent is not None


def has_memory(tensor: Any) -> bool:
    """False of zeros without storage, and of what a transform of PyTorch has wrapped."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return not tensor._is_zerotensor()


class _Memory:
    """Elements of ``item`` bytes from ``address`` on, as NumPy reads them; ``steps`` in bytes (None: C order)."""

    def __init__(
        self, address: int, item: int, shape: tuple[int, ...], steps: tuple[int, ...] | None, writable: bool
    ) -> None:
        self.__array_interface__ = {
            "data": (address, not writable),
            "shape": shape,
            "strides": steps,
            "typestr": f"|V{item}",
            "version": 3,
        }


def memory(
    address: int, item: int, shape: tuple[int, ...], steps: tuple[int, ...] | None, writable: bool
) -> np.ndarray[Any, Any]:
    """Memory as opaque elements of ``item`` bytes; nothing is read, so it may be a GPU's."""
    return np.asarray(_Memory(address, item, shape, steps, writable))


def share_memory(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether an element of one is in an element of the other; True also if that takes too long to find out."""
    work: Any = 1 << 20
    try:
        return bool(np.shares_memory(one, other, max_work=work))
    except RuntimeError:  # NumPy's TooHardError
        return True


def laid_out(run: Any, shape: tuple[int, ...], strides: tuple[int, ...], first: int) -> Any:
    """A view of ``run``, an array of one axis, whose elements from ``first`` on are ``strides`` apart; none: C order.

    Tensors have no negative strides: their view has positive ones, from the beginning of ``run`` on.
    """
    if not strides:
        return run.reshape(shape)
    if isinstance(run, np.ndarray):
        steps = tuple(stride * run.itemsize for stride in strides)
        return np.ndarray(shape, run.dtype, run, first * run.itemsize, steps)
    if type(run).__module__.partition(".")[0] == "torch":
        return run.as_strided(shape, [abs(stride) for stride in strides])
    steps = tuple(stride * run.itemsize for stride in strides)
    return importlib.import_module("cupy.lib.stride_tricks").as_strided(run[first:], shape, steps)


class _OnGpu:
    """Bytes of a GPU, as PyTorch takes them."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 2}


def run_at(address: int, size: int, like: Any, gpu: int) -> Any:
    """``size`` bytes of memory from ``address`` on, as an array of one axis of ``like``'s library and type."""
    if isinstance(like, np.ndarray):
        return memory(address, like.itemsize, (size // like.itemsize,), None, True).view(like.dtype)
    module = sys.modules[type(like).__module__.partition(".")[0]] if gpu >= 0 else sys.modules["torch"]
    if module.__name__ == "cupy":
        owner = module.cuda.UnownedMemory(address, size, None, gpu)
        return module.ndarray((size // like.itemsize,), like.dtype, module.cuda.MemoryPointer(owner, 0))
    if gpu < 0:
        bytes_there = module.from_numpy(memory(address, 1, (size,), None, True).view(np.uint8))
    else:
        bytes_there = module.as_tensor(_OnGpu(address, size), device=f"cuda:{gpu}")
    return bytes_there.view(like.dtype)


def copy(
    to: Any, array: Any, gpu: int, stream: int | None, stream_gpu: int, wait: bool, turned: tuple[int, ...] = ()
) -> None:
    """Copies the elements of ``array`` to ``to``, of the same shape; those that ``to`` has once, once.

    On a GPU in the order of ``stream`` of ``stream_gpu`` (None: of the current one). wait: until it is done there.
    turned: axes along which one of two tensors is reversed.
    """
    if isinstance(to, np.ndarray):
        once = _once(to.shape, to.strides)
        np.copyto(to[once], array[once])
        return
    module = sys.modules[type(to).__module__.partition(".")[0]]
    if module.__name__ == "torch":
        once = _once(to.shape, to.stride())
        to, array = to.detach()[once], array.detach()[once]
        if to.element_size() == 1 and not (to.is_neg() or array.is_neg()):  # some types of a byte have no copy
            to, array = to.view(module.uint8), array.view(module.uint8)
        if gpu < 0:
            to.copy_(_turned(module, array, turned))
            return
    else:
        once = _once(to.shape, to.strides)
        to, array = to[once], array[once]
    with _in_turn(module, gpu, stream, stream_gpu):
        if module.__name__ == "torch":
            to.copy_(_turned(module, array, turned))
        else:
            to[...] = array
        if wait:
            synchronize(module.__name__, gpu)
    if stream is not None:
        in_use_on(to, stream, stream_gpu)
        in_use_on(array, stream, stream_gpu)


def _turned(torch: Any, tensor: Any, axes: tuple[int, ...]) -> Any:
    """The other way round along these axes."""
    if not axes or tensor.dtype.is_signed:
        return tensor.flip(axes) if axes else tensor
    signed = getattr(torch, f"int{8 * tensor.element_size()}")  # most unsigned types have no flip
    return tensor.view(signed).flip(axes).view(tensor.dtype)


def _once(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
    """Each element of an array once: the first along the axes that repeat others. An array without axes stays an array."""
    axes = (slice(0, 1) if stride == 0 and n > 1 else slice(None) for n, stride in zip(shape, strides))
    return (..., *axes)


@contextlib.contextmanager
def _in_turn(module: Any, gpu: int, stream: int | None, stream_gpu: int) -> Iterator[None]:
    """What this block puts on ``gpu`` comes after what is on the stream, and before what comes there later."""
    if module.__name__ == "torch":
        elsewhere = stream is not None and gpu != stream_gpu
        with _on_torch(module, None if elsewhere else stream, gpu):
            if not elsewhere:
                yield
                return
            here, there = module.cuda.current_stream(gpu), _torch_stream(module, stream or 0, stream_gpu)
            here.wait_stream(there)
            yield
            there.wait_stream(here)
        return
    with module.cuda.Device(gpu), _on_cupy(module, stream if gpu == stream_gpu else None):
        if stream is None or gpu == stream_gpu:
            yield
            return
        here = module.cuda.get_current_stream(gpu)
        with module.cuda.Device(stream_gpu):
            there = _on_cupy(module, stream)
            here.wait_event(there.record(module.cuda.Event(disable_timing=True)))
        yield
        done = here.record(module.cuda.Event(disable_timing=True))
        with module.cuda.Device(stream_gpu):
            there.wait_event(done)


def packs_with_torch(where: str) -> bool:
    """Which library packs arrays of a GPU whose own cannot: PyTorch, or (False) CuPy, if the program has it."""
    torch = sys.modules.get("torch")
    if "cupy" not in sys.modules and (torch is None or not torch.cuda.is_available()):
        raise InvalidArgument(
            f"{where} has gaps between its elements, or another order than C's, and its library has no call that packs it: "
            "expected a packed array; import torch or cupy, which pack it, or give a copy in C order"
        )
    return "cupy" not in sys.modules


def known_on_gpu(array: Any, where: str, gpu: int) -> Any:
    """An array of CuPy or PyTorch over the memory of another library's."""
    if packs_with_torch(where):
        torch = sys.modules["torch"]
        return (
            torch.from_dlpack(array) if hasattr(array, "__dlpack__") else torch.as_tensor(array, device=f"cuda:{gpu}")
        )
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(gpu):
        return cupy.asarray(array) if hasattr(array, "__cuda_array_interface__") else cupy.from_dlpack(array)


_JAX_ALIGNMENT = 64  # bytes; JAX takes memory as it is if it is aligned so, and else copies it on another thread


def new_array(library: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """An uninitialised array in host memory: a tensor of ``"torch"`` if that can be imported, else of NumPy.

    Of ``"jax"`` it is one of NumPy that :func:`to_jax` need not copy.
    """
    if library == "torch":
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            pass
        else:
            if dtype.startswith("torch:"):
                return torch.empty(shape, dtype=getattr(torch, dtype.rpartition(".")[2]), device="cpu")
            return torch.from_numpy(np.empty(shape, np.dtype(dtype)))
    kind = dtype_from(dtype)
    if library != "jax":
        return np.empty(shape, kind)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    room = np.empty(size + _JAX_ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _JAX_ALIGNMENT
    return room[begin : begin + size].view(kind).reshape(shape)


def new_gpu_array(
    library: str, dtype: str, shape: tuple[int, ...], gpu: int, stream: int | None, stream_gpu: int
) -> Any:
    """An uninitialised array on a GPU, of ``library``; for JAX, what :func:`to_jax` makes one of without a copy.

    If that GPU does not exist here it is in host memory. Its memory may have been another array's before: it is free
    for later work on ``stream`` of ``stream_gpu`` (None: on the current one).
    """
    elsewhere = stream is not None and gpu != stream_gpu
    on = None if elsewhere else stream
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    wanted = (torch, cupy) if library == "torch" else (cupy, torch)
    for module in wanted:
        if module is None or (library == "cupy" and module is torch):
            continue
        if gpu >= (module.cuda.device_count() if module is torch else module.cuda.runtime.getDeviceCount()):
            continue
        if module is torch:
            with _on_torch(torch, on, gpu):
                array = torch.empty(shape, dtype=_torch_dtype(torch, dtype), device=f"cuda:{gpu}")
        elif (kind := dtype_from(dtype)).kind in "biufc":
            with module.cuda.Device(gpu), _on_cupy(module, on):
                array = module.empty(shape, kind)
        else:
            continue
        if elsewhere:
            synchronize("torch" if module is torch else "cupy", gpu)
        return array
    if library == "jax" and (own := _InJax.on(gpu, dtype_from(dtype), shape)) is not None:
        return own
    return new_array("numpy" if library == "torch" and torch is None else library, dtype, shape)


class _InJax:
    """The memory of a new array of JAX on a GPU, to be written to before the program gets :attr:`array`."""

    def __init__(self, array: Any, kind: np.dtype[Any]) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "data": (array.unsafe_buffer_pointer(), False),
            "shape": array.shape,
            "typestr": kind.str,
            "version": 3,
        }

    @staticmethod
    def on(gpu: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> _InJax | None:
        """None where JAX, or that GPU in it, is not to be had."""
        try:
            jax = importlib.import_module("jax")
            there = [one for one in jax.local_devices(backend="gpu") if one.local_hardware_id == gpu]
        except (ImportError, RuntimeError):
            return None
        if not there:
            return None
        with _all_types(jax), jax.default_device(there[0]):
            return _InJax(jax.block_until_ready(jax.numpy.empty(shape, kind)), kind)


def _on_torch(torch: Any, stream: int | None, gpu: int) -> Any:
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(_torch_stream(torch, stream, gpu))


def _torch_stream(torch: Any, stream: int, gpu: int) -> Any:
    return torch.cuda.default_stream(gpu) if stream in (0, 1) else torch.cuda.ExternalStream(stream, device=gpu)


def _on_cupy(cupy: Any, stream: int | None) -> Any:
    if stream is None:
        return contextlib.nullcontext()
    own = {0: "null", 1: "null", 2: "ptds"}.get(stream)
    return getattr(cupy.cuda.Stream, own) if own else cupy.cuda.ExternalStream(stream)


def _torch_dtype(torch: Any, text: str) -> Any:
    name = text.rpartition(":")[2].rpartition(".")[2] if ":" in text else np.dtype(text).name
    return getattr(torch, name)


def to_jax(array: Any, gpu: int, stream: int | None, stream_gpu: int) -> Any:
    """A new array as a JAX array of the same type, which waits for ``stream`` (None: the current one of the array's library).

    On another GPU than the stream's it waits for the current stream there, as CuPy's does already (:func:`in_use_on`). One in
    host memory stays there. Where JAX, or its CPU, is not to be had it is returned as it is.
    """
    if isinstance(array, _InJax):
        return array.array
    try:
        jax = importlib.import_module("jax")
        from_dlpack = importlib.import_module("jax.dlpack").from_dlpack
        host = jax.local_devices(backend="cpu")[0] if gpu < 0 else None
    except (ImportError, RuntimeError):
        return array
    with _all_types(jax):
        library = type(array).__module__.partition(".")[0]
        if host is not None:
            with jax.default_device(host):
                return jax.device_put(array)
        if stream is None or library not in ("torch", "cupy"):
            return from_dlpack(array)
        module = sys.modules[library]
        if gpu != stream_gpu:
            if library == "torch":
                module.cuda.current_stream(gpu).wait_stream(_torch_stream(module, stream, stream_gpu))
            return from_dlpack(array)
        with _on_torch(module, stream, gpu) if library == "torch" else _on_cupy(module, stream):
            return from_dlpack(array)


def _all_types(jax: Any) -> Any:
    """In this block JAX keeps elements of 64 bits, whatever the program has set."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return importlib.import_module("jax.experimental").enable_x64(True)


def current_streams(gpu: int) -> list[int]:
    """The streams that a consumer of memory of ``gpu`` may use without naming one; 1: the legacy default stream.

    PyTorch and CuPy have current streams; any other library is assumed to use the legacy one.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    found = []
    if torch is not None and torch.version.cuda is not None:
        # A GPU that it has not used yet is on its default stream: asking would initialise it.
        found.append(torch.cuda.current_stream(gpu).cuda_stream if torch.cuda.is_initialized() else 1)
    if cupy is not None:
        found.append(cupy.cuda.get_current_stream(gpu).ptr)
    if not found or "numba.cuda" in sys.modules:
        found.append(1)
    return [stream or 1 for stream in found]


def synchronize(library: str, gpu: int) -> None:
    """Waits for the current stream of PyTorch or CuPy on ``gpu``, which need not be the current GPU."""
    cuda = sys.modules[library].cuda
    with cuda.device(gpu) if library == "torch" else cuda.Device(gpu):
        stream = cuda.current_stream() if library == "torch" else cuda.get_current_stream()
        captures = cuda.is_current_stream_capturing if library == "torch" else stream.is_capturing
        if captures():
            raise Unsupported(
                "the stream is being captured into a graph, and this call would wait for it: call outside the capture"
            )
        stream.synchronize()


def in_use_on(array: Any, stream: int, gpu: int) -> None:
    """Tells the allocator of a PyTorch or CuPy array that ``stream``, of ``gpu``, may still work on its memory.

    The array may be on another GPU.
    """
    library = type(array).__module__.partition(".")[0]
    module = sys.modules.get(library)
    if module is None:
        return
    if library == "torch":
        array.record_stream(_torch_stream(module, stream, gpu))
    elif library == "cupy":  # its pool has no such call, but follows streams: let the current one wait
        current = module.cuda.get_current_stream(array.device.id)
        if array.device.id == gpu and current.ptr == (stream if stream > 1 else 0):
            return
        with module.cuda.Device(gpu):
            passed = _on_cupy(module, stream).record(module.cuda.Event(disable_timing=True))
        with array.device:
            current.wait_event(passed)


def as_like(array: Any, library: str) -> Any:
    """What ``reserve`` hands out, as an array of ``library`` over the same memory."""
    module = importlib.import_module(library)
    if not isinstance(array, np.ndarray):
        return module.from_dlpack(array)
    if library == "cupy":
        raise Unsupported('like="cupy" needs a store on a GPU: this one\'s device is host memory')
    return module.from_numpy(array)


def array_over(owner: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array over the memory that ``owner`` exports; the memory stays until the array and its views are gone."""
    kind = dtype_from(dtype)
    if kind.itemsize == 0 or 0 in shape:
        return np.empty(shape, kind)
    return np.frombuffer(owner, kind, count=int(np.prod(shape, dtype=np.int64))).reshape(shape)


def part_of(
    whole: np.ndarray[Any, Any],
    offset: int,
    size: int,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    first: int,
) -> Any:
    """An array over the ``size`` bytes at ``offset`` of ``whole``, sharing its memory; as :func:`laid_out`."""
    kind = dtype_from(dtype)
    if size == 0:
        return np.empty(shape, kind)
    return laid_out(whole[offset : offset + size].view(kind), shape, strides, first)
