"""Reverse time migration, shot by shot, with the source's wavefield kept in a History.

A shot's forward pass writes checkpoint 0, 1, 2, ...; its backward pass, which steps the receivers' wavefield from the
last moment to the first, reads them back in reverse. A checkpoint is a group of snapshots, as imaging programs make
them, so that transfers are large enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol

import numpy as np

from .imaging import Correlation, ShotImage
from .survey import Survey
from .wave import Propagator


class History(Protocol):
    """Where one shot's wavefield waits between the forward and the backward pass."""

    def save(self, index: int, block: Any) -> None:
        """Stores checkpoint `index`; `block` may be overwritten afterwards."""

    def load(self, index: int, block: Any) -> None:
        """Fills `block` with checkpoint `index`, which is not needed again."""


class MemoryHistory:
    """Everything in memory: the reference for the store's run."""

    def __init__(self) -> None:
        self._blocks: dict[int, Any] = {}

    def save(self, index: int, block: Any) -> None:
        self._blocks[index] = block.clone() if hasattr(block, "clone") else block.copy()

    def load(self, index: int, block: Any) -> None:
        block[...] = self._blocks.pop(index)


class TimedHistory:
    """Another History's calls, with the seconds that each of them took.

    On a GPU that is how long the host was blocked: calls are ordered on the stream, after work that may still run.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self.save_s: list[float] = []
        self.load_s: list[float] = []

    def save(self, index: int, block: Any) -> None:
        start = time.perf_counter()
        self._history.save(index, block)
        self.save_s.append(time.perf_counter() - start)

    def load(self, index: int, block: Any) -> None:
        start = time.perf_counter()
        self._history.load(index, block)
        self.load_s.append(time.perf_counter() - start)


class StoreHistory:
    """Through a history of an Ebbtide store (`store.history(name, order="reverse")`)."""

    def __init__(self, history: Any) -> None:
        self._history = history

    def save(self, index: int, block: Any) -> None:
        self._history.checkpoint(index, block)

    def load(self, index: int, block: Any) -> None:
        self._history.restore(index, out=block)


#: Called with each finished checkpoint: ("forward" or "backward", its index).
OnBlock = Callable[[str, int], None]


def ignore(_pass: str, _index: int) -> None:
    """An OnBlock that does nothing."""


def record(propagator: Propagator, survey: Survey, source: tuple[int, ...], on_block: OnBlock = ignore) -> Any:
    """The data of one shot, (step, *receivers): the pressure at the receivers after each step."""
    return _forward(propagator, survey, source, _new_block(propagator, survey), _NoHistory(), on_block)


def migrate_shot(
    propagator: Propagator,
    survey: Survey,
    source: tuple[int, ...],
    observed: Any,
    history: History,
    on_block: OnBlock = ignore,
) -> ShotImage:
    """The image of one shot: a forward pass into `history`, a backward pass out of it.

    `propagator` steps through the migration model. The wave that goes straight to the receivers is the same in that
    model and in the earth: it leaves with the forward pass's own data, subtracted from the observed.
    """
    block = _new_block(propagator, survey)
    predicted = _forward(propagator, survey, source, block, history, on_block)
    scattered = _scattered(propagator.xp, observed, predicted)
    correlation = _backward(propagator, survey, scattered, block, history, on_block)
    return ShotImage(correlation.image, correlation.illumination)


class _NoHistory:
    """Forgets: for data without an image."""

    def save(self, index: int, block: Any) -> None:
        pass

    def load(self, index: int, block: Any) -> None:
        raise LookupError(f"checkpoint {index} was not kept")


def _new_block(propagator: Propagator, survey: Survey) -> Any:
    return propagator.xp.empty(survey.block_shape(propagator.shape), propagator.xp.float32)


def _forward(
    propagator: Propagator, survey: Survey, source: tuple[int, ...], block: Any, history: History, on_block: OnBlock
) -> Any:
    xp = propagator.xp
    receivers = survey.receivers
    wavelet = xp.asarray(survey.wavelet)
    data = xp.empty((survey.steps, *propagator.pressure[receivers].shape), xp.float32)
    propagator.reset()
    n = 0
    for index in range(survey.checkpoints):
        for snapshot in range(survey.group):
            block[snapshot] = propagator.pressure  # at time n * dt
            for _ in range(survey.every):
                propagator.step(source, wavelet[n])
                data[n] = propagator.pressure[receivers]  # at time (n + 1) * dt
                n += 1
        history.save(index, block)
        on_block("forward", index)
    return data


def _backward(
    propagator: Propagator, survey: Survey, data: Any, block: Any, history: History, on_block: OnBlock
) -> Correlation:
    correlation = Correlation(propagator.shape, propagator.xp)
    propagator.reset()
    n = survey.steps
    for index in reversed(range(survey.checkpoints)):
        history.load(index, block)
        for snapshot in reversed(range(survey.group)):
            for _ in range(survey.every):
                n -= 1
                propagator.step(
                    survey.receivers, data[n]
                )  # data[n] is of time (n + 1) * dt; the field then is of n * dt
            correlation.add(block[snapshot], propagator.pressure)
        on_block("backward", index)
    return correlation


def _scattered(xp: Any, observed: Any, predicted: Any) -> Any:
    """What only the earth's sharp edges sent back, differentiated in time, tapered at the lines' ends.

    The derivative is the far field of the boundary term 2 dG/dn in Kirchhoff's integral: with it a step of the speed
    images as a symmetric wavelet that peaks at the step.
    """
    difference = observed - predicted
    rate = xp.zeros_like(difference)
    rate[1:-1] = difference[2:] - difference[:-2]
    return rate * xp.asarray(reduce(np.multiply, np.ix_(*map(_taper, difference.shape[1:]))))


def _taper(receivers: int) -> np.ndarray:
    """1 but at both ends of a line of `receivers`, where it goes to 0."""
    ramp = max(1, receivers // 20)
    taper = np.ones(receivers, np.float32)
    taper[:ramp] = np.sin(0.5 * np.pi * (np.arange(ramp) + 1) / (ramp + 1)) ** 2
    taper[-ramp:] = taper[:ramp][::-1]
    return taper
