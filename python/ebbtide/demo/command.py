"""`ebbtide demo`: the command line."""

from __future__ import annotations

import json as json_text
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import _plots
from .._options import size_of, wrong
from .._units import format_size

if TYPE_CHECKING:  # everything else is imported when the command runs, so that `ebbtide --help` is fast
    from rich.console import Console

    from .imaging import ShotImage
    from .job import Job, Room
    from .migration import TimedHistory
    from .replay import DiskRates, Outcome, Pace

LEAST_TO_COMPARE = 1 << 20  # bytes of a checkpoint


def demo(
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="cpu|cuda[:N]",
            help="cuda: three dimensions, waves and wavefields on a GPU (CuPy or PyTorch).",
        ),
    ] = "cpu",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="The disk tier's directory (default: $EBBTIDE_DIR, $TMPDIR, /tmp)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the two pictures go.")] = Path("out"),
    device_cache: Annotated[
        int | None,
        typer.Option(
            "--device-cache",
            parser=size_of,
            metavar="SIZE",
            help="Default: a thirty-second of one shot's history (GPU: a sixteenth).",
        ),
    ] = None,
    host_cache: Annotated[
        int | None,
        typer.Option(
            "--host-cache",
            parser=size_of,
            metavar="SIZE",
            help="Default: with the device cache, an eighth of a shot's history.",
        ),
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=1, max=50, help="Sources along the line (default: 6; GPU: 3).")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="A coarse model and two shots: a few seconds.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Every number, as JSON.")] = None,
) -> None:
    """Image a salt body by reverse time migration, through a store with an eighth of each shot's history in memory.

    Compares the image, bit for bit, with one from a run that kept everything in memory; then replays one shot's
    checkpoints through the store and through plain files. Exit code 1: the images differ, or the run failed.
    """
    from rich.console import Console

    import ebbtide

    from .._machine.device import select
    from .._machine.option import check_device
    from .job import Scale, plan_job, plan_room
    from .wave import UnstableStep

    check_device(device)
    place = select(device)
    console = Console()
    if place.on_gpu:
        scale = Scale.small_volume() if small else Scale.full_volume()
    else:
        scale = Scale.small() if small else Scale.full()
    directory = directory or Path(os.environ.get("EBBTIDE_DIR") or os.environ.get("TMPDIR") or "/tmp")
    try:
        job = plan_job(scale, shots or scale.shots, place)
        room = plan_room(job, directory, device_cache, host_cache)
        _check_room(room)
        out.mkdir(parents=True, exist_ok=True)
        with place.use():
            right = _run(console, job, room, out, json)
    except (ebbtide.Error, OSError, UnstableStep, MemoryError) as error:
        console.print(f"[bold red]{type(error).__name__}[/bold red]", end=": ")
        console.print(str(error), markup=False, highlight=False)
        raise typer.Exit(1) from error
    if not right:
        raise typer.Exit(1)


def _check_room(room: Room) -> None:
    """Refuses in advance what could not succeed."""
    if not room.directory.is_dir():
        raise wrong("--dir", f"{room.directory} is not a directory")
    free = shutil.disk_usage(room.directory).free
    if free < 2 * room.disk:  # the store's file, then as much again in plain files
        raise wrong(
            "--dir", f"{room.directory} has {format_size(free)} free; the demo needs {format_size(2 * room.disk)}"
        )


@dataclass
class _Clock:
    """How long each stage took."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


@dataclass
class _Imaged:
    """The results of the migration, and of the one in memory."""

    images: list[ShotImage]
    reference: list[ShotImage]
    histories: list[TimedHistory]
    stats: dict[str, Any]


@dataclass
class _Replayed:
    pace: Pace
    rates: DiskRates
    outcomes: list[Outcome]

    @property
    def wrong(self) -> list[Outcome]:
        return [one for one in self.outcomes if one.wrong_bytes]


def _run(console: Console, job: Job, room: Room, out: Path, json: Path | None) -> bool:
    """The whole demo; False when anything read differs from what was written."""
    from . import figures, report
    from .imaging import differences, for_the_eye, stack
    from .model import vertical

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(report.plan_text(job, room))
    is_drawn = _plots.can_draw(say)
    clock = _Clock()
    imaged = _image(console, job, room, clock)
    picture = out / "demo-image.png"
    true = job.true.vertical()
    image = for_the_eye(vertical(stack(imaged.images)), true.seabed, job.survey.spacing)
    volume = " x ".join(map(str, job.true.shape)) + " cells" if len(job.true.shape) == 3 else ""
    if is_drawn:
        figures.draw_image(picture, true, job.survey, image, volume)
    console.print(report.migration_table(imaged.histories, clock.seconds["migrate"], imaged.stats))
    if is_drawn:
        say(f"model and image: {picture}")

    document = report.as_json(job, room, imaged.histories, imaged.stats)
    found = differences(imaged.images, imaged.reference)
    document["images_identical"] = not found
    if found:
        console.print("[bold red]images differ[/bold red]")
        for difference in found:
            console.print(f"  {difference}", markup=False, highlight=False, soft_wrap=True)
        _save(json, document, clock)
        return False
    console.print(
        "[bold green]images identical[/bold green], bit for bit, to those of a run that kept everything in memory"
    )

    replayed = _replay(console, job, room, clock)
    timeline = out / "demo-blocked.png"
    title = report.replay_title(replayed.pace, replayed.rates)
    say(title)
    console.print(report.replay_table(replayed.rates, replayed.outcomes))
    if job.checkpoint_bytes < LEAST_TO_COMPARE:
        say(
            f"checkpoints of {format_size(job.checkpoint_bytes)} are too small to compare: what counts there is the cost of a call. "
            "The demo without --small compares."
        )
    elif is_drawn:
        figures.draw_timeline(timeline, replayed.outcomes, title)
        say(f"timeline of the blocked time: {timeline}")
    document["replay"] = report.replay_json(replayed.pace, replayed.rates, replayed.outcomes)
    _save(json, document, clock)
    for one in replayed.wrong:
        console.print(f"[bold red]{one.name}: {one.wrong_bytes} bytes came back wrong[/bold red]")
    return not replayed.wrong


def _image(console: Console, job: Job, room: Room, clock: _Clock) -> _Imaged:
    """The observed data, the migration through a store, and the same migration in memory."""
    import ebbtide

    from .job import in_memory, in_store, migrate, observe
    from .screen import Screen

    blocks, shots = job.survey.checkpoints, len(job.survey.sources)
    with Screen(console) as screen:
        advance = screen.bar("observed data, in the true model", shots * blocks)
        with clock.stage("observe"):
            observed = observe(job, lambda _way, _index: advance())

        bars: dict[tuple[int, str], Any] = {}

        def show(shot: int, way: str, _index: int) -> None:
            if (shot, way) not in bars:
                bars[shot, way] = screen.bar(f"shot {shot + 1} of {shots}, {way}", blocks)
            bars[shot, way]()
            screen.look(store)

        with ebbtide.open(**room.options()) as store:
            with clock.stage("migrate"):
                images, histories = migrate(job, observed, in_store(store), show)
            stats = store.stats()
        screen.forget_store()

        advance_again = screen.bar("again, everything in memory", 2 * shots * blocks)
        with clock.stage("reference"):
            reference, _ = migrate(job, observed, in_memory, lambda _shot, _way, _index: advance_again())
    return _Imaged(images, reference, histories, stats)


def _replay(console: Console, job: Job, room: Room, clock: _Clock) -> _Replayed:
    """The disk's own rate, then one shot's checkpoints at 60% of it through each way."""
    import ebbtide

    from .._machine.files import file_rates
    from .job import replay_all, replay_pace
    from .replay import DiskRates
    from .screen import Screen

    with clock.stage("replay"):
        rates = DiskRates(*(one.bytes_per_s for one in file_rates(room.directory)))
        pace = replay_pace(job, rates.slower)
        with Screen(console) as screen:
            outcomes = replay_all(pace, room, job.device, ebbtide.open, screen.bar)
    return _Replayed(pace, rates, outcomes)


def _save(file: Path | None, document: dict[str, Any], clock: _Clock) -> None:
    if file:
        document["seconds"] = clock.seconds
        file.write_text(json_text.dumps(document, indent=1) + "\n")


command = demo  # the name that the command line registers
