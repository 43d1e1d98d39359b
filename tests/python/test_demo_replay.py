"""The demo's replay: what it writes, in which order, and that it notices wrong bytes."""

import os

import numpy as np
import pytest
from demo_stand_in import StandInStore, flip
from ebbtide.demo import replay as replay_module
from ebbtide.demo.replay import (
    BufferedFiles,
    DirectFiles,
    NoDirectIO,
    Outcome,
    Pace,
    ThroughStore,
    replay,
)

PACE = Pace(count=5, size=3 * 4096, interval=0.0)


def direct(tmp_path):
    return DirectFiles(tmp_path)


def buffered(tmp_path):
    return BufferedFiles(tmp_path)


def stored(tmp_path):
    return ThroughStore(StandInStore(device_cache=1).history("replay"))


@pytest.mark.parametrize("make", [direct, buffered, stored])
def test_every_way_gives_back_what_it_was_given(make, tmp_path):
    calls = []
    try:
        outcome = replay(make(tmp_path), PACE, Outcome("", ""), lambda: calls.append(None))
    except NoDirectIO as error:
        pytest.skip(str(error))
    assert outcome.wrong_bytes == 0
    assert len(calls) == len(outcome.blocked_s) == len(outcome.began_s) == 2 * PACE.count
    ends = [began + blocked for began, blocked in zip(outcome.began_s, outcome.blocked_s, strict=True)]
    assert all(end <= following for end, following in zip(ends, outcome.began_s[1:], strict=False))
    assert sum(outcome.blocked_s) == pytest.approx(outcome.write_blocked_s + outcome.read_blocked_s)
    assert sum(outcome.blocked_s) <= outcome.wall_s


def test_a_wrong_byte_is_counted(tmp_path):
    class Breaks(BufferedFiles):
        def read(self, version, array):
            super().read(version, array)
            if version == 3:
                flip(array)

    assert replay(Breaks(tmp_path), PACE, Outcome("", "")).wrong_bytes == 1


def test_a_way_that_reads_nothing_is_noticed(tmp_path):
    class Forgets(BufferedFiles):
        def read(self, version, array):
            pass

    outcome = replay(Forgets(tmp_path), PACE, Outcome("", ""))
    assert outcome.wrong_bytes > 0.9 * PACE.count * PACE.size


def test_the_interval_passes_before_each_call(monkeypatch, tmp_path):
    now = [100.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(replay_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(replay_module.time, "sleep", sleep)
    outcome = replay(BufferedFiles(tmp_path), Pace(3, 4096, interval=0.5), Outcome("", ""))
    assert slept == [0.5] * 6
    assert outcome.wall_s == 3.0 and sum(outcome.blocked_s) == 0.0


def test_short_transfers_are_continued_where_they_ended(monkeypatch, tmp_path):
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(replay_module.os, "pwrite", lambda file, data, at: write(file, data[:100], at))
    monkeypatch.setattr(replay_module.os, "preadv", lambda file, into, at: read(file, [into[0][:77]], at))
    data = np.random.default_rng(3).integers(0, 256, 1000, dtype=np.uint8)
    into = np.zeros_like(data)
    with open(tmp_path / "file", "w+b") as file:
        replay_module.write_whole(file.fileno(), data, 10)
        replay_module.read_whole(file.fileno(), into, 10)
        assert (into == data).all()
        with pytest.raises(EOFError):
            replay_module.read_whole(file.fileno(), into, 20)


def test_a_file_system_without_direct_io_is_refused_by_name(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(replay_module.os, "open", refuse)
    with pytest.raises(NoDirectIO, match="O_DIRECT") as caught, replay_module.direct_file(tmp_path / "file", 0):
        pass
    assert str(tmp_path) in str(caught.value)
