"""A process's end, a fork, and a GPU without room: each with a store on a GPU."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path
from typing import Any

from child import run_python
import pytest
from gpu_support import HERE, Torch, by_library, needs_gpu, open_gpu

import ebbtide

pytestmark = needs_gpu

HEAD = """
import builtins, os, sys, threading, time
sys.path.insert(0, {tests!r})
import ebbtide, gpu_support
from pathlib import Path
lib = gpu_support.{library}()
store = gpu_support.open_gpu(Path({disk!r}), device_cache="16MiB", host_cache="32MiB", disk="64MiB")
x = lib.full(1 << 20, 1)
"""


def run(disk: Path, library: str, body: str) -> subprocess.CompletedProcess[str]:
    code = HEAD.format(disk=str(disk), library=library, tests=str(Path(__file__).parent)) + textwrap.dedent(body)
    return run_python(code)


ENDS = [
    "",
    "for v in range(8): store.checkpoint(v, x, timeout=30)",
    "lib.spin(); store.checkpoint(1, x)",
    "store.checkpoint(1, x); lib.spin(); store.restore(1, out=x)",
    "store.checkpoint(1, x); future = store.restore_async(1)",
    "held = store.reserve(1, 10); view = lib.over(held.array)",
    "held = store.reserve(1, 10); view = lib.over(held.array); held.commit(); del held",
    "store.checkpoint(1, x); loan = store.borrow(1); view = lib.over(loan.arrays)",
    "store.checkpoint(1, x); loan = store.borrow(1); view = lib.over(loan.arrays); store.close(); del store",
    "builtins.kept = [store, lib.over(store.reserve(1, 10).array)]; builtins.kept.append(builtins.kept)",
    "view = lib.over(store.reserve(1, 10).array); del sys.modules['ebbtide'], sys.modules['gpu_support']",
    "lib.spin(); store.checkpoint(1, x); sys.exit(0)",
    "begun = threading.Event(); "
    "work = lambda: [(store.checkpoint(v, x, timeout=None), begun.set()) for v in range(1000)]; "
    "threading.Thread(target=work, daemon=True).start(); begun.wait()",
]


@pytest.mark.parametrize(
    ("library", "end"), [("Torch", end) for end in ENDS] + [("Cupy", end) for end in ENDS if "view" in end]
)
def test_the_interpreter_ends(disk: Path, library: str, end: str) -> None:
    done = run(
        disk,
        library,
        end + "\nprint('end', flush=True)\n" if "sys.exit" not in end else "print('end', flush=True)\n" + end,
    )
    if "Skipped" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.stdout == "end\n", done.stderr
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "terminate" not in done.stderr and "leaked" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("end", "status"), [("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", -9), ("raise SystemExit(6)", 6)]
)
def test_the_process_ends_with_work_under_way_and_its_status_is_what_it_said(disk: Path, end: str, status: int) -> None:
    body = """
        for v in range(6): store.checkpoint(v, x, timeout=30)
        lib.spin()
        store.checkpoint(8, x, timeout=30)
        store.restore(5, out=x)
        print("end", flush=True)
        """
    done = run(disk, "Torch", textwrap.dedent(body) + end + "\n")
    if "Skipped" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert (done.stdout, done.returncode) == ("end\n", status), done.stderr
    assert not any(disk.iterdir())


def test_a_fork_is_refused_by_name(disk: Path) -> None:
    done = run(
        disk,
        "Torch",
        """
        store.checkpoint(1, x)
        held = store.reserve(2, 10)
        array = held.array
        view = lib.over(array)
        lib.synchronize()
        lib.spin()
        store.checkpoint(3, x)          # in flight in the parent only
        child = os.fork()
        if child == 0:
            calls = (lambda: store.restore(1), store.stats, held.commit, lambda: array.__dlpack__(), store.versions,
                     lambda: store.checkpoint(5, x), lambda: store.borrow(1))
            for number, call in enumerate(calls):
                try:
                    call()
                except ebbtide.Unsupported as error:
                    if "forked" not in str(error): os._exit(100 + number)
                else:
                    os._exit(1 + number)
            store.close()
            del array, held, view, store
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        for version in (1, 3):
            assert lib.same(store.restore(version), 1)
        print("whole")
        """,
    )
    if "Skipped" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.stdout == "whole\n", done.stderr


def test_out_of_device_memory_at_open(disk: Path) -> None:
    lib = Torch()
    open_gpu(disk, device_cache="16MiB", host_cache="16MiB", disk=0).close()  # what is opened once is
    lib.synchronize()
    before = lib.torch.cuda.mem_get_info()[0]
    for _ in range(3):
        with pytest.raises(ebbtide.OutOfMemory, match="device"):
            open_gpu(disk, device_cache=HERE[0]["total_bytes"], host_cache="16MiB", disk=0)
    after = lib.torch.cuda.mem_get_info()[0]
    assert before - after < 32 << 20
    open_gpu(disk, device_cache="16MiB", host_cache="16MiB", disk=0).close()


@by_library
def test_a_device_by_name(disk: Path, make: Any) -> None:
    lib = make()
    with open_gpu(disk, device="cuda:0") as store:
        assert store.stats()["settings"].startswith("cuda:0")
        store.checkpoint(0, lib.full(10, 1))
        assert lib.same(store.restore(0), 1)
    with pytest.raises(ebbtide.Unsupported, match="99"):
        open_gpu(disk, device="cuda:99")
    with pytest.raises(ebbtide.InvalidArgument, match="cuda:N"):
        open_gpu(disk, device="gpu")
