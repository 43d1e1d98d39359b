"""The build, the GPUs it finds, and how fast they and memory copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ebbtide
from ebbtide import _core

from .._machine.copies import copy_rates, copy_two_rate
from .._units import format_rate, format_size
from .finding import Finding, change, note, ok
from .limits import ROOT, read

_SPAN = 256 << 20  # bytes of one copy
_HOST_SPAN = 64 << 20
_SLOW_LINK = 10e9  # bytes/s; PCIe 3 with 16 lanes gives 12
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # class of PCI devices


def cards(root: Path = ROOT) -> list[str]:
    """The NVIDIA GPUs on the PCI bus, whether or not a driver knows them."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    return sorted(
        device.name
        for device in devices
        if read(device / "vendor") == _NVIDIA and (read(device / "class") or "").startswith(_DISPLAY)
    )


def driver_version(root: Path = ROOT) -> str | None:
    """The version of NVIDIA's driver, if it is loaded."""
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", read(root / "proc/driver/nvidia/version") or "")
    return found[0] if found else None


def build(info: dict[str, Any], on_the_bus: list[str]) -> list[Finding]:
    """What the installed package supports."""
    found = [ok("ebbtide", f"{ebbtide.__version__}, compiled by {info['compiler']}", version=ebbtide.__version__)]
    if info["cuda"]:
        found.append(ok("CUDA", f"toolkit {info['cuda']}", toolkit=info["cuda"]))
    elif on_the_bus:
        advice = "install the CUDA toolkit (nvcc), then install ebbtide again: it is built with CUDA where it finds one"
        found.append(change("CUDA", "built without, but there is a GPU", advice, toolkit=None))
    else:
        found.append(ok("CUDA", "built without", toolkit=None))
    text = "built in" if info["io_uring"] else "built without"  # the limits section says what that means here
    found.append(ok("io_uring", text, built_in=info["io_uring"]))
    return found


def gpus(devices: list[dict[str, Any]], reason: str, built_with: bool, root: Path = ROOT) -> list[Finding]:
    """The GPUs that programs here may use, or why there is none; `built_with` CUDA."""
    driver, on_the_bus = driver_version(root), cards(root)
    if devices:
        return [_gpu(device, driver, root) for device in devices]
    values = {"driver": driver, "on_the_bus": on_the_bus, "reason": reason}
    text = f"none: {reason}; the device cache is in ordinary memory"
    if not built_with or not (driver or on_the_bus):  # `reason` names what the build lacks
        return [ok("GPU", text, **values)]
    if driver:
        advice = "if there is a GPU to be used, nvidia-smi must list it and CUDA_VISIBLE_DEVICES must not hide it"
    else:
        advice = "there is one on the PCI bus: install NVIDIA's driver, or start the container with --gpus all"
    return [note("GPU", text, advice, **values)]


def _gpu(device: dict[str, Any], driver: str | None, root: Path) -> Finding:
    name, free, total = f"cuda:{device['ordinal']}", device["free_bytes"], device["total_bytes"]
    free_text = "free memory unknown" if free is None else f"{format_size(free)} of {format_size(total)} free"
    text = f"{device['name']}, {free_text}, PCI {device['pci']}, driver {driver or 'unknown'}"
    slot = root / "sys/bus/pci/devices" / device["pci"].lower()
    lanes, possible = read(slot / "current_link_width"), read(slot / "max_link_width")
    values = device | {"driver": driver, "lanes": lanes, "lanes_possible": possible}
    if lanes and possible and lanes.isdigit() and possible.isdigit() and 0 < int(lanes) < int(possible):
        advice = f"{name} has {lanes} of its {possible} PCIe lanes: move it to a slot with all of them"
        return note(name, f"{text}, {lanes} of {possible} lanes", advice, **values)
    if free is not None and free < total // 2:
        return note(name, text, f"other programs use most of {name}: nvidia-smi shows which; end them", **values)
    return ok(name, text, **values)


def gpu_links(device: dict[str, Any]) -> Finding:
    """Measured, in less than a second."""
    ordinal = f"cuda:{device['ordinal']}"
    name = f"{ordinal} copies"
    try:
        rates = _core.link_rates(ordinal, _SPAN)
    except ebbtide.Error as error:
        advice = f"free memory of {ordinal} and of the host, then try again; nvidia-smi shows what uses it"
        return change(name, f"could not be measured: {error}", advice)
    return judge_link(name, rates)


def judge_link(name: str, rates: dict[str, float]) -> Finding:
    """A finding on measured rates."""
    down, up = rates["device_to_host"], rates["host_to_device"]
    text = (
        f"within {format_rate(rates['device_copy'])}, D2H {format_rate(down)}, H2D {format_rate(up)}, "
        f"both {format_rate(rates['both'])} (pinned)"
    )
    if min(down, up) < _SLOW_LINK:
        advice = "see what slows the link: nvidia-smi -q -d PCIE shows its generation and width, and who copies"
        return note(name, text, advice, **rates)
    return ok(name, text, **rates)


def host_copies() -> Finding:
    """The rate of a thread's copies in memory, which bounds a checkpoint without a GPU."""
    into, out = copy_rates(_HOST_SPAN, _HOST_SPAN, pause=0.0, repeats=3)
    two = copy_two_rate(_HOST_SPAN, repeats=3)
    text = f"{format_rate(into)} by one thread, {format_rate(two)} by two"
    return ok("memory copies", text, copy_in=into, copy_out=out, copy_two=two)
