"""Which jobs make way: the least loss against every other plan, and a batch system under each policy."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import ebbtide
import numpy as np
import pytest
from ebbtide.cli import app
from ebbtide.models.preemption import (
    POLICIES,
    UNITS,
    Arrival,
    Job,
    Machine,
    curve,
    decide,
    generate,
    greedy,
    in_units,
    least_unrounded,
    read_jobs,
    read_workload,
    run,
)
from ebbtide.models.preemption.decision import units_of
from typer.testing import CliRunner


def some_jobs(draw: np.random.Generator, count: int, most_nodes: int = 9) -> list[Job]:
    jobs = []
    for at in range(count):
        elapsed = float(draw.uniform(1, 36000))
        since = float(elapsed * draw.random() ** 2)
        size = float(draw.choice([0, 1e9, 64e9, 640e9]) * draw.integers(1, 9))
        jobs.append(
            Job(f"j{at}", int(draw.integers(1, most_nodes)), elapsed, since, float(draw.uniform(0, 20000)), size)
        )
    return jobs


def exhaustive(jobs: list[Job], nodes: int, deadline: float, bandwidth: float, in_units: bool) -> float:
    """The least loss of all 3^n plans."""
    running = [job for job in jobs if job.remaining > deadline]
    needed = nodes - sum(job.nodes for job in jobs if job.remaining <= deadline)
    plans = np.array(list(itertools.product((0, 1, 2), repeat=len(running))), int).reshape(-1, len(running))
    sizes = [units_of(job, deadline, bandwidth) if in_units else job.bytes for job in running]
    freed = (plans > 0) @ np.array([job.nodes for job in running], float)
    lost = (plans == 1) @ np.array([job.unsaved for job in running], float)
    taken = (plans == 2) @ np.array(sizes, float)
    possible = (freed >= needed) & (taken <= (UNITS if in_units else deadline * bandwidth))
    return float(lost[possible].min())


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_is_the_best_of_all(seed: int) -> None:
    draw = np.random.default_rng(seed)
    jobs = some_jobs(draw, 12 if seed < 2 else int(draw.integers(1, 10)))
    nodes = int(draw.integers(1, sum(job.nodes for job in jobs) + 1))
    deadline, bandwidth = float(draw.choice([60, 600, 3000])), float(draw.choice([1e8, 1e9, 1e10]))
    plan = in_units(jobs, nodes, deadline, bandwidth)
    assert plan.lost == pytest.approx(exhaustive(jobs, nodes, deadline, bandwidth, True), abs=1e-6)
    chosen = decide(jobs, nodes, deadline, bandwidth)
    unrounded = exhaustive(jobs, nodes, deadline, bandwidth, False)
    bound = least_unrounded(jobs, nodes, deadline, bandwidth)
    rule = greedy(jobs, nodes, deadline, bandwidth)
    assert bound - 1e-6 <= unrounded <= chosen.lost + 1e-6
    assert chosen.lost <= min(plan.lost, rule.lost) + 1e-6
    for one in (plan, chosen, rule):  # each does what it says
        assert one.freed == sum(job.nodes for job, action in zip(jobs, one.actions) if action != "keep") >= nodes
        assert one.lost == pytest.approx(sum(j.unsaved for j, action in zip(jobs, one.actions) if action == "kill"))
        saved = sum(job.bytes for job, action in zip(jobs, one.actions) if action == "checkpoint")
        assert one.bytes == pytest.approx(saved) and saved <= deadline * bandwidth * (1 + 1e-12)
        assert all((action == "ends") == (job.remaining <= deadline) for job, action in zip(jobs, one.actions))


@pytest.mark.parametrize("seed", range(4))
def test_of_many_jobs_it_is_never_worse_than_the_rule_and_never_better_than_the_bound(seed: int) -> None:
    draw = np.random.default_rng(seed)
    jobs = some_jobs(draw, 200)
    nodes = int(draw.integers(1, sum(job.nodes for job in jobs)))
    for bandwidth in (1e9, 1e10, 1e12):
        lost = decide(jobs, nodes, 600, bandwidth).lost
        assert least_unrounded(jobs, nodes, 600, bandwidth) - 1e-6 <= lost <= greedy(jobs, nodes, 600, bandwidth).lost


def test_a_large_machine_is_decided_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 nodes, 1,000 jobs: numbers that are computed, in passes of NumPy. A second is for about 10^9 of them."""
    from ebbtide.models.preemption import decision

    computed = 0
    after = decision._after

    def counted(*given):
        nonlocal computed
        out = after(*given)
        computed += out.size
        return out

    monkeypatch.setattr(decision, "_after", counted)
    jobs = [replace(job, nodes=4, remaining=9e9) for job in some_jobs(np.random.default_rng(1), 1000)]
    assert decide(jobs, 2000, 600, 1e11).freed >= 2000
    assert 1e7 < computed < 1e8


def test_more_time_loses_no_more_if_nothing_is_rounded() -> None:
    jobs = [Job(f"j{at}", 4, 7200, 600.0 * (at + 1), 1e6, 32e9) for at in range(8)]
    deadlines = [UNITS * k for k in (1, 2, 4, 8)]  # at 1 GB/s a job's bytes are whole units of each
    lost = [plan.lost for plan in curve(jobs, 24, deadlines, 1e9)]
    assert lost == sorted(lost, reverse=True) and lost[0] > lost[-1] == 0


# --- refusals ----------------------------------------------------------------------------------------------------------

HEAD = "name,nodes,elapsed,since_last_checkpoint,remaining,bytes\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "cannot be read"),
        ("", "line 1: '' does not have the fields name,nodes"),
        ("name,nodes\n", "line 1: 'name,nodes' does not have the fields"),
        (HEAD + "a,1,2\n", "line 2: 'a,1,2' has 3 fields; 6 are needed"),
        (HEAD + "a,1,20,10,soon,5\n", "line 2: remaining: 'soon' is not a number"),
        (HEAD + "a,0,20,10,30,5\n", "line 2: nodes: 0.0 of job 'a'"),
        (HEAD + "a,1.5,20,10,30,5\n", "line 2: nodes: 1.5 of job 'a'"),
        (HEAD + "a,1,20,10,30,5\na,1,20,10,30,5\n", "line 3: name: 'a' is there already"),
        (HEAD + "a,1,20,21,30,5\n", "line 2: since_last_checkpoint: 21.0 of job 'a' is more than the 20.0 seconds"),
        (HEAD + "a,1,20,10,-3,5\n", "line 2: remaining: -3.0 of job 'a'"),
        (HEAD + "a,1,20,10,30,inf\n", "line 2: bytes: inf of job 'a'"),
    ],
)
def test_a_file_of_jobs_that_is_wrong_is_refused_by_field(tmp_path: Path, text: str | None, named: str) -> None:
    file = tmp_path / "jobs.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ebbtide.InvalidArgument) as refused:
        read_jobs(file)
    assert str(refused.value).startswith("jobs: ") and named in str(refused.value)


def test_fields_may_come_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("bytes,remaining,since_last_checkpoint,elapsed,nodes,name\n5,30,10,20,2,a\n")
    assert read_jobs(file) == [Job("a", 2, 20, 10, 30, 5)]


@pytest.mark.parametrize(("field", "value"), [("nodes", 0), ("nodes", 9), ("deadline", 0), ("bandwidth", math.inf)])
def test_what_no_plan_can_be_made_of_is_refused_by_field(field: str, value: float) -> None:
    given = {"nodes": 4, "deadline": 60, "bandwidth": 1e9} | {field: value}
    with pytest.raises(ebbtide.InvalidArgument, match=f"^{field}: "):
        decide([Job("a", 8, 100, 50, 900, 1e9)], **given)  # type: ignore[arg-type]


# --- a batch system ------------------------------------------------------------------------------------------------------


def test_one_preemption_is_what_can_be_worked_out_by_hand() -> None:
    """Two jobs fill 8 nodes for 10,000 s; at 5,000 s one for 4 nodes comes, of which 32 GB a node are saved at 1 GB/s."""
    arrivals = [Arrival(0, 4, 10000, 10000), Arrival(0, 4, 10000, 10000), Arrival(5000, 4, 1000, 1000)]
    machine = Machine(8, deadline=300, bandwidth=1e9, state=32e9, interval=2000, memory_rate=1e30, every=3)
    planned = run(arrivals, machine, "planned")
    assert (planned.lost, planned.wait, planned.in_time) == (0, 128, 1)  # 4 x 32 GB at 1 GB/s
    # It stands still until it is saved, and reads it back when the job on demand has ended.
    assert planned.blocked == pytest.approx(4 * (128 + 128) / 3600)
    killed = run(arrivals, machine, "kill")
    assert killed.lost == pytest.approx(4 * 1000 / 3600) and killed.wait == 0  # since the checkpoint at 4,000 s
    everyone = run(arrivals, machine, "system_wide")
    assert (everyone.lost, everyone.wait) == (0, 256) and everyone.blocked == pytest.approx((8 * 256 + 4 * 128) / 3600)
    with pytest.raises(ebbtide.InvalidArgument, match="^nodes: .* of which 4 are reserved"):
        run([Arrival(0, 8, 10, 10), *arrivals[1:]], machine, "reserve")
    reserved = run(arrivals, machine, "reserve")
    assert (reserved.lost, reserved.blocked, reserved.wait, reserved.batch_wait) == (0, 0, 0, 5000)


def test_the_sample_is_what_the_generator_makes() -> None:
    assert (Path(__file__).resolve().parents[2] / "data/preempt-sample.swf").read_text() == generate(23, 200)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_generated_workload_the_plan_loses_least(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "w.swf"
    file.write_text(generate(seed))
    arrivals, nodes = read_workload(file)
    assert nodes == 128 and len(arrivals) == 400
    found = {policy: run(arrivals, Machine(nodes), policy) for policy in POLICIES}
    again = run(arrivals, Machine(nodes), "planned")
    assert again == found["planned"], "it is the same each time"
    assert len({one.on_demand for one in found.values()}) == 1
    assert found["planned"].lost <= found["kill"].lost and found["planned"].in_time == 1
    assert found["planned"].blocked < found["system_wide"].blocked
    assert found["planned"].batch_wait < found["reserve"].batch_wait and found["reserve"].lost == 0
    for policy, one in found.items():  # work is done once
        work = sum(job.nodes * job.runtime for job in arrivals) / 3600
        assert one.busy * one.hours * nodes == pytest.approx(work), policy


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "cannot be read"),
        ("; MaxNodes: 4\n", "has no job that ran"),
        ("1 0 0 10 1\n", "line 1: 5 fields; the format has 18"),
        ("1 0 0 ten 1" + " -1" * 13 + "\n", "line 1: field 4: 'ten' is not a number"),
        ("1 -5 0 10 1" + " -1" * 13 + "\n", "line 1: a submit time of at least 0"),
    ],
)
def test_a_workload_that_is_wrong_is_refused_by_field(tmp_path: Path, text: str | None, named: str) -> None:
    file = tmp_path / "w.swf"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ebbtide.InvalidArgument) as refused:
        read_workload(file)
    assert str(refused.value).startswith("workload: ") and named in str(refused.value)


# --- the command ---------------------------------------------------------------------------------------------------------


def command(*words: object, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["sim", "preempt", *map(str, words)], env={"COLUMNS": "300"})
    assert ran.exit_code == code, ran.output
    return " ".join(ran.output.replace("│", " ").split())


def test_the_command_prints_and_writes_the_plan(tmp_path: Path) -> None:
    jobs = [Job("a", 2, 7200, 3600, 9000, 10**12), Job("b", 2, 7200, 600, 9000, 10**12), Job("c", 4, 900, 900, 60, 0)]
    file, out = tmp_path / "jobs.csv", tmp_path / "plan.json"
    file.write_text(HEAD + "".join(",".join(map(str, asdict(job).values())) + "\n" for job in jobs))
    said = command("--jobs", file, "--nodes", 8, "--deadline", "120s", "--bandwidth", "10GB", "--json", out)
    document = json.loads(out.read_text())
    plan = decide(jobs, 8, 120, 10e9)
    assert document["plan"]["lost"] == plan.lost == 1200  # there is time to save one: that with more to lose
    assert [one["action"] for one in document["jobs"]] == list(plan.actions) == ["checkpoint", "kill", "ends"]
    assert document["least"] == pytest.approx(least_unrounded(jobs, 8, 120, 10e9))
    assert document["greedy"]["lost"] >= plan.lost
    assert [one["deadline"] for one in document["curve"]] == sorted(one["deadline"] for one in document["curve"])
    assert "no plan loses less than" in said and "kill" in said


def test_the_command_runs_a_workload(tmp_path: Path) -> None:
    file, out = tmp_path / "w.swf", tmp_path / "out.json"
    file.write_text(generate(1, jobs=100))
    command("--workload", file, "--deadline", "5min", "--bandwidth", "100GB", "--state", "64GB", "--json", out)
    document = json.loads(out.read_text())
    assert set(document["policies"]) == set(POLICIES)
    assert document["policies"]["planned"] == asdict(run(read_workload(file)[0], Machine(128), "planned"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--jobs"),
        (["--jobs", "no.csv", "--nodes", 1], "cannot be read"),
        (["--jobs", "{jobs}"], "--nodes"),
        (["--jobs", "{jobs}", "--nodes", 99], "--nodes"),
        (["--jobs", "{jobs}", "--nodes", 1, "--deadline", "soon"], "--deadline"),
        (["--jobs", "{jobs}", "--nodes", 1, "--deadline", "0s"], "--deadline"),
        (["--jobs", "{jobs}", "--nodes", 1, "--bandwidth", "0"], "--bandwidth"),
        (["--jobs", "{jobs}", "--workload", "{jobs}"], "--workload"),
        (["--workload", "{jobs}"], "--workload"),
        (["--workload", "{swf}", "--nodes", 3], "--nodes"),
        (["--workload", "{swf}", "--every", 0], "--every"),
    ],
)
def test_the_command_names_the_option(tmp_path: Path, words: list[object], named: str) -> None:
    jobs, swf = tmp_path / "jobs.csv", tmp_path / "w.swf"
    jobs.write_text(HEAD + "a,4,20,10,3000,5\n")
    swf.write_text(generate(1, jobs=40))
    assert named in command(*(str(word).format(jobs=jobs, swf=swf) for word in words), code=2)
