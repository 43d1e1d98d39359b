"""`ebbtide gc`: what can never be restored goes, and nothing else does."""

from __future__ import annotations

import fcntl
import os
import pathlib

import pytest

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import BLOCK, DAMAGED, OK, REFUSED, SEGMENT, Writer, healthy, pattern, run, tree
from format_reader import read_store
from format_writer import index_of

Offered = dict[tuple[bytes, int], dict[int, bytes]]


def offered(store: pathlib.Path) -> Offered:
    """What another reader finds: every region of every checkpoint."""
    return {key: record.regions for key, record in read_store(store)[0].items()}


def allocated(store: pathlib.Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in store.glob("segment-*"))


@pytest.fixture
def place(disk: pathlib.Path) -> pathlib.Path:
    """On a file system that has holes."""
    return disk / "store"


def wasteful(place: pathlib.Path) -> Writer:
    """All that can go: a replaced record, a dropped one, a gap, a torn tail, a segment of nothing, left-over files."""
    writer = Writer(place)
    writer.add(b"a", 1, pattern(50_000, 1))
    writer.add(b"a", 2, pattern(50_000, 2))
    writer.drop(writer.add(b"a", 3, pattern(50_000, 3)))
    writer.add(b"a", 1, pattern(60_000, 4))
    writer.segment(1).extend(bytes(BLOCK) + pattern(10 * BLOCK, 5))
    writer.add(b"b", 1, pattern(70_000, 6))
    writer.segment(1).extend(bytes(BLOCK) + pattern(20 * BLOCK, 7))
    writer.drop(writer.add(b"a", 4, pattern(80_000, 8), segment=2))
    writer.add(b"c", 1, pattern(100, 9), segment=3)
    return writer


def test_what_nobody_can_have_goes(place: pathlib.Path) -> None:
    writer = wasteful(place)
    store = writer.write()
    for name in ("index.new", "store.new"):
        (store / name).write_bytes(b"half")
        (store / name).chmod(0o600)
    (store / "notes").write_text("mine")
    before, kept = allocated(store), offered(store)
    assert len(kept) == 4
    dry, untouched = run("gc", store, "--dry-run", "--json"), tree(store)
    assert tree(store) == untouched
    done = run("gc", store, "--json")
    assert done.code == dry.code == OK
    assert list(done.json) == [
        "store", "dry_run", "removed", "repacked", "segments_removed", "left_over_removed", "allocated_before",
        "allocated_after", "damaged",
    ]  # fmt: skip
    assert (dry.json["dry_run"], done.json["dry_run"]) == (True, False)
    assert dry.json["removed"] == done.json["removed"]
    (removed,) = done.json["removed"]
    assert (removed["history"], removed["version"], removed["why"]) == ("a", 1, "superseded")
    assert (removed["file"], removed["offset"]) == (str(store / SEGMENT), BLOCK)
    assert dry.json["segments_removed"] == done.json["segments_removed"] == [str(store / Writer.segment_name(2))]
    assert done.json["left_over_removed"] == 2
    assert (done.json["allocated_before"], done.json["allocated_after"]) == (before, allocated(store))
    assert dry.json["allocated_after"] >= allocated(store)
    lives = (52 + 64 + 72 + 4) * 1024 + 20 * BLOCK  # payloads, and a few blocks of heads
    assert allocated(store) < lives < before
    assert offered(store) == kept
    assert sorted(path.name for path in store.iterdir()) == [
        "index", "lock", "notes", SEGMENT, Writer.segment_name(3), "store",
    ]  # fmt: skip
    assert run("verify", store, "--json").json["checkpoints"] == 4
    use = run("ls", store, "--json").json["segments"][0]
    assert (use["gaps"], use["superseded"], use["unused"]) == (0, 0, 0)


def test_a_second_time_changes_nothing(place: pathlib.Path) -> None:
    store = wasteful(place).write()
    assert run("gc", store).code == OK
    once = tree(store)
    done = run("gc", store, "--json")
    assert done.json["removed"] == done.json["segments_removed"] == []
    assert {name: one for name, one in tree(store).items() if name != "lock"} == {
        name: one for name, one in once.items() if name != "lock"
    }


def test_the_index_is_made_anew_and_is_right(place: pathlib.Path) -> None:
    writer, records = healthy(place)
    writer.files["index"] = bytearray(b"what was this")
    store = writer.write()
    assert run("verify", store).code == DAMAGED
    done = run("gc", store, "--json")
    assert (done.code, done.json["damaged"]) == (OK, [])
    assert run("verify", store).code == OK
    writer.files.update({path.name: bytearray(path.read_bytes()) for path in store.glob("segment-*")})
    listed = [(b"", records["plain"]), (b"adjoint", records["new"]), (b"adjoint", records["last"])]
    assert len((store / "index").read_bytes()) == len(index_of(writer, listed))


def test_a_number_is_never_used_again(place: pathlib.Path) -> None:
    """The last segment stays, if only with its head."""
    writer = Writer(place)
    writer.add(b"a", 1, pattern(100, 1))
    writer.drop(writer.add(b"a", 2, pattern(100_000, 2), segment=2))
    store = writer.write()
    assert run("gc", store, "--json").json["segments_removed"] == []
    assert (store / Writer.segment_name(2)).stat().st_size == BLOCK
    assert run("verify", store).code == OK


def test_text_for_a_person(place: pathlib.Path) -> None:
    store = wasteful(place).write()
    dry = run("gc", store, "--dry-run").out.splitlines()
    assert dry[0] == "would be removed: version 1 of history a (replaced by a newer one)"
    assert dry[1] == f"would be removed: {store / Writer.segment_name(2)}, which has no live checkpoints"
    assert "would be freed" in dry[2]
    lines = run("gc", store).out.splitlines()
    assert lines[0] == "removed: version 1 of history a (replaced by a newer one)"
    assert "freed: " in lines[2]


# --- retention --------------------------------------------------------------------------------------------------------


def series(place: pathlib.Path) -> tuple[Writer, dict]:
    writer = Writer(place)
    records = {}
    for version in range(1, 11):
        records["a", version] = writer.add(b"a", version, pattern(9000, version), segment=1 + version // 4)
    for version in (3, 4):
        records["b", version] = writer.add(b"b", version, pattern(9000, 100 + version), segment=2)
    return writer, records


def left(store: pathlib.Path) -> list[tuple[str, int]]:
    return [(one["history"], one["version"]) for one in run("ls", store, "--json").json["checkpoints"]]


def test_keep_last_counts_in_each_history(place: pathlib.Path) -> None:
    store = series(place)[0].write()
    kept = offered(store)
    done = run("gc", store, "--keep-last", 3, "--json")
    assert done.code == OK
    assert [(one["history"], one["version"], one["why"]) for one in done.json["removed"]] == [
        ("a", version, "retention") for version in range(1, 8)
    ]
    assert done.json["segments_removed"] == [str(store / SEGMENT)]
    names = [("a", 8), ("a", 9), ("a", 10), ("b", 3), ("b", 4)]
    assert left(store) == names
    assert offered(store) == {(name.encode(), version): kept[name.encode(), version] for name, version in names}
    assert run("verify", store).code == OK


def test_keep_every_spares_multiples(place: pathlib.Path) -> None:
    store = series(place)[0].write()
    assert run("gc", store, "--keep-last", 2, "--keep-every", 4).code == OK
    assert left(store) == [("a", 4), ("a", 8), ("a", 9), ("a", 10), ("b", 3), ("b", 4)]


def test_only_intact_ones_count(place: pathlib.Path) -> None:
    """Nothing goes for the sake of newer ones that cannot be restored."""
    writer, records = series(place)
    for version in (10, 8):
        writer.hurt(records["a", version], records["a", version].header + 5)
    writer.hurt(records["b", 4], records["b", 4].header + 5)
    store = writer.write()
    done = run("gc", store, "--keep-last", 2, "--json")
    assert done.code == DAMAGED
    assert [(one["history"], one["version"]) for one in done.json["damaged"]] == [("a", 8), ("a", 10), ("b", 4)]
    assert left(store) == [("a", 7), ("a", 8), ("a", 9), ("a", 10), ("b", 3), ("b", 4)]
    told = {(one["history"], one["version"]) for one in run("ls", store, "--json").json["damaged"]}
    assert told == {("a", 8), ("a", 10), ("b", 4)}, "what was found stays known"
    again = run("verify", store, "--json").json["damaged"]
    assert len(again) == 3, "and is told once"


@pytest.mark.parametrize(
    "options", [["--keep-every", "3"], ["--keep-last", "0"], ["--keep-last", "-1"], ["--keep-last", "x"]]
)
def test_options_that_make_no_sense(place: pathlib.Path, options: list[str]) -> None:
    store = series(place)[0].write()
    before = tree(store)
    assert run("gc", store, *options).code == REFUSED
    assert tree(store) == before


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(place: pathlib.Path) -> tuple[Writer, dict]:
    """A head, a body, a payload, a segment's head; and intact ones before, between and behind."""
    writer = Writer(place)
    records = {version: writer.add(b"a", version, pattern(9000, version)) for version in range(1, 8)}
    records[8] = writer.add(b"a", 8, pattern(100, 8), segment=2)
    writer.hurt(records[2], 30)
    writer.hurt(records[4], 600)
    writer.hurt(records[6], records[6].header + 5000)
    writer.flip(Writer.segment_name(2), 40)
    return writer, records


def test_damage_stays_and_is_told(place: pathlib.Path) -> None:
    writer, records = damaged(place)
    writer.drop(records[7])
    store = writer.write()
    content = {path.name: path.read_bytes() for path in store.glob("segment-*")}
    done = run("gc", store, "--json")
    assert done.code == DAMAGED
    assert done.json["removed"] == []
    assert [one["version"] for one in done.json["damaged"]] == [None, 4, None]
    for version in (1, 2, 3, 4, 5, 6):
        begin, end = records[version].offset, records[version].offset + records[version].length
        assert (store / SEGMENT).read_bytes()[begin:end] == content[SEGMENT][begin:end], "not a byte of it"
    assert run("ls", store, "--json").json["damaged"] == done.json["damaged"]


def test_damaged_removes_it(place: pathlib.Path) -> None:
    store = damaged(place)[0].write()
    intact = offered(store)
    dry = run("gc", store, "--damaged", "--dry-run", "--json")
    done = run("gc", store, "--damaged", "--json")
    assert (dry.code, done.code) == (OK, OK)
    assert dry.json["removed"] == done.json["removed"]
    assert {one["version"] for one in done.json["removed"]} == {None, 4, 6}
    assert {one["why"] for one in done.json["removed"]} == {"damaged"}
    assert done.json["damaged"] == []
    assert run("verify", store, "--json").json["intact"] is True
    assert offered(store) == intact
    assert left(store) == [("a", version) for version in (1, 3, 5, 7, 8)]
    assert read_store(store)[1] == [], "another reader sees no damage either"


def test_damaged_removes_a_torn_end_and_what_the_index_lost(place: pathlib.Path) -> None:
    writer = Writer(place)
    one, two, three = (writer.add(b"a", version, pattern(9000, version)) for version in (1, 2, 3))
    writer.files["index"] = bytearray(index_of(writer, [(b"a", one), (b"a", two), (b"a", three)]))
    writer.segment(1)[two.offset : two.offset + 512] = bytes(512)
    store = writer.write()
    os.truncate(store / SEGMENT, three.offset + 5000)
    plain = run("gc", store, "--json")
    assert plain.code == DAMAGED
    assert (store / SEGMENT).stat().st_size == three.offset + 5000
    assert [one["offset"] for one in plain.json["damaged"]] == [three.offset, two.offset]
    done = run("gc", store, "--damaged", "--json")
    assert (done.code, done.json["damaged"]) == (OK, [])
    assert left(store) == [("a", 1)]
    assert run("verify", store).code == OK


def test_damage_behind_zeros_keeps_its_file(place: pathlib.Path) -> None:
    """All that the scan finds is a head that is broken, where none was to be: that file is not one of nothing."""
    writer = Writer(place)
    writer.segment(1).extend(bytes(BLOCK))
    writer.hurt(writer.add(b"a", 1, pattern(9000, 1)), 300)
    writer.add(b"a", 2, pattern(9000, 2), segment=2)
    store = writer.write()
    before = (store / SEGMENT).read_bytes()
    assert run("gc", store).code == DAMAGED
    assert (store / SEGMENT).read_bytes() == before
    assert run("gc", store, "--damaged", "--json").json["segments_removed"] == [str(store / SEGMENT)]
    assert run("verify", store).code == OK


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_to(place: pathlib.Path) -> None:
    store = healthy(place)[0].write()
    store.chmod(0o500)
    try:
        done = run("gc", store, "--json")
        assert (done.code, done.json["error"]["reason"]) == (REFUSED, "not_permitted")
        assert run("gc", store, "--dry-run").code == OK
    finally:
        store.chmod(0o700)


def test_the_lock_is_given_back(place: pathlib.Path) -> None:
    store = healthy(place)[0].write()
    for options in ([], ["--dry-run"]):
        assert run("gc", store, *options).code == OK
        with (store / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- files ------------------------------------------------------------------------------------------------------------


def with_files(place: pathlib.Path) -> tuple[Writer, dict]:
    """A file that was closed, whose first piece was written twice, and one whose writer was killed."""
    writer = Writer(place)
    records = {}
    for name, version in ((b"3/0", 0), (b"3/0", 1), (b"3/1", 0), (b"3/record", 0), (b"4/0", 0), (b"4/1", 0)):
        records[name, version] = writer.add(b"state/.ebbtide-file/" + name, version, pattern(9000, len(records)))
    writer.add(b"state", 1, pattern(100, 7))
    return writer, records


def test_pieces_of_a_file_that_was_never_closed_go(place: pathlib.Path) -> None:
    store = with_files(place)[0].write()
    whole = [("state", 1), *((f"state/.ebbtide-file/3/{part}", v) for part, v in (("0", 0), ("0", 1), ("1", 0)))]
    whole.append(("state/.ebbtide-file/3/record", 0))
    gone = [(f"state/.ebbtide-file/4/{part}", 0, "unfinished") for part in "01"]
    dry = run("gc", store, "--dry-run", "--json").json
    done = run("gc", store, "--keep-last", 1, "--json")  # pieces are no versions of a history
    assert (done.code, done.json["damaged"]) == (OK, [])
    assert [(one["history"], one["version"], one["why"]) for one in done.json["removed"]] == gone
    assert dry["removed"] == done.json["removed"]
    assert left(store) == whole
    assert run("verify", store).code == OK


def test_in_one_of_two_directories_no_piece_is_taken_for_left_over(place: pathlib.Path) -> None:
    """What needs it may be in the other one."""
    store = with_files(place)[0].write()
    (store / "pair").write_text(f"{'0' * 32}\n/elsewhere\nshared\n")
    done = run("gc", store, "--json")
    assert (done.code, done.json["removed"]) == (OK, [])


def test_while_something_is_damaged_no_piece_is_taken_for_left_over(place: pathlib.Path) -> None:
    """What cannot be read may be the record of the file."""
    writer, records = with_files(place)
    writer.hurt(records[b"3/record", 0], 20)
    store = writer.write()
    done = run("gc", store, "--json")
    assert (done.code, done.json["removed"]) == (DAMAGED, [])
