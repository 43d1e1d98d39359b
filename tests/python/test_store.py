"""The Python store: calls, refusals, options, the ends of blocks."""

from __future__ import annotations

import gc
import inspect
import logging
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import ebbtide
from ebbtide import _core

KIB = 1024


def block(version: int, size: int = 64 * KIB) -> np.ndarray:
    return np.full(size, version % 251, "u1")


def test_more_than_the_caches_comes_back_in_reverse(store: ebbtide.Store) -> None:
    with store.history("forward", order="reverse") as history:
        for version in range(100):  # 6.25 MiB through 3 MiB of memory
            history.checkpoint(version, block(version))
        out = np.empty(64 * KIB, "u1")
        for version in reversed(range(100)):
            history.restore(version, out=out)
            assert (out == version % 251).all()
    stats = store.stats()
    assert stats["restores"] == 100
    assert len(stats["found_on"]) == 100
    assert [tier["name"] for tier in stats["tiers"]] == ["device", "host", "local"]
    written = {link["name"]: link["bytes"] for link in stats["links"]}
    assert written["host>local"] > 0
    assert "device 1 MiB" in stats["settings"]


def test_refusals_by_name(store: ebbtide.Store) -> None:
    store.checkpoint(1, block(1))
    with pytest.raises(ebbtide.VersionExists) as caught:
        store.checkpoint(1, block(1))
    assert caught.value.reason == "version_exists"
    store.restore(1)
    with pytest.raises(ebbtide.Consumed):
        store.restore(1)
    with pytest.raises(KeyError, match="version 2 was never written"):
        store.restore(2)
    with pytest.raises(ebbtide.TooLarge):
        store.checkpoint(3, np.zeros(64 << 20, "u1"))
    for wrong in ("1", 1.5, None, 2**63, -(2**63) - 1):
        with pytest.raises(ebbtide.InvalidArgument, match="an int of 64 bits"):
            store.checkpoint(wrong, block(1))  # type: ignore[arg-type]
    for timeout in (-1.0, float("nan")):
        with pytest.raises(ebbtide.InvalidArgument, match="timeout="):
            store.checkpoint(5, block(5), timeout=timeout)
    assert store.versions() == []


def test_versions_may_be_any_integer(store: ebbtide.Store) -> None:
    for version in (np.int32(3), -(2**63), 2**63 - 1, True):
        store.checkpoint(version, block(0))
    assert store.versions() == [-(2**63), 1, 3, 2**63 - 1]


def test_keep_and_hints_decide_what_is_consumed(store: ebbtide.Store) -> None:
    store.checkpoint(1, block(1))
    store.restore(1, keep=True)
    store.hint([1, 1])
    store.restore(1)
    assert store.versions() == [1]
    store.restore(1)
    assert store.versions() == []
    store.checkpoint(2, block(2))
    store.hint_front(2)
    store.unhint([2])
    store.hint(range(2, 4), replace=True)
    store.unhint()
    store.restore(2)
    with pytest.raises(ebbtide.Consumed):
        store.restore(2)
    for wrong in (3, [1.5], ["a"]):
        with pytest.raises(ebbtide.InvalidArgument):
            store.hint(wrong)  # type: ignore[arg-type]


def test_an_error_inside_the_iterable_of_a_hint_is_the_callers(store: ebbtide.Store) -> None:
    def order():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.hint(order())


def test_drop_and_wait(store: ebbtide.Store) -> None:
    future = store.checkpoint(1, block(1))
    future.wait("local")
    assert future.done() and future.done("local") and future.error is None
    assert future.result() is None
    store.wait("local", version=1)
    store.wait("local")
    with pytest.raises(ebbtide.Error, match="moon"):
        store.wait("moon")
    store.drop(1)
    assert store.versions() == []
    store.checkpoint(1, block(2))
    assert (store.restore(1) == 2).all()


def test_histories_are_apart_and_end_with_their_block(store: ebbtide.Store) -> None:
    store.checkpoint(1, block(1))
    with store.history("a") as a:
        a.checkpoint(1, block(2))
        assert a.name == "a" and store.name == ""
        assert (store.restore(1) == 1).all()
    assert store.history("a").versions() == []
    with pytest.raises(ebbtide.InvalidArgument, match="order='sideways'"):
        store.history("b", order="sideways")


def test_restore_async_holds_its_arrays_until_it_ends(store: ebbtide.Store) -> None:
    for version in range(60):
        store.checkpoint(version, block(version))
    futures = [store.restore_async(version) for version in range(60)]
    for version, future in enumerate(futures):
        assert (future.result(timeout=30) == version).all()
        assert future.result() is future.result()
    for version in range(60, 80):
        store.checkpoint(version, block(version))
    out = np.zeros(64 * KIB, "u1")
    gone = weakref.ref(out)
    future = store.restore_async(61, out=out)
    del out
    assert gone() is not None
    assert future.result() is gone()
    for version in range(62, 80):
        store.restore_async(version)  # no call waits for these


def test_a_future_that_fails_says_so(store: ebbtide.Store) -> None:
    store.checkpoint(1, block(1))
    with pytest.raises(ebbtide.UnknownVersion):
        store.restore_async(2)
    futures = []
    for _ in range(2):
        try:
            futures.append(store.restore_async(1))
        except ebbtide.Consumed:  # the first ended already
            break
    ends = []
    for future in futures:
        try:
            assert (future.result() == 1).all()
        except ebbtide.Error as error:
            assert type(future.error) is type(error)
        ends.append(future.error)
    assert ends[0] is None  # readers that overlap may all succeed
    assert all(end is None or isinstance(end, ebbtide.Consumed) for end in ends)
    assert store.versions() == []


def test_reserve_computes_into_the_cache(store: ebbtide.Store) -> None:
    with store.reserve(1, (4, 8), "f4") as a:
        assert a.shape == (4, 8) and a.dtype == np.float32
        a[...] = 7
    with pytest.raises(ValueError, match="read-only"):
        a[0, 0] = 1
    assert (store.restore(1) == 7).all()
    with pytest.raises(ZeroDivisionError), store.reserve(2, 8) as a:
        raise ZeroDivisionError
    assert store.versions() == []
    reservation = store.reserve(3, (0, 2), "i2")
    assert reservation.array.shape == (0, 2)
    reservation.commit()
    with pytest.raises(ebbtide.Closed):
        _ = reservation.array
    with pytest.raises(ebbtide.Closed):
        reservation.commit()
    reservation = store.reserve(4, [3])
    reservation.abandon()
    reservation.abandon()
    assert store.versions() == [3]
    for shape in ((-1,), "ab", (2**40, 2**40)):
        with pytest.raises(ebbtide.Error):
            store.reserve(5, shape)  # type: ignore[arg-type]
    with pytest.raises(ebbtide.InvalidArgument):
        store.reserve(6, 3, object)


def test_borrow_is_given_back_with_its_last_view(store: ebbtide.Store) -> None:
    store.checkpoint(1, {"a": np.arange(4.0), "b": np.arange(3, dtype="i2")})
    with store.borrow(1) as arrays:
        assert (arrays["a"] == np.arange(4)).all() and (arrays["b"] == np.arange(3)).all()
        with pytest.raises(ValueError, match="read-only"):
            arrays["a"][0] = 1
        part = arrays["a"][1:]
    del arrays
    assert store.versions() == [1]  # a view still looks at it
    assert (part == np.arange(1, 4)).all()
    del part
    gc.collect()
    assert store.versions() == []

    store.checkpoint(2, block(2))
    with pytest.raises(ZeroDivisionError), store.borrow(2):
        raise ZeroDivisionError
    loan = store.borrow(2, keep=True)
    assert (loan.arrays == 2).all()
    loan.release()
    loan.release()
    with pytest.raises(ebbtide.Closed):
        _ = loan.arrays
    assert store.versions() == [2]
    assert (store.borrow(2, keep=True).arrays == 2).all()
    gc.collect()
    assert store.versions() == [2]  # not consumed, though it was never released


def test_views_outlive_the_store(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk=0) as store:
        store.checkpoint(1, block(9))
        loan = store.borrow(1)
        view = loan.arrays
        reservation = store.reserve(2, 10)
        other = reservation.array
        other[:] = 3
    assert (view == 9).all() and (other == 3).all()
    with pytest.raises(ebbtide.Closed):
        reservation.commit()
    del loan, view, reservation, other


def test_a_closed_store_says_so(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        history = store.history("x")
        future = store.checkpoint(1, block(1))
    store.close()
    for call in (
        lambda: store.checkpoint(2, block(2)),
        lambda: store.restore(1),
        lambda: store.hint([1]),
        lambda: history.checkpoint(1, block(1)),
        lambda: store.reserve(3, 4),
        lambda: store.borrow(1),
    ):
        with pytest.raises(ebbtide.Closed):
            call()
    assert future.done()
    with history:  # leaving a block of a closed store is no error
        pass


def test_leaving_by_an_exception_closes_at_once_and_hides_nothing(disk: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="8MiB") as store,
    ):
        for version in range(40):
            store.checkpoint(version, block(version))
        raise ZeroDivisionError
    with pytest.raises(ebbtide.Closed):
        store.restore(1)


def test_several_threads_use_one_store(store: ebbtide.Store) -> None:
    wrong: list[object] = []

    def work(name: str) -> None:
        try:
            with store.history(name, order="reverse") as history:
                for version in range(25):
                    history.checkpoint(version, block(version + len(name), 32 * KIB), timeout=None)
                for version in reversed(range(25)):
                    if not (history.restore(version) == version + len(name)).all():
                        wrong.append((name, version))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=("x" * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_full_store_names_its_tiers_and_waits_for_another_thread(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        for version in range(4):
            store.checkpoint(version, block(version, 256 * KIB))
        with pytest.raises(ebbtide.NoSpace, match="device"):
            store.checkpoint(9, block(9, 256 * KIB))
        assert store.versions() == [0, 1, 2, 3]
        freed = threading.Thread(target=lambda: store.restore(2))
        freed.start()
        store.checkpoint(9, block(9, 256 * KIB), timeout=60)
        freed.join()
        assert (store.restore(9) == 9).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device_cash": 1}, "device_cash: did you mean device_cache"),
        ({"evict": "lru"}, "did you mean eviction"),
        ({"device_cache": "3 parsecs"}, 'device_cache="3 parsecs".*4GiB'),
        ({"host_cache": -1}, 'host_cache="-1"'),
        ({"host_cache": 1.5}, "host_cache=1.5"),
        ({"disk": True}, "disk=True"),
        ({"tuning": {"host_arena": "mapped"}}, 'tuning.host_arena="mapped".*"incremental", "direct"'),
        ({"tuning": {"device_arena": "incremental"}}, 'tuning.device_arena="incremental".*"mapped", "direct"'),
        ({"tuning": {"host_arena": True}}, 'tuning.host_arena=True.*"incremental", "direct"'),
        ({"tuning": {"device_arena": 1}}, 'tuning.device_arena=1 .*"mapped", "direct"'),
        ({"tuning": {"arena": "direct"}}, 'unknown option tuning.arena="direct": there are device_arena, host_arena'),
        ({"tuning": {"arena": 1}}, 'unknown option tuning.arena="1": there are device_arena'),
        ({"tuning": "io=threads"}, "tuning='io=threads' is not valid: expected a dict"),
        ({"arena": "direct"}, "unknown option arena: did you mean.* prefetch, eviction, .*tuning"),
        ({"io": "threads"}, "unknown option io"),
        ({"eviction": "random"}, "score"),
        ({"prefetch": "never"}, "manual"),
        ({"tuning": {"io": "paper"}}, "uring"),
        ({"tuning": {"direct_io": 3}}, 'tuning.direct_io="3" is not valid'),
        ({"durability": "forever"}, "ephemeral"),
        ({"close_timeout": "soon"}, "close_timeout"),
    ],
)
def test_a_wrong_option_names_key_value_and_what_would_be_right(disk: Path, options: dict, words: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=words):
        ebbtide.open(disk, **options)


def test_open_has_each_option_of_the_table_and_says_what_it_is() -> None:
    table = [name for name, _, _ in _core.option_table()]
    assert sorted(inspect.signature(ebbtide.open).parameters) == sorted(
        [name for name in table if "." not in name] + ["unknown"]
    )
    said = str(ebbtide.open.__doc__).partition("Raises")[0]
    assert [name for name in table if not re.search(rf"\b{name.removeprefix('tuning.')}\b", said)] == []


def test_the_environment_fills_what_is_left_out(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBTIDE_DIR", str(disk))
    monkeypatch.setenv("EBBTIDE_DEVICE_CACHE", "3MiB")
    monkeypatch.setenv("EBBTIDE_HOST_CACHE", "5MiB")
    with ebbtide.open(host_cache=1 << 20, disk="8MiB") as store:
        assert [tier["capacity"] >> 20 for tier in store.stats()["tiers"]] == [3, 1, 8]
    monkeypatch.setenv("EBBTIDE_HOST_CASH", "5MiB")
    with pytest.raises(ebbtide.InvalidArgument, match="EBBTIDE_HOST_CASH"):
        ebbtide.open(disk="8MiB")


def test_what_was_chosen_is_logged_once(
    disk: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ebbtide")
    with ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="8MiB"):
        pass
    lines = [record.getMessage() for record in caplog.records if record.name == "ebbtide"]
    assert len([line for line in lines if "device 1 MiB" in line]) == 1
    assert capsys.readouterr().out == ""


def test_one_region_or_many_cost_no_reference(store: ebbtide.Store) -> None:
    given = block(1)
    gone = weakref.ref(given)
    future = store.checkpoint(1, {"a": given})
    del given
    assert gone() is None
    del future
    back = store.restore(1)
    gone = weakref.ref(back["a"])
    del back
    assert gone() is None
