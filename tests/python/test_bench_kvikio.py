"""KvikIO as a peer of the benchmarks, with a stand-in for its futures: each moves its bytes late, and only once."""

import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bench_stand_in import COUNT, tiny_config
from ebbtide.bench import contest, shot
from ebbtide.bench.peers import PEERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIZE = 1 << 14  # bytes of a version, at most


class CuFile:
    pool = ThreadPoolExecutor(3)
    there = 0

    def __init__(self, path, flags):
        self._file, self._left = open(path, f"{flags}b", buffering=0), 0  # noqa: SIM115
        CuFile.there += 1

    def _later(self, call, array):
        self._left += 1

        def run():
            time.sleep(0.0005)
            moved = call(memoryview(array))
            self._left -= 1
            return moved

        return types.SimpleNamespace(get=self.pool.submit(run).result)

    def pwrite(self, array):
        return self._later(self._file.write, array)

    def pread(self, array):
        return self._later(self._file.readinto, array)

    def close(self):
        assert not self._left, "a future is under way"
        self._file.close()
        CuFile.there -= 1


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.delitem(sys.modules, PEERS["kvikio"].module, raising=False)
    monkeypatch.setitem(
        sys.modules, "kvikio", types.SimpleNamespace(CuFile=CuFile, defaults=types.SimpleNamespace(set=dict))
    )
    yield
    sys.modules.pop(PEERS["kvikio"].module, None)
    assert CuFile.there == 0


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.sampled_from(["reverse", "sequential", "irregular"]),
    hints=st.sampled_from(["all", "one", "none"]),
    wait=st.booleans(),
    sizes=st.lists(st.integers(1, SIZE), min_size=COUNT, max_size=COUNT),
    device=st.integers(0, COUNT),
)
def test_every_version_comes_back(order, hints, wait, sizes, device, tmp_path_factory):
    directory = tmp_path_factory.mktemp("files", numbered=True)
    config = tiny_config(
        directory, sizes=(tuple(sizes),), order=order, hints=hints, wait=wait, device_cache=device * max(sizes)
    )
    out = contest.play_peer(shot.jobs(config)[0], PEERS["kvikio"], directory, cold=False)
    assert (out.restores, out.wrong) == (COUNT, 0)


def test_buffers_are_what_the_device_cache_would_hold(disk, monkeypatch):
    from ebbtide._machine.device import Cpu
    from ebbtide.bench.peers import Given, open_peer

    made = []
    monkeypatch.setattr(Cpu, "bytes", lambda self, count: made.append(count) or np.zeros(count, np.uint8))
    given = Given(Cpu(), disk, (100,) * 9, tuple(range(9)), False, {"device_cache": 450}, lambda version, steps: None)
    open_peer(PEERS["kvikio"], given).close()
    assert made == [100] * 4
