"""The memory-zone hardware of GPU Snapshot (ICS'19) in virtual time: what a program loses to one snapshot."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ebbtide._models as _models
from ebbtide import _core
from ebbtide.errors import InvalidArgument
from ebbtide.sim.machine import Size, plain_bytes, plain_ns

Order = Literal["same", "reversed", "shuffled"]
PAGE = 4096  # bytes; what a write touches, and a fine zone
_LONGEST = 1e6  # seconds of a trace
_COLUMNS = ["seconds", "offset", "bytes"]

MODES = ("F", "I", "I-FG", "NB+I", "NB+F+H", "NB+I+H", "NB+I-FG+H", "NB+F+H+D", "NB+I+H+D", "NB+I-FG+H+D")


@dataclass(frozen=True)
class ZonePattern:
    """A synthetic program, by what it writes around the cut (ics19, sec. 4.2.1).

    dirty: share of the memory's 64 KiB that were written before. filled: share of the 4 KiB in each. reuse: share of these
    that are written again after; the others are clean ones. order: against that before. pace: bytes per second, each 64 KiB
    counted whole. adversarial: one of the known patterns that break what holds for the others.
    """

    dirty: float = 1.0
    filled: float = 1.0
    reuse: float = 1.0
    order: Order = "same"
    pace: float = 4e9
    seed: int = 1
    says: str = ""
    adversarial: bool = False


def zone_patterns() -> dict[str, ZonePattern]:
    """The known patterns by name: of the paper's seven kinds of program, then the adversarial ones.

    >>> zone_patterns()["small_set"].dirty
    0.03
    """
    return {
        name: ZonePattern(dirty, filled, reuse, order, pace, seed, says, adversarial)
        for name, says, adversarial, dirty, filled, reuse, order, pace, seed in _models.sim_zone_patterns()
    }


@dataclass(frozen=True)
class ZoneProgram:
    """What a program writes around a cut of its memory: from a pattern, or from a trace."""

    _made: _models.SimZoneProgram = field(repr=False)

    @property
    def memory(self) -> int:
        """Bytes."""
        return self._made.memory

    @classmethod
    def of_pattern(cls, pattern: ZonePattern, memory: Size = "1GiB") -> ZoneProgram:
        """The writes of a pattern in so much memory: whole 64 KiB. Raises InvalidArgument.

        >>> ZoneProgram.of_pattern(zone_patterns()["sweep"], "64MiB").memory
        67108864
        """
        made = _models.SimZoneProgram.of_pattern(
            plain_bytes("memory", memory),
            pattern.dirty,
            pattern.filled,
            pattern.reuse,
            pattern.order,
            pattern.pace,
            pattern.seed,
        )
        return cls(made)

    @classmethod
    def of_writes(cls, memory: Size, writes: Iterable[tuple[float, int, int]]) -> ZoneProgram:
        """Of writes (seconds, offset, bytes) in their order, seconds since the cut; below 0 they are before it.

        Raises InvalidArgument, naming the write.

        >>> ZoneProgram.of_writes("1MiB", [(-1, 0, 65536), (0.5, 4096, 8)]).memory
        1048576
        """
        size = plain_bytes("memory", memory)
        before: list[int] = []
        times: list[int] = []
        after: list[int] = []
        last = -math.inf
        for number, (seconds, offset, length) in enumerate(writes, 1):
            if not (math.isfinite(seconds) and last <= seconds <= _LONGEST):
                raise InvalidArgument(
                    f"write {number}: {seconds!r} s is not a time from that of the write before to {_LONGEST:.0e} s"
                )
            if not (length > 0 and 0 <= offset <= size - length):
                raise InvalidArgument(
                    f"write {number}: {length} bytes at {offset} are not in the {size} bytes of memory"
                )
            last = seconds
            pages = range(offset // PAGE, (offset + length - 1) // PAGE + 1)
            if seconds < 0:
                before.extend(pages)
            else:
                after.extend(pages)
                times.extend([plain_ns(seconds)] * len(pages))
        return cls(_models.SimZoneProgram.of_trace(size, before, times, after))

    @classmethod
    def read(cls, path: Path | str, memory: Size) -> ZoneProgram:
        """From a CSV file with the columns ``seconds,offset,bytes`` (see ``of_writes``). Raises InvalidArgument, OSError."""
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if next(rows, None) != _COLUMNS:
                raise InvalidArgument(f"{path}: its first line is not seconds,offset,bytes")
            writes = []
            for number, row in enumerate(rows, 1):
                try:
                    seconds, offset, length = row
                    writes.append((float(seconds), int(offset), int(length)))
                except ValueError:
                    raise InvalidArgument(
                        f"{path}: write {number}: {','.join(row)[:100]!r} is not a number of seconds and two integers"
                    ) from None
        try:
            return cls.of_writes(memory, writes)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None


class WriteRecorder:
    """Records what a program writes to a NumPy array around a cut, through the watch of writes that snapshots use.

    Of the whole pages in the array, each interval's first writes are seen; each costs the program a fault of some
    microseconds, which is in the times. The array must be contiguous and writable, and must stay where it is until ``stop``.
    Raises InvalidArgument, or what the watch was refused with.

    >>> field = np.zeros(1 << 20)
    >>> with WriteRecorder(field) as recorder:
    ...     field[:4096] = 1  # before the cut
    ...     recorder.cut()
    ...     field[4096:8192] = 2
    >>> ZoneProgram.of_writes(recorder.bytes, recorder.writes).memory <= field.nbytes
    True
    """

    def __init__(self, array: np.ndarray[Any, Any]):
        if not (isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable):
            raise InvalidArgument("array: it is not a contiguous NumPy array that can be written")
        begin = -(-array.ctypes.data // PAGE) * PAGE
        end = (array.ctypes.data + array.nbytes) // PAGE * PAGE
        if end <= begin:
            raise InvalidArgument(f"array: its {array.nbytes} bytes have no whole page of {PAGE}")
        self.bytes = end - begin  # what is watched
        self.writes: list[
            tuple[float, int, int]
        ] = []  # after stop(): (seconds, offset, bytes), as of_writes takes them
        self._array = array
        self._made = _core.WriteRecorder.start(begin, self.bytes)

    def cut(self) -> None:
        """From now on writes are those after the cut. Once."""
        self._made.cut()

    def stop(self) -> None:
        """Ends it; ``writes`` has what was seen. Raises InvalidArgument without a cut."""
        self.writes = [(nanoseconds * 1e-9, page * PAGE, PAGE) for nanoseconds, page in self._made.stop()]

    def save(self, path: Path | str) -> None:
        """Writes the CSV file that ``ZoneProgram.read`` reads."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(_COLUMNS)
            rows.writerows((f"{seconds:.9f}", offset, length) for seconds, offset, length in self.writes)

    def __enter__(self) -> WriteRecorder:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()


@dataclass(frozen=True)
class ZoneHardware:
    """The hardware (ics19, sec. 4), as one of 16 GPUs on a CPU has it. Rates are bytes per second, times seconds.

    channels: of the memory, each with a part of the zone table, ``table_cache`` bytes of cache and an offload unit. Transfers
    of s bytes over the link run at ``link_rate``·s/(s + ``link_half``); the default gives 64 KiB 62%. memory_rate: of copies
    within the device. round_trip: between device and host. buffer: the double buffer of D (None: 1/128 of the program's
    memory, 256 MB of 32 GB), in ``slots``; ``reserve``: the share of a slot that only writes get. held_zones: to which a
    channel holds writes while the program goes on.
    """

    channels: int = 32
    table_cache: int = 2048
    link_rate: float = 4e9
    link_half: float = 40168
    memory_rate: float = 450e9
    round_trip: float = 25e-6
    buffer: Size | None = None
    slots: int = 2
    reserve: float = 0.75
    held_zones: int = 0


@dataclass(frozen=True)
class ZoneRun:
    """What one cut cost. Seconds since the cut; bytes.

    lost_s: of the program, blocked or stalled. stored_s: until the host had everything. held: writes that a channel held.
    owed: zones. written: to the host, in ``transfers``. table: two bits a zone; table_hits, table_misses and
    table_written_back: sectors of 32 bytes that the channels' caches had, read, and wrote.
    """

    lost_s: float
    stored_s: float
    first_stall_s: float | None
    longest_stall_s: float
    stalls: int
    held: int
    owed: int
    written: int
    transfers: int
    table: int
    table_hits: int
    table_misses: int
    table_written_back: int
    faults: int
    duplicates: int


def run_zones(mode: str, program: ZoneProgram, hardware: ZoneHardware | None = None) -> ZoneRun:
    """Runs one cut and what the program writes after it, with the planner of a real store's snapshots (ics19, sec. 5.1).

    mode: ``MODES`` has the paper's; F or I, with NB, -FG, H and D as there. Raises InvalidArgument, naming the field.

    >>> program = ZoneProgram.of_writes("32GB", [])
    >>> run_zones("F", program, ZoneHardware(link_half=0)).lost_s
    8.0
    """
    hardware = hardware or ZoneHardware()
    if hardware.buffer is None:
        hardware = replace(hardware, buffer=max(program.memory // 128, hardware.slots * 16 * PAGE))
    if not (math.isfinite(hardware.round_trip) and 0 <= hardware.round_trip <= _LONGEST):
        raise InvalidArgument(f"round_trip: {hardware.round_trip!r} is not from 0 to {_LONGEST:.0e} s")
    made = _models.SimZoneHardware.make(
        hardware.channels,
        hardware.table_cache,
        hardware.link_rate,
        hardware.link_half,
        hardware.memory_rate,
        plain_ns(hardware.round_trip),
        plain_bytes("buffer", hardware.buffer or 0),
        hardware.slots,
        hardware.reserve,
        hardware.held_zones,
    )
    found = made.run(mode, program._made)
    for name in ("lost", "stored", "first_stall", "longest_stall"):
        nanoseconds = found.pop(f"{name}_ns")
        found[f"{name}_s"] = None if nanoseconds is None else nanoseconds * 1e-9
    return ZoneRun(**found)
