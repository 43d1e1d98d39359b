"""`ebbtide export`: every byte, named safely, in its place, and nowhere else."""

from __future__ import annotations

import base64
import io
import json
import pathlib
import signal
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import DAMAGED, OK, REFUSED, Writer, healthy, pattern, run, tree
from ebbtide.commands.folder import Folder
from format_writer import layout


def test_plain_files_and_their_pages(tmp_path: pathlib.Path) -> None:
    writer, _ = healthy(tmp_path / "store")
    store = writer.write()
    before = tree(store)
    done = run("export", store, "--to", tmp_path / "out", "--json")
    assert done.code == OK
    out = tmp_path / "out"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "history-adjoint/version-7/checkpoint.json",
        "history-adjoint/version-7/region-0.bin",
        "history-adjoint/version-8/checkpoint.json",
        "history-adjoint/version-8/region-0.bin",
        "history/version--3/checkpoint.json",
        "history/version--3/region-0.bin",
    ]
    assert (out / "history-adjoint/version-7/region-0.bin").read_bytes() == pattern(10, 4), "the one that counts"
    assert (out / "history-adjoint/version-8/region-0.bin").read_bytes() == pattern(20_000, 5)
    page = json.loads((out / "history/version--3/checkpoint.json").read_text())
    assert (page["history"], page["version"], page["bytes"], page["written"]) == ("", -3, 5000, "2023-11-14T22:13:22Z")
    assert base64.b64decode(page["metadata_base64"]) == b"\0opaque"
    assert page["regions"] == [
        {
            "id": 0,
            "bytes": 5000,
            "offset": 0,
            "dtype": None,
            "shape": None,
            "key": None,
            "strides": None,
            "file": "region-0.bin",
        }
    ]
    assert done.json["written"][0] == {
        "history": "", "version": -3, "bytes": 5000, "path": str(out / "history" / "version--3"),
    }  # fmt: skip
    assert list(done.json) == ["store", "id", "format", "durability", "created", "to", "written", "damaged"]
    assert tree(store) == before


def test_what_is_chosen(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    for version in range(-2, 8):
        writer.add(b"a", version, pattern(10, version + 2))
    writer.add(b"b", 3, pattern(10, 50))
    store = writer.write()

    def chosen(*options: str) -> list[tuple[str, int]]:
        place = tmp_path / "-".join(options or ["all"]).replace("/", "_")
        done = run("export", store, "--to", place, "--json", *options)
        assert done.code == OK, done
        return [(one["history"], one["version"]) for one in done.json["written"]]

    assert len(chosen()) == 11
    assert chosen("--history", "b") == [("b", 3)]
    assert chosen("--versions=-2,3") == [("a", -2), ("a", 3), ("b", 3)]
    assert chosen("--versions=-1..1, 6", "--history", "a") == [("a", -1), ("a", 0), ("a", 1), ("a", 6)]
    for options, match in (
        (["--versions", "99"], "no version 99;"),
        (["--versions", "3,99"], "no version 99;"),
        (["--history", "c"], "there is no history c;"),
        (["--versions", "5", "--history", "b"], "no version 5 of history b;"),
        (["--versions", "50..60"], "no version among these;"),
        (["--versions", "3..x"], "neither a version nor a range"),
        (["--versions", "3,"], "neither a version nor a range"),
    ):
        done = run("export", store, "--to", tmp_path / "none", *options)
        assert (done.code, done.out) == (REFUSED, "")
        assert match in done.err
    assert not (tmp_path / "none").exists()


def test_archives_have_the_arrays_that_were_written(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    one = np.arange(12, dtype="<f4").reshape(3, 4)
    two = np.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", "<f8")])
    empty = np.zeros((0, 5), "<c16")
    keys: list[int | str] = ["x", 7, "../up", "", "1", 1]
    arrays = [one, two, empty, one, one, one]
    described = [
        (array.dtype.str if array.dtype.names is None else f"descr:{array.dtype.descr!r}", array.shape)
        for array in arrays
    ]
    writer.add(b"d", 1, *(array.tobytes() for array in arrays), metadata=layout(3, keys, described))
    writer.add(b"l", 2, one.tobytes(), empty.tobytes(), metadata=layout(1, [], [described[0], described[2]]))
    writer.add(b"s", 3, one.tobytes(), metadata=layout(0, [], [described[0]]))
    writer.add(b"raw", 4, pattern(100, 1), pattern(50, 2), metadata=b"of another program")
    store = writer.write()
    done = run("export", store, "--to", tmp_path / "out", "--format", "npz")
    assert done.code == OK, done
    with np.load(tmp_path / "out/history-d/version-1.npz") as archive:
        assert sorted(archive) == sorted(["x", "7", "%2E.%2Fup", "%", "1~region_4", "1~region_5"])
        for name, array in zip(("x", "7", "%2E.%2Fup", "%"), arrays):
            assert archive[name].dtype == array.dtype
            assert archive[name].shape == array.shape
            assert archive[name].tobytes() == array.tobytes()
    page = json.loads((tmp_path / "out/history-d/version-1.json").read_text())
    assert [region["key"] for region in page["regions"]] == keys
    assert page["regions"][2]["array"] == "%2E.%2Fup"
    assert page["regions"][0]["dtype"] == page["regions"][0]["array_dtype"] == "<f4"
    with np.load(tmp_path / "out/history-l/version-2.npz") as archive:
        assert list(archive) == ["arr_0", "arr_1"]
        np.testing.assert_array_equal(archive["arr_0"], one)
    with np.load(tmp_path / "out/history-s/version-3.npz") as archive:
        np.testing.assert_array_equal(archive["arr_0"], one)
    with np.load(tmp_path / "out/history-raw/version-4.npz") as archive:
        assert list(archive) == ["region_0", "region_1"]
        assert archive["region_1"].dtype == np.uint8
        assert archive["region_1"].tobytes() == pattern(50, 2)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("|O", (4,)),
        ("<f4", (5,)),
        ("<f4", (2**62, 2**62)),
        ("name:bfloat16", (8,)),
        ("torch:torch.bfloat16", (8,)),
        ("descr:__import__('os').abort()", (1,)),
        ("descr:" + "[" * 5000, (1,)),
        ("descr:[('a', '|O')]", (4,)),
        ("float32; rm", (4,)),
        ("", (4,)),
    ],
)
def test_types_that_cannot_be_or_are_not_numpys_become_bytes(tmp_path: pathlib.Path, dtype: str, shape: tuple) -> None:
    writer = Writer(tmp_path / "store")
    writer.add(b"", 1, pattern(16, 1), metadata=layout(0, [], [(dtype, shape)]))
    store = writer.write()
    assert run("export", store, "--to", tmp_path / "out", "--format", "npz").code == OK
    with np.load(tmp_path / "out/history/version-1.npz") as archive:
        assert archive["arr_0"].dtype == np.uint8
        assert archive["arr_0"].tobytes() == pattern(16, 1)
    page = json.loads((tmp_path / "out/history/version-1.json").read_text())
    assert page["regions"][0]["dtype"] == dtype
    assert run("ls", "-v", store).code == OK


def test_metadata_that_only_seems_to_be_a_layout(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    good = layout(3, ["\udcff"], [("<f4", (4,))])
    for version, metadata in enumerate([good, *(good[:end] for end in range(len(good))), b"\xeb\x01" + b"\xff" * 30]):
        writer.add(b"", version, pattern(16, 1), metadata=metadata)
    store = writer.write()
    for form in ("npz", "files"):
        assert run("export", store, "--to", tmp_path / form, "--format", form).code == OK
    with np.load(tmp_path / "npz/history/version-0.npz") as archive:
        assert list(archive) == ["%FF"]


def test_large_payloads_come_in_pieces_with_gaps_between_regions(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "store")
    rng = np.random.default_rng(1)
    regions = [rng.bytes(size) for size in (5_000_001, 0, 1, 4_194_304, 300)]
    writer.add(b"", 1, *regions, block=1 << 16)
    store = writer.write()
    assert run("export", store, "--to", tmp_path / "out").code == OK
    for number, region in enumerate(regions):
        assert (tmp_path / f"out/history/version-1/region-{number}.bin").read_bytes() == region
    assert run("export", store, "--to", tmp_path / "npz", "--format", "npz").code == OK
    with np.load(tmp_path / "npz/history/version-1.npz") as archive:
        assert [archive[name].tobytes() for name in archive] == regions
    with zipfile.ZipFile(tmp_path / "npz/history/version-1.npz") as archive:
        assert archive.testzip() is None


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["files", "npz"])
def test_what_is_damaged_is_named_and_nothing_of_it_is_left(tmp_path: pathlib.Path, form: str) -> None:
    writer, records = healthy(tmp_path / "store")
    last = records["last"]
    writer.hurt(last, last.length - BLOCK_END)
    store = writer.write()
    out = tmp_path / "out"
    done = run("export", store, "--to", out, "--format", form, "--json")
    assert done.code == DAMAGED
    (damage,) = done.json["damaged"]
    assert (damage["history"], damage["version"]) == ("adjoint", 8)
    assert damage["offset"] > last.payload_offset
    assert [one["version"] for one in done.json["written"]] == [-3, 7]
    assert not [path for path in out.rglob("*") if "version-8" in path.name or path.name.endswith(".part")]
    text = run("export", store, "--to", out, "--format", form, "--force")
    assert text.code == DAMAGED
    assert "damaged: version 8 of history adjoint" in text.out
    assert run("export", store, "--to", tmp_path / "some", "--versions", "7", "--format", form).code == OK


BLOCK_END = 4096  # after the last block's start: 20000 bytes end in it


def test_a_damaged_header_matters_to_who_asked_for_it(tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    writer.hurt(records["plain"], 600)  # the version is known, the history is not
    store = writer.write()
    assert run("export", store, "--to", tmp_path / "a").code == DAMAGED
    assert run("export", store, "--to", tmp_path / "b", "--versions=7,8").code == OK
    assert run("export", store, "--to", tmp_path / "c", "--versions=-3").code == DAMAGED


# --- places -----------------------------------------------------------------------------------------------------------

HOSTILE = [
    b"../../escape", b"/absolute", b"..", b".", b"", b"\0", b"a\0b", b"a/b", b"a%2Fb", b"\xff", b"x" * 10_000,
    b"x" * 10_001, b"-rf", b"history", b"con", b"new\nline", "ü".encode(), b".part", b"~", b"%",
]  # fmt: skip


@pytest.mark.parametrize("form", ["files", "npz"])
def test_hostile_names_stay_inside_and_apart(tmp_path: pathlib.Path, form: str) -> None:
    writer = Writer(tmp_path / "store")
    for number, name in enumerate(HOSTILE):
        writer.add(name, 1, pattern(10, number))
    store = writer.write()
    before = {path.name for path in tmp_path.iterdir()}
    out = tmp_path / "deep" / "er" / "out"
    assert run("export", store, "--to", out, "--format", form).code == OK
    assert {path.name for path in tmp_path.iterdir()} == before | {"deep"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["er"]
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["out"]
    folders = list(out.iterdir())
    assert len(folders) == len(HOSTILE)
    assert all(folder.name.isascii() and len(folder.name) < 130 for folder in folders)
    found = {}
    for folder in folders:
        page = json.loads(next(folder.rglob("*.json")).read_text())
        found[page["history"].encode("utf-8", "surrogateescape")] = folder
    assert set(found) == set(HOSTILE)
    if form == "files":
        for number, name in enumerate(HOSTILE):
            assert (found[name] / "version-1" / "region-0.bin").read_bytes() == pattern(10, number)


@pytest.mark.parametrize("form", ["files", "npz"])
def test_nothing_is_overwritten_without_force(tmp_path: pathlib.Path, form: str) -> None:
    writer, _ = healthy(tmp_path / "store")
    store, out = writer.write(), tmp_path / "out"
    target = out / "history-adjoint" / ("version-8" if form == "files" else "version-8.npz")
    target.parent.mkdir(parents=True)
    target.write_text("mine")
    done = run("export", store, "--to", out, "--format", form)
    assert done.code == REFUSED
    assert f"{target} exists already; --force overwrites it" in done.err
    assert [path for path in out.rglob("*") if path.is_file()] == [target], "and nothing else was begun"
    if form == "npz":
        assert run("export", store, "--to", out, "--format", form, "--force").code == OK
        with np.load(target) as archive:
            assert archive["region_0"].tobytes() == pattern(20_000, 5)
    else:
        assert run("export", store, "--to", out, "--format", form, "--force").code == REFUSED, "a file is no folder"
        target.unlink()
        target.mkdir()
        (target / "region-0.bin").write_text("old")
        (target / "other").write_text("mine")
        assert run("export", store, "--to", out, "--format", form, "--force").code == OK
        assert (target / "region-0.bin").read_bytes() == pattern(20_000, 5)
        assert (target / "other").read_text() == "mine"


@pytest.mark.parametrize("form", ["files", "npz"])
@pytest.mark.parametrize("force", [False, True])
def test_planted_links_lead_nowhere(tmp_path: pathlib.Path, form: str, force: bool) -> None:
    writer, _ = healthy(tmp_path / "store")
    store, out, away = writer.write(), tmp_path / "out", tmp_path / "away"
    away.mkdir()
    (away / "precious").write_text("mine")
    options = ["--format", form, *(["--force"] if force else [])]
    out.mkdir()
    (out / "history").symlink_to(away)
    done = run("export", store, "--to", out, *options)
    assert done.code == REFUSED
    assert "links are not followed" in done.err
    (out / "history").unlink()
    (out / "history").mkdir(exist_ok=True)
    name = "version--3" if form == "files" else "version--3.npz"
    (out / "history" / name).symlink_to(away if form == "files" else away / "precious")
    done = run("export", store, "--to", out, "--versions=-3", *options)
    assert done.code == (OK if force and form == "npz" else REFUSED)
    if force and form == "npz":
        assert not (out / "history" / name).is_symlink(), "the link was replaced, and not what it led to"
    assert [(path.name, path.read_text()) for path in away.iterdir()] == [("precious", "mine")]


def test_out_is_not_in_the_store(tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    (tmp_path / "link").symlink_to(store)
    before = tree(store)
    for out in (store, store / "out", tmp_path / "link" / "out", tmp_path / "x" / ".." / "store"):
        done = run("export", store, "--to", out)
        assert done.code == REFUSED
        assert "is inside the store" in done.err
    assert tree(store) == before


def test_a_place_that_cannot_be_written_to(tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    (tmp_path / "file").write_text("mine")
    done = run("export", store, "--to", tmp_path / "file", "--json")
    assert done.code == REFUSED
    assert done.json["error"]["reason"] == "io_error"
    done = run("export", store, "--to", "/proc/nowhere")
    assert done.code == REFUSED
    assert "Traceback" not in done.err


def test_a_full_disk_leaves_no_half_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ebbtide.commands import writing

    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    store = healthy(tmp_path / "store")[0].write()
    monkeypatch.setattr(writing, "_put_page", lambda out, page: Full().write(b""))
    done = run("export", store, "--to", tmp_path / "out")
    assert done.code == REFUSED
    assert "No space left" in done.err
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


KILLED = """
import os, signal, sys
left = int(sys.argv.pop(1))
def step(real):
    def call(*arguments, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    return call
from ebbtide.cli import main
os.open, os.mkdir, os.rename = step(os.open), step(os.mkdir), step(os.rename)
main()
"""


@pytest.mark.parametrize("form", ["files", "npz"])
def test_a_killed_export_is_done_again(tmp_path: pathlib.Path, form: str) -> None:
    """Killed at each step; then it is refused by name, or nothing exists yet; with `--force` it is complete."""
    writer = Writer(tmp_path / "store")
    writer.add(b"a", 7, pattern(300, 1), pattern(5000, 2))
    store = writer.write()
    whole = tmp_path / "whole"
    assert run("export", store, "--to", whole, "--format", form).code == OK
    endings = set()
    for step in range(1, 100):
        out = tmp_path / f"out-{step}"
        words = ["export", store, "--to", out, "--format", form]
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(step), *map(str, words)], capture_output=True, timeout=60, check=False
        )
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        parts = [path for path in out.rglob("*") if path.name.endswith(".part")]
        named = [path for path in out.rglob("*") if path.is_file() and path not in parts]
        again = run(*words)
        endings.add((again.code, bool(parts)))
        assert again.code == (REFUSED if named else OK), again
        if named:
            assert "--force overwrites it" in again.err
            whole_already = any(path.suffix == ".json" for path in named)
            assert ("an export was interrupted" in again.err) is not whole_already
            assert run(*words, "--force").code == OK
        assert tree(out) == tree(whole), f"step {step}"
    else:
        pytest.fail("it never ended")
    assert {(OK, True), (REFUSED, True)} <= endings, "killed with files begun, and between two names"


def test_what_another_export_writes_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Two at once in one directory, and a file of the user's that only looks alike."""
    first, second = Folder.at(tmp_path / "out"), Folder.at(tmp_path / "out")
    (tmp_path / "out" / ".mine.1-2.part").write_text("mine")
    began = threading.Event()

    def other() -> None:
        began.set()
        with second.batch(False) as begin:
            begin("version-2.json").write(b"2")

    with first, second:
        with first.batch(False) as begin:
            begin("version-1.json").write(b"1")
            thread = threading.Thread(target=other)
            thread.start()
            assert began.wait(30)
        thread.join()
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        "version-1.json": "1", "version-2.json": "2", ".mine.1-2.part": "mine",
    }  # fmt: skip
