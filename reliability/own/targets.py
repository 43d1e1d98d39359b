"""What a program must not be given, and what it must not give: objects that are more than their bytes, and targets of a
restore that cannot be filled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ebbtide
import numpy as np
from reliability import outcomes
from reliability.own import arrays
from reliability.own.run import Run
from reliability.own.values import Value, leaf_of, value_of

REFUSED = (ebbtide.InvalidArgument, ebbtide.Unsupported, ebbtide.SizeMismatch)
State = Callable[[Any], Any]


class Tagged(np.ndarray):
    """An array of NumPy's with something beside its bytes."""

    tag = "none"


def make_tagged(numbers: np.ndarray) -> Any:
    made = numbers.view(Tagged)
    made.tag = "metres"
    return made


def more_than_bytes() -> dict[str, tuple[Callable[[np.ndarray], Any], State]]:
    """By name: how one is made of float32 numbers, and what must be there again after a restore (or it is refused)."""
    kinds: dict[str, tuple[Callable[[np.ndarray], Any], State]] = {
        "masked": (lambda n: np.ma.masked_array(n, n > 0), lambda a: np.ma.getmaskarray(a).tolist()),
        "hard mask": (lambda n: np.ma.array(n, mask=n < 9, hard_mask=True), lambda a: np.ma.getmaskarray(a).tolist()),
        "tagged": (make_tagged, lambda a: getattr(a, "tag", "lost")),
        "record array": (lambda n: np.rec.fromarrays([n, n], names="a,b"), lambda a: hasattr(a, "a")),
        "matrix": (lambda n: np.asmatrix(n), lambda a: type(a).__name__),
        "objects": (lambda n: np.array([str(x) for x in n], object), lambda a: list(a)),
        "strings": (lambda n: np.array(["a" * 40, "b"], np.dtypes.StringDType()), lambda a: list(a)),
    }
    if torch := arrays.module("torch"):
        for name, (make, state) in of_torch(torch).items():
            kinds[f"torch {name}"] = functools.partial(make, torch), state
    return kinds


def of_torch(torch: Any) -> dict[str, Any]:
    class Scaled(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    def scaled(torch: Any, n: np.ndarray) -> Any:
        made = torch.from_numpy(n).as_subclass(Scaled)
        made.tag = 0.5
        return made

    def numbers(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return np.asarray(tensor).tolist()
        return (tensor.dequantize() if tensor.is_quantized else tensor.to_dense()).tolist()

    def near(n: np.ndarray) -> Any:
        return torch.from_numpy(n).clamp(-9, 9)

    quantize = {
        "quantised": lambda torch, n: torch.quantize_per_tensor(near(n), 0.1, 10, torch.quint8),
        "quantised qint8": lambda torch, n: torch.quantize_per_tensor(near(n), 0.1, 1, torch.qint8),
        "quantised qint32": lambda torch, n: torch.quantize_per_tensor(near(n), 0.1, 1, torch.qint32),
        "quantised by channel": lambda torch, n: torch.quantize_per_channel(
            near(n).reshape(-1, 1), torch.full((n.size,), 0.1), torch.ones(n.size), 0, torch.qint8),
        "sparse": lambda torch, n: torch.from_numpy(n).to_sparse(),
        "conjugated": lambda torch, n: torch.complex(torch.from_numpy(n), torch.from_numpy(n)).conj(),
        "negated": lambda torch, n: torch.complex(torch.from_numpy(n), torch.from_numpy(n)).conj().imag,
    }  # fmt: skip
    return {name: (make, numbers) for name, make in quantize.items()} | {
        "subclass": (scaled, lambda a: getattr(a, "tag", "lost")),
        "named": (lambda torch, n: torch.zeros(n.size, 1, names=("row", "column")),
                  lambda a: getattr(a, "names", None)),
        "nested": (lambda torch, n: torch.nested.nested_tensor([torch.from_numpy(n), torch.from_numpy(n[:2])]),
                   lambda a: getattr(a, "is_nested", False)),
        "meta": (lambda torch, n: torch.empty(5, device="meta"), lambda a: str(a.device)),
    }  # fmt: skip


def odd_kind(run: Run) -> None:
    """Either it comes back as it was, or it is refused by name."""
    kinds = more_than_bytes()
    kind = run.random.choice(sorted(kinds))
    make, state = kinds[kind]
    numbers = np.frombuffer(run.random.randbytes(4 * run.random.randrange(3, 20)), np.int16).astype("<f4")
    try:
        one = make(numbers)
    except (AttributeError, TypeError, RuntimeError) as error:
        return run.say(f"there is no {kind} here: {error}")
    given = run.random.choice([one, [one], {"k": one, "l": np.arange(4)}, (np.arange(3), one)])
    version = run.new_version("")
    _, error = run.attempt(f"checkpoint {version} of {kind}",
                           lambda: run.store.checkpoint(version, given, timeout=None),
                           may=REFUSED + run.full())  # fmt: skip
    if error is not None:
        return
    found, error = run.attempt("  restore", lambda: run.store.restore(version))
    if error is None:
        got = found if given is one else found["k"] if isinstance(given, dict) else found[-1]
        try:
            has = state(got)
        except Exception as error:
            has = f"something broken: {error}"
        if has != state(one):
            run.breach(outcomes.SILENT_WRONG, f"{kind}: {has!r} in place of {state(one)!r}"[:200])
        drop_it(run, version)


def drop_it(run: Run, version: int) -> None:
    if run.kept:
        run.attempt("  drop", lambda: run.store.drop(version))


def odd_target(run: Run) -> None:
    """`out` that cannot be filled, or not with all of it: refused by name, or filled; what is not to change stays."""
    size = run.random.randrange(4, 3000)
    one, two = arrays.bits(run.random, (size,)), arrays.bits(run.random, (size,))
    version, pair = run.new_version(""), run.random.random() < 0.5
    given = [one, two] if pair else one
    _, error = run.attempt(f"checkpoint {version}", lambda: run.store.checkpoint(version, given, timeout=None),
                           may=run.full())  # fmt: skip
    if error is not None:
        return
    run.put("", version, [value_of(given)])
    out, kind, fixed = targets(run, size, pair)
    before = [leaf_of(array) for array in fixed]
    call: Any = run.store.restore
    if run.random.random() < 0.3:
        call = lambda *a, **k: run.store.restore_async(*a, **k).result(20)  # noqa: E731
    _, error = run.attempt(f"restore {version} into {kind}", lambda: call(version, out=out, keep=True),
                           may=REFUSED + run.full())  # fmt: skip
    if [leaf_of(array) for array in fixed] != before:
        run.breach(outcomes.SILENT_WRONG, f"restore into {kind}: what cannot change has changed")
    if error is None:
        filled = out if pair else [out.inner if isinstance(out, Copies) else out]
        leaves = [leaf_of(one) for one in filled]
        run.compare(f"restore into {kind}", run.model.entries["", version],
                    Value("list" if pair else "single", (), tuple(leaves)))  # fmt: skip


class Copies:
    """By DLPack it hands out a copy of what it has."""

    def __init__(self, inner: np.ndarray) -> None:
        self.inner = inner

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self.inner

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **more: Any) -> Any:
        return self.inner.copy().__dlpack__(**more)


def targets(run: Run, size: int, pair: bool) -> tuple[Any, str, list[Any]]:
    """`out`, what it is, and what must not change."""
    room = np.zeros(size, "<f4")
    wide = np.zeros(2 * size, "<f4")
    if pair:
        shift = run.random.randrange(1, size)
        torch = arrays.module("torch")
        ways: dict[str, Any] = {
            "the same twice": lambda: [room, room], "a view of the other": lambda: [room, room[:]],
            "overlapping": lambda: [wide[:size], wide[shift : shift + size]],
            "the same memory": lambda: [room, np.frombuffer(room, "<f4")],
            "NumPy's and torch's": lambda: [room, torch.from_numpy(room) if torch else room],
            "the same as memory": lambda: [memoryview(room), room],
            "apart": lambda: [wide[:size], wide[size:]],
        }  # fmt: skip
        kind = run.random.choice(sorted(ways))
        return ways[kind](), kind, []
    fixed = np.full(size, 5, "<f4")
    raw = fixed.tobytes()
    locked = fixed.view()
    locked.flags.writeable = False
    ways = {"bytes": lambda: np.frombuffer(raw, "<f4"), "read-only": lambda: locked,
            "repeated": lambda: np.broadcast_to(fixed[:1], size), "gaps": lambda: wide[::2],
            "a memoryview": lambda: memoryview(fixed).toreadonly(), "copies": lambda: Copies(room),
            "a plain one": lambda: room}  # fmt: skip
    chances = [*sorted(ways), "jax" if arrays.module("jax") and run.random.random() < 0.5 else "copies"]
    if (kind := run.random.choice(chances)) == "jax":
        import jax.numpy as jnp

        array = jnp.full(size, 5, "float32")
        return array, kind, [array, array + 0, array[:]]
    out = ways[kind]()
    return out, kind, [out] if kind in ("bytes", "read-only", "repeated", "a memoryview") else []
