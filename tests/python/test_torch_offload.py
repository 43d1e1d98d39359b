"""Gradients through a store are those without it, and nothing of a graph is left when it is gone."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import os
import random
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_support import resident
from torch_support import torch

import ebbtide
from ebbtide.torch import _saved
from ebbtide.torch import offload as stored

checkpoint = torch.utils.checkpoint.checkpoint


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="64MiB") as store:
        yield store


@pytest.fixture(params=["0", "300KiB"])
def offload(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With everything in the store, and with what was saved last in memory; with groups as large as a small store's."""
    monkeypatch.setattr(_saved, "_GROUPS", 4)
    return functools.partial(stored, memory=request.param)


def held(keep: stored) -> list[Any]:
    """What is saved, in memory or in the store."""
    gc.collect()
    entries = [one for one in gc.get_objects() if type(one) is _saved.Entry and one.saved is keep._saved]
    versions = {entry.group.version for entry in entries if entry.group}
    assert versions == set(keep._saved.history.versions())
    return entries


class Attention(torch.nn.Module):
    """Splits, turns and shares what it computes, as real layers do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v).relu()


def model_and_input(seed: int = 0) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(Attention(48) for _ in range(6))), torch.randn(4, 96, 48)


def gradients(model: Any, loss: Any, **options: Any) -> list[Any]:
    model.zero_grad()
    loss.backward(**options)
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("rounds", [1, 3])
def test_gradients_are_the_same_bits(store: ebbtide.Store, rounds: int, offload: Any) -> None:
    model, x = model_and_input()
    plain = gradients(model, model(x).square().mean())
    keep = offload(store, min_bytes="16KiB")
    for _ in range(rounds):
        with keep:
            loss = model(x).square().mean()
        assert len(held(keep)) > 20  # three times the two caches
        assert all(map(torch.equal, plain, gradients(model, loss)))
        del loss
        assert held(keep) == []


def mostly_ahead(store: ebbtide.Store, count: int) -> bool:
    """Of the last ``count`` restores, those whose successors had been fetched. They may outrun that on a busy machine."""
    distances = store.stats()["prefetch_distance"][-count:]
    return len(distances) == count > 20 and sum(distance > 0 for distance in distances) > count / 2


def test_the_order_is_known_and_prefetched(store: ebbtide.Store) -> None:
    def first_step() -> bool:
        keep = stored(store, min_bytes="16KiB")
        with keep:
            loss = model(x).square().mean()
        count = len(held(keep))
        gradients(model, loss)
        return mostly_ahead(store, count)

    model, x = model_and_input()
    assert any(first_step() for _ in range(50))


class Counted:
    """A history whose calls are counted."""

    def __init__(self, history: ebbtide.History) -> None:
        self.history, self.calls = history, collections.Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.calls[{"_write": "checkpoint", "_read": "restore"}.get(name, name)] += 1
        return getattr(self.history, name)


def test_the_order_of_a_step_is_learned_and_hinted_in_one_call(store: ebbtide.Store) -> None:
    def step(layers: Any) -> collections.Counter[str]:
        counted.calls.clear()
        with keep:
            loss = layers(x).square().mean()
        forward = counted.calls.copy()
        assert all(map(torch.equal, gradients(layers, layers(x).square().mean()), gradients(layers, loss)))
        del loss
        assert keep._saved.history.versions() == []
        return forward

    model, x = model_and_input()
    keep = stored(store, min_bytes="16KiB")
    counted = keep._saved.history = Counted(keep._saved.history)
    first = step(model)
    assert first["hint_front"] == first["checkpoint"] > 20 and first["hint"] == 0
    ahead = False
    for i in range(50):
        again = step(model)
        assert again == {"checkpoint": first["checkpoint"], "hint": 1}
        ahead = ahead or mostly_ahead(store, first["checkpoint"])
        if ahead and i >= 2:
            break
    assert ahead
    shorter = step(model[:3])  # what was expected, and does not come, is withdrawn
    assert 1 < shorter["checkpoint"] < first["checkpoint"]
    assert shorter == {"checkpoint": shorter["checkpoint"], "hint": 1, "unhint": 1}
    longer = step(model)
    more = first["checkpoint"] - shorter["checkpoint"]
    assert longer == {"checkpoint": first["checkpoint"], "hint": 1, "hint_front": more}


def test_a_tensor_costs_few_calls(store: ebbtide.Store) -> None:
    calls: collections.Counter[str] = collections.Counter()

    def count(frame: Any, event: str, _argument: Any) -> None:
        calls[event] += 1

    def step(keep: Any) -> int:
        """Of one that is like those before."""
        for _ in range(3):
            calls.clear()
            sys.setprofile(count)
            try:
                with keep:
                    y = x
                    for _ in range(100):
                        y = y.sin()  # saves its input
                y.sum().backward()
                del y
            finally:
                sys.setprofile(None)
        return calls["call"]

    x = torch.ones(1000, requires_grad=True)
    with ebbtide.open(device="cpu", device_cache="4MiB", host_cache="4MiB", disk=0) as roomy:
        assert step(stored(roomy, min_bytes=1)) < 2000
        alone = stored(roomy, min_bytes=1)
        alone._saved._most = 0
        assert step(alone) < 2700
        assert step(stored(roomy)) < 400


def test_what_is_saved_twice_is_stored_once_and_views_are_views(store: ebbtide.Store, offload: Any) -> None:
    seen: list[Any] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            return sum(tensor.sum() for tensor in tensors)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.extend(ctx.saved_tensors)
            return tuple(grad.expand(tensor.shape) for tensor in ctx.saved_tensors)

    base = (torch.arange(120_000.0, requires_grad=True) * 1).view(300, 400)
    parts = base, base.t(), base[100:200, 50:], base.view(-1)[::2], base
    keep = offload(store, min_bytes=1000)
    with keep:
        result = Look.apply(*parts)
    assert len(held(keep)) == 1
    result.backward()
    for back, part in zip(seen, parts):
        assert torch.equal(back, part) and back.stride() == part.stride() and back.dtype == part.dtype
    assert len({back.untyped_storage()._cdata for back in seen}) == 1


LAYOUTS = {
    "transposed": lambda x: x.transpose(1, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "as_strided": lambda x: x.as_strided((7, 5, 9), (2, 1, 3), 11),
    "expanded": lambda x: x[:1].expand(64, -1, -1, -1),
    "a row, expanded": lambda x: x.view(-1)[:400].expand(1000, -1),
    "of another type": lambda x: x.view(torch.int16),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_come_back_and_memory_is_stored_once(store: ebbtide.Store, layout: str, offload: Any) -> None:
    seen: list[Any] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, given: Any) -> Any:
            ctx.save_for_backward(given)
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.extend(ctx.saved_tensors)
            return None, None

    memory = torch.randn(8, 6, 10, 12)
    given = LAYOUTS[layout](memory)
    stored = store.stats()["checkpoint_bytes"]
    with offload(store, min_bytes=1000) as keep:
        loss = Look.apply(torch.ones(2, requires_grad=True), given)
    assert len(held(keep)) == 1
    assert store.stats()["checkpoint_bytes"] - stored <= (1600 if "row" in layout else memory.nbytes)
    loss.backward()
    (back,) = seen
    assert torch.equal(back, given)
    assert (back.stride(), back.dtype, back.shape) == (given.stride(), given.dtype, given.shape)


def test_what_is_saved_again_after_a_change_is_stored_again(store: ebbtide.Store, offload: Any) -> None:
    x = torch.ones(1000, requires_grad=True)
    buffer = torch.full((1000,), 3.0)
    with offload(store, min_bytes=1) as keep:
        first = (x * buffer).sum()
        buffer.fill_(5.0)
        second = (x * buffer).sum()
    assert len(held(keep)) == 2
    second.backward()
    assert (x.grad == 5).all()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.backward()


CHANGES = {
    "itself": lambda x: x.mul_(100),
    "a view": lambda x: x[:10].mul_(100),
    "its shape": lambda x: x.unsqueeze_(0).mul_(100),
    "what shares its memory": lambda x: x.detach().mul_(100),
    "by an operation's out": lambda x: torch.add(x, 1, out=x),
}


@pytest.mark.parametrize("of", ["a tensor", "a view of it"])
@pytest.mark.parametrize("bytes_of_it", [40, 2 << 20])
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_refused_as_pytorch_does(
    store: ebbtide.Store, change: str, bytes_of_it: int, of: str, offload: Any
) -> None:
    def backward(keep: Any) -> None:
        w = torch.ones(bytes_of_it // 4, requires_grad=True)
        x = torch.full_like(w, 2, requires_grad=False)
        with keep:
            loss = (w * (x if of == "a tensor" else x.view(2, -1).view(-1))).sum()
        CHANGES[change](x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    backward(contextlib.nullcontext())
    backward(offload(store))


@pytest.mark.parametrize("length", [10, 1 << 19])
def test_an_output_that_was_changed_is_refused_as_pytorch_does(store: ebbtide.Store, length: int, offload: Any) -> None:
    for keep in (contextlib.nullcontext(), offload(store)):
        with keep:
            y = torch.ones(length, requires_grad=True).exp()
            loss = y.sum()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("least", [1, "1GiB"])
def test_changes_that_pytorch_allows_are_allowed(store: ebbtide.Store, least: int | str, offload: Any) -> None:
    def gradient(keep: Any) -> Any:
        torch.manual_seed(1)
        x, w = torch.linspace(-1, 1, 1000, requires_grad=True), torch.full((1000,), 2.0, requires_grad=True)
        with keep:
            y = ((x * w).relu_() * w).sigmoid_()
            y = torch.nn.functional.dropout(y + 0, inplace=True).view(10, 100)
            y = torch.nn.functional.batch_norm(y, mean, variance, training=True)
            y[:5].mul_(w[:500].view(5, 100))
            loss = (y * torch.zeros_like(y).add_(y)).sum()
        return torch.autograd.grad(loss, (x, w))

    mean, variance = torch.zeros(100), torch.ones(100)
    plain = gradient(contextlib.nullcontext())
    assert all(map(torch.equal, plain, gradient(offload(store, min_bytes=least))))


@pytest.mark.parametrize("way", ["autocast", "DDP", "FSDP2"])
def test_gradients_of_a_wrapped_model_are_the_same_bits(store: ebbtide.Store, way: str, offload: Any) -> None:
    def step(keep: Any) -> list[Any]:
        with keep, torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            loss = wrapped(x).float().square().mean()
        return [grad.full_tensor() if way == "FSDP2" else grad for grad in gradients(model, loss)]

    model, x = model_and_input()
    with contextlib.ExitStack() as stack:
        wrapped = model
        if way != "autocast":
            dist = torch.distributed
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            stack.callback(dist.destroy_process_group)
        if way == "DDP":
            wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        elif way == "FSDP2":
            from torch.distributed.fsdp import fully_shard

            for block in [*model, model]:
                fully_shard(block)
        plain, keep = step(contextlib.nullcontext()), offload(store, min_bytes="16KiB")
        for _ in range(3):
            assert all(map(torch.equal, plain, step(keep)))
        assert held(keep) == []


def test_parameters_that_are_changed_before_the_backward_pass_are_refused(store: ebbtide.Store, offload: Any) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    with offload(store, min_bytes=1):
        loss = layers(torch.ones(3, 4)).sum()
    loss.backward(retain_graph=True)
    torch.optim.SGD(layers.parameters(), 0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_dropped_graph_leaves_nothing(store: ebbtide.Store, offload: Any) -> None:
    model, x = model_and_input()
    keep = offload(store, min_bytes="16KiB")
    for _ in range(20):  # all of it would not fit the store
        with keep:
            model(x)
    assert held(keep) == []


@pytest.mark.parametrize("length", [10, 1 << 19])
def test_a_dropped_graph_is_freed_though_its_outputs_stay_in_memory(
    store: ebbtide.Store, length: int, offload: Any
) -> None:
    class Mark:
        pass

    x, mark = torch.ones(length, requires_grad=True), Mark()
    alive = weakref.ref(mark)
    with offload(store) as keep:
        y = (x * 2).exp()
        y.register_hook(lambda slope, mark=mark: slope)
        z = y.tanh()
    del y, z, mark
    assert held(keep) == []
    assert alive() is None


def test_retain_graph_and_second_derivatives(store: ebbtide.Store, offload: Any) -> None:
    model, x = model_and_input()
    plain = gradients(model, model(x).square().mean())
    keep = offload(store, min_bytes="16KiB")
    with keep:
        loss = model(x).square().mean()
    for again in (True, True, False):
        assert all(map(torch.equal, plain, gradients(model, loss, retain_graph=again)))
    del loss
    assert held(keep) == []
    y = torch.linspace(0, 1, 10_000, requires_grad=True)
    with keep:
        (slope,) = torch.autograd.grad((y.sin() * y).sum(), y, create_graph=True)
        (curve,) = torch.autograd.grad(slope.sum(), y)
    assert torch.allclose(curve, 2 * y.cos() - y * y.sin(), atol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_segments(store: ebbtide.Store, reentrant: bool, offload: Any) -> None:
    model, x = model_and_input()
    x.requires_grad_()
    plain = gradients(model, model(x).square().mean())
    keep = offload(store, min_bytes="16KiB")
    with keep:
        out = x
        for layer in model:
            out = checkpoint(layer, out, use_reentrant=reentrant)
        loss = out.square().mean()
        assert all(map(torch.equal, plain, gradients(model, loss)))
    del out, loss
    assert held(keep) == []


def test_parameters_and_what_is_skipped_are_not_copied(store: ebbtide.Store, offload: Any) -> None:
    x = torch.randn(2, 300, requires_grad=True)
    linear = torch.nn.Linear(300, 300)
    weight = torch.randn(300, 300)  # of no module
    keep = offload(store, min_bytes="100KiB")
    with keep:
        loss = linear(x).sum()
        assert held(keep) == []
        other = (x @ weight).sum()
        assert len(held(keep)) == 1
    for skip in (
        [weight],
        lambda tensor: tensor.shape == (300, 300),
        torch.nn.ParameterList([torch.nn.Parameter(weight)]),
    ):
        with offload(store, min_bytes="100KiB", skip=skip) as keep:
            again = (x @ weight).sum()
        assert held(keep) == []
    (loss + other + again).backward()


def test_a_part_of_a_large_tensor_is_stored_alone(store: ebbtide.Store) -> None:
    data = torch.arange(40 << 20, dtype=torch.uint8).view(torch.float32)  # ten times the caches; the disk takes one
    w = torch.ones((), requires_grad=True)
    keep = stored(store, min_bytes="1KiB")
    for row in data.view(-1, 1 << 18)[:20]:
        with keep:
            loss = (w * row.nan_to_num()).sum() + (w * row).nansum()
        loss.backward()
    assert held(keep) == []


def test_sparse_and_empty_tensors_stay(store: ebbtide.Store, offload: Any) -> None:
    keep = offload(store, min_bytes=0)
    x = torch.ones(6, 6, requires_grad=True)
    with keep:
        loss = torch.sparse.mm(torch.eye(6).to_sparse(), x).sum()  # saves one that has no nbytes
        loss = loss + (torch.ones(0, 0, requires_grad=True) * torch.ones(6, 6)[:0, :0]).sum()
    assert held(keep) == []
    loss.backward()
    assert (x.grad == 1).all()


def wave(x: Any) -> Any:
    return (x.sin() * x).sum()


def reverse_over_forward(x: Any, v: Any) -> Any:
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        return torch.autograd.grad(forward.unpack_dual(wave(forward.make_dual(x, v))).tangent, x)


def forward_over_reverse(x: Any, v: Any) -> Any:
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(x, v)
        return forward.unpack_dual(torch.autograd.grad(wave(dual), dual, create_graph=True)[0])


def times_zeros(x: Any, v: Any) -> Any:
    return torch.autograd.grad((x * torch._efficientzerotensor(x.shape) * v).sum(), x)


DERIVATIVES = {
    "reverse over forward": reverse_over_forward,
    "forward over reverse": forward_over_reverse,
    "zeros": times_zeros,
    "jvp": lambda x, v: torch.autograd.functional.jvp(wave, x, v),
    "hvp": lambda x, v: torch.autograd.functional.hvp(wave, x, v),
    "vhp": lambda x, v: torch.autograd.functional.vhp(wave, x, v),
    "jvp of torch.func": lambda x, v: torch.func.jvp(wave, (x,), (v,)),
    "vmap": lambda x, v: torch.autograd.grad(torch.vmap(lambda a: a * a.sin())(torch.stack([x, v])).sum(), x),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_every_kind_are_the_same(store: ebbtide.Store, name: str, offload: Any) -> None:
    x, v = torch.linspace(0, 1, 1000, requires_grad=True), torch.full((1000,), 3.0)
    plain = DERIVATIVES[name](x, v)
    with offload(store, min_bytes=1):
        kept = DERIVATIVES[name](x, v)
    assert all(map(torch.equal, plain, kept))


def test_entered_inside_a_compiled_function(store: ebbtide.Store, offload: Any) -> None:
    model, x = model_and_input()
    plain = gradients(model, model(x).square().mean())
    keep = offload(store, min_bytes="16KiB")

    @torch.compile(backend="aot_eager")
    def loss_of(x: Any) -> Any:
        with keep:
            return model(x).square().mean()

    loss = loss_of(x)
    assert len(held(keep)) > 20
    assert all(map(torch.equal, plain, gradients(model, loss)))
    del loss
    assert held(keep) == []


@pytest.mark.parametrize("first", ["before", "inside"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_model_is_one_graph_with_the_same_bits(
    store: ebbtide.Store, whole: bool, first: str, offload: Any
) -> None:
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    model, x = model_and_input()
    if whole:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    else:
        compiled = torch.nn.Sequential(*(torch.compile(block, backend="aot_eager", fullgraph=True) for block in model))
    if first == "before":
        plain = gradients(model, compiled(x).square().mean())
    keep = offload(store, min_bytes="16KiB")
    with keep:
        loss = compiled(x).square().mean()
    assert len(held(keep)) > 20
    kept = gradients(model, loss)
    if first == "inside":
        plain = gradients(model, compiled(x).square().mean())
    assert all(map(torch.equal, plain, kept))
    assert counters["stats"]["unique_graphs"] <= (1 if whole else 2)  # the first block's input needs no gradient
    assert not counters["graph_break"]


def test_a_whole_model_that_is_compiled_is_warned_of_once(store: ebbtide.Store) -> None:
    def warned(compiled: Any) -> list[str]:
        keep = stored(store, min_bytes="16KiB")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(4):
                with keep:
                    loss = compiled(x).square().mean()
                gradients(model, loss)
        assert all(Path(one.filename) == Path(__file__) for one in found)
        return [str(one.message) for one in found if issubclass(one.category, RuntimeWarning)]

    model, x = model_and_input()
    x.requires_grad_()
    blocks = [torch.compile(block, backend="aot_eager") for block in model]
    (message,) = warned(torch.compile(model, backend="aot_eager"))
    assert "Compile the blocks of a model one by one" in message
    assert warned(torch.nn.Sequential(*blocks)) == [] == warned(model)


# In a process of its own, which has not imported torch._dynamo before.
FIRST_COMPILED_INSIDE = """
import sys
import torch
import ebbtide
from ebbtide.torch import offload

assert "torch._dynamo" not in sys.modules
x, layer = torch.ones(64, 64, requires_grad=True), torch.nn.Linear(64, 64)
plain = torch.autograd.grad(layer(x).square().sum(), x)[0]
with ebbtide.open(device="cpu", device_cache="1MiB", host_cache="2MiB", disk=0) as store:
    with offload(store, min_bytes=1):
        loss = torch.compile(lambda x: layer(x).square().sum(), backend="aot_eager")(x)
    assert len(store.histories()) == 1
    assert torch.equal(torch.autograd.grad(loss, x)[0], plain)
"""


def test_a_function_that_is_the_first_to_be_compiled_and_is_inside() -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST_COMPILED_INSIDE], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


# In a process of its own, whose most resident memory counts.
MOST_MEMORY = """
import contextlib
import sys
from pathlib import Path
import torch
import ebbtide
from ebbtide.torch import offload

def most():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(24)))
x = torch.randn(8192, 256)  # 8 MiB, as each activation
with ebbtide.open(sys.argv[1], device_cache="16MiB", host_cache="32MiB", disk="512MiB", warm=True) as store:
    keep = offload(store) if sys.argv[2] == "offload" else contextlib.nullcontext()
    layers(x[:8]).square().mean().backward()
    before = most()
    for _ in range(3):
        with keep:
            loss = layers(x).square().mean()
        loss.backward()
    print(most() - before)
"""


def test_resident_memory_falls(disk: Path) -> None:
    def most(way: str) -> int:
        given = [sys.executable, "-c", MOST_MEMORY, str(disk), way]
        return int(subprocess.run(given, capture_output=True, text=True, timeout=600, check=True).stdout)

    assert most("memory") > 384 << 20
    assert most("offload") < 192 << 20


ENDS_WITH_A_GRAPH = """
import torch
import ebbtide
from ebbtide.torch import offload

store = ebbtide.open(device="cpu", device_cache="1MiB", host_cache="2MiB", disk=0)
keep = offload(store, min_bytes=1)
with keep:
    loss = torch.ones(64, 64, requires_grad=True).exp().square().sum()
"""


def test_a_program_that_ends_with_a_graph_says_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", ENDS_WITH_A_GRAPH], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the test's process has threads
def test_a_graph_that_ends_in_a_forked_process_says_nothing(store: ebbtide.Store, offload: Any) -> None:
    x = torch.ones(1000, requires_grad=True)
    with offload(store, min_bytes=1):
        loss = (x.exp() * x).sum()
    child = os.fork()
    if child == 0:
        sys.unraisablehook = lambda _: os._exit(1)
        del loss
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    loss.backward()
    assert torch.allclose(x.grad, 2 * x.detach().exp())


def test_an_offload_that_is_gone_leaves_no_memory_in_the_store(store: ebbtide.Store) -> None:
    def many(count: int) -> None:
        for _ in range(count):
            with stored(store, min_bytes=1):
                loss = x.square()
            loss.backward()

    x = torch.ones((), requires_grad=True)
    many(1000)
    before = resident()
    many(10_000)
    assert resident() - before < 4 << 20


def test_a_graph_outlives_its_offload(store: ebbtide.Store) -> None:
    x = torch.ones(1000, requires_grad=True)
    with stored(store, min_bytes=1):
        loss = x.exp().square().sum()
    gc.collect()
    assert len(store.histories()) == 1
    loss.backward()
    assert torch.allclose(x.grad, 2 * (2 * x.detach()).exp())
    del loss
    gc.collect()
    assert store.histories() == []


def test_what_cannot_be_entered_leaves_no_hook(store: ebbtide.Store) -> None:
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    before, keep = len(hooks), stored(store)
    with (
        torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"),
        pytest.raises(RuntimeError, match="no hooks here"),
        keep,
    ):
        pass
    assert len(hooks) == before
    with keep:
        pass
    assert len(hooks) == before


def test_refusals(store: ebbtide.Store, disk: Path) -> None:
    with (
        ebbtide.open(disk / "kept", durability="process") as kept,
        pytest.raises(ebbtide.InvalidArgument, match="the store is persistent"),
    ):
        stored(kept)
    keep = stored(store)
    with keep, pytest.raises(ebbtide.InvalidArgument, match="entered already"), keep:
        pass
    for name in ("memory", "min_bytes"):
        with pytest.raises(ebbtide.InvalidArgument, match=name):
            stored(store, **{name: "many"})


def test_a_store_that_is_too_small_is_named_and_left_empty(disk: Path) -> None:
    model, x = model_and_input()
    with ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="2MiB") as small:
        keep = stored(small, min_bytes="16KiB")
        with pytest.raises(ebbtide.NoSpace), keep:
            model(x.repeat(8, 1, 1))
        assert held(keep) == []


class Steps:
    """Steps that save ``count`` tensors of 40 KiB, each the sine of the one before."""

    def __init__(self, store: ebbtide.Store, memory: str) -> None:
        self.keep = stored(store, memory=memory, min_bytes="16KiB")
        self.calls = Counted(self.keep._saved.history)
        self.keep._saved.history = self.calls
        self.x = torch.ones(10 << 10, requires_grad=True)

    def forward(self, count: int) -> tuple[Any, list[int]]:
        """The last tensor, and how many were written after each."""
        self.calls.calls.clear()
        y, written = self.x * 1, []
        with self.keep:
            for _ in range(count):
                y = y.sin()
                written.append(self.calls.calls["checkpoint"])
        return y, written

    def slope(self, y: Any) -> Any:
        return torch.autograd.grad(y.sum(), self.x)[0]

    def plain(self, count: int) -> Any:
        y = self.x * 1
        for _ in range(count):
            y = y.sin()
        return self.slope(y)


def test_what_was_saved_last_stays_and_half_of_what_leaves_does_so_at_once_in_the_next_step(
    store: ebbtide.Store,
) -> None:
    steps = Steps(store, "200KiB")  # five of them

    def check(count: int, expected: list[int]) -> None:
        y, written = steps.forward(count)
        assert written == expected
        assert sum(entry.parts is not None for entry in held(steps.keep)) == count - expected[-1]
        assert torch.equal(steps.slope(y), steps.plain(count))
        del y
        assert held(steps.keep) == []

    check(9, [0, 0, 0, 0, 0, 1, 2, 3, 4])
    for _ in range(3):
        check(9, [1, 2, 2, 2, 2, 2, 2, 3, 4])  # half at once
        assert steps.calls.calls["hint"] == 1 and steps.calls.calls["hint_front"] == 0
    check(14, [1, 2, 2, 2, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9])
    check(14, [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7, 8, 9])
    check(7, [1, 2, 3, 4, 5, 5, 5])
    check(7, [1, 1, 1, 1, 1, 1, 2])
    check(4, [1, 1, 1, 1])
    for _ in range(2):
        check(4, [0, 0, 0, 0])  # all fits


def test_what_stays_is_no_more_than_was_said_whatever_else_lives(store: ebbtide.Store) -> None:
    steps = Steps(store, "200KiB")
    kept: collections.deque[tuple[int, Any]] = collections.deque()
    for count in (3, 9, 1, 4, 12, 2, 6, 6, 3):
        kept.append((count, steps.forward(count)[0]))
        assert sum(entry.bytes for entry in held(steps.keep) if entry.parts is not None) <= 200 << 10
        if len(kept) > 2:
            first, y = kept.popleft()
            assert torch.equal(steps.slope(y), steps.plain(first))
            del y
    kept.clear()
    assert held(steps.keep) == []


def test_a_tensor_that_stays_is_no_call_of_the_store(store: ebbtide.Store) -> None:
    steps = Steps(store, "1MiB")
    y, written = steps.forward(20)
    steps.slope(y)
    assert not steps.calls.calls


@pytest.mark.parametrize("change", ["written to", "resized"])
@pytest.mark.parametrize("leaves", [False, True])
def test_what_stayed_and_was_changed_is_refused(store: ebbtide.Store, leaves: bool, change: str) -> None:
    steps = Steps(store, "200KiB")
    changed, given = torch.ones(10 << 10), torch.ones(10 << 10, requires_grad=True)
    with steps.keep:
        z = given * changed
    if change == "resized":
        changed.untyped_storage().resize_(0)
    else:
        changed.mul_(2)
    if leaves:
        y, written = steps.forward(9)
        assert written[-1] == 4  # of the five that left, one was not as it had been
    del changed
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("memory", [0, 6000])
def test_what_is_interrupted_as_it_is_stored_is_dropped(store: ebbtide.Store, memory: int) -> None:
    class Interrupted:
        def __init__(self, history: ebbtide.History) -> None:
            self.history = history

        def _write(self, *given: Any) -> None:
            self.history._write(*given)  # type: ignore[attr-defined]
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(self.history, name)

    keep = stored(store, memory=memory, min_bytes=1)
    keep._saved.history = Interrupted(keep._saved.history)
    x = torch.ones(1000, requires_grad=True)
    with pytest.raises(KeyboardInterrupt), keep:
        x.square().square()
    del x
    assert held(keep) == []


def test_a_store_that_is_closed_first(disk: Path) -> None:
    x = torch.ones(1000, requires_grad=True)
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="4MiB") as store, stored(store, min_bytes=1):
        loss = (x.exp() * x).sum()
    with pytest.raises(ebbtide.Closed):
        loss.backward()
    del loss  # drops nothing, and says nothing
    gc.collect()


def many(store: ebbtide.Store, memory: str, **options: Any) -> stored:
    """An offload with groups of 256 KiB."""
    keep = stored(store, memory=memory, **options)
    keep._saved._most = 256 << 10
    keep._saved.history = Counted(keep._saved.history)
    return keep


@pytest.fixture
def roomy() -> Iterator[ebbtide.Store]:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache="16MiB", disk=0) as store:
        yield store


def test_small_neighbours_are_one_call_each_way_from_the_second_step_on(roomy: ebbtide.Store) -> None:
    def step(count: int) -> tuple[int, int]:
        calls.clear()
        y = x * 1
        with keep:
            for _ in range(count):
                y = y.sin()
        (slope,) = torch.autograd.grad(y.sum(), x)
        del y
        assert torch.equal(slope, slopes[count]) and held(keep) == []
        return calls["checkpoint"], calls["restore"]

    x, slopes = torch.ones(10 << 10, requires_grad=True), {}  # 40 KiB, so six are a group
    for count in (20, 9, 25):
        y = x * 1
        for _ in range(count):
            y = y.sin()
        (slopes[count],) = torch.autograd.grad(y.sum(), x)
    keep = many(roomy, "0", min_bytes=1)
    calls = keep._saved.history.calls
    assert step(20) == (20, 20)
    for _ in range(2):
        assert step(20) == (4, 4) and calls["hint"] == 1 and calls["hint_front"] == 0
    assert step(9) == (2, 2)  # the second group is not whole
    assert step(25) == (2 + 16, 2 + 16)  # none is expected behind these
    assert step(25) == (5, 5)


def test_what_waits_for_its_group_is_no_more_than_a_group(roomy: ebbtide.Store) -> None:
    waiting: list[int] = []

    class Look(torch.autograd.Function):
        """Saves its input, and looks at what is in memory."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            waiting.append(sum(one.bytes for one in entries() if one.parts is not None))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            (x,) = ctx.saved_tensors
            waiting.append(sum(one.bytes for one in entries() if one.kept is not None))
            return slope * x

    def entries() -> list[Any]:
        return [one for found in keep._saved.entries.values() if (one := found())]

    keep = many(roomy, "0", min_bytes=1)
    for _ in range(3):
        y = torch.ones(10 << 10, requires_grad=True)
        with keep:
            for _ in range(40):
                y = Look.apply(y)
        y.sum().backward()
        del y
        assert len(waiting) == 80 and max(waiting) <= 256 << 10
        waiting.clear()
    assert keep._saved.history.calls["checkpoint"] < 80


def test_what_is_needed_while_it_waits_for_its_group_is_learned_too(roomy: ebbtide.Store) -> None:
    keep = many(roomy, "0", min_bytes=1)
    calls, x = keep._saved.history.calls, torch.ones(10 << 10, requires_grad=True)
    for i in range(4):
        calls.clear()
        with keep:
            for _ in range(10):  # each backward pass is in the block, before what is saved next
                y = x * 1
                for _ in range(3):
                    y = y.sin()
                (slope,) = torch.autograd.grad(y.sum(), x)
                del y
        assert calls["hint_front"] == (30 if i == 0 else 0)
        assert calls["checkpoint"] == (30 if i == 0 else 5)  # of two graphs each; that of the first is gone by then
    y = x * 1
    for _ in range(3):
        y = y.sin()
    assert torch.equal(slope, torch.autograd.grad(y.sum(), x)[0])
    assert held(keep) == []


@pytest.mark.parametrize("memory", ["0", "200KiB"])
@pytest.mark.parametrize("seed", range(8))
def test_steps_that_differ_have_the_same_gradients(store: ebbtide.Store, seed: int, memory: str) -> None:
    """Chains that share tensors, keep graphs, drop them half, and change from one step to the next."""
    rng = random.Random(seed)

    def graph(ops: list[tuple[str, int, int]]) -> Any:
        made = [x * 1, x * 2]
        for name, i, j in ops:
            one, other = made[i % len(made)], made[j % len(made)]
            made.append(
                {
                    "mul": lambda: (one * other).sin(),
                    "sin": one.sin,
                    "relu": one.relu,
                    "part": lambda: one * other[:4096].sum(),
                }[name]()
            )
        return made

    def operations() -> list[tuple[str, int, int]]:
        names = ["mul", "sin", "sin", "relu", "part"]
        return [
            (rng.choice(names), -rng.choice([1, 1, 1, 2, 5]), -rng.choice([1, 2, 3, 9]))
            for _ in range(rng.randrange(1, 40))
        ]

    x = torch.linspace(0.1, 0.9, 8192, requires_grad=True)  # 32 KiB
    keep = many(store, memory, min_bytes=1000)
    ops = operations()
    for _ in range(8):
        if rng.random() < 0.4:
            ops = operations()
        elif rng.random() < 0.3:
            ops = ops[: rng.randrange(1, len(ops) + 1)]
        plain, again = graph(ops), rng.random() < 0.3
        with keep:
            made = graph(ops)
        if rng.random() < 0.2:
            del made[rng.randrange(1, len(made)) :]
        (right,) = torch.autograd.grad(plain[len(made) - 1].tanh().sum(), x)
        for retain in [True, False] if again else [False]:
            (slope,) = torch.autograd.grad(made[-1].tanh().sum(), x, retain_graph=retain)
            assert torch.equal(slope, right)
        made.clear()
        assert held(keep) == []


@pytest.mark.parametrize("when", ["it waits for its group", "its group is stored"])
def test_a_member_of_a_group_that_was_changed_is_refused_and_the_others_are_not(
    roomy: ebbtide.Store, when: str
) -> None:
    def forward(change: bool) -> list[Any]:
        givens, products = [torch.full((10 << 10,), float(i)) for i in range(12)], []
        with keep:
            for i, given in enumerate(givens):
                products.append((w * given).sum())
                if change and i == (2 if when == "it waits for its group" else 6):
                    givens[1].mul_(100)
        alive[:] = givens
        return products

    alive: list[Any] = []
    w = torch.ones(10 << 10, requires_grad=True)
    keep = many(roomy, "0", min_bytes=1)
    for loss in reversed(forward(False)):
        loss.backward()
    del loss
    w.grad = None
    products = forward(True)
    assert len({entry.group.version for entry in held(keep) if entry.group}) == 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        products[1].backward()
    for i in (0, *range(2, 12)):
        (slope,) = torch.autograd.grad(products[i], w)
        assert bool((slope == i).all())
    products.clear()
    assert held(keep) == []


@pytest.mark.parametrize("most", [0, 256 << 10])
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.inference_mode])
def test_a_node_that_writes_to_what_it_saved_is_refused_to_the_next_as_pytorch_does(
    roomy: ebbtide.Store, mode: Any, most: int
) -> None:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, writes: bool) -> Any:
            ctx.save_for_backward(x)
            ctx.writes = writes
            return x * x

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            (x,) = ctx.saved_tensors
            alive.append(x)
            slope = slope * x
            if ctx.writes:
                x.mul_(2)
            return slope, None

    def step(within: Any, writes: bool) -> Any:
        x = w * 1
        with within:
            for i in range(6):
                x = Times.apply(x, False) + Times.apply(x, writes and i == 5)  # the last is needed first
        loss = x.sum()
        with mode():
            (slope,) = torch.autograd.grad(loss, w)
        alive.clear()
        return slope

    alive: list[Any] = []
    w = torch.linspace(0, 0.1, 10 << 10, requires_grad=True)
    keep = many(roomy, "0", min_bytes=1)
    keep._saved._most = most
    plain = step(contextlib.nullcontext(), False)
    for within in (keep, keep, keep):
        assert torch.equal(step(within, False), plain)
    assert keep._saved.step.versions == (1 if most else 6)
    for within in (contextlib.nullcontext(), keep):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(within, True)
    alive.clear()
    assert torch.equal(step(keep, False), plain)
    assert held(keep) == []


class Watched(Counted):
    """A history that remembers which versions are hinted, and which were read."""

    def __init__(self, history: ebbtide.History) -> None:
        super().__init__(history)
        self.hinted: list[int] = []
        self.read: list[int] = []

    def hint(self, versions: list[int]) -> None:
        self.history.hint(versions)
        self.hinted += versions

    def hint_front(self, version: int) -> None:
        self.history.hint_front(version)
        self.hinted.insert(0, version)

    def unhint(self, versions: list[int]) -> None:
        self.history.unhint(versions)
        for version in versions:
            self.hinted.remove(version)

    def _read(self, version: int, *given: Any) -> Any:
        self.read.append(version)
        return self.history._read(version, *given)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("most", "times"), [(0, 1), (0, 2), (80 << 10, 1)])
def test_hints_name_what_is_read_though_some_of_what_was_expected_is_not_written(
    roomy: ebbtide.Store, most: int, times: int
) -> None:
    def step(away: tuple[int, ...] = ()) -> None:
        watched.hinted.clear()
        watched.read.clear()
        givens, products = [torch.full((10 << 10,), float(i)) for i in range(12)], []
        with keep:
            for i, given in enumerate(givens):
                products.append((w * given).sum())
                if i == 7:  # all from the fifth on are in the window
                    for one in away:
                        givens[one].untyped_storage().resize_(0)
        for one in away:
            givens[one].untyped_storage().resize_(40 << 10)
            with torch.autograd._unsafe_preserve_version_counter(givens[one]):
                givens[one].fill_(one)
        for i in (6, 0, 1, 5, 4, 3, 2, 11, 10, 9, 8, 7):
            for _ in range(times):
                (slope,) = torch.autograd.grad(products[i], w, retain_graph=True)
                assert bool((slope == i).all())
        if keep._saved._as_planned:
            assert watched.hinted == watched.read and len(watched.read) > 2

    w = torch.ones(10 << 10, requires_grad=True)
    keep = many(roomy, "200KiB", min_bytes=1)
    keep._saved._most = most
    watched = keep._saved.history = Watched(keep._saved.history)
    for away in ((), (), (4, 5), (4, 5), ()):
        step(away)
    assert held(keep) == []


def test_memory_that_is_away_while_it_waits_for_its_group_may_be_back_when_it_is_needed(roomy: ebbtide.Store) -> None:
    """As FSDP does with parameters."""

    def step(away: int | None = None) -> None:
        givens, products = [torch.full((10 << 10,), float(i)) for i in range(12)], []
        with keep:
            for i, given in enumerate(givens):
                products.append((w * given).sum())
                if i == away:
                    given.untyped_storage().resize_(0)
        if away is not None:
            givens[away].untyped_storage().resize_(40 << 10)
            with torch.autograd._unsafe_preserve_version_counter(givens[away]):
                givens[away].fill_(away)
        for i in reversed(range(12)):
            (slope,) = torch.autograd.grad(products[i], w)
            assert bool((slope == i).all())

    w = torch.ones(10 << 10, requires_grad=True)
    keep = many(roomy, "0", min_bytes=1)
    step()
    for away in (0, 5, 6, 11):
        step(away)
        step()


def test_a_block_that_fails_leaves_nothing_of_its_groups(roomy: ebbtide.Store) -> None:
    def step(fails: int | None = None) -> Any:
        y = x * 1
        with keep:
            for i in range(20):
                y = y.sin()
                if i == fails:
                    raise KeyError
        return torch.autograd.grad(y.sum(), x)[0]

    x = torch.ones(10 << 10, requires_grad=True)
    keep = many(roomy, "0", min_bytes=1)
    right = step()
    for fails in (2, 8, 0, 19):
        assert torch.equal(step(), right)
        with pytest.raises(KeyError):
            step(fails)
        assert held(keep) == []
    assert torch.equal(step(), right)


@pytest.mark.gpu
def test_on_a_gpu(offload: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    model, x = model_and_input()
    model, x = model.cuda(), x.cuda()
    plain = gradients(model, model(x).square().mean())
    with ebbtide.open(device="cuda", device_cache="2MiB", host_cache="64MiB", disk="64MiB") as store:
        keep = offload(store, min_bytes="16KiB")
        for _ in range(3):
            with keep:
                loss = model(x).square().mean()
            assert all(map(torch.equal, plain, gradients(model, loss)))
            del loss
        assert held(keep) == []


@pytest.mark.gpu
def test_two_hundred_steps_in_little_memory_on_a_stream_of_their_own(offload: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    model, x = model_and_input()
    model, x = model.cuda(), x.cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with (
        ebbtide.open(device="cuda", device_cache="1MiB", host_cache="64MiB", disk=0) as store,
        torch.cuda.stream(side),
    ):
        keep = offload(store, min_bytes="16KiB")
        for i in range(200):
            plain = gradients(model, model(x * i).square().mean())
            with keep:
                loss = model(x * i).square().mean()
            assert all(map(torch.equal, plain, gradients(model, loss)))
        del loss
        assert held(keep) == []


@pytest.mark.gpu
def test_what_several_streams_of_a_gpu_saved_waits_for_its_bytes(offload: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    side = torch.cuda.Stream()
    with ebbtide.open(device="cuda", device_cache="64MiB", host_cache="512MiB", disk=0) as store:
        keep = offload(store)
        w, v = (torch.ones(1 << 22, device="cuda", requires_grad=True) for _ in range(2))
        for i in range(50):
            with keep:
                x = torch.full((1 << 22,), float(i), device="cuda")
                y = w * x
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    z = v * x  # saves it again, and comes back on this stream
                torch.cuda.current_stream().wait_stream(side)
                loss = (y + z).sum()
            del x, y, z
            for slope in torch.autograd.grad(loss, (w, v)):
                assert bool((slope == i).all())
        del loss
        assert held(keep) == []


@pytest.mark.gpu
def test_groups_of_several_streams_of_a_gpu_wait_for_their_bytes(offload: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    with ebbtide.open(device="cuda", device_cache="64MiB", host_cache="512MiB", disk=0) as store:
        keep = offload(store)
        w = torch.ones(1 << 18, device="cuda", requires_grad=True)  # as large as the least that is stored
        for i in range(20):
            losses = []
            with keep:
                for j in range(24):
                    stream, other = (main, side) if j % 8 < 4 else (side, main)
                    stream.wait_stream(other)
                    with torch.cuda.stream(stream):
                        losses.append((w * torch.full((1 << 18,), float(i + j), device="cuda")).sum())
                main.wait_stream(side)
                loss = torch.stack(losses).sum()
            (slope,) = torch.autograd.grad(loss, w)
            assert bool((slope == sum(i + j for j in range(24))).all())
            step = keep._saved.step
            assert step.versions == (24 if i == 0 else 6) and len(step.kinds) == 24
            del loss, losses
        assert held(keep) == []


@pytest.mark.gpu
@pytest.mark.parametrize("memory", [0, "40MiB"])
def test_memory_of_another_stream_than_the_one_it_leaves_on_is_used_again_after_its_copy(memory: int | str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    with ebbtide.open(device="cuda", device_cache="256MiB", host_cache="512MiB", disk=0) as store:
        v = torch.ones(1 << 22, device="cuda", requires_grad=True)
        for i in range(10):
            with stored(store, memory=memory):
                x = torch.full_like(v, float(i), requires_grad=False)
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    torch.cuda._sleep(20_000_000)
                    z = (v * x).sum()
                if memory:  # it stays, and the main stream waits for all but the copy
                    main.wait_stream(side)
                del x
                with torch.cuda.stream(side):
                    torch.cuda._sleep(20_000_000)
                    for _ in range(3):  # for which it leaves
                        z = z + (v * torch.ones_like(v)).sum()
                other = [torch.full_like(v, -1.0) for _ in range(4)]  # where it was
                main.wait_stream(side)
            (slope,) = torch.autograd.grad(z, v)
            assert bool((slope == i + 3).all())
            del other
