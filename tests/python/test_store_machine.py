"""Programs drawn by Hypothesis over a real store, its bytes compared with a plain dict of what was written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import ebbtide

KIB = 1024
VERSIONS = st.integers(0, 7)
SIZES = st.integers(0, 40 * KIB)
BASE = os.environ.get("EBBTIDE_DIR") or Path(__file__).resolve().parents[2]  # a tmpfs is refused


class StoreMachine(RuleBasedStateMachine):
    """Caches of 64 and 128 KiB under up to 640 KiB of checkpoints: most of them travel to the file and back."""

    @initialize(
        device=st.sampled_from([0, 64]),
        host=st.sampled_from([0, 128]),
        eviction=st.sampled_from(["score", "lru", "fifo"]),
        prefetch=st.sampled_from(["auto", "manual"]),
        io=st.sampled_from(["auto", "threads"]),
    )
    def begin(self, device: int, host: int, eviction: Any, prefetch: Any, io: Any) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix=".test-", dir=BASE)
        self.store = ebbtide.open(
            self.directory.name,
            device_cache=device * KIB,
            host_cache=host * KIB,
            disk=8 << 20,
            eviction=eviction,
            prefetch=prefetch,
            tuning={"io": io},
        )
        self.device = device * KIB
        self.views = [self.store, self.store.history("other")]
        self.kept: list[dict[int, np.ndarray]] = [{}, {}]
        self.gone: list[set[int]] = [set(), set()]
        self.hints: list[list[int]] = [[], []]
        self.random = np.random.default_rng(1)

    def bytes_of(self, size: int) -> np.ndarray:
        return self.random.integers(0, 256, size, "u1")

    def refused_as(self, which: int, version: int, call: Any) -> bool:
        """Whether the version is not there; then `call` must say how."""
        if version in self.kept[which]:
            return False
        kind = ebbtide.Consumed if version in self.gone[which] else ebbtide.UnknownVersion
        with pytest.raises(kind):
            call()
        return True

    def read(self, which: int, version: int, keep: bool) -> None:
        """What a successful restore does to the model."""
        if version in self.hints[which]:
            self.hints[which].remove(version)
        if not keep and version not in self.hints[which]:
            del self.kept[which][version]
            self.gone[which].add(version)

    def wrote(self, which: int, version: int, value: np.ndarray) -> None:
        self.kept[which][version] = value
        self.gone[which].discard(version)

    @rule(which=st.integers(0, 1), version=VERSIONS, size=SIZES)
    def checkpoint(self, which: int, version: int, size: int) -> None:
        value = self.bytes_of(size)
        given = value.copy()
        if version in self.kept[which]:
            with pytest.raises(ebbtide.VersionExists):
                self.views[which].checkpoint(version, given)
            return
        self.views[which].checkpoint(version, {"a": given[: size // 2], "b": given[size // 2 :]})
        given[:] = 0  # it may be overwritten now
        self.wrote(which, version, value)

    @rule(which=st.integers(0, 1), version=VERSIONS, keep=st.booleans(), into=st.booleans(), later=st.booleans())
    def restore(self, which: int, version: int, keep: bool, into: bool, later: bool) -> None:
        view = self.views[which]
        if self.refused_as(which, version, lambda: view.restore(version)):
            return
        value = self.kept[which][version]
        half = value.size // 2
        out = {"a": np.zeros(half, "u1"), "b": np.zeros(value.size - half, "u1")} if into else None
        if later:
            back = view.restore_async(version, out=out, keep=keep).result(timeout=60)
        else:
            back = view.restore(version, out=out, keep=keep, timeout=60)
        assert out is None or back is out
        assert np.array_equal(np.concatenate([back["a"], back["b"]]), value)
        self.read(which, version, keep)

    @rule(which=st.integers(0, 1), version=VERSIONS)
    def restore_wrongly(self, which: int, version: int) -> None:
        if version in self.kept[which]:
            with pytest.raises(ebbtide.SizeMismatch):
                self.views[which].restore(version, out=np.zeros(41 * KIB, "u1"))

    @rule(which=st.integers(0, 1), version=VERSIONS, keep=st.booleans())
    def borrow(self, which: int, version: int, keep: bool) -> None:
        view = self.views[which]
        if self.refused_as(which, version, lambda: view.borrow(version)):
            return
        value = self.kept[which][version]
        try:
            loan = view.borrow(version, keep=keep)
        except (ebbtide.Unsupported, ebbtide.NoSpace, ebbtide.TooLarge):
            assert self.device == 0 or value.size == 0, "one loan at a time has room"
            return
        with loan as arrays:
            assert np.array_equal(np.concatenate([arrays["a"], arrays["b"]]), value)
        del arrays
        self.read(which, version, keep)

    @precondition(lambda self: self.device)
    @rule(which=st.integers(0, 1), version=VERSIONS, size=st.integers(1, 32 * KIB), commit=st.booleans())
    def reserve(self, which: int, version: int, size: int, commit: bool) -> None:
        view = self.views[which]
        if version in self.kept[which]:
            with pytest.raises(ebbtide.VersionExists):
                view.reserve(version, size, "u1")
            return
        value = self.bytes_of(size)
        reservation = view.reserve(version, size, "u1", timeout=60)
        reservation.array[:] = value
        if not commit:
            reservation.abandon()
            self.gone[which].discard(version)
            return
        reservation.commit()
        assert np.array_equal(view.restore(version, keep=True, timeout=60), value)
        if version in self.hints[which]:
            self.hints[which].remove(version)
        view.drop(version)
        self.forget(which, version)

    def forget(self, which: int, version: int) -> None:
        self.kept[which].pop(version, None)
        self.gone[which].discard(version)
        self.hints[which] = [v for v in self.hints[which] if v != version]

    @rule(which=st.integers(0, 1), version=VERSIONS)
    def drop(self, which: int, version: int) -> None:
        try:
            self.views[which].drop(version)
        except ebbtide.UnknownVersion:
            assert version not in self.kept[which]
        self.forget(which, version)

    @rule(which=st.integers(0, 1), order=st.lists(VERSIONS, max_size=8), replace=st.booleans())
    def hint(self, which: int, order: list[int], replace: bool) -> None:
        self.views[which].hint(order, replace=replace)
        self.hints[which] = ([] if replace else self.hints[which]) + order

    @rule(which=st.integers(0, 1))
    def unhint(self, which: int) -> None:
        self.views[which].unhint()
        self.hints[which] = []

    @rule(which=st.integers(0, 1), level=st.sampled_from(["device", "host", "local"]))
    def wait(self, which: int, level: str) -> None:
        names = [tier["name"] for tier in self.store.stats()["tiers"]]
        if level in names:
            self.views[which].wait(level, timeout=60)
        self.store.start_prefetch()

    @rule(which=st.integers(0, 1))
    def list_versions(self, which: int) -> None:
        assert self.views[which].versions() == sorted(self.kept[which])

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            for which, view in enumerate(self.views):
                for version, value in self.kept[which].items():
                    back = view.restore(version, keep=True, timeout=60)
                    assert np.array_equal(np.concatenate([back["a"], back["b"]]), value)
        finally:
            self.store.close()
            self.directory.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
