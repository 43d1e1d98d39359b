"""Snapshots of arrays that the program goes on writing to."""

import contextlib
import mmap
import os
import signal
import threading
import time

import numpy
import pytest

import ebbtide

SMALL = {"device": "cpu", "device_cache": "8MiB", "host_cache": "16MiB", "disk": "256MiB"}
TRACKS = ["auto", "faults", "scan", "digest", "declared", "everything"]


@pytest.fixture
def store(tmp_path):
    with ebbtide.open(tmp_path, **SMALL) as store:
        yield store


def can_track(track: str) -> bool:
    """Whether this machine lets memory be tracked so."""
    with ebbtide.open(device="cpu", device_cache="1MiB", host_cache=0, disk=0) as store:
        try:
            store.protect(numpy.zeros(4096), track=track)
        except ebbtide.Unsupported:
            return False
    return True


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("kept", [False, True], ids=["ephemeral", "kept"])
def test_each_version_is_the_arrays_as_they_were(tmp_path, track, kept):
    if not can_track(track):
        pytest.skip(f"this machine does not allow {track}")
    dice = numpy.random.default_rng(1)
    state = {"field": dice.random((300, 1024)), "counts": numpy.zeros(5, "i2")}  # of 600 pages, and of 10 bytes
    was = {}
    durability = {"durability": "process"} if kept else {}
    directory = tmp_path / "run" if kept else tmp_path
    with ebbtide.open(directory, **SMALL, **durability) as store:
        store.protect(state, track=track, zone="4KiB")
        for step in range(40):
            row = dice.integers(300)
            state["field"][row] = step
            state["counts"][step % 5] = step
            store.touch(state["field"][row])
            store.touch(state["counts"])
            was[step] = {name: array.copy() for name, array in state.items()}
            store.snapshot(step, full=step == 20)
        for step in dice.permutation(40)[:20]:
            found = store.restore(step, keep=True)
            assert all(numpy.array_equal(found[name], was[step][name]) for name in state)
        for dropped in range(0, 39):  # what others need of them stays
            store.drop(dropped)
        assert all(numpy.array_equal(array, was[39][name]) for name, array in store.restore(39, keep=True).items())
        assert store.stats()["snapshots"]["snapshots"] == 40
    if kept:
        with ebbtide.open(directory, **SMALL, **durability) as store:
            assert store.versions() == [39] and store.latest() == 39
            store.restore(39, out=state)
            assert all(numpy.array_equal(state[name], was[39][name]) for name in state)


def test_an_array_is_found_by_its_address_among_others_in_no_order(store):
    memory = numpy.ones(16 * 4096, numpy.uint8)
    places = [9, 2, 3, 14, 6]  # two beside each other, gaps between the others
    arrays = [memory[i * 4096 : (i + 1) * 4096] for i in places]
    store.protect([numpy.empty(0), *arrays], track="declared", zone=4096)
    store.snapshot(0)
    for version, (place, array) in enumerate(zip(places, arrays), 1):
        array[-1] = place
        store.touch(array[-1:])
        store.snapshot(version)
        assert all(numpy.array_equal(a, b) for a, b in zip(store.restore(version, keep=True)[1:], arrays))
    for outside in (memory[:4096], memory[15 * 4096 :], memory[3 * 4096 : 4 * 4096 + 1], memory[2 * 4096 : 4 * 4096]):
        with pytest.raises(ebbtide.InvalidArgument, match="no part of a protected array"):
            store.touch(outside)


def test_an_increment_stores_what_was_written_and_says_what_it_leans_on(store):
    field = numpy.ones(1 << 18)  # 2 MiB: 32 zones
    store.protect(field, track="declared")
    store.snapshot(0)
    field[100_000:100_008] = 2
    store.touch(field[100_000:100_008])
    store.snapshot(1)
    assert store.info(0)["leans_on"] == [] and store.info(0)["bytes"] >= field.nbytes
    assert store.info(1)["leans_on"] == [0] and 65536 <= store.info(1)["bytes"] < 80_000
    with pytest.raises(ebbtide.UnknownVersion):
        store.info(2)


def test_the_program_writes_on_while_a_snapshot_is_copied(store):
    field = numpy.zeros(1 << 19)
    store.protect(field)
    stop = threading.Event()

    def write():
        count = 0
        while not stop.is_set():
            count += 1
            field[:1000] = count
            field[-1000:] = count  # never ahead of the first ones

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for step in range(20):
            store.snapshot(step).wait("copied", timeout=60)
    finally:
        stop.set()
        writer.join()
    for step in range(20):
        found = store.restore(step, keep=True)
        assert found[-1000:].max() <= found[:1000].max() <= found[-1000:].min() + 1


@pytest.mark.parametrize("track", TRACKS)
def test_empty_arrays_are_protected_and_come_back_empty(tmp_path, track):
    if not can_track(track):
        pytest.skip(f"this machine does not allow {track}")
    nothing = numpy.zeros((0, 3), "f4")
    state = {"none": nothing, "field": numpy.zeros(3000), "also none": numpy.zeros(0, "i2"), "few": numpy.zeros(5)}
    with ebbtide.open(tmp_path / "run", **SMALL, durability="process") as store:
        for given in (state, [nothing], nothing):
            store.protect(given, track=track, zone="4KiB")
            for version in range(3):
                state["field"][version], state["few"][0] = 1 + version, 1 + version
                for one in state.values() if given is state else (nothing,):
                    store.touch(one)
                store.snapshot(version)
            store.restore(2, out=given, keep=True)  # in place
            if given is not state:
                for version in range(3):
                    found = store.restore(version, keep=True)
                    assert (found[0] if given is not nothing else found).shape == (0, 3)
                    store.drop(version)
            else:
                kept = {version: store.restore(version, keep=True) for version in range(3)}
                for version in range(3):
                    store.drop(version)
                for version, found in kept.items():
                    assert list(found) == list(state) and found["none"].shape == (0, 3) and found["none"].dtype == "f4"
                    assert found["also none"].dtype == "i2" and found["few"][0] == 1 + version
                    assert list(found["field"][:4]) == [step + 1 if step <= version else 0 for step in range(4)]
            store.unprotect()
        store.protect(state, track=track, zone="4KiB")
        store.snapshot(9)
    with ebbtide.open(tmp_path / "run", **SMALL, durability="process") as store:
        found = store.restore(9)
        assert all(numpy.array_equal(found[name], array) for name, array in state.items())


def userfaultfds() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [name for name in found if name == "anon_inode:[userfaultfd]"]


@pytest.mark.parametrize("track", ["auto", "faults", "scan"])
def test_no_userfaultfd_is_open_while_nothing_is_protected(store, track):
    if not can_track(track):
        pytest.skip(f"this machine does not allow {track}")
    arrays = [numpy.zeros(1 << 14) for _ in range(3)]
    for version in range(3):
        store.protect(arrays, track=track)
        arrays[1][version] = 1
        store.snapshot(version)
        store.unprotect()
        assert userfaultfds() == []
    code = numpy.frombuffer(mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC), "u1")
    with pytest.raises(ebbtide.Unsupported, match="it is code"):
        store.protect([*arrays, code], track=track)
    assert userfaultfds() == []


def test_many_arrays_take_few_mappings(store):
    if not can_track("faults"):
        pytest.skip("this machine does not allow faults")

    def mappings() -> int:
        with open("/proc/self/maps") as lines:
            return sum(1 for _ in lines)

    arrays = [numpy.zeros(1200) for _ in range(3000)]  # of two pages or three, which begin and end within one
    before = mappings()
    store.protect(arrays, track="faults", zone="4KiB")
    assert mappings() - before < 1000  # each alone takes two; a process may have 65,530
    arrays[7][3] = 1
    store.snapshot(0)
    arrays[7][3] = 2
    store.snapshot(1)
    assert [store.restore(version, keep=True)[7][3] for version in (0, 1)] == [1, 2]
    assert store.info(1)["bytes"] < store.info(0)["bytes"]
    store.unprotect()
    assert mappings() - before < 1000


def test_only_the_zones_that_differ_are_restored_over_what_is_there(store):
    field = numpy.zeros(1 << 18)
    store.protect(field, track="declared")
    for step in range(3):
        field[step * 10_000] = 1 + step
        store.touch(field[step * 10_000 : step * 10_000 + 1])
        store.snapshot(step)
    out = numpy.full_like(field, -1.0)
    store.restore(2, out=out, have=1, keep=True)
    changed = numpy.flatnonzero(out != -1)
    assert 20_000 in changed and changed.size <= 8192  # the zone of 64 KiB in which they differ
    assert numpy.array_equal(out[changed], field[changed])
    with pytest.raises(ebbtide.InvalidArgument, match="needs out="):
        store.restore(2, have=1)


def test_mistakes_are_refused_and_nothing_is_protected_by_them(store):
    field = numpy.zeros(1 << 16)
    for given, said in [
        ({"track": "guess"}, "guess.*faults"),
        ({"zone": 5000}, "5000.*power of two"),
        ({"zone": "much"}, "much"),
        ({"zone": 4096.0}, "4096.0"),
    ]:
        with pytest.raises(ebbtide.InvalidArgument, match=said):
            store.protect(field, **given)
    with pytest.raises(ebbtide.InvalidArgument, match="share memory"):
        store.protect([field, field[:10]])
    with pytest.raises(ebbtide.InvalidArgument, match="gaps"):
        store.protect(field[::2])
    with pytest.raises(ebbtide.InvalidArgument, match="read-only"):
        store.protect(b"abc")
    for call in (lambda: store.snapshot(1), store.unprotect, lambda: store.touch(field)):
        with pytest.raises(ebbtide.InvalidArgument, match="nothing is protected"):
            call()
    store.protect(field)
    with pytest.raises(ebbtide.InvalidArgument, match="protected already"):
        store.protect(numpy.zeros(10))
    with pytest.raises(ebbtide.InvalidArgument, match="no part of a protected array"):
        store.touch(numpy.zeros(10))
    store.snapshot(1)
    with pytest.raises(ebbtide.VersionExists):
        store.snapshot(1)
    store.unprotect()
    store.protect(field)  # again
    store.close()
    for call in (lambda: store.snapshot(2), store.unprotect, lambda: store.touch(field)):
        with pytest.raises(ebbtide.Closed):
            call()


def test_a_snapshot_waits_for_the_levels_of_a_checkpoint(tmp_path):
    field = numpy.zeros(1 << 18)
    with ebbtide.open(tmp_path / "run", **SMALL, durability="storage") as store:
        store.protect(field)
        future = store.snapshot(1)
        assert future.done()
        future.wait("storage", timeout=60)
        assert future.done("copied") and future.done("storage") and future.error is None
        with pytest.raises(ebbtide.InvalidArgument, match="copied"):
            future.wait("moon")
        field[0] = 1
        store.snapshot(2)
        store.wait("storage", timeout=60)  # snapshots as well
        assert store.latest() == 2


def test_a_signal_ends_a_snapshot_that_waits():
    class Rung(Exception):
        pass

    def ring(*_):
        raise Rung

    array = numpy.zeros(1 << 18)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0) as store:
            store.protect(array, track="declared")
            held = store.history("hog").reserve(0, 8 << 20, "u1")  # so that no piece finds room
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            begun = time.monotonic()
            with pytest.raises(Rung):
                store.snapshot(1)
            assert time.monotonic() - begun < 5
            held.abandon()
            array[7] = 1
            store.snapshot(2)
            assert store.restore(2, keep=True)[7] == 1
            assert store.versions() == [2]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_could_not_be_stored_is_told_by_every_call_that_needs_it(tmp_path):
    array = numpy.zeros(8 << 20, numpy.uint8)
    random = numpy.random.default_rng(0)
    sizes = {"device": "cpu", "device_cache": "4MiB", "host_cache": "64MiB", "disk": "24MiB"}
    with pytest.raises(ebbtide.NoSpace, match="version 3 was not stored"):
        with ebbtide.open(tmp_path / "run", durability="storage", **sizes) as store:
            store.protect(array, track="faults")
            for version in range(1, 5):
                array[:] = random.integers(0, 255, len(array), dtype=numpy.uint8)
                store.snapshot(version).wait("copied")
            end = time.monotonic() + 60
            while store.stats()["snapshots"]["failures"] < 2:
                assert time.monotonic() < end, "the store is full, and no snapshot has failed"
                time.sleep(0.01)
            for call in (lambda: store.wait("storage"), lambda: store.restore(4), lambda: store.wait("storage", 3)):
                with pytest.raises(ebbtide.NoSpace, match="was not stored"):
                    call()
            store.drop(4)
            with pytest.raises(ebbtide.UnknownVersion):
                store.restore(4)
