"""`ebbtide bench`: the command line of the benchmark."""

from __future__ import annotations

import json as json_text
import math
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _plots
from .. import _traces as traces
from .._options import parsed, size_of, time_of, wrong
from .._units import format_rate, format_size

app = typer.Typer(help="The papers' benchmark.", no_args_is_help=True)


class Order(str, Enum):
    reverse = "reverse"
    sequential = "sequential"
    irregular = "irregular"


class Hints(str, Enum):
    all = "all"
    one = "one"
    none = "none"


class Coupling(str, Enum):
    tight = "tight"
    free = "free"


class Policy(str, Enum):
    score = "score"
    score_paper = "score_paper"
    lru = "lru"
    fifo = "fifo"


class Prefetch(str, Enum):
    auto = "auto"
    manual = "manual"


@app.command()
def shot(
    checkpoints: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Checkpoints per rank (default: 384, or every row of the trace)."),
    ] = None,
    size: Annotated[
        int | None, parsed("--size", size_of, "SIZE", "Bytes of each checkpoint (default: 128MiB).")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Sizes from a trace instead: one row per snapshot, one column per rank.",
        ),
    ] = None,
    order: Annotated[Order, typer.Option(help="The order in which the checkpoints are restored.")] = Order.reverse,
    hints: Annotated[
        Hints,
        typer.Option(help="What the store knows of that order: all of it in advance, only the next restore, nothing."),
    ] = Hints.all,
    interval: Annotated[
        float | None,
        parsed(
            "--interval",
            time_of,
            "TIME",
            "Computing (slept) before each checkpoint and after each restore (default: 10ms).",
        ),
    ] = None,
    device_cache: Annotated[
        int | None, parsed("--device-cache", size_of, "SIZE", "Device cache of each rank (default: 4GiB).")
    ] = None,
    host_cache: Annotated[
        int | None, parsed("--host-cache", size_of, "SIZE", "Host cache of each rank (default: 32GiB).")
    ] = None,
    duration: Annotated[
        float,
        parsed("--time", time_of, "TIME", "About how long it takes if none of the options above is given."),
    ] = "60s",  # type: ignore
    disk: Annotated[
        int | None,
        parsed("--disk", size_of, "SIZE", "Disk tier of each rank, 0 for none (default: what its history needs)."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", exists=True, file_okay=False, help="Where the files go (default: $EBBTIDE_DIR, $TMPDIR or /tmp)."
        ),
    ] = None,
    shared: Annotated[
        Path | None,
        typer.Option(
            "--shared",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="A store that keeps its checkpoints, in --dir and below it in this directory (default: it keeps none).",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the flushes between the two passes.")
    ] = False,
    policy: Annotated[Policy, typer.Option(help="Which checkpoints are evicted.")] = Policy.score,
    prefetch: Annotated[
        Prefetch,
        typer.Option(help="auto: from the first hint on; manual: from the backward pass on."),
    ] = Prefetch.manual,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="cpu|cuda[:N]", help="Device of the arrays and the device cache; one GPU per rank."
        ),
    ] = "cpu",
    ranks: Annotated[
        int, typer.Option(min=1, max=1024, help="Processes, each with its own caches; they share the disk.")
    ] = 1,
    lend: Annotated[
        int | None,
        parsed(
            "--lend",
            size_of,
            "SIZE",
            "Memory that another process lends to each rank: of a GPU that no rank has, or ordinary memory (default: none).",
        ),
    ] = None,
    coupling: Annotated[
        Coupling, typer.Option(help="tight: the ranks meet at a barrier at each iteration.")
    ] = Coupling.free,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every restored byte (outside the timed part).")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the irregular order.")] = 0,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured to FILE.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw restore rate and prefetch distance by iteration."),
    ] = None,
) -> None:
    """A shot: write a history of checkpoints, read it back in order, and report how long the program was blocked.

    Without --checkpoints, --size, --trace, --interval and cache sizes, it takes what fits this machine in a minute.
    """
    from rich.console import Console

    from .._machine.option import check_device
    from . import progress, report
    from . import shot as shots
    from .config import Config, disk_for, scratch_directory

    check_device(device)
    console, log = Console(), Console(stderr=True)
    where = scratch_directory(directory)
    if all(given is None for given in (checkpoints, size, trace, interval, device_cache, host_cache)):
        places = [where, shared] if shared else [where]
        checkpoints, size, interval, device_cache, host_cache = _fitted(duration, places, ranks, log)
    sizes = _sizes(checkpoints, size, trace, ranks)
    config = Config(
        sizes=tuple(sizes),
        order=order.value,
        hints=hints.value,
        interval=0.01 if interval is None else interval,
        device_cache=4 << 30 if device_cache is None else device_cache,
        host_cache=32 << 30 if host_cache is None else host_cache,
        disk=disk_for(sizes) if disk is None else disk,
        directory=where,
        wait=wait,
        policy=policy.value,
        prefetch=prefetch.value,
        coupling=coupling.value,
        verify=verify,
        seed=seed,
        lend=lend or 0,
        trace=str(trace) if trace else None,
        device=device,
        shared=shared,
    )
    _check_room(config)
    _check_lent(config)
    drawing = plot and _plots.can_draw(lambda text: log.print(text, markup=False))
    with progress.calls(log, 2 * config.checkpoints) as advance:
        document = shots.run(config, lambda text: log.print(f"[dim]{text}[/dim]"), advance)
    console.print(report.table(document))
    if config.lend or config.ranks > 1:
        console.print(report.by_rank(document))
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")
    if drawing:
        from .plot import plot as draw

        draw(document, plot)
    if document["verified"]["wrong"]:
        raise typer.Exit(1)


def _fitted(seconds: float, directories: list[Path], ranks: int, log: Any) -> tuple[int, int, float, int, int]:
    """The number of checkpoints and so on of a shot that fits this machine."""
    import shutil

    from .._machine.files import file_rates
    from .fit import fit

    log.print("[dim]measuring the disk, to see what fits this machine[/dim]")
    measured = [file_rates(directory) for directory in directories]
    write, read = (min(rates, key=lambda rate: rate.bytes_per_s) for rates in zip(*measured))
    found = fit(seconds, (write, read), min(shutil.disk_usage(one).free for one in directories), ranks)
    log.print(
        f"the disk writes {format_rate(write.bytes_per_s)} and reads {format_rate(read.bytes_per_s)}. To repeat this shot:",
        highlight=False,
        soft_wrap=True,
    )
    log.print(f"  {found.command()}", highlight=False, soft_wrap=True)
    return found.checkpoints, found.size, found.interval, found.device_cache, found.host_cache


def _sizes(checkpoints: int | None, size: int | None, trace: Path | None, ranks: int) -> list[tuple[int, ...]]:
    """Bytes of each checkpoint of each rank."""
    if trace is None:
        size = 128 << 20 if size is None else size
        if size < 1:
            raise wrong("--size", "it must be at least 1 byte")
        return [(size,) * (checkpoints or traces.SNAPSHOTS)] * ranks
    if size is not None:
        raise wrong("--size", "the trace gives the sizes; leave out --size or --trace")
    try:
        table = traces.read_trace(trace)
    except ValueError as error:
        raise wrong("--trace", str(error)) from None
    if ranks > len(table[0]):
        raise wrong("--ranks", f"{ranks} ranks need as many columns; {trace} has {len(table[0])}")
    if checkpoints and checkpoints > len(table):
        raise wrong("--checkpoints", f"{trace} has only {len(table)} snapshots")
    return [tuple(traces.column(table[:checkpoints], rank)) for rank in range(ranks)]


def _check_room(config) -> None:
    """Refuses in advance what could not succeed."""
    import shutil

    from .config import disk_for

    tiers = [("--disk", config.directory, config.disk)]
    if config.shared and not config.disk:
        raise wrong("--shared", "there is no disk tier above it (--disk 0)")
    if config.shared:
        tiers.append(("--shared", config.shared, disk_for(config.sizes)))
    for option, directory, one in tiers:
        free = shutil.disk_usage(directory).free
        if one * config.ranks > free:
            need = format_size(one * config.ranks)
            raise wrong(option, f"{need} for all ranks, but {directory} has {format_size(free)} free")
    if config.wait and not config.disk:
        raise wrong("--wait", "there is no disk tier to wait for (--disk 0)")


def _check_lent(config) -> None:
    """The same of memory that is lent."""
    from .._machine.device import NoDevice
    from .lending import LEAST, lease_of, lender_devices

    if not config.lend:
        return
    largest = max(map(max, config.sizes))
    if config.lend < LEAST:
        raise wrong("--lend", f"{format_size(config.lend)} are too few: at least {format_size(LEAST)}")
    if largest > lease_of(config.lend):
        enough = 8 * -(-largest // LEAST) * LEAST
        raise wrong(
            "--lend",
            f"a checkpoint of {format_size(largest)} does not fit in a lease of {format_size(lease_of(config.lend))}, an eighth "
            f"of what is lent; {format_size(enough)} are enough",
        )
    if not config.device_cache:
        raise wrong("--lend", "there is no device cache, beside which memory is borrowed (--device-cache 0)")
    try:
        lender_devices(config.device, config.ranks)
    except NoDevice as error:
        raise wrong("--lend", f"NoDevice: {error}") from None


@app.command("peers")
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PEER", help="Which of them, in this order (default: all; --list shows them)."),
    ] = None,
    checkpoints: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 64,
    size: Annotated[int, parsed("--size", size_of, "SIZE", "Bytes of each checkpoint.")] = "8MiB",  # type: ignore
    order: Annotated[Order, typer.Option(help="The order in which the checkpoints are restored.")] = Order.reverse,
    hints: Annotated[Hints, typer.Option(help="What is known of that order in advance.")] = Hints.all,
    interval: Annotated[
        float,
        parsed("--interval", time_of, "TIME", "Computing (slept) before each checkpoint and after each restore."),
    ] = "20ms",  # type: ignore
    device_cache: Annotated[
        int, parsed("--device-cache", size_of, "SIZE", "Device cache, for those that have one.")
    ] = "64MiB",  # type: ignore
    host_cache: Annotated[int, parsed("--host-cache", size_of, "SIZE", "Host cache, likewise.")] = "64MiB",  # type: ignore
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", exists=True, file_okay=False, help="Where the files go (default: $EBBTIDE_DIR, $TMPDIR or /tmp)."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the flushes between the two passes.")
    ] = False,
    free_memory: Annotated[
        bool,
        typer.Option(
            "--free-memory", help="Let files lie in memory that nobody uses; else they are read from the disk."
        ),
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda[:N]", help="Device of the arrays and the device cache.")
    ] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Turns of each row; the medians count.")] = 1,
    limit: Annotated[float, parsed("--limit", time_of, "TIME", "For one row; then it is stopped.")] = "120s",  # type: ignore
    seed: Annotated[int, typer.Option(help="Seed of the irregular order.")] = 0,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured to FILE.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say what there is to compare with, and do nothing.")] = False,
) -> None:
    """The same shot with the store and with what else a program could use, every restored byte compared.

    Each row has a process of its own. One that is not installed, crashes, hangs or gives a wrong byte says so in its row,
    and the others are run. Ends with 1 if the store gave a wrong byte.
    """
    from rich.console import Console

    from .peers import PEERS

    console, log = Console(), Console(stderr=True)
    if listed:
        for key, about in PEERS.items():
            console.print(f"{key:12} {about.what}", highlight=False, soft_wrap=True)
        return
    from .._machine.option import check_device
    from . import contest, report
    from .config import Config, disk_for, scratch_directory

    for name in names or []:
        if name not in PEERS:
            raise wrong("PEER", f"{name!r} is not known; known are {', '.join(PEERS)}")
    if size < 1:
        raise wrong("--size", "it must be at least 1 byte")
    check_device(device)
    sizes = ((size,) * checkpoints,)
    config = Config(
        sizes=sizes,
        order=order.value,
        hints=hints.value,
        interval=interval,
        device_cache=device_cache,
        host_cache=host_cache,
        disk=disk_for(sizes),
        directory=scratch_directory(directory),
        wait=wait,
        policy="score",
        prefetch="manual",
        coupling="free",
        verify=True,
        seed=seed,
        device=device,
    )
    _check_room(config)
    keys = names or [key for key, about in PEERS.items() if config.on_gpu or not about.on_gpu]
    document = contest.run(config, keys, limit, not free_memory, repeats, lambda text: log.print(f"[dim]{text}[/dim]"))
    console.print(report.peers(document))
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")
    if any(turn["wrong"] for row in document["rows"] if row["ours"] for turn in row["turns"]):
        raise typer.Exit(1)


@app.command("paper")
def paper_figure(
    name: Annotated[
        str | None, typer.Argument(metavar="FIGURE", help='Which figure, such as "hpdc23:5a" (--list shows them).')
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's own sizes, for a GPU; else minutes on two cores.")
    ] = False,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            "--peer", metavar="PEER", help="Beside the store this peer, and those named likewise (default: all)."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="LABEL=VALUE",
            help='The places with this label alone, such as "hints=all"; may be repeated.',
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", exists=True, file_okay=False, help="Where the files go (default: $EBBTIDE_DIR, $TMPDIR or /tmp)."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda[:N]", help="Device of the arrays and the device cache.")
    ] = "cpu",
    limit: Annotated[float, parsed("--limit", time_of, "TIME", "For one row; then it is stopped.")] = "120s",  # type: ignore
    seed: Annotated[int, typer.Option(help="Seed of the irregular order and of the trace.")] = 0,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Add every row to FILE as it is measured; runs add up there."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw it with the paper's axes.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say which figures there are, and do nothing.")] = False,
) -> None:
    """One figure of the papers, measured on this machine beside what else a program could use.

    Ends with 1 if the store gave a wrong byte.
    """
    from rich.console import Console

    from . import paper

    console, log = Console(), Console(stderr=True)
    known = paper.FIGURES
    if listed:
        for key, figure in known.items():
            console.print(f"{key:10} {figure.what}", highlight=False, soft_wrap=True)
        return
    if name not in known:
        raise wrong("FIGURE", f"{name or 'none'!r} is not known; known are {', '.join(known)}")
    from .._machine.device import select
    from .._machine.option import check_device
    from .config import scratch_directory
    from .node_job import TooLittleRoom
    from .paper import run, show
    from .peers import PEERS

    for one in peer or []:
        if one not in PEERS:
            raise wrong("--peer", f"{one!r} is not known; known are {', '.join(PEERS)}")
    check_device(device)
    figure, scale, place = (
        known[name],
        paper.FULL if full else paper.QUICK,
        paper.Place(scratch_directory(directory), device, seed),
    )
    labels: dict[str, str] = {}
    for text in only or []:
        label, _, value = text.partition("=")
        if label in labels:
            raise wrong("--only", f"{label} is given twice, and a place has one value of it")
        labels[label] = value
    if isinstance(figure, paper.Shots):
        try:
            cells = run.chosen(figure, scale, place, labels)
        except ValueError as error:
            raise wrong("--only", str(error)) from None
        if not cells:
            raise wrong("--only", f"no place has all of {', '.join(only or [])}")
        for cell in cells:
            _check_room(cell.config)
    elif peer or only:
        raise wrong("FIGURE", f"{name} is no shot: it has no peers or places; give no --peer or --only")
    elif device != "cpu" and not (isinstance(figure, paper.Values) and figure.on_gpu):
        raise wrong("--device", f"{name} is not measured on a GPU; leave it out")
    drawing = plot and _plots.can_draw(lambda text: log.print(text, markup=False))
    document = run.document(name, figure, scale, select(device).model)
    if json and json.exists():
        document = run.earlier(json_text.loads(json.read_text(encoding="utf-8")), document)
    if document is None:
        raise wrong("--json", f"{json} has another figure, scale or GPU; name another file")

    def measured(row: dict[str, Any]) -> None:
        run.add(document, row)
        if json:
            json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")

    try:
        run.measure(figure, scale, place, peer, labels, limit, lambda text: log.print(f"[dim]{text}[/dim]"), measured)
    except TooLittleRoom as error:
        raise wrong("--dir", str(error)) from None
    console.print(show.table(document))
    if drawing:
        show.plot(document, plot)
    if any(turn["wrong"] for row in document["rows"] if row.get("ours") for turn in row["turns"]):
        raise typer.Exit(1)


@app.command("snapshots")
def snapshot_modes(
    size: Annotated[int, parsed("--size", size_of, "SIZE", "Bytes of memory to take snapshots of.")] = "128MiB",  # type: ignore
    snapshots: Annotated[int, typer.Option(min=1, max=1000, help="In each run.")] = 8,
    interval: Annotated[
        float, parsed("--interval", time_of, "TIME", "Writing and computing between two snapshots.")
    ] = "50ms",  # type: ignore
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Of each run; the median counts.")] = 3,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured to FILE.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw what each mode costs.")] = None,
) -> None:
    """Say what snapshots take of a program's time: blocking, incremental or in the background (Lee et al., ICS 2019)."""
    from rich.console import Console

    from . import snapshots as modes

    if size < modes.ZONE:
        raise wrong("--size", f"it must be at least one zone, {format_size(modes.ZONE)}")
    console, log = Console(), Console(stderr=True)
    whole = size // modes.ZONE * modes.ZONE
    drawing = plot and _plots.can_draw(lambda text: log.print(text, markup=False))
    document = modes.measure(whole, snapshots, interval, repeats, say=lambda text: log.print(f"[dim]{text}[/dim]"))
    console.print(modes.table(document))
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")
    if drawing:
        modes.plot(document, plot)


@app.command("trace")
def make_trace(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv", help="Where the trace goes: one row per snapshot, one column per GPU, in bytes."
        ),
    ],
    snapshots: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows.")] = traces.SNAPSHOTS,
    gpus: Annotated[int, typer.Option(min=1, max=1024, help="Columns.")] = 8,
    seed: Annotated[int, typer.Option(help="The same seed gives the same trace.")] = 0,
    scale: Annotated[
        float, typer.Option(min=1e-9, max=1e6, help="1: the paper's 38 to 50 GB per shot; 0.01: a hundredth.")
    ] = 1.0,
) -> None:
    """Make a trace of checkpoint sizes like those of a real imaging shot: a pass that writes them, and one back (HPDC 2023, figure 4)."""
    from rich.console import Console
    from rich.table import Table

    if not math.isfinite(scale):
        raise wrong("--scale", "it must be finite")
    made = traces.make_trace(snapshots, gpus, seed, scale)
    traces.write_trace(file, made)
    table = Table(title=f"{file}: {snapshots} snapshots", title_justify="left")
    for name in ("GPU", "total", "smallest", "median", "largest"):
        table.add_column(name, justify="right")
    for gpu, *sizes in traces.describe(made):
        table.add_row(str(gpu), *map(format_size, sizes))
    Console().print(table)
