"""What ls, verify, export and gc refuse, and how they behave beside a writer, a terminal and a signal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from ebbtide import _core

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import OK, REFUSED, SEGMENT, Writer, healthy, run, tree
from ebbtide.commands import progress
from ebbtide.commands.store import time_text

LOOKING = ("ls", "verify")
COMMANDS = (*LOOKING, "export", "gc")


def arguments(command: str, directory: pathlib.Path, tmp_path: pathlib.Path) -> list[object]:
    return [command, directory, *(["--to", tmp_path / "out"] if command == "export" else [])]


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(command: str, directory: pathlib.Path, tmp_path: pathlib.Path, reason: str, match: str) -> None:
    done = run(*arguments(command, directory, tmp_path))
    assert done.code == REFUSED, (command, done)
    assert done.out == ""
    assert done.err.startswith("ebbtide: ")
    assert done.err.count("\n") == 1
    assert match in done.err
    document = run(*arguments(command, directory, tmp_path), "--json")
    assert document.code == REFUSED
    assert document.json == {"error": {"reason": reason, "message": document.err[len("ebbtide: ") : -1]}}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_store(command: str, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    refused(command, other, tmp_path, "not_a_store", "there is no store in it")
    (other / "thesis.txt").write_text("mine")
    refused(command, other, tmp_path, "not_a_store", "thesis.txt")
    refused(command, other / "thesis.txt", tmp_path, "not_a_store", "not a directory")
    refused(command, tmp_path / "nowhere", tmp_path, "not_a_store", "no such directory")
    assert not (tmp_path / "nowhere").exists()
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_newer_format(command: str, tmp_path: pathlib.Path) -> None:
    store = Writer(tmp_path / "store", form=2).write()
    before = tree(store)
    refused(command, store, tmp_path, "unsupported", "format 2")
    assert tree(store) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_links_are_not_followed(command: str, tmp_path: pathlib.Path) -> None:
    writer, _ = healthy(tmp_path / "store")
    store = writer.write()
    (tmp_path / "link").symlink_to(store)
    refused(command, tmp_path / "link", tmp_path, "not_permitted", "symbolic link")
    (store / SEGMENT).rename(tmp_path / "elsewhere")
    (store / SEGMENT).symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)
    refused(command, store, tmp_path, "not_permitted", "symbolic link")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_what_others_may_write_to(command: str, tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    (store / SEGMENT).chmod(0o622)
    refused(command, store, tmp_path, "not_permitted", "other users may write to it")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("command", COMMANDS)
def test_somebody_elses(command: str, tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    os.chown(store, 4711, 4711)
    refused(command, store, tmp_path, "not_permitted", "belongs to user 4711")
    os.chown(store, 0, 0)
    os.chown(store / SEGMENT, 4711, 4711)
    refused(command, store, tmp_path, "not_permitted", "belongs to user 4711")


@pytest.mark.parametrize("command", LOOKING)
def test_a_directory_that_cannot_be_written_to_is_looked_at(command: str, tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    for path in store.iterdir():
        path.chmod(0o400)
    store.chmod(0o500)
    try:
        assert run(command, store).code == OK
    finally:
        store.chmod(0o700)


# --- beside others ----------------------------------------------------------------------------------------------------


def test_looking_takes_no_lock_and_minds_none(tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    (store / "lock").write_text("process 1 on here\n")
    (store / "lock").chmod(0o600)
    with (store / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = tree(store)
        for command in ("ls", "verify", "export"):
            assert run(*arguments(command, store, tmp_path)).code == OK
        for options in ([], ["--dry-run"]):
            done = run("gc", store, *options)
            assert done.code == REFUSED
            assert "open for writing" in done.err
            assert run("gc", store, "--json", *options).json["error"]["reason"] == "in_use"
        assert tree(store) == before


def test_what_is_dropped_between_the_look_and_the_reading_is_no_damage(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    store = writer.write()
    seen = _core.Inspection.of(store)
    writer.drop(records["last"])
    last = records["last"]
    writer.segment(2)[last.payload_offset : last.payload_offset + 4096] = bytes(4096)
    writer.write()
    assert [one["verdict"] for one in seen.verify()] == ["intact", "intact", "intact", "gone"]


def test_no_bar_where_nobody_looks_and_one_where_somebody_does(tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    command = [sys.executable, "-c", "from ebbtide.cli import main; main()", "verify", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "FORCE_COLOR": "1"})
    assert (done.returncode, done.stderr) == (OK, "")
    leader, follower = os.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True) as process:
        out, _ = process.communicate(timeout=60)
    os.close(follower)
    seen = b""
    try:
        while piece := os.read(leader, 65536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert b"verify" in seen
    assert out == "3 checkpoints intact, 24.42 KiB\n"


def test_what_a_signal_raises_ends_the_reading(tmp_path: pathlib.Path) -> None:
    seen = _core.Inspection.of(healthy(tmp_path / "store")[0].write())
    heard = []

    def interrupt(done: int) -> None:
        heard.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seen.verify(interrupt, 1)
    assert len(heard) == 1
    assert [one["verdict"] for one in seen.verify()] == ["intact"] * 4


def test_ctrl_c_ends_the_command_with_130(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def interrupted(description: str, total: int | None):
        yield lambda done: signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress, "bar", interrupted)
    store = healthy(tmp_path / "store")[0].write()
    done = run("verify", store, "--json")
    assert done.code == 130
    assert done.json == {"error": {"reason": "interrupted", "message": "interrupted"}}
    assert done.err == "ebbtide: interrupted\n"


def test_times_that_no_calendar_has() -> None:
    for ns in (2**63 - 1, -(2**63), 10**20):
        text = time_text(ns)
        assert text is None or text.endswith("Z")
