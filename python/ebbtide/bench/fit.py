"""What `ebbtide bench shot` does without options: as much as this machine does in a given time."""

from __future__ import annotations

from dataclasses import dataclass

from .._machine.files import FileRate

DISK_PART = (
    0.6  # of the disk's own rate, at which checkpoints are made: more than it takes would measure the disk alone
)
CACHED_PART = 1 / 8  # of a history, in both caches together; a quarter of that in the device cache
LEAST_SIZE, FEWEST, MOST_PART = 64 << 10, 64, 1 / 2  # bytes of a checkpoint; checkpoints; of the free disk space
SHOTS = 4  # of such a time: two if the machine drifts, and the measuring around them takes as long as two more


@dataclass(frozen=True)
class Fit:
    """A shot of `checkpoints` of `size` bytes a rank, one every `interval` s."""

    checkpoints: int
    size: int
    interval: float
    device_cache: int
    host_cache: int

    def command(self) -> str:
        """What repeats it."""
        return (
            f"ebbtide bench shot --checkpoints {self.checkpoints} --size {self.size >> 10}KiB --interval {self.interval * 1e6:.0f}us "
            f"--device-cache {self.device_cache >> 10}KiB --host-cache {self.host_cache >> 10}KiB"
        )


def fit(seconds: float, rates: tuple[FileRate, FileRate], free: int, ranks: int = 1) -> Fit:
    """A shot that takes about `seconds` with all that is measured around it, on a disk with these rates and `free` bytes,
    which `ranks` share."""
    pace = DISK_PART * min(rate.bytes_per_s for rate in rates) / ranks
    passes = 2  # forward and backward
    history = min(pace * seconds / SHOTS / passes, MOST_PART * free / ranks)
    size = LEAST_SIZE
    while 2 * size * FEWEST <= history:
        size *= 2
    checkpoints = max(1, int(history / size))
    device = max(1, int(checkpoints * CACHED_PART / 4)) * size
    host = max(1, int(checkpoints * CACHED_PART * 3 / 4)) * size
    return Fit(checkpoints, size, round(size / pace, 6), device, host)
