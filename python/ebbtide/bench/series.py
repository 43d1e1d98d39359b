"""Several shots over one open store. Its memory is allocated before the first shot: on a GPU, that is most of opening."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._machine.device import select
from .._units import parse_size
from . import rates, shot
from .config import Config, disk_for, scratch_directory
from .disk import Around, Disk, Moment
from .rank import Arrays, fill, play

#: The defaults of a shot.
SHOT: dict[str, Any] = {"order": "reverse", "hints": "all", "interval": 0.01, "wait": False, "verify": False, "seed": 0}
#: The store's options that bounds and predictions are computed from, with their defaults.
STORE: dict[str, Any] = {"device_cache": "4GiB", "host_cache": "32GiB", "eviction": "score", "prefetch": "manual"}


def shots(
    configs: Sequence[Mapping[str, Any]],
    store_options: Mapping[str, Any],
    remeasure: bool = True,
    say: Callable[[str], None] = lambda text: None,
    enough: Callable[[], bool] = lambda: False,
    disk_around: bool = False,
) -> list[dict]:
    """Opens a store, runs every shot of `configs` in a history of its own, dropped at its end; a document for each.

    configs: of each shot `sizes` (bytes of each version), and what of SHOT is to be otherwise. store_options: keyword
    arguments of `ebbtide.open`; `device` is "cpu" (default), "cuda" or "cuda:N", `disk` holds the longest shot by default.
    remeasure: take the bare rates between shots too, not only before the first and after the last. Documents are those
    of `ebbtide bench shot --json` (docs/bench.md); `open_s` is the same in all of them, and so is `fill_s`, the time of
    writing the longest shot once before the first: what that waits for is the memory of the caches, and belongs to opening.
    Nothing is repeated when the machine drifts: `machine.steady` says so. enough: asked before each shot; once it says so,
    the rest are left out.
    disk_around: measure the bare disk just before and just after each shot, and between the passes of one that waits for
    its flushes and prefetches nothing by itself, as the store reads and writes it; bounds and predictions are then computed
    from the mean of the two moments around each pass, which `machine.disk` reports.

    >>> shots([{"sizes": [1 << 27] * 384, "order": order, "wait": wait} for order in orders for wait in (False, True)],
    ...       {"device": "cuda", "device_cache": "4GiB", "host_cache": "32GiB", "directory": "/scratch"})
    """
    plans = _plans(configs, store_options)
    device = select(plans[0].device)
    say("measuring the bare machine")
    known = [rates.measure(plans[0])]
    outcomes = []
    moments: list[Moment] = []
    with device.use(), contextlib.ExitStack() as open_files:
        disk = open_files.enter_context(Disk.like(_longest(plans), device)) if disk_around else None
        between: dict[int, Moment] = {}

        def flushed() -> None:
            if disk and plans[len(outcomes)].prefetch == "manual":  # else the store may be using the disk
                between[len(outcomes)] = disk.measure({plans[len(outcomes)].order})

        arrays = Arrays(device, 0, max(p.checkpoints for p in plans), max(max(p.sizes[0]) for p in plans))
        opening = time.perf_counter()
        with _open(plans[0], store_options, device.name) as store:
            open_s = time.perf_counter() - opening
            say("filling the caches")
            with store.history("fill") as history:
                fill_s = fill(store, history, shot.jobs(_longest(plans))[0], arrays)
            _settle(store)
            for number, plan in enumerate(plans):
                if enough():
                    break
                if disk and not moments:
                    moments.append(disk.measure({plan.order}))
                say(f"shot {number + 1} of {len(plans)}: {plan.order}, hints {plan.hints}, {_waiting(plan)}")
                with store.history(f"shot {number}") as history:
                    outcomes.append(play(store, history, shot.jobs(plan)[0], arrays, flushed=flushed))
                outcomes[-1].open_s = open_s
                if disk:  # for this shot, and for the next
                    moments.append(disk.measure({near.order for near in plans[number : number + 2]}))
                if remeasure:
                    known.append(rates.measure(plan))
            if not remeasure:
                known.append(rates.measure(plans[0]))
    # Without remeasuring, every shot is between the first and the last measurement.
    around = itertools.pairwise(known) if remeasure else itertools.repeat((known[0], known[-1]))
    disks = [
        Around(*pair, plan.order, between.get(number))
        for number, (plan, pair) in enumerate(zip(plans, itertools.pairwise(moments)))
    ]
    say("computing the bounds and the predictions")
    documents = []
    for number, (plan, out, pair) in enumerate(zip(plans, outcomes, around)):
        documents.append(shot.document(plan, [out], *pair, disk=disks[number] if disk else None) | {"fill_s": fill_s})
        if disk:
            documents[-1]["machine"]["how"]["disk"] = disk.how
    return documents


def _settle(store: Any, limit: float = 60.0) -> None:
    """Waits until the transfers of dropped checkpoints have ended: no shot should count them."""
    end = time.monotonic() + limit
    while any(tier["used"] for tier in store.stats()["tiers"]):
        if time.monotonic() > end:
            raise TimeoutError(f"what was dropped is still being moved after {limit:g} s")
        time.sleep(0.001)


def _plans(configs: Sequence[Mapping[str, Any]], store_options: Mapping[str, Any]) -> list[Config]:
    """Each shot with the store's options, complete."""
    if not configs:
        raise ValueError("no shot to run")
    store = STORE | dict(store_options)
    sizes = [tuple(config["sizes"]) for config in configs]
    disk = store.get("disk")
    every = {
        "device_cache": _bytes(store["device_cache"]),
        "host_cache": _bytes(store["host_cache"]),
        "disk": disk_for(sizes) if disk is None else _bytes(disk),
        "directory": scratch_directory(Path(store["directory"]) if store.get("directory") else None),
        "policy": store["eviction"],
        "prefetch": store["prefetch"],
        "device": store.get("device", "cpu"),
        "coupling": "free",
    }
    return [Config(**(SHOT | dict(config) | every | {"sizes": (own,)})) for config, own in zip(configs, sizes)]


def _longest(plans: Sequence[Config]) -> Config:
    return max(plans, key=Config.history)


def _bytes(size: int | str) -> int:
    return size if isinstance(size, int) else parse_size(size)


def _open(plan: Config, store_options: Mapping[str, Any], device: str) -> Any:
    import ebbtide

    rest = {key: value for key, value in store_options.items() if key != "device"}
    return ebbtide.open(**(rest | plan.store_options() | {"device": device}))


def _waiting(plan: Config) -> str:
    return "wait" if plan.wait else "no wait"
