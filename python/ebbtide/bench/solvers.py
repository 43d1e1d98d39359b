"""Small solvers whose whole memory can be watched, and which zones of it each iteration writes (ics19 sec. 4.2)."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ..sim import WriteRecorder

ZONE, PAGE = 64 << 10, 4096


class Solver(ABC):
    """Its arrays are parts of `memory`, each of whole zones, so that what is written of one is no other's."""

    def __init__(self, size: int) -> None:
        """size: bytes of memory, about."""
        self._zones = size // ZONE
        self.memory = np.frombuffer(mmap.mmap(-1, self._zones * ZONE), dtype=np.uint8)
        self._used = 0

    def _array(self, *shape: int, dtype: type = np.float64) -> np.ndarray:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        begin, self._used = self._used, self._used + -(-count // ZONE) * ZONE
        return self.memory[begin : begin + count].view(dtype).reshape(shape)

    def _side(self, arrays: int) -> int:
        """Of a square, so that many of which fill the memory."""
        return int((self._zones // arrays * ZONE // 8) ** 0.5)

    @abstractmethod
    def step(self) -> None:
        """One iteration."""


class Wave(Solver):
    """The acoustic wave equation in two dimensions, from a point: two fields in turn, and the medium, which stays."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        side = self._side(3)
        self.now, self._before, self._speed = (self._array(side, side) for _ in range(3))
        self._speed[:] = 0.2
        self.now[side // 2, side // 2] = 1

    def step(self) -> None:
        now, after = self.now, self._before
        sum_ = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        after[1:-1, 1:-1] = (
            2 * now[1:-1, 1:-1] - after[1:-1, 1:-1] + self._speed[1:-1, 1:-1] * (sum_ - 4 * now[1:-1, 1:-1])
        )
        self.now, self._before = after, now


class Gradients(Solver):
    """Conjugate gradients for a matrix of five diagonals, which stay: four vectors are written."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        side = self._side(7)
        self._middle, self._east, self._south = (self._array(side, side) for _ in range(3))
        self._middle[:], self._east[:, :-1], self._south[:-1] = 4.1, -1, -1
        self.x, self.left, self._direction, self._image = (self._array(side, side) for _ in range(4))
        self.left[side // 3, side // 3] = self._direction[side // 3, side // 3] = 1

    def step(self) -> None:
        to, of = self._image, self._direction
        np.multiply(self._middle, of, out=to)
        to[:, :-1] += self._east[:, :-1] * of[:, 1:]
        to[:, 1:] += self._east[:, :-1] * of[:, :-1]
        to[:-1] += self._south[:-1] * of[1:]
        to[1:] += self._south[:-1] * of[:-1]
        before = float(np.vdot(self.left, self.left))
        if before == 0:
            return
        length = before / float(np.vdot(of, to))
        self.x += length * of
        self.left -= length * to
        of *= float(np.vdot(self.left, self.left)) / before
        of += self.left


class Transport(Solver):
    """Particles that leave a source in two dimensions and lose their energy to cells on their way: what is written is spread,
    and grows with the iterations."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        side = self._side(1)
        self.cells = self._array(side, side)
        self._random = np.random.default_rng(1)

    def step(self, particles: int = 8, flights: int = 8) -> None:
        side = len(self.cells)
        place = np.full((particles, 2), side / 2)
        energy = np.ones(particles)
        for _ in range(flights):
            angle = self._random.uniform(0, 2 * np.pi, particles)
            length = self._random.exponential(side / 40, particles)
            place += np.stack([np.sin(angle) * length, np.cos(angle) * length], axis=1)
            row, column = np.clip(place.astype(int), 0, side - 1).T
            np.add.at(self.cells, (row, column), energy / 2)
            energy /= 2


class Front(Solver):
    """A front that crosses blocks of cells, of which those near it alone are computed, as programs with refined meshes do."""

    CELLS = 64  # of a block along each side: half a zone

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._many = int((self._zones * ZONE // (8 * self.CELLS**2)) ** 0.5)
        self.blocks = self._array(self._many, self._many, self.CELLS, self.CELLS)
        middle = (np.arange(self._many) + 0.5) * self.CELLS
        self._distance = np.hypot(middle[:, None], middle[None, :])
        self._radius = 0.0

    def step(self) -> None:
        self._radius = (self._radius + self.CELLS / 16) % float(self._distance.max())
        near = np.abs(self._distance - self._radius) < self.CELLS
        self.blocks[near] = 0.5 * self.blocks[near] + 0.5 * self._radius


SOLVERS = {"wave": Wave, "gradients": Gradients, "transport": Transport, "front": Front}


def written(solver: Solver, iterations: int) -> list[np.ndarray]:
    """Of each iteration: which pages of the memory it wrote."""
    out = []
    for _ in range(iterations):
        with WriteRecorder(solver.memory) as recorder:
            recorder.cut()
            solver.step()
        pages = np.zeros(solver.memory.nbytes // PAGE, dtype=bool)
        pages[[offset // PAGE for _, offset, _ in recorder.writes]] = True
        out.append(pages)
    return out


def dirty(pages: Sequence[np.ndarray], zone: int = ZONE) -> np.ndarray:
    """Which zones of so many bytes were written in any of some iterations."""
    any_of = np.logical_or.reduce(pages)
    return any_of.reshape(-1, zone // PAGE).any(axis=1)
