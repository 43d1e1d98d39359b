"""Memory that one process lends and another one's checkpoints spill into, with real processes; ordinary memory takes the
place of a GPU's. Either is killed, or stopped, while the other goes on."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ebbtide
import numpy as np
import pytest
from commands_support import OK, REFUSED, run

MIB = 1 << 20
LEASE = 64 * MIB
CHILD = """
import sys
import numpy as np
import ebbtide

for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
OPEN_LENDER = 'store = ebbtide.open(device="cpu", device_cache=0, host_cache="4KiB", disk=0, lend="{}")'
OPEN_BORROWER = (
    'store = ebbtide.open(device="cpu", device_cache="8MiB", host_cache="64MiB", disk="512MiB", borrow="{}")'
)
LONG = "EBB_LONG" in os.environ


class Child:
    """A process that does what it is told, a line at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def does(self, line: str) -> Child:
        self.tell(line)
        assert self.hears() == "done"
        return self

    def says(self, expression: str) -> str:
        self.tell(f"print({expression})")
        said = self.hears()
        assert self.hears() == "done"
        return said

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stopped(self) -> None:
        """Returns when none of its threads runs any more, which may be a while after the signal was sent."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def killed(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(timeout=60)


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch, disk: Path) -> Iterator[str]:
    """The processes of this test alone lend to one another."""
    name = f"test-{uuid.uuid4().hex}"
    monkeypatch.setenv("EBBTIDE_JOB", name)
    monkeypatch.setenv("EBBTIDE_DIR", str(disk))
    yield f"job-{name}"
    ebbtide.open(
        device="cpu", device_cache="4KiB", host_cache=0, disk=0, lend=LEASE
    ).close()  # removes what the dead left
    folder = f"/dev/shm/ebbtide-{os.getuid()}"
    assert not [file for file in os.listdir(folder) if name in file]


@pytest.fixture
def child() -> Iterator[Callable[[], Child]]:
    """Makes processes, of which none is left at the end."""
    made: list[Child] = []

    def make() -> Child:
        made.append(Child())
        return made[-1]

    yield make
    for one in made:
        one.killed()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def borrowed(store: ebbtide.Store) -> int:
    return store.stats()["leases"]["borrowed"]


def borrower(
    borrow: str | int = "auto", wait_for: int = 0, host_cache: str = "64MiB", disk: str | int = "512MiB"
) -> ebbtide.Store:
    sizes = {"device_cache": "8MiB", "host_cache": host_cache, "disk": disk}
    store = ebbtide.open(device="cpu", borrow=borrow, **sizes)  # type: ignore[arg-type]
    until(lambda: tier(store)["capacity"] >= wait_for)
    return store


def tier(store: ebbtide.Store) -> dict[str, Any]:
    return next(one for one in store.stats()["tiers"] if one["name"] == "peer")


def used(store: ebbtide.Store) -> int:
    return int(tier(store)["used"])


def used_in_all(store: ebbtide.Store) -> int:
    return sum(int(one["used"]) for one in store.stats()["tiers"])


def write(store: ebbtide.Store, count: int, size: int = 4 * MIB) -> None:
    for version in range(count):
        store.checkpoint(version, np.full(size, version % 251, np.uint8))


def check(store: ebbtide.Store, count: int) -> None:
    for version in range(count):
        assert (store.restore(version) == version % 251).all(), version


@pytest.mark.parametrize("files", ["512MiB", 0])
def test_checkpoints_spill_into_what_another_process_lends_and_come_back_when_it_wants_that(
    child: Callable[[], Child], files: str | int
) -> None:
    lender = child().does(OPEN_LENDER.format("256MiB"))
    with borrower(wait_for=256 * MIB, disk=files) as store:
        write(store, 44)  # 176 MiB: more than the other caches hold
        assert used(store) > 0  # how much goes on to the host instead depends on which way is free
        assert used_in_all(store) >= 176 * MIB
        leases = store.stats()["leases"]["leases"]
        assert {(one["lender"], one["borrower"], one["state"]) for one in leases} == {(lender.pid, os.getpid(), "lent")}
        lender.tell('store.lend("128MiB", timeout=60)')
        assert lender.hears() == "done"
        assert lender.says('store.stats()["leases"]["lent"]') == str(128 * MIB)
        assert borrowed(store) == 128 * MIB
        check(store, 44)


def test_what_goes_to_a_neighbour_and_to_the_host_at_once_comes_back_whole(child: Callable[[], Child]) -> None:
    def content(version: int) -> np.ndarray[Any, Any]:  # larger than a chunk
        return np.arange(8 * MIB, dtype=np.uint32) * np.uint32(2 * version + 1)

    lender = child().does(OPEN_LENDER.format("256MiB"))
    with ebbtide.open(device="cpu", borrow="auto", device_cache="64MiB", host_cache="512MiB", disk=0) as store:
        until(lambda: tier(store)["capacity"] == 256 * MIB)
        for version in range(8):
            store.checkpoint(version, content(version))
        assert (store.restore(0) == content(0)).all()
        lender.does('store.lend("64MiB", timeout=60)')
        for version in range(1, 8):
            assert (store.restore(version) == content(version)).all(), version


def test_nothing_is_lent_or_borrowed_unless_a_program_says_so(child: Callable[[], Child]) -> None:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0) as store:
        assert "leases" not in store.stats()
        assert [tier["name"] for tier in store.stats()["tiers"]] == ["device"]
        with borrower() as alone:  # nobody lends: it goes on without
            write(alone, 10)
            assert borrowed(alone) == used(alone) == 0
            check(alone, 10)
    lender = child().does(OPEN_LENDER.format("128MiB"))
    with borrower(LEASE, wait_for=LEASE) as modest, borrower(wait_for=LEASE):
        assert borrowed(modest) == LEASE
        assert lender.says('store.stats()["leases"]["lent"]') == str(2 * LEASE)


def test_a_store_that_lends_and_borrows_takes_nothing_of_its_own(child: Callable[[], Child]) -> None:
    both = ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0, lend=LEASE, borrow="auto")
    child().does(OPEN_LENDER.format("64MiB"))
    until(lambda: borrowed(both) == LEASE)
    assert both.stats()["leases"]["lent"] == 0
    both.close()


def test_a_store_that_lends_later_takes_nothing_of_its_own() -> None:
    with borrower(wait_for=0) as store, borrower(wait_for=0) as other:
        store.lend(2 * LEASE)
        until(lambda: store.stats()["leases"]["lent"] == 2 * LEASE)
        until(lambda: borrowed(store) + borrowed(other) == 2 * LEASE)
        assert borrowed(store) == 0


def test_a_store_that_closes_at_any_moment_returns_all_that_it_was_lent() -> None:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0, lend=4 * LEASE) as store:
        for count in range(12):
            with borrower() as other:
                write(other, 4 * (count % 4))
            until(lambda: store.stats()["leases"]["lent"] == 0)
            store.lend(0, timeout=0)
            store.lend(4 * LEASE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lend": "1MiB"}, ['lend="1048576"', "at least 67108864 bytes (64 MiB)"]),
        ({"borrow": 4096}, ['borrow="4096"', '"auto"', "at least 67108864"]),
        ({"borrow": "much"}, ['borrow="much"', '"auto", or a size such as "8GiB"']),
        ({"borrow": "auto", "device_cache": 0}, ['borrow="auto"', "0 without a device cache"]),
        ({"lend": True}, ["lend=True", 'such as "4GiB"']),
        ({"borrow": 1.5}, ["borrow=1.5", '"auto", or bytes']),
        ({"lend": LEASE, "lend_share": 0}, ["lend_share=0", "above 0, at most 1"]),
        ({"lend": LEASE, "lend_share": 1.5}, ["lend_share=1.5", "above 0, at most 1"]),
        ({"lend": LEASE, "lend_share": "half"}, ['lend_share="half"', "above 0, at most 1"]),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ebbtide.InvalidArgument) as caught:
        ebbtide.open(**({"device": "cpu", "device_cache": "8MiB", "host_cache": "8MiB", "disk": 0} | options))  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (5, ['bytes="5"', "0, or at least 67108864 bytes (64 MiB)"]),
        ("5", ['bytes="5"', "0, or at least 67108864 bytes (64 MiB)"]),
        (2**64 - 1, ['bytes="18446744073709551615"', "below 8 EiB"]),
        ("8388608TiB", ['bytes="8388608TiB"', "below 8 EiB"]),
        (2**64, ["bytes=18446744073709551616", "below 8 EiB"]),
        (-1, ["bytes=-1", "below 8 EiB"]),
        (1.5, ["bytes=1.5", 'such as "8GiB"']),
    ],
)
def test_an_amount_that_cannot_be_lent_is_named(size: Any, words: list[str]) -> None:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0, lend=LEASE) as store:
        with pytest.raises(ebbtide.InvalidArgument) as caught:
            store.lend(size)
        assert all(word in str(caught.value) for word in words), caught.value
        assert store.stats()["leases"]["offered"] == LEASE


def test_a_lenders_share_comes_to_its_borrowers_planners_and_is_divided_as_its_memory_is(
    child: Callable[[], Child], tmp_path: Path
) -> None:
    lender = child().does(OPEN_LENDER.format(4 * LEASE)[:-1] + ", lend_share=0.5)")
    log = tmp_path / "events"
    with ebbtide.open(
        device="cpu", device_cache="8MiB", host_cache="64MiB", disk="512MiB", borrow=2 * LEASE, event_log=log
    ) as store:
        until(lambda: tier(store)["capacity"] == 2 * LEASE)
        child().does(OPEN_BORROWER.format(2 * LEASE))
        until(lambda: lender.says('store.stats()["leases"]["lent"]') == str(4 * LEASE))
        write(store, 30)
        check(store, 30)
        lender.does(f"store.lend({LEASE}, timeout=60)")  # it has heard of all before this
    events = [line.split() for line in log.read_text().splitlines() if line.startswith("e ")]
    shares = [int(words[5]) / 1e6 for words in events if words[2] == "limit"]
    assert shares[:2] == [0.5, 0.25]  # half of it, since half of the memory
    lenders = {words[4] for words in events if words[2] == "limit"}
    assert {words[7] for words in events if words[2] == "lend" and words[7] != "0"} == lenders


def test_what_a_stopped_borrower_has_is_named_and_not_free(child: Callable[[], Child]) -> None:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0, lend=2 * LEASE) as store:
        other = child().does(OPEN_BORROWER.format("auto"))
        until(lambda: store.stats()["leases"]["lent"] == 2 * LEASE)
        other.stopped()
        with pytest.raises(ebbtide.TimedOut, match=f"process {other.pid} {LEASE} bytes"):
            store.lend(LEASE, timeout=0.05)
        leases = store.stats()["leases"]
        assert leases["offered"] == LEASE
        assert leases["lent"] == 2 * LEASE
        until(lambda: store.stats()["leases"]["overdue"] == LEASE)
        other.send(signal.SIGCONT)
        store.lend(0, timeout=60)
        assert store.stats()["leases"]["lent"] == 0


def test_a_borrower_that_is_killed_leaves_nothing_lent(child: Callable[[], Child]) -> None:
    with ebbtide.open(device="cpu", device_cache="8MiB", host_cache=0, disk=0, lend=2 * LEASE) as store:
        for _ in range(20 if LONG else 3):
            other = child().does(OPEN_BORROWER.format("auto"))
            other.tell(
                "for v in range(10**9): store.checkpoint(v, np.full(1 << 20, v % 256, np.uint8)); v < 200 or store.drop(v - 200)"
            )
            until(lambda: store.stats()["leases"]["lent"] == 2 * LEASE)
            other.killed()
            until(lambda: store.stats()["leases"]["lent"] == 0)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_what_a_lender_lent_that_dies_or_stops_can_be_read(child: Callable[[], Child], end: str) -> None:
    for _ in range(20 if LONG else 2):
        lender = child().does(OPEN_LENDER.format("128MiB"))
        store = borrower(wait_for=2 * LEASE, host_cache="160MiB")
        write(store, 40)
        assert used(store) > 0
        assert used_in_all(store) >= 160 * MIB
        if end == "killed":
            lender.killed()
            until(lambda store=store: borrowed(store) == 0)  # it has moved everything away
        else:
            lender.stopped()
        check(store, 40)
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 30, "nobody waits for a lender"
        lender.killed()


def test_a_lender_that_never_answers_holds_up_nobody(child: Callable[[], Child]) -> None:
    lender = child().does(OPEN_LENDER.format("128MiB"))
    lender.stopped()
    with borrower() as store:
        write(store, 10)
        check(store, 10)
        assert borrowed(store) == 0


@pytest.mark.parametrize("seconds", [[], ["--seconds", "inf"]], ids=" ".join)
def test_the_command_lends_until_it_is_told_to_end(group: str, seconds: list[str]) -> None:
    words = [
        sys.executable,
        "-c",
        "from ebbtide.cli import main; main()",
        "lend",
        "--device",
        "cpu",
        "--bytes",
        "128MiB",
        "--share",
        "0.5",
    ]
    lender = subprocess.Popen(words + seconds, stdout=subprocess.PIPE, text=True)
    assert lender.stdout is not None
    assert lender.stdout.readline() == "lending 128 MiB of cpu; Ctrl-C ends it\n"
    with borrower(wait_for=2 * LEASE) as store:
        write(store, 20)
        shown = run("node", "--json")
        assert shown.code == OK
        mine = [one for one in shown.json["lenders"] if one["group"] == group]
        lease = {"lender": lender.pid, "borrower": os.getpid(), "bytes": LEASE, "state": "lent"}
        assert mine == [
            {
                "group": group,
                "pid": lender.pid,
                "gpu": None,
                "offered": 2 * LEASE,
                "share": 0.5,
                "leases": [lease, lease],
                "leases_not_shown": 0,
            }
        ]
        text = run("node")
        assert f"{group}: process {lender.pid} lends 128 MiB, ordinary memory, at 0.5 of its link's rate" in text.out
        assert f"  64 MiB to process {os.getpid()}, lent" in text.out
        lender.send_signal(signal.SIGINT)
        assert lender.wait(timeout=60) == OK
        assert borrowed(store) == 0
        check(store, 20)


def test_leases_that_a_lenders_file_has_no_room_for_are_counted(group: str) -> None:
    """A file as a lender with a hundred leases writes it."""
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    file = Path(f"/dev/shm/ebbtide-{os.getuid()}/{group}.lends.{os.getpid()}-{began}-97")
    head = [int.from_bytes(b"EBLENDS2", "little"), 0, 100 * LEASE, 100, 10**6, 0, 0, 0]
    rows = [word for lease in range(63) for word in (lease, os.getpid(), LEASE, 1, 0, 0, 0, 0)]
    file.touch(mode=0o600)
    file.write_bytes(struct.pack("<512Q", *head, *rows))
    try:
        mine = next(one for one in run("node", "--json").json["lenders"] if one["group"] == group)
        assert (len(mine["leases"]), mine["leases_not_shown"]) == (63, 37)
        assert f"  64 MiB to process {os.getpid()}, lent\n  and 37 more leases" in run("node").out
    finally:
        file.unlink()


def test_the_command_refuses_by_name() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    missing = run("lend", "--gpu", "97", "--bytes", "1GiB")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert missing.code == REFUSED
    assert "cuda:97" in missing.err or "97" in missing.err, missing.err
    share = run("lend", "--device", "cpu", "--bytes", "64MiB", "--share", "2")
    assert share.code == REFUSED
    assert "lend_share=2" in share.err and "at most 1" in share.err, share.err
    both = run("lend", "--gpu", "0", "--device", "cpu", "--bytes", "1GiB")
    assert both.code == REFUSED
    assert "--gpu and --device" in both.err
