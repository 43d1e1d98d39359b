"""`ebbtide bench snapshots`: each mode does what its name says, on programs small enough for a test."""

from ebbtide.bench import snapshots as bench

SIZE = 16 * bench.ZONE


def test_each_mode_copies_what_its_name_says():
    programs = [bench.Program("half", 0.5, spread=False), bench.Program("all", 1, spread=False)]
    found = bench.measure(SIZE, snapshots=3, compute=0.001, repeats=1, programs=programs)
    copied, of_all = (
        {name: runs[0]["bytes_gathered"] for name, runs in found["runs"][program.name].items()} for program in programs
    )
    for mode in bench.MODES:
        assert of_all[mode.name] == 3 * SIZE, mode.name
        if not mode.full:
            assert copied[mode.name] == 3 * SIZE // 2, mode.name
        elif mode.waits:
            assert copied[mode.name] == 3 * SIZE
        else:  # a zone that was not written since the snapshot before may still be uncopied: one copy is for both
            assert 2 * SIZE <= copied[mode.name] <= 3 * SIZE, mode.name
    assert copied["alone"] == 0
    assert found["relative"]["half"]["F"] == 1
    for name, runs in found["runs"]["half"].items():
        assert (runs[0]["faults"] > 0) == name.startswith("NB"), name


def test_time_lost_is_relative_to_full_blocking_snapshots():
    runs = {"alone": 1.0, "F": 3.0, "I": 2.0, "NB+I+H+D": 1.1}
    lost = bench.relative({name: [{"seconds": seconds}] for name, seconds in runs.items()})
    assert lost == {"F": 1, "I": 0.5, "NB+I+H+D": (1.1 - 1) / 2}
