"""The propagator: acoustic waves in two dimensions or three, 8th order in space, 2nd in time, absorbing borders.

    (1/v^2) (d/dt + g)^2 p  -  laplacian(p)  =  f

The border absorbs by the damping `g` of Kosloff & Kosloff, "Absorbing boundaries for wave propagation problems"
(J. Comput. Phys. 63, 1986): zero inside, rising as a cube into the border. It leaves the phase speed as it is, so
little is reflected. It is on the scheme's diagonal: with its symmetric Laplacian the scheme run backwards in
time *is* the exact adjoint of the scheme run forwards, which is what back-propagation in migration wants.

State is kept as the pressure p and its increment w = p(t) - p(t - dt), both updated in place:

    w <- D w + C (E p + neighbours(p) + f);   p <- p + w

with arrays D, C, E fixed at the start. Grids are held flat, neighbours are shifted slices of one array: every operation
runs over contiguous memory, and the halo, where C = D = 0, keeps rows from leaking into each other.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

#: 8th-order central second derivative: the middle and the four neighbours to each side.
STENCIL = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
HALO = len(STENCIL) - 1
#: Amplitude that a wave of normal incidence keeps after crossing the border twice, on the continuous equation. Less
#: would take a steeper rise, which itself reflects.
BORDER_LEAK = 1e-2


class UnstableStep(ValueError):
    """The time step is longer than the Courant-Friedrichs-Lewy condition allows."""


def stable_step(fastest: float, spacing: float, dimensions: int = 2) -> float:
    """The longest stable time step in seconds for speeds up to `fastest` (m/s) on cells of `spacing` metres.

    Leapfrog is stable while dt^2 times the operator's largest eigenvalue is at most 4; that eigenvalue belongs to the
    checkerboard, where the stencil's coefficients add up by magnitude.
    """
    largest = dimensions * (abs(STENCIL[0]) + 2 * sum(abs(c) for c in STENCIL[1:]))
    return 2 * spacing / (fastest * float(np.sqrt(largest)))


class Propagator:
    """Steps one wavefield through one model. Not thread-safe: one propagator a thread.

    `speed`: (nz, nx) or (nz, ny, nx) in m/s; `spacing` in metres; `dt` in seconds; `border`: cells of absorbing border on each side;
    `xp`: the array module (NumPy, or one with its interface, such as CuPy or a TorchModule). Raises UnstableStep.
    """

    def __init__(self, speed: np.ndarray, spacing: float, dt: float, border: int = 50, xp: Any = np) -> None:
        limit = stable_step(float(speed.max()), spacing, speed.ndim)
        if dt > limit:
            raise UnstableStep(
                f"dt = {dt * 1e3:.3f} ms is unstable: at most {limit * 1e3:.3f} ms for {speed.max():.0f} m/s "
                f"on cells of {spacing:g} m"
            )
        self.xp, self.dt, self.shape = xp, dt, tuple(speed.shape)

        padded = np.pad(speed.astype(np.float64), border, mode="edge")
        courant2 = (padded * dt / spacing) ** 2
        damping = _damping(self.shape, border, spacing) * padded * dt
        grid = tuple(n + 2 * HALO for n in padded.shape)
        strides = [math.prod(grid[axis + 1 :]) for axis in range(speed.ndim)]
        cells = math.prod(grid)

        def flat(inner: np.ndarray) -> Any:
            whole = np.zeros(grid, np.float32)
            whole[(slice(HALO, -HALO),) * speed.ndim] = inner
            return xp.asarray(whole.ravel())

        self._keep = flat((1 - damping) / (1 + damping))  # D
        self._gain = flat(courant2 / (1 + damping))  # C
        self._middle = flat(speed.ndim * STENCIL[0] - damping**2 / courant2)  # E
        self._pressure = xp.zeros(cells, xp.float32)
        self._increment = xp.zeros_like(self._pressure)
        self._force = xp.zeros_like(self._pressure)
        self._sum = xp.zeros_like(self._pressure)

        inside = slice(HALO * strides[0], (grid[0] - HALO) * strides[0])
        state = (self._pressure, self._increment, self._force, self._sum)
        self._parts = tuple(array[inside] for array in (*state, self._keep, self._gain, self._middle))

        def shifted(by: int) -> Any:
            return self._pressure[inside.start + by : inside.stop + by]

        self._neighbours = [
            ([shifted(way * k * stride) for stride in reversed(strides) for way in (1, -1)], np.float32(STENCIL[k]))
            for k in range(HALO, 0, -1)  # the smallest first: their sum loses least
        ]

        rim = border + HALO

        def as_grid(array: Any) -> Any:
            return array.reshape(grid)[(slice(rim, -rim),) * speed.ndim]

        #: The pressure now, of the shape of `speed`, a view that later steps change.
        self.pressure = as_grid(self._pressure)
        self._increment_grid, self._gain_grid = as_grid(self._increment), as_grid(self._gain)

    def reset(self) -> None:
        """A wavefield of zeros."""
        self._pressure[...] = 0
        self._increment[...] = 0

    def step(self, where: tuple, strength: Any) -> None:
        """One time step with the source f, integrated over a cell of (z, x): `strength` at the cells `where`, an index into the grid."""
        add, multiply = self.xp.add, self.xp.multiply
        pressure, increment, force, total, keep, gain, middle = self._parts
        multiply(pressure, middle, out=force)
        for (one, other, *others), weight in self._neighbours:
            add(one, other, out=total)
            for another in others:
                add(total, another, out=total)
            multiply(total, weight, out=total)
            add(force, total, out=force)
        multiply(force, gain, out=force)
        multiply(increment, keep, out=increment)
        add(increment, force, out=increment)
        self._increment_grid[where] += self._gain_grid[where] * strength
        add(pressure, increment, out=pressure)


def _damping(shape: tuple[int, ...], border: int, spacing: float) -> np.ndarray:
    """g / v in 1/m on the padded grid, such that exp(-2 * its integral over the border) = BORDER_LEAK."""
    peak = 4 * np.log(1 / BORDER_LEAK) / (2 * max(border, 1) * spacing)

    def depth(cells: int) -> np.ndarray:
        """The depth of each cell of a line in the border: 0 inside, 1 at its end."""
        place = np.arange(cells + 2 * border)
        return np.maximum(np.maximum(border - place, place - (cells + border - 1)), 0) / max(border, 1)

    return peak * reduce(np.maximum, np.ix_(*map(depth, shape))) ** 3
