"""The jobs that run when another one is needed."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, fields
from pathlib import Path

from ebbtide.errors import InvalidArgument


@dataclass(frozen=True)
class Job:
    """``elapsed``, ``since_last_checkpoint`` and ``remaining``: seconds of work. ``bytes``: of one checkpoint of all its nodes.

    Raises InvalidArgument, naming the field, what was given and what would be right.
    """

    name: str
    nodes: int
    elapsed: float
    since_last_checkpoint: float
    remaining: float
    bytes: float

    def __post_init__(self) -> None:
        if not (float(self.nodes).is_integer() and 1 <= self.nodes <= 10**6):
            raise InvalidArgument(
                f"nodes: {self.nodes!r} of job {self.name!r} is not a whole number from 1 to a million"
            )
        for field in ("elapsed", "since_last_checkpoint", "remaining", "bytes"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidArgument(f"{field}: {value!r} of job {self.name!r} is not a finite number of at least 0")
        if self.since_last_checkpoint > self.elapsed:
            raise InvalidArgument(
                f"since_last_checkpoint: {self.since_last_checkpoint!r} of job {self.name!r} is more than the "
                f"{self.elapsed!r} seconds that it has run"
            )

    @property
    def unsaved(self) -> float:
        """Node-seconds that killing it loses."""
        return self.nodes * self.since_last_checkpoint


FIELDS = tuple(field.name for field in fields(Job))


def read_jobs(file: Path) -> list[Job]:
    """Jobs from comma-separated values: the header has the names of Job's fields, in any order, then a row a job.

    Raises InvalidArgument, naming file, line and field.
    """
    try:
        rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"jobs: {file} cannot be read: {error}; a text file is needed") from None
    head = [name.strip() for name in rows[0]] if rows else []
    if sorted(head) != sorted(FIELDS):
        raise InvalidArgument(
            f"jobs: {file}, line 1: {','.join(head)[:100]!r} does not have the fields {','.join(FIELDS)}"
        )
    jobs, names = [], set()
    for number, row in enumerate(rows[1:], 2):
        where = f"jobs: {file}, line {number}"
        if len(row) != len(head):
            raise InvalidArgument(f"{where}: {','.join(row)[:100]!r} has {len(row)} fields; {len(head)} are needed")
        given = dict(zip(head, row))
        name = given.pop("name").strip()
        if name in names:
            raise InvalidArgument(f"{where}: name: {name!r} is there already; each job needs one of its own")
        names.add(name)
        numbers = {}
        for field, text in given.items():
            try:
                numbers[field] = float(text)
            except ValueError:
                raise InvalidArgument(f"{where}: {field}: {text[:100]!r} is not a number") from None
        try:
            job = Job(name, **numbers)  # type: ignore[arg-type]
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from None
        jobs.append(job)
    return [Job(job.name, int(job.nodes), *(getattr(job, field) for field in FIELDS[2:])) for job in jobs]
