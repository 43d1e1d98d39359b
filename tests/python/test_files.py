"""Files in a store, as programs write and read them."""

import io
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest

import ebbtide

SMALL = {"device": "cpu", "device_cache": "1MiB", "host_cache": "2MiB", "disk": "64MiB"}


@pytest.fixture
def store(tmp_path):
    with ebbtide.open(tmp_path, **SMALL) as store:
        yield store


def test_any_sequence_of_calls_gives_what_an_ordinary_file_would(store):
    """With seeks back and forth, as h5py and zip writers make them; larger than the caches."""
    dice = random.Random(1)
    for version, span in enumerate([1000, 300_000, 4_000_000]):
        ordinary = io.BytesIO()
        with store.create_file("f", version) as file:
            for _ in range(150):
                kind = dice.choice(["write", "write", "read", "seek", "seek_end", "truncate", "readall"])
                if kind == "write":
                    data = dice.randbytes(dice.randrange(span // 4))
                    assert file.write(data) == ordinary.write(data)
                elif kind == "read":
                    count = dice.randrange(span)
                    assert file.read(count) == ordinary.read(count)
                elif kind == "seek":
                    place = dice.randrange(span)
                    assert file.seek(place) == ordinary.seek(place)
                elif kind == "seek_end":
                    assert file.seek(0, io.SEEK_END) == ordinary.seek(0, io.SEEK_END)
                elif kind == "truncate" and dice.random() < 0.3:
                    length = dice.randrange(ordinary.getbuffer().nbytes + 1)
                    assert file.truncate(length) == ordinary.truncate(length)
                elif kind == "readall":
                    assert file.read() == ordinary.read()
                assert file.tell() == ordinary.tell()
        with store.open_file("f") as file:
            assert file.version == version
            assert file.read() == ordinary.getvalue()
    assert [(name, version) for name, version, _ in store.files()] == [("f", 0), ("f", 1), ("f", 2)]


def test_numpy_and_pickle_save_and_load(store):
    field = numpy.random.default_rng(1).normal(size=(300, 400))
    with store.create_file("array", 0) as file:
        numpy.save(file, field)
    with store.open_file("array") as file:
        assert (numpy.load(file) == field).all()
    with store.create_file("archive", 0) as file:
        numpy.savez(file, a=field, b=field[0])
    with store.open_file("archive") as file, numpy.load(file) as archive:
        assert (archive["a"] == field).all()
        assert (archive["b"] == field[0]).all()
    state = {"step": 3, "fields": [field, field + 1]}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with store.create_file("state", protocol) as file:
            pickle.dump(state["step"] if protocol == 0 else state, file, protocol)
    with store.open_file("state") as file:
        found = pickle.load(file)
    assert found["step"] == 3
    assert (found["fields"][1] == field + 1).all()


def test_torch_saves_and_loads(store):
    torch = pytest.importorskip("torch")
    state = {"weights": torch.arange(500_000, dtype=torch.float32), "step": 7}
    with store.create_file("model", 1) as file:
        torch.save(state, file)
    with store.open_file("model") as file:
        found = torch.load(file)
    assert found["step"] == 7
    assert torch.equal(found["weights"], state["weights"])


def test_h5py_writes_and_reads(store):
    h5py = pytest.importorskip("h5py")
    field = numpy.random.default_rng(2).normal(size=(200, 500))
    with store.create_file("data", 1) as file, h5py.File(file, "w") as data:
        for n in range(4):
            data.create_dataset(f"group/field{n}", data=field * n, chunks=(50, 100), compression="gzip")
    with store.open_file("data") as file, h5py.File(file, "r") as data:
        for n in range(4):
            assert (data[f"group/field{n}"][...] == field * n).all()


def test_text_and_lines_through_the_standard_wrappers(store):
    with store.create_file("log", 0) as file, io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8") as text:
        text.writelines(f"step {n}\n" for n in range(1000))
    with store.open_file("log") as file:
        assert [line.decode() for line in io.BufferedReader(file)] == [f"step {n}\n" for n in range(1000)]


def test_what_was_not_closed_is_not_there(store):
    with pytest.raises(RuntimeError, match="diverged"), store.create_file("f", 1) as file:
        file.write(bytes(500_000))
        raise RuntimeError("diverged")
    file = store.create_file("f", 2)
    file.write(b"lost")
    with pytest.raises(ebbtide.VersionExists, match='version 2 of file "f" is being written'):
        store.create_file("f", 2)
    del file
    assert store.files() == []
    with pytest.raises(ebbtide.UnknownVersion, match='no file "f"'):
        store.open_file("f")
    with store.create_file("f", 2):
        pass
    assert store.files() == [("f", 2, 0)]
    with pytest.raises(ebbtide.VersionExists, match='version 2 of file "f" exists'):
        store.create_file("f", 2)
    store.drop_file("f", 2)
    with pytest.raises(ebbtide.UnknownVersion):
        store.drop_file("f", 2)


def test_wrong_use_is_refused_as_by_any_file(store):
    with store.create_file("f", 1) as file:
        file.write(b"0123456789")
        with pytest.raises(ValueError, match="before the start"):
            file.seek(-1)
        with pytest.raises(ValueError, match="whence=7"):
            file.seek(0, 7)
        with pytest.raises(ebbtide.InvalidArgument, match="close it first"):
            file.wait("ephemeral")
    file.wait("ephemeral")
    with pytest.raises(ValueError, match="closed file"):
        file.write(b"more")
    with store.open_file("f") as file:
        assert (file.readable(), file.writable(), file.seekable(), file.mode) == (True, False, True, "rb")
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"more")
        assert file.seek(-4, io.SEEK_END) == 6
        assert file.read() == b"6789"
    with pytest.raises(ebbtide.InvalidArgument, match="1 to 65000 bytes"):
        store.create_file("", 1)


KILLED = """
    import ebbtide, os, signal, sys
    with ebbtide.open(sys.argv[1], durability="process", device="cpu", device_cache="1MiB", host_cache="2MiB",
                      disk="64MiB") as store:
        with store.create_file("f", 1) as file:
            file.write(bytes(range(256)) * 10_000)
        file.wait("process")
        half = store.create_file("f", 2)
        half.write(bytes(3_000_000))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_whole_files_alone(tmp_path: Path):
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), tmp_path / "store"], check=False, timeout=60)
    assert run.returncode == -signal.SIGKILL
    with ebbtide.open(tmp_path / "store", durability="process", keep_last=1, **SMALL) as store:
        assert store.files() == [("f", 1, 2_560_000)]
        with store.open_file("f") as file:
            assert file.read() == bytes(range(256)) * 10_000
        with store.create_file("f", 2) as file:
            file.write(b"new")
        assert store.files("f") == [("f", 1, 2_560_000), ("f", 2, 3)]


def test_a_forked_child_writes_nothing(store):
    file = store.create_file("f", 1)
    file.write(b"parent")
    child = os.fork()
    if child == 0:
        try:
            file.write(b"child")
        except Exception:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    file.close()
    with store.open_file("f") as read:
        assert read.read() == b"parent"


def test_a_wrong_length_is_refused_with_what_would_be_right(tmp_path: Path):
    with ebbtide.open(tmp_path / "store", durability="process", **SMALL) as store, store.create_file("a", 1) as file:
        with pytest.raises(ValueError, match=r"size=-1 is not valid: expected a number of bytes from 0"):
            file.truncate(-1)
        for length in (2**63, 2**64, 2**70):
            with pytest.raises(ebbtide.TooLarge, match='version 1 of file "a" would have more than'):
                file.truncate(length)
        assert file.truncate(5) == 5


def test_the_commands_show_files_and_export_them_as_written(tmp_path: Path):
    from commands_support import OK, REFUSED, run

    directory, data = tmp_path / "store", random.Random(3).randbytes(700_000)
    with ebbtide.open(directory, durability="process", **SMALL) as store:
        store.checkpoint(0, numpy.ones(10))
        for version in (1, 2):
            with store.create_file("a/b", version) as file:
                file.write(data[version:])
                file.truncate(1_000_000)
    listed = run("ls", directory)
    assert listed.code == OK
    assert "1 checkpoint in 1 history" in listed.out
    assert "file a/b, version 2: 683.59 KiB in 6 pieces" in listed.out
    assert [(one["name"], one["version"], one["whole"]) for one in run("ls", directory, "--json").json["files"]] == [
        ("a/b", 1, True),
        ("a/b", 2, True),
    ]
    done = run("export", directory, "--to", tmp_path / "out", "--file", "a/b", "--json")
    assert done.code == OK
    for version in (1, 2):
        found = (tmp_path / "out" / "file-a%2Fb" / f"version-{version}").read_bytes()
        assert found == (data[version:] + bytes(1_000_000))[:1_000_000]
    assert done.json["written"][1]["bytes"] == 1_000_000
    again = run("export", directory, "--to", tmp_path / "out", "--file", "a/b", "--versions", "2")
    assert again.code == REFUSED
    assert "--force overwrites it" in again.err
    none = run("export", directory, "--to", tmp_path / "out", "--file", "a/b", "--versions", "3")
    assert none.code == REFUSED
    assert "there is no version 3 of file a/b" in none.err


def test_names_that_the_store_uses_itself_are_refused(tmp_path):
    with ebbtide.open(tmp_path / "s", durability="process", device_cache="16MiB", disk="64MiB") as store:
        with store.create_file("state", 3) as file:
            file.write(b"x" * 1000)
        piece = store.history("state/.ebbtide-file/3/0")
        assert len(piece.versions()) == 1  # reading is no harm
        for write in (
            lambda: piece.checkpoint(9, numpy.zeros(8)),
            lambda: piece.reserve(9, (8,), "f4"),
        ):
            with pytest.raises(ebbtide.InvalidArgument, match=r"create_file.*state/\.ebbtide-file/3/0"):
                write()
        with pytest.raises(ebbtide.InvalidArgument, match="without it"):
            store.create_file("state/.ebbtide-file/3", 1)
        with store.open_file("state") as file:
            assert file.read() == b"x" * 1000
