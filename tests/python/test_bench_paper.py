"""`ebbtide bench paper`: figures of the papers as experiments; rows add up in one file, and say what is wrong with them."""

import json

import pytest
from ebbtide._traces import SNAPSHOTS
from ebbtide.bench import contest, paper, snapshots
from ebbtide.bench.command import app
from ebbtide.bench.paper import FIGURES, FULL, QUICK, Place, Scale, Shots, Values, hipc22, hpdc23, show
from ebbtide.bench.peers import PEERS, About
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("measured")
TINY = Scale("quick", 6, 64 << 10, (1, 2), (0.001,), (12, 3), 1 << 20)
SHOTS = [key for key, figure in FIGURES.items() if isinstance(figure, Shots)]
COMPUTED = [key for key, figure in FIGURES.items() if isinstance(figure, Values) and figure.computed]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(paper, "QUICK", TINY)
    monkeypatch.setattr(hpdc23, "ORDERS", ("reverse",))
    monkeypatch.setattr(hpdc23, "HINTS", ("none", "all"))


def bench(disk, *arguments, code=0):
    ran = CliRunner().invoke(app, ["paper", *arguments, "--dir", str(disk)])
    assert ran.exit_code == code, ran.output
    return ran.output


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("key", [key for key in SHOTS if key.startswith("hpdc23")])
def test_a_figure_has_each_place_once_and_caches_in_the_papers_proportion(key, scale, tmp_path):
    figure = paper.FIGURES[key]
    cells = figure.cells(scale, Place(tmp_path))
    assert len({cell.labels for cell in cells}) == len(cells) > 1
    for cell in cells:
        config = cell.config
        assert {"hints", figure.x} <= dict(cell.labels).keys()
        assert config.hints == dict(cell.labels)["hints"]
        assert set(cell.peers) <= PEERS.keys()
        assert not cell.peers or config.ranks == 1, "peers run in one process"
        assert config.disk >= config.history()
        assert config.host_cache == scale.checkpoints * scale.size * 2 // 3
        assert config.device_cache >= 2 * max(map(max, config.sizes))
        for rank in config.sizes:
            assert len(rank) == scale.checkpoints
            assert 0.8 < sum(rank) / (scale.checkpoints * scale.size) < 1.2


@pytest.mark.parametrize("key", [key for key in SHOTS if key.startswith("hipc22")])
def test_all_fits_the_host_cache_where_memory_is_what_is_measured(key, tmp_path):
    for scale, device in ((QUICK, "cpu"), (FULL, "cuda")):
        cells = FIGURES[key].cells(scale, Place(tmp_path, device))
        assert len({cell.labels for cell in cells}) == len(cells) > 1
        for cell in cells:
            assert (cell.config.disk, cell.config.host_cache) == (0, cell.config.history())
            assert cell.config.device_cache >= 2 * max(map(max, cell.config.sizes))
            managed = device == "cuda" and cell.config.ranks == 1  # a peer runs in one process
            assert "direct" in cell.peers and ("uvm_in_memory" in cell.peers) == managed


def test_memory_pinned_at_once_is_measured_with_several_ranks_too(tiny, disk, tmp_path):
    found, picture = tmp_path / "6a.json", tmp_path / "6a.png"
    bench(disk, "hipc22:6a", "--json", str(found), "--plot", str(picture))
    rows = json.loads(found.read_text())["rows"]
    places = [(row["labels"]["ranks"], row["peer"]) for row in rows]
    assert places == [(ranks, peer) for ranks in ("1", "2") for peer in ("score", "direct")]
    for row in rows:
        (turn,) = row["turns"]
        assert (row["failed"], turn["wrong"]) == (None, 0)
        assert turn["blocked_s"] == pytest.approx(turn["checkpoint_s"] + turn["restore_s"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_opening_counts_where_memory_is_what_is_measured(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "QUICK", TINY)
    monkeypatch.setattr(hipc22, "INTERVALS", (0.001,))
    bench(disk, "hipc22:5a", "--json", str(tmp_path / "5a.json"))
    rows = json.loads((tmp_path / "5a.json").read_text())["rows"]
    assert [row["peer"] for row in rows] == ["score", "direct"]
    for row in rows:
        (turn,) = row["turns"]
        assert (row["failed"], turn["wrong"]) == (None, 0) and turn["checkpoint_s"] > turn["open_s"] > 0
        assert turn["blocked_s"] == pytest.approx(turn["checkpoint_s"] + turn["restore_s"])


def test_the_full_scale_is_the_papers(tmp_path):
    config = paper.FIGURES["hipc22:5a"].cells(FULL, Place(tmp_path))[0].config
    assert (config.checkpoints, config.device_cache, config.host_cache) == (256, 4 << 30, 32 << 30)
    config = paper.FIGURES["hpdc23:5a"].cells(FULL, Place(tmp_path))[0].config
    assert (config.checkpoints, config.median_size(), config.interval) == (SNAPSHOTS, 128 << 20, 0.01)
    assert (config.device_cache, config.host_cache) == (4 << 30, 32 << 30)


def test_rows_have_their_place_and_runs_add_up(tiny, disk, tmp_path):
    found, picture = tmp_path / "5a.json", tmp_path / "5a.png"
    for turns in (1, 2):
        text = bench(disk, "hpdc23:5a", "--peer", "double", "--json", str(found), "--plot", str(picture))
        document = json.loads(found.read_text())
        places = [(row["labels"]["order"], row["labels"]["hints"], row["peer"]) for row in document["rows"]]
        assert places == [("reverse", hints, peer) for hints in ("none", "all") for peer in ("score", "double")]
        for row in document["rows"]:
            assert row["failed"] is None
            assert [turn["wrong"] for turn in row["turns"]] == [0] * turns
            assert row["bytes"] == 6 * (64 << 10)
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert "2 to 74 times UVM" in text
    refused = bench(disk, "hpdc23:6a", "--json", str(found), code=2)
    assert "another figure" in " ".join(refused.replace("│", " ").split())


def test_a_run_that_is_stopped_keeps_the_rows_that_it_has_measured(tiny, disk, tmp_path, monkeypatch):
    found, real = tmp_path / "5a.json", contest._in_a_process

    def stopped(config, about, *rest):
        if not about.ours:
            raise KeyboardInterrupt
        return real(config, about, *rest)

    monkeypatch.setattr(contest, "_in_a_process", stopped)
    CliRunner().invoke(app, ["paper", "hpdc23:5a", "--peer", "double", "--json", str(found), "--dir", str(disk)])
    (row,) = json.loads(found.read_text())["rows"]
    assert (row["peer"], row["failed"], len(row["turns"])) == ("score", None, 1)


@pytest.mark.parametrize("key", ["hpdc23:7", "hpdc23:9"])
def test_iterations_and_ranks_are_of_the_store_alone(key, tiny, disk, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "found.png"
    bench(disk, key, "--json", str(found), "--plot", str(picture))
    rows = json.loads(found.read_text())["rows"]
    assert {row["peer"] for row in rows} == {"score"}
    if key == "hpdc23:7":
        assert [len(row["turns"][0]["restores_s"]) for row in rows] == [6, 6]
        assert [len(row["turns"][0]["prefetch_distance"]) for row in rows] == [6, 6]
    else:
        assert {row["labels"]["ranks"] for row in rows} == {"1", "2"}
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("key", COMPUTED)
def test_what_a_model_says_stands_once_however_often_it_is_asked(key, disk, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "found.png"
    said = [bench(disk, key, "--json", str(found), "--plot", str(picture)) for _ in range(2)]
    assert said[0] == said[1]
    document = json.loads(found.read_text())
    assert all(len(row["values"]) == 1 for row in document["rows"])
    along = {row["labels"][document["x"]] for row in document["rows"]}
    head, *lines = show.titles(document), *show.lines(document)
    assert {len(line) for line in lines} == {len(head)} == {1 + len(along)}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_models_reach_what_the_paper_prints():
    def values(key):
        return {tuple(labels.values()): value for labels, value in FIGURES[key].values(QUICK, Place(None), print)}

    free = values("ics19:3")
    assert round(free["1", "3.6"], 1) == 92.7  # sec. 6.2
    failures = values("ics19:14")
    assert failures["1 times as fast, 100% written", "50 ×"] < 54  # sec. 6.2.2


def test_modes_of_snapshots_have_a_value_for_each_program_and_add_up(tiny, disk, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "PROGRAMS", snapshots.PROGRAMS[:2])
    monkeypatch.setattr(snapshots, "relative", lambda runs: {name: len(runs) for name in runs})  # of noise otherwise
    found = tmp_path / "10.json"
    for turns in (1, 2):
        bench(disk, "ics19:10", "--json", str(found))
        rows = json.loads(found.read_text())["rows"]
        places = {(row["labels"]["program"], row["labels"]["mode"]) for row in rows}
        assert places == {(one.name, mode.name) for one in snapshots.PROGRAMS for mode in snapshots.FIGURE_10}
        assert all(len(row["values"]) == turns for row in rows)


def test_places_can_be_chosen(tiny, disk, tmp_path):
    bench(disk, "hpdc23:6a", "--peer", "double", "--only", "hints=all", "--json", str(tmp_path / "6a.json"))
    rows = json.loads((tmp_path / "6a.json").read_text())["rows"]
    assert [(row["labels"]["hints"], row["peer"]) for row in rows] == [("all", "score"), ("all", "double")]


def test_unified_memory_is_a_peer_where_there_is_a_gpu(tmp_path):
    for device in ("cpu", "cuda"):
        cells = FIGURES["hpdc23:5a"].cells(FULL, Place(tmp_path, device))
        assert all(("uvm" in cell.peers) == (device == "cuda") for cell in cells)


def test_what_is_no_shot_has_no_peers(disk):
    refused = bench(disk, "sc22:19", "--peer", "double", code=2)
    assert "no peers or places" in " ".join(refused.replace("│", " ").split())


def test_a_peer_that_fails_says_so_in_its_row_and_the_others_go_on(tiny, disk, monkeypatch):
    monkeypatch.setitem(PEERS, "double", About("none", "no_such_module_of_a_peer"))
    text = bench(disk, "hpdc23:6b", "--peer", "double")
    assert text.count("failed") == 2
    assert "no_such_module_of_a_peer" in text.replace("\n", "")


def test_what_is_unknown_is_refused_with_what_is_known(disk):
    assert "hpdc23:8b" in bench(disk, "hpdc23:4", code=2)
    assert "pageable" in bench(disk, "hpdc23:5a", "--peer", "tape", code=2)
    known = bench(disk, "hpdc23:5a", "--only", "order=random", code=2).replace("│", " ").split()
    assert "known are order=sequential, hints=none," in " ".join(known)
    twice = bench(disk, "hpdc23:5a", "--only", "hints=all", "--only", "hints=none", code=2)
    assert "given twice" in " ".join(twice.replace("│", " ").split())
    listed = CliRunner().invoke(app, ["paper", "--list"]).output
    assert [line.split()[0] for line in listed.splitlines()] == list(paper.FIGURES)
