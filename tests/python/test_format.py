"""docs/format.md is enough to read a store: a reader written from it alone reads the golden ones."""

import pathlib
import shutil
import struct

import pytest

format_reader = pytest.importorskip("format_reader", reason="needs the test extra's xxhash")

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "storage" / "golden"
GOLDEN = GOLDENS / "format-1"
Writer = pytest.importorskip("format_writer", reason="needs the test extra's xxhash").Writer
SEGMENT = "segment-00000001.ebb"


def pattern(size: int, start: int) -> bytes:
    return bytes((start + 7 * i) % 251 for i in range(size))


@pytest.mark.parametrize("golden", ["format-1", "format-1-unreleased"])
def test_reads_format_1(golden):
    found, damages = format_reader.read_store(GOLDENS / golden)
    assert damages == []
    assert set(found) == {(b"adjoint", 7), (b"", -3), (b"odd\0/..\xff", 8)}
    newer = found[b"adjoint", 7]
    assert (newer.segment, newer.regions, newer.metadata) == (2, {0: pattern(10, 4)}, b"")
    assert found[b"", -3].regions == {}
    odd = found[b"odd\0/..\xff", 8]
    assert (odd.regions, odd.metadata) == ({0: pattern(4096, 3)}, b"\0binary")


def test_reads_format_2():
    found, damages = format_reader.read_store(GOLDENS / "format-2")
    assert damages == []
    small = {name: record.regions for name, record in found.items()}
    assert small.pop((b"odd\xff", 8)) == {0: pattern(1, 4), 1: b"", 2: pattern(556, 4)[256:]}
    assert small == {
        (b"adjoint", 7): {0: pattern(10, 7)},  # newer than the large one
        (b"adjoint", 8): {0: pattern(512, 2)},
        (b"adjoint", 9): {0: pattern(512, 3)},
        (b"adjoint", 11): {0: pattern(3000, 6)},
        (b"", -3): {},
    }
    assert found[b"adjoint", 8].metadata == b"step=8"


def test_older_of_two_is_whole_too():
    data = (GOLDEN / SEGMENT).read_bytes()
    store = (GOLDEN / "store").read_bytes()[16:32]
    records, drops, damages = format_reader.read_segment(data, store, 1)
    whole = pattern(6024, 1)
    assert drops == [(format_reader.checksum(b"adjoint"), 8, 2)]
    assert damages == []
    assert records[0].regions == {0: whole[:1000], 1: b"", 2: whole[1024:6024]}
    assert records[0].metadata == b"step=7"


@pytest.mark.parametrize("at", [4096, 4096 + 60, 4096 + 600, 4096 + 4096 + 77])
def test_a_flip_is_found(tmp_path, at):
    store = tmp_path / "store"
    shutil.copytree(GOLDEN, store)
    data = bytearray((store / SEGMENT).read_bytes())
    data[at] ^= 1
    (store / SEGMENT).write_bytes(data)
    found, damages = format_reader.read_store(store)
    assert damages == [(SEGMENT, 4096)]
    assert len(found) == 3  # the newer of the two is in another segment


@pytest.mark.parametrize(("newer", "left"), [("dropped", []), ("damaged", []), ("unnamed", [b"old"])])
def test_an_older_writing_does_not_count(tmp_path, newer, left):
    writer = Writer(tmp_path / "store")
    writer.add(b"a", 7, b"old")
    last = writer.add(b"a", 7, b"new", segment=2)
    if newer == "damaged":
        writer.hurt(last, last.header)
    else:
        writer.drop(last, named=newer == "dropped")
    found, damages = format_reader.read_store(writer.write())
    assert [record.regions[0] for record in found.values()] == left
    assert bool(damages) == (newer == "damaged")


def test_a_newer_format_is_no_damage(tmp_path):
    store = tmp_path / "store"
    shutil.copytree(GOLDEN, store)
    data = bytearray((store / "store").read_bytes())
    struct.pack_into("<I", data, 8, 2)
    data[496:512] = format_reader.checksum(bytes(data[:496]))
    (store / "store").write_bytes(data)
    with pytest.raises(format_reader.NewerFormat):
        format_reader.read_store(store)
