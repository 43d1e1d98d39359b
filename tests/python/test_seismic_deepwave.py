"""Images and gradients of deepwave with the wavefields in a store are those with everything in memory, bit for bit."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepwave", reason="deepwave is not installed")
import deepwave
import torch
from torch.utils.checkpoint import checkpoint

import ebbtide
from ebbtide.seismic import CrossCorrelation, Wavefields
from ebbtide.torch import offload

STEPS, DT = 120, 0.002


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(disk, device_cache="256KiB", host_cache="512KiB", disk="256MiB") as store:
        yield store


def velocity() -> Any:
    v = torch.full((40, 50), 1500.0)
    v[20:] = 2000.0
    return v.requires_grad_()


def shot(v: Any, *, steps: int = STEPS, begin: int = 0, **options: Any) -> Any:
    """Two shots with sources and receivers at the top."""
    sources = torch.tensor([[[2, 10]], [[2, 40]]])
    receivers = torch.stack(torch.meshgrid(torch.tensor([2]), torch.arange(50), indexing="ij"), -1).reshape(1, 50, 2)
    wavelet = deepwave.wavelets.ricker(20, STEPS, DT, 0.03).reshape(1, 1, -1).repeat(2, 1, 1)
    return deepwave.scalar(
        v,
        5.0,
        DT,
        source_amplitudes=wavelet[..., begin : begin + steps],
        source_locations=sources,
        receiver_locations=receivers.repeat(2, 1, 1),
        max_vel=2200.0,
        **({"pml_width": 8} | options),
    )


class InMemory:
    """What ebbtide.seismic does, with lists."""

    def __init__(self, view: str) -> None:
        self.view, self.kept, self.image = view, {}, 0

    def forward(self, state: Any) -> None:
        self.kept[state.step] = state.get_wavefield("wavefield_0", self.view).clone()

    def backward(self, state: Any) -> None:
        self.image = self.image + (self.kept.pop(state.step) * state.get_wavefield("wavefield_0", self.view)).sum(0)


@pytest.mark.parametrize("view", ["inner", "full"])
@pytest.mark.parametrize("every", [1, 4])
def test_images_are_those_in_memory(store: ebbtide.Store, view: Any, every: int) -> None:
    options = {"storage_mode": "none", "callback_frequency": every}
    memory = InMemory(view)
    wavefields = Wavefields(store, view=view)
    image = CrossCorrelation(wavefields)
    for _ in range(2):  # two calls add up
        shot(velocity(), forward_callback=memory.forward, backward_callback=memory.backward, **options)[
            -1
        ].sum().backward()
        receivers = shot(velocity(), forward_callback=wavefields, backward_callback=image, **options)[-1]
        assert len(wavefields.history) == STEPS // every
        receivers.sum().backward()
        assert len(wavefields.history) == 0
    assert torch.equal(image.image, memory.image) and image.image.abs().max() > 0


def test_steps_that_do_not_meet_are_refused(store: ebbtide.Store, disk: Path) -> None:
    wavefields = Wavefields(store)
    options = {"storage_mode": "none", "callback_frequency": 7}
    receivers = shot(
        velocity(), forward_callback=wavefields, backward_callback=CrossCorrelation(wavefields), **options
    )[-1]
    with pytest.raises(ebbtide.InvalidArgument, match="no wavefield of step 113: .*multiple of callback_frequency"):
        receivers.sum().backward()
    with ebbtide.open(disk / "kept", durability="process", disk="16MiB") as kept:
        with pytest.raises(ebbtide.InvalidArgument, match="the store is persistent"):
            Wavefields(kept)
    with pytest.raises(ebbtide.InvalidArgument, match="^name='p'"):
        CrossCorrelation(wavefields, "p")


@pytest.mark.parametrize("same_model", [False, True])
def test_passes_that_overlap_are_told_apart(store: ebbtide.Store, same_model: bool) -> None:
    def begin(v: Any, wavefields: Wavefields, image: Any) -> Any:
        calls = {"forward_callback": wavefields, "backward_callback": image, "pml_width": widths}
        return shot(v, storage_mode="none", **calls)[-1].sum()

    widths, first = [8] * 4, velocity()
    second = first if same_model else (velocity().detach() * 1.1).requires_grad_()
    alone, shared = Wavefields(store), Wavefields(store)
    wanted, image, late = CrossCorrelation(alone), CrossCorrelation(shared), CrossCorrelation(shared)
    begin(second, alone, wanted).backward()
    before = begin(first, shared, late)
    after = begin(second, shared, image)
    with pytest.raises(ebbtide.InvalidArgument, match="another call of deepwave .* a Wavefields of its own"):
        before.backward()
    assert late.image is None
    after.backward()
    assert torch.equal(image.image, wanted.image)
    with pytest.raises(ebbtide.InvalidArgument, match="^state=3 is not valid: expected what deepwave gives"):
        shared.at(3)


def test_wavefields_that_are_not_needed_go_with_their_object(store: ebbtide.Store) -> None:
    wavefields = Wavefields(store)
    receivers = shot(velocity(), forward_callback=wavefields, storage_mode="none")[-1]
    assert len(store.histories()) == 1
    del wavefields, receivers
    gc.collect()
    assert store.histories() == []
    with pytest.raises(ebbtide.InvalidArgument, match="^names='wavefield_0' is not valid: expected a tuple of names"):
        Wavefields(store, names="wavefield_0")


STATE = ("wavefield_0", "wavefield_m1", "psiy_m1", "psix_m1", "zetay_m1", "zetax_m1")


def segment(v: Any, begin: int, steps: int, *state: Any) -> Any:
    given = {name: field for name, field in zip(STATE, state) if field is not None}
    *last, receivers = shot(v, steps=steps, begin=begin, **given)
    return (*last, receivers.square().sum())


def misfit(v: Any, segments: int, call: Any = lambda function, *given: function(*given)) -> Any:
    """The shot in segments of time, each a call that goes on where the one before ended."""
    state: list[Any] = [None] * len(STATE)
    total, steps = 0.0, STEPS // segments
    for begin in range(0, STEPS, steps):
        *state, part = call(segment, v, begin, steps, *state)
        total = total + part
    return total


def test_gradients_in_segments_are_those_in_memory(store: ebbtide.Store) -> None:
    plain, kept = velocity(), velocity()
    misfit(plain, 6).backward()
    keep = offload(store, min_bytes="16KiB", skip=[kept])
    with keep:
        total = misfit(kept, 6, functools.partial(checkpoint, use_reentrant=True))
    assert len(keep._saved.history) == 5 * len(STATE), "what each segment but the first begins with"
    total.backward()
    assert torch.equal(plain.grad, kept.grad) and kept.grad.abs().max() > 0
    del total
    assert len(keep._saved.history) == 0
