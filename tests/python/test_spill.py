"""`ebbtide sim spill`: the numbers of the slides, and the least time against a linear program."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from ebbtide.cli import app
from ebbtide.sim import Spill, Topology, spill
from typer.testing import CliRunner

import ebbtide

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sc22-sample-trace.csv"


def run(*words: str) -> str:
    ran = CliRunner().invoke(app, ["sim", "spill", *words], env={"COLUMNS": "200"})
    assert ran.exit_code == 0, ran.output
    return ran.output


def refused(*words: str) -> str:
    ran = CliRunner().invoke(app, ["sim", "spill", *words], env={"COLUMNS": "200"})
    assert ran.exit_code == 2, ran.output
    return ran.output


# --- the slides


def test_one_step_is_that_of_slide_46(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    step = ["--topology", "dgx1v", "--remainder", "0:480MB,6:240MB", "--spare", "4:480MB,1:137MB"]
    said = run(*step, "--json", str(path))
    found = json.loads(path.read_text())
    assert list(found) == ["local", "greedy", "flow_paper", "flow_paper_added", "flow"]
    assert found["local"]["milliseconds"] == 40
    assert found["greedy"]["milliseconds"] == 20
    assert found["flow"]["milliseconds"] == pytest.approx(20 / 3, abs=1e-5)
    assert found["flow"]["ends"] == pytest.approx({"0": 343 / 60, "6": 20 / 3}, abs=1e-5)
    assert "6.67 ms" in said and "5.72 ms" in said and "20.00 ms" in said and "40.00 ms" in said
    # Slide 46's amounts, in its megabytes.
    sent = {(one["from"], one["peer"]): round(one["bytes"] / 1e6) for one in found["flow_paper"]["transfers"]}
    assert sent == {(0, 1): 137, (0, 4): 275, (0, None): 68, (6, 4): 160, (6, None): 80}
    for one in found["flow"]["transfers"]:
        assert sent[one["from"], one["peer"]] == pytest.approx(one["bytes"] / 1e6, abs=0.61)


def test_added_costs_are_not_the_least_time(tmp_path: Path) -> None:
    topology = tmp_path / "three.json"
    topology.write_text('{"gpus": 3, "host": 12e9, "pairs": [[0, 2, 48e9], [1, 2, 24e9]]}')
    path = tmp_path / "step.json"
    step = ["--topology", str(topology), "--remainder", "0:240MB,1:240MB", "--spare", "2:220MB"]
    run(*step, "--json", str(path))
    found = {name: plan["milliseconds"] for name, plan in json.loads(path.read_text()).items()}
    assert found["flow"] == pytest.approx(260 / 24, abs=1e-5)
    assert found["greedy"] == 20
    assert found["flow_paper"] == pytest.approx(260 / 24, abs=1e-5)
    assert found["flow_paper_added"] == pytest.approx(140 / 12, abs=1e-5)
    run(*step, "--relays", "--json", str(path))
    assert json.loads(path.read_text())["flow"]["milliseconds"] == pytest.approx(260 / 36, abs=1e-5)


def test_the_sample_trace_gives_what_the_slides_say_and_what_it_does_not_is_said(tmp_path: Path) -> None:
    path, picture = tmp_path / "trace.json", tmp_path / "trace.png"
    said = " ".join(run("--trace", str(SAMPLE), "--json", str(path), "--plot", str(picture)).split())
    found = json.loads(path.read_text())
    over = found["over_flow"]
    assert found["published"] and found["steps"] == 30 and found["free"] == 128 << 20
    assert round(100 * over["greedy"]["in_all"]) == 96
    assert round(100 * over["local"]["in_all"]) == 631
    assert round(over["greedy"]["mean_ratio"], 2) == 1.98
    assert round(over["local"]["mean_ratio"], 2) == 8.38
    assert "Slide 19 has +97% for greedy; these steps give +96%." in said
    assert "It has +400% for local, which does not come from the 30 published steps: they give +631%." in said
    assert picture.read_bytes()[:4] == b"\x89PNG"
    # What flow_paper loses to the least time is the size of its units; what added costs lose is more than that.
    run("--trace", str(SAMPLE), "--unit", "10kB", "--json", str(path))
    fine = json.loads(path.read_text())["over_flow"]
    assert over["flow_paper"]["in_all"] > 0.1 and 0 <= fine["flow_paper"]["in_all"] < 0.005
    assert fine["flow_paper_added"]["in_all"] > 0.05


def test_a_trace_of_the_benchmark_is_taken(tmp_path: Path) -> None:
    made, path = tmp_path / "made.csv", tmp_path / "made.json"
    ran = CliRunner().invoke(app, ["bench", "trace", str(made), "--snapshots", "20", "--seed", "3"])
    assert ran.exit_code == 0, ran.output
    said = run("--trace", str(made), "--topology", "nvswitch-h200", "--free", "100MB", "--json", str(path))
    found = json.loads(path.read_text())
    assert len(found["milliseconds"]["flow"]) == 20 and not found["published"] and "Slide" not in said
    for name, times in found["milliseconds"].items():
        assert all(mine >= best for mine, best in zip(times, found["milliseconds"]["flow"], strict=True)), name


# --- the least time


def test_the_least_time_is_that_of_a_linear_program() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    for seed in range(10_000 if os.environ.get("EBB_LONG") else 200):
        case = random.Random(seed)
        topology, remainder, spare = drawn(case)
        plan = spill(topology, remainder, spare)
        levels = sorted({end for end in plan.ends if end > 0}, reverse=True)
        for k, level in enumerate(levels):
            # The sources that end later are held to their ends; the others cannot all end before this one.
            held = list(plan.ends)
            assert least_ms(optimize, topology, remainder, spare, held, level, levels[:k]) == pytest.approx(
                level * 1e3, abs=2e-5, rel=1e-7
            ), (seed, k)


def drawn(case: random.Random) -> tuple[Topology, list[int], list[int]]:
    n = case.randint(2, 5)
    rate = (
        (lambda: 12e9 * case.randint(1, 4)) if case.random() < 0.3 else (lambda: float(case.randint(10**9, 6 * 10**10)))
    )
    topology = Topology(
        n,
        rate(),
        {(a, b): rate() for a in range(n) for b in range(a) if case.random() < 0.7},
        egress=rate() if case.random() < 0.4 else 0,
        ingress=rate() if case.random() < 0.4 else 0,
        host_memory=rate() if case.random() < 0.4 else 0,
        relays=case.random() < 0.4,
    )
    remains = [case.random() < 0.6 for _ in range(n)]
    return (
        topology,
        [case.randint(1, 5 * 10**8) if yes else 0 for yes in remains],
        [0 if yes and case.random() < 0.9 else case.randint(0, 5 * 10**8) for yes in remains],
    )


def least_ms(
    optimize: Any,
    topology: Topology,
    remainder: list[int],
    spare: list[int],
    ends: list[float],
    level: float,
    later: list[float],
) -> float:
    """The least time (ms) for the sources that end by ``level``, where the others end as they do.

    Time is cut into slices: up to what is sought, and between the later ends. A variable for each source, route and slice,
    in megabytes, and the time itself.
    """
    n = topology.gpus
    rates = {**topology.pairs, **{(b, a): rate for (a, b), rate in topology.pairs.items()}}
    bounds = [*reversed(later)]
    variables: list[tuple[int, str, int, int]] = []
    for i in range(n):
        if remainder[i] == 0:
            continue
        slices = 1 + sum(ends[i] >= end for end in bounds)
        for s in range(slices):
            variables.append((i, "host", i, s))
            for j in range(n):
                if (i, j) in rates:
                    variables.append((i, "peer", j, s))
                    if topology.relays:
                        variables.append((i, "relay", j, s))
    width = len(variables) + 1
    rows, limits = [], []

    def limit(rate: float, uses: Any) -> None:
        if rate == 0:
            return
        for s in range(1 + len(bounds)):
            row = [1.0 if uses(i, route, j) and at == s else 0.0 for i, route, j, at in variables] + [0.0]
            if not any(row):
                continue
            per_ms = rate * 1e-9  # MB a millisecond
            # The first slice lasts T, the second from T to the next end, the others between two ends.
            row[-1] = -per_ms if s == 0 else per_ms if s == 1 else 0.0
            rows.append(row)
            edges = [0.0, 0.0, *bounds]
            limits.append(0.0 if s == 0 else per_ms * 1e3 * (edges[s + 1] - (edges[s] if s > 1 else 0.0)))

    for g in range(n):
        limit(topology.egress, lambda i, route, j, g=g: route != "host" and i == g)
        limit(topology.ingress, lambda i, route, j, g=g: route != "host" and j == g)
        limit(topology.host, lambda i, route, j, g=g: route != "peer" and j == g)
        for h in range(n):
            limit(rates.get((g, h), 0), lambda i, route, j, g=g, h=h: route != "host" and (i, j) == (g, h))
        rows.append([1.0 if route == "peer" and j == g else 0.0 for i, route, j, _ in variables] + [0.0])
        limits.append(spare[g] * 1e-6)
    limit(topology.host_memory, lambda i, route, j: route != "peer")
    sums = [[1.0 if i == g else 0.0 for i, *_ in variables] + [0.0] for g in range(n) if remainder[g]]
    most = bounds[0] * 1e3 if bounds else None
    found = optimize.linprog(
        [0.0] * (width - 1) + [1.0],
        A_ub=rows,
        b_ub=limits,
        A_eq=sums,
        b_eq=[size * 1e-6 for size in remainder if size],
        bounds=[(0, None)] * (width - 1) + [(0, most)],
    )
    assert found.status == 0, found.message
    return float(found.x[-1])


# --- what is refused


def test_the_amounts_of_a_plan_are_those_that_were_asked_for() -> None:
    plan = spill(Topology(2, host=12e9, pairs={(0, 1): 48e9}), ["600MB", 0], [0, "480MB"])
    assert isinstance(plan, Spill)
    assert plan.seconds == pytest.approx(0.01)
    assert [(one.source, one.route, one.peer, one.bytes) for one in plan.transfers] == [
        (0, "peer", 1, 480_000_000),
        (0, "host", None, 120_000_000),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "it must be an object with gpus, host"),
        ('{"gpus": 2}', "it must be an object with gpus, host"),
        ('{"gpus": 2, "host": 1e9, "speed": 1}', "no others than"),
        ('{"gpus": 2, "host": 0}', "host=0 is not valid"),
        ('{"gpus": 2, "host": "fast"}', "host='fast' is not valid"),
        ('{"gpus": 99, "host": 1e9}', "gpus=99 is not valid"),
        ('{"gpus": 2, "host": 1e9, "pairs": [[0, 2, 1e9]]}', "pair (0, 2) is not one of 2 GPUs"),
        ('{"gpus": 2, "host": 1e9, "pairs": [[0, 1, 1e9], [1, 0, 1e9]]}', "pair (1, 0) is given twice"),
        ('{"gpus": 2, "host": 1e9, "pairs": [[0, 1]]}', "not enough values"),
        ("{", "Expecting"),
    ],
)
def test_a_wrong_topology_is_refused_by_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(ebbtide.InvalidArgument, match="wrong.json") as refusal:
        Topology.read(path)
    assert said in str(refusal.value)


def test_a_rate_for_all_pairs(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text('{"gpus": 3, "host": 1e9, "pairs": 5e9, "relays": true}')
    assert Topology.read(path) == Topology(3, 1e9, {(0, 1): 5e9, (0, 2): 5e9, (1, 2): 5e9}, relays=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "either a trace or a step"),
        (["--trace", str(SAMPLE), "--remainder", "0:1MB"], "either a trace or a step"),
        (["--trace", str(SAMPLE), "--spare", "0:1MB"], "--spare"),
        (["--remainder", "0:1MB", "--plot", "x.png"], "one step is not drawn"),
        (["--remainder", "8:1MB"], "there is no GPU 8"),
        (["--remainder", "0:1MB,0:2MB"], "each GPU once"),
        (["--remainder", "0=1MB"], "sizes by GPU"),
        (["--remainder", "0:fast"], "a size such as"),
        (["--remainder", "0:2000TB"], "petabyte"),
        (["--remainder", "0:1GB", "--unit", "1"], "unit is too small"),
        (["--remainder", "0:1MB", "--topology", "dgx9"], "known by name: dgx1v, nvswitch-h200"),
        (["--trace", __file__], "is not a row of sizes"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], said: str) -> None:
    assert said in " ".join(refused(*words).replace("│", " ").split())
