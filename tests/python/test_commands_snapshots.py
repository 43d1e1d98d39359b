"""`ebbtide ls`, `verify`, `export` and `gc` of a store with snapshots."""

import json
import subprocess
import sys

import numpy
import pytest
from commands_support import DAMAGED, OK, run

import ebbtide


@pytest.fixture
def kept(tmp_path):
    """A store of five snapshots, and the array as it was in each."""
    field, was = numpy.zeros((1000, 125)), {}
    directory = tmp_path / "run"
    with ebbtide.open(directory, device="cpu", durability="process", device_cache="16MiB", host_cache=0) as store:
        store.protect(field, track="declared", zone="4KiB")
        for step in range(5):
            field[step * 10] = step + 1
            store.touch(field[step * 10])
            was[step] = field.copy()
            store.snapshot(step).wait("process")
        store.checkpoint(9, field)
    return directory, was


def test_ls_shows_what_they_store_and_lean_on_and_no_pieces(kept):
    directory, was = kept
    done = run("ls", directory)
    assert done.code == OK
    assert ".ebbtide-snapshot" not in done.out
    assert 'snapshot 0 of history "": restores 976.56 KiB' in done.out
    found = {one["version"]: one for one in run("ls", directory, "--json").json["snapshots"]}
    assert list(found) == list(was)
    assert all(one["bytes"] == was[version].nbytes for version, one in found.items())
    assert found[0]["leans_on"] == [] and found[0]["stored"] > was[0].nbytes
    with ebbtide.open(directory, durability="process", readonly=True, device="cpu") as store:
        assert all(one["leans_on"] == store.info(version)["leans_on"] for version, one in found.items())


def test_export_writes_what_they_restore(kept, tmp_path):
    directory, was = kept
    assert run("export", directory, "--to", tmp_path / "out", "--format", "npz").code == OK
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["history"]
    for version, array in was.items():
        with numpy.load(tmp_path / "out" / "history" / f"version-{version}.npz") as found:
            assert [numpy.array_equal(one.view(array.dtype).reshape(array.shape), array) for one in found.values()] == [
                True
            ]


def test_verify_names_each_snapshot_that_needs_a_damaged_piece(kept):
    directory, was = kept
    assert run("verify", directory).code == OK
    piece = next(one for one in run("ls", directory, "--json").json["checkpoints"] if one["history"])
    with open(directory / piece["file"], "r+b") as file:
        file.seek(piece["offset"] + 4096 + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    done = run("verify", directory, "--json")
    assert done.code == DAMAGED
    damaged = {one["version"] for one in done.json["damaged"] if one["history"] == ""}
    with ebbtide.open(directory, durability="process", readonly=True, device="cpu") as store:
        for version in was:
            if version in damaged:
                with pytest.raises(ebbtide.Damaged):
                    store.restore(version, keep=True)
            else:
                assert numpy.array_equal(store.restore(version, keep=True), was[version])
    assert damaged


def test_gc_keeps_what_the_kept_ones_need(kept):
    directory, was = kept
    assert run("gc", directory, "--keep-last", 2).code == OK
    with ebbtide.open(directory, durability="process", readonly=True, device="cpu") as store:
        assert store.versions() == [4, 9]
        assert numpy.array_equal(store.restore(4, keep=True), was[4])


def test_gc_frees_the_pieces_of_a_dropped_snapshot_that_no_other_needs(tmp_path):
    field = numpy.random.default_rng(1).random(1 << 20)  # several pieces
    directory = tmp_path / "run"
    with ebbtide.open(directory, device="cpu", durability="process", device_cache="16MiB", host_cache=0) as store:
        store.protect(field, track="declared")
        store.snapshot(0).wait("process")
        field[: 1 << 19] += 1
        store.touch(field[: 1 << 19])
        store.snapshot(1).wait("process")
        store.drop(0)
    told = run("gc", directory, "--dry-run").out.splitlines()
    done = run("gc", directory, "--json")
    assert done.code == OK
    assert {one["why"] for one in done.json["removed"]} == {"unfinished"}
    assert told[0].startswith(f"would be removed: {len(done.json['removed'])} pieces of snapshots that are gone, ")
    assert done.json["allocated_before"] - done.json["allocated_after"] > 3 << 20
    assert run("verify", directory).code == OK
    with ebbtide.open(directory, device="cpu", durability="process", device_cache="16MiB", host_cache=0) as store:
        assert numpy.array_equal(store.restore(1, keep=True), field)
        again = field.copy()
        store.protect(again, track="declared")
        store.restore(1, out=again)
        again[5] = 7
        store.touch(again[5:6])
        store.snapshot(2).wait("process")
        assert numpy.array_equal(store.restore(2, keep=True), again)


def test_gc_packs_anew_what_is_needed_of_a_dropped_one(tmp_path):
    """Of the first one every fourth zone is needed, so none of its pieces goes as a whole."""
    memory = numpy.arange((1 << 20) + 4096).astype(numpy.uint8)
    field = memory[-memory.ctypes.data % 4096 :][: 1 << 20]  # whole pages, so its zones are those of the map
    directory = tmp_path / "run"
    with ebbtide.open(directory, device="cpu", durability="process", device_cache="16MiB", host_cache=0) as store:
        store.protect(field, track="declared", zone="4KiB")
        store.snapshot(0).wait("process")
        for zone in (zone for zone in range(256) if zone % 4):
            field[zone * 4096 : (zone + 1) * 4096] = zone
            store.touch(field[zone * 4096 : (zone + 1) * 4096])
        store.snapshot(1).wait("process")
    assert run("gc", directory, "--keep-last", 1, "--dry-run", "--json").json["repacked"] == []
    done = run("gc", directory, "--keep-last", 1, "--json")
    assert done.code == OK
    assert done.json["repacked"] == [
        {"history": "", "version": 0, "bytes_before": 1 << 20, "bytes_after": 1 << 18, "needed_by": 1, "failed": None}
    ]
    assert done.json["allocated_before"] - done.json["allocated_after"] > 700_000
    assert run("verify", directory).code == OK
    with ebbtide.open(directory, durability="process", device="cpu") as store:
        assert store.versions() == [1]
        assert store.info(1)["leans_on"] == [0]
        assert numpy.array_equal(store.restore(1, keep=True), field)
    assert run("gc", directory, "--json").json["repacked"] == []


def test_a_reader_beside_gc_finds_what_is_packed_anew(tmp_path):
    memory = numpy.arange((8 << 20) + 4096).astype(numpy.uint8)
    field = memory[-memory.ctypes.data % 4096 :][: 8 << 20]
    directory = tmp_path / "run"
    for round in range(4):
        with ebbtide.open(directory, device="cpu", durability="process", device_cache="64MiB", host_cache=0) as store:
            store.protect(field, track="declared", zone="4KiB")
            store.snapshot(2 * round, full=True).wait("process")
            for zone in (zone for zone in range(2048) if zone % 4):
                field[zone * 4096 : (zone + 1) * 4096] = (round + zone) % 251
                store.touch(field[zone * 4096 : (zone + 1) * 4096])
            store.snapshot(2 * round + 1).wait("process")
        with ebbtide.open(directory, durability="process", readonly=True, device="cpu") as reader:
            assert reader.latest() == 2 * round + 1
            words = ["gc", str(directory), "--keep-last", "1", "--json"]
            command = [sys.executable, "-c", "from ebbtide.cli import main; main()", *words]
            gc = subprocess.Popen(command, stdout=subprocess.PIPE)
            while gc.poll() is None:
                assert reader.latest() == 2 * round + 1
                assert numpy.array_equal(reader.restore(2 * round + 1, keep=True), field)
            assert len(json.load(gc.stdout)["repacked"]) == 1
            assert numpy.array_equal(reader.restore(2 * round + 1, keep=True), field)
