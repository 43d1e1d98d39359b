"""State dicts of every kind come back as they were: types, values, strides, shared storages."""

from __future__ import annotations

import base64
import json
import pickle
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_support import torch

import ebbtide
from ebbtide import _trees
from ebbtide.torch import _state

DTYPES = [
    getattr(torch, name)
    for name in (
        "float64 float32 float16 bfloat16 complex128 complex64 complex32 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool "
        "float8_e4m3fn float8_e5m2"
    ).split()
    if hasattr(torch, name)
]


def through(store: ebbtide.Store, state: Any, **options: bool) -> Any:
    store.checkpoint(0, _state.dump({"state": state}, **options)[0])
    return _state.load(store.restore(0), **options)["state"]


def raw(tensor: Any) -> bytes:
    return bytes(memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy())) if tensor.numel() else b""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (4, 0, 2)], ids=str)
def test_every_type_and_shape(store: ebbtide.Store, dtype: Any, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    size = torch.empty(0, dtype=dtype).itemsize
    bits = torch.from_numpy(np.arange(count * size, dtype=np.uint8) % 2)
    tensor = bits.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
    back = through(store, {"t": tensor})["t"]
    assert back.dtype == dtype and back.shape == tensor.shape and back.stride() == tensor.stride()
    assert raw(back) == raw(tensor)


def test_strides_and_shared_storages_are_kept(store: ebbtide.Store) -> None:
    base = torch.arange(120.0).reshape(10, 12)
    state = {
        "turned": base.t(),
        "column": base[:, 3],
        "every other": base[::2, 1::3],
        "bits": base.view(torch.int32),
        "expanded": torch.ones(1).expand(1000, 1000),
        "again": base,
    }
    back = through(store, state)
    for name, tensor in state.items():
        assert back[name].stride() == tensor.stride() and torch.equal(back[name], tensor), name
    back["again"][2, 4] = -1.0
    assert back["turned"][4, 2] == back["every other"][1, 1] == -1.0 and back["bits"][2, 4] != 0
    assert back["expanded"].untyped_storage().nbytes() == 4


def test_of_a_large_storage_only_what_is_used_is_stored(store: ebbtide.Store) -> None:
    buffer = torch.zeros(100 << 20, dtype=torch.uint8)  # more than the whole store
    parts = {"a": buffer[5_000_001:5_000_100].fill_(1), "b": buffer[5_000_050:5_001_000]}
    back = through(store, parts)
    assert torch.equal(back["a"], parts["a"]) and torch.equal(back["b"], parts["b"])
    back["a"][60] = 7
    assert back["b"][11] == 7


def test_values_come_back_with_their_type(store: ebbtide.Store) -> None:
    state = {
        0: [1, 2**70, -0.0, float("inf"), 1j, None, True, "text", b"bytes"],
        (1, "b"): {"dtype": torch.float16, "device": torch.device("cpu"), "size": (2, 3)},
        "milestones": Counter({30: 1, 80: 2}),
        "ordered": OrderedDict(b=1, a=2),
        "scalar": np.float32(1.5),
        "array": np.arange(6, dtype=">u2").reshape(2, 3).T,
        "when": np.datetime64("2020-02-02"),
    }
    back = through(store, state)
    assert list(back) == list(state) and back[0] == state[0] and list(map(type, back[0])) == list(map(type, state[0]))
    assert back[1, "b"] == state[1, "b"]
    for name in ("milestones", "ordered", "scalar", "when"):
        assert back[name] == state[name] and type(back[name]) is type(state[name])
    assert back["array"].dtype == ">u2" and (back["array"] == state["array"]).all()
    assert back["array"].strides == state["array"].strides


def test_numpys_arrays_keep_the_order_of_their_axes(store: ebbtide.Store) -> None:
    cube = np.arange(24, dtype=">i4").reshape(2, 3, 4)
    structured = np.zeros((3, 2), [("a", "i1"), ("b", ">f8")])
    state = {"c": cube, "f": np.asfortranarray(cube), "other": cube.transpose(1, 0, 2), "structured": structured.T}
    gaps = {"sliced": cube[:, ::2], "backwards": cube[::-1], "expanded": np.broadcast_to(cube[:1], (3, 3, 4))}
    back = through(store, state | gaps)
    for name, array in (state | gaps).items():
        assert back[name].dtype == array.dtype and back[name].tobytes() == array.tobytes(), name
        assert back[name].flags.writeable and (name in gaps or back[name].strides == array.strides), name


def test_types_that_other_packages_register_come_back(store: ebbtide.Store) -> None:
    registered = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e5m2", "int4"):
        given = np.ones(3, getattr(registered, name))
        back = through(store, {"array": given, "scalar": given[0]})
        assert back["array"].dtype == given.dtype and (back["array"] == given).all()
        assert type(back["scalar"]) is type(given[0])


def test_parameters_and_what_a_module_adds_to_its_state(store: ebbtide.Store) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    back = through(store, {"sd": model.state_dict(), "p": model[0].weight, "g": torch.ones(1, requires_grad=True)})
    assert back["sd"]._metadata == model.state_dict()._metadata
    assert type(back["p"]) is torch.nn.Parameter and back["p"].requires_grad
    assert type(back["g"]) is torch.Tensor and back["g"].requires_grad


class Odd:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)


class Shared(torch.Tensor):
    """As DTensor, which needs a process group."""

    def to_local(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (torch.ones(2).as_subclass(Shared), r"^state\['a'\]\[1\] is a part of a tensor .*Shared.*ebbtide.torch.Writer"),
        (Odd(), r"^state\['a'\]\[1\] is a test_torch_state\.Odd: .*pickle=True"),
        (torch.Size([1, 2]), r"^state\['a'\]\[1\] is a torch\.Size, which would come back as another type"),
        (torch.ones(2).to_sparse(), r"^state\['a'\]\[1\] is a tensor without plain memory.*to_dense"),
        (torch.ones(2, device="meta"), r"^state\['a'\]\[1\].*without memory of its own"),
        (torch._efficientzerotensor(2), r"^state\['a'\]\[1\].*without memory of its own"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), r"^state\['a'\]\[1\] is a quantised tensor"),
        (np.array([object()]), r"^state\['a'\]\[1\] holds Python objects"),
        (np.ma.masked_array([1.0], [True]), r"^state\['a'\]\[1\] is a masked array"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_cannot_be_stored_is_refused_by_its_path(store: ebbtide.Store, leaf: Any, words: str) -> None:
    with pytest.raises((ebbtide.InvalidArgument, ebbtide.Unsupported), match=words):
        _state.dump({"state": {"a": [0, leaf]}})


@pytest.mark.parametrize("left", [0, 8])
def test_a_tensor_whose_memory_was_freed_is_refused_and_stays_so(store: ebbtide.Store, left: int) -> None:
    freed = torch.ones(5)
    freed.untyped_storage().resize_(left)
    with pytest.raises(
        ebbtide.Unsupported, match=rf"^state\['w'\] has lost its memory: 20 bytes.*, of which {left} are there"
    ):
        through(store, {"w": freed})
    assert freed.untyped_storage().nbytes() == left


def test_other_objects_are_pickled_if_asked_for(store: ebbtide.Store) -> None:
    assert through(store, {"odd": Odd()}, may_pickle=True) == {"odd": Odd()}
    with pytest.raises(ebbtide.Unsupported, match="pickle=True"):
        _state.load(_state.dump({"odd": Odd()}, may_pickle=True)[0])


class Large:
    def __init__(self) -> None:
        self.data = bytes(range(256)) * 1000

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Large) and self.data == other.data


def test_large_values_are_arrays_and_come_back_with_their_type(store: ebbtide.Store) -> None:
    state = {"b": Large().data, "t": "\N{SNOWMAN}\udcff" * 50_000, "p": Large(), "small": (b"\0", "t", Odd())}
    saved, leaves = _state.dump({"state": state}, may_pickle=True)
    assert leaves == ["state['b']", "state['t']", "state['p']"] and len(saved["state"]) < 1000
    assert [array.nbytes for array in saved["arrays"]][:2] == [256_000, 300_000]
    assert through(store, state, may_pickle=True) == state
    with pytest.raises(ebbtide.Unsupported, match="pickle=True"):
        _state.load(saved)


def test_large_values_of_earlier_checkpoints_are_read() -> None:
    data = Large().data
    text = {
        "b": base64.b64encode(data).decode(),
        "p": base64.b64encode(pickle.dumps(Large())).decode(),
        "t": "t" * 70_000,
    }
    node = ["d", "b", ["b", text["b"]], "p", ["p", text["p"]], "t", text["t"]]
    saved = {"state": json.dumps({"parts": {"state": node}, "storages": []}), "arrays": []}
    assert _state.load(saved, may_pickle=True)["state"] == {"b": data, "p": Large(), "t": text["t"]}


def test_more_text_than_a_checkpoint_has_room_for_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trees, "MOST_TEXT", 5000)
    with pytest.raises(ebbtide.InvalidArgument, match=r"^long has \d+ bytes of text beside .* at most 5000; give long"):
        _state.dump({"short": [1], "long": list(range(3000))})


def test_a_checkpoint_of_another_kind_is_refused(store: ebbtide.Store, disk: Path) -> None:
    store.checkpoint(0, [np.zeros(3)])
    with pytest.raises(ebbtide.InvalidArgument, match="not written by ebbtide.torch"):
        _state.load(store.restore(0))


@pytest.mark.gpu
def test_a_state_on_a_gpu_comes_back_there() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    with ebbtide.open(device="cuda", device_cache="16MiB", host_cache="32MiB", disk="64MiB") as store:
        weight = torch.arange(300_000.0, device="cuda")
        state = {"w": weight, "v": weight[10:20], "step": torch.tensor(3.0), "cpu": torch.ones(200_000)}
        back = through(store, state)
        assert (
            back["w"].device.type == "cuda" and torch.equal(back["w"], weight) and torch.equal(back["v"], weight[10:20])
        )
        assert back["step"] == 3 and back["step"].device.type == "cpu" and torch.equal(back["cpu"], state["cpu"])
