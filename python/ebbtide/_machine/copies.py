"""Bare copies in memory, of a program and a store without a GPU or with one.

Each is made as a caller of the store makes its own: by one thread, after a pause as long as the program's interval.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from .device import Cpu, aligned, copy_bytes

SPAN = 256 << 20  # bytes that cross a GPU's link at a time
_LONGEST_PAUSE = 0.02


@dataclass
class HostCopies:
    """Bytes/s of one checkpoint's copy, without a GPU."""

    copy_in: float  # application to cache
    copy_out: float  # cache to application
    copy_two: float  # of two threads copying at once, both together: what memory gives

    HOW = "one thread, copy as the store makes it (past the caches) into touched memory, after a pause of the interval; median of 9"

    def table(self) -> dict[str, float]:
        """Bytes/s by name."""
        return asdict(self)


@dataclass
class DeviceCopies:
    """Copies of a GPU: within it, and between it and pinned host memory."""

    size: int  # bytes of a device copy
    device_copy_s: float  # seconds of a device copy with its synchronise
    device_copy_busy_s: float  # the same while pinned memory is written all the time
    d2h_bytes_s: float
    h2d_bytes_s: float
    both_bytes_s: float  # both ways at once, together

    HOW = (
        "device copy and synchronise of one checkpoint on a stream of its own, after a pause of the interval; pinned "
        "buffers of 256 MiB on other streams; medians of 9"
    )

    def table(self) -> dict[str, float]:
        """Bytes/s by name; the busy copy is left out: it says what traffic costs, and belongs to no link."""
        rates = {name: getattr(self, f"{name}_bytes_s") for name in ("d2h", "h2d", "both")}
        return {"device_copy": self.size / self.device_copy_s} | rates


def host_copies(size: int, cache: int, pause: float) -> HostCopies:
    copy_in, copy_out = copy_rates(size, cache, pause)
    return HostCopies(copy_in, copy_out, copy_two_rate(size))


def copy_rates(size: int, cache: int, pause: float, repeats: int = 9) -> tuple[float, float]:
    """Bytes/s of copying `size` bytes into and out of a touched area of about `cache` bytes, each at a new place."""
    slots = max(1, min(cache, 256 << 20) // size)
    area, outside = aligned(slots * size), aligned(size)
    in_s, out_s = [], []
    for i in range(repeats):
        slot = area[(i % slots) * size :][:size]
        for times, to, source in (
            (in_s, slot, outside),
            (out_s, outside, area[((i + slots // 2) % slots) * size :][:size]),
        ):
            time.sleep(min(pause, _LONGEST_PAUSE))
            start = time.perf_counter()
            copy_bytes(to, source)
            times.append(time.perf_counter() - start)
    return size / statistics.median(in_s), size / statistics.median(out_s)


def copy_two_rate(size: int, repeats: int = 9) -> float:
    """Bytes/s of two threads that each copy `size` bytes again and again, both together."""
    meet = threading.Barrier(2)
    times: list[float] = []

    def work() -> None:
        to, source = aligned(size), aligned(size)
        for _ in range(repeats):
            meet.wait()
            start = time.perf_counter()
            copy_bytes(to, source)
            times.append(time.perf_counter() - start)

    other = threading.Thread(target=work)
    other.start()
    work()
    other.join()
    return 2 * size / statistics.median(times)


def device_copies(device: Cpu, size: int, pause: float, span: int | None = None, repeats: int = 9) -> DeviceCopies:
    """Measures `device`, its link with `span` bytes (default: SPAN); leaves no memory behind."""
    span = span or SPAN
    with device.use():
        inside, aside = device.bytes(size), device.bytes(size)
        down, up = device.bytes(span), device.bytes(span)
        down_host, up_host = device.pinned(span), device.pinned(span)
        down_stream, up_stream = device.new_stream(), device.new_stream()

        def copy_down() -> None:
            with device.on(down_stream):
                device.copy(down_host, down)

        def copy_up() -> None:
            with device.on(up_stream):
                device.copy(up, up_host)

        def both_done() -> None:
            down_stream.synchronize()
            up_stream.synchronize()

        def inner() -> None:
            device.copy(aside, inside)
            device.synchronize()

        def timed(start: Callable[[], None], end: Callable[[], None] = both_done) -> float:
            began = time.perf_counter()
            start()
            end()
            return time.perf_counter() - began

        def median(measure: Callable[[], float]) -> float:
            measure()  # the first call of anything on a GPU loads code
            return statistics.median(measure() for _ in range(repeats))

        def alone() -> float:
            time.sleep(min(pause, _LONGEST_PAUSE))
            return timed(inner, lambda: None)

        def amid_traffic() -> float:
            copy_down()
            taken = timed(inner, lambda: None)
            both_done()
            return taken

        def both() -> None:
            copy_down()
            copy_up()

        device.synchronize()
        measured = DeviceCopies(
            size,
            device_copy_s=median(alone),
            device_copy_busy_s=median(amid_traffic),
            d2h_bytes_s=span / median(lambda: timed(copy_down)),
            h2d_bytes_s=span / median(lambda: timed(copy_up)),
            both_bytes_s=2 * span / median(lambda: timed(both)),
        )
        return measured
