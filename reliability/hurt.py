"""One byte flipped, or a file cut short, in what the newest of two saved steps wrote; then a restart."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from reliability import outcomes
from reliability.outcomes import Count
from reliability.session import Session
from reliability.subject import Subject

BLOCK = 4096
SMALL = 64 << 10
MUST = (outcomes.EXACT, outcomes.OLDER_EXACT)


@dataclass
class Written:
    """Where the newest step is: ranges of bytes of files that its save added or changed."""

    ranges: list[tuple[Path, int, int]]  # file, from, to

    @classmethod
    def between(cls, before: Path, after: Path) -> Written:
        ranges = []
        for path in sorted(path for path in after.rglob("*") if path.is_file()):
            old = before / path.relative_to(after)
            new_bytes = path.read_bytes()
            old_bytes = old.read_bytes() if old.exists() else b""
            for at in range(0, len(new_bytes), BLOCK):
                if new_bytes[at : at + BLOCK] != old_bytes[at : at + BLOCK]:
                    end = min(at + BLOCK, len(new_bytes))
                    if ranges and ranges[-1][0] == path and ranges[-1][2] == at:
                        ranges[-1] = (path, ranges[-1][1], end)
                    else:
                        ranges.append((path, at, end))
        return cls(ranges)

    def any_byte(self, random) -> tuple[Path, int]:
        at = random.randrange(sum(end - begin for _, begin, end in self.ranges))
        for path, begin, end in self.ranges:
            if at < end - begin:
                return path, begin + at
            at -= end - begin
        raise AssertionError

    def edge_byte(self, random) -> tuple[Path, int]:
        """Where formats keep what they say of themselves: the ends of a range, or anywhere in a small one."""
        path, begin, end = random.choice(self.ranges)
        if end - begin <= SMALL:
            return path, random.randrange(begin, end)
        return path, random.choice([begin + random.randrange(BLOCK), end - 1 - random.randrange(BLOCK)])

    @property
    def files(self) -> list[Path]:
        return sorted({path for path, _, _ in self.ranges})


def two_steps(session: Session, subject: Subject, area: Path) -> tuple[Path, Written]:
    store, before = area / "store", area / "before"
    subject.saved(store, session.seed, area / "progress-0", steps=1)
    shutil.copytree(store, before)
    subject.saved(store, session.seed, area / "progress-1", first=1, steps=1)
    written = Written.between(before, store)
    outcome, said, step = subject.restart(store, session.seed, 1)
    if outcome != outcomes.EXACT or step != 1:
        raise RuntimeError(f"{subject.key}: a restart of an intact directory gave {outcome}: {said}")
    return store, written


def flips(session: Session, subject: Subject) -> Count:
    count, random = Count(session.seed), session.random("flipped", subject.key)
    with session.directory("flip") as area:
        store, written = two_steps(session, subject, area)
        for turn in range(session.count("flipped", 1000, 40)):
            kind = "any byte" if turn % 2 else "ends of files, small files"
            path, at = (written.any_byte if turn % 2 else written.edge_byte)(random)
            bits = random.randrange(1, 256)
            flip(path, at, bits)
            outcome, said, _ = subject.restart(store, session.seed, 1)
            flip(path, at, bits)
            count.add(outcome, kind, said if outcome not in MUST else "")
            count.hold(MUST, outcome, f"{path.relative_to(store)}, offset {at}, xor {bits}: {said}")
    return count


def flip(path: Path, at: int, bits: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ bits]))


def truncations(session: Session, subject: Subject) -> Count:
    count, random = Count(session.seed), session.random("cut", subject.key)
    with session.directory("cut") as area:
        store, written = two_steps(session, subject, area)
        for _ in range(session.count("cut", 200, 12)):
            path = random.choice(written.files)
            whole = path.read_bytes()
            length = random.choice(
                [0, len(whole) // 2, len(whole) - 1, *(random.randrange(len(whole)) for _ in range(5))]
            )
            with open(path, "r+b") as file:
                file.truncate(length)
            outcome, said, _ = subject.restart(store, session.seed, 1)
            with open(path, "r+b") as file:
                file.write(whole)
            count.add(outcome, told=said if outcome not in MUST else "")
            count.hold(MUST, outcome, f"{path.relative_to(store)} cut from {len(whole)} to {length}: {said}")
    return count
