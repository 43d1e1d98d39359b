"""`ebbtide ls` and `verify`: whole stores and hurt ones, what they print and what they end with."""

from __future__ import annotations

import pathlib

import pytest

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import BLOCK, DAMAGED, OK, SEGMENT, Writer, healthy, pattern, run, tree
from format_writer import index_of

LOOKING = ("ls", "verify")
COMMANDS = (*LOOKING, "export", "gc")


def arguments(command: str, directory: pathlib.Path, tmp_path: pathlib.Path) -> list[object]:
    return [command, directory, *(["--to", tmp_path / "out"] if command == "export" else [])]


# --- whole stores -----------------------------------------------------------------------------------------------------


def test_ls_lists_what_is_offered(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    done = run("ls", writer.write(), "--json")
    assert done.code == OK
    assert done.err == ""
    document = done.json
    assert list(document) == [
        "store", "id", "format", "durability", "created", "checkpoints", "bytes", "files", "snapshots", "suspended", "superseded",
        "segments", "damaged", "left_over", "other_files",
    ]  # fmt: skip
    assert document["store"] == str(tmp_path / "store")
    assert (document["id"], document["format"], document["durability"]) == (bytes(range(16)).hex(), 1, "storage")
    assert document["created"] == "2023-11-14T22:13:20Z"
    names = [(one["history"], one["version"], one["bytes"]) for one in document["checkpoints"]]
    assert names == [("", -3, 5000), ("adjoint", 7, 10), ("adjoint", 8, 20_000)]
    first = document["checkpoints"][0]
    assert first == {
        "history": "",
        "version": -3,
        "bytes": 5000,
        "written": "2023-11-14T22:13:22Z",
        "written_ns": 1_700_000_002_000_000_000,
        "file": SEGMENT,
        "offset": records["plain"].offset,
        "record_bytes": records["plain"].length,
    }
    assert (document["bytes"], document["superseded"]) == (25_010, 1)
    use = document["segments"][0]
    assert use["live"] == records["plain"].length
    assert use["superseded"] == records["old"].length
    assert (use["checkpoints"], use["dropped"], use["gaps"], use["damaged"], use["unused"]) == (1, 0, 0, 0, 0)
    assert document["damaged"] == document["left_over"] == document["other_files"] == []


def test_ls_tells_a_person_the_same(tmp_path: pathlib.Path) -> None:
    writer, _ = healthy(tmp_path / "store")
    done = run("ls", writer.write())
    assert done.code == OK
    lines = done.out.splitlines()
    assert lines[0].split() == ["HISTORY", "VERSION", "SIZE", "WRITTEN"]
    assert lines[1].split() == ['""', "-3", "4.88", "KiB", "2023-11-14T22:13:22Z"]
    assert lines[3].split() == ["adjoint", "8", "19.53", "KiB", "2023-11-14T22:13:24Z"]
    assert lines[4].startswith('3 checkpoints in 2 histories, 24.42 KiB; durability "storage", ')
    assert len(lines) == 5


def test_ls_v_tells_regions_and_places(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    writer.write()
    (tmp_path / "store" / "index.new").write_bytes(b"half")
    (tmp_path / "store" / "index.new").chmod(0o600)
    (tmp_path / "store" / "notes\n.txt").write_text("mine")
    done = run("ls", "-v", tmp_path / "store")
    assert done.code == OK
    for part in (
        "    region 0: 4.88 KiB at 0",
        f"{SEGMENT}: 1 checkpoints, live 12 KiB, superseded 16 KiB",
        "index.new: left over",
        '"notes\\n.txt": not a store\'s file',
    ):
        assert part in done.out
    assert [line.split()[-2:] for line in done.out.splitlines()[1:2]] == [[SEGMENT, str(records["plain"].offset)]]
    document = run("ls", "-v", tmp_path / "store", "--json").json
    assert document["checkpoints"][0]["regions"] == [
        {"id": 0, "bytes": 5000, "offset": 0, "dtype": None, "shape": None, "key": None, "strides": None}
    ]
    assert document["left_over"] == ["index.new"]
    assert document["other_files"] == ["notes\n.txt"]
    assert run("verify", tmp_path / "store").out.count("note: ") == 2


def test_ls_of_one_history(tmp_path: pathlib.Path) -> None:
    writer, _ = healthy(tmp_path / "store")
    writer.write()
    assert len(run("ls", tmp_path / "store", "--history", "adjoint", "--json").json["checkpoints"]) == 2
    assert len(run("ls", tmp_path / "store", "--history", "", "--json").json["checkpoints"]) == 1


def test_verify_finds_nothing_where_there_is_nothing(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    listed = [
        (b"adjoint", records["old"]),
        (b"", records["plain"]),
        (b"adjoint", records["new"]),
        (b"adjoint", records["last"]),
    ]
    writer.files["index"] = bytearray(index_of(writer, listed))
    before = tree(writer.write())
    done = run("verify", tmp_path / "store", "--json")
    assert done.code == OK, done.out
    document = done.json
    assert list(document) == [
        "store", "id", "format", "durability", "created", "intact", "checkpoints", "pieces", "bytes", "superseded",
        "dropped_meanwhile", "damaged", "left_over", "other_files",
    ]  # fmt: skip
    assert (document["intact"], document["checkpoints"], document["bytes"]) == (True, 3, 25_010)
    assert (document["superseded"], document["dropped_meanwhile"], document["damaged"]) == (1, 0, [])
    assert run("verify", tmp_path / "store").out == "3 checkpoints intact, 24.42 KiB\n"
    assert tree(tmp_path / "store") == before, "who looks changes nothing"


def test_an_empty_store(tmp_path: pathlib.Path) -> None:
    store = Writer(tmp_path / "store").write()
    assert run("ls", store).out.splitlines()[-1].startswith("0 checkpoints in 0 histories, 0 B;")
    assert run("ls", store, "--json").json["checkpoints"] == []
    assert run("verify", store, "--json").json["checkpoints"] == 0
    assert run("export", store, "--to", tmp_path / "out", "--json").json["written"] == []
    assert run("gc", store, "--json").json["removed"] == []
    assert run("verify", store).code == OK


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_payload_is_named_by_verify_and_not_looked_at_by_ls(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    last = records["last"]
    writer.hurt(last, last.header + 2 * BLOCK + 5)
    store = writer.write()
    assert run("ls", store).code == OK
    done = run("verify", store, "--json")
    assert done.code == DAMAGED
    assert done.json["intact"] is False
    assert done.json["checkpoints"] == 2
    (damage,) = done.json["damaged"]
    assert (damage["history"], damage["version"]) == ("adjoint", 8)
    assert damage["file"] == str(store / Writer.segment_name(2))
    assert damage["offset"] == last.payload_offset + 2 * BLOCK
    assert "checksum" in damage["what"]
    place = f"{damage['file']}, offset {damage['offset']}"
    text = run("verify", store).out
    assert f"damaged: version 8 of history adjoint: {place}: the payload block at byte 8192" in text


@pytest.mark.parametrize(("at", "version"), [(20, None), (600, -3)])
def test_a_header_is_named_by_both(tmp_path: pathlib.Path, at: int, version: int | None) -> None:
    """In the head nothing is known any more, in the body the version is."""
    writer, records = healthy(tmp_path / "store")
    writer.hurt(records["plain"], at)
    store = writer.write()
    for command in LOOKING:
        done = run(command, store, "--json")
        assert done.code == DAMAGED
        (damage,) = done.json["damaged"]
        assert (damage["history"], damage["version"], damage["offset"]) == (None, version, records["plain"].offset)
        assert done.json["checkpoints" if command == "ls" else "superseded"]
    assert run("ls", store, "--json").json["segments"][0]["damaged"] == records["plain"].length
    assert "damaged: " in run("ls", store).out


def test_an_index_says_whose_header_it_was(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    one = writer.add(b"adjoint", 7, pattern(100, 1))
    two = writer.add(b"adjoint", 8, pattern(100, 2))
    writer.files["index"] = bytearray(index_of(writer, [(b"adjoint", one), (b"adjoint", two)]))
    writer.hurt(one, 100)
    store = writer.write()
    for command in LOOKING:
        done = run(command, store, "--json")
        assert done.code == DAMAGED
        (damage,) = done.json["damaged"]
        assert (damage["history"], damage["version"], damage["offset"]) == ("adjoint", 7, one.offset)


def test_an_index_that_is_hurt_or_says_what_is_not_so(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    one = writer.add(b"adjoint", 7, pattern(100, 1))
    two = writer.add(b"adjoint", 8, pattern(100, 2))
    good = index_of(writer, [(b"adjoint", one), (b"adjoint", two)])

    def verdict(index: bytes) -> list[dict]:
        writer.files["index"] = bytearray(index)
        done = run("verify", writer.write(), "--json")
        assert done.code == (DAMAGED if done.json["damaged"] else OK)
        assert done.json["checkpoints"] == 2
        return done.json["damaged"]

    assert verdict(good) == []
    for at in (3, 40, 511, 512, len(good) - 1):
        (damage,) = verdict(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert damage["file"].endswith("/index")
    (damage,) = verdict(index_of(writer, [(b"adjoint", one)]))
    assert "does not list version 8 of history 'adjoint'" in damage["what"]
    (damage,) = verdict(index_of(writer, [(b"adjoint", one), (b"forward", two)]))
    assert "is not what its header says" in damage["what"]
    writer.segment(2)
    damages = verdict(good)
    assert ["does not know segment-00000002.ebb" in damage["what"] for damage in damages] == [True]
    with_three = index_of(writer, [(b"adjoint", one), (b"adjoint", two)])
    del writer.files[Writer.segment_name(2)]
    (writer.directory / Writer.segment_name(2)).unlink()
    (damage,) = verdict(with_three)
    assert "segment-00000002.ebb, which is not there" in damage["what"]


def test_what_the_index_lists_and_is_gone_is_named(tmp_path: pathlib.Path) -> None:
    """A head that became zeros looks like room that was never used, but for the index."""
    writer = Writer(tmp_path / "store")
    one = writer.add(b"adjoint", 7, pattern(100, 1))
    two = writer.add(b"adjoint", 8, pattern(100, 2))
    writer.files["index"] = bytearray(index_of(writer, [(b"adjoint", one), (b"adjoint", two)]))
    writer.segment(1)[two.offset : two.offset + 2 * BLOCK] = bytes(2 * BLOCK)
    store = writer.write()
    for command in LOOKING:
        done = run(command, store, "--json")
        assert done.code == DAMAGED
        (damage,) = done.json["damaged"]
        assert (damage["history"], damage["version"], damage["offset"]) == ("adjoint", 8, two.offset)


def test_a_torn_tail_is_no_damage(tmp_path: pathlib.Path) -> None:
    """A payload without a head, and space that was taken: what a crash leaves."""
    writer, _ = healthy(tmp_path / "store")
    writer.segment(2).extend(bytes(BLOCK) + pattern(3 * BLOCK, 9) + bytes(4 * BLOCK))
    store = writer.write()
    for command in LOOKING:
        done = run(command, store, "--json")
        assert (done.code, done.json["damaged"]) == (OK, [])
    assert run("ls", store, "--json").json["segments"][1]["unused"] == 8 * BLOCK


def test_a_file_that_was_cut_is_damage(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    del writer.segment(2)[-BLOCK:]
    store = writer.write()
    for command in LOOKING:
        done = run(command, store, "--json")
        assert done.code == DAMAGED
        (damage,) = done.json["damaged"]
        assert damage["offset"] == records["last"].offset
        assert "ends before the record does" in damage["what"]


def test_the_file_store(tmp_path: pathlib.Path) -> None:
    writer, _ = healthy(tmp_path / "store")
    writer.flip("store", 33)
    store = writer.write()
    done = run("verify", store, "--json")
    assert done.code == DAMAGED
    assert done.json["intact"] is False
    (damage,) = done.json["damaged"]
    assert damage["file"] == str(store / "store")
    for command in COMMANDS:
        done = run(*arguments(command, store, tmp_path))
        assert done.code == DAMAGED
        assert f"{store}/store" in done.err
        assert "Traceback" not in done.err + done.out


# --- names ------------------------------------------------------------------------------------------------------------

HOSTILE = [
    b"../../etc/passwd", b"/", b"\0", b"..", b".", b"\x1b[2J\x1b]0;owned\x07", b"a" * 10_000, b"\xff\xfe",
    "ä b".encode(), b"[red]x",
]  # fmt: skip


def test_hostile_names_are_shown_and_do_not_act(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    for version, name in enumerate(HOSTILE):
        record = writer.add(name, version, pattern(100, version))
        writer.hurt(record, record.header)
    store = writer.write()
    for command in LOOKING:
        for done in [run(command, store)] + ([run(command, store, "-v")] if command == "ls" else []):
            assert not set(done.out) & set("\x1b\x07\0"), "nothing that moves a cursor"
    document = run("verify", store, "--json")
    told = {
        damage["version"]: damage["history"].encode("utf-8", "surrogateescape") for damage in document.json["damaged"]
    }
    assert told == dict(enumerate(HOSTILE))
    assert document.out.isascii()
    listed = run("ls", store, "--history", "ä b", "--json").json["checkpoints"]
    assert [one["history"] for one in listed] == ["ä b"]
