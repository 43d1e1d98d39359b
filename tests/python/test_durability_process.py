"""However a process ends, what was reported durable is there, and no incomplete version is ever offered.

Each test runs programs of its own: one that ends as its name says, and this one, which opens what that left.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from kept_support import content, kept, levels, looked_at, program, run, same, segments

import ebbtide

WRITE = """
with kept(directory, level) as store:
    for version in range(10):
        store.checkpoint(version, content(version))
    {end}
"""


def whole(directory: Path) -> list[int]:
    """The versions that the next process has: each is offered only if it is the very bytes."""
    with looked_at(directory) as store:
        versions = store.versions()
        assert all(same(store.restore(version), version) for version in versions)
        assert store.latest() == (versions[-1] if versions else None)
    return versions


@levels
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("raise ZeroDivisionError", 1),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    ],
    ids=["end", "exception", "exit", "interrupt"],
)
def test_leaving_the_block_keeps_all_of_it(disk: Path, level: str, end: str, status: int) -> None:
    done = run(disk, level, WRITE.format(end=end))
    assert done.returncode == status, done.stderr
    assert whole(disk) == list(range(10))


@levels
def test_a_store_that_is_open_when_the_interpreter_ends_is_closed_first(disk: Path, level: str) -> None:
    body = """
    store = kept(directory, level)
    store.checkpoint(1, content(1))
    raise SystemExit(0)
    """
    assert run(disk, level, body).returncode == 0
    assert whole(disk) == [1]


@levels
def test_a_signal_that_a_program_takes_as_its_end_drains(disk: Path, level: str) -> None:
    """Python leaves SIGTERM to the system, which ends the process at once: this is how a program has it drain."""
    body = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with kept(directory, level) as store:
        for version in range(10):
            store.checkpoint(version, content(version))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    assert run(disk, level, body).returncode == 143
    assert whole(disk) == list(range(10))


KILLED = """
with kept(directory, level, **{options}) as store:
    first = 0 if store.latest() is None else store.latest() + 1
    futures = {{}}
    for version in range(first, 1000000):
        futures[version] = store.checkpoint(version, content(version), timeout=None)
        if version % 7 == 3:
            store.wait(level)
        for known in [known for known in futures if futures[known].done(level)]:
            futures.pop(known)
            print(known, flush=True)
"""


@levels
@pytest.mark.parametrize("options", [{}, {"keep_last": 3}], ids=["all", "retention"])
def test_kill_9_loses_nothing_that_was_reported(disk: Path, level: str, options: dict) -> None:
    """Killed as soon as it has reported that many, at any point; each run continues where the last one ended."""
    reported: set[int] = set()
    for lines in (1, 4, 9, 2, 30, 5, 17, 3):
        with subprocess.Popen(
            program(disk, level, KILLED.format(options=options)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout and child.stderr
            for _ in range(lines):
                line = child.stdout.readline()
                assert line, child.stderr.read()
                reported.add(int(line))
            child.kill()
            rest = child.stdout.read()  # by the same buffer, which may hold the beginning of a line
            child.wait(timeout=60)
            # What was printed before the kill came was reported too; the last line may be cut.
            reported |= {int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")}
            assert child.returncode == -signal.SIGKILL
        versions = whole(disk)
        if options:
            assert versions[-1] >= max(reported) and len(versions) >= min(3, len(reported))
        else:
            assert reported <= set(versions)


@levels
@pytest.mark.parametrize(
    "end",
    ["os._exit(5)", "os.abort()", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"],
    ids=["exit", "abort", "terminate"],
)
def test_an_end_without_closing_keeps_what_was_waited_for(disk: Path, level: str, end: str) -> None:
    body = f"""
    store = kept(directory, level)
    for version in range(10):
        store.checkpoint(version, content(version))
    store.wait(level)
    store.checkpoint(10, content(10))
    {end}
    """
    assert run(disk, level, body).returncode != 0
    assert whole(disk)[:10] == list(range(10))


def test_kill_9_of_an_ephemeral_store_leaves_nothing(disk: Path) -> None:
    body = """
    store = ebbtide.open(directory, device_cache="256KiB", host_cache=0, disk="16MiB")
    for version in range(20):
        store.checkpoint(version, content(version))
    store.wait("local")
    os.kill(os.getpid(), 9)
    """
    assert run(disk, "ephemeral", body).returncode == -signal.SIGKILL
    assert os.listdir(disk) == []


@pytest.mark.parametrize("end", ["raise ZeroDivisionError", "sys.exit(1)"])
def test_an_ephemeral_store_ends_with_its_process(disk: Path, end: str) -> None:
    body = f"""
    with ebbtide.open(directory, device_cache="256KiB", host_cache=0, disk="16MiB") as store:
        store.checkpoint(1, content(1))
        {end}
    """
    assert run(disk, "ephemeral", body).returncode == 1
    assert os.listdir(disk) == []


@levels
def test_two_processes_do_not_write_one_store(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
        store.wait(level)
        done = run(disk, level, "kept(directory, level)")
        assert "ebbtide.errors.InUse" in done.stderr and str(os.getpid()) in done.stderr
        with pytest.raises(ebbtide.InUse):  # nor does one process twice
            kept(disk, level)
    assert whole(disk) == [1]


@levels
def test_a_lock_dies_with_its_process(disk: Path, level: str) -> None:
    body = """
    store = kept(directory, level)
    store.checkpoint(1, content(1))
    store.wait(level)
    os.kill(os.getpid(), 9)
    """
    assert run(disk, level, body).returncode == -signal.SIGKILL
    with kept(disk, level) as store:
        assert store.latest() == 1


@levels
def test_a_fork_can_neither_write_nor_close_its_parents_store(disk: Path, level: str) -> None:
    body = """
    store = kept(directory, level)
    store.checkpoint(1, content(1))
    child = os.fork()
    if child == 0:
        for call in (store.latest, store.versions, lambda: store.wait(level), lambda: store.checkpoint(2, content(2))):
            try:
                call()
            except ebbtide.Unsupported as error:
                assert "forked" in str(error), error
            else:
                os._exit(3)
        sys.exit(0)                     # runs the exit handlers
    assert os.waitpid(child, 0)[1] == 0
    store.checkpoint(2, content(2))
    store.close()
    print("whole")
    """
    done = run(disk, level, body)
    assert done.stdout == "whole\n", done.stderr
    assert whole(disk) == [1, 2]


@levels
def test_an_interrupt_ends_a_wait_and_nothing_else(disk: Path, level: str) -> None:
    """The wait cannot end by itself: there is room for what it waits for only when something is dropped."""
    body = """
    store = kept(directory, level, device_cache=0, host_cache="64KiB", disk="256KiB")
    written = 0
    try:
        while True:
            store.checkpoint(written, content(written))
            written += 1
            store.wait(level)
    except ebbtide.NoSpace:
        pass
    late = threading.Thread(target=store.checkpoint, args=(1000, content(1000)), kwargs={"timeout": None})
    late.start()
    def interrupt():
        while store.calls_inside < 2: time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    second = threading.Thread(target=interrupt)
    second.start()
    try:
        while True:
            try:
                store.wait(level, 1000)
            except ebbtide.UnknownVersion:      # the other thread is not there yet
                time.sleep(0.001)
            else:
                sys.exit("no call was interrupted")
    except KeyboardInterrupt:
        store.drop(0)                           # one for each that has no room on the disk
        store.drop(1)
        late.join()
        store.wait(level, 1000)
        store.close()
        print(written)
    """
    done = run(disk, level, body)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 4 and whole(disk) == [*range(2, int(done.stdout)), 1000]


def test_every_version_of_a_store_lies_in_few_files(disk: Path) -> None:
    with kept(disk) as store:
        for version in range(200):
            store.checkpoint(version, content(version, 1000))
    assert len(segments(disk)) == 1 and whole_small(disk) == 200


def whole_small(directory: Path) -> int:
    with looked_at(directory) as store:
        return sum(same(store.restore(version), version, 1000) for version in store.versions())
