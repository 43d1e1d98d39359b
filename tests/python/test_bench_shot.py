"""`ebbtide bench shot`, end to end at tiny sizes."""

import dataclasses
import json
import math

import ebbtide
import pytest
from bench_stand_in import COUNT, some_rates, tiny_config
from ebbtide import sim
from ebbtide._machine import files
from ebbtide.bench import rank as ranks_rank
from ebbtide.bench import model, rates, shot
from ebbtide.bench.command import app
from ebbtide.bench.rank import Outcome
from ebbtide.bench.ranks import RankFailed, run_all
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("measured")
TINY = ["shot", "--checkpoints", str(COUNT), "--size", "64KiB", "--interval", "1ms"]
CACHES = ["--device-cache", "256KiB", "--host-cache", "256KiB"]
TIERS = {"device", "host", "local", "shared", None}


def bench(tmp_path, *arguments, base=(*TINY, *CACHES), code=0):
    out = tmp_path / "shot.json"
    ran = CliRunner().invoke(app, [*base, "--dir", str(tmp_path), "--json", str(out), *arguments])
    assert ran.exit_code == code, ran.output
    return json.loads(out.read_text())


def check_schema(document, ranks=1, verify=True):
    """Every field that the benchmark promises, with its type and length."""
    calls = ranks * COUNT
    times = [
        document["checkpoint"]["blocked_s"],
        document["restore"]["blocked_s"],
        document["slept"]["forward_s"],
        document["slept"]["backward_s"],
    ]
    for values in times:
        assert len(values) == calls
        assert all(math.isfinite(value) and value > 0 for value in values)
    assert len(document["restore"]["found_on"]) == calls
    assert set(document["restore"]["found_on"]) <= TIERS
    assert len(document["restore"]["prefetch_distance"]) == calls
    assert all(isinstance(n, int) and 0 <= n < COUNT for n in document["restore"]["prefetch_distance"])
    total = sum(document["checkpoint"]["blocked_s"]) + sum(document["restore"]["blocked_s"])
    assert document["total"]["blocked_s"] == pytest.approx(total)
    assert document["total"]["wall_s"] > 0
    for name in ("open_s", "flush_wait_s"):
        assert document[name] >= 0
    assert math.isfinite(document["host_cpu"]["cores"]) and document["host_cpu"]["cores"] >= 0
    for name in ("bound", "predicted"):
        assert document[name]["blocked_s"] >= 0
    assert document["bound"]["blocked_s"] > 0
    assert document["verified"]["restores"] == (calls if verify else 0)
    assert document["verified"]["wrong"] == 0
    machine = document["machine"]
    for when in ("before", "after"):
        assert machine[when]["copy_in"] > 0 and machine[when]["write"]["bytes_per_s"] > 0
    assert isinstance(machine["repeated"], bool) and "preallocated" in machine["how"]["file"]
    assert document["config"]["checkpoints"] == COUNT and document["config"]["ranks"] == ranks


@pytest.mark.parametrize("order", ["reverse", "sequential", "irregular"])
@pytest.mark.parametrize("hints", ["all", "one", "none"])
def test_every_order_and_hints_restores_every_byte(tmp_path, order, hints):
    document = bench(tmp_path, "--order", order, "--hints", hints, "--verify")
    check_schema(document)
    assert sorted(document["config"]["restore_order"]) == list(range(COUNT))
    assert document["total"]["wall_s"] >= sum(document["slept"]["forward_s"]) + document["total"]["blocked_s"]


@pytest.mark.parametrize("policy", ["score", "score_paper", "lru", "fifo"])
@pytest.mark.parametrize("wait", ["--wait", "--no-wait"])
def test_every_policy_with_and_without_waiting(tmp_path, policy, wait):
    document = bench(tmp_path, "--policy", policy, wait, "--verify")
    check_schema(document)
    assert (document["flush_wait_s"] > 0) == (wait == "--wait")


def test_intervals_are_slept(tmp_path):
    document = bench(tmp_path, "--interval", "3ms")
    check_schema(document, verify=False)
    assert min(document["slept"]["forward_s"] + document["slept"]["backward_s"]) >= 0.003


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_store_with_a_shared_directory_sends_all_to_both_as_predicted(disk, monkeypatch, ranks):
    """All versions go down to both, each once, in the run and in virtual time; the directories are left as they were."""
    (disk / "shared").mkdir()
    predicted = []
    really_run = sim.run_ranks

    def run_ranks(*arguments):
        predicted.append(really_run(*arguments))
        return predicted[-1]

    monkeypatch.setattr(sim, "run_ranks", run_ranks)
    given = ["--shared", str(disk / "shared"), "--disk", "512KiB", "--ranks", str(ranks), "--wait", "--verify"]
    document = bench(disk, *given)
    check_schema(document, ranks)
    history = COUNT * (64 << 10)
    for route in ("host>local", "host>shared"):
        assert document["total"]["moved_bytes"][route] == ranks * history
        for one in (each for result in predicted for each in result.ranks):
            assert {link["name"]: link["bytes"] for link in one["links"]}[route] == history
    assert document["machine"]["before"]["shared_read"]["bytes_per_s"] > 0
    assert not any((disk / "shared").iterdir())
    assert [one.name for one in disk.iterdir() if one.is_dir()] == ["shared"]


def test_a_shared_directory_is_below_a_local_one(tmp_path):
    refused = CliRunner().invoke(app, [*TINY, "--dir", str(tmp_path), "--shared", str(tmp_path), "--disk", "0"])
    assert refused.exit_code == 2 and "no disk tier above it" in refused.output


@pytest.mark.parametrize("coupling", ["tight", "free"])
def test_two_ranks(tmp_path, coupling, measured):
    document = bench(tmp_path, "--ranks", "2", "--coupling", coupling, "--verify")
    check_schema(document, ranks=2)
    assert len(measured) == 2, "the parent measures once before and once after"


def test_tightly_coupled_ranks_meet_before_every_call(tmp_path):
    met = []
    config = tiny_config(tmp_path)
    out = ranks_rank.run(shot.jobs(config)[0], lambda: met.append("begin"), lambda: met.append("meet"))
    assert met == ["begin"] + ["meet"] * 2 * COUNT
    assert len(out.checkpoint_s) == len(out.restore_s) == COUNT


def test_a_trace_gives_the_sizes(tmp_path):
    path = tmp_path / "t.csv"
    made = CliRunner().invoke(app, ["trace", str(path), "--snapshots", "12", "--gpus", "2", "--scale", "0.0005"])
    assert made.exit_code == 0, made.output
    base = ["shot", "--trace", str(path), "--interval", "1ms", "--device-cache", "1MiB", "--host-cache", "1MiB"]
    document = bench(tmp_path, "--ranks", "2", "--order", "irregular", "--verify", base=base)
    check_schema(document, ranks=2)
    assert document["config"]["size"] is None
    assert [len(sizes) for sizes in document["config"]["sizes"]] == [12, 12]


def test_plot_is_a_picture(tmp_path):
    bench(tmp_path, "--plot", str(tmp_path / "shot.png"))
    picture = (tmp_path / "shot.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_one_wrong_byte_is_told_and_ends_with_1(tmp_path, monkeypatch):
    really_open = ebbtide.open

    class Corrupting:
        """The store, but its fifth restore brings one byte wrong."""

        def __init__(self, store):
            self._store, self._restores = store, 0

        def __getattr__(self, name):
            return getattr(self._store, name)

        def restore(self, version, out):
            self._store.restore(version, out=out)
            self._restores += 1
            if self._restores == 5:
                out[1000] ^= 1

    class Opened:
        def __init__(self, **options):
            self._open = really_open(**options)

        def __enter__(self):
            return Corrupting(self._open.__enter__())

        def __exit__(self, *error):
            return self._open.__exit__(*error)

    monkeypatch.setattr(ebbtide, "open", Opened)
    document = bench(tmp_path, "--verify", code=1)
    assert document["verified"]["wrong"] == 1
    assert document["verified"]["wrong_bytes"] == 1


def test_drift_is_told_and_the_run_repeated_once(tmp_path, monkeypatch):
    speeds = iter([5e9, 4e9, 3e9])
    monkeypatch.setattr(rates, "measure", lambda config: some_rates(config, copy_in=next(speeds)))
    said = []
    document = shot.run(tiny_config(tmp_path), say=said.append)
    assert document["machine"]["repeated"] and not document["machine"]["steady"]
    assert document["machine"]["before"]["copy_in"] == 4e9, "the second run has its own rates"
    assert any("copy_in rate changed by -20%" in text for text in said)
    assert any("again" in text and "-25%" in text for text in said)
    with pytest.raises(StopIteration):
        next(speeds)


def test_a_steady_machine_is_not_asked_twice(tmp_path):
    document = shot.run(tiny_config(tmp_path))
    assert document["machine"]["steady"] and not document["machine"]["repeated"]


def test_a_rank_that_fails_ends_the_run_and_says_why(tmp_path):
    good = shot.jobs(tiny_config(tmp_path))[0]
    bad = dataclasses.replace(good, rank=1, store=good.store | {"eviction": "best"})
    with pytest.raises(RankFailed, match="(?s)rank 1.*best"):
        run_all([good, bad], tight=True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--size", "12zb"], "--size"),
        (["--size", "0"], "--size"),
        (["--interval", "soon"], "--interval"),
        (["--order", "backwards"], "--order"),
        (["--hints", "some"], "--hints"),
        (["--policy", "best"], "--policy"),
        (["--coupling", "loose"], "--coupling"),
        (["--ranks", "0"], "--ranks"),
        (["--checkpoints", "0"], "--checkpoints"),
        (["--trace", "missing.csv"], "--trace"),
        (["--dir", "/nowhere/at/all"], "--dir"),
        (["--disk", "4096TiB"], "--disk"),
        (["--disk", "0", "--wait"], "--wait"),
        (["--device", "tpu"], "--device"),
        (["--device", "cuda:"], "--device"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_option_is_refused_by_name(arguments, named):
    ran = CliRunner().invoke(app, ["shot", "--checkpoints", "2", "--size", "4KiB", *arguments])
    assert ran.exit_code == 2, ran.output
    assert named in ran.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--size", "1MiB"], "--size"), (["--ranks", "3"], "--ranks"), (["--checkpoints", "9"], "--checkpoints")],
)
def test_what_contradicts_the_trace_is_refused_by_name(tmp_path, arguments, named):
    (tmp_path / "t.csv").write_text("10,20\n30,40\n")
    ran = CliRunner().invoke(app, ["shot", "--trace", str(tmp_path / "t.csv"), *arguments])
    assert ran.exit_code == 2, ran.output
    assert named in ran.output


def test_every_rank_reads_in_the_same_irregular_order_of_the_seed(tmp_path):
    orders = [tiny_config(tmp_path, order="irregular", seed=seed).restore_order() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(COUNT))


def test_the_bound_is_the_closed_form_for_equal_sizes(tmp_path):
    document = bench(tmp_path, "--interval", "2ms")
    rates, size = document["bound"]["bytes_per_s"], 65536
    copies = COUNT * size * (1 / rates["copy_in"] + 1 / rates["copy_out"])
    beyond = COUNT * size - 2 * (256 << 10)
    stands = [
        max(0.0, beyond / rates[way] - sum(document["slept"][slept]))
        for way, slept in (("write", "forward_s"), ("read", "backward_s"))
    ]
    assert document["bound"]["blocked_s"] == pytest.approx(copies + sum(stands), rel=0.01)


def test_a_disk_that_is_slow_when_it_is_measured_shows_in_the_prediction_and_not_in_the_bound(tmp_path, monkeypatch):
    slow = files.FileRate(1e4, 1, 1 << 20, True)
    monkeypatch.setattr(rates, "measure", lambda config: dataclasses.replace(some_rates(config), write=slow, read=slow))
    document = bench(tmp_path)
    beyond = COUNT * 65536 - 2 * (256 << 10)
    stands = 2 * beyond / 1e4  # at that rate: minutes
    assert min(document["bound"]["bytes_per_s"].values()) > 1e5
    assert document["bound"]["blocked_s"] < stands / 10, "the run itself was faster than that"
    predicted = document["predicted"]
    assert predicted["blocked_s"] < predicted["from_bare_rates_s"], "the links of the run itself were not slow"
    assert 0.9 * stands <= predicted["from_bare_rates_s"] <= 3 * stands


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_bound_has_the_faster_of_the_bare_machine_and_the_run_itself(tmp_path, ranks):
    config = tiny_config(tmp_path, sizes=((1000,) * 4,) * ranks, order="sequential")
    links = [
        {"name": "host>local", "bytes": 3_000_000, "busy_s": 1.0},
        {"name": "local>host", "bytes": 10, "busy_s": 1.0},
        {"name": "device>host", "bytes": 9, "busy_s": 0.0},
    ]
    calls = {"checkpoint_s": [5.0, 1e-6, 3e-6, 7.0], "restore_s": [5.0, 5.0, 1.0, 1.0]}  # two of the first hit
    bare = {"write": 2e6, "read": 4e6, "copy_in": 1e6, "copy_out": 1e6}
    found = model.at_best(config, [Outcome(rank, **calls, links=[[], links]) for rank in range(ranks)], bare)
    assert found == pytest.approx({"write": 3e6 * ranks, "read": 4e6, "copy_in": 2000 / 4e-6, "copy_out": 1e6})
    assert model.at_best(config, [Outcome(0)] * ranks, bare) == bare


def test_without_a_disk_everything_stays_in_memory(tmp_path):
    base = ["shot", "--checkpoints", str(COUNT), "--size", "16KiB", "--interval", "1ms", "--disk", "0", *CACHES]
    document = bench(tmp_path, "--verify", base=base)
    assert document["machine"]["before"]["write"] is None
    assert "local" not in document["restore"]["found_on"]
    assert document["verified"] == {"restores": COUNT, "wrong": 0, "wrong_bytes": 0}
