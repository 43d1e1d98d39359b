"""The configuration of a shot: the command line with every default filled in."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PAGE = 4096
_SLACK = 64 << 20  # room on the disk tier beyond the history itself


@dataclass(frozen=True)
class Config:
    """A run, complete."""

    sizes: tuple[tuple[int, ...], ...]  # [rank][version], bytes
    order: str
    hints: str
    interval: float
    device_cache: int
    host_cache: int
    disk: int  # a rank; 0: no such tier
    directory: Path
    wait: bool
    policy: str
    prefetch: str
    coupling: str
    verify: bool
    seed: int
    trace: str | None = None
    lend: int = 0  # bytes that another process lends to each rank; 0: none does
    device: str = "cpu"  # or "cuda", "cuda:N": the device of the program's arrays and of the device cache
    shared: Path | None = None  # below `directory`: the store then keeps its checkpoints in both
    options: tuple[tuple[str, Any], ...] = ()  # further ones of the store, and in place of the others

    @property
    def ranks(self) -> int:
        return len(self.sizes)

    @property
    def checkpoints(self) -> int:
        return len(self.sizes[0])

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def restore_order(self) -> tuple[int, ...]:
        """The versions as they are read back; every rank's are alike, as those of one shot over several GPUs."""
        forward = list(range(self.checkpoints))
        if self.order == "reverse":
            forward.reverse()
        elif self.order == "irregular":
            random.Random(self.seed).shuffle(forward)
        return tuple(forward)

    def history(self) -> int:
        """Bytes of the rank that writes most."""
        return max(map(sum, self.sizes))

    def median_size(self) -> int:
        """Bytes of a usual checkpoint."""
        sizes = sorted(size for rank in self.sizes for size in rank)
        return sizes[len(sizes) // 2]

    def store_options(self) -> dict:
        """Keyword arguments of `ebbtide.open`, but for the device."""
        options = {
            "directory": str(self.directory),
            "device_cache": self.device_cache,
            "host_cache": self.host_cache,
            "disk": self.disk,
            "eviction": self.policy,
            "prefetch": self.prefetch,
        }
        return options | ({"borrow": self.lend} if self.lend else {}) | dict(self.options)

    @contextlib.contextmanager
    def own_directories(self) -> Iterator[list[dict]]:
        """For each rank the keyword arguments that name directories. A store that keeps its checkpoints has its own two,
        which are made here, and removed again."""
        if not self.shared:
            yield [{}] * self.ranks
            return
        with contextlib.ExitStack() as made:
            places = [
                Path(made.enter_context(tempfile.TemporaryDirectory(prefix="ebbtide-shot-", dir=parent)))
                for parent in (self.directory, self.shared)
            ]
            yield [
                dict(zip(("directory", "shared"), (str(place / f"rank-{rank}") for place in places)))
                for rank in range(self.ranks)
            ]

    def on_one_disk(self) -> bool:
        """Whether the shared directory is on the local one's disk."""
        return self.shared is not None and self.shared.stat().st_dev == self.directory.stat().st_dev

    def as_json(self) -> dict:
        fields = asdict(self) | {"directory": str(self.directory), "ranks": self.ranks, "checkpoints": self.checkpoints}
        fields["shared"] = str(self.shared) if self.shared else None
        sizes = fields.pop("sizes")
        alike = len({size for rank in sizes for size in rank}) == 1
        return fields | {
            "size": sizes[0][0] if alike else None,
            "sizes": None if alike else sizes,
            "restore_order": self.restore_order(),
        }


def scratch_directory(given: Path | None) -> Path:
    """Where the files go: `given`, else `$EBBTIDE_DIR`, `$TMPDIR`, `/tmp`, as the store itself chooses."""
    return given or Path(os.environ.get("EBBTIDE_DIR") or tempfile.gettempdir())


def disk_for(sizes: Sequence[tuple[int, ...]]) -> int:
    """A disk tier that holds the whole history of any rank, so that `--wait` can end."""
    return max(sum(-(-size // _PAGE) * _PAGE for size in rank) for rank in sizes) + _SLACK
