"""The bare disk just before and just after a shot, and between its passes."""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench_stand_in import GPUS, some_rates, tiny_config
from ebbtide._machine import files
from ebbtide._machine.device import Cpu
from ebbtide.bench import model, rates, shots
from ebbtide.bench.disk import Around, Disk, Moment

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
import gpu_figures
import gpu_shots

ORDERS = ("reverse", "sequential", "irregular")
PIECE, PIECES, REQUEST = 40960, 6, 16384


def a_disk(tmp_path, device=None, **more):
    return Disk(tmp_path, device or Cpu(), PIECE, span=PIECE * PIECES + 1, request=REQUEST, depth=3, **more)


class Transfers:
    """What is asked of the system."""

    def __init__(self, monkeypatch, short=None):
        self.read, self.written = [], []
        preadv, pwritev = os.preadv, os.pwritev

        def read(fd, views, offset):
            self.read.append((offset, len(views[0])))
            return preadv(fd, views, offset) - (short == "read")

        def write(fd, views, offset):
            self.written.append((offset, len(views[0])))
            return pwritev(fd, views, offset) - (short == "write")

        monkeypatch.setattr(os, "preadv", read)
        monkeypatch.setattr(os, "pwritev", write)


def whole(count):
    """The requests that cover so many pieces, by offset."""
    return sorted((piece * PIECE + at, min(REQUEST, PIECE - at)) for piece in range(count)
                  for at in range(0, PIECE, REQUEST))  # fmt: skip


def test_every_byte_is_written_in_place_and_read_once_for_each_order(tmp_path, monkeypatch):
    transfers = Transfers(monkeypatch)
    with a_disk(tmp_path) as disk:
        assert sorted(transfers.written) == whole(PIECES) and not transfers.read, (
            "space that was never written to is slow"
        )
        for orders in (["irregular"], ["reverse", "sequential"]):
            transfers.written.clear()
            transfers.read.clear()
            moment = disk.measure(orders)
            assert sorted(transfers.written) == sorted(transfers.read) == sorted(whole(PIECES) * len(orders))
            assert moment.write > 0 and all(moment.read[order] > 0 for order in orders)
    assert list(tmp_path.iterdir()) == []


def test_pieces_are_read_in_the_shots_order(tmp_path, monkeypatch):
    transfers = Transfers(monkeypatch)
    with Disk(tmp_path, Cpu(), PIECE, PIECE * PIECES, request=PIECE, depth=1) as disk:
        found = {}
        for order in ORDERS:
            transfers.read.clear()
            disk.measure([order])
            found[order] = [offset // PIECE for offset, _ in transfers.read]
    assert found["sequential"] == list(range(PIECES)) and found["reverse"] == found["sequential"][::-1]
    assert sorted(found["irregular"]) == found["sequential"]
    assert found["irregular"] not in (found["sequential"], found["reverse"])


@pytest.mark.parametrize("short", ["read", "write"])
def test_a_short_transfer_is_no_rate_and_leaves_no_file(tmp_path, monkeypatch, short):
    before = len(os.listdir("/proc/self/fd"))
    Transfers(monkeypatch, short)
    with pytest.raises(OSError, match=short[:2]), a_disk(tmp_path) as disk:
        disk.measure(["reverse"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_all_bytes_over_all_the_time_are_the_rate(tmp_path, monkeypatch):
    now = [0.0]

    def timed(transfer):
        def take(fd, views, offset):
            now[0] += 100.0 if offset == PIECE * (PIECES - 1) else 1.0  # one piece is slow
            return transfer(fd, views, offset)

        return take

    for transfer in ("preadv", "pwritev"):
        monkeypatch.setattr(os, transfer, timed(getattr(os, transfer)))
    monkeypatch.setattr(files, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    with Disk(tmp_path, Cpu(), PIECE, PIECE * PIECES, request=PIECE, depth=1) as disk:
        moment = disk.measure(["reverse"])
    assert moment.write == moment.read["reverse"] == pytest.approx(PIECE * PIECES / (PIECES - 1 + 100.0))


def test_more_is_moved_than_memory_is_taken(tmp_path, monkeypatch):
    transfers, taken, pinned = Transfers(monkeypatch), [], Cpu.pinned
    monkeypatch.setattr(Cpu, "pinned", lambda self, size: taken.append(size) or pinned(self, size))
    with a_disk(tmp_path, memory=2 * PIECE + 1) as disk:
        assert taken == [2 * PIECE]
        transfers.written.clear()
        disk.measure(["reverse"])
        assert sorted(transfers.written) == sorted(transfers.read) == whole(PIECES), "each to a place of its own"


def test_as_much_is_moved_as_a_shots_caches_cannot_hold(tmp_path, monkeypatch):
    for caches, moved in ((1 << 18, 4 << 16), (0, 12 << 16), (1 << 30, 1 << 16)):
        with monkeypatch.context() as patch:
            transfers = Transfers(patch)
            with Disk.like(tiny_config(tmp_path, device_cache=caches, host_cache=caches), Cpu()):
                assert sum(size for _, size in transfers.written) == moved, caches


def test_the_mean_of_both_moments_counts_in_each_direction():
    around = Around(Moment(3.0, {"reverse": 1.0, "irregular": 9.0}), Moment(2.0, {"reverse": 4.0}), "reverse")
    assert around.mean() == {"write": 2.5, "read": 2.5}
    assert around.as_json()["mean"] == around.mean() and around.as_json()["before"]["write"] == 3.0


def test_the_moment_between_the_passes_counts_in_both():
    between = Moment(2.0, {"reverse": 8.0})
    around = Around(Moment(4.0, {"reverse": 1.0}), Moment(1.0, {"reverse": 4.0}), "reverse", between)
    assert around.mean() == {"write": 3.0, "read": 6.0}
    assert around.as_json()["between"] == {"write": 2.0, "read": {"reverse": 8.0}}


@pytest.mark.parametrize("make", GPUS)
def test_it_is_measured_from_and_to_memory_of_any_device(tmp_path, make):
    device = make()
    with device.use(), a_disk(tmp_path, device) as disk:
        assert disk.measure(ORDERS).read.keys() == set(ORDERS)


class Recorded(Cpu):
    """Ordinary memory that records the direction of its copies; `fails`: they fail."""

    def __init__(self, fails=False):
        self.copies, self.fails = [], fails

    def copy(self, to, source):
        self.copies.append((to, source))
        if self.fails:
            raise RuntimeError("the device is gone")
        super().copy(to, source)


def test_checkpoints_cross_beside_what_is_measured(tmp_path):
    device = Recorded()
    with a_disk(tmp_path, device, interval=3600.0) as disk:
        (first,) = device.copies
        array = first[1]
        assert len(array) == PIECE and len(first[0]) == PIECE, "one piece, from the device while it writes"
        disk.measure(["reverse"])
        assert [to is array for to, _ in device.copies[1:]] == [False, True], "and to it while it reads"
        assert "every 3600 s" in disk.how


def test_copies_that_fail_beside_it_leave_no_rate(tmp_path):
    with pytest.raises(RuntimeError, match="device is gone"):
        a_disk(tmp_path, Recorded(fails=True))
    assert list(tmp_path.iterdir()) == []


def test_a_span_shorter_than_a_piece_is_one_piece(tmp_path):
    with Disk.like(tiny_config(tmp_path), Cpu()) as disk:
        assert disk.measure(["reverse"]).write > 0
    with Disk(tmp_path, Cpu(), 4097, span=1, request=4096) as disk:
        assert disk.measure(["reverse"]).read["reverse"] > 0


@pytest.fixture
def moments(monkeypatch):
    """Disks that are asked, and answer with ever slower writes and ever faster reads."""
    monkeypatch.setattr(rates, "measure", some_rates)
    asked = []

    def measure(self, orders):
        asked.append(set(orders))
        return Moment(1e9 / len(asked), {order: 1e6 * len(asked) for order in orders})

    monkeypatch.setattr(Disk, "measure", measure)
    return asked


def test_each_shot_is_held_to_the_moments_around_it(tmp_path, moments, monkeypatch):
    monkeypatch.setattr(model, "at_best", lambda config, outcomes, bare: bare)  # as if it had reached no more itself
    size, interval = 1 << 16, 1e-4
    plans = [
        {"sizes": [size] * 12, "order": order, "interval": interval} for order in ("reverse", "irregular", "irregular")
    ]
    store = {"device_cache": "256KiB", "host_cache": "256KiB", "directory": tmp_path}
    documents = shots(plans, store, remeasure=False, disk_around=True)
    assert moments == [{"reverse"}, {"reverse", "irregular"}, {"irregular"}, {"irregular"}]
    for number, document in enumerate(documents, start=1):
        told = document["machine"]["disk"]
        both = 1e9 / number, 1e9 / (number + 1)
        assert told["mean"] == pytest.approx({"write": sum(both) / 2, "read": 1e6 * (number + 0.5)})
        assert "in the shot's order" in document["machine"]["how"]["disk"]
        # Four of twelve do not fit: so much more than the computing at a read rate that is far below every other.
        late = 4 * size / told["mean"]["read"] - sum(document["slept"]["backward_s"])
        assert document["bound"]["blocked_s"] == pytest.approx(late, rel=0.05)
        assert document["machine"]["before"]["read"]["bytes_per_s"] == 1e9, "those around all shots are reported too"


def test_without_it_the_rates_around_count_and_nothing_is_told(tmp_path, moments):
    store = {"device_cache": "256KiB", "host_cache": "256KiB", "directory": tmp_path}
    (document,) = shots([{"sizes": [1 << 16] * 12, "interval": 1e-4}], store)
    assert document["machine"]["disk"] is None and not moments


def test_a_series_that_ends_early_has_its_moments(tmp_path, moments):
    store = {"device_cache": "256KiB", "host_cache": "256KiB", "directory": tmp_path}
    answers = iter([False, True])
    documents = shots([{"sizes": [1 << 16] * 12}] * 3, store, False, enough=lambda: next(answers), disk_around=True)
    assert len(documents) == 1 and documents[0]["machine"]["disk"]["mean"]["read"] == 1.5e6


def test_what_is_kept_of_a_shot_on_a_gpu_tells_of_the_disk(tmp_path, moments):
    store = {"device_cache": "256KiB", "host_cache": "256KiB", "directory": tmp_path}
    (document,) = shots([{"sizes": [1 << 16] * 12, "wait": True}], store, False, disk_around=True)
    kept = gpu_shots.figures(document)
    assert kept["fill_s"] == document["fill_s"] > 0
    assert len(moments) == 3, "before, when all is flushed, and after"
    assert kept["disk"]["mean"] == {"write": 7.5e8, "read": 2.5e6}
    assert (kept["bare_bytes_per_s"]["read"], kept["reference_bytes_per_s"]["read"]) == (2.5e6, 1e9)
    assert kept["moved"]["host>local"]["bytes"] == 12 << 16, "all of them were flushed"
    assert kept["moved"]["local>host"]["bytes"] >= 4 << 16
    rows = {row.figure: row for row in gpu_figures.disk_rows("a case", [kept])}
    assert rows["shot, a case: bare read around it"].values == [2.5e6 / 1e9]
    assert rows["shot, a case: write in it"].values == [(12 << 16) / 1e9]
    at_work = kept["moved"]["local>host"]
    assert rows["shot, a case: read in it, while at work"].values == [at_work["bytes"] / 1e9 / at_work["busy_s"]]
    assert not list(gpu_figures.disk_rows("a case", [{"excess": 0.1}])), "files from before have no such rows"


def test_what_is_measured_between_the_passes_is_no_part_of_the_shot(tmp_path, monkeypatch):
    moments = []

    def measure(self, orders):
        moments.append(orders)
        if len(moments) == 2:  # between the passes
            worker = threading.Thread(target=burn)
            worker.start()
            worker.join()
        return Moment(1e9, dict.fromkeys(orders, 1e9))

    def burn():
        while time.thread_time() < 1.5:  # of a thread that is not the one that calls
            pass

    monkeypatch.setattr(rates, "measure", some_rates)
    monkeypatch.setattr(Disk, "measure", measure)
    store = {"device_cache": "256KiB", "host_cache": "256KiB", "directory": tmp_path}
    (document,) = shots([{"sizes": [1 << 16] * 12, "wait": True}], store, False, disk_around=True)
    assert len(moments) == 3 and document["total"]["wall_s"] < 1.5
    assert document["host_cpu"]["cores"] * document["total"]["wall_s"] < 1.5


def test_what_the_bare_disk_takes_is_in_the_guess_of_a_shots_time():
    waits, goes_on = (
        gpu_shots.Case("", {"sizes": [1] * 100, "interval": 0.01, "wait": wait}, 0) for wait in (True, False)
    )
    assert gpu_shots.guess(goes_on, 2e9, 10**9) == pytest.approx(gpu_shots.guess(goes_on, 2e9) + 1)
    assert gpu_shots.guess(waits, 2e9, 10**9) == pytest.approx(gpu_shots.guess(waits, 2e9) + 2)


def test_a_restore_is_allowed_a_chunk_of_each_link_that_it_crosses():
    bare = {"device_copy": 1e12, "h2d": 50e9, "read": 2e9}
    size, chunk = 128 << 20, 4 << 20
    allowed = {"device": (1.5 * size + chunk) / 1e12, "host": (1.5 * size + 4 * chunk) / 50e9,
               "local": (1.5 * size + chunk) / 2e9 + 4 * chunk / 50e9}  # fmt: skip
    for tier, longest in allowed.items():
        document = {"config": {"sizes": None, "size": size, "checkpoints": 1, "restore_order": [0]},
                    "restore": {"blocked_s": [longest], "found_on": [tier]}}  # fmt: skip
        assert gpu_shots.longest(document, bare)["longest_of_allowed"] == pytest.approx(1), tier
