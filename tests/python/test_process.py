"""Signals, forks and the interpreter's end: each in a process of its own."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import textwrap
from pathlib import Path

from child import run_python
import pytest

import ebbtide

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import ebbtide
store = ebbtide.open({disk!r}, device_cache="1MiB", host_cache=0, disk=0)
block = np.zeros(1 << 19, "u1")
def inside(calls=1):
    "Until that many calls of other threads wait in the store."
    while store.calls_inside < calls: time.sleep(0.001)
"""


def run(disk: Path, body: str, **more: object) -> subprocess.CompletedProcess[str]:
    code = HEAD.format(disk=str(disk)) + textwrap.dedent(body)
    return run_python(code, **more)


@pytest.mark.parametrize(
    "call",
    [
        "store.checkpoint(3, block, timeout=None)",
        "store.reserve(3, block.size, 'u1', timeout=None)",
    ],
)
def test_interrupting_a_call_that_waits_leaves_the_store_whole(disk: Path, call: str) -> None:
    # Two reservations fill the cache: the checkpoint waits for room, which no call frees.
    setup = "held = [store.reserve(v, block.size, 'u1') for v in (1, 2)]\n"
    done = run(
        disk,
        setup
        + f"""
def interrupt():
    inside()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    {call}
except KeyboardInterrupt:
    pass
else:
    sys.exit("no call was interrupted")
for one in held:
    one.abandon()
store.checkpoint(7, block)
store.restore(7)
assert store.versions() == [], store.versions()
print("whole")
""",
    )
    assert done.stdout == "whole\n", done.stderr


def test_interrupting_a_wait_leaves_what_it_waited_for_alone(disk: Path) -> None:
    done = run(
        disk,
        """
        held = [store.reserve(v, block.size, "u1") for v in (1, 2)]
        late = threading.Thread(target=store.checkpoint, args=(3, block), kwargs={"timeout": None})
        late.start()
        known = False
        while not known:
            try:
                store.wait("device", 3, timeout=0)
            except ebbtide.UnknownVersion:
                time.sleep(0.001)
            except ebbtide.TimedOut:
                known = True
        def interrupt():
            inside(2)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            store.wait("device")
        except KeyboardInterrupt:
            held[0].abandon()
            late.join()
            assert store.versions() == [3], store.versions()
            print("whole")
        """,
    )
    assert done.stdout == "whole\n", done.stderr


def test_a_handler_that_raises_nothing_does_not_end_the_wait(disk: Path) -> None:
    done = run(
        disk,
        """
        held = [store.reserve(v, block.size, "u1") for v in (1, 2)]
        seen = []
        def handler(*_):
            seen.append(1)
            held[0].abandon()           # a handler may use the store
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        store.checkpoint(3, block, timeout=None)
        assert seen == [1]
        print("whole")
        """,
    )
    assert done.stdout == "whole\n", done.stderr


def test_a_fork_is_refused_by_name_and_ends_quietly(disk: Path) -> None:
    done = run(
        disk,
        """
        store.checkpoint(1, block)
        held = store.reserve(2, 10)
        child = os.fork()
        if child == 0:
            for call in (lambda: store.restore(1), store.stats, held.commit, lambda: store.history("x"), store.versions):
                try:
                    call()
                except ebbtide.Unsupported as error:
                    assert "forked" in str(error), error
                else:
                    os._exit(3)
            store.close()
            del held, store
            sys.exit(0)                 # runs the exit handlers
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        store.restore(1)
        print("whole")
        """,
    )
    assert done.stdout == "whole\n", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "cycle = [store]; cycle.append(cycle)",
        "held = store.reserve(1, 10); view = held.array",
        "store.checkpoint(1, block); loan = store.borrow(1); view = loan.arrays",
        "store.checkpoint(1, block); future = store.restore_async(1)",
        "import builtins; builtins.kept = store",
        "held = [store.reserve(v, block.size, 'u1') for v in (1, 2)]; "
        "threading.Thread(target=lambda: store.checkpoint(3, block, timeout=None), daemon=True).start(); inside()",
    ],
)
def test_the_interpreter_ends_with_an_open_store(disk: Path, end: str) -> None:
    done = run(disk, end)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "leaked" not in done.stderr and "terminate" not in done.stderr


@pytest.mark.parametrize(("end", "status"), [("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", -9), ("sys.exit(6)", 6)])
def test_the_process_ends_with_transfers_under_way_and_its_status_is_what_it_said(
    disk: Path, end: str, status: int
) -> None:
    body = """
        store.close()
        store = ebbtide.open({disk!r}, device_cache="1MiB", host_cache="1MiB", disk="64MiB")
        for v in range(32): store.checkpoint(v, block, timeout=30)
        futures = [store.restore_async(v) for v in range(32)]
        print("end", flush=True)
        """
    done = run(disk, textwrap.dedent(body).format(disk=str(disk)) + end + "\n")
    assert (done.stdout, done.returncode) == ("end\n", status), done.stderr
    assert os.listdir(disk) == []


def test_leaving_a_signalled_process_does_not_hang(disk: Path) -> None:
    done = run(disk, "store.checkpoint(1, block); os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")
    assert done.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in done.stderr
    assert os.listdir(disk) == []


@pytest.mark.parametrize("ending", ["commit", "abandon"])
def test_an_array_of_a_reservation_outlives_it_and_the_store(tmp_path: Path, ending: str) -> None:
    """In a process of its own: memory that is gone would end it."""
    program = f"""
import numpy, ebbtide
store = ebbtide.open({str(tmp_path)!r}, device_cache="8MiB", host_cache="8MiB", disk="16MiB")
reservation = store.reserve(1, (1 << 20,), "u1")
array = reservation.array
array[:] = 7
reservation.{ending}()
store.close()
assert int(array.sum()) == 7 << 20
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr


def test_a_store_and_a_history_say_that_they_cannot_be_pickled(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        for one, name in ((store, "Store"), (store.history("x"), "History")):
            for pickled in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(
                    TypeError, match=f"a {name} cannot be pickled or copied: .* Open the store in the other"
                ):
                    pickled(one)
