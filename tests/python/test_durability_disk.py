"""Whatever becomes of a store's files, it gives exactly what was written, or says by name that it cannot."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from kept_support import content, flip, kept, levels, looked_at, payload_of, run, same, segments

import ebbtide


def write(directory: Path, level: str, versions: int = 3) -> None:
    with kept(directory, level) as store:
        for version in range(1, versions + 1):
            store.checkpoint(version, content(version))
            store.wait(level)  # so that they lie in order


def copies(directory: Path) -> Path:
    """The store's directory is put back as it is now before each trial."""
    saved = directory / "saved"
    shutil.copytree(directory / "kept", saved)
    return saved


def put_back(directory: Path, saved: Path) -> None:
    shutil.rmtree(directory / "kept")
    shutil.copytree(saved, directory / "kept")
    (directory / "kept").chmod(0o700)


def outcome(directory: Path) -> str:
    """What a restart makes of it: "exact" (the newest), "older", "none" or "refused"; anything else fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ebbtide.DamagedWarning)
        try:
            store = kept(directory)
        except (ebbtide.Damaged, ebbtide.Unsupported, ebbtide.NotAStore) as error:
            assert "kept" in str(error)
            return "refused"
        with store:
            for version in store.versions():
                try:
                    assert same(store.restore(version), version), f"wrong bytes of version {version}"
                except ebbtide.Damaged as error:
                    assert "segment-" in str(error) and "offset" in str(error)
            newest = store.latest()
            if newest is not None:
                assert same(store.restore(newest), newest)
    return "none" if newest is None else "exact" if newest == 3 else "older"


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_is_never_given_out(disk: Path, seed: int) -> None:
    write(disk, "storage")
    saved = copies(disk)
    chosen, seen = random.Random(seed), set()
    for trial in range(25):
        put_back(disk, saved)
        files = [path for path in (disk / "kept").iterdir() if path.stat().st_size]
        path = chosen.choice(files)
        # Half of the flips hit the heads, of which there is less than of anything else.
        size = path.stat().st_size
        offset = chosen.randrange(size) if trial % 2 else chosen.randrange(0, size, 4096) + chosen.randrange(512)
        flip(path, min(offset, size - 1), chosen.randrange(8))
        seen.add(outcome(disk))
    assert {"exact", "older"} <= seen | {"older"} and seen <= {"exact", "older", "none", "refused"}


@levels
def test_every_version_that_is_not_damaged_stays(disk: Path, level: str) -> None:
    write(disk, level)
    path, offset = payload_of(disk, 2)
    flip(path, offset + 5)
    with kept(disk, level) as store:
        assert store.latest() == 3 and same(store.restore(3), 3) and same(store.restore(1), 1)
        with pytest.warns(ebbtide.DamagedWarning, match=path.name):
            assert store.latest(at_most=2) == 1
        for _ in range(2):
            with pytest.raises(ebbtide.Damaged, match="version 2"):
                store.restore(2)
        assert store.latest(at_most=2) == 1
        store.drop(2)  # and it may be written again
        store.checkpoint(2, content(2))
        store.wait(level)
    with looked_at(disk) as store:
        assert store.versions() == [1, 2, 3] and all(same(store.restore(version), version) for version in (1, 2, 3))


@levels
def test_a_file_that_is_cut_gives_what_is_before_the_cut(disk: Path, level: str) -> None:
    write(disk, level)
    saved = copies(disk)
    size = segments(disk)[0].stat().st_size
    for length in range(0, size, size // 23):
        put_back(disk, saved)
        os.truncate(segments(disk)[0], length)
        assert outcome_of_level(disk, level) in ("none", "older", "exact")


def outcome_of_level(directory: Path, level: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ebbtide.DamagedWarning)
        with looked_at(directory) as store:
            newest = store.latest()
            assert newest is None or same(store.restore(newest), newest)
            for version in store.versions():
                try:
                    assert same(store.restore(version), version)
                except ebbtide.Damaged:
                    pass
    return "none" if newest is None else "exact" if newest == 3 else "older"


@levels
@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "another"])
def test_an_index_that_is_not_right_is_made_anew(disk: Path, level: str, harm: str) -> None:
    write(disk, level)
    index = disk / "kept" / "index"
    if harm == "gone":
        index.unlink()
    elif harm == "cut":
        os.truncate(index, 700)
    elif harm == "flipped":
        flip(index, -3)
    else:
        index.write_bytes(os.urandom(5000))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        store = kept(disk, level)
    assert [str(each.message).split(",")[0] for each in told] == ([] if harm == "gone" else [str(index)])
    with store:
        assert store.latest() == 3 and store.versions() == [1, 2, 3]
        assert all(same(store.restore(version), version) for version in (1, 2, 3))


@levels
def test_a_segment_that_is_gone_is_missed_by_name(disk: Path, level: str) -> None:
    write(disk, level)
    segments(disk)[0].unlink()
    with pytest.warns(ebbtide.DamagedWarning, match=r"segment-00000001\.ebb"):
        store = kept(disk, level)
    with store:
        assert store.latest() is None
        store.checkpoint(4, content(4))
        store.wait(level)
        assert store.latest() == 4


@levels
def test_half_a_header_is_no_checkpoint(disk: Path, level: str) -> None:
    """As after a torn write: its first sectors are written, the others are unchanged."""
    write(disk, level)
    path, offset = payload_of(disk, 3)
    (disk / "kept" / "index").unlink()  # a crash leaves none
    with path.open("r+b") as file:
        file.seek(offset - 4096 + 512)
        file.write(bytes(4096 - 512))
    with pytest.warns(ebbtide.DamagedWarning, match=path.name):
        store = kept(disk, level)
    with store:
        assert store.latest() == 2 and same(store.restore(2), 2) and store.versions() == [1, 2]


@levels
def test_a_newer_format_is_refused_by_name_and_left_alone(disk: Path, level: str) -> None:
    xxhash = pytest.importorskip("xxhash")
    write(disk, level)
    path = disk / "kept" / "store"
    head = bytearray(path.read_bytes())
    head[8:12] = (2).to_bytes(4, "little")
    head[496:512] = xxhash.xxh3_128_digest(bytes(head[:496]))
    path.write_bytes(head)
    before = {file.name: file.read_bytes() for file in (disk / "kept").iterdir() if file.name != "lock"}
    for call in (lambda: kept(disk, level), lambda: looked_at(disk)):
        with pytest.raises(ebbtide.Unsupported, match="format 2.*up to 1"):
            call()
    assert before == {file.name: file.read_bytes() for file in (disk / "kept").iterdir() if file.name != "lock"}


@levels
def test_links_and_places_that_others_may_write_to_are_refused(disk: Path, level: str) -> None:
    write(disk, level)
    (disk / "other").mkdir()
    (disk / "kept").rename(disk / "other" / "kept")
    (disk / "kept").symlink_to(disk / "other" / "kept")
    with pytest.raises(ebbtide.Error, match="kept"):
        kept(disk, level)
    (disk / "kept").unlink()
    (disk / "other" / "kept").rename(disk / "kept")
    (disk / "kept").chmod(0o777)
    with pytest.raises(ebbtide.NotPermitted, match="kept") as caught:
        kept(disk, level)
    assert isinstance(caught.value, PermissionError)
    (disk / "kept").chmod(0o700)
    segment = segments(disk)[0]
    segment.rename(disk / "elsewhere")
    segment.symlink_to(disk / "elsewhere")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ebbtide.DamagedWarning)
        try:
            with kept(disk, level) as store:
                assert store.latest() is None  # what a link leads to is not read
        except ebbtide.Error as error:
            assert "segment-" in str(error)


@levels
def test_a_full_disk_fails_by_name_keeps_what_is_older_and_goes_on_when_there_is_room(disk: Path, level: str) -> None:
    """A limit on the size of files is what a program can have a full disk with; the limit is then lifted."""
    body = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with kept(directory, level) as store:
        for version in (1, 2, 3):
            store.checkpoint(version, content(version))
        store.wait(level)
        there = max(path.stat().st_size for path in (directory / "kept").iterdir())
        used = sum(path.stat().st_size for path in (directory / "kept").glob("segment*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        future = store.checkpoint(4, content(4))
        try:
            future.wait(level, timeout=60)
        except (ebbtide.NoSpace, ebbtide.IOFailed) as error:
            assert "version 4" in str(error), error
            print("refused", flush=True)
        for version in (1, 2, 3):
            assert same(store.restore(version), version)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for version in (5, 6):
            store.checkpoint(version, content(version))
            store.wait(level, version, timeout=60)
        try:
            store.close()
        except ebbtide.Error as error:
            assert "version 4" in str(error), error
    print("closed")
    """
    done = run(disk, level, body)
    assert done.stdout == "refused\nclosed\n", done.stdout + done.stderr
    with looked_at(disk) as store:
        assert {1, 2, 3, 5, 6} <= set(store.versions()) and store.latest() == 6
        assert all(same(store.restore(version), version) for version in store.versions())


@levels
def test_what_a_passing_fault_refused_can_be_read_and_is_stored_by_the_next_wait(disk: Path, level: str) -> None:
    body = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with kept(directory, level) as store:
        store.checkpoint(0, content(0))
        store.wait(level)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        futures = {version: store.checkpoint(version, content(version)) for version in (1, 2, 3)}
        for tries in range(3):
            for version, future in futures.items():
                try:
                    future.wait(level, timeout=60)
                    raise AssertionError("it is durable")
                except (ebbtide.NoSpace, ebbtide.IOFailed) as error:
                    assert f"version {version} " in str(error), error
            try:
                store.wait(level, timeout=60)
                raise AssertionError("they are durable")
            except (ebbtide.NoSpace, ebbtide.IOFailed):
                pass
            for version in range(4):
                assert same(store.restore(version, keep=True), version)
                out = {name: np.zeros_like(array) for name, array in content(version).items()}
                store.restore(version, out=out, keep=True)
                assert same(out, version)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.wait(level, timeout=60)
    print("closed")
    """
    done = run(disk, level, body)
    assert done.stdout == "closed\n" and "is there again" not in done.stderr, done.stdout + done.stderr
    with looked_at(disk) as store:
        assert store.versions() == [0, 1, 2, 3] and all(same(store.restore(version), version) for version in range(4))


def test_a_full_tier_fails_by_name_and_keeps_what_is_older(disk: Path) -> None:
    with kept(disk, disk="256KiB") as store:
        written = 0
        with pytest.raises(ebbtide.NoSpace, match="version"):
            for written in range(100):
                store.checkpoint(written, content(written))
                store.wait("storage", written)
        assert same(store.restore(0), 0)
        store.drop(0)
        store.wait("storage", written, timeout=60)  # there is room now
    with looked_at(disk) as store:
        assert store.versions() == list(range(1, written + 1))


def test_files_take_no_more_than_the_disk_and_one_segment(tmp_path: Path) -> None:
    disk, bytes_each, count = 16 << 20, 1 << 20, 300
    array = np.ones(bytes_each, np.uint8)
    most = 0
    sizes = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": disk}
    with ebbtide.open(tmp_path / "store", durability="process", keep_last=1, device="cpu", **sizes) as store:
        for version in range(count):
            store.checkpoint(version, array)
            taken = 0
            for path in (tmp_path / "store").iterdir():
                with contextlib.suppress(FileNotFoundError):  # it was removed just now
                    taken += 512 * path.stat().st_blocks
            most = max(most, taken)
    segment = disk + (1 << 20)
    # Each checkpoint has a header, and leaves 4 KiB where it was; a segment's end is cut when all of it is durable.
    assert most <= disk + segment + 8192 * count + 4 * bytes_each
