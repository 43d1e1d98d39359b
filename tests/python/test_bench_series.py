"""Several shots over one open store."""

import itertools

import ebbtide
import pytest
from ebbtide.bench import series, shots
from ebbtide.bench.stats import since

COUNT, SIZE = 10, 1 << 16
CACHES = {"device_cache": "256KiB", "host_cache": "256KiB"}
pytestmark = pytest.mark.usefixtures("measured")
EVERY = list(itertools.product(("reverse", "sequential", "irregular"), ("all", "one", "none"), (False, True)))


@pytest.fixture
def opened(monkeypatch):
    """The options of each store that is opened."""
    options, really = [], ebbtide.open

    def count(**given):
        options.append(given)
        return really(**given)

    monkeypatch.setattr(ebbtide, "open", count)
    return options


def shot(**changed):
    return {"sizes": [SIZE] * COUNT, "interval": 0.001, "verify": True} | changed


def test_every_order_hints_and_wait_over_one_store(tmp_path, opened, measured):
    plans = [shot(order=order, hints=hints, wait=wait) for order, hints, wait in EVERY]
    documents = shots(plans, CACHES | {"directory": tmp_path})
    assert len(opened) == 1 and len(documents) == len(EVERY)
    assert len(measured) == len(EVERY) + 1
    for (order, hints, wait), document in zip(EVERY, documents, strict=True):
        config = document["config"]
        assert (config["order"], config["hints"], config["wait"]) == (order, hints, wait)
        assert document["verified"] == {"restores": COUNT, "wrong": 0, "wrong_bytes": 0}
        assert len(document["restore"]["found_on"]) == len(document["restore"]["prefetch_distance"]) == COUNT
        assert document["stats"][0]["checkpoints"] == document["stats"][0]["restores"] == COUNT, "its own calls alone"
        assert (document["flush_wait_s"] > 0) == wait
        assert document["bound"]["blocked_s"] > 0 and document["total"]["blocked_s"] > 0
    assert {document["open_s"] for document in documents} == {documents[0]["open_s"]}


def test_sizes_may_vary_and_differ_from_shot_to_shot(tmp_path, opened):
    plans = [shot(sizes=range(1, 8)), shot(sizes=[100_000, 3, 65_536, 77_777], order="irregular")]
    documents = shots(plans, CACHES | {"directory": tmp_path}, remeasure=False)
    assert [document["verified"]["restores"] for document in documents] == [7, 4]
    assert all(document["verified"]["wrong"] == 0 for document in documents)
    assert opened[0]["disk"] >= 100_000 + 3 + 65_536 + 77_777


def test_rates_may_be_taken_only_at_both_ends(tmp_path, measured):
    shots([shot()] * 3, CACHES | {"directory": tmp_path}, remeasure=False)
    assert len(measured) == 2


@pytest.mark.parametrize("remeasure", [True, False])
def test_the_series_ends_once_it_is_enough(tmp_path, measured, remeasure):
    answers = iter([False, False, True])
    documents = shots([shot()] * 9, CACHES | {"directory": tmp_path}, remeasure, enough=lambda: next(answers))
    assert len(documents) == 2 and all(document["verified"]["restores"] == COUNT for document in documents)
    assert len(measured) == (3 if remeasure else 2)


def test_the_store_gets_its_options(tmp_path, opened):
    shots([shot()], CACHES | {"directory": tmp_path, "eviction": "lru", "tuning": {"io": "threads"}, "disk": "8MiB"})
    (options,) = opened
    assert (options["eviction"], options["tuning"], options["disk"]) == ("lru", {"io": "threads"}, 8 << 20)
    with pytest.raises(ebbtide.InvalidArgument, match="colour"):
        shots([shot()], CACHES | {"directory": tmp_path, "colour": "red"})


def test_no_shot_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no shot"):
        shots([], {"directory": tmp_path})


def test_statistics_since_a_moment():
    before = {"restores": 3, "used": 7, "found_on": [0, 1], "links": [{"name": "a", "bytes": 5}], "settings": "x"}
    after = {"restores": 4, "used": 2, "found_on": [0, 1, 2], "links": [{"name": "a", "bytes": 9}], "settings": "x"}
    assert since(before, after) == {
        "restores": 1,
        "used": 2,
        "found_on": [2],
        "links": [{"name": "a", "bytes": 4}],
        "settings": "x",
    }
    full = {"restores": 5, "found_on": [2, 0]}  # those of the newest calls alone
    assert since({"restores": 3, "found_on": [0, 1, 2]}, full) == {"restores": 2, "found_on": [2, 0]}


def test_the_memory_of_the_caches_has_come_before_the_first_shot(tmp_path, monkeypatch):
    seen = []

    def play(store, *given, **more):
        seen.append(store.stats())
        return really(store, *given, **more)

    really = series.play
    monkeypatch.setattr(series, "play", play)
    store = {"device_cache": "48MiB", "host_cache": "80MiB", "disk": "256MiB", "directory": tmp_path}
    documents = shots([{"sizes": [4 << 20] * 40}] * 2, store, remeasure=False)
    first = seen[0]["tiers"]
    assert [tier["arena"]["touched"] for tier in first[:2]] == [48 << 20, 80 << 20]
    assert len(seen) == len(documents) == 2 and documents[0]["fill_s"] == documents[1]["fill_s"] > 0
    assert documents[0]["stats"][0]["checkpoints"] == 40, "its own calls alone"


def test_caches_of_one_tier_are_filled_too(tmp_path):
    store = {"device_cache": "4MiB", "host_cache": 0, "disk": 0, "directory": tmp_path}
    (document,) = shots([{"sizes": [1 << 20] * 3}], store, remeasure=False)
    assert document["fill_s"] > 0 and document["restore"]["found_on"] == ["device"] * 3
