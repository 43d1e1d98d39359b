"""Snapshots of arrays that the program goes on writing to."""

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
