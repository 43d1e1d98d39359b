"""A job that must go is suspended: real processes, signalled for real, by hand and by ``ebbtide suspend``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import commands_support
from kept_support import content, kept, levels, looked_at, program, run, same

import ebbtide

# Writes a version after the other, and says which; goes on where an earlier process was suspended.
JOB = """
store = kept(directory, level, **{options})
resumed = store.suspended
if resumed:
    store.clear_suspended()
newest = store.latest()
store.suspend_on(signal.SIGTERM, within={within})
print("ready", resumed is not None, newest, flush=True)
version = -1 if newest is None else newest
try:
    while True:
        version += 1
        store.checkpoint(version, content(version))
        print(version, flush=True)
        time.sleep({pause})
except ebbtide.Suspended:
    sys.exit(0)
"""


def job(disk: Path, level: str, within: float = 60, pause: float = 0.001, **options: Any) -> subprocess.Popen[str]:
    body = JOB.format(within=within, pause=pause, options=options)
    return subprocess.Popen(program(disk, level, body), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate()[1]
    return line


@levels
def test_a_job_is_suspended_and_started_again_until_it_is_done(disk: Path, level: str) -> None:
    last = None
    for start in range(3):
        process = job(disk, level)
        assert line_of(process) == f"ready {start > 0} {last}"
        for _ in range(5):
            written = int(line_of(process))
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        written = int(([str(written)] + process.stdout.read().split())[-1])  # to its end
        assert process.wait(60) == 0, process.communicate()[1]
        with looked_at(disk) as store:
            assert store.suspended is not None
            assert store.versions() == list(range(written + 1))
            assert all(same(store.restore(version), version) for version in store.versions())
            last = store.latest()


def test_a_handler_of_python_runs_and_its_exception_ends_the_program(disk: Path) -> None:
    body = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    with kept(directory, level) as store:
        store.suspend_on(signal.SIGTERM)
        store.checkpoint(1, content(1))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    done = run(disk, "storage", body)
    assert done.returncode == 7, done.stderr
    with looked_at(disk) as store:
        assert store.suspended is not None and store.versions() == [1]


def test_a_handler_of_python_runs_while_a_call_waits_for_the_drain(disk: Path) -> None:
    body = """
    ran = []
    signal.signal(signal.SIGTERM, lambda *_: ran.append(threading.current_thread() is threading.main_thread()))
    with kept(directory, level) as store:
        store.suspend_on(signal.SIGTERM)
        store.checkpoint(1, content(1))
        os.kill(os.getpid(), signal.SIGTERM)
        for call in (lambda: store.hint([1]), lambda: store.checkpoint(2, content(2)), store.check_suspended):
            try:
                call()
            except ebbtide.Suspended as error:
                assert error.reason == "suspended" and "SIGTERM" in str(error)
            else:
                raise AssertionError("it is not suspended")
        assert ran == [True] and store.versions() == [1]
    os.kill(os.getpid(), signal.SIGTERM)
    assert ran == [True, True], "the handler is back when the store is closed"
    """
    done = run(disk, "storage", body)
    assert done.returncode == 0, done.stderr


def test_children_still_die_of_the_signal(disk: Path) -> None:
    body = """
    import multiprocessing
    with kept(directory, level) as store:
        store.suspend_on(signal.SIGTERM)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join()
        assert child.exitcode == -signal.SIGTERM
        store.checkpoint(1, content(1))
        assert store.suspended is None
    """
    done = run(disk, "storage", body)
    assert done.returncode == 0, done.stderr


def test_it_works_in_a_nodes_pool(disk: Path) -> None:
    options = {"node_pool": "8MiB", "host_cache": None}
    process = job(disk, "node", **options)
    assert line_of(process) == "ready False None"
    for _ in range(5):
        line_of(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, process.communicate()[1]
    process = job(disk, "node", **options)
    assert line_of(process).startswith("ready True ")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, process.communicate()[1]


def test_snapshots_in_flight_are_there_too(disk: Path) -> None:
    body = """
    with kept(directory, level) as store:
        field = np.zeros(1 << 14)
        store.protect(field)
        store.suspend_on(signal.SIGTERM)
        for version in range(5):
            field[:] = version
            store.snapshot(version)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            store.snapshot(5)
        except ebbtide.Suspended:
            os._exit(0)
    """
    done = run(disk, "storage", body)
    assert done.returncode == 0, done.stderr
    with looked_at(disk) as store:
        assert store.suspended is not None and store.versions() == list(range(5))
        assert all((store.restore(version) == version).all() for version in range(5))


def test_killed_while_it_drains_a_mark_proves_that_all_is_there(disk: Path) -> None:
    """Killed at a random time after the signal; once it is left to end. What was written before the signal is there if the mark
    is."""
    chance = random.Random(7)
    marks = 0
    for trial in range(12):
        place = disk / str(trial)
        place.mkdir()
        process = job(place, "storage")
        line_of(process)
        written = max(int(line_of(process)) for _ in range(20))
        process.send_signal(signal.SIGTERM)
        if trial:
            time.sleep(chance.random() * 0.02)
            process.kill()
        process.communicate()
        with kept(place) as store:
            marked = store.suspended is not None
            marks += marked
            versions = store.versions()
            assert all(same(store.restore(version), version) for version in versions)
            assert not marked or set(range(written + 1)) <= set(versions)
            store.checkpoint(1000, content(1))
    assert 0 < marks, "no trial came as far as a mark"


def test_past_its_time_the_next_call_says_so_and_the_program_goes_on(disk: Path) -> None:
    body = """
    with kept(directory, level) as store:
        store.checkpoint(1, content(1))
        store.wait("storage")
        store.suspend_on(signal.SIGTERM, within=1e-9)
        store.checkpoint(2, content(2))
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            store.checkpoint(3, content(3))
        except ebbtide.TimedOut as error:
            assert "SIGTERM came" in str(error)
        else:
            raise AssertionError("it was in time")
        assert store.suspended is None
        store.checkpoint(3, content(3))
    """
    done = run(disk, "storage", body)
    assert done.returncode == 0, done.stderr
    with looked_at(disk) as store:
        assert store.suspended is None
        assert [same(store.restore(version), version) for version in store.versions()] == [True] * 3


def test_a_disk_that_is_full_leaves_no_mark(disk: Path) -> None:
    body = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = kept(directory, level)
    store.checkpoint(1, content(1))
    store.wait("storage")
    store.suspend_on(signal.SIGTERM, within=60)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    store.checkpoint(2, content(2))
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        store.checkpoint(3, content(3))
    except (ebbtide.NoSpace, ebbtide.IOFailed) as error:
        assert "could not be suspended" in str(error)
    else:
        raise AssertionError("it was written")
    os._exit(0)
    """
    done = run(disk, "storage", body)
    assert done.returncode == 0, done.stderr
    with looked_at(disk) as store:
        assert store.suspended is None and store.versions() == [1] and same(store.restore(1), 1)


def test_a_store_without_a_mark_reads_as_before(disk: Path) -> None:
    with kept(disk) as store:
        store.checkpoint(1, content(1))
        assert store.suspended is None
        store.clear_suspended()  # of nothing
    with looked_at(disk) as store:
        assert store.suspended is None and store.histories() == [""]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"signal": signal.SIGKILL}, "signal=9"),
        ({"signal": "TERM"}, "signal='TERM'"),
        ({"signal": signal.SIGTERM, "within": -1.0}, "within=-1"),
        ({"signal": signal.SIGTERM, "level": "disk"}, 'level="disk"'),
    ],
)
def test_a_wrong_argument_is_named(disk: Path, arguments: dict[str, Any], wrong: str) -> None:
    with kept(disk) as store, pytest.raises(ebbtide.InvalidArgument, match=wrong):
        store.suspend_on(**arguments)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("by_process", [True, False])
def test_the_command_suspends_a_program_that_makes_no_call(disk: Path, by_process: bool) -> None:
    body = """
    store = kept(directory, level)
    store.suspend_on(signal.SIGTERM)
    store.checkpoint(1, content(1))
    print("ready", flush=True)
    time.sleep(300)
    """
    with subprocess.Popen(program(disk, "storage", body), stdout=subprocess.PIPE, text=True) as process:
        line_of(process)
        where = str(process.pid) if by_process else str(disk / "kept")
        done = commands_support.run("suspend", where, "--json")
        assert done.code == 0, done.err
        document = done.json
        assert document["process"] == process.pid and document["running"]
        assert [row["store"] for row in document["stores"]] == [str(disk / "kept")]
        process.kill()
    with looked_at(disk) as store:
        assert store.suspended == pytest.approx(document["stores"][0]["suspended_ns"] * 1e-9)
        assert same(store.restore(1), 1)
    done = commands_support.run("ls", str(disk / "kept"), "--json")
    assert done.json["suspended"]
    assert "suspended at" in commands_support.run("ls", str(disk / "kept")).out


def test_the_command_kills_nobody_who_does_not_listen(disk: Path) -> None:
    body = "store = kept(directory, level); print('ready', flush=True); time.sleep(300)"
    with subprocess.Popen(program(disk, "storage", body), stdout=subprocess.PIPE, text=True) as process:
        line_of(process)
        done = commands_support.run("suspend", str(process.pid))
        assert done.code == 2 and "does not catch SIGTERM" in done.err
        assert process.poll() is None
        process.kill()
    done = commands_support.run("suspend", str(disk / "kept"))
    assert done.code == 2 and "no process of this machine" in done.err
    done = commands_support.run("suspend", str(os.getpid()))
    assert done.code == 2 and "writes no store" in done.err
    done = commands_support.run("suspend", str(disk / "kept"), "--signal", "NONE")
    assert done.code == 2 and "--signal=NONE" in done.err


def test_the_command_names_a_store_that_is_not_suspended_in_time(disk: Path) -> None:
    body = """
    store = kept(directory, level)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(3))   # a program of another mind
    print("ready", flush=True)
    time.sleep(300)
    """
    with subprocess.Popen(program(disk, "storage", body), stdout=subprocess.PIPE, text=True) as process:
        line_of(process)
        done = commands_support.run("suspend", str(process.pid))
    assert done.code == 1 and "ended without a mark" in done.out, done
