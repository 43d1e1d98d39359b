"""The commands over a directory in which each rank of a job has a store, and over a store with files."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import run

import ebbtide

SIZES = {"device": "cpu", "device_cache": "1MiB", "host_cache": "2MiB", "disk": "64MiB", "durability": "process"}


def two_ranks(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "run").mkdir()
    for rank in (2, 10):
        with ebbtide.open(tmp_path / "run" / f"rank-{rank}", **SIZES) as store:
            for version in range(3):
                store.checkpoint(version, np.full(100, float(rank + version)))
            parts = store.history("dcp/7/1")  # as ebbtide.torch.Writer has them
            parts.checkpoint(0, np.ones(500))
            if rank == 2:
                store.history("dcp/7").checkpoint(1, np.ones(1))
            store.history("dcp/8/2").checkpoint(0, np.ones(500))
    return tmp_path / "run"


def test_every_command_goes_through_the_ranks(tmp_path: pathlib.Path) -> None:
    directory = two_ranks(tmp_path)
    listed = run("ls", directory)
    assert listed.code == 0
    assert listed.out.index("rank-2:") < listed.out.index("rank-10:")
    assert "step 7 of DCP: 7.82 KiB in 2 ranks\n" in listed.out
    assert "step 8 of DCP: 7.81 KiB in 2 ranks, never finished" in listed.out
    documents = run("ls", directory, "--json").json
    assert [pathlib.Path(one["store"]).name for one in documents["stores"]] == ["rank-2", "rank-10"]
    assert [len(one["checkpoints"]) for one in documents["stores"]] == [6, 5]
    assert [one["intact"] for one in run("verify", directory, "--json").json["stores"]] == [True, True]
    done = run("gc", directory, "--keep-last", "1", "--json").json["stores"]
    assert [len(one["removed"]) for one in done] == [2, 2]
    assert run("export", directory, "--to", tmp_path / "out", "--format", "npz", "--versions", "2").code == 0
    for rank in (2, 10):
        (path,) = (tmp_path / "out" / f"rank-{rank}").rglob("version-2.npz")
        with np.load(path) as archive:
            assert np.array_equal(next(iter(archive.values())), np.full(100, rank + 2.0))


def test_parts_are_shown_with_v_and_damage_by_its_step(tmp_path: pathlib.Path) -> None:
    directory = two_ranks(tmp_path)
    assert "dcp/7" not in run("ls", directory).out
    assert "dcp/7/1" in run("ls", directory, "-v").out
    one = run("ls", directory / "rank-10").out
    assert "step 7 of DCP: 3.91 KiB in 1 rank\n" in one and "never finished" not in one, "rank 0 knows, or another"
    parts = next(
        one for one in run("ls", directory / "rank-10", "--json").json["checkpoints"] if one["history"] == "dcp/7/1"
    )
    with open(directory / "rank-10" / parts["file"], "r+b") as file:
        file.seek(parts["offset"] + parts["record_bytes"] - 4096)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    done = run("verify", directory)
    assert done.code == 1 and "step 7 of DCP is damaged, in rank-10\n" in done.out
    assert "step 8" not in done.out
    assert run("gc", directory, "--keep-last", "1").code == 0
    assert "step 7 of DCP" in run("ls", directory).out, "no newer one is whole"


def test_export_goes_by_step_and_leaves_out_what_was_never_finished(tmp_path: pathlib.Path) -> None:
    directory = two_ranks(tmp_path)

    def exported(*options: str) -> tuple[str, set[str]]:
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        done = run("export", directory, "--to", out, *options)
        assert done.code == 0, done.err
        return done.out, {str(path.parent.parent.relative_to(out)) for path in out.rglob("checkpoint.json")}

    step = {"rank-2/history-dcp%2F7%2F1", "rank-10/history-dcp%2F7%2F1", "rank-2/history-dcp%2F7"}
    told, folders = exported()
    assert folders == step | {"rank-2/history", "rank-10/history"}
    assert (
        "step 7 of DCP: 7.82 KiB in 2 ranks\n" in told and "step 8 of DCP was never finished, and is left out\n" in told
    )
    told, folders = exported("--versions", "7")
    assert folders == step and "step 8" not in told
    told, folders = exported("--versions", "1")
    assert folders == {"rank-2/history", "rank-10/history"}, "no step, although a part has this number"
    _, folders = exported("--versions", "0", "--history", "dcp/8/2")
    assert folders == {"rank-2/history-dcp%2F8%2F2", "rank-10/history-dcp%2F8%2F2"}
    refused = run("export", directory, "--to", tmp_path / "none", "--versions", "8")
    assert refused.code == 2 and "there is no version 8" in refused.err


def test_a_directory_without_stores_is_refused_in_words_for_a_reader(tmp_path: pathlib.Path) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    for command in (["ls"], ["verify"], ["gc"], ["export", "--to", tmp_path / "out"]):
        done = run(*command, tmp_path)
        assert done.code == 2 and "no store, nor is one in a directory of it" in done.err


def test_a_damaged_rank_is_named_and_the_others_are_read(tmp_path: pathlib.Path) -> None:
    directory = two_ranks(tmp_path)
    (directory / "rank-2" / "store").write_bytes(b"no store any more")
    done = run("verify", directory)
    assert done.code == 1
    assert "rank-2/store" in done.out
    assert "5 checkpoints intact" in done.out


def test_files_are_exported_as_files_whatever_the_format_of_checkpoints(tmp_path: pathlib.Path) -> None:
    with ebbtide.open(tmp_path / "store", **SIZES) as store:
        store.checkpoint(4, np.ones(3))
        for version in (4, 5):
            with store.create_file("model", version) as file:
                file.write(b"x" * (700_000 + version))
    for form in ("npz", "files"):
        out = tmp_path / form
        done = run("export", tmp_path / "store", "--to", out, "--format", form)
        assert done.code == 0, done.err
        assert "1 checkpoint and 2 files written" in done.out
        assert {path.name for path in (out / "file-model").iterdir()} == {"version-4", "version-5"}
        assert (out / "file-model" / "version-5").read_bytes() == b"x" * 700_005
        assert not [path for path in out.iterdir() if "ebbtide-file" in path.name]
        assert run("export", tmp_path / "store", "--to", out, "--format", form).code == 2, "they exist"
    only = run("export", tmp_path / "store", "--to", tmp_path / "only", "--versions", "5", "--json").json
    assert [(one["name"], one["version"], one["bytes"]) for one in only["written"]] == [("model", 5, 700_005)]


def test_verify_names_a_rank_that_is_missing(tmp_path: pathlib.Path) -> None:
    directory = two_ranks(tmp_path)
    (directory / "ranks").write_text("3\n")
    told = run("verify", directory)
    assert told.code == 1
    assert [f"rank-{rank}: missing" in told.out for rank in (0, 1, 2)] == [True, True, False]
    stores = {
        pathlib.Path(one["store"]).name: one["intact"] for one in run("verify", directory, "--json").json["stores"]
    }
    assert stores == {"rank-0": False, "rank-1": False, "rank-2": True, "rank-10": True}
