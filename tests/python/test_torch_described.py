"""A state that was described once is compared at each save, and no change is missed."""

from __future__ import annotations

import gc
import random
import struct
import sys
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_support import torch

import ebbtide
from ebbtide.torch import _described, _state


class Watched(_described.Described):
    """Counts the descriptions that it makes."""

    described = 0

    def _anew(self, *given: Any) -> Any:
        self.described += 1
        return super()._anew(*given)


def exact(thing: Any) -> Any:
    """Equal for what is the same in type, order, bits and layout."""
    if isinstance(thing, torch.Tensor):
        bits = (
            thing.detach()
            .resolve_conj()
            .resolve_neg()
            .clone(memory_format=torch.contiguous_format)
            .view(-1)
            .view(torch.uint8)
        )
        return type(thing), thing.dtype, thing.shape, thing.stride(), thing.requires_grad, bytes(bits.numpy())
    if isinstance(thing, dict):
        items = [(exact(key), exact(item)) for key, item in thing.items()]
        return type(thing), items, exact(getattr(thing, "_metadata", None))
    if isinstance(thing, (list, tuple)):
        return type(thing), [exact(item) for item in thing]
    if isinstance(thing, float):
        return float, struct.pack(">d", thing)
    if isinstance(thing, np.ndarray):
        return thing.dtype, thing.shape, thing.tobytes()
    return type(thing), thing


def groups(state: dict[str, Any]) -> list[list[str]]:
    """Which tensors share memory."""
    found: dict[int, list[str]] = {}

    def walk(thing: Any, where: str) -> None:
        if isinstance(thing, torch.Tensor):
            found.setdefault(thing.untyped_storage()._cdata, []).append(where)
        elif isinstance(thing, dict):
            for key, item in thing.items():
                walk(item, f"{where}/{key}")
        elif isinstance(thing, (list, tuple)):
            for i, item in enumerate(thing):
                walk(item, f"{where}/{i}")

    walk(state, "")
    return sorted(found.values())


def check(described: _described.Described, store: ebbtide.Store, state: dict[str, Any], **options: Any) -> None:
    """What is stored of the state is the state."""
    saved, leaves = described.dump(state, **options)
    assert len(leaves) == len(saved["arrays"])
    store.drop()
    store.checkpoint(0, saved)
    back = _state.load(store.restore(0), **options)
    assert exact(back) == exact(state)
    assert groups(back) == groups(state)


def a_state() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    opt = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
    buffer = torch.arange(60.0)
    return {
        "model": model.state_dict(),
        "opt": opt.state_dict(),
        "tree": {
            "t": torch.arange(12.0).view(3, 4),
            "all": buffer,
            "part": buffer[7:20],
            "turned": torch.ones(3, 5).t(),
        },
        "values": {
            "n": 1,
            "f": 0.5,
            "s": "text",
            "list": [1, 2],
            "none": None,
            "b": b"12",
            "dtype": torch.float32,
            3: "three",
        },
        "loss": 1.0,
    }


def replace(state: Any, part: str, key: Any, value: Any) -> None:
    state[part][key] = value


def other_memory(tensor: Any, value: Any) -> None:
    tensor.data = value


def metadata_of(state: Any) -> Any:
    state["model"]._metadata["1"] = {"version": 3}


UNSEEN: dict[str, Callable[[Any], Any]] = {  # the description still serves
    "nothing": lambda s: None,
    "contents": lambda s: [s["tree"]["t"].mul_(2), s["tree"]["part"].fill_(7), s["opt"]["state"][0]["exp_avg"].add_(1)],
    "the same state, of new objects": lambda s: replace(s, "tree", "t", s["tree"]["t"].view(3, 4)),
    "a value": lambda s: replace(s, "values", "n", 2),
    "a value's type": lambda s: replace(s, "values", "n", True),
    "an int for a float": lambda s: replace(s, "values", "f", 1),
    "the sign of zero": lambda s: [replace(s, "values", "f", value) for value in (0.0, -0.0)],
    "NaN": lambda s: replace(s, "values", "f", float("nan")),
    "a long int": lambda s: replace(s, "values", "n", 1 << 80),
    "None": lambda s: replace(s, "values", "s", None),
    "the loss": lambda s: s.update(loss=2.0),
    "the rate": lambda s: s["opt"]["param_groups"][0].update(lr=0.25),
    "a version": metadata_of,
}
SEEN: dict[str, Callable[[Any], Any]] = {  # described anew
    "another tensor": lambda s: replace(s, "tree", "t", torch.zeros(3, 4)),
    "other memory": lambda s: other_memory(s["tree"]["t"], torch.zeros(3, 4)),
    "another shape of the same memory": lambda s: replace(s, "tree", "t", s["tree"]["t"].view(4, 3)),
    "other strides": lambda s: s["tree"]["turned"].t_(),
    "another place": lambda s: replace(s, "tree", "part", s["tree"]["all"][8:21]),
    "another type of the same memory": lambda s: replace(s, "tree", "t", s["tree"]["t"].view(torch.int32)),
    "another type": lambda s: other_memory(s["tree"]["t"], torch.zeros(3, 4, dtype=torch.float64)),
    "resized": lambda s: s["tree"]["t"].resize_(2, 4),
    "resized beyond its memory": lambda s: s["tree"]["t"].resize_(20, 20).zero_(),
    "more memory behind it": lambda s: s["tree"]["t"].untyped_storage().resize_(4096),
    "set to other memory": lambda s: s["tree"]["t"].set_(torch.zeros(3, 4)),
    "a gradient": lambda s: s["tree"]["t"].requires_grad_(),
    "a parameter": lambda s: replace(s, "tree", "t", torch.nn.Parameter(s["tree"]["t"], False)),
    "conjugated": lambda s: replace(s, "tree", "t", torch.ones(2, dtype=torch.complex64).conj()),
    "negated": lambda s: replace(s, "tree", "t", torch._neg_view(torch.ones(2))),
    "shared": lambda s: replace(s, "tree", "t", s["tree"]["all"]),
    "no longer shared": lambda s: replace(s, "tree", "part", s["tree"]["part"].clone()),
    "shared with another part": lambda s: replace(s, "values", "n", s["tree"]["t"]),
    "shared with what is new": lambda s: s.update(more=[s["tree"]["t"][1:]]),
    "a number for a tensor": lambda s: replace(s, "tree", "t", 1),
    "a tensor for a number": lambda s: replace(s, "values", "n", torch.ones(2)),
    "a new key": lambda s: replace(s, "values", "new", 1),
    "a new tensor": lambda s: replace(s, "tree", "new", torch.ones(2)),
    "a removed key": lambda s: s["values"].pop("n"),
    "a removed tensor": lambda s: s["tree"].pop("t"),
    "a renamed key": lambda s: replace(s, "tree", "u", s["tree"].pop("t")),
    "the order of keys": lambda s: replace(s, "values", "n", s["values"].pop("n")),
    "a key's type": lambda s: [s["values"].pop(3), replace(s, "values", True, "three")],
    "an equal key of another type": lambda s: s.update(values={True: 1} | s["values"]),
    "a longer list": lambda s: s["values"]["list"].append(3),
    "a tuple for a list": lambda s: replace(s, "values", "list", (1, 2)),
    "an OrderedDict for a dict": lambda s: s.update(values=OrderedDict(s["values"])),
    "a Counter for a dict": lambda s: s.update(values=Counter(s["values"])),
    "no metadata": lambda s: s["model"].__delattr__("_metadata"),
    "more metadata": lambda s: s["model"]._metadata.update(new={"version": 1}),
    "other bytes": lambda s: replace(s, "values", "b", b"34"),
    "another dtype as value": lambda s: replace(s, "values", "dtype", torch.float64),
    "long text": lambda s: replace(s, "values", "s", "x" * 70_000),
    "a removed part": lambda s: s.pop("tree"),
    "an array of NumPy's": lambda s: replace(s, "values", "n", np.arange(3)),
}


@pytest.mark.parametrize("change", [*UNSEEN, *SEEN])
def test_no_change_is_missed(store: ebbtide.Store, change: str) -> None:
    described, state = Watched(), a_state()
    check(described, store, state)
    check(described, store, state)
    assert described.described == 1
    (UNSEEN | SEEN)[change](state)
    check(described, store, state)
    assert described.described == (1 if change in UNSEEN else 2)
    check(described, store, state)
    for tensor in (state["model"]["0.weight"], state["opt"]["state"][1]["exp_avg"]):
        tensor.mul_(3)
    check(described, store, state)


def test_an_optimizer_whose_state_appears_at_the_first_step(store: ebbtide.Store) -> None:
    described = Watched()
    model = torch.nn.Linear(3, 4)
    opt = torch.optim.AdamW(model.parameters())
    for step in range(4):
        check(described, store, {"model": model.state_dict(), "opt": opt.state_dict(), "step": step})
        model(torch.ones(2, 3)).sum().backward()
        opt.step()
    assert described.described == 2


def test_what_is_new_each_time_does_not_cost_a_description_of_all(store: ebbtide.Store) -> None:
    described, state = Watched(), a_state()
    for step in range(10):
        fresh = {"loss": torch.tensor(float(step)), "rng": np.arange(step), "log": list(range(step))}
        check(described, store, state | fresh)
    assert described.described <= 3


def test_what_is_said_to_be_small_is_text_and_always_new(store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_state.Storage, "on_gpu", lambda storage: storage.end - storage.start > 40)
    described, state = Watched(), a_state()
    for _ in range(3):
        check(described, store, state)
        for one in state["opt"]["state"].values():
            one["step"].add_(1)
    assert described.described == 1
    del state["tree"]
    check(described, store, state)


def test_a_tensor_that_lost_its_memory_is_refused_by_its_path(store: ebbtide.Store) -> None:
    described, state = Watched(), a_state()
    check(described, store, state)
    state["tree"]["t"].untyped_storage().resize_(0)
    with pytest.raises(ebbtide.Unsupported, match=r"tree\['t'\] has lost its memory"):
        described.dump(state)
    state["tree"]["t"] = torch.eye(2).to_sparse()
    with pytest.raises(ebbtide.Unsupported, match=r"tree\['t'\]"):
        described.dump(state)
    state["tree"]["t"] = object()
    with pytest.raises(ebbtide.InvalidArgument, match=r"tree\['t'\]"):
        described.dump(state)


def test_no_tensor_is_held(store: ebbtide.Store) -> None:
    described, state = Watched(), a_state()
    check(described, store, state)
    check(described, store, state)
    alive = weakref.ref(state["tree"]["t"].untyped_storage())
    del state
    gc.collect()
    assert alive() is None


def test_a_tensor_costs_two_calls() -> None:
    described = Watched()
    state = {"tree": {str(i): torch.ones(2) for i in range(1000)}}
    described.dump(state)
    calls: Counter[str] = Counter()

    def count(_frame: Any, event: str, _argument: Any) -> None:
        calls[event] += 1

    sys.setprofile(count)
    try:
        described.dump(state)
    finally:
        sys.setprofile(None)
    assert described.described == 1
    assert calls["call"] < 2000


@pytest.mark.parametrize("seed", range(30))
def test_whatever_changes(store: ebbtide.Store, seed: int) -> None:
    rng = random.Random(seed)
    memory = torch.arange(200.0)

    def thing(depth: int) -> Any:
        kind = rng.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return torch.full((rng.randrange(4), 3), float(rng.random()))
        if kind == 2:
            begin = rng.randrange(150)
            return memory[begin : begin + rng.randrange(50)]
        if kind < 6:
            return rng.choice([None, True, 1, 1.0, -0.0, 0.0, "text", 2**70, b"bytes", torch.int8, float("nan")])
        if kind == 6:
            return [thing(depth + 1) for _ in range(rng.randrange(4))]
        kinds = rng.choice([dict, OrderedDict])
        return kinds((rng.choice(["a", "b", 1, True, 0]), thing(depth + 1)) for _ in range(rng.randrange(4)))

    def change(container: Any) -> None:
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            item = container[key]
            if isinstance(item, (dict, list)) and rng.random() < 0.7:
                change(item)
            elif isinstance(item, torch.Tensor) and rng.random() < 0.3:
                item.add_(1)
            elif rng.random() < 0.1:
                container[key] = thing(2)

    described, state = Watched(), {name: thing(0) for name in "abcd"}
    for _ in range(20):
        check(described, store, state)
        if rng.random() < 0.6:
            change(state)
    assert described.described < 20
