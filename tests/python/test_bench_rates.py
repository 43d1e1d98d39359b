"""The bare rates that shots are compared with."""

import os

import pytest
from bench_stand_in import tiny_config
from ebbtide._machine import copies, files
from ebbtide._machine.device import Cpu
from ebbtide.bench import rates


def test_copies_of_a_touched_area_have_a_rate():
    copy_in, copy_out = copies.copy_rates(size=1 << 16, cache=1 << 18, pause=0.0, repeats=3)
    assert copy_in > 0 and copy_out > 0
    assert copies.copy_two_rate(1 << 16, repeats=3) > 0


def test_files_have_rates_and_leave_nothing_behind(tmp_path):
    write, read = files.file_rates(tmp_path, depths=(1, 3), request=1 << 15, probe=1 << 17, repeats=1)
    for rate in (write, read):
        assert rate.bytes_per_s > 0
        assert rate.depth in (1, 3) and rate.request == 1 << 15
    assert list(tmp_path.iterdir()) == []


def test_what_was_moved_is_on_the_file(tmp_path):
    """A rate is no rate when not every byte was moved."""
    with files.Scratch(tmp_path) as file:
        file.fresh(40960)
        files._move(file.fd, span=40960, request=16384, depth=2, write=True)
        fd = os.open(f"/proc/self/fd/{file.fd}", os.O_RDONLY)
        try:
            found = os.pread(fd, 1 << 20, 0)
        finally:
            os.close(fd)
    assert len(found) == 40960
    assert set(found) <= {1, 2} and found.count(0) == 0


def test_a_transfer_that_fails_is_no_rate(tmp_path):
    path = tmp_path / "read-only"
    path.write_bytes(bytes(8192))
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            files._move(fd, span=8192, request=4096, depth=1, write=True)
        with pytest.raises(OSError, match="read 0 of"):
            files._move(fd, span=16384, request=8192, depth=1, write=False)
    finally:
        os.close(fd)


def test_drift_and_mean_by_name():
    file = files.FileRate(1e9, 1, 4096, True)
    faster = files.FileRate(1.5e9, 2, 4096, True)
    before = rates.Rates(copies.HostCopies(4e9, 5e9, 8e9), file, file)
    after = rates.Rates(copies.HostCopies(4e9, 4e9, 8e9), faster, file)
    assert rates.drift(before, after) == pytest.approx(
        {"copy_in": 0, "copy_out": -0.2, "copy_two": 0, "write": 0.5, "read": 0}
    )
    assert rates.mean(before, after)["write"] == pytest.approx(1.25e9)


def test_without_a_file_tier_there_are_no_file_rates(tmp_path):
    measured = rates.measure(tiny_config(tmp_path, disk=0))
    assert measured.write is None and measured.read is None
    assert set(measured.table()) == {"copy_in", "copy_out", "copy_two"}


def test_a_devices_copies_have_rates():
    measured = copies.device_copies(Cpu(), size=1 << 16, pause=0.0, span=1 << 18, repeats=3)
    named = rates.Rates(measured, None, None)
    assert set(named.table()) == {"device_copy", "d2h", "h2d", "both"}
    assert all(rate > 0 for rate in named.table().values())
    assert named.table()["device_copy"] == pytest.approx((1 << 16) / measured.device_copy_s)
    fields = {"device_copy_s", "device_copy_busy_s", "d2h_bytes_s", "h2d_bytes_s", "both_bytes_s", "write", "read"}
    assert fields <= set(named.as_json())
