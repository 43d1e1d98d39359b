"""The benchmark of opening without a GPU: its plan, its rows, and one small complete run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from child import ended
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches"))
import harness
import init
import init_figures

SMALL = ["--device", "cpu", "--size", "65536", "--checkpoints", "16", "--main-interval", "1", "--intervals", "1",
         "--repeats", "1"]  # fmt: skip


def a_run(part="shots", strategy="incremental", processes=1, interval=20.0, checkpoints=256, **result):
    return {"part": part, "strategy": strategy, "config": "large-host", "interval_ms": interval, "processes": processes,
            "size": 128 << 20, "checkpoints": checkpoints, "device": "cuda",
            "results": [{"open_s": 0.001, "hint_s": 0.0, "checkpoints_s": 0.049, "restores_s": 0.05, "first_s": 0.002}
                        | result] * processes}  # fmt: skip


def found(*runs, **more):
    return {"runs": list(runs), "left_out": {}, "failures": []} | more


def verdicts(*runs):
    rows = init_figures.rows(found(*runs))
    return {row.figure: row.verdict for row in rows if isinstance(row, harness.Row)}


def medians(*runs):
    return {row.figure: row.median for row in init_figures.rows(found(*runs)) if isinstance(row, harness.Row)}


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_ratios_are_of_medians_and_held_to_their_bars():
    direct = [a_run(strategy="cuda_host_alloc", open_s=seconds) for seconds in (1.0, 2.0, 90.0)]
    told = medians(a_run(), *direct)
    assert told["1 process: open + checkpoints, cuda_host_alloc over ours"] == pytest.approx(2.049 / 0.05)
    assert told["1 process: open + checkpoints + restores, cuda_host_alloc over ours"] == pytest.approx(2.099 / 0.1)
    held = verdicts(a_run(), *direct)
    assert held["1 process: open + checkpoints, cuda_host_alloc over ours"] == "holds"
    slow = verdicts(a_run(checkpoints_s=0.12), *direct)
    assert slow["1 process: open + checkpoints, cuda_host_alloc over ours"] == "DOES NOT HOLD"
    assert slow["1 process: large-host, 20 ms, incremental: open + checkpoints"] == "DOES NOT HOLD"


def test_eight_processes_have_bars_of_their_own_and_other_numbers_none():
    ratio = "open + checkpoints, cuda_host_alloc over ours"
    eight = [a_run(processes=8), a_run(strategy="cuda_host_alloc", processes=8, open_s=2.0)]
    assert verdicts(*eight)[f"8 processes: {ratio}"] == "DOES NOT HOLD"
    four = [a_run(processes=4), a_run(strategy="cuda_host_alloc", processes=4, open_s=2.0)]
    assert verdicts(*four)[f"4 processes: {ratio}"] == "-"


def test_blocked_time_is_the_mean_of_the_processes():
    run = a_run(processes=2)
    run["results"] = [run["results"][0] | {"open_s": seconds} for seconds in (0.1, 0.3)]
    assert medians(run)["2 processes: large-host, 20 ms, incremental: open"] == pytest.approx(200)


def test_a_smaller_run_is_told_and_not_judged_but_for_wrong_bytes():
    held = verdicts(a_run(checkpoints=64, first_s=9.0, wrong=1))
    assert {said for figure, said in held.items() if "wrong" not in figure} == {"-"}
    assert held["cuda, 64 x 128 MiB, 1 process: restores with wrong bytes, of 1 runs"] == "DOES NOT HOLD"


def test_one_long_copy_is_enough_for_the_longest_not_to_hold():
    more = {"part": "beside", "interval": 0.0, "copies_beside": 500.0, "copy_beside_median_s": 1e-4,
            "copy_beside_p99_s": 1e-3}  # fmt: skip
    runs = [a_run(**more, copy_beside_longest_s=seconds) for seconds in (0.001, 0.001, 0.004)]
    longest = "1 process: incremental, 0 ms, the program's own copies while memory is pinned: longest"
    assert verdicts(*runs)[longest] == "DOES NOT HOLD"
    assert verdicts(*runs[:2])[longest] == "holds"


def test_beside_the_longest_copy_stand_those_alone_the_gpus_clock_and_the_registrations():
    more = {"part": "beside", "interval": 0.0, "copies_beside": 500.0, "copy_beside_median_s": 1e-4, "copy_beside_p99_s": 1e-3,
            "copy_beside_longest_s": 0.002}  # fmt: skip
    head = "1 process: incremental, 0 ms, the program's own copies while memory is pinned: "
    before = medians(a_run(**more))
    assert not [figure for figure in before if "registration" in figure or "clock" in figure], "of older samples"
    told = medians(a_run(**more, copy_alone_longest_s=0.0005, copy_beside_gpu_longest_s=0.00013, copy_beside_longest_met=9,
                         registration_longest_s=0.0004))  # fmt: skip
    assert told[head + "the same without a store: longest"] == pytest.approx(0.5)
    assert told[head + "by the GPU's own clock: longest"] == pytest.approx(0.13)
    assert told[head + "registrations that the longest met"] == 9
    assert told[head + "longest registration"] == pytest.approx(0.4)
    two = a_run(**more, copy_beside_longest_met=1, processes=2)
    two["results"] = [two["results"][0], two["results"][0] | {"copy_beside_longest_met": 7}]
    assert medians(two)[head.replace("1 process", "2 processes") + "registrations that the longest met"] == 7


def test_what_was_touched_and_registered_first_is_told_and_what_was_cold_too():
    touch = a_run("touch", "", touched_bytes=2 << 30, touch_s=0.5, registered_bytes=1 << 30, register_s=0.25)
    told = medians(a_run("cold", copy_beside_longest_s=0.006), touch)
    assert told["1 process: touching 2 GiB of the machine's memory first"] == 0.5
    assert told["1 process: registering 1 GiB of the machine's memory first"] == 0.25
    cold = "1 process: memory never used before, incremental: "
    assert told[cold + "longest of the program's own copies while memory is pinned"] == pytest.approx(6)
    assert told[cold + "open + checkpoints"] == pytest.approx(50)
    one_saw_none = a_run("cold", processes=2)
    one_saw_none["results"][0] = one_saw_none["results"][0] | {"copy_beside_longest_s": 0.006}
    for results in (one_saw_none["results"], one_saw_none["results"][::-1]):
        seen = medians(one_saw_none | {"results": results})
        assert seen[
            cold.replace("1 process", "2 processes") + "longest of the program's own copies while memory is pinned"
        ] == pytest.approx(6)
    older = medians(a_run("cold"), a_run("touch", "", touched_bytes=2 << 30, touch_s=0.5))
    assert not [figure for figure in older if "registering" in figure or "own copies" in figure]


def test_a_run_without_a_copy_while_memory_is_pinned_holds_nothing():
    assert not [figure for figure in verdicts(a_run(part="beside", copies_beside=0.0)) if "own copies" in figure]


def test_a_shot_beside_others_that_register_is_told():
    words = "1 process: beside 7 others that take turns of 2 ms"
    run = a_run(part="turns", host_read_pinned_bytes=3 << 30, others=7, turn_s=0.002)
    assert medians(run)[f"{words}: open + checkpoints"] == pytest.approx(50)
    assert medians(run)[f"{words}: open + checkpoints + restores"] == pytest.approx(100)
    assert medians(run)[f"{words}: pinned by the end"] == 3
    assert verdicts(run)[f"{words}: open + checkpoints"] == "-"
    assert not [figure for figure in medians(a_run()) if "others" in figure]


def test_ours_is_compared_with_the_best_other_at_each_interval():
    sweep = [a_run("sweep", name, interval=5.0, checkpoints_s=blocked)
             for name, blocked in (("incremental", 0.0494), ("concurrent", 0.049), ("sequential", 3.0))]  # fmt: skip
    assert verdicts(*sweep)["1 process: 5 ms: open + checkpoints over the best other (concurrent)"] == "holds"
    sweep[0] = a_run("sweep", interval=5.0, checkpoints_s=0.06)
    assert verdicts(*sweep)["1 process: 5 ms: open + checkpoints over the best other (concurrent)"] == "DOES NOT HOLD"


def test_what_was_not_measured_at_an_interval_is_no_less_than_its_open():
    sweep = [a_run("sweep", interval=5.0), a_run(strategy="direct", open_s=0.02)]
    ratio = medians(*sweep)["1 process: 5 ms: open + checkpoints over the best other (direct)"]
    assert ratio == pytest.approx(0.05 / 0.02)


def test_left_out_and_failed_runs_and_wrong_bytes_are_told():
    text = harness.table(init_figures.rows(found(
        a_run(wrong=2), left_out={"sweep: direct": "no time"}, failures=[{"run": "flush", "why": "ended [1]"}])))  # fmt: skip
    assert "no time" in text and "ended [1]" in text
    assert verdicts(a_run(wrong=2))["1 process: restores with wrong bytes, of 1 runs"] == "DOES NOT HOLD"


def test_the_document_keeps_no_single_calls():
    document = init_figures.document(found(a_run(raw_checkpoints_s=[1.0])), {"gpu": "none"})
    assert "raw_checkpoints_s" not in document["measured"]["runs"][0]["results"][0]
    assert {"figure", "bar", "median", "values", "n", "spread", "verdict"} <= document["rows"][0].keys()


# --- the program ------------------------------------------------------------------------------------------------------


def given(*words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["init.py", *words])
    parsed = init.parse()
    parsed.processes = parsed.processes or 1
    return parsed


def test_all_strategies_meet_all_intervals(monkeypatch):
    runs = list(init.plan(given("--parts", "sweep", monkeypatch=monkeypatch)))
    assert {(run.strategy, run.interval) for run in runs} == {
        (name, interval) for name in init_figures.HOST for interval in (0.005, 0.01, 0.02, 0.04, 0.06)
    }


def test_a_quick_form_is_quick_and_has_every_part_but_the_sweep(monkeypatch):
    monkeypatch.setattr(init, "available_bytes", lambda: 1 << 40)
    parsed = given("--quick", "--processes", "1", monkeypatch=monkeypatch)
    runs = list(init.plan(parsed))
    assert {run.part for run in runs} == set(init.MAIN)
    assert sum(init.estimate(run, parsed) for run in runs) < 60


def test_the_parts_of_a_short_call_take_about_a_hundred_seconds(monkeypatch):
    monkeypatch.setattr(init, "available_bytes", lambda: 125 << 30)
    words = ("--parts", "touch,beside,flush", "--repeats", "6", "--processes", "1")
    parsed = given(*words, monkeypatch=monkeypatch)
    runs = list(init.plan(parsed))
    ours = [run for run in runs if run.strategy == "incremental"]
    assert [run.part for run in ours] == ["beside"] * 7 + ["flush"] * 6, "and one of them at the usual interval"
    assert 60 < sum(init.estimate(run, parsed) for run in runs) < 120


def test_nearly_all_memory_is_touched_for_a_gpu_for_nobody_knows_which_will_be_given(monkeypatch):
    monkeypatch.setattr(init, "available_bytes", lambda: 100 << 30)
    (gpu,) = init.plan(given("--parts", "touch", "--processes", "1", monkeypatch=monkeypatch))
    assert gpu.options["bytes"] == 90 << 30
    (cpu,) = init.plan(given(*SMALL, "--parts", "touch", monkeypatch=monkeypatch))
    assert cpu.options["bytes"] == 65536 * (16 + 24 + 1)


def test_an_unknown_part_is_refused_by_name(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        given("--parts", "shots,typo", monkeypatch=monkeypatch)
    assert "typo" in capsys.readouterr().err


def test_no_run_is_begun_that_does_not_fit_the_budget(monkeypatch):
    parsed = given(*SMALL, "--budget", "0", monkeypatch=monkeypatch)
    measured = init.measure(parsed)
    assert measured["runs"] == [] and "no time" in measured["left_out"].values()


def test_a_program_that_fails_is_told_with_what_it_said(tmp_path, monkeypatch):
    program = tmp_path / "benches" / "init"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    program.chmod(0o755)
    parsed = given(*SMALL, "--parts", "touch,shots", "--build", str(tmp_path), monkeypatch=monkeypatch)
    measured = init.measure(parsed)
    assert measured["runs"] == [] and all("no such thing" in failure["why"] for failure in measured["failures"])
    assert "touch" in measured["failures"][0]["run"]


def test_a_program_that_never_ends_is_ended(tmp_path):
    program = tmp_path / "init"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError):
        init.execute([str(program), "--barrier", "1"], 2, [], limit=0.3)


def built() -> Path | None:
    """The build tree whose program is the newest; $EBB_BENCH_BUILD names another."""
    if named := os.environ.get("EBB_BENCH_BUILD"):
        return Path(named)
    programs = sorted(ROOT.glob("build/*/benches/init"), key=lambda path: path.stat().st_mtime)
    return programs[-1].parents[1] if programs else None


@pytest.fixture(scope="module")
def build() -> Path:
    if tree := built():
        return tree
    pytest.skip("benches/init is not built (cmake -DEBB_BENCHES=ON, target bench_init)")


def test_everything_once_in_ordinary_memory(build, tmp_path):
    path = tmp_path / "one.json"
    command = [sys.executable, ROOT / "benches" / "init.py", "--build", build, "--json", path, *SMALL]
    command += ["--processes", "2"]
    ran = ended(*command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    measured = json.loads(path.read_text())["measured"]
    runs = measured["runs"]
    assert {run["part"] for run in runs} == set(init.PARTS)
    assert set(measured["left_out"]) == {"cuda_host_alloc", "cuda_malloc"}, "what needs a GPU, by name"
    for run in runs:
        assert len(run["results"]) == (1 if run["part"] == "touch" else 2)
        if run["part"] in ("shots", "sweep"):
            assert {result["host_written_strategy"] for result in run["results"]} == {run["strategy"]}
        if run["part"] in ("cold", "beside"):
            for result in run["results"]:
                assert 0 < result["copy_alone_median_s"] <= result["copy_alone_longest_s"]
                assert result["registrations"] == 0, "of ordinary memory"
                assert "copy_beside_gpu_median_s" not in result, "nor has it a clock"
        if run["part"] == "device":
            assert {result["device_written_strategy"] for result in run["results"]} == {run["strategy"]}
    assert {run["strategy"] for run in runs if run["part"] == "sweep"} == set(init_figures.HOST) - {"cuda_host_alloc"}
    assert sum(result.get("wrong", 0) for run in runs for result in run["results"]) == 0

    # The same table from what was kept, and a picture of it.
    other = tmp_path / "other.json"
    document = json.loads(path.read_text())
    other.write_text(json.dumps(document | {"machine": document["machine"] | {"cpus": 1024}}))
    again = [*command[:2], "--only-table", "--samples", path, "--plot", tmp_path / "init.svg"]
    table = ended(*again)
    assert table.returncode == 0, table.stderr
    assert table.stdout in ran.stdout
    assert "</svg>" in (tmp_path / "init.svg").read_text()

    both = [*command[:2], "--only-table", "--samples", path, other, "--json", tmp_path / "both.json"]
    assert ended(*both).returncode == 0
    joined = json.loads((tmp_path / "both.json").read_text())
    assert joined["machine"] == document["machine"] and [each["cpus"] for each in joined["other_machines"]] == [1024]


def test_a_strategy_that_is_not_there_is_refused_by_name(build):
    ran = ended(build / "benches" / "init", "--device", "cpu", "--size", "65536", "--host-strategy", "magic")
    assert ran.returncode == 1 and "magic" in ran.stderr
