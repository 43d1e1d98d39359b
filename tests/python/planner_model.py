"""What the planner's answers are judged against: a naive model of what each version is, and the times that are allowed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from ebbtide import _models
from ebbtide.sim import Link, Machine, Tier

PAGE = 4096
BACKGROUND = 2  # the client that is a second thread of history 0; client i is the one thread of history i

taken = {"steps": 0, "answers": 0}


@dataclass
class Fate:
    """What is known of one version."""

    state: str = "absent"  # absent, live, consumed, reserved, unsure
    size: int = 0
    borrowed: int = 0


def padded(size: int) -> int:
    return -(-size // PAGE) * PAGE


class JudgedPlanner(RuleBasedStateMachine):
    """A simulated store: operations in, answers judged."""

    @initialize(
        device=st.sampled_from([0, 1, 4, 16]),
        host=st.sampled_from([0, 2, 8, 32]),
        local=st.sampled_from([0, 16, 256]),
        chunk=st.sampled_from([1, 2, 8]),
        slots=st.integers(1, 4),
        rates=st.lists(st.integers(1, 50), min_size=8, max_size=8),
        shared_disk=st.booleans(),
        eviction=st.sampled_from(["score", "score_paper", "lru", "fifo"]),
        prefetch=st.sampled_from(["auto", "auto", "manual"]),
        fault=st.sampled_from([0.0, 0.0, 0.1]),
        permanent=st.sampled_from([0.0, 0.0, 0.03]),
        seed=st.integers(1, 1 << 30),
    )
    def begin(
        self,
        device: int,
        host: int,
        local: int,
        chunk: int,
        slots: int,
        rates: list[int],
        shared_disk: bool,
        eviction: Any,
        prefetch: Any,
        fault: float,
        permanent: float,
        seed: int,
    ) -> None:
        if device + host + local == 0:
            device = 4
        self.tiers = [
            tier
            for tier in (Tier("device", device * PAGE), Tier("host", host * PAGE), Tier("local", local * PAGE))
            if tier.capacity
        ]
        names = Machine(self.tiers)._bare().link_names()
        links = {}
        for name, rate in zip(names, rates):
            group = "disk" if shared_disk and "local" in name else None
            links[name] = Link(rate * 1e7, chunk=chunk * PAGE, group=group)
        self.machine = Machine(self.tiers, links, {"disk": 0.0}, eviction, prefetch, chunk * PAGE, slots)
        self.links = links
        self.faulty = fault + permanent > 0
        self.sim = _models.Simulation(
            self.machine._make(),
            [[(0, 0, []), (1, 0, []), (0, 0, [])]],
            fault=fault,
            permanent=permanent,
            seed=seed,
            verify=True,
            check_every=1,
        )
        self.fates: dict[tuple[int, int], Fate] = {}
        self.hints: dict[int, list[int]] = {0: [], 1: []}
        self.in_background: dict[tuple[int, int], int] = {}
        self.crowded = False
        # Open ones: dropped while it is reserved, a version may be reserved once more.
        self.reservations: Counter[tuple[int, int]] = Counter()
        while self.sim.step():
            pass
        self.sim.take_answers()

    # --- carrying out ---------------------------------------------------------------------------------------------

    def fate(self, history: int, version: int) -> Fate:
        return self.fates.setdefault((history, version), Fate())

    def give(self, client: int, kind: str, **arguments: Any) -> dict[str, Any] | None:
        """One operation, carried out to its end; a call's answer."""
        self.crowded = bool(self.in_background)  # for some of its time, whatever has ended by its end
        self.sim.append(client, _models.SimOp.make(kind, **arguments))
        assert self.sim.run_client(client), "nothing moves and the call is not over"
        return self.collect(client)

    def collect(self, client: int | None = None) -> dict[str, Any] | None:
        mine = None
        for answer in self.sim.take_answers():
            taken["answers"] += 1
            who, kind, history, version, size, begun, ended, reason, *_, detail, _ = answer
            told = {"kind": kind, "version": version, "reason": reason, "detail": detail, "took": (ended - begun) / 1e9}
            if who == BACKGROUND:
                self.end_background(history, version, told)
            else:
                assert who == client
                mine = told
        return mine

    def end_background(self, history: int, version: int, answer: dict[str, Any]) -> None:
        key = (history, version)
        if answer["kind"] != "wait":
            self.in_background[key] -= 1
            if self.in_background[key] == 0:
                del self.in_background[key]
        reasons = {"ok", "version_exists", "unknown_version", "consumed", "too_large", "no_space", "dropped"}
        assert answer["reason"] in reasons | ({"lost"} if self.faulty else set()), answer

    def judge(self, answer: dict[str, Any] | None, allowed: set[str]) -> str:
        assert answer is not None, "a call ended without an answer"
        if self.faulty:
            allowed = allowed | {"lost", "no_space"}
        assert answer["reason"] in allowed, (answer, allowed, self.fates)
        return str(answer["reason"])

    # --- what must be so ------------------------------------------------------------------------------------------

    def certain(self, history: int, version: int) -> bool:
        return not self.faulty and (history, version) not in self.in_background

    def fits(self, size: int) -> bool:
        return any(padded(size) <= tier.capacity for tier in self.tiers)

    def surely_room(self, size: int, device_only: bool) -> bool:
        """Whether some tier has room besides everything that may be anywhere, however scattered."""
        others = [padded(fate.size) for fate in self.fates.values() if fate.state != "absent"]
        live, count = 2 * sum(others), 2 * len(others)
        for tier in self.tiers[: 1 if device_only else None]:
            free = int(tier.capacity) - live
            needed = padded(size)
            if tier.name == "local" and needed <= free:
                return True
            if tier.name != "local" and needed + PAGE <= free / (count + 1):
                return True
        return False

    def rate(self, name: str) -> float:
        link = self.links[name]
        sharers = sum(1 for other in self.links.values() if link.group and other.group == link.group)
        return link.bytes_per_s / max(1, sharers)

    def direct_s(self, size: int) -> float:
        """Over the slowest link of the route to or from the slowest tier."""
        routes = {
            "device": ["app>device", "device>app"],
            "host": ["app>host", "host>app"],
            "local": ["app>host", "host>local", "local>host", "host>app"],
        }
        return max(size / self.rate(name) for tier in self.tiers for name in routes[tier.name])

    def timely(self, answer: dict[str, Any] | None, size: int) -> None:
        """Twice the direct time, and what each link held already: as many chunks as it is deep."""
        if answer is None or self.faulty or self.crowded or answer["reason"] != "ok":
            return
        chunks = sum(link.depth * link.chunk / self.rate(name) for name, link in self.links.items())  # type: ignore[operator]
        assert answer["took"] <= 2 * self.direct_s(size) + chunks + 1e-6, (answer, size, chunks)
