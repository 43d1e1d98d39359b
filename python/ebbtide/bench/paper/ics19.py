"""The experiments of ics19: what snapshots take of a program's time, and what that is worth to large machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .figure import Labels, Place, Scale, Values

MODEL = "from the model, to first order, with the paper's tables 1 and 2"
PROGRAMS = "programs of the zone machine in place of the paper's mini-apps"
EFFICIENCY = "efficiency (%)"


def _model() -> dict[str, Any]:
    from ...models.efficiency import figures  # not before it is asked for

    return figures.figures()


def _by_scale(figure: str, name: str):
    def values(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
        found = _model()
        for line, percents in found[figure].items():
            for exaflops, percent in zip(found["exaflops"], percents, strict=True):
                yield {name: line, "EF": f"{exaflops:g}"}, percent

    return values


def _by_program(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    for program, modes in _model()["figure12"].items():
        for mode, percent in modes.items():
            yield {"program": program, "mode": mode}, percent


def _by_failures(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    found = _model()
    for one in found["figure14"]:
        name = f"{one['speedup']:g} times as fast, {one['written']:.0%} written"
        for factor, percent in zip(found["gpu_failures"], one["percent"], strict=True):
            yield {"level 1": name, "failures of GPUs": f"{factor:g} ×"}, percent


def _of_modes(figure: str):
    def values(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
        from .. import snapshots

        modes = {"10": snapshots.FIGURE_10, "11": snapshots.FIGURE_11}[figure]
        for program in snapshots.PROGRAMS:
            found = snapshots.measure(scale.memory, 8, 0.05, 3, (program,), (snapshots.FULL, *modes), say)
            for mode in modes:
                yield {"program": program.name, "mode": mode.name}, found["relative"][program.name][mode.name]

    return values


# --- what programs write ----------------------------------------------------------------------------------------------

INTERVALS = (1, 8, 64, 512)  # iterations from one checkpoint to the next
SOLVERS = (
    "solvers in NumPy in place of the paper's mini-apps, whose first writes to each page the kernel tells; zones finer than"
    " a page of 4 KiB cannot be seen"
)


def _solved(scale: Scale, say: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
    from .. import solvers

    for name, solver in solvers.SOLVERS.items():
        say(f"{name}, {max(INTERVALS)} iterations")
        yield name, solvers.written(solver(scale.memory // 8), max(INTERVALS))


def _over_time(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    from ..solvers import dirty

    for name, pages in _solved(scale, say):
        for every in INTERVALS:
            for iteration in (1 << power for power in range(max(INTERVALS).bit_length())):
                begin = (iteration - 1) // every * every
                share = 100 * dirty(pages[begin:iteration]).mean()
                yield {"program": name, "checkpoint every": str(every), "iteration": str(iteration)}, share


def _in_the_end(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    from ..solvers import dirty

    for name, pages in _solved(scale, say):
        found = dirty(pages)
        yield {"zones": "all", "program": name}, len(found)
        yield {"zones": "written", "program": name}, int(found.sum())


def _finer(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    from ..solvers import ZONE, dirty

    for name, pages in _solved(scale, say):
        intervals = [pages[begin : begin + 8] for begin in range(0, len(pages), 8)]
        for finer in (ZONE >> power for power in range(1, 5)):
            shares = [
                dirty(one, finer).sum() * finer / (dirty(one).sum() * ZONE) for one in intervals if dirty(one).any()
            ]
            yield {"program": name, "bytes of a zone": f"{finer >> 10} KiB"}, 100 * sum(shares) / len(shares)


# --- copies to the host -----------------------------------------------------------------------------------------------


def _by_size(scale: Scale, place: Place, say: Callable[[str], None]) -> Iterator[tuple[Labels, float]]:
    from .. import transfers

    for how, size, rate in transfers.rates(place.device, scale.memory, say):
        yield {"copies": how, "bytes of a copy": f"{size >> 10} KiB"}, rate / 1e9


LOST = "time lost over that of full blocking snapshots"
SNAPSHOTS = (
    "snapshots of memory on processors, whose pages the kernel protects, in place of hardware that watches a GPU's;"
    " four programs that write zones of 64 KiB"
)

FIGURES = {
    "2": Values(
        "efficiency by scale and GPUs a CPU",
        "falls from 8 GPUs a CPU on, most at large scale (sec. 3)",
        MODEL,
        "EF",
        EFFICIENCY,
        _by_scale("figure2", "GPUs a CPU"),
        computed=True,
    ),
    "3": Values(
        "efficiency by scale where checkpoints of some levels are free, at 16 GPUs a CPU",
        "memory is the level where it is worth most; 92.7% with that level free at 3.6 EF (sec. 3, 6.2)",
        MODEL,
        "EF",
        EFFICIENCY,
        _by_scale("figure3", "free levels"),
        computed=True,
    ),
    "6": Values(
        "zones of 64 KiB that were written since the last checkpoint, by iteration",
        "each program reaches a share of its zones and writes no more (sec. 4.2.1)",
        SOLVERS,
        "iteration",
        "zones written (%)",
        _over_time,
    ),
    "7": Values(
        "zones of 64 KiB, and those that 512 iterations write",
        "from few to all, by program (sec. 4.2.1)",
        SOLVERS,
        "program",
        "zones",
        _in_the_end,
    ),
    "8": Values(
        "what is written of a zone of 64 KiB that is written at all, where zones are finer; a checkpoint every 8 iterations",
        "the finer, the less, for most programs (sec. 4.2.2)",
        SOLVERS,
        "bytes of a zone",
        "written (%)",
        _finer,
    ),
    "9": Values(
        "copies of memory in pieces to the host, by the size of a piece",
        "62% of the link's rate at 64 KiB, all of it from 1 to 4 MB on or through a buffer on the device (sec. 4.3.1)",
        "on a GPU over its link, on processors within memory; the store's time is until its host cache has all of them",
        "bytes of a copy",
        "GB/s",
        _by_size,
        on_gpu=True,
    ),
    "10": Values(
        "time lost to snapshots, without what the device does",
        "NB+I+H is the best for every program (sec. 6.1.1)",
        SNAPSHOTS,
        "program",
        LOST,
        _of_modes("10"),
    ),
    "11": Values(
        "time lost to snapshots, with double buffers and copies at the first write",
        "to less than a twentieth for most programs, a third for the worst (sec. 6.1.2)",
        SNAPSHOTS,
        "program",
        LOST,
        _of_modes("11"),
    ),
    "12": Values(
        "efficiency by program and organization, at 3.6 EF and 16 GPUs a CPU, where programs fill the memory",
        "within 3% of checkpoints to memory that take no time, on average (sec. 6.2)",
        f"{MODEL}; {PROGRAMS}",
        "program",
        EFFICIENCY,
        _by_program,
        computed=True,
    ),
    "13": Values(
        "efficiency by scale and GPUs a CPU, with all that the device does",
        "more than 16 GPUs a CPU pay at several EF (sec. 6.2.1)",
        f"{MODEL}; the mean of {PROGRAMS}",
        "EF",
        EFFICIENCY,
        _by_scale("figure13", "GPUs a CPU"),
        computed=True,
    ),
    "14": Values(
        "efficiency by failures of GPUs, at 3.6 EF and 16 GPUs a CPU",
        "below 54% at 50 times the failures without it, 90% with it (sec. 6.2.2)",
        f"{MODEL}; each pair of a faster level 1 and of what is written, in place of programs",
        "failures of GPUs",
        EFFICIENCY,
        _by_failures,
        computed=True,
    ),
}
