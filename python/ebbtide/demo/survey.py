"""How the model is shot: wavelet, shots, receivers, time steps, and how a wavefield is cut into checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .model import SALT_SPEED, WATER_SPEED
from .wave import stable_step

#: A Ricker wavelet has almost no energy above this many times its peak frequency.
HIGHEST_FREQUENCY = 2.5
#: Cells for the shortest wave in water at the highest frequency; enough for an 8th-order stencil.
CELLS_PER_WAVE = 4.0
#: Wavefield snapshots per period of the highest frequency, by default. The zero-lag sum needs 2 (Nyquist); 5 leaves no
#: doubt.
SNAPSHOTS_PER_PERIOD = 5.0
#: Part of the longest stable step that is used.
COURANT = 0.9


@dataclass(frozen=True)
class Survey:
    """Cells, (z, x) or (z, y, x), are counted inside the model, without its border; times in seconds."""

    spacing: float
    dt: float
    steps: int
    wavelet: np.ndarray  # (steps,), float32: the source's strength at each step
    peak_frequency: float
    sources: tuple[tuple[int, ...], ...]  # the cell of each shot's source
    receivers: tuple[int | slice, ...]  # selects the receivers' cells in a grid
    every: int  # steps from one stored snapshot to the next
    group: int  # snapshots in one checkpoint
    border: int

    @property
    def checkpoints(self) -> int:
        """Checkpoints of one shot."""
        return self.steps // (self.every * self.group)

    @property
    def depth_row(self) -> int:
        """Of sources and receivers."""
        return self.sources[0][0]

    @property
    def source_columns(self) -> tuple[int, ...]:
        """The sources' positions along x."""
        return tuple(source[-1] for source in self.sources)

    @property
    def receiver_columns(self) -> slice:
        """The positions along x of the receivers of one line."""
        columns = self.receivers[-1]
        assert isinstance(columns, slice)
        return columns

    def block_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One checkpoint's array for a model of `shape`: (snapshot, *shape), float32."""
        return (self.group, *shape)


def plan_survey(
    shape: tuple[int, ...],
    spacing: float,
    shots: int,
    duration: float,
    group: int,
    border: int,
    per_period: float = SNAPSHOTS_PER_PERIOD,
) -> Survey:
    """Receivers over the whole model, `shots` sources spread evenly along its middle line, just below the surface.

    Time step, wavelet and snapshot interval follow from the cells; `duration` is rounded up to whole checkpoints.
    `per_period`: snapshots for the highest frequency's period.
    """
    peak = WATER_SPEED / (spacing * CELLS_PER_WAVE) / HIGHEST_FREQUENCY
    dt = COURANT * stable_step(SALT_SPEED, spacing, len(shape))
    every = max(1, int(1 / (HIGHEST_FREQUENCY * peak * per_period * dt)))
    steps = int(np.ceil(duration / dt / (every * group))) * every * group
    columns = shape[-1]
    margin = columns // 20
    row = max(1, round(25.0 / spacing))
    middle = tuple(cells // 2 for cells in shape[1:-1])
    places = (
        tuple(int(c) for c in np.linspace(2 * margin, columns - 1 - 2 * margin, shots))
        if shots > 1
        else (columns // 2,)
    )
    return Survey(
        spacing=spacing,
        dt=dt,
        steps=steps,
        wavelet=ricker(peak, dt, steps),
        peak_frequency=peak,
        sources=tuple((row, *middle, place) for place in places),
        receivers=(row, *(slice(cells // 20 // 2, cells - cells // 20 // 2, 2) for cells in shape[1:])),
        every=every,
        group=group,
        border=border,
    )


def ricker(peak: float, dt: float, steps: int) -> np.ndarray:
    """A Ricker wavelet of `peak` Hz, delayed so that it starts from nothing; float32."""
    phase = (np.pi * peak * (np.arange(steps) * dt - 1.3 / peak)) ** 2
    return ((1 - 2 * phase) * np.exp(-phase)).astype(np.float32)
