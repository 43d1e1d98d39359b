"""ls, verify, export and gc on stores that Ebbtide itself has written, also while it writes."""

from __future__ import annotations

import json
import pathlib
import signal

from child import run_python
import ebbtide
import numpy as np
import pytest

pytest.importorskip("xxhash", reason="needs the test extra's xxhash")
from commands_support import DAMAGED, OK, REFUSED, run

ARRAYS = {"x": np.arange(3000, dtype="<f4").reshape(30, 100), "step": np.array(7, dtype="<i8")}


def opened(place: pathlib.Path, **options: object) -> ebbtide.Store:
    return ebbtide.open(place, durability="storage", device_cache="1MiB", host_cache="2MiB", disk="32MiB", **options)


@pytest.fixture
def place(disk: pathlib.Path) -> pathlib.Path:
    return disk / "store"


def listed(place: pathlib.Path) -> list[tuple[str, int]]:
    done = run("ls", place, "--json")
    assert done.code == OK, done
    return [(one["history"], one["version"]) for one in done.json["checkpoints"]]


def test_beside_the_process_that_writes(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with opened(place) as store:
        store.checkpoint(1, ARRAYS)
        store.history("adjoint ø").checkpoint(5, [ARRAYS["x"]])
        store.wait("storage")
        store.history("adjoint ø").wait("storage")
        assert listed(place) == [("", 1), ("adjoint ø", 5)]
        done = run("verify", place, "--json")
        assert (done.code, done.json["checkpoints"], done.json["damaged"]) == (OK, 2, [])
        assert run("export", place, "--to", tmp_path / "out", "--format", "npz").code == OK
        for options in ([], ["--dry-run"]):
            assert run("gc", place, "--json", *options).json["error"]["reason"] == "in_use"
        store.checkpoint(2, ARRAYS)
        store.wait("storage")
        assert listed(place) == [("", 1), ("", 2), ("adjoint ø", 5)]
    with np.load(tmp_path / "out" / "history" / "version-1.npz") as archive:
        assert sorted(archive) == ["step", "x"]
        for name, array in ARRAYS.items():
            assert (archive[name].dtype, archive[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(archive[name], array)
    assert run("verify", place, "--json").json["checkpoints"] == 3, "after it closed, the index agrees"


def test_arrays_are_listed_as_they_were_written(place: pathlib.Path) -> None:
    with opened(place) as store:
        store.checkpoint(1, ARRAYS)
    (one,) = run("ls", "-v", place, "--json").json["checkpoints"]
    assert [(region["key"], region["dtype"], region["shape"]) for region in one["regions"]] == [
        ("x", "<f4", [30, 100]),
        ("step", "<i8", []),
    ]
    assert "region 0: 11.72 KiB at 0, <f4 (30, 100), key x" in run("ls", "-v", place).out


def test_gc_leaves_what_a_restart_needs(place: pathlib.Path) -> None:
    with opened(place) as store:
        for version in range(8):
            store.checkpoint(version, [np.full(20_000, version, "<i4")])
        store.wait("storage")
        store.drop(3)
    done = run("gc", place, "--keep-last", 2, "--keep-every", 4, "--json")
    assert done.code == OK, done
    assert [one["version"] for one in done.json["removed"]] == [1, 2, 5]
    with opened(place) as store:
        assert store.versions() == [0, 4, 6, 7]
        assert store.latest() == 7
        for version in store.versions():
            np.testing.assert_array_equal(store.restore(version)[0], np.full(20_000, version, "<i4"))
        store.checkpoint(3, [np.full(20_000, 33, "<i4")])
    assert run("verify", place).code == OK
    assert ("", 3) in listed(place)


def test_after_a_kill(place: pathlib.Path) -> None:
    """What a process leaves that never closed: no index, room that was taken ahead, perhaps a record half written."""
    program = f"""
import os, signal
import ebbtide, numpy as np
store = ebbtide.open({str(place)!r}, durability="storage", device_cache="1MiB", host_cache="2MiB", disk="32MiB")
for version in range(3):
    store.checkpoint(version, [np.full(50_000, version, "<i4")])
store.wait("storage")
store.checkpoint(3, [np.full(50_000, 3, "<i4")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_python(program)
    assert done.returncode == -signal.SIGKILL, done.stderr
    versions = [version for _, version in listed(place)]
    assert versions[:3] == [0, 1, 2]
    assert run("verify", place, "--json").json["damaged"] == []
    before = sum(path.stat().st_blocks for path in place.glob("segment-*"))
    assert run("gc", place).code == OK
    assert sum(path.stat().st_blocks for path in place.glob("segment-*")) < before
    assert [version for _, version in listed(place)] == versions
    assert (place / "index").exists()
    with opened(place) as store:
        for version in versions:
            np.testing.assert_array_equal(store.restore(version)[0], np.full(50_000, version, "<i4"))


def test_damage_that_gc_found_is_known_to_the_next_process(place: pathlib.Path) -> None:
    with opened(place) as store:
        for version in range(3):
            store.checkpoint(version, [np.full(50_000, version, "<i4")])
    (one,) = [one for one in run("ls", place, "--json").json["checkpoints"] if one["version"] == 2]
    with (place / one["file"]).open("r+b") as file:
        file.seek(one["offset"] + one["record_bytes"] - 190_000)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    done = run("gc", place, "--keep-last", 1, "--json")
    assert done.code == DAMAGED
    assert [one["version"] for one in done.json["removed"]] == [0], "1 is the newest that can be restored"
    assert [one["version"] for one in done.json["damaged"]] == [2]
    with pytest.warns(ebbtide.DamagedWarning):
        store = opened(place)
    with store:
        with pytest.warns(ebbtide.DamagedWarning, match="version 2"):
            assert store.latest() == 1
        with pytest.raises(ebbtide.Damaged):
            store.restore(2)
        np.testing.assert_array_equal(store.restore(1)[0], np.full(50_000, 1, "<i4"))
    assert run("gc", place, "--damaged").code == OK
    assert listed(place) == [("", 1)]


def test_an_ephemeral_stores_directory_is_none(disk: pathlib.Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="32MiB") as store:
        store.checkpoint(1, ARRAYS)
        done = run("ls", disk, "--json")
        assert done.code == REFUSED
        assert json.loads(done.out)["error"]["reason"] == "not_a_store"
