"""A store with a shared directory: what survives the node, and what is refused by name."""

from __future__ import annotations

import shutil
import subprocess
import sys

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


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"durability": "shared"}, ebbtide.InvalidArgument, "shared with it"),
        ({"shared_every": 10}, ebbtide.InvalidArgument, "shared with it"),
        ({"limit_shared": "200MB/s"}, ebbtide.InvalidArgument, "shared with it"),
        ({"shared": "s", "durability": "ephemeral"}, ebbtide.InvalidArgument, "durability"),
        ({"shared": "s", "readonly": True}, ebbtide.InvalidArgument, "readonly"),
        ({"shared": "s", "node_pool": "64MiB"}, ebbtide.Unsupported, "not supported in a node's pool yet"),
        ({"shared": "s", "keep_last_shared": 3}, ebbtide.InvalidArgument, "keep_last"),
        ({"shared": "s", "limit_shared": "fast"}, ebbtide.InvalidArgument, "200MB/s"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(disk, options, error, words):
    options = {**options, **({"shared": disk / "shared"} if "shared" in options else {})}
    sizes = {key: value for key, value in SMALL.items() if key != "host_cache" or "node_pool" not in options}
    with pytest.raises(error, match=words):
        ebbtide.open(disk / "local", **options, **sizes)


def test_files_and_snapshots_are_refused_by_name(disk):
    with ebbtide.open(disk / "local", shared=disk / "shared", **SMALL) as store:
        with pytest.raises(ebbtide.Unsupported, match="files are not supported with shared="):
            store.create_file("model", 1)
        with pytest.raises(ebbtide.Unsupported, match="snapshots are not supported with shared="):
            store.protect(np.zeros(1 << 16, np.uint8))


def test_the_environment_names_the_shared_directory(disk, monkeypatch):
    monkeypatch.setenv("EBBTIDE_SHARED", str(disk / "shared"))
    with ebbtide.open(disk / "local", **SMALL) as store:
        store.checkpoint(1, field(1))
        store.wait("shared", timeout=60)
    assert (disk / "shared" / "store").exists()
