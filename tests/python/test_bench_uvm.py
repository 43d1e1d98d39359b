"""Managed memory as a peer of the benchmarks: what it gives back, and that it keeps to the memory that it was given."""

import threading
import time

import numpy as np
import pytest
from bench_stand_in import COUNT, tiny_config
from ebbtide.bench import contest, shot
from ebbtide.bench.peers import About, uvm
from ebbtide.bench.peers.files import padded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIZE = 1 << 16  # bytes of a version, at most


class Memory:
    """Ordinary memory that takes the same advice, and fails where more is on the device than the device cache may hold."""

    PAGE = 4096

    def __init__(self, given, count, room):
        memory = given.store["device_cache"] + given.store["host_cache"]
        assert (count + 3) * room <= memory or count == len(given.sizes), "more than the caches"
        self.places = [np.zeros(room, np.uint8) for _ in range(count)]
        self.budget, self.lock, self.there = given.store["device_cache"], threading.Lock(), {}

    def lane(self):
        return self

    def copy(self, to, source, size):
        to[:size] = source[:size]

    def move(self, place, size, to_device):
        time.sleep(0.001)  # it is no quicker than the program
        self.advise(place, size, to_device)

    def advise(self, place, size, on_device):
        with self.lock:
            self.there[id(place)] = size if on_device else 0
            assert sum(self.there.values()) <= self.budget, "more on the device than its cache holds"

    def close(self):
        self.places.clear()


def open(given, in_memory=False):  # as a peer's module has it
    return uvm.Uvm(given, Memory, in_memory)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.sampled_from(["reverse", "sequential", "irregular"]),
    hints=st.sampled_from(["all", "one", "none"]),
    wait=st.booleans(),
    in_memory=st.booleans(),
    sizes=st.lists(st.integers(1, SIZE), min_size=COUNT, max_size=COUNT),
    device=st.integers(2, COUNT),
    host=st.integers(3, COUNT),
)
def test_managed_memory_gives_back_what_it_was_given_within_its_memory(
    order, hints, wait, in_memory, sizes, device, host, tmp_path_factory
):
    directory = tmp_path_factory.mktemp("files", numbered=True)
    largest = padded(max(sizes))
    config = tiny_config(
        directory,
        sizes=(tuple(sizes),),
        order=order,
        hints=hints,
        wait=wait,
        device_cache=device * largest,
        host_cache=host * largest,
    )
    out = contest.play_peer(
        shot.jobs(config)[0], About("", __name__, (("in_memory", in_memory),)), directory, cold=not in_memory
    )
    assert (out.restores, out.wrong) == (COUNT, 0)
    assert not (in_memory and list(directory.iterdir()))


def test_a_device_cache_that_holds_no_checkpoint_is_refused(disk):
    with pytest.raises(ValueError, match="the device cache of 4096 bytes holds no checkpoint of 65536"):
        contest.play_peer(shot.jobs(tiny_config(disk, device_cache=4096))[0], About("", __name__), disk, cold=True)


def test_without_a_gpu_it_says_so(disk):
    with pytest.raises(ValueError, match="managed memory needs a GPU, and the device is cpu"):
        contest.play_peer(shot.jobs(tiny_config(disk))[0], About("", uvm.__name__), disk, cold=True)
