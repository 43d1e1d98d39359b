"""The rates of this machine, as `ebbtide doctor` measured them."""

from __future__ import annotations

import json
from pathlib import Path

from ebbtide.errors import InvalidArgument


def measured_rates(file: Path, device: str) -> dict[str, float]:
    """The rates in what the doctor wrote, by the names of ``Machine.usual``; a rate that it could not measure is left out.

    device: "cuda:0", or anything else for a store without a GPU. Raises InvalidArgument for another file.
    """
    try:
        sections = json.loads(file.read_text())["sections"]
        values = {one["name"]: one["values"] for part in ("links", "disk") for one in sections[part]}
    except (ValueError, KeyError, TypeError):
        raise InvalidArgument(f"{file} is not what `ebbtide doctor --json` writes") from None
    found: dict[str, float | None] = {
        "file_write": values.get("disk write", {}).get("bytes_per_s"),
        "file_read": values.get("disk read", {}).get("bytes_per_s"),
    }
    if device.startswith("cuda:"):
        links = values.get(f"{device} copies", {})
        both = [links[way] for way in ("device_to_host", "host_to_device") if way in links]
        found |= {"copy": links.get("device_copy"), "device_host": min(both, default=None)}
    else:
        copies = values.get("memory copies", {})
        found |= {"copy": copies.get("copy_in"), "device_host": copies.get("copy_in")}
    return {name: float(rate) for name, rate in found.items() if rate}
