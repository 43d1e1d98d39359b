"""Programs drawn by Hypothesis over the planner, in the simulator's virtual time.

After every event the planner checks itself (no overlap in an arena, counters, uses, hints), an illegal transition or a call
that nothing will ever answer raises, and every byte is followed: a command that reads what is not there, or a restore that is
given other bytes than were written, raises as well. The answers are judged in planner_model.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from planner_model import BACKGROUND, PAGE, Fate, JudgedPlanner, padded, taken

EXAMPLES, STEPS = 600, 50
PROMISED = 20_000  # steps a run; some examples end early
VERSIONS = st.integers(0, 7)
HISTORIES = st.integers(0, 1)


class PlannerMachine(JudgedPlanner):
    @rule(history=HISTORIES, version=VERSIONS, size=st.integers(0, 40 * PAGE))
    def checkpoint(self, history: int, version: int, size: int) -> None:
        fate = self.fate(history, version)
        certain = self.certain(history, version)
        room = self.surely_room(size, False)
        answer = self.give(history, "checkpoint", version=version, bytes=size)
        if certain and fate.state in ("live", "reserved"):
            self.judge(answer, {"version_exists"})
            return
        if not self.fits(size) and size:
            allowed = {"too_large"}
        else:
            allowed = {"ok"} if room or size == 0 else {"ok", "no_space"}
        if not certain or fate.state == "unsure" or fate.borrowed:
            allowed |= {"version_exists", "dropped"}
        reason = self.judge(answer, allowed)
        if reason == "ok":
            self.timely(answer, size)
            self.fates[history, version] = Fate("live" if certain else "unsure", size, fate.borrowed)
        elif reason in ("version_exists", "dropped", "lost"):
            fate.state = "unsure"
        elif fate.state == "consumed":
            fate.state = "unsure"

    @rule(history=HISTORIES, version=VERSIONS, keep=st.booleans())
    def restore(self, history: int, version: int, keep: bool) -> None:
        fate = self.fate(history, version)
        certain = self.certain(history, version)
        answer = self.give(history, "restore", version=version, flag=keep)
        expected = {
            "live": {"ok"},
            "consumed": {"consumed"},
            "absent": {"unknown_version"},
            "reserved": {"unknown_version"},
        }
        doubt = {"ok", "consumed", "unknown_version", "dropped"}
        reason = self.judge(answer, expected.get(fate.state, doubt) if certain else doubt)
        if reason == "lost":
            fate.state = "unsure"
        if reason != "ok":
            return
        self.timely(answer, fate.size)
        if version in self.hints[history]:
            self.hints[history].remove(version)
        if not certain or fate.borrowed or fate.state != "live":
            fate.state = "unsure"
        elif not keep and version not in self.hints[history]:
            fate.state = "consumed"

    def live(self) -> list[tuple[int, int]]:
        return [key for key, fate in self.fates.items() if fate.state == "live"]

    @precondition(lambda self: self.live())
    @rule(data=st.data(), keep=st.booleans())
    def restore_what_is_there(self, data: st.DataObject, keep: bool) -> None:
        self.restore(*data.draw(st.sampled_from(self.live())), keep)

    @precondition(lambda self: self.live() and self.tiers[0].name != "local")
    @rule(data=st.data(), later=st.booleans(), keep=st.booleans())
    def borrow_what_is_there(self, data: st.DataObject, later: bool, keep: bool) -> None:
        self.borrow(*data.draw(st.sampled_from(self.live())), later, keep)

    @rule(history=HISTORIES, size=st.integers(1, 12 * PAGE), count=st.integers(2, 6), hinted=st.booleans())
    def write_several(self, history: int, size: int, count: int, hinted: bool) -> None:
        """A small forward pass, foretold in reverse."""
        free = [v for v in range(8) if self.fate(history, v).state in ("absent", "consumed")][:count]
        if hinted:
            self.hint(history, free[::-1], False)
        for version in free:
            self.checkpoint(history, version, size)

    @rule(version=VERSIONS, size=st.integers(1, 20 * PAGE), write=st.booleans(), steps=st.integers(0, 40))
    def call_in_background(self, version: int, size: int, write: bool, steps: int) -> None:
        fate = self.fate(0, version)
        self.in_background[0, version] = self.in_background.get((0, version), 0) + 1
        if write:
            fate.size = max(fate.size, size)
            self.give(BACKGROUND, "checkpoint", version=version, bytes=size, async_=True)
        else:
            self.give(BACKGROUND, "restore", version=version, async_=True)
            if version in self.hints[0]:  # its hint is taken, or comes back should it fail
                self.hints[0] = [v for v in self.hints[0] if v != version]
                self.give(0, "unhint", versions=[version] * 9)
        fate.state = "unsure"
        self.advance(steps)

    @rule(steps=st.integers(1, 60))
    def advance(self, steps: int) -> None:
        for _ in range(steps):
            if not self.sim.step():
                break
        self.collect()

    @rule()
    def settle(self) -> None:
        """Everything comes to rest: then every call has been answered."""
        while self.sim.step():
            pass
        self.collect()
        assert not self.in_background
        assert self.sim.pending == 0 or self.faulty

    @rule(history=HISTORIES, order=st.lists(VERSIONS, max_size=8), replace=st.booleans())
    def hint(self, history: int, order: list[int], replace: bool) -> None:
        self.give(history, "hint", versions=order, flag=replace)
        self.hints[history] = ([] if replace else self.hints[history]) + order

    @rule(history=HISTORIES, version=VERSIONS)
    def hint_front(self, history: int, version: int) -> None:
        self.give(history, "hint_front", version=version)
        self.hints[history].insert(0, version)

    @rule(history=HISTORIES, versions=st.lists(VERSIONS, max_size=4))
    def unhint(self, history: int, versions: list[int]) -> None:
        self.give(history, "unhint", versions=versions)
        if not versions:
            self.hints[history] = []
        for version in versions:
            if version in self.hints[history]:
                self.hints[history].remove(version)

    @rule(history=HISTORIES)
    def start_prefetch(self, history: int) -> None:
        self.give(history, "start_prefetch")

    @rule(history=HISTORIES, version=VERSIONS, everything=st.sampled_from([False, False, False, True]))
    def drop(self, history: int, version: int, everything: bool) -> None:
        self.give(history, "drop", version=version, flag=everything)
        for key in [(history, v) for v in range(8)] if everything else [(history, version)]:
            self.hints[history] = [v for v in self.hints[history] if v != key[1]]
            if key in self.fates:
                fate = self.fates[key]
                quiet = fate.state != "reserved" and not fate.borrowed and key not in self.in_background
                fate.state = "absent" if quiet and not self.faulty else "unsure"

    @precondition(lambda self: self.tiers[0].name != "local")
    @rule(
        history=HISTORIES,
        version=VERSIONS,
        size=st.integers(1, 8 * PAGE),
        ending=st.sampled_from(["commit", "abandon", "later"]),
    )
    def reserve(self, history: int, version: int, size: int, ending: str) -> None:
        fate = self.fate(history, version)
        certain = self.certain(history, version)
        room = self.surely_room(size, True)
        answer = self.give(history, "reserve", version=version, bytes=size)
        if certain and fate.state in ("live", "reserved"):
            self.judge(answer, {"version_exists"})
            return
        if padded(size) > self.tiers[0].capacity:
            allowed = {"too_large"}
        else:
            allowed = {"ok"} if room else {"ok", "no_space"}
        if not certain or fate.state == "unsure" or fate.borrowed:
            allowed |= {"version_exists", "dropped"}
        reason = self.judge(answer, allowed)
        if reason != "ok":
            if reason in ("version_exists", "dropped", "lost") or fate.state == "consumed":
                fate.state = "unsure"
            return
        self.reservations[history, version] += 1
        self.fates[history, version] = Fate("reserved" if certain else "unsure", size, fate.borrowed)
        if ending != "later":
            self.end_reservation(history, version, ending)

    @rule(history=HISTORIES, version=VERSIONS, ending=st.sampled_from(["commit", "abandon"]))
    def end_reservation(self, history: int, version: int, ending: str) -> None:
        self.give(history, ending, version=version)
        self.reservations[history, version] = max(0, self.reservations[history, version] - 1)
        fate = self.fate(history, version)
        if fate.state == "reserved" and self.certain(history, version):
            fate.state = "live" if ending == "commit" else "absent"
        elif fate.state in ("reserved", "unsure"):
            fate.state = "unsure"

    @precondition(lambda self: self.tiers[0].name != "local")
    @rule(history=HISTORIES, version=VERSIONS, later=st.booleans(), keep=st.booleans())
    def borrow(self, history: int, version: int, later: bool, keep: bool) -> None:
        fate = self.fate(history, version)
        certain = self.certain(history, version)
        answer = self.give(history, "borrow", version=version)
        expected = {
            "live": {"ok"},
            "consumed": {"consumed"},
            "absent": {"unknown_version"},
            "reserved": {"unknown_version"},
        }
        doubt = {"ok", "consumed", "unknown_version", "dropped", "no_space", "too_large"}
        allowed = expected.get(fate.state, doubt) if certain else doubt
        if "ok" in allowed:
            too_large = padded(fate.size) > self.tiers[0].capacity
            sure = certain and fate.state != "unsure"
            allowed = (allowed - {"ok"} if too_large and sure else allowed) | {"no_space"}
            if too_large or not sure:
                allowed = allowed | {"too_large"}
        if self.judge(answer, allowed) != "ok":
            return
        if version in self.hints[history]:
            self.hints[history].remove(version)
        fate.borrowed += 1
        if not later:
            self.release(history, version, keep)

    @rule(history=HISTORIES, version=VERSIONS, keep=st.booleans())
    def release(self, history: int, version: int, keep: bool) -> None:
        self.give(history, "release", version=version, flag=keep)
        fate = self.fate(history, version)
        if not fate.borrowed:
            return
        fate.borrowed -= 1
        if not self.certain(history, version) or fate.borrowed or fate.state != "live":
            fate.state = "unsure"
        elif not keep and version not in self.hints[history]:
            fate.state = "consumed"

    @rule(version=VERSIONS, whole=st.booleans(), tier=st.integers(0, 2))
    def wait_in_background(self, version: int, whole: bool, tier: int) -> None:
        if tier < len(self.tiers) and not self.any_reserved():
            self.give(BACKGROUND, "wait", version=version, flag=whole, tier=tier, async_=True)

    def any_reserved(self) -> bool:
        return any(fate.state in ("reserved", "unsure") for fate in self.fates.values())

    @precondition(lambda self: self.faulty)
    @rule(link=st.integers(0, 7), mend=st.booleans())
    def break_link(self, link: int, mend: bool) -> None:
        names = self.machine._bare().link_names()
        if link < len(names):
            self.give(0, "mend_link" if mend else "break_link", link=link)

    @invariant()
    def nothing_is_broken(self) -> None:
        taken["steps"] += 1
        if hasattr(self, "sim"):
            self.sim.check()
            for index, tier in enumerate(self.tiers):
                assert self.sim.used(index) <= int(tier.capacity)

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        for history in (0, 1):
            for version in range(8):
                while self.fate(history, version).borrowed:
                    self.release(history, version, False)
                for _ in range(self.reservations[history, version]):
                    self.give(history, "abandon", version=version)
        self.settle()
        # Nothing is left behind: once all is dropped, every tier is empty.
        for history in (0, 1):
            self.give(history, "drop", flag=True)
        self.settle()
        assert [self.sim.used(index) for index in range(len(self.tiers))] == [0] * len(self.tiers)


TestPlanner = PlannerMachine.TestCase
TestPlanner.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),  # the same programs each time there; new ones everywhere else
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def test_as_many_steps_as_promised() -> None:
    """The machine above really ran, and its calls were answered."""
    if taken["steps"] == 0:
        return  # it was left out of this run
    assert taken["steps"] >= PROMISED
    assert taken["answers"] >= taken["steps"] // 5
