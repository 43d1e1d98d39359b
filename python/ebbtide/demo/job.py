"""The job itself, stage by stage: what `ebbtide demo` runs between its lines of text."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._machine.device import Cpu
from .imaging import ShotImage
from .migration import History, MemoryHistory, OnBlock, StoreHistory, TimedHistory, migrate_shot, record
from .model import Model, salt_model, smoothed
from .replay import BufferedFiles, DirectFiles, Outcome, Pace, ThroughStore, replay, through_host, whole_pages
from .survey import SNAPSHOTS_PER_PERIOD, Survey, plan_survey
from .wave import Propagator

#: The caches together hold this part of one shot's history.
CACHED_PART = 1 / 8
#: The replay produces at this part of the disk's own rate.
REPLAY_PART = 0.6


@dataclass(frozen=True)
class Scale:
    """How big the job is: cell in metres, border in cells, snapshots in a checkpoint, and default number of shots."""

    spacing: float
    border: int
    group: int
    shots: int
    duration: float = 2.9  # seconds recorded: down to the model's floor and back
    smoothing: float = 60.0  # metres
    crossline_km: float = 0.0  # the third dimension; 0: there is none
    per_period: float = SNAPSHOTS_PER_PERIOD
    device_part: float = 1 / 4  # of the caches, in the device tier

    @staticmethod
    def full() -> Scale:
        """About a minute on two cores."""
        return Scale(spacing=12.5, border=50, group=8, shots=6)

    @staticmethod
    def small() -> Scale:
        """A few seconds: too coarse to show more than the salt's shadow."""
        return Scale(spacing=50.0, border=20, group=2, shots=2)

    @staticmethod
    def full_volume() -> Scale:
        """About a minute on a data centre's GPU: several GB a shot, as fast as a local disk accepts them."""
        return Scale(20.0, border=25, group=2, shots=3, crossline_km=2.0, per_period=3.0, device_part=1 / 2)

    @staticmethod
    def small_volume() -> Scale:
        """A few seconds, on a processor too."""
        return Scale(100.0, border=8, group=1, shots=2, duration=2.0, crossline_km=0.8, device_part=1 / 2)


@dataclass(frozen=True)
class Job:
    """Everything that is fixed before the first wave."""

    true: Model
    smooth: Model
    survey: Survey
    device: Cpu  # of the wave computation and of the store's device tier
    device_part: float

    @property
    def checkpoint_bytes(self) -> int:
        return int(np.prod(self.survey.block_shape(self.true.shape))) * 4

    @property
    def shot_bytes(self) -> int:
        """The history of one shot."""
        return self.survey.checkpoints * self.checkpoint_bytes

    def propagator(self, model: Model) -> Propagator:
        return Propagator(model.speed, model.spacing, self.survey.dt, self.survey.border, self.device.xp)


@dataclass(frozen=True)
class Room:
    """How the store is opened: where, and bytes for each tier."""

    directory: Path
    device: int
    host: int
    disk: int
    on: str  # the device tier's device

    def options(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "device_cache": self.device,
            "host_cache": self.host,
            "disk": self.disk,
            "device": self.on,
        }


def plan_job(scale: Scale, shots: int, device: Cpu | None = None) -> Job:
    """The job on `device` (default: the processor)."""
    true = salt_model(scale.spacing, scale.crossline_km)
    survey = plan_survey(true.shape, scale.spacing, shots, scale.duration, scale.group, scale.border, scale.per_period)
    return Job(true, smoothed(true, scale.smoothing), survey, device or Cpu(), scale.device_part)


def plan_room(job: Job, directory: Path, device: int | None, host: int | None) -> Room:
    """Caches of whole checkpoints, together at most an eighth of a shot by default; a disk that holds all of it."""
    slot = whole_pages(job.checkpoint_bytes)
    slots = int(CACHED_PART * job.shot_bytes / slot)
    device_slots = max(1, round(slots * job.device_part))
    if device is None:
        device = device_slots * slot
    if host is None:
        host = (slots - device_slots) * slot
    return Room(directory, device, host, (job.survey.checkpoints + slots) * slot, job.device.name)


def observe(job: Job, on_block: OnBlock) -> list[Any]:
    """The data of every shot, modelled in the true model; on the processor two shots at a time."""

    def one(source: tuple[int, ...]) -> Any:
        return record(job.propagator(job.true), job.survey, source, on_block)

    if job.device.on_gpu:  # which runs on the stream of this thread
        return [one(source) for source in job.survey.sources]
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as threads:
        return list(threads.map(one, job.survey.sources))


def migrate(
    job: Job, observed: list[Any], history_of: Callable[[int], Any], on_block: Callable[[int, str, int], None]
) -> tuple[list[ShotImage], list[TimedHistory]]:
    """Every shot's image; `history_of(shot)` is a context manager that gives the History of one shot."""
    propagator = job.propagator(job.smooth)
    images, histories = [], []
    for shot, source in enumerate(job.survey.sources):
        with history_of(shot) as history:
            timed = TimedHistory(history)
            image = migrate_shot(
                propagator, job.survey, source, observed[shot], timed, lambda way, i, s=shot: on_block(s, way, i)
            )
            images.append(image.on_host(job.device))
            histories.append(timed)
    return images, histories


@contextmanager
def in_memory(_shot: int) -> Iterator[History]:
    """A `history_of` for the run that keeps everything in memory."""
    yield MemoryHistory()


def in_store(store: Any) -> Callable[[int], Any]:
    """A `history_of` in which each shot is a history of `store`, hinted in reverse and dropped at its end."""

    @contextmanager
    def history_of(shot: int) -> Iterator[History]:
        with store.history(f"shot {shot + 1}", order="reverse") as history:
            yield StoreHistory(history)

    return history_of


def tier_bytes(stats: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Bytes moved to and from each tier, and the application ("app"), from a store's statistics."""
    moved: dict[str, list[int]] = {}
    for link in stats["links"]:
        source, target = link["name"].split(">")
        moved.setdefault(target, [0, 0])[0] += link["bytes"]
        moved.setdefault(source, [0, 0])[1] += link["bytes"]
    return {tier: (to, out) for tier, (to, out) in moved.items()}


def replay_pace(job: Job, disk_rate: float) -> Pace:
    """One shot's checkpoints, in whole pages, produced at REPLAY_PART of `disk_rate` (bytes/s)."""
    size = whole_pages(job.checkpoint_bytes)
    return Pace(job.survey.checkpoints, size, size / (REPLAY_PART * disk_rate))


def replay_all(
    pace: Pace,
    room: Room,
    device: Cpu,
    open_store: Callable[..., Any],
    bar: Callable[[str, int], Callable[[], None]],
) -> list[Outcome]:
    """The three ways, one after the other, of arrays on `device`; each leaves nothing behind."""
    calls = 2 * pace.count
    ours = Outcome("Ebbtide", "")
    with open_store(**room.options()) as store, store.history("replay", order="reverse") as history:
        replay(ThroughStore(history), pace, ours, bar("replay · Ebbtide", calls), device)
        ours.tier_bytes = tier_bytes(store.stats())
    outcomes = [ours]
    for name, note, way in (
        ("plain O_DIRECT files", "", DirectFiles),
        ("tofile / fromfile", "page cache, not durable", BufferedFiles),
    ):
        with tempfile.TemporaryDirectory(prefix="ebbtide-demo-", dir=room.directory) as directory:
            files = through_host(way(Path(directory)), device, pace.size)
            outcome = replay(files, pace, Outcome(name, note), bar(f"replay · {name}", calls), device)
        total = pace.count * pace.size
        outcome.tier_bytes = {"local" if way is DirectFiles else "page cache": (total, total)}
        outcomes.append(outcome)
    return outcomes
