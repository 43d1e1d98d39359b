"""A store with a shared directory: what survives the node, and what is refused by name."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import uuid

import ebbtide
import numpy as np
import pytest

SMALL = {"device_cache": "1MiB", "host_cache": "2MiB", "disk": "16MiB"}


def field(version: int) -> np.ndarray:
    return np.random.default_rng(version).integers(0, 255, 100_000, dtype=np.uint8)


def test_another_node_finds_and_restores_everything(disk):
    local, shared = disk / "local", disk / "shared"
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        assert store.durability == "shared"
        for version in range(1, 6):
            future = store.checkpoint(version, field(version))
        future.wait("shared", timeout=60)
        assert future.done("shared")
        store.wait("shared", timeout=60)
        tiers = {tier["name"]: tier for tier in store.stats()["tiers"]}
        assert tiers["shared"]["replicas"] == 5
        assert tiers["shared"]["used"] >= 5 * 100_000
    shutil.rmtree(local)
    with ebbtide.open(disk / "elsewhere", shared=shared, **SMALL) as store:
        assert store.versions() == [1, 2, 3, 4, 5]
        assert store.latest() == 5
        for version in range(5, 0, -1):
            assert np.array_equal(store.restore(version), field(version))


def test_each_directory_is_a_store_of_its_own(disk):
    local, shared = disk / "local", disk / "shared"
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        store.checkpoint(1, field(1))
    for directory in (local, shared):
        with ebbtide.open(directory, readonly=True, **SMALL) as store:
            assert np.array_equal(store.restore(store.latest()), field(1))
        command = [sys.executable, "-c", "from ebbtide.cli import main; main()", "verify", directory]
        said = subprocess.run(command, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert "pair" not in said.stdout + said.stderr


def test_a_reader_sees_both_directories(disk):
    local, shared = disk / "local", disk / "shared"
    options = SMALL | {"disk": "1MiB"}
    with ebbtide.open(local, shared=shared, **options) as store:
        for version in range(1, 21):
            store.checkpoint(version, field(version)).wait("shared", timeout=60)
        with ebbtide.open(local, shared=shared, readonly=True, **SMALL) as reader:
            assert reader.versions() == store.versions() == list(range(1, 21))
            store.checkpoint(21, field(21)).wait("storage", timeout=60)
            assert reader.latest() == 21
            for version in range(21, 0, -1):
                assert np.array_equal(reader.restore(version), field(version))
            with pytest.raises(ebbtide.Unsupported, match="readonly"):
                reader.wait("shared")


def test_a_reader_on_another_node_needs_no_local_directory(disk):
    with ebbtide.open(disk / "local", shared=disk / "shared", **SMALL) as store:
        store.checkpoint(1, field(1))
    before = sorted(disk.rglob("*"))
    with ebbtide.open(disk / "elsewhere", shared=disk / "shared", readonly=True, **SMALL) as reader:
        assert np.array_equal(reader.restore(reader.latest()), field(1))
    assert sorted(disk.rglob("*")) == before


def test_the_levels_have_their_own_retention(disk):
    local, shared = disk / "local", disk / "shared"
    options = {"keep_last": 2, "keep_last_shared": 3, "shared_every": 2}
    with ebbtide.open(local, shared=shared, **options, **SMALL) as store:
        for version in range(1, 13):
            store.checkpoint(version, field(version)).wait("storage", timeout=60)
        store.wait("shared", timeout=60)
    shutil.rmtree(local)
    with ebbtide.open(local, shared=shared, **options, **SMALL) as store:
        assert set(store.versions()) >= {8, 10, 12}
        assert all(version % 2 == 0 for version in store.versions())


def test_a_wait_for_shared_waits_for_what_stays_on_the_local_disk(disk):
    with ebbtide.open(disk / "local", shared=disk / "shared", shared_every=2, **SMALL) as store:
        for version in (1, 3, 5):
            written = store.checkpoint(version, field(version))
            store.wait("shared", timeout=60)
            assert written.done("storage")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"durability": "shared"}, ebbtide.InvalidArgument, "shared with it"),
        ({"shared_every": 10}, ebbtide.InvalidArgument, "shared with it"),
        ({"limit_shared": "200MB/s"}, ebbtide.InvalidArgument, "shared with it"),
        ({"shared": "s", "durability": "ephemeral"}, ebbtide.InvalidArgument, "durability"),
        ({"shared": "s", "readonly": True, "shared_every": 2}, ebbtide.InvalidArgument, "readonly"),
        ({"shared": "s", "keep_last_shared": 3}, ebbtide.InvalidArgument, "keep_last"),
        ({"shared": "s", "limit_shared": "fast"}, ebbtide.InvalidArgument, "200MB/s"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(disk, options, error, words):
    options = {**options, **({"shared": disk / "shared"} if "shared" in options else {})}
    with pytest.raises(error, match=words):
        ebbtide.open(disk / "local", **options, **SMALL)


def test_a_file_is_read_on_another_node(disk):
    local, shared = disk / "local", disk / "shared"
    contents = {version: field(version).tobytes() * 20 for version in (1, 2)}
    with ebbtide.open(local, shared=shared, **(SMALL | {"disk": "3MiB"})) as store:
        for version, content in contents.items():
            with store.create_file("model", version) as file:
                file.write(content)
            file.wait("shared", timeout=60)
        for version, content in contents.items():
            with store.open_file("model", version) as file:
                assert file.read() == content
    shutil.rmtree(local)
    with ebbtide.open(disk / "elsewhere", shared=shared, **SMALL) as store:
        assert [version for _, version, _ in store.files("model")] == [1, 2]
        for version, content in contents.items():
            with store.open_file("model", version) as file:
                assert file.read() == content


def test_snapshots_are_restored_on_another_node(disk):
    local, shared = disk / "local", disk / "shared"
    array = np.zeros(1 << 20, np.uint8)
    contents = {}
    options = {"keep_last": 1, "keep_last_shared": 3} | SMALL | {"disk": "6MiB"}
    with ebbtide.open(local, shared=shared, **options) as store:
        store.protect(array)
        for version in range(1, 7):
            array[version << 16 : (version + 1) << 16] = field(version)[: 1 << 16]
            contents[version] = array.copy()
            future = store.snapshot(version)
            future.wait("storage", timeout=60)
        future.wait("shared", timeout=60)
        assert future.done("shared")
    shutil.rmtree(local)
    with ebbtide.open(disk / "elsewhere", shared=shared, **options) as store:
        assert store.latest() == 6
        assert set(store.versions()) >= {4, 5, 6}
        for version in store.versions():
            assert np.array_equal(store.restore(version), contents[version])


def run(*arguments, **more) -> tuple[int, str]:
    command = [sys.executable, "-c", "from ebbtide.cli import main; main()", *map(str, arguments)]
    said = subprocess.run(command, capture_output=True, text=True, **more)
    return said.returncode, said.stdout + said.stderr


def test_the_commands_look_at_both_directories(disk):
    local, shared, out = disk / "local", disk / "shared", disk / "out"
    array = np.zeros(1 << 20, np.uint8)
    with ebbtide.open(local, shared=shared, **(SMALL | {"disk": "2MiB"})) as store:
        store.protect(array)
        for version in range(1, 5):  # more than the local directory has room for
            array[:] = version
            store.snapshot(version).wait("shared", timeout=60)
        with store.create_file("model", 1) as file:
            file.write(field(1).tobytes() * 10)
        file.wait("shared", timeout=60)
        for version in range(10, 30):
            store.checkpoint(version, field(version)).wait("shared", timeout=60)
        versions = store.versions()
    code, said = run("ls", local, "--shared", shared, "--json")
    assert code == 0
    found = [one for one in json.loads(said)["checkpoints"] if not one["history"]]
    assert [one["version"] for one in found] == versions
    assert {one.get("shared", False) for one in found} == {True, False}
    for directories in ([local], [shared], [local, "--shared", shared]):
        code, said = run("verify", *directories)
        assert code == 0, said
    for directories in ([local, "--shared", shared], [shared], [local]):
        code, said = run("gc", *directories)
        assert code == 0, said
    code, said = run("export", local, "--shared", shared, "--to", out, "--format", "npz")
    assert code == 0, said
    assert (out / "file-model" / "version-1").read_bytes() == field(1).tobytes() * 10
    shutil.rmtree(local)
    with ebbtide.open(disk / "elsewhere", shared=shared, **SMALL) as store:
        for version in range(1, 5):
            assert (store.restore(version) == version).all()
        for version in range(10, 30):
            assert np.array_equal(store.restore(version), field(version))


WRITER = """
import sys
import numpy as np
import ebbtide

local, shared, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
array = np.zeros(1 << 18, np.uint8)
with ebbtide.open(local, shared=shared, keep_last=2, keep_last_shared=3, device_cache="1MiB", host_cache="2MiB",
                  disk="6MiB") as store:
    store.protect(array)
    for version in range(first, first + 10000):
        array[(version % 4) << 16 :] = version % 251
        snapshot = store.snapshot(version)
        fields = store.history("fields").checkpoint(version, np.full(50_000, version))
        with store.create_file("model", version) as file:
            file.write(version.to_bytes(8, "little") * 10_000)
        for part in (snapshot, fields, file):
            part.wait("shared", timeout=60)
        print(version, *array[:: 1 << 16], flush=True)
"""


def test_kill_9_and_a_lost_node_lose_nothing_that_was_reported_shared(disk):
    local, shared, said = disk / "local", disk / "shared", {}
    random = np.random.default_rng(7)
    for turn in range(6):
        first = max(said, default=0) + 10
        command = [sys.executable, "-c", WRITER, local, shared, str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(random.integers(1, 6)):
                version, *array = map(int, writer.stdout.readline().split())
                said[version] = array
            writer.kill()
        if turn % 2 == 1:
            shutil.rmtree(local)
        last = max(said)
        with ebbtide.open(local, shared=shared, keep_last=2, keep_last_shared=3, **(SMALL | {"disk": "6MiB"})) as store:
            assert store.latest() >= last
            for version in store.versions():
                if version in said:
                    assert list(store.restore(version, keep=True)[:: 1 << 16]) == said[version]
            assert store.history("fields").latest() >= last
            for version in store.history("fields").versions():
                assert (store.history("fields").restore(version, keep=True) == version).all()
            files = [version for _, version, _ in store.files("model")]
            assert max(files) >= last
            for version in files:
                with store.open_file("model", version) as file:
                    assert file.read() == version.to_bytes(8, "little") * 10_000


RANK = """
import sys
import numpy as np
import ebbtide

local, shared, rank, what = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
with ebbtide.open(local, shared=shared, node_pool="32MiB", device="cpu", device_cache="4MiB", disk="256MiB",
                  tuning={"node_chunk": "1MiB"}) as store:
    assert store.durability == "shared"
    if what == "write":
        for version in range(5):
            future = store.checkpoint(version, np.full(1 << 17, 1000.0 * rank + version))
        future.wait("node", timeout=60)
        store.wait("shared", timeout=60)
        assert future.done("shared")
    assert store.versions() == list(range(5))
    for version in range(5):
        assert (store.restore(version) == 1000.0 * rank + version).all(), version
"""


def run_ranks(program: str, local, shared, *more: str) -> None:
    environment = os.environ | {"EBBTIDE_JOB": f"test-{uuid.uuid4().hex}", "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, local, shared, str(rank), *more],
            env=environment | {"EBBTIDE_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]


def test_each_rank_of_a_pool_is_found_on_another_node(disk):
    run_ranks(RANK, disk / "local", disk / "shared", "write")
    assert sorted(place.name for place in (disk / "shared").iterdir()) == ["rank-0", "rank-1"]
    run_ranks(RANK, disk / "local", disk / "shared", "read")
    for command in (["ls"], ["verify"], ["export", "--to", disk / "out"], ["gc"]):
        code, said = run(*command, disk / "local")
        assert code == 0, said
        for rank in range(2):
            assert str(disk / "shared" / f"rank-{rank}") in said
    shutil.rmtree(disk / "local")
    run_ranks(RANK, disk / "elsewhere", disk / "shared", "read")


FILLING_RANK = """
import sys
import numpy as np
import ebbtide

local, shared, rank, keep_last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with ebbtide.open(local, shared=shared, node_pool="8MiB", device="cpu", device_cache="1MiB", disk="4MiB",
                  keep_last=keep_last, tuning={"node_chunk": "256KiB"}) as store:
    for version in range(60):
        store.checkpoint(version, np.full(1 << 15, 1000.0 * rank + version), timeout=60)
    store.wait("shared", timeout=60)
    assert store.versions() == list(range(60 - keep_last if keep_last else 0, 60))
"""


@pytest.mark.parametrize("keep_last", [0, 2])
def test_the_ranks_of_a_pool_that_fill_its_disk_go_on_with_what_they_have_sent(disk, keep_last):
    run_ranks(FILLING_RANK, disk / "local", disk / "shared", str(keep_last))


def test_the_environment_names_the_shared_directory(disk, monkeypatch):
    monkeypatch.setenv("EBBTIDE_SHARED", str(disk / "shared"))
    with ebbtide.open(disk / "local", **SMALL) as store:
        store.checkpoint(1, field(1))
        store.wait("shared", timeout=60)
    assert (disk / "shared" / "store").exists()


def damage(directory, version: int) -> None:
    listed = json.loads(run("ls", directory, "--json")[1])["checkpoints"]
    one = next(one for one in listed if one["version"] == version)
    with open(directory / one["file"], "r+b") as file:
        file.seek(one["offset"] + one["record_bytes"] - 4096)  # the end of its payload
        file.write(b"\x5a" * 4096)


def test_what_is_damaged_locally_is_exported_from_the_shared_directory(disk):
    local, shared, out = disk / "local", disk / "shared", disk / "out"
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        for version in (1, 2):
            store.checkpoint(version, field(version)).wait("shared", timeout=60)
    damage(local, 1)
    code, said = run("export", local, "--alone", "--to", disk / "alone", "--json")
    assert code != 0 and [damage["version"] for damage in json.loads(said)["damaged"]] == [1]
    code, said = run("export", local, "--to", out, "--json")
    assert code == 0, said
    written = {one["version"]: one for one in json.loads(said)["written"]}
    for version in (1, 2):
        files = [path for path in pathlib.Path(written[version]["path"]).rglob("*") if path.is_file()]
        assert any(path.read_bytes() == field(version).tobytes() for path in files)


def test_verify_says_of_what_is_damaged_in_one_directory_that_the_other_has_it_whole(disk):
    local, shared = disk / "local", disk / "shared"
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        for version in (1, 2, 3):
            store.checkpoint(version, field(version)).wait("shared", timeout=60)
    damage(local, 1)
    damage(shared, 2)
    damage(local, 3)
    damage(shared, 3)
    code, said = run("verify", local, "--json")
    assert code == 1
    found = json.loads(said)
    assert found["checkpoints"] == 2 and not found["intact"]
    where = {(one["version"], pathlib.Path(one["file"]).parent): one.get("whole_in") for one in found["damaged"]}
    assert set(where) == {(1, local), (2, shared), (3, local), (3, shared)}
    assert pathlib.Path(where[1, local]).parent == shared and pathlib.Path(where[2, shared]).parent == local
    assert where[3, local] is None and where[3, shared] is None
    code, said = run("verify", local)
    assert code == 1 and f"its copy in {where[1, local]} is whole" in said
    code, said = run("verify", local, "--alone")
    assert code == 1 and "whole" not in said


def test_a_damaged_piece_of_a_snapshot_is_exported_from_the_other_directory(disk):
    local, shared = disk / "local", disk / "shared"
    array = np.random.default_rng(0).integers(0, 255, 1 << 18, dtype=np.uint8)
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        store.protect(array)
        store.snapshot(1).wait("shared", timeout=60)
    piece = next(
        one
        for one in json.loads(run("ls", local, "--alone", "--json")[1])["checkpoints"]
        if "/.ebbtide" in one["history"]
    )
    with open(local / piece["file"], "r+b") as file:
        file.seek(piece["offset"] + 8192)
        file.write(b"\x5a" * 4096)
    code, said = run("export", local, "--alone", "--to", disk / "alone", "--json")
    assert code == 1 and [damage["version"] for damage in json.loads(said)["damaged"]] == [1]
    for first, second in ((local, shared), (shared, local)):  # whichever is looked at first
        out = disk / f"out-{first.name}"
        code, said = run("export", first, "--shared", second, "--to", out, "--json")
        assert code == 0, said
        (written,) = json.loads(said)["written"]
        files = [path for path in pathlib.Path(written["path"]).rglob("*") if path.is_file()]
        assert any(path.read_bytes() == array.tobytes() for path in files)
    code, said = run("verify", local, "--json")
    assert code == 1
    (one,) = json.loads(said)["damaged"]
    assert one["history"] == piece["history"] and pathlib.Path(one["whole_in"]).parent == shared


def test_nothing_is_exported_into_a_store(disk):
    local, shared, other = disk / "local", disk / "shared", disk / "other"
    with (
        ebbtide.open(local, shared=shared, **SMALL) as store,
        ebbtide.open(other, durability="storage", **SMALL) as more,
    ):
        store.checkpoint(1, field(1))
        more.checkpoint(1, field(1))
    for inside in (local, shared, other):
        before = sorted(disk.rglob("*"))
        for to in (inside, inside / "out"):
            code, said = run("export", local, "--to", to)
            assert code == 2 and str(inside) in said and "is inside the store" in said
        assert sorted(disk.rglob("*")) == before


def test_gc_counts_the_steps_of_dcp_that_are_intact_in_either_directory(disk):
    local, shared = disk / "local", disk / "shared"
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        for step in (1, 2, 3):
            store.history(f"dcp/{step}").checkpoint(step, field(step)).wait("shared", timeout=60)
    damage(local, 3)
    code, said = run("gc", local, "--shared", shared, "--keep-last", 1)
    assert "version 1 of history dcp/1" in said and "version 2 of history dcp/2" in said
    assert "version 3" not in said.replace("damaged: version 3", "")
    with ebbtide.open(local, shared=shared, **SMALL) as store:
        assert np.array_equal(store.history("dcp/3").restore(3), field(3))


def test_the_shared_directory_is_found_where_both_name_each_other(disk):
    local, shared = disk / "local", disk / "shared"
    options = SMALL | {"disk": "2MiB"}
    with ebbtide.open(local, shared=shared, **options) as store:
        for version in range(1, 31):  # more than the local directory has room for
            store.checkpoint(version, field(version)).wait("shared", timeout=60)

    def listed(*arguments) -> list[int]:
        code, said = run("ls", *arguments, "--json")
        assert code == 0, said
        return [one["version"] for one in json.loads(said)["checkpoints"]]

    whole = list(range(1, 31))
    assert listed(local) == listed(local, "--shared", shared) == listed(shared) == whole
    alone = listed(local, "--alone")
    assert alone and alone != whole
    code, said = run("ls", local, "--shared", shared, "--alone")
    assert code == 2 and "--alone" in said
    with ebbtide.open(disk / "elsewhere", shared=shared, **options):
        pass  # from now on the shared directory is that one's
    assert listed(local) == alone
    assert listed(disk / "elsewhere") == whole
    (local / "pair").write_text("nothing that names a store")
    assert listed(local) == alone


def test_commands_find_the_shared_directory_from_any_working_directory(disk, monkeypatch):
    (disk / "here").mkdir()
    monkeypatch.chdir(disk / "here")
    options = SMALL | {"disk": "2MiB"}
    with ebbtide.open("local", shared="../shared", **options) as store:
        for version in range(1, 31):  # more than the local directory has room for
            store.checkpoint(version, field(version)).wait("shared", timeout=60)
    local, shared = disk / "here" / "local", disk / "shared"
    assert (local / "pair").read_text().splitlines()[1] == str(shared)
    assert (shared / "pair").read_text().splitlines()[1] == str(local)

    def listed(directory) -> list[int]:
        code, said = run("ls", directory, "--json", cwd="/")
        assert code == 0, said
        return [one["version"] for one in json.loads(said)["checkpoints"]]

    assert listed(local) == list(range(1, 31))
    shutil.move(shared, disk / "moved")
    for command in (["ls"], ["verify"], ["export", "--to", disk / "out"]):
        code, said = run(*command, local)
        assert code == 2 and str(shared) in said and "mount it" in said and "--alone" in said
        code, said = run(*command, local, "--alone")
        assert code == 0, said
    shared.mkdir()  # a mount point
    assert run("ls", local)[0] == 2
    with ebbtide.open(local, shared=disk / "moved", **options):
        pass
    assert listed(local) == list(range(1, 31))


def test_each_rank_of_a_directory_is_looked_at_with_its_shared_directory(disk):
    options = SMALL | {"disk": "2MiB"}
    for rank in range(2):
        (disk / "local").mkdir(exist_ok=True)
        (disk / "shared").mkdir(exist_ok=True)
        with ebbtide.open(disk / "local" / f"rank-{rank}", shared=disk / "shared" / f"rank-{rank}", **options) as store:
            for version in range(1, 31):
                store.checkpoint(version, field(version)).wait("shared", timeout=60)
    code, said = run("ls", disk / "local", "--json")
    assert code == 0, said
    for store in json.loads(said)["stores"]:
        assert [one["version"] for one in store["checkpoints"]] == list(range(1, 31))
    shutil.rmtree(disk / "shared" / "rank-1")
    code, said = run("ls", disk / "local")
    assert code == 2 and str(disk / "shared" / "rank-1") in said


def test_a_wait_ends_where_newer_versions_make_up_for_the_rest(disk):
    """Retention of the shared directory takes versions that the wait began to wait for."""
    with ebbtide.open(disk / "local", shared=disk / "shared", keep_last=6, keep_last_shared=2, **SMALL) as store:
        for version in range(1, 501):
            store.checkpoint(version, field(version % 9), timeout=60)
            if version % 3 == 0:
                store.wait("shared", timeout=60)
        assert np.array_equal(store.restore(500), field(500 % 9))
