"""`ebbtide ls`, `verify`, `export` and `gc` of a store with snapshots."""

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
