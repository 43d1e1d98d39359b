"""Several ranks at once: a process each, which meet at a barrier when they are tightly coupled (hpdc23 sec. 5.3.1)."""

from __future__ import annotations

import multiprocessing
import traceback
from multiprocessing.connection import wait

from .rank import Job, Outcome, run

_PATIENCE = 600.0  # seconds that a rank waits for the others: after that one of them hangs


class RankFailed(RuntimeError):
    """A rank ended without a result; the message holds its own."""


def run_all(jobs: list[Job], tight: bool) -> list[Outcome]:
    """Runs every job, one process each (a single one in this process); outcomes in the order of the jobs."""
    if len(jobs) == 1:
        return [run(jobs[0], lambda: None, lambda: None)]
    context = multiprocessing.get_context("spawn")  # never fork: the parent may have threads and mapped caches
    barrier = context.Barrier(len(jobs))
    processes, pipes = [], []
    for job in jobs:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(job, barrier, tight, theirs), name=f"rank {job.rank}")
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


def _child(job: Job, barrier, tight: bool, pipe) -> None:
    def meet() -> None:
        barrier.wait(_PATIENCE)

    try:
        pipe.send(run(job, meet, meet if tight else lambda: None))
    except BaseException:
        pipe.send(traceback.format_exc())
        barrier.abort()


def _collect(pipes: list) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    left = {pipe: number for number, pipe in enumerate(pipes)}
    failures: list[str] = []
    while left:
        for pipe in wait(list(left)):
            number = left.pop(pipe)
            try:
                said = pipe.recv()
            except EOFError:
                said = "the process ended without a word"
            if isinstance(said, Outcome):
                outcomes[number] = said
            else:
                failures.append(f"rank {number}: {said}")
                if "ended without a word" in said:
                    raise RankFailed(failures[-1])
    if failures:
        # A broken barrier is only what the others saw of it.
        failures.sort(key=lambda text: "BrokenBarrierError" in text)
        raise RankFailed(failures[0])
    return [outcomes[number] for number in range(len(pipes))]
