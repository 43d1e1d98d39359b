"""docs/reliability.md is what was counted and nothing else; the trials' own parts; a few trials in short."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

from child import ended
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from reliability import lending, lending_worker, native, outcomes, page, results, signals, states
from reliability.catalogue import COMPARED, TRIALS, Trial
from reliability.hurt import Written, flip
from reliability.outcomes import Count, holds, lacking
from reliability.own import arrays
from reliability.own.themes import THEMES, theme_of
from reliability.own.values import Entry, Model, Value, leaf_of, value_of, wrong
from reliability.processes import Process
from reliability.results import DATA, PAGE, Results
from reliability.session import Session
from reliability.subject import Progress

RUN = ROOT / "reliability" / "run"
PART = {"commit": "0123456789ab", "machine": "two cores", "taken": "2026-01-01", "seconds": 60, "short": False}


def committed() -> dict:
    return json.loads((ROOT / DATA).read_text(encoding="utf-8"))


def document(**more: object) -> dict:
    count = Count(seed=7)
    count.add(outcomes.EXACT)
    found = {"ebbtide": count.as_json() | PART, "other": {"skipped": "it is not installed"} | PART}
    trial = {"name": "cut", "title": "A cut", "what": "Cut.", "must": [outcomes.EXACT], "found": found}
    subjects = {"ebbtide": {"title": "Ebbtide", "versions": "ebbtide 1", "how": "so"},
                "other": {"title": "other", "missing": "No module named 'other'"}}  # fmt: skip
    return {"subjects": subjects, "trials": [trial]} | more


def test_the_page_is_what_was_counted():
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page.page(committed())


def found_in(name: str) -> dict:
    """What was counted in a trial, by subject."""
    return {trial["name"]: trial["found"] for trial in committed()["trials"]}.get(name, {})


COUNTED = [(trial, key) for trial in TRIALS for key, found in found_in(trial.name).items() if "skipped" not in found]
OURS = [trial for trial, key in COUNTED if key == "ebbtide"]


def test_no_trial_is_on_the_page_that_is_not_made():
    names = [trial["name"] for trial in committed()["trials"]]
    assert names == [trial.name for trial in TRIALS if trial.name in names]


@pytest.mark.parametrize(("trial", "key"), COUNTED, ids=[f"{trial.name}-{key}" for trial, key in COUNTED])
def test_every_count_adds_up(trial, key):
    found = found_in(trial.name)[key]
    assert sum(found["outcomes"].values()) == found["count"]


@pytest.mark.parametrize("trial", OURS, ids=lambda trial: trial.name)
def test_nothing_was_violated(trial):
    ours = found_in(trial.name)["ebbtide"]
    for never in (outcomes.SILENT_WRONG, outcomes.CRASH, outcomes.HANG):
        assert ours["outcomes"][never] == 0, (never, ours["violations"])
    assert holds(ours, list(trial.must)), ours["violations"]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_every_trial_was_made_as_often_as_it_must_be(trial):
    found = found_in(trial.name)
    assert trial.least, "how often is enough?"
    assert list(found) == list(trial.keys)
    ours = found["ebbtide"]
    assert "skipped" not in ours, ours["skipped"]
    assert not ours["short"]
    assert not lacking(ours, trial.least)


def test_the_others_were_tried_too():
    for trial in committed()["trials"]:
        for key in set(trial["found"]) - {"ebbtide"}:
            assert trial["found"][key].get("count", 0) > 0, (trial["name"], key, trial["found"][key])
    assert list(committed()["subjects"]) == list(COMPARED)


def test_what_is_counted_too_seldom_is_named():
    count = Count(seed=7)
    for _ in range(3):
        count.add(outcomes.EXACT, "sync")
    found = count.as_json()
    assert not lacking(found, {"": 3, "sync": 3})
    assert lacking(found, {"": 4, "sync": 3, "rename": 1}) == ["cases: 3 of 4", "rename: 0 of 1"]
    assert lacking(found | {"by": {"seconds": 9}}, {"seconds": 10}) == ["seconds: 9 of 10"]


def test_a_part_is_made_again_by_itself(tmp_path):
    trials = (Trial("a", "A", "a", (outcomes.EXACT,)), Trial("b", "B", "b", (outcomes.EXACT,)))
    about = {"title": "Ebbtide", "versions": "ebbtide 1", "how": "so"}
    one, other = Count(seed=1), Count(seed=2)
    one.add(outcomes.EXACT)
    other.add(outcomes.EXACT)
    other.add(outcomes.EXACT)
    first = Results(tmp_path, afresh=True)
    first.put(trials, "b", "ebbtide", one.as_json() | PART, about)
    first.put(trials, "a", "ebbtide", one.as_json() | PART, about)
    again = Results(tmp_path, afresh=False)
    again.put(trials, "a", "ebbtide", other.as_json() | PART | {"commit": "another"}, about)
    again.put(trials, "b", "ebbtide", {"skipped": "not here"} | PART, about)
    made = json.loads((tmp_path / results.DATA).read_text())
    assert [trial["name"] for trial in made["trials"]] == ["a", "b"]
    assert [trial["found"]["ebbtide"]["count"] for trial in made["trials"]] == [2, 1], "what was counted stays"
    assert made["trials"][0]["found"]["ebbtide"]["commit"] == "another"
    assert (tmp_path / results.PAGE).read_text() == page.page(made)
    assert "commit 0123456789ab; another" in page.page(made)
    afresh = Results(tmp_path, afresh=True)
    afresh.put(trials, "a", "ebbtide", one.as_json() | PART, about)
    assert len(json.loads((tmp_path / results.DATA).read_text())["trials"]) == 1


def test_a_part_is_added_to(tmp_path):
    trials = (Trial("a", "A", "a", (outcomes.EXACT,)),)
    about = {"title": "Ebbtide", "versions": "ebbtide 1", "how": "so"}
    one, other = Count(seed=1), Count(seed=2)
    one.add(outcomes.EXACT, "sync", "said")
    other.add(outcomes.EXACT, "sync")
    other.add(outcomes.CRASH, "rename", "said")
    other.violate("it died")
    Results(tmp_path, afresh=True).put(trials, "a", "ebbtide", one.as_json() | PART, about)
    later = other.as_json() | PART | {"commit": "another", "taken": "2026-01-02"}
    adds = Results(tmp_path, afresh=False, adds=True)
    adds.put(trials, "a", "ebbtide", {"skipped": "not here"} | PART, about)
    adds.put(trials, "a", "ebbtide", later, about)
    document = json.loads((tmp_path / results.DATA).read_text())
    found = document["trials"][0]["found"]["ebbtide"]
    assert (found["count"], found["seed"], found["seconds"]) == (3, "1; 2", 120)
    assert found["by"] == {"sync": {"EXACT": 2}, "rename": {"CRASH": 1}}
    assert found["told"] == {"said": 2} and found["violations"] == ["it died"]
    assert "Taken 2026-01-01 to 2026-01-02" in page.page(document)
    assert "commit 0123456789ab; another." in page.page(document)


def test_what_must_not_be_is_shown_in_bold_with_what_it_was():
    wrong = document()
    count = Count(seed=7)
    count.add(outcomes.SILENT_WRONG)
    count.hold((outcomes.EXACT,), outcomes.SILENT_WRONG, "/some/folder/store/segment-00000001.ebb, offset 4096")
    wrong["trials"][0]["found"]["ebbtide"] = count.as_json() | PART
    text = page.page(wrong)
    assert "**1 SILENT_WRONG (must not be)**" in text
    assert "- SILENT_WRONG: segment-00000001.ebb, offset 4096" in text
    assert "must not be" not in page.page(document())


def test_who_was_not_tried_is_named_and_why():
    text = page.page(document())
    assert "Not tried on other: it is not installed." in text
    assert "No module named 'other'" in text


def test_nothing_counted_does_not_hold():
    assert not holds(Count().as_json(), [outcomes.EXACT])


def test_a_state_follows_from_seed_and_step():
    one = states.make(3, 5, 64)
    assert not states.wrong(states.make(3, 5, 64), one)
    assert "wrong bytes" in states.wrong(states.make(3, 6, 64), one)
    assert "wrong bytes" in states.wrong(states.make(4, 5, 64), one)
    other = dict(one)
    other["tokens"] = one["tokens"].astype(np.int64)
    assert "int64" in states.wrong(other, one)
    assert abs(sum(array.nbytes for array in one.values()) - 65536) < 2048


def test_a_not_a_number_of_other_bits_is_wrong():
    one = {"a": np.array([np.nan], np.float32)}
    other = {"a": one["a"].copy()}
    other["a"].view(np.uint32)[0] ^= 1
    assert "wrong bytes" in states.wrong(other, one)
    assert not states.wrong({"a": one["a"].copy()}, one)


def test_what_a_save_wrote_is_found_and_flips_hit_it(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
        (folder / "grows").write_bytes(b"a" * 10000)
        (folder / "stays").write_bytes(b"b" * 5000)
    (after / "grows").write_bytes(b"a" * 8192 + b"c" * 100000)
    (after / "new").write_bytes(b"d" * 10)
    written = Written.between(before, after)
    assert written.ranges == [(after / "grows", 8192, 108192), (after / "new", 0, 10)]
    numbers = random.Random(1)
    for path, at in [written.any_byte(numbers) for _ in range(500)] + [written.edge_byte(numbers) for _ in range(500)]:
        assert 8192 <= at < 108192 if path.name == "grows" else path.name == "new" and at < 10
    flip(after / "new", 3, 1)
    assert (after / "new").read_bytes() == b"dddeddd" + b"ddd"


@pytest.mark.parametrize(
    ("kind", "ended", "said", "end"),
    [
        ("SIGTERM, default action", {"signal": 15}, "durable 3", ("", "")),
        ("SIGINT", {"status": 0}, "interrupted KeyboardInterrupt", ("", "")),
        ("SIGINT", {"status": 0}, "refused 4 RuntimeError torn", ("", "RuntimeError torn")),
        ("SIGINT", {"status": 0}, "failed CancelledError ", ("", "CancelledError ")),
        ("SIGINT", {"signal": 11}, "durable 3", (outcomes.CRASH, "it ended with {'signal': 11}")),
        ("SIGTERM, default action", {"signal": 11}, "durable 3", (outcomes.CRASH, "it ended with {'signal': 11}")),
        (
            "SIGTERM, default action",
            {"status": 1},
            "durable 3",
            (outcomes.CLEAR_ERROR, "it was to end by the signal, and ended with {'status': 1}"),
        ),
        ("SIGTERM, a handler that ends the program", {"hung": True}, "durable 3", (outcomes.HANG, "it did not end")),
    ],
)
def test_a_librarys_own_error_is_an_end_like_the_signals(kind, ended, said, end):
    assert signals.the_end(kind, ended, Progress([["begun", "4"], said.split(" ")])) == end


def in_short(trials: str, disk: Path) -> None:
    where = ["--dir", disk, "--out", disk / "out"]
    ran = ended(sys.executable, RUN, "--short", "--only", trials, "--on", "ebbtide", "--seed", 1, *where, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_few_trials_in_short(disk):
    """Those that need no other library, no root and no luck."""
    in_short("modes,writers", disk)
    found = json.loads((disk / "out" / "benches/results/reliability.json").read_text())
    assert [trial["name"] for trial in found["trials"]] == ["writers", "modes"]
    assert (disk / "out" / "docs/reliability.md").read_text() == page.page(found)
    assert list(disk.iterdir()) == [disk / "out"], "nothing is left behind"
    assert str(disk) not in (disk / "out" / "docs/reliability.md").read_text()


@pytest.mark.parametrize(
    ("does", "outcomes_of", "violations"),
    [
        ("echo count 2 EXACT; echo by 2 sync; echo done", {"EXACT": 2}, []),
        ("echo count 1 EXACT; echo violation it is gone; echo done; exit 1", {"EXACT": 1}, ["it is gone"]),
        ("echo case a flip; kill -SEGV $$", {"CRASH": 1}, ["it crashed (signal 11): a flip"]),
        ("echo case a flip; echo count 1 EXACT; exit 0", {"EXACT": 1, "CRASH": 1}, ["it crashed (status 0): a flip"]),
        ("echo case a flip; exec sleep 100", {"HANG": 1}, ["it hangs: a flip"]),
    ],
)
def test_what_the_program_of_the_trials_says_is_counted_and_how_it_ends(does, outcomes_of, violations, tmp_path):
    session = Session(tmp_path, 1, True, {}, None)
    with Process("sh", "-c", does) as process:
        found = native.counted(session, process, 0.5)
    assert {name: many for name, many in found["outcomes"].items() if many} == outcomes_of
    assert found["violations"] == violations
    assert found["by"] == ({"sync": 2} if "by" in does else {})


def test_a_value_that_differs_in_anything_is_wrong():
    numbers = random.Random(5)
    for _ in range(60):
        bundle = arrays.bundle(numbers, 200)
        held = Value(bundle.structure, tuple(bundle.keys), bundle.leaves())
        entry, number = Entry([held]), numbers.randrange(len(held.leaves))
        assert not wrong(entry, value_of(bundle.object) if not bundle.hooked() else held)
        dtype, shape, raw = held.leaves[number]
        flipped = raw[:-1] + bytes([raw[-1] ^ 1]) if raw else b"x"
        for other in ((dtype, (*shape, 1), raw), ("|V9", shape, raw), (dtype, shape, flipped)):
            leaves = (*held.leaves[:number], other, *held.leaves[number + 1 :])
            assert wrong(entry, Value(held.structure, held.keys, leaves))
        assert wrong(entry, Value("list" if held.structure != "list" else "tuple", (), held.leaves))
        assert wrong(entry, Value(held.structure, held.keys, held.leaves[1:]))


def test_arrays_that_changed_in_between_are_of_one_moment_or_mixed_where_they_may_be():
    old, new = ((leaf_of(np.full(9, n, "u1")), leaf_of(np.full(5, n, "u1"))) for n in (1, 2))
    before, after, torn = Value("list", (), old), Value("list", (), new), Value("list", (), (old[0], new[1]))
    assert not wrong(Entry([before, after]), before) and not wrong(Entry([before, after]), after)
    assert wrong(Entry([before, after]), torn)
    assert not wrong(Entry([before, after], mixed=True), torn)
    assert wrong(Entry([before, after], mixed=True), Value("list", (), (leaf_of(np.full(9, 3, "u1")), new[1])))


def test_what_retention_keeps():
    model = Model(keep_last=2, keep_every=4)
    for version in range(11):
        model.entries["", version] = Entry([])
        model.entries["other", version * 100] = Entry([])
    assert model.retained("") == {0, 4, 8, 9, 10}
    assert Model(entries=model.entries).retained("") == set(range(11))


def test_every_theme_is_drawn():
    assert {theme_of(seed) for seed in range(400)} == set(THEMES)


def test_what_a_program_does_to_its_own_objects_in_short(disk):
    in_short("own", disk)
    assert [path.name for path in disk.iterdir()] == ["out"], "nothing is left behind"


def test_a_case_of_it_is_repeated_by_its_seed():
    worker = ROOT / "reliability/own/worker.py"
    seed = next(seed for seed in range(100) if theme_of(seed) == THEMES[-1])
    ran = ended(sys.executable, worker, seed, seed)
    assert "Traceback" not in ran.stdout + ran.stderr
    told = [line for line in ran.stdout.splitlines() if line.startswith("checkpoint")]
    assert told and told[: len(told) // 2] == told[len(told) // 2 :]


def test_jobs_with_velocs_calls_are_killed_in_short(disk):
    if shutil.which("mpirun") is None or not (ROOT / "build/release/src/veloc/libveloc-client.so").exists():
        pytest.skip("MPI, or build/release's libveloc-client.so, is not there")
    in_short("veloc", disk)
    assert [path.name for path in disk.iterdir()] == ["out"], "nothing is left behind"


def test_lenders_and_borrowers_are_killed_in_short(disk):
    in_short("lending", disk)
    assert [path.name for path in disk.iterdir()] == ["out"], "nothing is left behind"


def test_a_wrong_byte_of_a_borrower_is_told(disk, monkeypatch):
    really = lending_worker.value
    monkeypatch.setattr(lending_worker, "value", lambda rank, version: really(rank, version) + (random.random() < 0.1))
    turns, _ = lending.play(5, disk, 3)
    assert turns[-1][1] == outcomes.SILENT_WRONG
    assert "has other bytes" in turns[-1][3]


@pytest.mark.parametrize(
    ("does", "outcome"), [(lambda pipe: time.sleep(100), outcomes.HANG), (lambda pipe: os._exit(3), outcomes.CRASH)]
)
def test_a_process_that_hangs_or_ends_is_told(does, outcome, monkeypatch):
    monkeypatch.setattr(lending, "ANSWER_S", 1.0)
    child = lending.Child("one", does)
    with pytest.raises(lending.Breach, match=f"{outcome}.*one"):
        child.answer()
    child.kill()


def test_an_unknown_trial_is_refused_by_name():
    ran = ended(sys.executable, RUN, "--only", "typo")
    assert ran.returncode != 0 and "typo" in ran.stderr
