"""Programs drawn by Hypothesis over a store that is kept, closed and opened again, compared with a dict of what was written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import ebbtide

KIB = 1024
VERSIONS = st.integers(-3, 7)
SIZES = st.integers(0, 40 * KIB)
NAMES = ["", "other"]
NAME = st.sampled_from(NAMES)
BASE = os.environ.get("EBBTIDE_DIR") or Path(__file__).resolve().parents[2]


class KeptMachine(RuleBasedStateMachine):
    """Two histories of up to eleven versions under caches that hold a few of them; reopened with other caches."""

    store: ebbtide.Store

    @initialize(level=st.sampled_from(["process", "storage"]), io=st.sampled_from(["auto", "threads"]))
    def begin(self, level: Any, io: Any) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix=".test-", dir=BASE)
        self.level, self.io = level, io
        self.kept: dict[str, dict[int, np.ndarray]] = {name: {} for name in NAMES}
        self.random = np.random.default_rng(1)
        self.open(64, 128)

    def open(self, device: int, host: int, **more: Any) -> None:
        self.store = ebbtide.open(
            Path(self.directory.name) / "kept",
            durability=self.level,
            device_cache=device * KIB,
            host_cache=host * KIB,
            disk=8 << 20,
            tuning={"io": self.io},
            **more,
        )

    def is_right(self, store: ebbtide.Store, name: str, version: int, out: Any = None) -> bool:
        back = store.history(name).restore(version, out=out, timeout=60)
        return np.array_equal(np.concatenate([back["a"], back["b"]]), self.kept[name][version])

    @rule(device=st.sampled_from([0, 64]), host=st.sampled_from([0, 128]))
    def restart(self, device: int, host: int) -> None:
        self.store.close()
        self.open(device, host)

    @rule(name=NAME, version=VERSIONS, size=SIZES)
    def checkpoint(self, name: str, version: int, size: int) -> None:
        value = self.random.integers(0, 256, size, "u1")
        given = value.copy()
        history = self.store.history(name)
        if version in self.kept[name]:
            with pytest.raises(ebbtide.VersionExists):
                history.checkpoint(version, given)
            return
        future = history.checkpoint(version, {"a": given[: size // 2], "b": given[size // 2 :]}, timeout=None)
        given[:] = 0
        self.kept[name][version] = value
        if size % 3 == 0:
            future.wait(self.level, timeout=60)
            assert future.done(self.level)

    @rule(name=NAME, version=VERSIONS, into=st.booleans(), keep=st.booleans())
    def restore(self, name: str, version: int, into: bool, keep: bool) -> None:
        history = self.store.history(name)
        if version not in self.kept[name]:
            with pytest.raises(ebbtide.UnknownVersion):
                history.restore(version, keep=keep)
            return
        size = self.kept[name][version].size
        out = {"a": np.zeros(size // 2, "u1"), "b": np.zeros(size - size // 2, "u1")} if into else None
        assert self.is_right(self.store, name, version, out)

    @rule(name=NAME, order=st.lists(VERSIONS, max_size=6))
    def hint(self, name: str, order: list[int]) -> None:
        self.store.history(name).hint(order, replace=True)

    @rule(name=NAME, version=VERSIONS)
    def drop(self, name: str, version: int) -> None:
        try:
            self.store.history(name).drop(version)
        except ebbtide.UnknownVersion:
            assert version not in self.kept[name]
        self.kept[name].pop(version, None)

    @rule(name=NAME)
    def drop_all(self, name: str) -> None:
        self.store.history(name).drop()
        self.kept[name].clear()

    @rule(name=NAME)
    def wait(self, name: str) -> None:
        self.store.history(name).wait(self.level, timeout=60)

    @precondition(lambda self: any(self.kept.values()))
    @rule()
    def look_from_beside(self) -> None:
        for name in NAMES:
            self.store.history(name).wait(self.level, timeout=60)
        with ebbtide.open(
            Path(self.directory.name) / "kept", readonly=True, device_cache=0, host_cache="128KiB", disk="8MiB"
        ) as reader:
            for name in NAMES:
                assert set(self.kept[name]) <= set(reader.versions(name))  # a drop may be in progress
                assert all(self.is_right(reader, name, version) for version in self.kept[name])

    @rule(keep_last=st.integers(1, 3), keep_every=st.sampled_from([0, 2]))
    def restart_with_retention(self, keep_last: int, keep_every: int) -> None:
        """One more version in each history, after which only the newest and the multiples may stay."""
        self.store.close()
        self.open(64, 128, keep_last=keep_last, keep_every=keep_every)
        for name in NAMES:
            new = max(self.kept[name], default=0) + 1
            value = self.random.integers(0, 256, 1000, "u1")
            arrays = {"a": value[:500], "b": value[500:]}
            self.store.history(name).checkpoint(new, arrays, timeout=None).wait(self.level, timeout=60)
            self.kept[name][new] = value
        self.store.close()
        self.open(64, 128)
        for name in NAMES:
            stays = set(sorted(self.kept[name])[-keep_last:])
            stays |= {version for version in self.kept[name] if keep_every and version % keep_every == 0}
            self.kept[name] = {version: self.kept[name][version] for version in sorted(stays)}

    @invariant()
    def what_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        for name in NAMES:
            assert self.store.versions(name) == sorted(self.kept[name])
            assert self.store.latest(name) == max(self.kept[name], default=None)
            assert self.store.latest(name, at_most=2) == max((v for v in self.kept[name] if v <= 2), default=None)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.store.close()
            self.open(0, 128)
            for name in NAMES:
                assert self.store.versions(name) == sorted(self.kept[name])
                assert all(self.is_right(self.store, name, version) for version in self.kept[name])
        finally:
            self.store.close()
            self.directory.cleanup()


TestKeptStore = KeptMachine.TestCase
TestKeptStore.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
