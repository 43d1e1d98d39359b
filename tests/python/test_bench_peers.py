"""`ebbtide bench peers`: each row is the same shot, and what is wrong with one is said in its row."""

import fcntl
import importlib.util
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_stand_in import COUNT, tiny_config
from ebbtide.bench import contest, shot
from ebbtide.bench.command import app
from ebbtide.bench.peers import PEERS, About, Peer
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("measured")
PACKAGES = {"adios2": "adios2", "binomial": "checkpoint_schedules"}
THERE = [
    key
    for key, about in PEERS.items()
    if not about.on_gpu and (key not in PACKAGES or importlib.util.find_spec(PACKAGES[key]))
]


class Faulty(Peer):
    """Keeps its checkpoints in memory, but for what `fault` does to them."""

    def __init__(self, given, fault):
        self.fault, self.kept = fault, {}
        (given.directory / "process").write_text(str(os.getpid()))

    def checkpoint(self, version, window):
        if self.fault == "crash":
            raise RuntimeError("the disk [red] is full")
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "hang":
            time.sleep(600)
        late = window if self.fault == "delay" else window.copy()
        self.kept[version] = late

    def restore(self, version, out):
        if self.fault == "lose" and version == 3:
            return
        source = self.kept[5 if self.fault == "mix" and version == 3 else version]
        out[:] = source
        if self.fault == "flip" and version == 3:
            out[-1] ^= 1


def open(given, fault=""):  # as a peer's module has it
    return Faulty(given, fault)


def faulty(fault, **more):
    return About("one of the tests", __name__, (("fault", fault),), **more)


def bench(disk, *arguments, code=0):
    tiny = [
        "--checkpoints",
        "8",
        "--size",
        "64KiB",
        "--interval",
        "1ms",
        "--device-cache",
        "128KiB",
        "--host-cache",
        "128KiB",
    ]
    ran = CliRunner().invoke(app, ["peers", *arguments, *tiny, "--dir", str(disk)])
    assert ran.exit_code == code, ran.output
    return ran.output


@pytest.mark.parametrize("key", THERE)
def test_a_peer_gives_back_what_it_was_given(key, disk):
    for number, (order, hints) in enumerate(itertools.product(("reverse", "irregular"), ("all", "one", "none"))):
        wait, cold = number % 2 == 1, number % 3 > 0
        if key == "binomial" and order != "reverse":
            continue
        (directory := disk / str(number)).mkdir()
        job = shot.jobs(tiny_config(directory, order=order, hints=hints, wait=wait))[0]
        out = contest.play_peer(job, PEERS[key], directory, cold)
        assert out.restores == COUNT and (out.wrong == 0 or not PEERS[key].gives_back)


@pytest.mark.parametrize("fault", ["lose", "mix", "flip"])
def test_a_peer_that_gives_a_wrong_byte_is_found_out(fault, disk):
    out = contest.play_peer(shot.jobs(tiny_config(disk))[0], faulty(fault), disk, True)
    assert out.wrong == 1


def test_what_fails_says_so_in_its_row_and_the_others_go_on(disk, monkeypatch):
    for fault in ("crash", "exit", "flip"):
        monkeypatch.setitem(PEERS, fault, faulty(fault))
    monkeypatch.setitem(PEERS, "missing", About("not there", "no_such_package"))
    keys = ["crash", "exit", "missing", "flip", "pageable"]
    document = contest.run(tiny_config(disk), keys, limit=300, repeats=2)
    rows = {row["peer"]: row for row in document["rows"]}
    assert list(rows) == keys
    assert rows["crash"]["failed"] == "RuntimeError: the disk [red] is full"
    assert rows["exit"]["failed"] == "its process ended with 7"
    assert rows["missing"]["failed"] == "not installed: No module named 'no_such_package'"
    assert [turn["wrong"] for turn in rows["flip"]["turns"]] == [1, 1]
    assert [turn["wrong"] for turn in rows["pageable"]["turns"]] == [0, 0]
    assert all(turn["blocked_s"] > 0 and turn["bound_s"] > 0 for turn in rows["pageable"]["turns"])
    assert list(disk.iterdir()) == []


def test_what_hangs_is_stopped(disk, monkeypatch):
    monkeypatch.setitem(PEERS, "hang", faulty("hang"))
    (row,) = contest.run(tiny_config(disk), ["hang"], limit=3)["rows"]
    assert row["failed"] == "it did not end within 3 s" and list(disk.iterdir()) == []


def runs(process):
    try:
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_no_process_outlives_the_benchmark(disk):
    program = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import bench_stand_in, test_bench_peers as tests
from ebbtide.bench import contest, rates
rates.measure = bench_stand_in.some_rates
if __name__ == "__main__":
    tests.PEERS["hang"] = tests.faulty("hang")
    disk = pathlib.Path(sys.argv[2])
    contest.run(bench_stand_in.tiny_config(disk), ["hang"], limit=600)
"""
    (script := disk / "run.py").write_text(program)
    run = subprocess.Popen([sys.executable, script, Path(__file__).parent, disk])
    try:
        while not (there := list(disk.glob("ebbtide-peers-*/0-hang/process"))):
            assert run.poll() is None
            time.sleep(0.01)
        while not (number := there[0].read_text()):
            time.sleep(0.01)
    finally:
        run.kill()
        run.wait()
    while runs(number):
        time.sleep(0.01)
    with contest._own_directory(disk):
        assert len(list(disk.glob("ebbtide-peers-*"))) == 1, "what it left is removed by the next"


def test_the_table_ends_with_1_only_if_the_store_was_wrong(disk, monkeypatch):
    monkeypatch.setitem(PEERS, "flip", faulty("flip"))
    monkeypatch.setitem(PEERS, "ours", faulty("flip", ours=True))
    assert "1 wrong" in bench(disk, "flip", "score")
    assert "1 wrong" in bench(disk, "ours", code=1)


def test_an_unknown_peer_lists_the_known(disk):
    said = " ".join(bench(disk, "no-such", code=2).replace("│", " ").split())
    assert "'no-such' is not known; known are score, score_paper" in said
    listed = CliRunner().invoke(app, ["peers", "--list"]).output
    assert [line.split()[0] for line in listed.splitlines()] == list(PEERS)


def test_what_a_killed_run_left_is_removed_and_another_runs_is_not(disk):
    left, held = disk / "ebbtide-peers-left", disk / "ebbtide-peers-held"
    for place in (left, held):
        place.mkdir()
        (place / "0.ckpt").write_bytes(b"x")
    file = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contest._own_directory(disk) as own:
            assert sorted(disk.iterdir()) == sorted([held, own])
    finally:
        os.close(file)
    assert list(disk.iterdir()) == [held]
