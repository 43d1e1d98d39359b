"""From two wavefields to an image, and from an image to a picture.

The image is the zero-lag cross-correlation of the source's and the receivers' wavefields (Claerbout, "Toward a unified
theory of reflector mapping", Geophysics 36, 1971), divided by the source's illumination. What is compared bit for bit
is the raw sums; filters are for the eye.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._machine.device import Cpu


class Correlation:
    """Adds up, over snapshots, source times receiver (`image`) and source squared (`illumination`), cell by cell."""

    def __init__(self, shape: tuple[int, ...], xp: Any = np) -> None:
        self._xp = xp
        self.image = xp.zeros(shape, xp.float32)
        self.illumination = xp.zeros(shape, xp.float32)
        self._product = xp.empty(shape, xp.float32)

    def add(self, source: Any, receiver: Any) -> None:
        multiply, add = self._xp.multiply, self._xp.add
        multiply(source, receiver, out=self._product)
        add(self.image, self._product, out=self.image)
        multiply(source, source, out=self._product)
        add(self.illumination, self._product, out=self.illumination)


@dataclass(frozen=True)
class ShotImage:
    """What one shot gave: the raw sums."""

    image: np.ndarray
    illumination: np.ndarray

    def on_host(self, device: Cpu) -> ShotImage:
        """The same as NumPy arrays, of arrays of `device`."""
        return ShotImage(device.download(self.image), device.download(self.illumination))


@dataclass(frozen=True)
class Difference:
    """Where two runs' raw sums are not the same, bit for bit: the first such place."""

    shot: int
    what: str
    cell: tuple[int, ...]
    values: tuple[float, float]
    cells: int

    def __str__(self) -> str:
        axes = ("row", "column") if len(self.cell) == 2 else ("row", "line", "column")
        where = ", ".join(f"{axis} {place}" for axis, place in zip(axes, self.cell, strict=True))
        return (
            f"shot {self.shot + 1}, {self.what}: {self.cells} cells differ, the first at {where}: "
            f"{self.values[0]!r} is not {self.values[1]!r}"
        )


def differences(run: list[ShotImage], reference: list[ShotImage]) -> list[Difference]:
    """Every shot and sum in which `run` is not `reference` bit for bit (so NaN equals NaN, and 0.0 is not -0.0)."""
    found = []
    for shot, (one, other) in enumerate(zip(run, reference, strict=True)):
        for what in ("image", "illumination"):
            a, b = getattr(one, what), getattr(other, what)
            unequal = a.view(np.uint32) != b.view(np.uint32)
            if unequal.any():
                cell = tuple(int(i) for i in np.argwhere(unequal)[0])
                found.append(Difference(shot, what, cell, (float(a[cell]), float(b[cell])), int(unequal.sum())))
    return found


def stack(shots: list[ShotImage], waterlevel: float = 0.01) -> np.ndarray:
    """The sum over shots of image / illumination; `waterlevel` (of the mean illumination) keeps dim corners small."""
    total = np.zeros_like(shots[0].image, dtype=np.float64)
    for shot in shots:
        light = shot.illumination.astype(np.float64)
        total += shot.image / (light + waterlevel * light.mean())
    return total


def for_the_eye(image: np.ndarray, seabed: np.ndarray, spacing: float) -> np.ndarray:
    """`image` (nz, nx) without the smooth noise of waves that take the same path both ways, the water blanked, depths balanced.

    That noise is long where reflections are short: a Laplacian removes it (Zhang & Sun, "Practical issues in reverse
    time migration", First Break 27, 2009). Positive where the speed rises with depth.
    """
    padded = np.pad(image, 1, mode="edge")
    sharp = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * image
    rows = np.arange(image.shape[0])[:, None]
    below_seabed = (rows - seabed[None, :]) * spacing
    return sharp * np.clip(below_seabed / 60.0 + 0.5, 0, 1) * (rows * spacing)
