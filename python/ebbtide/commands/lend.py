"""`ebbtide lend`: lends the memory of an idle GPU."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from . import outcome


def lend(
    amount: Annotated[str, typer.Option("--bytes", metavar="SIZE", help='How much, such as "40GiB"; at least 64 MiB.')],
    gpu: Annotated[int | None, typer.Option("--gpu", metavar="N", min=0, help="Whose memory; the first GPU.")] = None,
    share: Annotated[
        float | None, typer.Option("--share", metavar="X", help="How much of its bandwidth, such as 0.25; all.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="S", min=0, help="For so long.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help='In place of --gpu: "cuda:3", or "cpu", to try it.')
    ] = None,
) -> None:
    """Lend memory of a GPU to the processes of this user on this node, until Ctrl-C, SIGTERM or --seconds.

    They use it for checkpoints that their own device caches cannot hold (`borrow`). It is allocated as they take it. At the end
    they are asked for it; what is not back after ten seconds is named, and is freed once they have returned it.

    Exit code 0; 2: refused, or not all of it came back.
    """
    with outcome.exit_codes(False):
        import ebbtide
        from ebbtide import _core

        if gpu is not None and device is not None:
            raise outcome.Refused("--gpu and --device name the same thing: give one of them")
        where = device or f"cuda:{gpu or 0}"
        ended = threading.Event()

        def end(*_: Any) -> None:
            ended.set()

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with ebbtide.open(
                device=where, device_cache=0, host_cache="4KiB", disk=0, lend=amount, lend_share=share
            ) as store:
                offered = store.stats()["leases"]["offered"]
                outcome.say(f"lending {_core.format_bytes(offered)} of {where}; Ctrl-C ends it")
                ended.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


command = lend
