"""How the model is shot: wavelet, shots, receivers, time steps, and how a wavefield is cut into checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .model import SALT_SPEED, WATER_SPEED
from .wave import stable_step

#: A Ricker wavelet has next to nothing left above this many times its peak frequency.
HIGHEST_FREQUENCY = 2.5
#: Cells for the shortest wave in water at the highest frequency; enough for an 8th-order stencil.
CELLS_PER_WAVE = 4.0
#: Wavefield snapshots for the highest frequency's period. The zero-lag sum needs 2 (Nyquist); 5 leaves no doubt.
SNAPSHOTS_PER_PERIOD = 5.0
#: Part of the longest stable step that is used.
COURANT = 0.9


@dataclass(frozen=True)
class Survey:
    """Cells are counted inside the model, without its border; times in seconds."""

    spacing: float
    dt: float
    steps: int
    wavelet: np.ndarray  # (steps,), float32: the source's strength at each step
    peak_frequency: float
    source_columns: tuple[int, ...]
    depth_row: int  # of sources and receivers
    receiver_columns: slice
    every: int  # steps from one stored snapshot to the next
    group: int  # snapshots in one checkpoint
    border: int

    @property
    def checkpoints(self) -> int:
        """Checkpoints of one shot."""
        return self.steps // (self.every * self.group)

    def block_shape(self, shape: tuple[int, int]) -> tuple[int, int, int]:
        """One checkpoint's array for a model of `shape`: (snapshot, nz, nx), float32."""
        return (self.group, *shape)


def plan_survey(shape: tuple[int, int], spacing: float, shots: int, duration: float, group: int, border: int) -> Survey:
    """A fixed line of receivers over the whole model, `shots` sources spread evenly along it, just below the surface.

    Time step, wavelet and snapshot interval follow from the cells; `duration` is rounded up to whole checkpoints.
    """
    peak = WATER_SPEED / (spacing * CELLS_PER_WAVE) / HIGHEST_FREQUENCY
    dt = COURANT * stable_step(SALT_SPEED, spacing)
    every = max(1, int(1 / (HIGHEST_FREQUENCY * peak * SNAPSHOTS_PER_PERIOD * dt)))
    steps = int(np.ceil(duration / dt / (every * group))) * every * group
    columns = shape[1]
    margin = columns // 20
    sources = (
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
        source_columns=sources,
        depth_row=max(1, round(25.0 / spacing)),
        receiver_columns=slice(margin // 2, columns - margin // 2, 2),
        every=every,
        group=group,
        border=border,
    )


def ricker(peak: float, dt: float, steps: int) -> np.ndarray:
    """A Ricker wavelet of `peak` Hz, delayed so that it starts from nothing; float32."""
    phase = (np.pi * peak * (np.arange(steps) * dt - 1.3 / peak)) ** 2
    return ((1 - 2 * phase) * np.exp(-phase)).astype(np.float32)
