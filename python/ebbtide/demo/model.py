"""The earth that the demo images: water, folded layers and a salt body, all built in code.

Geometry is written in kilometres, so that one model serves every grid spacing. It is a body in three dimensions, y being
counted from its middle; the two-dimensional model is the slice y = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WIDTH_KM = 6.25
DEPTH_KM = 3.0
WATER_SPEED = 1500.0
SALT_SPEED = 4480.0

#: Sediments from the seabed down: (depth of the layer's top at the model's edge in km, speed in m/s).
LAYERS = (
    (0.0, 1650.0),
    (0.62, 1850.0),
    (0.92, 2120.0),
    (1.24, 2350.0),
    (1.55, 2650.0),
    (1.92, 2900.0),
    (2.32, 3250.0),
    (2.68, 3600.0),
)

#: The salt's crest and stem, x and z in km: a bulb on a stem that leans a little, as pushed by the layers.
SALT_BULB = {"x": 3.2, "z": 1.42, "half_width": 0.98, "half_height": 0.5, "half_depth": 0.72}
SALT_STEM = {"x": 3.05, "half_width": 0.42, "lean": 0.12, "half_depth": 0.36}


@dataclass(frozen=True)
class Model:
    """A speed for each cell of a regular grid.

    `speed` has the shape (nz, nx) or (nz, ny, nx), in m/s, depth first; `spacing` is the cell's edge in metres, the same
    along every axis; `seabed` is the depth of the first cell below the water, by column.
    """

    speed: np.ndarray
    spacing: float
    seabed: np.ndarray
    salt: np.ndarray  # True inside the body, shape of `speed`

    @property
    def shape(self) -> tuple[int, ...]:
        return self.speed.shape

    @property
    def extent_km(self) -> tuple[float, float, float, float]:
        """(left, right, bottom, top), as Matplotlib's `imshow` takes it."""
        nz, nx = self.shape[0], self.shape[-1]
        return (0.0, nx * self.spacing / 1000, nz * self.spacing / 1000, 0.0)

    def vertical(self) -> Model:
        """The slice (nz, nx) through the middle of y; a model in two dimensions is its own."""
        return Model(vertical(self.speed), self.spacing, vertical(self.seabed[None])[0], vertical(self.salt))


def vertical(volume: np.ndarray) -> np.ndarray:
    """The slice (nz, nx) through the middle of a volume (nz, ny, nx), or the array itself if it is one already."""
    return volume if volume.ndim == 2 else volume[:, volume.shape[1] // 2]


def salt_model(spacing: float, crossline_km: float = 0.0) -> Model:
    """The true model on a grid of `spacing` metres: WIDTH_KM by DEPTH_KM, and by `crossline_km` unless that is 0."""
    nx, nz = round(WIDTH_KM * 1000 / spacing), round(DEPTH_KM * 1000 / spacing)
    x = (np.arange(nx) + 0.5) * spacing / 1000
    z = ((np.arange(nz) + 0.5) * spacing / 1000)[:, None]
    y = np.zeros(1)
    if crossline_km:
        ny = round(crossline_km * 1000 / spacing)
        y, z = ((np.arange(ny) - (ny // 2)) * spacing / 1000)[:, None], z[:, None]

    seabed = 0.34 + 0.05 * np.sin(2 * np.pi * (x - 0.8) / 7.0) + 0.012 * np.sin(2 * np.pi * x / 1.7)
    seabed = seabed + 0.02 * np.sin(2 * np.pi * y / 2.9)
    speed = np.full(np.broadcast_shapes(z.shape, seabed.shape), WATER_SPEED)
    for top, layer_speed in LAYERS:
        speed[z >= np.maximum(_horizon(x, y, top), seabed)] = layer_speed
    salt = _salt(x, y, z)
    speed[salt] = SALT_SPEED
    return Model(speed.astype(np.float32), spacing, (seabed * 1000 / spacing).astype(int) + 1, salt)


def smoothed(model: Model, length: float) -> Model:
    """The migration model: slowness smoothed by a Gaussian of standard deviation `length` metres, water kept.

    Slowness, because travel times are what migration needs right; water kept, because it is known and because the
    direct wave then is the same in both models and drops out of their difference.
    """
    slowness = 1.0 / model.speed.astype(np.float64)
    sigma = length / model.spacing
    for axis in range(slowness.ndim):
        slowness = _gaussian(slowness, sigma, axis)
    speed = 1.0 / slowness
    rows = np.arange(model.shape[0]).reshape(-1, *[1] * model.seabed.ndim)
    water = rows < model.seabed
    speed[water] = WATER_SPEED
    return Model(speed.astype(np.float32), model.spacing, model.seabed, model.salt)


def _horizon(x: np.ndarray, y: np.ndarray, top: float) -> np.ndarray:
    """Depth in km of a horizon that is at `top` far from the salt: gently folded, dragged up at the salt's flanks."""
    fold = 0.05 * np.sin(2 * np.pi * x / 4.6 + 0.9) + 0.05 * (x - WIDTH_KM / 2) / WIDTH_KM
    fold = (fold + 0.04 * np.sin(2 * np.pi * y / 3.3)) * min(top / 0.9, 1.0)
    drag = min(max(top - 0.55, 0.0) / 1.2, 1.0) * 0.30 * np.exp(-(((x - SALT_BULB["x"]) / 1.15) ** 2 + y**2))
    flat = 0.25 if top > 2.5 else 1.0  # the basement below the salt is nearly flat
    return top + flat * (fold - drag)


def _salt(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """True where (x, y, z), in km, is in the salt: a bulb with a rugose crest, on a stem that widens to its base."""
    bulb, stem = SALT_BULB, SALT_STEM
    rugose = 0.035 * np.sin(2 * np.pi * x / 0.9 + 3 * y) + 0.02 * np.sin(2 * np.pi * x / 0.37)
    across, down = (x - bulb["x"]) / bulb["half_width"], (z - bulb["z"] + rugose) / bulb["half_height"]
    inside_bulb = across**2 + (y / bulb["half_depth"]) ** 2 + down**2 < 1
    centre = stem["x"] + stem["lean"] * (z - bulb["z"])
    width = stem["half_width"] * (1 + 0.6 * np.clip(z - 1.9, 0, None))
    width = width * np.sqrt(np.clip(1 - (y / stem["half_depth"]) ** 2, 0, None))  # an ellipse from above
    base = 2.42 + 0.04 * np.sin(2 * np.pi * x / 2.1)
    inside_stem = (np.abs(x - centre) < width) & (z > bulb["z"]) & (z < base)
    return inside_bulb | inside_stem


def _gaussian(values: np.ndarray, sigma: float, axis: int) -> np.ndarray:
    reach = max(1, int(np.ceil(3 * sigma)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    pad = [(0, 0)] * values.ndim
    pad[axis] = (reach, reach)
    padded = np.pad(values, pad, mode="edge")
    return np.apply_along_axis(lambda line: np.convolve(line, kernel, mode="valid"), axis, padded)
