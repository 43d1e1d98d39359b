"""tools/gpu-check where there is no GPU: which stages run, how measurements are merged, what the table says of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from child import ended
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benches"), str(ROOT / "tools")]
import gpu_figures
import harness
from gpu_check import testing

LINKS = {f"{way}{bare}_bytes_per_s": [(50e9 if bare else rate)] * 5
         for way, rate in (("down", 49e9), ("up", 40e9), ("both", 48e9)) for bare in ("", "_bare")}  # fmt: skip


def shot_group(excess: list[float], case: str = "disk 10ms reverse no wait", left_out: dict | None = None) -> dict:
    shot = {"longest_of_allowed": 0.5, "longest_restore_s": 0.1, "largest_share": 0.6, "flush_wait_s": 1.0, "cores": 0.5, "open_s": 3.0,
            "verified": 0, "wrong": 0}  # fmt: skip
    runs = {case: [shot | {"excess": value} for value in excess]} if excess else {}
    return {"store": {"host_cache": 1 << 30}, "runs": runs, "left_out": left_out or {}}


def verdicts(measured: dict) -> dict[str, str]:
    rows = [row for row in gpu_figures.rows_of(measured)]
    return {row.figure: harness.verdict(row) for row in rows if isinstance(row, harness.Row)}


def check(*arguments: object, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "gpu-check", "--out", out, "--build", out / "build"]
    command += ["--scratch", out / "scratch", *arguments]
    return ended(*command, env=os.environ | environment)


def test_a_median_is_held_to_its_bar():
    found = verdicts({"links": LINKS})
    assert found["background D2H over bare pinned copy"] == "holds"
    assert found["background H2D over bare pinned copy"] == "DOES NOT HOLD"


def test_too_few_repeats_are_told():
    few = {name: values[:2] for name, values in LINKS.items()}
    assert verdicts({"links": few})["background D2H over bare pinned copy"] == "holds (n < 5)"


def test_what_was_not_measured_has_its_row_and_its_reason():
    text = harness.table(gpu_figures.rows_of({"links": {"failed": "no device"}}))
    assert "background transfers" in text and "not measured: no device" in text
    assert text.count("not measured") == len(gpu_figures.SECTIONS)


def test_peers_have_rows_for_what_was_measured_of_them():
    found = {"burst": 8 << 30, "relay_up_alone_bytes_per_s": [50e9] * 5, "relay_up_both_bytes_per_s": [80e9] * 5}
    found |= {f"{where}{way}_bytes_per_s": [rate] * 5 for way in ("store", "load")
              for where, rate in (("bare_", 390e9), ("", 389e9), ("two_processes_", 300e9))}  # fmt: skip
    found |= {f"burst_{how}_s": [time] * 5 for how, time in (("peer", 2), ("host", 16), ("both", 1.8), ("least", 1.78))}
    rows = verdicts({"peers": found})
    assert rows["store of a peer's memory over bare peer copy, one process"] == "holds"
    assert rows["load of a peer's memory over bare peer copy, two processes"] == "DOES NOT HOLD"
    assert rows["H2D over two links, by a relay, over one"] == "DOES NOT HOLD"
    assert rows["burst of 8 GiB: host only over peer"] == "holds"
    assert rows["burst of 8 GiB: over the least time of both links"] == "holds"
    assert not any("D2H" in row for row in rows)
    text = harness.table(gpu_figures.rows_of({"peers": {"failed": "there is one GPU"}}))
    assert "not measured: there is one GPU" in text


def test_shots_are_merged_case_by_case():
    measured: dict = {}
    one, other = "disk 10ms reverse no wait", "disk 10ms irregular no wait"
    gpu_figures.merge(measured, {"shots": {"disk": shot_group([0.01] * 5, one, {other: "the time ended"})}})
    gpu_figures.merge(measured, {"shots": {"disk": shot_group([0.07] * 5, other)}})
    assert measured["shots"]["disk"]["left_out"] == {}
    found = verdicts(measured)
    assert found[f"shot, {one}: above the bound"] == "holds"
    assert found[f"shot, {other}: above the bound"] == "DOES NOT HOLD"


def test_a_failed_section_does_not_replace_a_good_one():
    measured = {"links": LINKS}
    gpu_figures.merge(measured, {"links": {"failed": "out of time"}})
    assert measured["links"] is LINKS


def test_samples_are_kept_out_of_the_document_and_medians_in():
    document = gpu_figures.document({"links": LINKS | {"raw_x": [1.0]}}, {"gpu": "none"}, [])
    assert "raw_x" not in document["measured"]["links"]
    assert document["machine"]["bare_bytes_per_s"]["d2h"] == 50e9
    assert {"figure", "bar", "median", "values", "verdict"} <= document["rows"][2].keys()


def test_the_table_alone_of_recorded_samples(tmp_path):
    samples = tmp_path / "one.json"
    samples.write_text(json.dumps(gpu_figures.document({"links": LINKS}, {"gpu": "some"}, [])))
    ran = check("--only", "table", "--samples", samples, out=tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    assert "background D2H over bare pinned copy" in ran.stdout
    kept = json.loads((tmp_path / "out" / "gpu_figures.json").read_text())
    assert kept["machine"]["gpu"] == "some" and kept["measured"]["links"] == LINKS


def test_each_stage_of_joined_samples_says_where_it_was_taken(tmp_path):
    def sample(name: str, commit: str, stages: list[dict]) -> Path:
        machine = {"commit": commit, "taken": f"when {commit}", "gpus": 1}
        path = tmp_path / name
        path.write_text(json.dumps(gpu_figures.document({"links": LINKS}, machine, stages)))
        return path

    build, links = ({"stage": name, "result": "done"} for name in ("build", "links"))
    told = links | {"commit": "told", "taken": "then", "gpus": 2}
    one = sample("one.json", "a", [build, links])
    joined = sample("joined.json", "b", [build, build, told])  # where the builds were is not known any more
    ran = check("--only", "table", "--samples", one, joined, out=tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    kept = json.loads((tmp_path / "out" / "gpu_figures.json").read_text())
    of_one = {"commit": "a", "taken": "when a", "gpus": 1}
    assert kept["stages"] == [of_one | build, of_one | links, build, build, told]


@pytest.mark.parametrize("stages", ["--only=nothing", "--skip=cxx,typo"])
def test_an_unknown_stage_is_refused_by_name(stages, tmp_path):
    ran = check(stages, out=tmp_path)
    assert ran.returncode != 0 and ("nothing" in ran.stderr or "typo" in ran.stderr)


def test_a_stage_that_fails_ends_with_1_and_the_table(tmp_path):
    ran = check("--only", "calls,memcheck", out=tmp_path)
    assert ran.returncode == 1
    assert "FAILED: calls" in ran.stdout and "calls from C++" in ran.stdout


def test_opening_is_not_measured_without_its_program(tmp_path):
    done = check("--only", "init", "--device", "cpu", out=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("benches/init is not built") == 3, done.stdout  # when it fails, in the table, at the end
    assert not (tmp_path / "init.json").exists()


def test_every_room_with_a_test_on_a_gpu_is_built():
    labelled = re.search(r"set\(ebb_gpu_tests (.+)\)", (ROOT / "cmake" / "EbbTests.cmake").read_text())[1]
    word = "(?:" + labelled.replace("*", "").replace(":", "|") + ")(?!_cache)"  # not a key of VELOC's configuration
    named = rf"^(?:TEST\w*|INSTANTIATE_TEST_SUITE_P)\([^)]*(?:{word})|add_test\(NAME \w*(?:{word})"
    on_a_gpu = re.compile(named, re.MULTILINE)
    sources = [*(ROOT / "tests").glob("*/*.cpp"), *(ROOT / "tests").glob("*/CMakeLists.txt")]
    rooms = {path.parent.name for path in sources if on_a_gpu.search(path.read_text())}
    preset = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"][0]
    assert {"device", "store", "capi"} <= rooms <= set(preset["cacheVariables"]["EBB_TEST_ROOMS"].split(";"))


def test_a_program_in_c_that_needs_a_gpu_has_the_label():
    text = (ROOT / "tests" / "capi" / "CMakeLists.txt").read_text()
    names = re.findall(r"add_test\(NAME (\w*gpu\w*)", text)
    assert names and names == re.findall(r"set_tests_properties\((\w+) PROPERTIES .*\bLABELS gpu\)", text)


def test_what_is_run_under_memcheck_exists():
    assert all((ROOT / name).exists() for name in testing.MEMCHECKED)


CLEAN = "========= ERROR SUMMARY: 0 errors"


@pytest.mark.parametrize(
    ("said", "status", "result"),
    [
        (f"80 passed in 9.1s\n{CLEAN}", 0, "done"),
        (f"2 failed, 78 passed in 9.1s\n{CLEAN}", 1, "done"),  # for being slow
        ("80 passed in 9.1s\n========= ERROR SUMMARY: 1 error", 99, "failed"),
        (f"80 skipped in 0.1s\n{CLEAN}", 0, "failed"),
        (f"2 failed in 9.1s\n{CLEAN}", 1, "failed"),
        ("80 passed in 9.1s", 0, "failed"),  # by a tool that watched nothing
        ("", 124, "failed"),
    ],
)
def test_python_under_memcheck_is_judged_by_what_it_finds(said: str, status: int, result: str, tmp_path: Path):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {status}\n")
    tool.chmod(0o755)
    ran = check("--only", "memcheck_python", out=tmp_path, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert f"memcheck_python {result}" in ran.stdout, ran.stdout
    assert ran.returncode == (result == "failed")
