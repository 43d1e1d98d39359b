"""The processes of a torch.distributed job, as a manager sees them. Without one, there is one rank."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ebbtide._training.keeper import OneRank
from ebbtide.errors import InvalidArgument

_NAME = re.compile(r"rank-(\d+)-of-(\d+)")


class Ranks(OneRank):
    def __init__(self) -> None:
        there = dist.is_available() and dist.is_initialized()
        self.count = dist.get_world_size() if there else 1
        self.rank = dist.get_rank() if there else 0

    def gather(self, mine: Any) -> list[Any]:
        if self.count == 1:
            return [mine]
        all_of_them: list[Any] = [None] * self.count
        dist.all_gather_object(all_of_them, mine)
        return all_of_them

    def directory(self, given: str | os.PathLike[str]) -> Path:
        """This rank's part of a directory; refuses one that another number of ranks wrote."""
        top = Path(given)
        parts = [_NAME.fullmatch(entry.name) for entry in top.iterdir()] if top.is_dir() else []
        others = {int(part[2]) for part in parts if part} - {self.count}
        if others or (self.count > 1 and (top / "store").exists()):
            wrote = max(others, default=1)
            raise InvalidArgument(
                f"{top} was written by {wrote} rank{'s' if wrote > 1 else ''}, and this job has {self.count}: a manager resumes "
                "with as many; torch.distributed.checkpoint with ebbtide.torch.Writer and Reader loads with any number"
            )
        if self.count == 1:
            return top
        top.mkdir(parents=True, exist_ok=True)
        return top / f"rank-{self.rank}-of-{self.count}"
