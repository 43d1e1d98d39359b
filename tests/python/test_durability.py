"""A persistent store: what survives, which levels there are, what is refused."""

from __future__ import annotations

import ctypes
import logging
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from kept_support import CACHES, content, flip, kept, levels, looked_at, payload_of, same

import ebbtide


@levels
def test_what_was_written_is_there_after_closing(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        assert store.latest() is None and store.versions() == []
        for version in range(20):  # more than the caches hold
            store.checkpoint(version, content(version))
        store.history("adjoint").checkpoint(-7, {"only": np.arange(5)})
    with kept(disk, level, device_cache=0, host_cache="1MiB") as store:  # other tiers
        assert store.latest() == 19 and store.latest(at_most=7) == 7 and store.latest("", 100) == 19
        assert store.versions() == list(range(20)) == store.versions("")
        out = content(99)
        for version in (19, 3, 19):  # nothing is consumed from a store that is kept
            assert same(store.restore(version), version)
            assert store.restore(version, out=out) is out and same(out, version)
        assert same(store.restore_async(4).result(), 4)
        assert store.versions() == list(range(20))
        history = store.history("adjoint")
        assert history.latest() == -7 == store.latest("adjoint") and history.latest(at_most=-8) is None
        assert store.versions("adjoint") == [-7] and store.versions("nobody") == [] and store.latest("nobody") is None
        assert (history.restore(-7)["only"] == np.arange(5)).all()
        store.checkpoint(20, content(20))
        assert store.latest() == 20  # of this process too
        with pytest.raises(ebbtide.VersionExists):
            store.checkpoint(3, content(3))
        store.drop(19)
        store.drop(20)
    with looked_at(disk) as store:
        assert store.latest() == 18 and store.versions() == list(range(19))


@levels
def test_levels_of_waits_and_of_futures(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        future = store.checkpoint(1, content(1))
        assert isinstance(future.done(level), bool)
        future.wait(level, timeout=60)
        assert future.done(level) and future.done("process") and future.done("local") and future.done("ephemeral")
        store.checkpoint(2, content(2))
        store.wait(level)
        store.wait(level, 2, timeout=60)
        store.wait("process", timeout=60)
        if level == "process":
            for ask in (store.wait, future.wait, future.done):
                with pytest.raises(ebbtide.Unsupported, match='"storage".*durability is "process"'):
                    ask("storage")
        for ask in (store.wait, future.wait, future.done):
            with pytest.raises(ebbtide.InvalidArgument, match="moon"):
                ask("moon")
        with pytest.raises(ebbtide.UnknownVersion):
            store.wait(level, 3)


def test_an_ephemeral_store_refuses_by_name_what_only_a_kept_one_can(store: ebbtide.Store, disk: Path) -> None:
    store.checkpoint(1, content(1))
    with pytest.raises(ebbtide.Unsupported, match="ephemeral"):
        store.latest()
    with pytest.raises(ebbtide.Unsupported, match="ephemeral"):
        store.history("x").latest(at_most=3)
    for level in ("storage", "process"):
        with pytest.raises(ebbtide.Unsupported, match=f'"{level}".*ephemeral'):
            store.wait(level)
    for options in ({"keep_last": 2}, {"keep_last": 2, "durability": "ephemeral"}, {"keep_last": 2, "readonly": True}):
        with pytest.raises(ebbtide.Unsupported, match="keep_last.*durability"):
            ebbtide.open(disk, **options)


@levels
def test_a_kept_store_is_not_opened_ephemerally(disk: Path, level: str) -> None:
    with kept(disk, level) as store:
        store.checkpoint(1, content(1))
    for durability in (None, "ephemeral"):
        with pytest.raises(ebbtide.InvalidArgument, match="durability"):
            ebbtide.open(disk / "kept", durability=durability, **CACHES)  # type: ignore[arg-type]
    with looked_at(disk) as store:
        assert store.latest() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durability": "forever"}, '"ephemeral", "process", "node", "storage"'),
        ({"durability": 3}, '"ephemeral", "process", "node", "storage"'),
        ({"readonly": 7}, "readonly"),
        ({"keep_last": -1}, "keep_last"),
        ({"keep_last": 1.5}, "keep_last=1.5.*number of versions"),
        ({"keep_every": 3, "durability": "process"}, "keep_last"),
        ({"verify": "some"}, '"files", "all"'),
        ({"readonly": True, "durability": "ephemeral"}, "readonly"),
        ({"durability": "storage", "disk": 0}, "disk"),
    ],
)
def test_a_wrong_option_of_a_kept_store_names_what_would_be_right(disk: Path, options: dict, words: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=words):
        ebbtide.open(disk / "kept", **options)
    assert not (disk / "kept").exists()


def test_a_kept_store_has_a_directory_of_its_own(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EBBTIDE_DIR", raising=False)
    with pytest.raises(ebbtide.InvalidArgument, match="directory"):
        ebbtide.open(durability="process", **CACHES)
    (disk / "thesis.tex").write_text("all my work")
    with pytest.raises(ebbtide.NotAStore, match=str(disk)):
        ebbtide.open(disk, durability="process", **CACHES)
    assert os.listdir(disk) == ["thesis.tex"]
    with pytest.raises(ebbtide.Error, match="missing"):
        ebbtide.open(disk / "missing", readonly=True, **CACHES)
    assert os.listdir(disk) == ["thesis.tex"]


def test_files_are_for_their_owner_alone(disk: Path) -> None:
    with kept(disk) as store:
        store.checkpoint(1, content(1))
        store.wait("storage")
        assert (disk / "kept").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (disk / "kept").iterdir()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (disk / "kept").iterdir()} == {0o600}


@levels
def test_retention_never_takes_the_last_durable_version(disk: Path, level: str) -> None:
    with kept(disk, level, keep_last=2, keep_every=5) as store:
        other = store.history("other")
        other.checkpoint(1, content(1))
        for version in range(1, 14):
            store.checkpoint(version, content(version))
            assert version in store.versions()
            store.wait(level)
            assert store.latest() == version
        assert store.versions() == [5, 10, 12, 13] and other.versions() == [1]
    with looked_at(disk) as store:
        assert store.versions() == [5, 10, 12, 13] and store.versions("other") == [1]
        assert all(same(store.restore(version), version) for version in store.versions())


def test_reading_beside_the_writer(disk: Path) -> None:
    with kept(disk) as store, looked_at(disk) as reader:
        assert reader.latest() is None
        for version in range(5):
            store.checkpoint(version, content(version))
            store.wait("storage")
            assert reader.latest() == version and reader.versions() == list(range(version + 1))
            assert same(reader.restore(version), version)
        for call in (
            lambda: reader.checkpoint(9, content(9)),
            lambda: reader.drop(1),
            lambda: reader.drop(),
            lambda: reader.reserve(9, 10),
        ):
            with pytest.raises(ebbtide.Unsupported, match="readonly"):
                call()
        with reader.history("x"):  # leaving it drops nothing: nothing is refused either
            pass
        assert store.versions() == list(range(5))


def test_leaving_the_block_of_a_history_drops_nothing_that_is_kept(disk: Path) -> None:
    with kept(disk) as store:
        with store.history("a") as history:
            history.checkpoint(1, content(1))
        assert store.versions("a") == [1]
        with pytest.raises(ZeroDivisionError), store.history("a") as history:
            raise ZeroDivisionError
        assert store.versions("a") == [1]
        history.drop()
        assert store.versions("a") == []


def test_what_is_damaged_is_passed_over_with_a_warning_and_refused_by_name(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kept(disk) as store:
        for version in (1, 2, 3):
            store.checkpoint(version, content(version))
    path, offset = payload_of(disk, 3)
    flip(path, offset + 1000)
    with kept(disk) as store:
        assert store.versions() == [1, 2, 3]
        caplog.clear()
        with pytest.warns(ebbtide.DamagedWarning, match=rf"{path.name}.*offset \d+") as seen:
            assert store.latest() == 2
        assert len(seen) == 1 and seen[0].filename == __file__
        told = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(told) == 1 and path.name in told[0].getMessage()
        out = content(0)
        for read in (
            lambda: store.restore(3),
            lambda: store.restore(3, out=out),
            lambda: store.restore_async(3).result(),
        ):
            with pytest.raises(ebbtide.Damaged, match=path.name) as caught:
                read()
            assert caught.value.reason == "damaged" and isinstance(caught.value, OSError)
        assert same(store.restore(2), 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ebbtide.DamagedWarning)
            assert store.latest(at_most=2) == 2
    with kept(disk) as store, warnings.catch_warnings():
        warnings.simplefilter("error", ebbtide.DamagedWarning)  # a program that would rather stop than go back
        with pytest.raises(ebbtide.DamagedWarning):
            store.latest()


def test_damage_that_opening_finds_is_warned_of_where_it_is_opened(disk: Path) -> None:
    with kept(disk) as store:
        store.checkpoint(1, content(1))
        store.wait("storage")
        store.checkpoint(2, content(2))
    path, offset = payload_of(disk, 2)
    (disk / "kept" / "index").unlink()
    flip(path, offset - 4096 + 600)  # in the body of its header
    with pytest.warns(ebbtide.DamagedWarning, match=path.name) as seen:
        store = kept(disk)
    assert seen[0].filename.endswith("kept_support.py")
    with store:
        assert store.latest() == 1 and same(store.restore(1), 1)


def test_log_lines_go_where_the_environment_says(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    with kept(disk) as store:
        store.checkpoint(1, content(1))
    path, offset = payload_of(disk, 1)
    flip(path, offset)
    for level, told in (("info", ["open: ", "warning: "]), ("off", [])):
        monkeypatch.setenv("EBBTIDE_LOG", level)
        with kept(disk) as store, pytest.warns(ebbtide.DamagedWarning):
            assert store.latest() is None
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == len(told) and all(
            line.startswith("ebbtide: " + begin) for line, begin in zip(lines, told, strict=True)
        )


def test_a_store_has_one_durability_for_its_whole_life(disk: Path) -> None:
    for level, other in (("process", "storage"), ("storage", "process")):
        with ebbtide.open(disk / level, durability=level, **CACHES) as store:  # type: ignore[arg-type]
            store.checkpoint(1, content(1))
        with pytest.raises(ebbtide.InvalidArgument, match=f'durability "{level}", not "{other}"'):
            ebbtide.open(disk / level, durability=other, **CACHES)  # type: ignore[arg-type]
        with ebbtide.open(disk / level, readonly=True, **CACHES) as store:  # at its own
            store.wait(level)
            assert same(store.restore(1), 1)


def test_ephemeral_stores_share_a_directory(disk: Path) -> None:
    (disk / "thesis.tex").write_text("all my work")
    with ebbtide.open(disk, **CACHES) as one, ebbtide.open(disk, **CACHES) as other:
        for store, shift in ((one, 0), (other, 100)):
            for version in range(20):
                store.checkpoint(version, content(version + shift))
        for store, shift in ((one, 0), (other, 100)):
            assert all(same(store.restore(version), version + shift) for version in range(20))
        assert os.listdir(disk) == ["thesis.tex"]


def corrupt(store: ebbtide.Store, version: int) -> None:
    """Changes a byte of a checkpoint in memory, as a memory fault would."""
    loan = store.borrow(version, keep=True)
    address = loan.arrays["x"].ctypes.data + 1000
    ctypes.c_ubyte.from_address(address).value ^= 4
    loan.release(keep=True)


@pytest.mark.parametrize("level", ["ephemeral", "process", "storage"])
def test_a_bit_that_flips_in_memory_is_not_looked_for_if_not_asked_for(disk: Path, level: str) -> None:
    (disk / "store").mkdir()
    with ebbtide.open(disk / "store", durability=level, verify="files", **CACHES) as store:  # type: ignore[arg-type]
        store.checkpoint(1, content(1))
        store.wait("local", timeout=60)  # no read is in progress
        corrupt(store, 1)
        assert not same(store.restore(1, keep=True), 1)


def test_a_bit_that_flips_in_memory_is_found_if_asked_for(disk: Path) -> None:
    with ebbtide.open(disk, verify="all", **CACHES) as store:
        store.checkpoint(1, content(1))
        store.wait("local", timeout=60)
        corrupt(store, 1)
        with pytest.raises(ebbtide.Damaged, match="version 1"):
            store.restore(1, keep=True)


@levels
def test_a_bit_that_flips_in_memory_is_mended_from_the_files(
    disk: Path, level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("EBBTIDE_LOG", raising=False)
    with kept(disk, level, verify="all") as store:
        store.checkpoint(1, content(1))
        store.wait(level, timeout=60)
        corrupt(store, 1)
        caplog.clear()
        assert same(store.restore(1, keep=True), 1)
        told = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
        assert len(told) == 1 and "version 1" in told[0] and "restored from the files" in told[0]
        path, at = payload_of(disk, 1)
        flip(path, at + 5000)  # nor are those right any more
        with pytest.raises(ebbtide.Damaged, match="version 1"):
            store.restore(1, keep=True)
