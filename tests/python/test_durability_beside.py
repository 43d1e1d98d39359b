"""A persistent store and other processes: concurrent readers, surviving children, and files removed from outside."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import commands_support
import pytest
from kept_support import KIB, content, kept, levels, looked_at, program, run, same, segments

import ebbtide

# --- who has the lock -------------------------------------------------------------------------------------------------

FORKS = {  # each goes on once the child runs: until then that has yet to let go of what it inherited
    "fork": "there, told = os.pipe()\nif os.fork() == 0:\n    os.write(told, b'.')\n    signal.pause()\nos.read(there, 1)",
    "pool": "import multiprocessing\npool = multiprocessing.get_context('fork').Pool(1)\npool.apply(os.getpid)",
}
forks = pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)


def lives_on(disk: Path, level: str, body: str) -> subprocess.Popen[str]:
    """A program of a session of its own, so that its children can be ended with it; it has said "ready"."""
    process = subprocess.Popen(
        program(disk, level, body), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@levels
@forks
def test_a_store_that_was_closed_is_free_while_a_child_lives(disk: Path, level: str, fork: str) -> None:
    body = "store = kept(directory, level)\n" + fork + "\nstore.close()\nprint('ready', flush=True)\nsys.stdin.read()"
    process = lives_on(disk, level, body)
    try:
        with kept(disk, level) as store:
            store.checkpoint(1, content(1))
    finally:
        end(process)


@levels
@forks
def test_a_child_holds_nothing_for_a_dead_writer(disk: Path, level: str, fork: str) -> None:
    body = "store = kept(directory, level)\nstore.checkpoint(1, content(1))\nstore.wait(level)\n"
    process = lives_on(disk, level, body + fork + "\nprint('ready', flush=True)\nsys.stdin.read()")
    try:
        process.kill()
        process.wait()
        with kept(disk, level) as store:
            assert same(store.restore(1), 1)
    finally:
        end(process)


@levels
def test_a_child_that_ends_gives_nobody_its_parents_lock(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        for ending in (
            lambda: os._exit(0),
            lambda: (store.__exit__(None, None, None), os._exit(0)),
            lambda: sys.exit(0),
        ):
            child = os.fork()
            if child == 0:
                try:
                    ending()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            assert "InUse" in run(disk, level, "kept(directory, level)").stderr
        store.checkpoint(1, content(1))


@pytest.mark.parametrize("here", [True, False], ids=["same", "other"])
def test_who_is_refused_hears_who_has_it(disk: Path, here: bool) -> None:
    if here:
        with kept(disk), pytest.raises(ebbtide.InUse, match=rf"process {os.getpid()} on .* \(this process\)"):
            kept(disk)
        return
    process = lives_on(disk, "storage", "store = kept(directory)\nprint('ready', flush=True)\nsys.stdin.read()")
    try:
        with pytest.raises(ebbtide.InUse, match=rf"process {process.pid} on .* \(\S*python\S* -c") as caught:
            kept(disk)
        assert str(disk / "kept") in str(caught.value)
    finally:
        end(process)


# --- readers ----------------------------------------------------------------------------------------------------------


def in_another_process(work: Callable[[], object]) -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@levels
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "unread"])
def test_a_reader_restores_what_was_durable_when_it_asked(disk: Path, level: str, cached: bool) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
        store.wait(level)
        with looked_at(disk) as reader:
            for turn in range(2, 6):
                if cached:
                    reader.restore(1)
                store.drop(1)
                store.checkpoint(1, content(turn))
                store.wait(level)
                assert same(reader.restore(1), turn)
                assert same(reader.restore_async(1).result(), turn)
                store.checkpoint(turn, content(turn, KIB))
                store.wait(level)
                assert same(reader.restore(turn), turn, KIB)


@levels
def test_a_reader_goes_with_the_writers_that_follow_each_other(disk: Path, level: str) -> None:
    """One opens the store, writes version 1 again and closes it; also when it dropped it in another process than that."""

    def write(turn: int) -> None:
        with kept(disk, level) as store:
            if 1 in store.versions():
                store.drop(1)
            store.checkpoint(1, content(turn))

    def drop() -> None:
        with kept(disk, level) as store:
            store.drop(1)

    in_another_process(lambda: write(1))
    with looked_at(disk) as reader:
        for turn in range(2, 5):
            reader.restore(1)
            in_another_process(lambda: write(turn))
            assert same(reader.restore(1), turn)
        in_another_process(drop)
        with pytest.raises(ebbtide.UnknownVersion, match="dropped"):
            reader.restore(1)
        assert reader.latest() is None
        in_another_process(lambda: write(9))
        assert same(reader.restore(1), 9) and reader.latest() == 1


# --- files that go ----------------------------------------------------------------------------------------------------


@levels
@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_segment_that_goes_fails_the_next_sync_and_is_missed_from_then_on(disk: Path, level: str, how: str) -> None:
    store = kept(disk, level)
    store.checkpoint(1, content(1))
    store.wait(level)
    (segment,) = segments(disk)
    if how == "replaced":
        shutil.copy(segment, disk / "copy")
        os.replace(disk / "copy", segment)
    else:
        segment.rename(disk / "aside") if how == "renamed" else segment.unlink()
    store.checkpoint(2, content(2))
    with pytest.raises(ebbtide.IOFailed, match=r"segment-00000001\.ebb.*lost with it: version 1"):
        store.wait(level)
    store.checkpoint(3, content(3))  # in a file that has a name
    store.wait(level, 3)
    with pytest.raises(ebbtide.IOFailed, match=r"segment-00000001\.ebb"):
        store.close()
    if how == "replaced":
        return
    assert_missed(disk, "segment-00000001.ebb")
    with pytest.warns(ebbtide.DamagedWarning, match=r"segment-00000001\.ebb.*version 1 of"), looked_at(disk) as reader:
        assert reader.versions() == [3] and same(reader.restore(3), 3)


@levels
def test_an_older_segment_that_goes_fails_the_next_sync_or_the_close(disk: Path, level: str) -> None:
    def fill(directory: Path) -> None:
        with kept(directory, level) as store:
            store.checkpoint(1, content(1))

    for later in (True, False):
        directory = disk / str(later)
        directory.mkdir()
        fill(directory)
        store = kept(directory, level)
        (segment,) = segments(directory)
        store.checkpoint(2, content(2))
        store.wait(level)
        segment.unlink()
        if later:
            store.checkpoint(3, content(3))
            with pytest.raises(ebbtide.IOFailed, match=r"segment-00000001\.ebb.*version 1"):
                store.wait(level)
            store.checkpoint(4, content(4))
            store.wait(level, 4)
        with pytest.raises(ebbtide.IOFailed, match=r"segment-00000001\.ebb.*version 1"):
            store.close()
        with pytest.warns(ebbtide.DamagedWarning, match=r"segment-00000001\.ebb.*version 1 of"):
            reader = looked_at(directory)
        assert reader.versions() == ([2, 4] if later else [2])
        reader.close()


@levels
@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_directory_that_goes_fails_the_next_sync_and_nothing_is_done_to_another(
    disk: Path, level: str, how: str
) -> None:
    place = disk / "kept"
    store = kept(disk, level)
    for version in (1, 2):
        store.checkpoint(version, content(version))
        store.wait(level)
    shutil.rmtree(place) if how == "removed" else place.rename(disk / "aside")
    if how == "replaced":
        with kept(disk, level) as other:
            other.checkpoint(7, content(7))
            other.checkpoint(1, content(8))
    store.drop(1)
    store.checkpoint(3, content(3))
    with pytest.raises(ebbtide.IOFailed, match=f"{place}.*(removed|replaced)"):
        store.wait(level)
    with pytest.raises(ebbtide.IOFailed, match=f"{place}"):
        store.close()
    if how == "replaced":
        with kept(disk, level) as other:
            assert same(other.restore(7), 7) and same(other.restore(1), 8) and other.versions() == [1, 7]


@levels
def test_a_directory_that_was_removed_and_made_anew_is_not_the_store(disk: Path, level: str) -> None:
    """The new one often has the old one's inode."""
    store = kept(disk, level)
    store.checkpoint(1, content(1))
    store.wait(level)
    shutil.rmtree(disk / "kept")
    (disk / "kept").mkdir(0o700)
    store.checkpoint(2, content(2))
    with pytest.raises(ebbtide.IOFailed, match=f"{disk / 'kept'}"):
        store.wait(level)
    with pytest.raises(ebbtide.IOFailed):
        store.close()
    assert os.listdir(disk / "kept") == []


@levels
@pytest.mark.parametrize("call", ["restore", "restore_async", "latest"])
def test_who_writes_is_never_told_that_somebody_dropped_it(disk: Path, level: str, call: str) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
    store = kept(disk, level)
    (segment,) = segments(disk)
    segment.unlink()
    calls = {
        "restore": lambda: store.restore(1),
        "restore_async": lambda: store.restore_async(1).result(),
    }
    if call == "latest":
        with pytest.warns(ebbtide.DamagedWarning, match=rf"{segment.name}.* was removed or changed"):
            assert store.latest() is None
    else:
        with pytest.raises(ebbtide.Damaged, match=rf"{segment.name}.* was removed or changed"):
            calls[call]()
    with pytest.raises(ebbtide.IOFailed):
        store.close()


def assert_missed(disk: Path, name: str) -> None:
    """By the next opening, and by both commands that look, with their exit code."""
    for command in ("ls", "verify"):
        done = commands_support.run(command, disk / "kept")
        assert done.code == commands_support.DAMAGED and name in done.out, (command, done)
    with pytest.warns(ebbtide.DamagedWarning, match=name.replace(".", r"\.")):
        looked_at(disk).close()


@levels
@pytest.mark.parametrize("empty", [False, True], ids=["full", "empty"])
def test_a_segment_that_goes_after_a_close_is_missed_by_all(disk: Path, level: str, empty: bool) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
        store.wait(level)
        if empty:
            store.drop(1)
    (segment,) = segments(disk)
    segment.unlink()
    assert_missed(disk, segment.name)
    with pytest.warns(ebbtide.DamagedWarning, match=segment.name.replace(".", r"\.")):
        store = kept(disk, level)
    with store:
        store.checkpoint(2, content(2))
    assert [path.name for path in segments(disk)] == ["segment-00000002.ebb"]


@levels
def test_the_last_segment_that_goes_after_a_kill_is_missed_by_all(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
    done = run(disk, level, "store = kept(directory, level)\nos.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL
    (segment,) = segments(disk)
    segment.unlink()
    assert_missed(disk, segment.name)


@levels
def test_without_its_store_file_nothing_is_reported_durable(disk: Path, level: str) -> None:
    store = kept(disk, level)
    store.checkpoint(1, content(1))
    store.wait(level)
    (disk / "kept" / "store").unlink()
    store.checkpoint(2, content(2))
    for call in (lambda: store.wait(level), store.close):
        with pytest.raises(ebbtide.IOFailed, match="store: .*removed"):
            call()


@levels
@pytest.mark.parametrize("what", ["directory", "segments"])
def test_a_wait_that_has_nothing_to_write_looks_too(disk: Path, level: str, what: str) -> None:
    store = kept(disk, level)
    store.checkpoint(1, content(1))
    store.wait(level)
    if what == "directory":
        (disk / "kept").rename(disk / "aside")
    else:
        for path in segments(disk):
            path.unlink()
    for call in (lambda: store.wait(level), store.close):
        with pytest.raises(ebbtide.IOFailed, match="removed"):
            call()
