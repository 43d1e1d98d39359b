"""The expected results of a run: the least blocked time of any schedule, and what the planner reaches in simulation.

Both are computed from the machine's bare rates and from the intervals as they were really slept.
"""

from __future__ import annotations

from ebbtide import sim

from .config import Config
from .lending import borrowed_of
from .rank import Outcome

CALL_S = 3e-6  # of a copy beside moving its bytes
LAUNCH_S = 10e-6  # the same of a copy that a GPU makes
BUS_CHUNK = 16 << 20  # longest transfer between device and host; of a file 4 MiB, the links' default
GPU_DISK_DEPTH = 8  # transfers of a file link at once in a store on a GPU; 2 without
FILE_S = 100e-6  # of a file transfer beside moving its bytes; it passes while the transfer before it is moved


def machine(config: Config, bare: dict[str, float]) -> sim.Machine:
    """The tiers of one rank, over links with the machine's `bare` rates (bytes/s by name, of `rates.mean`)."""
    links, groups = _gpu_links(config, bare) if config.on_gpu else _host_links(bare)
    if config.disk:
        depth = {"depth": GPU_DISK_DEPTH} if config.on_gpu else {}
        links["host>local"] = sim.Link(bare["write"], FILE_S, group="disk", **depth)
        links["local>host"] = sim.Link(bare["read"], FILE_S, group="disk", **depth)
    tiers = {"device": config.device_cache, "peer": 0, "host": config.host_cache, "local": config.disk}
    if config.lend:
        tiers["peer"] = borrowed_of(config.lend)
        links |= _peer_links(config, bare)
    there = [name for name, capacity in tiers.items() if capacity]
    return sim.Machine(
        [sim.Tier(name, tiers[name], "device" if name == "peer" else None) for name in there],
        {name: link for name, link in links.items() if set(name.split(">")) <= {"app", "host", *there}},
        groups | {"disk": 0.0},
        eviction=config.policy,
        prefetch=config.prefetch,
    )


def _host_links(bare: dict[str, float]) -> tuple[dict[str, sim.Link], dict[str, float]]:
    """Without a GPU every copy is made by a processor: from and to the device cache like any other."""
    copy = (bare["copy_in"] + bare["copy_out"]) / 2
    rates = {"app>device": bare["copy_in"], "app>host": bare["copy_in"], "device>app": bare["copy_out"],
             "host>app": bare["copy_out"], "device>host": copy, "host>device": copy}  # fmt: skip
    links = {name: sim.Link(rate, CALL_S, group="memory") for name, rate in rates.items()}
    return links, {"memory": max(bare["copy_two"], copy)}


def _gpu_links(config: Config, bare: dict[str, float]) -> tuple[dict[str, sim.Link], dict[str, float]]:
    """The program's arrays are on the device of the device cache; whatever goes to or from the host crosses one bus a GPU."""
    device = {name: sim.Link(bare["device_copy"], LAUNCH_S) for name in ("app>device", "device>app")}
    bus = {"app>host": bare["d2h"], "device>host": bare["d2h"], "host>app": bare["h2d"], "host>device": bare["h2d"]}
    together = config.ranks * max(bare["both"], bare["d2h"], bare["h2d"])  # a group is one for all ranks
    crossing = {name: sim.Link(rate, LAUNCH_S, BUS_CHUNK, group="bus") for name, rate in bus.items()}
    return device | crossing, {"bus": together}


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
    ran = sim.run_ranks(here, shots)
    if ran.refused:
        raise RuntimeError(f"the simulator refused version {ran.refused[0].version}: {ran.refused[0].detail}")
    predicted = {
        "blocked_s": ran.blocked_s,
        "checkpoint_s": ran.checkpoint_blocked_s,
        "restore_s": ran.restore_blocked_s,
        "wall_s": ran.wall_s,
    }
    least = sim.bound(here, shots)
    return {"blocked_s": least.blocked_s, "overlapped_s": least.overlapped_s, "copies_s": least.copies_s}, predicted
