"""`ebbtide doctor` from end to end, and each of its judgements over values that are made up."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import ebbtide
import pytest
from ebbtide import _core
from ebbtide._machine.files import FileRate
from ebbtide.cli import app
from ebbtide.doctor import caches, disk, gpus, limits, peers, snapshots
from ebbtide.doctor.finding import Finding, Level
from typer.testing import CliRunner

GIB = 1 << 30
H200 = {"ordinal": 0, "name": "NVIDIA H200", "total_bytes": 140 * GIB, "free_bytes": 139 * GIB, "pci": "0000:1B:00.0"}


@pytest.fixture
def disk_directory(disk: Path) -> Path:  # `disk` here is the module
    return disk


def run(*arguments: object):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_tells_every_section_and_ends_with_0(disk_directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    result = run("--dir", disk_directory, "--json", out)
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert list(document) == ["ebbtide", "can_open", "seconds", "sections"]
    assert document["ebbtide"] == ebbtide.__version__
    assert document["can_open"] is True
    assert 0 < document["seconds"] < 60
    sections = document["sections"]
    assert list(sections) == ["build", "gpus", "links", "peers", "disk", "limits", "snapshots", "caches"]
    for title, findings in sections.items():
        assert title in result.output
        assert findings
        for finding in findings:
            assert list(finding) == ["name", "text", "level", "advice", "values"]
            assert finding["name"] in result.output
            assert (finding["level"] == "ok") == (finding["advice"] == "")
            assert finding["advice"] in result.output
            assert "\n" not in finding["advice"]
    names = {finding["name"]: finding["values"] for findings in sections.values() for finding in findings}
    assert {"ebbtide", "CUDA", "memory copies", "disk write", "disk read", "ulimit -l", "io_uring"} <= set(names)
    assert names["memory copies"]["copy_in"] > 1e6
    assert names["disk write"]["bytes_per_s"] > 1e6
    assert names["disk read"]["bytes_per_s"] > 1e6
    assert names["directory"]["path"] == str(disk_directory)
    assert list(disk_directory.iterdir()) == []


def test_the_sizes_are_those_that_a_store_gets(disk_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("device_cache", "host_cache", "disk"):
        monkeypatch.setenv(f"EBBTIDE_{key.upper()}", "1MiB")
    plan = _core.planned({"directory": str(disk_directory), "host_cache": "2MiB"})
    with ebbtide.open(disk_directory, host_cache="2MiB") as store:
        capacity = {tier["name"]: tier["capacity"] for tier in store.stats()["tiers"]}
        assert store.stats()["settings"].startswith(plan["settings"])
    assert {tier: plan[tier] for tier in ("device", "host", "local")} == capacity
    assert plan["directory"] == str(disk_directory)
    assert _core.planned({"disk": "0"})["local"] == 0


@pytest.mark.skipif(not _core.cuda_absent_reason(), reason="there is a GPU")
def test_a_store_that_cannot_be_opened_at_all_ends_with_1(
    disk_directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EBBTIDE_DEVICE", "cuda")
    out = tmp_path / "doctor.json"
    result = run("--dir", disk_directory, "--json", out)
    assert result.exit_code == 1, result.output
    assert _core.cuda_absent_reason() in result.output
    document = json.loads(out.read_text())
    assert document["can_open"] is False
    assert [f["values"]["reason"] for f in document["sections"]["caches"] if f["level"] == "change"] == ["unsupported"]


def test_a_directory_in_memory_ends_with_1_and_is_named() -> None:
    in_memory = Path("/dev/shm")
    if not in_memory.is_dir() or not _core.file_system(str(in_memory))["in_memory"]:
        pytest.skip("/dev/shm is no tmpfs here")
    result = run("--dir", in_memory)
    assert result.exit_code == 1, result.output
    assert "/dev/shm: tmpfs" in result.output
    assert "--dir DIRECTORY" in result.output
    assert "disk write" not in result.output
    assert "no disk" in result.output  # the other tiers are reported anyway


def test_a_wrong_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "no-such"
    result = run("--dir", missing)
    assert result.exit_code == 2
    assert "--dir" in result.output
    assert "no-such" in re.sub(r"[│\s]", "", result.output)  # a long path is cut where the box ends
    monkeypatch.setenv("EBBTIDE_DIR", str(missing))
    result = run()
    assert result.exit_code == 1
    assert "no-such" in re.sub(r"[│\s]", "", result.output)  # a long path is cut where the box ends
    assert "ENOENT" in result.output


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    result = run("--json", tmp_path / "no-such" / "doctor.json")
    assert result.exit_code == 2
    assert "--json" in result.output
    assert "memory copies" not in result.output


# --- limits -----------------------------------------------------------------------------------------------------------


def test_locked_memory_matters_only_where_io_uring_is_refused_for_it() -> None:
    assert limits.memlock("", limit=65536).level is Level.ok
    assert limits.memlock("io_uring is refused: ENOMEM (Cannot allocate memory)", limit=-1).level is Level.ok
    found = limits.memlock("io_uring is refused: ENOMEM (Cannot allocate memory)", limit=65536)
    assert found.level is Level.change
    assert "64 KiB" in found.text
    assert "ulimit -l unlimited" in found.advice
    assert found.values == {"bytes": 65536}


@pytest.mark.parametrize(
    ("text", "mode", "level"),
    [
        ("always [madvise] never", "madvise", Level.ok),
        ("[always] madvise never", "always", Level.ok),
        ("always madvise [never]", "never", Level.change),
        (None, None, Level.note),
    ],
)
def test_huge_pages(tmp_path: Path, text: str | None, mode: str | None, level: Level) -> None:
    if text:
        write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", text)
    found = limits.huge_pages(tmp_path)
    assert (found.values["mode"], found.level) == (mode, level)
    if mode == "never":
        assert "host cache" in found.text
        assert found.advice == "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"


@pytest.mark.parametrize(
    ("built_in", "reason", "switch", "level", "advice"),
    [
        (True, "", "0", Level.ok, ""),
        (True, "", None, Level.ok, ""),
        (True, "io_uring is refused: EPERM", "2", Level.change, "sysctl kernel.io_uring_disabled=0"),
        (True, "io_uring is refused: EPERM", "0", Level.note, "seccomp"),
        (True, "io_uring is refused: ENOSYS", None, Level.note, "Linux 5.6"),
        (True, "io_uring is refused: ENOMEM", "0", Level.note, "ulimit -l unlimited"),
        (False, "built without", "0", Level.note, "liburing-dev"),
    ],
)
def test_io_uring(tmp_path: Path, built_in: bool, reason: str, switch: str | None, level: Level, advice: str) -> None:
    if switch:
        write(tmp_path, "proc/sys/kernel/io_uring_disabled", switch)
    found = limits.io_uring(built_in, reason, tmp_path)
    assert found.level is level
    assert advice in found.advice
    assert reason in found.text
    assert found.values["disabled"] == (int(switch) if switch else None)


# --- snapshots --------------------------------------------------------------------------------------------------------

WORKS = {"usable": True, "user_faults_only": False, "note": ""}
USER_ONLY = WORKS | {"user_faults_only": True, "note": "vm.unprivileged_userfaultfd is 0: read() fails with EFAULT"}
MPROTECT = {"name": "mprotect"} | WORKS | {"user_faults_only": True, "note": "read() fails with EFAULT"}


def refused(error: str) -> dict[str, object]:
    return {"usable": False, "user_faults_only": False, "note": f"userfaultfd is refused: {error}"}


@pytest.mark.parametrize(
    ("notes", "faults", "auto", "levels", "advice"),
    [
        (WORKS, WORKS, "faults", ["ok", "ok"], ""),
        (WORKS, USER_ONLY, "scan", ["ok", "note"], "vm.unprivileged_userfaultfd=1"),
        (refused("EPERM (not permitted)"), refused("EPERM (not permitted)"), "digest", ["note", "note"], "seccomp"),
        (refused("ENOSYS (not there)"), refused("ENOSYS (not there)"), "digest", ["note", "note"], "Linux 6.7"),
        (refused("it needs Linux 6.7"), WORKS, "faults", ["note", "ok"], "Linux 6.7"),
    ],
)
def test_ways_to_watch_writes(
    notes: dict[str, object], faults: dict[str, object], auto: str, levels: list[str], advice: str
) -> None:
    ways = [{"name": "userfaultfd asynchronous"} | notes, {"name": "userfaultfd synchronous"} | faults, MPROTECT]
    found = snapshots.findings({"watches": ways, "auto": auto})
    assert [one.level.value for one in found] == [*levels, "ok", "ok"]
    assert all(str(way["note"]) in one.text for way, one in zip(ways, found, strict=False))
    assert all(advice in one.advice for one in found if one.advice)
    assert found[-1].values == {"track": auto}
    assert f'"{auto}"' in found[-1].text


def test_what_auto_uses_is_what_this_machine_can() -> None:
    tracking = _core.write_tracking()
    usable = {way["name"] for way in tracking["watches"] if way["usable"]}
    whole = {way["name"] for way in tracking["watches"] if way["usable"] and not way["user_faults_only"]}
    assert "mprotect" in usable
    best = (
        "faults" if "userfaultfd synchronous" in whole else "scan" if "userfaultfd asynchronous" in usable else "digest"
    )
    assert tracking["auto"] == best


# --- GPUs -------------------------------------------------------------------------------------------------------------


def with_card(root: Path, lanes: str = "16", driver: bool = True) -> Path:
    slot = "sys/bus/pci/devices/0000:1b:00.0"
    for name, text in (
        ("vendor", "0x10de"),
        ("class", "0x030200"),
        ("current_link_width", lanes),
        ("max_link_width", "16"),
    ):
        write(root, f"{slot}/{name}", text)
    write(root, "sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086")
    if driver:
        version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
        write(root, "proc/driver/nvidia/version", version)
    return root


def test_a_gpu_is_told_with_its_driver_and_lanes(tmp_path: Path) -> None:
    (found,) = gpus.gpus([H200], "", True, with_card(tmp_path))
    assert found.level is Level.ok
    for part in ("NVIDIA H200", "139 GiB of 140 GiB free", "0000:1B:00.0", "580.95.05"):
        assert part in found.text
    assert found.values["driver"] == "580.95.05"
    assert found.values["total_bytes"] == 140 * GIB
    (full,) = gpus.gpus([H200 | {"free_bytes": 3 * GIB}], "", True, tmp_path)
    assert full.level is Level.note
    (unknown,) = gpus.gpus([H200 | {"free_bytes": None}], "", True, tmp_path)
    assert unknown.level is Level.ok


def test_missing_lanes_are_named(tmp_path: Path) -> None:
    (found,) = gpus.gpus([H200], "", True, with_card(tmp_path, lanes="8"))
    assert found.level is Level.note
    assert "8 of its 16" in found.advice


def test_no_gpu_has_a_reason_and_advice_only_where_there_is_a_card(tmp_path: Path) -> None:
    (bare,) = gpus.gpus([], "no CUDA driver is installed", True, tmp_path)
    assert bare.level is Level.ok
    assert "no CUDA driver is installed" in bare.text
    (card,) = gpus.gpus([], "no CUDA driver is installed", True, with_card(tmp_path, driver=False))
    assert card.level is Level.note
    assert "install NVIDIA's driver" in card.advice
    (hidden,) = gpus.gpus([], "the CUDA driver found no GPU", True, with_card(tmp_path))
    assert "CUDA_VISIBLE_DEVICES" in hidden.advice
    (without,) = gpus.gpus([], "this build is without CUDA", False, tmp_path)
    assert without.level is Level.ok


def test_a_build_without_cuda_is_to_be_changed_only_beside_a_gpu() -> None:
    info = {"cuda": None, "io_uring": True, "compiler": "12"}
    assert [finding.level for finding in gpus.build(info, [])] == [Level.ok] * 3
    beside = gpus.build(info, ["0000:1b:00.0"])
    assert [finding.level for finding in beside] == [Level.ok, Level.change, Level.ok]
    assert "nvcc" in beside[1].advice


def test_what_the_bus_has_is_counted_without_other_devices(tmp_path: Path) -> None:
    assert gpus.cards(with_card(tmp_path)) == ["0000:1b:00.0"]
    assert gpus.cards(tmp_path / "nowhere") == []


def test_a_slow_link_is_noted() -> None:
    rates = {"device_copy": 2e12, "device_to_host": 55e9, "host_to_device": 54e9, "both": 95e9}
    assert gpus.judge_link("cuda:0 copies", rates).level is Level.ok
    slow = gpus.judge_link("cuda:0 copies", rates | {"host_to_device": 3e9})
    assert slow.level is Level.note
    assert "3 GB/s" in slow.text
    assert slow.values["host_to_device"] == 3e9


def test_links_are_measured_on_any_device() -> None:
    rates = _core.link_rates("cpu", 1 << 20)
    assert list(rates) == ["device_copy", "device_to_host", "host_to_device", "both"]
    assert all(1e6 < rate < 1e13 for rate in rates.values())
    with pytest.raises(ebbtide.InvalidArgument, match="quantum"):
        _core.link_rates("quantum")
    with pytest.raises(ebbtide.Unsupported, match="cuda:4096"):
        _core.link_rates("cuda:4096")


def pair(source: int, target: int, reason: str = "", damaged: bool = False) -> dict[str, object]:
    rate = 0.0 if reason else 388e9
    return {"from": source, "to": target, "usable": not reason, "reason": reason, "damaged": damaged,
            "store": rate, "load": rate}  # fmt: skip


@pytest.mark.parametrize(("devices", "text"), [(0, "none: there is no GPU"), (1, "none: there is one GPU")])
def test_fewer_than_two_gpus_have_one_plain_line(devices: int, text: str) -> None:
    (found,) = peers.findings(devices, [])
    assert (found.level, found.text) == (Level.ok, text)


def test_the_matrix_of_peers_has_a_row_for_each_gpu() -> None:
    lost = "3 of 8388608 probed bytes arrived wrong, the first of them at 8"
    links = [pair(a, b) for a in range(3) for b in range(3) if a != b]
    links[2] = pair(1, 0, "no NVLink from cuda:1 to cuda:0")
    links[5] = pair(2, 1, lost, damaged=True)
    first, second, third = peers.findings(3, links)
    assert [row.name for row in (first, second, third)] == [f"cuda:{gpu} to and from" for gpu in range(3)]
    assert (first.level, second.level, third.level) == (Level.ok, Level.note, Level.change)
    assert first.text == "cuda:1 388 GB/s, 388 GB/s; cuda:2 388 GB/s, 388 GB/s"
    assert second.text == "cuda:2 388 GB/s, 388 GB/s; cuda:0 not used: no NVLink from cuda:1 to cuda:0"
    assert lost in third.text
    assert third.as_json()["values"]["pairs"] == links[4:]


@pytest.mark.device
@pytest.mark.skipif(bool(_core.cuda_absent_reason()), reason=f"no GPU: {_core.cuda_absent_reason()}")
def test_a_real_gpu_is_found_and_measured(disk_directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    result = run("--dir", disk_directory, "--json", out)
    assert result.exit_code == 0, result.output
    sections = json.loads(out.read_text())["sections"]
    devices = _core.cuda_devices()
    assert [finding["name"] for finding in sections["gpus"]] == [f"cuda:{device['ordinal']}" for device in devices]
    for finding in sections["gpus"]:
        assert 0 < finding["values"]["free_bytes"] <= finding["values"]["total_bytes"]
    links = {finding["name"]: finding["values"] for finding in sections["links"]}
    for device in devices:
        rates = links[f"cuda:{device['ordinal']} copies"]
        assert rates["device_copy"] > rates["device_to_host"] > 1e9
        assert rates["both"] > max(rates["device_to_host"], rates["host_to_device"]) * 0.9
    pairs = [pair for finding in sections["peers"] for pair in finding["values"].get("pairs", [])]
    assert len(pairs) == len(devices) * (len(devices) - 1)
    assert all(pair["usable"] == (pair["store"] > 0) == (not pair["reason"]) for pair in pairs)


# --- disk and caches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "in_memory", "free", "level"),
    [
        ("ext4", False, 100 * GIB, Level.ok),
        ("tmpfs", True, 100 * GIB, Level.change),
        ("nfs", False, 100 * GIB, Level.note),
        ("xfs", False, 1 << 20, Level.change),
    ],
)
def test_a_place_is_judged(tmp_path: Path, kind: str, in_memory: bool, free: int, level: Level) -> None:
    described = {"kind": kind, "in_memory": in_memory, "free_bytes": free, "total_bytes": 200 * GIB}
    found = disk.place(tmp_path, lambda _: described)
    assert found.level is level
    assert str(tmp_path) in found.text
    assert kind in found.text


def test_the_place_is_the_one_that_a_store_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("EBBTIDE_DIRECTORY", "EBBTIDE_DIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EBBTIDE_DISK", "1MiB")
    expected = "/tmp"
    for name in (None, "TMPDIR", "EBBTIDE_DIR", "EBBTIDE_DIRECTORY"):
        if name:
            expected = str(tmp_path / name)
            Path(expected).mkdir()
            monkeypatch.setenv(name, expected)
        assert disk.directory_of(None) == Path(expected)
        try:
            assert _core.planned({})["directory"] == expected
        except ebbtide.Unsupported as error:  # there it is a tmpfs
            assert f'"{expected}"' in str(error)
    assert disk.directory_of(tmp_path) == tmp_path


def test_rates_are_judged(tmp_path: Path) -> None:
    def measure(rate: float, direct: bool = True):
        def measured(directory: Path):
            assert directory == tmp_path
            return FileRate(rate, 8, 4 << 20, direct), FileRate(2 * rate, 8, 4 << 20, direct)

        return measured

    assert [f.level for f in disk.rates(tmp_path, measure(5e9))] == [Level.ok, Level.ok]
    assert [f.level for f in disk.rates(tmp_path, measure(300e6))] == [Level.note, Level.ok]
    assert [f.level for f in disk.rates(tmp_path, measure(5e9, direct=False))] == [Level.note, Level.note]

    def broken(*_: object, **__: object):
        raise OSError(28, "No space left on device")

    (found,) = disk.rates(tmp_path, broken)
    assert found.level is Level.change
    assert "No space left" in found.text


@pytest.mark.parametrize(
    ("device", "host", "local", "level"),
    [
        (4 * GIB, 32 * GIB, 100 * GIB, Level.ok),
        (4 * GIB, 32 * GIB, 0, Level.ok),
        (4 * GIB, 32 * GIB, 10 * GIB, Level.note),
        (100 << 20, 200 << 20, 100 * GIB, Level.note),
    ],
)
def test_sizes_are_judged(device: int, host: int, local: int, level: Level) -> None:
    plan = {"device": device, "host": host, "local": local, "directory": "/scratch", "settings": ""}
    assert caches.judge(plan).level is level


def test_memory_is_told_with_its_limits() -> None:
    free = {"available": GIB, "cgroup": None, "cgroup_left": None, "local_ranks": 1}
    assert "no limit by a cgroup" in caches.memory(free).text
    found = caches.memory({"available": 8 * GIB, "cgroup": 2 * GIB, "cgroup_left": GIB, "local_ranks": 4})
    assert "2 GiB, 1 GiB of it left" in found.text
    assert "4 local ranks" in found.text
    assert caches.memory().values["available"] > 0


@pytest.mark.parametrize(
    ("settings", "available", "left", "ranks", "level", "needed", "advice"),
    [
        ("cuda:0: device 4 GiB", 64, None, 1, Level.ok, 32, ""),
        ("cuda:0: device 4 GiB", 32, 32, 1, Level.ok, 32, ""),
        ("host memory: device 4 GiB", 32, None, 1, Level.change, 36, "below 32 GiB in all"),  # there it is memory too
        ("cuda:0: device 4 GiB", 64, 16, 1, Level.change, 32, "below 16 GiB in all .*memory.max"),
        ("cuda:0: device 4 GiB", 64, None, 8, Level.change, 256, "below 8 GiB in all"),
    ],
)
def test_caches_that_memory_does_not_hold_are_named(
    settings: str, available: int, left: int | None, ranks: int, level: Level, needed: int, advice: str
) -> None:
    plan = {"device": 4 * GIB, "host": 32 * GIB, "local": 0, "directory": "/scratch", "settings": settings}
    room = {"available": available * GIB, "cgroup": None if left is None else 2 * left * GIB, "local_ranks": ranks}
    found = caches.fits(plan, room | {"cgroup_left": None if left is None else left * GIB})
    assert (found.level, found.values["needed"]) == (level, needed * GIB)
    assert re.search(advice, found.advice)
    assert ("memory.max" in found.advice) == (left == 16), "only a limit can be raised"


def test_what_a_store_would_take_is_held_against_memory(
    disk_directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EBBTIDE_HOST_CACHE", "64TiB")
    out = tmp_path / "doctor.json"
    assert run("--dir", disk_directory, "--json", out).exit_code == 0
    found = {finding["name"]: finding for finding in json.loads(out.read_text())["sections"]["caches"]}
    assert found["room for the caches"]["level"] == "change"
    assert "EBBTIDE_HOST_CACHE" in found["room for the caches"]["advice"]


def test_a_finding_has_advice_if_and_only_if_it_is_not_ok() -> None:
    for level, advice in ((Level.ok, "do it"), (Level.note, ""), (Level.change, "")):
        with pytest.raises(ValueError, match="advice"):
            Finding("a", "b", level, advice)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_directory_without_locks_is_named_with_what_to_do(code: int, tmp_path: Path) -> None:
    def lock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    described = {"kind": "nfs", "in_memory": False, "free_bytes": 1 << 40, "total_bytes": 1 << 41}
    found = disk.place(tmp_path, lambda _: described, lock)
    assert found.level is Level.change
    assert "two processes" in found.text and os.strerror(code) in found.text
    assert "local disk" in found.advice
