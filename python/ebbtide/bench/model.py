"""The expected results of a run: the least blocked time of any schedule, and what the planner reaches in simulation.

Both are computed from the intervals as they were really slept; the bound from the machine's bare rates, the prediction
from the rates that the links had in this run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ebbtide import sim

from .._units import median
from .config import Config, disk_for
from .lending import borrowed_of
from .rank import Outcome

CALL_S = 3e-6  # of a copy beside moving its bytes
LAUNCH_S = 10e-6  # the same of a copy that a GPU makes
WHOLE = 1 << 40  # a caller's own copy is one transfer
BUS_CHUNK = 16 << 20  # longest transfer between device and host; of a file 4 MiB, the links' default
GPU_DISK_DEPTH = 8  # transfers of a file link at once in a store on a GPU; 2 without
FILE_LINKS = {"write": "host>local", "read": "local>host", "shared_write": "host>shared", "shared_read": "shared>host"}
FILE_S = 100e-6  # of a file transfer beside moving its bytes; it passes while the transfer before it is moved


def machine(config: Config, bare: dict[str, float]) -> sim.Machine:
    """The tiers of one rank, over links with the machine's `bare` rates (bytes/s by name, of `rates.mean`)."""
    links, groups = _gpu_links(bare) if config.on_gpu else _host_links(bare)
    tiers = {"device": config.device_cache, "peer": 0, "host": config.host_cache, "local": config.disk}
    disks = {"local": ("", "disk")} if config.disk else {}
    if config.shared:
        tiers["shared"] = disk_for(config.sizes)
        disks["shared"] = ("shared_", "disk" if config.on_one_disk() else "shared disk")
    for tier, (rate, disk) in disks.items():
        depth = {"depth": GPU_DISK_DEPTH} if config.on_gpu else {}
        links[f"host>{tier}"] = sim.Link(bare[rate + "write"], FILE_S, group=disk, **depth)
        links[f"{tier}>host"] = sim.Link(bare[rate + "read"], FILE_S, group=disk, **depth)
    if config.lend:
        tiers["peer"] = borrowed_of(config.lend)
        links |= _peer_links(config, bare)
    there = [name for name, capacity in tiers.items() if capacity]
    return sim.Machine(
        [sim.Tier(name, tiers[name], "device" if name == "peer" else None) for name in there],
        {name: link for name, link in links.items() if set(name.split(">")) <= {"app", "host", *there}},
        dict.fromkeys(("disk", "shared disk"), 0.0) | ({} if config.on_gpu else groups),
        eviction=config.policy,
        prefetch=config.prefetch,
        gpu_groups=groups if config.on_gpu else {},
        ephemeral=config.shared is None,
    )


def _host_links(bare: dict[str, float]) -> tuple[dict[str, sim.Link], dict[str, float]]:
    """Without a GPU every copy is made by a processor: from and to the device cache like any other."""
    copy = (bare["copy_in"] + bare["copy_out"]) / 2
    rates = {"app>device": bare["copy_in"], "app>host": bare["copy_in"], "device>app": bare["copy_out"],
             "host>app": bare["copy_out"], "device>host": copy, "host>device": copy}  # fmt: skip
    links = {
        name: sim.Link(rate, CALL_S, WHOLE if "app" in name else 0, group="memory") for name, rate in rates.items()
    }
    return links, {"memory": max(bare["copy_two"], copy)}


def _gpu_links(bare: dict[str, float]) -> tuple[dict[str, sim.Link], dict[str, float]]:
    """The program's arrays are on the device of the device cache; whatever goes to or from the host crosses one bus a GPU."""
    device = {name: sim.Link(bare["device_copy"], LAUNCH_S, WHOLE) for name in ("app>device", "device>app")}
    bus = {"app>host": bare["d2h"], "device>host": bare["d2h"], "host>app": bare["h2d"], "host>device": bare["h2d"]}
    crossing = {
        name: sim.Link(rate, LAUNCH_S, WHOLE if "app" in name else BUS_CHUNK, group="bus") for name, rate in bus.items()
    }
    return device | crossing, {"bus": max(bare["both"], bare["d2h"], bare["h2d"])}


def _peer_links(config: Config, bare: dict[str, float]) -> dict[str, sim.Link]:
    """To and from the lender's memory. What goes between it and the host crosses the lender's own bus."""
    if not config.on_gpu:
        like = {"app>peer": "app>device", "device>peer": "host>device", "peer>host": "device>host",
                "host>peer": "host>device", "peer>device": "host>device", "peer>app": "device>app"}  # fmt: skip
        host = _host_links(bare)[0]
        return {name: host[other] for name, other in like.items()}
    rates = {"app>peer": bare["peer_store"], "device>peer": bare["peer_store"], "peer>app": bare["peer_load"],
             "peer>device": bare["peer_load"], "peer>host": bare["d2h"], "host>peer": bare["h2d"]}  # fmt: skip
    return {name: sim.Link(rate, LAUNCH_S, BUS_CHUNK) for name, rate in rates.items()}


def as_it_ran(machine: sim.Machine, rates: Mapping[str, float]) -> sim.Machine:
    """`machine` with links as fast as they were in a run (bytes/s by name); the others are left.

    A link's rate in a run has in it what its transfers cost beside their bytes, and what other links took from it: it has
    no latency then, and no share of a group. A caller's own copy keeps the cost of its call.
    """
    links = dict(machine.links)
    for name, rate in rates.items():
        if name in links:
            links[name] = replace(
                links[name], bytes_per_s=rate, group=None, latency=links[name].latency if "app" in name else 0.0
            )
    return replace(machine, links=links)


def rates_of_run(links: Mapping[str, Mapping[str, float]], copies: Mapping[str, float | None]) -> dict[str, float]:
    """Bytes/s by link: of those behind the program what they moved (`bytes`) over the time in which they did (`busy_s`), and
    of `copies` what bare copies amid the run's traffic reached, where there were any."""
    behind = {
        name: link["bytes"] / link["busy_s"] for name, link in links.items() if "app" not in name and link["busy_s"] > 0
    }
    return behind | {name: rate for name, rate in copies.items() if rate}


def at_best(config: Config, outcomes: list[Outcome], bare: Mapping[str, float]) -> dict[str, float]:
    """`bare`, or what the run itself reached, where that is more: a bound of less could be undercut.

    A machine may be slow just when it is measured. Of files that is what their links reached in either pass, while they were
    at work (several ranks on one disk reach no more in all than the sum of what each does); of a call's own copy, what the
    faster half of the calls reached, most of which had nothing to wait for.
    """
    found = dict(bare)
    for rate, link in FILE_LINKS.items():
        each = ([rates_of_run(_links([links]), {}).get(link, 0.0) for links in out.links] for out in outcomes)
        found[rate] = max(bare.get(rate, 0.0), sum(max(passes, default=0.0) for passes in each))
    for out, sizes in zip(outcomes, config.sizes):
        written = _faster_half(sizes, out.checkpoint_s)
        read = _faster_half([sizes[version] for version in config.restore_order()], out.restore_s)
        for rate, reached in (("copy_in", written), ("copy_out", read), ("device_copy", max(written, read))):
            found[rate] = max(found.get(rate, 0.0), reached)
    return {rate: found[rate] for rate in bare}


def _faster_half(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Bytes/s of the faster half of these calls, all their bytes over all their time; 0 without calls."""
    calls = sorted(zip(sizes, seconds), key=lambda call: call[1] / call[0])[: (len(seconds) + 1) // 2]
    return sum(size for size, _ in calls) / sum(time for _, time in calls) if calls else 0.0


def _links(statistics: Iterable[list[dict]]) -> dict[str, dict[str, float]]:
    links: dict[str, dict[str, float]] = {}
    for each in statistics:
        for link in each:
            sums = links.setdefault(link["name"], {"bytes": 0, "busy_s": 0.0})
            sums["bytes"] += link["bytes"]
            sums["busy_s"] += link["busy_s"]
    return links


def _rates(config: Config, outcomes: list[Outcome]) -> dict[str, float]:
    forward = [seconds for out in outcomes for seconds in out.bare_forward_s]
    backward = [seconds for out in outcomes for seconds in out.bare_backward_s]
    size = config.median_size()
    copies = {
        "app>device": size / median(forward) if forward else None,
        "device>app": size / median(backward) if backward else None,
    }
    return rates_of_run(_links(out.stats["links"] for out in outcomes), copies)


def traces(config: Config, outcomes: list[Outcome]) -> list[sim.Shot]:
    """What each rank did, with the intervals that it really slept."""
    return [
        sim.Shot(
            sizes,
            hints=config.hints,
            forward=outcome.slept_forward_s,
            backward=outcome.slept_backward_s,
            compute_after_restore=True,
            wait=config.wait,
            barriers=config.coupling == "tight" and config.ranks > 1,
            restore_order=config.restore_order(),
        )
        for sizes, outcome in zip(config.sizes, outcomes)
    ]


def expect(config: Config, outcomes: list[Outcome], bare: dict[str, float]) -> tuple[dict, dict]:
    """`bound` and `predicted` of the document; seconds, summed over the ranks."""
    here, shots = machine(config, bare), traces(config, outcomes)
    ran = sim.run_ranks(as_it_ran(here, _rates(config, outcomes)), shots)
    if ran.refused:
        raise RuntimeError(f"the simulator refused version {ran.refused[0].version}: {ran.refused[0].detail}")
    predicted = {
        "blocked_s": ran.blocked_s,
        "from_bare_rates_s": sim.run_ranks(here, shots).blocked_s,
        "checkpoint_s": ran.checkpoint_blocked_s,
        "restore_s": ran.restore_blocked_s,
        "wall_s": ran.wall_s,
    }
    return least(config, outcomes, bare), predicted


def least(config: Config, outcomes: list[Outcome], bare: dict[str, float]) -> dict:
    """`bound` of the document: whatever was in place of the store."""
    best = at_best(config, outcomes, bare)
    bound = sim.bound(machine(config, best), traces(config, outcomes))
    return {
        "blocked_s": bound.blocked_s,
        "overlapped_s": bound.overlapped_s,
        "copies_s": bound.copies_s,
        "bytes_per_s": best,
    }
