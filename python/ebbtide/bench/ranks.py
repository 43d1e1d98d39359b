"""Several ranks at once: a process each, which meet at a barrier when they are tightly coupled (hpdc23 sec. 5.3.1)."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .progress import Advance, nothing
from .rank import Job, Outcome, run

T = TypeVar("T")
Meet: TypeAlias = Callable[[], None]

_PATIENCE = 600.0  # seconds that a rank waits for the others: longer means that one of them hangs


class _Failure(NamedTuple):
    """How a rank failed; `by_others`: only because another one had, which broke the barrier."""

    text: str
    by_others: bool


class RankFailed(RuntimeError):
    """A rank ended without a result; the message holds its own."""


def run_all(jobs: list[Job], tight: bool, advance: Advance = nothing) -> list[Outcome]:
    """Runs every job, one process each; outcomes in the order of the jobs. A single one runs in this process, and
    `advance` is called after each of its calls."""
    if len(jobs) == 1:
        return [run(jobs[0], nothing, nothing, advance)]
    return each_in_a_process([partial(_rank, job, tight) for job in jobs])


def _rank(job: Job, tight: bool, meet: Meet) -> Outcome:
    return run(job, meet, meet if tight else nothing)


def each_in_a_process(works: Sequence[Callable[[Meet], T]]) -> list[T]:
    """What each of `works` returns, in their order. A process runs each, and all wait for one another in what it is
    given. Raises RankFailed where one fails."""
    context = multiprocessing.get_context("spawn")  # never fork: the parent may have threads and mapped caches
    barrier = context.Barrier(len(works))
    processes, pipes = [], []
    for number, work in enumerate(works):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(work, barrier, theirs), name=f"rank {number}")
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    try:
        return _collect(pipes)
    except BaseException:
        barrier.abort()  # the others come to their end by an exception
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        raise
    finally:
        for process in processes:
            process.join()


def _child(work: Callable[[Meet], Any], barrier, pipe) -> None:
    def meet() -> None:
        barrier.wait(_PATIENCE)

    try:
        pipe.send(work(meet))
    except BaseException as error:
        by_others = any(isinstance(one, threading.BrokenBarrierError) for one in (error, error.__context__))
        pipe.send(_Failure(traceback.format_exc(), by_others))
        barrier.abort()


def _collect(pipes: list) -> list:
    outcomes: dict[int, Any] = {}
    left = {pipe: number for number, pipe in enumerate(pipes)}
    failures: list[_Failure] = []
    while left:
        for pipe in wait(list(left)):
            number = left.pop(pipe)
            try:
                said = pipe.recv()
            except EOFError:
                raise RankFailed(f"rank {number}: the process ended without a message") from None
            if isinstance(said, _Failure):
                failures.append(_Failure(f"rank {number}: {said.text}", said.by_others))
            else:
                outcomes[number] = said
    if failures:
        raise RankFailed(min(failures, key=lambda failure: failure.by_others).text)
    return [outcomes[number] for number in range(len(pipes))]
