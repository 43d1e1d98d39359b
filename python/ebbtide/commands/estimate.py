"""`ebbtide estimate`: what a history would need of the store that these options open here, and how long it would take."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from .._units import parse_time_with_unit
from . import outcome


class Order(str, Enum):
    reverse = "reverse"
    sequential = "sequential"
    irregular = "irregular"


def _option(name: str, metavar: str, text: str = "As of `open` (default: as it chooses).") -> Any:
    # Named outright: some versions of Typer take a metavar for the option's name.
    return typer.Option(name, metavar=metavar, help=text)


def _seconds(text: str) -> float:
    try:
        return parse_time_with_unit(text)
    except ValueError as error:
        raise outcome.Refused(f"--interval: {error}") from None


def estimate(
    checkpoints: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 384,
    size: Annotated[str, _option("--size", "SIZE", "Bytes of each.")] = "128MiB",
    order: Annotated[Order, typer.Option(help="The order in which they are restored.")] = Order.reverse,
    interval: Annotated[str, _option("--interval", "TIME", "Computing before each call.")] = "10ms",
    device: Annotated[str | None, typer.Option(help="As of `open`: auto, cpu, cuda, cuda:N.")] = None,
    directory: Annotated[Path | None, typer.Option("--dir", help="The disk tier's directory.")] = None,
    device_cache: Annotated[str | None, _option("--device-cache", "SIZE")] = None,
    host_cache: Annotated[str | None, _option("--host-cache", "SIZE")] = None,
    memory: Annotated[str | None, _option("--memory", "SIZE")] = None,
    disk: Annotated[str | None, _option("--disk", "SIZE")] = None,
    rates: Annotated[
        Path | None,
        typer.Option(
            "--rates",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What `ebbtide doctor --json FILE` measured (default: usual rates).",
        ),
    ] = None,
    json: outcome.Json = False,
) -> None:
    """Say what a history will need of each tier, and how long it takes: written, then restored.

    The store's own planner runs in virtual time; nothing is opened or written. The tiers are those that a store opened
    here with these options would have.

    Exit code 0; 1: it cannot be run so, and the reason is shown; 2: refused.
    """
    with outcome.exit_codes(json):
        import dataclasses

        import ebbtide
        from ebbtide import _core
        from ebbtide.sim.rates import measured_rates

        given = {
            "device": device,
            "directory": directory,
            "device_cache": device_cache,
            "host_cache": host_cache,
            "memory": memory,
            "disk": disk,
        }
        plan = _core.planned({key: str(value) for key, value in given.items() if value is not None})
        try:
            measured = measured_rates(rates, plan["settings"].partition(": ")[0]) if rates else {}
        except ebbtide.InvalidArgument as error:
            raise outcome.Refused(f"--rates: {error}") from None
        found = ebbtide.estimate(
            [size] * checkpoints,
            device_cache=plan["device"],
            host_cache=plan["host"],
            disk=plan["local"],
            order=order.value,
            interval=_seconds(interval),
            rates=measured,
        )
        if json:
            outcome.show_json(dataclasses.asdict(found) | {"rates": measured})
        else:
            named = f"as measured in {rates}" if rates else "usual ones (--rates FILE has those of this machine)"
            outcome.say(f"{found}\nrates: {named}")
        if found.refused is not None:
            raise typer.Exit(outcome.DAMAGED)


command, cls = estimate, outcome.Command
