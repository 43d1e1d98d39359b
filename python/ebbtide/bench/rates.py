"""The machine's bare rates, of copies and of the disk, for the checkpoints of a shot."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .. import _core
from .._machine.copies import DeviceCopies, HostCopies, device_copies, host_copies
from .._machine.device import select
from .._machine.files import HOW_FILE, FileRate, file_rates
from .config import Config
from .lending import NotLent, lender_devices


@dataclass
class PeerRate:
    """Copies of the first rank's GPU to and from the memory of the GPU that lends to it."""

    store_bytes_per_s: float
    load_bytes_per_s: float


@dataclass
class Rates:
    """Bare rates of the machine; `None` where there is no file tier."""

    copies: HostCopies | DeviceCopies
    write: FileRate | None
    read: FileRate | None
    peer: PeerRate | None = None  # where GPUs lend
    shared_write: FileRate | None = None  # where there is a shared directory
    shared_read: FileRate | None = None

    def table(self) -> dict[str, float]:
        """Bytes/s by name."""
        rates = self.copies.table()
        for way in ("write", "read", "shared_write", "shared_read"):
            if rate := getattr(self, way):
                rates[way] = rate.bytes_per_s
        if self.peer:
            rates |= {"peer_store": self.peer.store_bytes_per_s, "peer_load": self.peer.load_bytes_per_s}
        return rates

    def how(self) -> dict[str, str]:
        """How they were taken."""
        return {"copy": self.copies.HOW, "file": HOW_FILE}

    def as_json(self) -> dict:
        fields = asdict(self)
        return fields.pop("copies") | fields


def drift(before: Rates, after: Rates) -> dict[str, float]:
    """By how much each rate changed: 0.1 is 10% more afterwards."""
    after_by_name = after.table()
    return {name: after_by_name[name] / rate - 1 for name, rate in before.table().items()}


def mean(before: Rates, after: Rates) -> dict[str, float]:
    """Bytes/s by name: the mean of the two measurements."""
    after_by_name = after.table()
    return {name: (rate + after_by_name[name]) / 2 for name, rate in before.table().items()}


def measure(config: Config) -> Rates:
    """Everything, for checkpoints like those of `config`, on its first rank's device."""
    size = config.median_size()
    device = select(config.device)
    if device.on_gpu:
        copies: HostCopies | DeviceCopies = device_copies(device, size, config.interval)
        device.give_back()
    else:
        copies = host_copies(size, config.device_cache or config.host_cache or size, config.interval)
    write, read = file_rates(config.directory) if config.disk else (None, None)
    below = file_rates(config.shared) if config.shared else (None, None)
    peer = peer_rate(device.name, lender_devices(config.device, config.ranks)[0]) if config.lend else None
    return Rates(copies, write, read, peer, *below)


def peer_rate(device: str, lender: str) -> PeerRate | None:
    """None for ordinary memory, whose copies are those of the host. Raises NotLent where the GPUs cannot do it."""
    if device == "cpu":
        return None
    ends = {"from": int(device.partition(":")[2]), "to": int(lender.partition(":")[2])}
    for link in _core.peer_links():
        if {name: link[name] for name in ends} == ends and link["usable"]:
            return PeerRate(link["store"], link["load"])
        if {name: link[name] for name in ends} == ends:
            raise NotLent(f"{device} cannot use the memory of {lender}: {link['reason']}")
    raise NotLent(f"{device} and {lender} are no pair of GPUs")
