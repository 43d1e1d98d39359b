"""A figure of a paper as an experiment: shots, each with the peers that run it, or values of other kinds. Each has its place
in the figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ... import _traces as traces
from ..config import Config, disk_for


@dataclass(frozen=True)
class Scale:
    """How large a figure's shots are. The paper's are 384 checkpoints of 128 MiB, 4 GiB + 32 GiB, every 10 ms."""

    name: str
    checkpoints: int
    size: int  # bytes of a checkpoint, on average
    ranks: tuple[int, ...]
    intervals: tuple[float, ...]
    parts: tuple[int, ...]  # of the history, device caches: 12 is a twelfth
    memory: int  # bytes that snapshots are taken of


#: The whole figure in minutes on two processors.
QUICK = Scale("quick", 64, 4 << 20, (1, 2), (0.002, 0.01, 0.03), (48, 12, 3), 128 << 20)
#: The paper's own sizes, for a GPU.
FULL = Scale("full", 384, 128 << 20, (1, 2, 4, 8), (0.002, 0.005, 0.01, 0.02, 0.03, 0.06), (48, 24, 12, 6, 3), 1 << 30)


@dataclass(frozen=True)
class Place:
    """Where figures are measured."""

    directory: Path
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """One shot of a figure."""

    labels: tuple[tuple[str, str], ...]  # where it is in the figure: ("order", "reverse")
    config: Config
    peers: tuple[str, ...] = ()  # beside the store


@dataclass(frozen=True)
class Figure:
    """An experiment of a paper."""

    what: str
    paper: str  # what the paper says of it, and where
    differs: str  # in what this one is another experiment
    x: str  # the label along the axis; the others name a bar or a line


@dataclass(frozen=True)
class Shots(Figure):
    """What a program sees of a history that it writes and reads, with the store and with its peers."""

    cells: Callable[[Scale, Place], Sequence[Cell]] = field(repr=False)
    by_iteration: bool = False  # rate and prefetch distance of each restore
    opening: bool = False  # the program waits for it too: it counts with the checkpoints


Labels = dict[str, str]


@dataclass(frozen=True)
class Values(Figure):
    """One number at each place."""

    y: str  # what they are, with their unit
    values: Callable[[Scale, Place, Callable[[str], None]], Iterable[tuple[Labels, float]]] = field(repr=False)
    computed: bool = False  # from a model: the same on any machine
    on_gpu: bool = False  # of a GPU too, where one is named


def shot_of(
    scale: Scale,
    place: Place,
    order: str,
    hints: str,
    wait: bool,
    variable: bool,
    interval: float = 0.01,
    device_part: int = 12,
    ranks: int = 1,
    coupling: str = "free",
) -> Config:
    """A shot with caches in proportion to the paper's: a twelfth of the history on the device, two thirds on the host."""
    sizes = [(scale.size,) * scale.checkpoints] * ranks
    if variable:
        mean = sum(traces.SHOT_BYTES) / 2 / traces.SNAPSHOTS
        table = traces.make_trace(scale.checkpoints, ranks, place.seed, scale.size / mean)
        sizes = [tuple(traces.column(table, rank)) for rank in range(ranks)]
    history = scale.checkpoints * scale.size
    largest = max(map(max, sizes))
    return Config(
        sizes=tuple(sizes),
        order=order,
        hints=hints,
        interval=interval,
        device_cache=max(history // device_part, 2 * largest),
        host_cache=history * 2 // 3,
        disk=disk_for(sizes),
        directory=place.directory,
        wait=wait,
        policy="score",
        prefetch="manual",
        coupling=coupling,
        verify=True,
        seed=place.seed,
        device=place.device,
    )
