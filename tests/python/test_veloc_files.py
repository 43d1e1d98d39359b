"""A shared directory of VELOC's files: what VELOC wrote is found, VELOC reads what is written, and nothing else is touched."""

from __future__ import annotations

import hashlib
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time

import ebbtide
import numpy as np
import pytest

SMALL = {"device_cache": "1MiB", "host_cache": "2MiB", "disk": "16MiB"}


def read_file(path: pathlib.Path) -> dict[int, bytes]:
    """VELOC's format, by itself: how many regions, their ids and lengths, their bytes."""
    data = path.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    table = [struct.unpack_from("<iQ", data, 8 + 12 * i) for i in range(count)]
    assert table == sorted(table)
    at, found = 8 + 12 * count, {}
    for region, length in table:
        found[region] = data[at : at + length]
        at += length
    assert at == len(data)
    return found


def file_of(regions: dict[int, bytes]) -> bytes:
    table = b"".join(struct.pack("<iQ", region, len(regions[region])) for region in sorted(regions))
    return struct.pack("<Q", len(regions)) + table + b"".join(regions[region] for region in sorted(regions))


def fields(version: int) -> list[np.ndarray]:
    """Two arrays, with a gap between them in the store."""
    random = np.random.default_rng(version)
    return [random.integers(0, 255, 70_001, dtype=np.uint8), random.standard_normal(999)]


def open_pair(disk: pathlib.Path, rank: int = 0, local: str = "local", **options: object) -> ebbtide.Store:
    return ebbtide.open(disk / f"{local}-{rank}", shared=disk / "pfs", veloc_rank=rank, **(SMALL | options))


def write(store: ebbtide.Store, *versions: int, name: str = "heat") -> None:
    for version in versions:
        store.history(name).checkpoint(version, fields(version))
    store.history(name).wait("shared", timeout=60)


def is_right(history: ebbtide.History, version: int) -> bool:
    out = [np.empty(70_001, np.uint8), np.empty(999)]
    history.restore(version, out, keep=True)
    return all(np.array_equal(mine, right) for mine, right in zip(out, fields(version)))


def test_veloc_reads_what_is_written(disk):
    with open_pair(disk, rank=3) as store:
        write(store, 1, 7)
    assert sorted(path.name for path in (disk / "pfs").glob("*.dat")) == ["heat-3-1.dat", "heat-3-7.dat"]
    for version in (1, 7):
        found = read_file(disk / "pfs" / f"heat-3-{version}.dat")
        assert [found[0], found[1]] == [field.tobytes() for field in fields(version)]


def test_what_veloc_wrote_is_found_and_restored(disk):
    (disk / "pfs").mkdir()
    regions = {-5: b"below", 0: bytes(range(200)) * 1000, 7: b""}
    (disk / "pfs" / "my.run_2-0-12.dat").write_bytes(file_of(regions))
    (disk / "pfs" / "my.run_2-1-12.dat").write_bytes(file_of({0: b"another rank's"}))
    with open_pair(disk) as store:
        history = store.history("my.run_2")
        assert history.versions() == [12] and history.latest() == 12
        found = history.restore(12, keep=True)
        assert {region: bytes(array) for region, array in found.items()} == {
            region % 2**32: content for region, content in regions.items()
        }


def test_another_node_goes_on_from_the_files(disk):
    with open_pair(disk) as store:
        write(store, 1, 2, 3)
    with open_pair(disk, local="elsewhere") as store:
        assert store.history("heat").versions() == [1, 2, 3]
        assert all(is_right(store.history("heat"), version) for version in (3, 2, 1))
        write(store, 4)
    assert read_file(disk / "pfs" / "heat-0-4.dat")[0] == fields(4)[0].tobytes()


def test_what_a_user_deletes_is_gone(disk):
    with open_pair(disk) as store:
        write(store, 1, 2)
    (disk / "pfs" / "heat-0-2.dat").unlink()
    for _ in range(2):
        with open_pair(disk) as store:
            assert store.history("heat").versions() == [1] and is_right(store.history("heat"), 1)
    with open_pair(disk) as store:
        write(store, 2)
    with open_pair(disk) as store:
        assert store.history("heat").versions() == [1, 2] and is_right(store.history("heat"), 2)


def test_what_veloc_wrote_over_a_version_counts(disk):
    with open_pair(disk) as store:
        write(store, 1, 2)
    (disk / "pfs" / "heat-0-2.dat").write_bytes(file_of({0: b"anew"}))
    with open_pair(disk) as store:
        assert bytes(store.history("heat").restore(2, keep=True)) == b"anew" and is_right(store.history("heat"), 1)


def test_damage_is_found_and_the_version_before_counts(disk):
    with open_pair(disk) as store:
        write(store, 1, 2)
    path = disk / "pfs" / "heat-0-2.dat"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with open_pair(disk, local="elsewhere") as store:
        with pytest.raises(ebbtide.Damaged, match=r"heat-0-2\.dat"):
            is_right(store.history("heat"), 2)
        assert store.history("heat").latest() == 1
    assert path.exists(), "what cannot be read is left for a person to look at"


def test_a_file_that_is_cut_off_is_no_version(disk):
    with open_pair(disk) as store:
        write(store, 1, 2)
    path = disk / "pfs" / "heat-0-2.dat"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.warns(ebbtide.DamagedWarning, match=r"heat-0-2\.dat.*cut off"):
        store = open_pair(disk, local="elsewhere")
    with store:
        assert store.history("heat").versions() == [1]


def test_retention_removes_files_and_other_ranks_keep_theirs(disk):
    with open_pair(disk, rank=1) as store:
        write(store, 1)
    with open_pair(disk, keep_last=1, keep_last_shared=2) as store:
        write(store, 1, 2, 3, 4)
    assert sorted(path.name for path in (disk / "pfs").glob("*.dat")) == [
        "heat-0-3.dat",
        "heat-0-4.dat",
        "heat-1-1.dat",
    ]
    with open_pair(disk, rank=1) as store:
        assert is_right(store.history("heat"), 1)


def test_a_reader_writes_nothing(disk):
    (disk / "pfs").mkdir()
    (disk / "pfs" / "heat-0-5.dat").write_bytes(file_of({2: b"five"}))
    with open_pair(disk, readonly=True) as store:
        history = store.history("heat")
        assert history.latest() == 5 and bytes(history.restore(5, keep=True)) == b"five"
        (disk / "pfs" / "heat-0-6.dat").write_bytes(file_of({2: b"six"}))
        assert history.latest() == 6 and bytes(history.restore(6, keep=True)) == b"six"
        (disk / "pfs" / "heat-0-6.dat").unlink()
        assert history.latest() == 5
    assert [path.name for path in (disk / "pfs").iterdir()] == ["heat-0-5.dat"]


def with_sums(disk: pathlib.Path, **options: object) -> ebbtide.Store:
    try:
        return open_pair(disk, veloc_meta=disk / "meta", veloc_chksum=True, **options)
    except ebbtide.Unsupported as error:
        if "libcrypto" not in str(error):
            raise
        pytest.skip(str(error))


def sum_of(disk: pathlib.Path, version: int) -> pathlib.Path:
    return disk / "meta" / f"heat-0-{version}.dat.chksum"


def test_checksum_files_are_those_that_veloc_expects(disk):
    with with_sums(disk, keep_last_shared=2, keep_last=1) as store:
        write(store, 1, 2, 3, 4)
    expected = {f"heat-0-{version}.dat" for version in (3, 4)}
    assert {path.name for path in (disk / "pfs").glob("*.dat")} == expected
    assert {path.name for path in (disk / "meta").iterdir()} == {f"{name}.chksum" for name in expected}
    for name in expected:
        data = (disk / "pfs" / name).read_bytes()
        assert (disk / "meta" / f"{name}.chksum").read_bytes() == hashlib.sha256(data).digest()


def test_what_veloc_wrote_is_read_if_it_matches_its_checksum_file(disk):
    (disk / "pfs").mkdir()
    (disk / "meta").mkdir()
    for version in range(1, 5):
        data = file_of({0: bytes([version]) * 300_000})
        (disk / "pfs" / f"heat-0-{version}.dat").write_bytes(data)
        sum_of(disk, version).write_bytes(hashlib.sha256(data).digest())
    sum_of(disk, 4).unlink()
    sum_of(disk, 3).write_bytes(sum_of(disk, 3).read_bytes()[:-1])
    path = disk / "pfs" / "heat-0-2.dat"
    data = bytearray(path.read_bytes())
    data[200_000] ^= 1
    path.write_bytes(data)
    with with_sums(disk) as store:
        history = store.history("heat")
        for version, why in (4, "is not there"), (3, "does not match"), (2, "does not match"):
            with pytest.raises(ebbtide.Damaged, match=rf"heat-0-{version}\.dat.*{why}"):
                history.restore(version, keep=True)
        assert history.latest() == 1 and bytes(history.restore(1, keep=True)) == b"\1" * 300_000
    with open_pair(disk, local="elsewhere") as store:
        assert bytes(store.history("heat").restore(4, keep=True)) == b"\4" * 300_000, "without them it is believed"


def test_what_was_written_without_checksum_files_has_its_mark(disk):
    with open_pair(disk) as store:
        write(store, 1)
    with with_sums(disk, local="elsewhere") as store:
        assert is_right(store.history("heat"), 1)


def aggregate(disk: pathlib.Path, version: int, ranks: list[dict[int, bytes]]) -> list[bytes]:
    """What VELOC leaves of ranks with `aggregated`."""
    files = [file_of(regions) for regions in ranks]
    begins = [sum(map(len, files[:rank])) for rank in range(len(files))]
    for place, data in ("pfs", b"".join(files)), ("meta", struct.pack(f"<{len(files) + 1}q", len(files), *begins)):
        (disk / place).mkdir(exist_ok=True)
        (disk / place / f"heat-agg-{version}.dat").write_bytes(data)
    return files


def content(rank: int, version: int) -> dict[int, bytes]:
    return {0: bytes([rank, version]) * 70_000, 5: b"", 9: bytes([version]) * (rank + 1)}


def test_aggregated_files_are_read_as_any_version(disk):
    for version in (3, 4):
        aggregate(disk, version, [content(rank, version) for rank in range(3)])
    for rank in range(3):
        with open_pair(disk, rank=rank, veloc_meta=disk / "meta") as store:
            history = store.history("heat")
            assert history.versions() == [3, 4] and history.latest() == 4
            for version in (4, 3):
                found = history.restore(version, keep=True)
                assert {region: bytes(array) for region, array in found.items()} == content(rank, version)
            write(store, 5)
    assert (disk / "pfs" / "heat-2-5.dat").exists()
    with open_pair(disk, rank=1, local="elsewhere", veloc_meta=disk / "meta") as store:
        assert store.history("heat").versions() == [3, 4, 5]
        store.history("heat").drop(4)
    with open_pair(disk, rank=2, local="elsewhere", veloc_meta=disk / "meta") as store:
        assert store.history("heat").versions() == [3, 5], "it goes for all ranks at once, as with VELOC"
    assert not (disk / "meta" / "heat-agg-4.dat").exists()


def test_aggregated_files_that_are_not_whole_are_no_versions(disk):
    for version in range(1, 6):
        aggregate(disk, version, [content(rank, version) for rank in range(2)])
    data, table = (
        (lambda version: disk / "pfs" / f"heat-agg-{version}.dat"),
        (lambda version: disk / "meta" / f"heat-agg-{version}.dat"),
    )
    data(2).write_bytes(data(2).read_bytes()[:-1])
    table(3).unlink()
    table(4).write_bytes(table(4).read_bytes()[:-8])
    table(5).write_bytes(struct.pack("<3q", 2, 0, -1))
    with pytest.warns(ebbtide.DamagedWarning) as told:
        store = open_pair(disk, rank=1, veloc_meta=disk / "meta")
    with store:
        assert store.history("heat").versions() == [1]
    for version in range(2, 6):
        assert any(f"heat-agg-{version}.dat" in str(one.message) for one in told)
    with pytest.warns(ebbtide.DamagedWarning, match="none of rank 2"):
        open_pair(disk, rank=2, veloc_meta=disk / "meta").close()
    with pytest.warns(ebbtide.DamagedWarning, match="aggregated.*veloc_meta"):
        open_pair(disk, rank=3).close()


def test_aggregated_files_have_a_checksum_file_for_each_rank(disk):
    for version in (1, 2):
        for rank, data in enumerate(aggregate(disk, version, [content(rank, version) for rank in range(2)])):
            digest = hashlib.sha256(data).digest() if (rank, version) != (1, 2) else bytes(32)
            (disk / "meta" / f"heat-{rank}-{version}.dat.chksum").write_bytes(digest)
    for rank, newest in (0, 2), (1, 1):
        with with_sums(disk, rank=rank) as store:
            assert store.history("heat").latest() == newest


def test_a_file_of_the_own_rank_counts_before_an_aggregated_one(disk):
    aggregate(disk, 1, [content(0, 1), content(1, 1)])
    (disk / "pfs" / "heat-0-1.dat").write_bytes(file_of({0: b"own"}))
    with open_pair(disk, veloc_meta=disk / "meta") as store:
        assert bytes(store.history("heat").restore(1, keep=True)) == b"own"


def test_a_link_that_veloc_left_leads_to_the_programs_file(disk):
    (disk / "pfs").mkdir()
    for version in (1, 2, 3):
        (disk / f"out-{version}").write_bytes(bytes([version]) * 100_000)
        (disk / "pfs" / f"heat-0-{version}.dat").symlink_to(disk / f"out-{version}" if version > 1 else "../out-1")
    (disk / "out-3").unlink()
    with pytest.warns(ebbtide.DamagedWarning, match=r"heat-0-3\.dat.*out-3, which is no file"):
        store = open_pair(disk)
    with store:
        history = store.history("heat")
        assert history.versions() == [1, 2]
        for version in (2, 1):
            assert bytes(history.restore(version, keep=True)) == bytes([version]) * 100_000
        history.drop(2)
    assert (disk / "out-2").exists() and not (disk / "pfs" / "heat-0-2.dat").is_symlink()
    (disk / "out-1").write_bytes(b"another")
    with open_pair(disk, local="elsewhere") as store:
        assert bytes(store.history("heat").restore(1, keep=True)) == b"another", "what lies there is the truth"


@pytest.mark.parametrize("name", ["", "a/b", "x" * 128])
def test_names_that_veloc_cannot_have_are_refused(disk, name):
    with open_pair(disk) as store, pytest.raises(ebbtide.InvalidArgument, match="VELOC"):
        store.history(name).checkpoint(1, fields(1))


def test_options_that_do_not_go_together_are_refused(disk):
    with pytest.raises(ebbtide.InvalidArgument, match="veloc_rank=.*shared"):
        ebbtide.open(disk / "local", veloc_rank=0, **SMALL)
    with pytest.raises(ebbtide.InvalidArgument, match="veloc_rank"):
        ebbtide.open(disk / "local", shared=disk / "pfs", veloc_rank=-1, **SMALL)
    with pytest.raises(ebbtide.InvalidArgument, match="veloc_chksum=.*veloc_meta"):
        open_pair(disk, veloc_chksum=True)
    with pytest.raises(ebbtide.InvalidArgument, match="veloc_meta=.*veloc_rank"):
        ebbtide.open(disk / "local", shared=disk / "pfs", veloc_meta=disk / "meta", **SMALL)
    assert not (disk / "pfs").exists()


def test_a_file_that_is_put_back_counts_whatever_its_time(disk):
    (disk / "pfs").mkdir()
    (disk / "pfs" / "heat-0-1.dat").write_bytes(file_of({0: b"VELOC's, so that we count from its time"}))
    with open_pair(disk) as store:
        write(store, 2)
    path = disk / "pfs" / "heat-0-2.dat"
    path.write_bytes(file_of({0: b"of last month"}))
    os.utime(path, ns=(10**18, 10**18))
    with open_pair(disk) as store:
        assert bytes(store.history("heat").restore(2, keep=True)) == b"of last month"
    assert path.exists()


def test_a_drop_leaves_what_somebody_else_wrote_meanwhile(disk):
    path = disk / "pfs" / "heat-0-1.dat"
    with open_pair(disk) as store:
        write(store, 1)
        path.write_bytes(file_of({0: b"another program's"}))
        store.history("heat").drop(1)
    assert read_file(path) == {0: b"another program's"}
    with open_pair(disk) as store:
        assert bytes(store.history("heat").restore(1, keep=True)) == b"another program's"


def test_a_damaged_mark_makes_nobody_believe_the_file(disk):
    with open_pair(disk) as store:
        write(store, 1, 2)
    mark = disk / "pfs" / ".ebbtide" / "rank-0" / "heat-2"
    data = bytearray(mark.read_bytes())
    data[40] ^= 1
    mark.write_bytes(data)
    with pytest.warns(ebbtide.DamagedWarning, match="remove it to believe the file"):
        store = open_pair(disk)
    with store:
        assert is_right(store.history("heat"), 2), "the local copy, which is sent anew"
    with open_pair(disk, local="elsewhere") as store:
        assert is_right(store.history("heat"), 2)


def test_the_own_folder_is_no_store(disk):
    with open_pair(disk) as store:
        write(store, 1)
    with pytest.raises(ebbtide.NotAStore, match="veloc_rank"):
        ebbtide.open(disk / "pfs" / ".ebbtide" / "rank-0", durability="storage", **SMALL)


def test_an_opening_that_is_refused_leaves_nothing(disk):
    with ebbtide.open(disk / "local-0", durability="storage", **SMALL) as store:
        store.checkpoint(1, fields(1))
    with ebbtide.open(disk / "other", shared=disk / "lustre", **SMALL) as store:
        store.checkpoint(1, fields(1))
    with pytest.raises(ebbtide.InvalidArgument, match="belong"):
        ebbtide.open(disk / "other", shared=disk / "pfs", veloc_rank=0, **SMALL)
    assert not (disk / "pfs").exists()


def test_what_does_not_go_into_velocs_files_is_refused_by_what_it_is(disk):
    with open_pair(disk) as store:
        with pytest.raises(ebbtide.Unsupported, match="suspend_on.*veloc_rank"):
            store.suspend_on(signal.SIGUSR2)
        with pytest.raises(ebbtide.Unsupported, match="files.*veloc_rank"):
            store.create_file("notes", 1)


KEPT, SENT = 6, 2
WRITER = """
import sys, ebbtide
sys.path.insert(0, sys.argv[2])
from test_veloc_files import *
with open_pair(pathlib.Path(sys.argv[1]), keep_last=KEPT, keep_last_shared=SENT) as store:
    history = store.history("heat")
    version = (history.latest() or 0) + 1
    while True:
        history.checkpoint(version, fields(version), timeout=30)
        if version % 3 == 0:
            history.wait("shared", timeout=60)
            print(version, flush=True)
        version += 1
"""


def test_a_killed_writer_loses_nothing_that_it_reported(disk):
    """Files are written beside one another: of what a kill interrupts, a version may be missing below one that is there."""
    chance = random.Random(5)
    versions: list[int] = []  # that the last opening found; the writer goes on above them
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(disk), str(pathlib.Path(__file__).parent)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, "it ended by itself"
        time.sleep(chance.random() / 5)
        child.send_signal(signal.SIGKILL)
        reported = int(([line] + child.stdout.read().splitlines(keepends=True))[-1])
        child.wait()
        promised = [*versions, *range(max(versions, default=0) + 1, reported + 1)]
        for path in (disk / "pfs").glob("heat-0-*.dat"):
            version = int(path.stem.rsplit("-", 1)[1])
            assert [field.tobytes() for field in fields(version)] == list(read_file(path).values())
        with open_pair(disk, keep_last=KEPT, keep_last_shared=SENT) as store:
            history = store.history("heat")
            versions = history.versions()
            for version in promised:
                assert version in versions or sum(one > version for one in versions) >= KEPT
            assert all(is_right(history, version) for version in versions[-KEPT:]), "older ones may go at any time"
    with open_pair(disk, local="elsewhere") as store:
        latest = store.history("heat").latest()
        assert latest is not None and latest >= reported and is_right(store.history("heat"), latest)
