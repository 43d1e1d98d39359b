"""Arguments that are no good: refused by name, at once, and nothing has changed."""

from __future__ import annotations

from typing import Any

import ebbtide
import numpy as np
from reliability.own.arrays import Hooked
from reliability.own.run import Run

NAMED = (ebbtide.InvalidArgument, ebbtide.TooLarge, ebbtide.NoSpace, ebbtide.Unsupported, ebbtide.OutOfMemory,
         TypeError)  # fmt: skip
SHAPES = (2**63, 2**64, 3.5, (2**40, 2**40), (1,) * 65, -1, (3, -2), "abc", None, (2, None), (2**32, 2**32, 0))


class Strange(Hooked):
    """Exports what no library does."""

    def __init__(self, device: Any, capsule: Any) -> None:
        super().__init__(np.arange(4.0))
        self.gives = device, capsule

    def __dlpack_device__(self) -> Any:
        return self.gives[0]

    def __dlpack__(self, **more: Any) -> Any:
        return super().__dlpack__(**more) if self.gives[1] == "right" else self.gives[1]


def odd_words(run: Run) -> None:
    store, random = run.store, run.random
    draw = random.randrange(8)
    if draw == 0:
        shape = random.choice(SHAPES)
        run.attempt(f"reserve of {shape!r}"[:60], lambda: store.reserve(10**6, shape, "u1").abandon(), must=NAMED)
    elif draw == 1:
        device = random.choice([(1,), "x", None, (1.5, 0), (1, "a"), (2**40, 0), (99, 0), 7, (1, 0), (1, 0, 0)])
        capsule = random.choice([None, 3, "right", object()])
        strange = Strange(device, capsule)
        must = NAMED if capsule != "right" else ()
        given = random.choice([strange, [strange]])
        _, error = run.attempt(f"checkpoint of {device!r}, {capsule!r}"[:60], lambda: store.checkpoint(10**6, given),
                               may=NAMED, must=must)  # fmt: skip
        if error is None:
            store.drop(10**6)
    elif draw == 2:
        name = "n" * random.choice([65_537, 70_000, 200_000])
        run.attempt("checkpoint in a history of a long name", lambda: store.history(name).checkpoint(0, b"x"),
                    may=NAMED if not run.kept else (), must=NAMED if run.kept else ())  # fmt: skip
        run.attempt("  drop", lambda: store.history(name).drop(), may=NAMED)
    elif draw == 3:
        version = random.choice([2**63, 2**64, 1.5, "1", None, -(2**63) - 1])
        run.attempt(f"checkpoint {version!r}", lambda: store.checkpoint(version, b"x"), must=NAMED)
    elif draw == 4:
        itself: list[object] = [b"x"]
        itself.append(itself)
        given = random.choice([object(), "text", None, [[object()]], {"a": {"b": {1, 2}}}, {frozenset(): b"x"}, itself])
        run.attempt(f"checkpoint of {given!r}"[:60], lambda: store.checkpoint(10**6, given), must=NAMED)
    elif draw == 5:
        key, text = random.choice([("directory", str(run.area / "cut\0here")), ("event_log", str(run.area / "log\0x")),
                                   ("close_timeout", float("nan")), ("disk", 2**64),
                                   ("keep_last", 2**64), ("durability", "storage\0x")])  # fmt: skip
        options = {"directory": str(run.area / "odd"), "device": "cpu", "durability": "process", key: text}
        run.attempt(f"open with {key}={text!r}"[:60], lambda: ebbtide.open(**options).close(),
                    must=(*NAMED, ValueError))  # fmt: skip
    elif draw == 6:
        word = random.choice(["", "Device", "disk", "storage\0", " "])
        run.attempt(f"wait({word!r})", lambda: store.wait(word), must=(ebbtide.InvalidArgument,))
    else:
        run.attempt("hint of words", lambda: store.hint(random.choice([["a"], [1.5], [2**64], 7])), must=NAMED)
