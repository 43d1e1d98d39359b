"""`ebbtide sim lent`: what memory that another GPU lends is worth."""

import json
from itertools import combinations

import pytest
from ebbtide.cli import app
from ebbtide.models.spill import lent
from ebbtide.sim import Topology
from typer.testing import CliRunner


def run(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["sim", "lent", *words], env={"COLUMNS": "200"})
    assert ran.exit_code == code, ran.output
    return ran.output


def test_lent_memory_spares_a_shot_the_disk_and_a_burst_the_link_to_the_host(tmp_path):
    run("--json", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["shot"]["above_bound"] <= 0.05
    assert found["shot"]["without_over_with"] >= 20
    assert found["burst"]["without_over_with"] >= 6
    assert 1 <= found["burst"]["over_least"] <= 1.1
    assert found["shot"]["bound"] <= found["shot"]["blocked"]


@pytest.mark.parametrize(("gpus", "writers"), [(4, 2), (4, 4), (8, 4), (8, 8)])
def test_it_is_worth_as_much_where_many_write(gpus, writers):
    node = lent.Node(Topology.nvswitch_h200(gpus), writers)
    found = lent.document(node, 384, 128 << 20, 0.01, 4 << 30, 16 << 30, 32 << 30)
    assert found["shot"]["above_bound"] <= 0.05
    assert found["shot"]["without_over_with"] >= 20
    assert found["burst"]["without_over_with"] >= 6
    assert 1 <= found["burst"]["over_least"] <= 1.1


def test_a_lender_that_writes_shares_its_link_to_the_host_with_its_borrower():
    pairs = dict.fromkeys(combinations(range(4), 2), 100e9)
    topology = Topology(4, host=50e9, pairs=pairs, egress=100e9, ingress=100e9, relays=True)
    one, two, four = [
        lent.burst(lent.Node(topology, writers), [128 << 20] * 64, "256MiB", "8GiB") for writers in (1, 2, 4)
    ]
    assert one == two, "they share the disk alone, which a burst does not wait for"
    assert four.without == one.without
    assert four.written > 1.05 * one.written, "what was lent is emptied over the link of a GPU that needs it itself"


def test_writers_share_the_memory_of_the_host(tmp_path):
    found = []
    for writers in (1, 4):
        run("--writers", str(writers), "--checkpoints", "96", "--json", str(tmp_path / "found.json"))
        found.append(json.loads((tmp_path / "found.json").read_text()))
    assert found[1]["burst"]["without"] > 1.3 * found[0]["burst"]["without"]
    assert all(one["burst"]["over_least"] <= 1.1 for one in found)


def test_what_cannot_be_is_refused():
    assert "8 GPUs; dgx1v has 8" not in run("--topology", "dgx1v", "--checkpoints", "32", "--writers", "4")
    assert "9 of at least two GPUs; nvswitch-h200 has 8" in run("--writers", "9", code=2)
    assert "GPUs 1 and 4 have no link" in run("--topology", "dgx1v", "--writers", "3", code=2)
    assert "--lent two" in run("--lent", "128MiB", code=2)


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_burst_for_which_neighbours_have_little_room_goes_over_the_links_of_all(gpus, tmp_path):
    if gpus == 8:
        run("--rooms", "--json", str(tmp_path / "found.json"))
        rows = json.loads((tmp_path / "found.json").read_text())
    else:
        rows = lent.by_room(Topology.nvswitch_h200(gpus), [1 << 30, 8 << 30], [16 << 20, 128 << 20])
    assert [(row["gpus"], row["burst"] >> 30, row["size"] >> 20) for row in rows] == [
        (gpus, 1, 16),
        (gpus, 1, 128),
        (gpus, 8, 16),
        (gpus, 8, 128),
    ]
    for row in rows:
        few = row["burst"] // row["size"] <= 8  # of which a checkpoint is a large part
        assert all(1 <= over <= (1.1 if gpus == 2 else 1.35 if few else 1.2) for over in row["over_least"]), row
        assert all(over <= 1.1 for over in row["over_least"][:3]), row
