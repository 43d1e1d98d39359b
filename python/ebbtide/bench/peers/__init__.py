"""What users would take instead of the store, behind the calls that a shot makes of one.

A peer is a module here with a function ``open(given) -> Peer``. It imports what it needs, and nothing is imported before
its row is run: a package that is missing is that row's result.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._machine.device import Cpu


@dataclass(frozen=True)
class Given:
    """What each peer gets: the same memory, the same directory, the same program."""

    device: Cpu  # of the program's arrays
    directory: Path  # empty, and removed afterwards
    sizes: tuple[int, ...]  # bytes of each version
    order: tuple[int, ...]  # in which they are restored
    cold: bool  # files are read from the disk, not from memory that happens to be free
    store: dict[str, Any]  # the store's options: device_cache, host_cache, disk and so on
    compute: Callable[[int, int], Any]  # (version, steps): computes so many steps again; the bytes of `version`


class Peer:
    """What a shot asks of a history. A call returns when the program may go on, as the store's own do."""

    tiers: tuple[str, ...] = ("files",)

    def checkpoint(self, version: int, window: Any) -> None:
        """Keeps the bytes of `window`, an array of the device; it may be written to afterwards."""
        raise NotImplementedError

    def hint(self, versions: Sequence[int]) -> None:
        """These are restored next, in this order, after those that were hinted before."""

    def start_prefetch(self) -> None:
        """The first restore comes."""

    def restore(self, version: int, out: Any) -> None:
        """Fills `out`; the version is not needed again."""
        raise NotImplementedError

    def wait(self, tier: str) -> None:
        """Until all that was kept is in the files."""

    def stats(self) -> dict[str, Any]:
        return {"tiers": [{"name": name} for name in self.tiers], "links": [], "found_on": [], "prefetch_distance": []}

    def close(self) -> None:
        """Ends its threads. Its files are removed by others."""


@dataclass(frozen=True)
class About:
    """A peer in the list."""

    what: str
    module: str
    options: tuple[tuple[str, Any], ...] = ()  # of the store
    ours: bool = False  # the store itself
    stores: bool = True  # it keeps all that it is given
    gives_back: bool = True  # what was kept; compared if so
    on_gpu: bool = False  # of a GPU's memory alone


def _store(what: str, policy: str) -> About:
    return About(what, f"{__name__}.store", (("eviction", policy),), ours=True)


PEERS: dict[str, About] = {
    "score": _store("the store", "score"),
    "score_paper": _store("the store, with the score as hpdc23 sec. 4.2 has it", "score_paper"),
    "lru": _store("the store, the least recently used evicted first", "lru"),
    "fifo": _store("the store, the oldest evicted first", "fifo"),
} | {
    key: About(what, f"{__name__}.{key}", stores=key not in ("binomial", "empty"), gives_back=key != "empty")
    for key, what in {
        "pageable": "copy to memory, then write a file: no overlap",
        "pinned": "the same through pinned memory",
        "double": "two pinned buffers, a thread that writes and one that reads ahead along the hints",
        "adios2": "ADIOS2: BP5, asynchronous writes, a file a version, from pinned memory",
        "binomial": "recomputing from as many snapshots as the caches hold (reverse order alone)",
        "empty": "nothing is kept: what the benchmark itself costs",
    }.items()
} | {
    "direct": About(
        "the store, all cache memory allocated and pinned as it opens", f"{__name__}.store",
        (("tuning", {"device_arena": "direct", "host_arena": "direct"}),),
    ),
    "kvikio": About(
        "KvikIO: futures between the GPU's memory and files, read ahead along the hints", f"{__name__}.kvikio", on_gpu=True
    ),
    "uvm": About("CUDA's managed memory as hpdc23 sec. 5.2.2 uses it, files for the rest", f"{__name__}.uvm", on_gpu=True),
    "uvm_in_memory": About(
        "the same with as much of it as the whole history, and no files", f"{__name__}.uvm", (("in_memory", True),),
        stores=False, on_gpu=True,
    ),
}  # fmt: skip


def open_peer(about: About, given: Given) -> Any:
    """A peer for one shot. Raises ImportError where its package is missing."""
    return importlib.import_module(about.module).open(given, **dict(about.options))
