"""Small programs that use Ebbtide in a process of their own: `python program.py NAME JSON`. Each line printed is JSON.

What a line says last is what counts; a program that raises says {"error": ..., "kind": ...}.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder, whose names are common

import ebbtide
from reliability import states

SMALL = {"device": "cpu", "device_cache": "4MiB", "host_cache": "4MiB", "disk": "1GiB"}
KILOBYTES = 64
LONG_S = 20.0
Given = dict[str, Any]


def say(**what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


def opened(given: Given, **more: Any) -> ebbtide.Store:
    options = (
        {"durability": "storage"} | SMALL | {key: given[key] for key in ("readonly", "close_timeout") if key in given}
    )
    return ebbtide.open(given["directory"], **(options | more))


def state(given: Given, step: int) -> states.State:
    return states.make(given["seed"], step, KILOBYTES)


def write(given: Given) -> None:
    """Saves until it is interrupted, waiting now and then; leaving the block drains."""

    def end(number: int, frame: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the trials may ignore it
    if given["handler"]:
        signal.signal(signal.SIGTERM, end)
    try:
        with opened(given) as store:
            step = 0
            while True:
                store.checkpoint(step, state(given, step), timeout=None)
                say(written=step)
                if step % 8 == 7:
                    store.wait("storage")
                    say(durable=step)
                step += 1
    except (KeyboardInterrupt, SystemExit) as error:
        say(closed=type(error).__name__)


def check(given: Given) -> None:
    """Every version that is there, read and compared; those up to `last` must be."""
    with opened(given, readonly=True) as store:
        found = store.versions()
        wrong = [[step, states.wrong(store.restore(step), state(given, step))] for step in found]
    wrong = [one for one in wrong if one[1]]
    missing = [step for step in range(given["last"] + 1) if step not in set(found)]
    say(found=len(found), wrong=wrong[:3], missing=missing[:5])


def hold(given: Given) -> None:
    """Opens it, says so, and holds it until nobody listens; with `save`, one step is saved first."""
    with opened(given) as store:
        if "save" in given:
            store.checkpoint(given["save"], state(given, given["save"]))
            store.wait("storage")
        latest = store.latest()
        say(held=os.getpid(), latest=latest)
        if latest is not None:
            say(wrong=states.wrong(store.restore(latest), state(given, latest)))
        if given.get("stay"):
            sys.stdin.readline()
    say(closed=True)


def stall(given: Given) -> None:
    """Saves to a file system that stops answering in between."""
    store = opened(given)
    store.checkpoint(0, state(given, 0))
    store.wait("storage")
    say(ready=True)
    sys.stdin.readline()
    store.checkpoint(1, state(given, 1))
    timed("wait", lambda: store.wait("storage", timeout=given["timeout"]))
    timed("close", store.close)
    say(ended=True)


def beside(given: Given) -> None:
    """Saves, waits and closes as it is told, with a shared directory."""
    store, step = opened(given, shared=given["shared"], durability="shared"), 0
    say(ready=True)
    for line in sys.stdin:
        word, _, limit = line.strip().partition(" ")
        if word == "save":
            for _ in range(int(limit)):
                store.checkpoint(step, state(given, step), timeout=LONG_S)
                step += 1
            say(saved=step)
        elif word in ("storage", "shared"):
            timed(word, lambda level=word, timeout=float(limit): store.wait(level, timeout=timeout))
        elif word == "close":
            timed(word, store.close)
        else:
            break


def timed(what: str, call: Callable[[], object]) -> None:
    start = time.monotonic()
    try:
        call()
        say(call=what, seconds=time.monotonic() - start, error=None)
    except ebbtide.Error as error:
        say(call=what, seconds=time.monotonic() - start, error=str(error), kind=error.reason)


def modes(given: Given) -> None:
    """What others than the owner may do with a store, while it is open and after."""
    os.umask(0)
    directory = Path(given["directory"])
    with opened(given) as store:
        store.checkpoint(0, state(given, 0))
        store.wait("storage")
        while_open = wrong_modes(directory)
    say(while_open=while_open, after=wrong_modes(directory), files=len(list(directory.iterdir())))


def wrong_modes(directory: Path) -> list[str]:
    paths = {directory: 0o700} | {path: 0o600 for path in directory.rglob("*")}
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in paths}
    return [f"{path.name} {found[path]:o}" for path, right in paths.items() if found[path] != right]


def main() -> int:
    given = json.loads(sys.argv[2])
    if "user" in given:
        os.setgroups([])
        os.setgid(given["user"])
        os.setuid(given["user"])
    programs = {"write": write, "check": check, "hold": hold, "stall": stall, "beside": beside, "modes": modes}
    try:
        programs[sys.argv[1]](given)
    except ebbtide.Error as error:
        say(error=str(error), kind=error.reason)
    return 0


if __name__ == "__main__":
    sys.exit(main())
