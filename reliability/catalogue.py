"""Every trial: what it does, what must come of it, and whom it is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reliability import access, full, fuzz, hurt, killed, lending, native, node, signals, stalled, unplugged
from reliability.outcomes import CLEAR_ERROR, EXACT, OLDER_EXACT, Count
from reliability.own import trial as own
from reliability.results import SUBJECTS
from reliability.session import Session
from reliability.subject import Subject
from reliability.veloc import trial as veloc

CALLS = ("open", "close", "read", "write", "truncate", "preallocate", "punch", "sync", "sync_directory",
         "make_directory", "rename", "remove", "list", "status", "lock", "drop_cached", "next_data", "describe",
         "open_ring")  # fmt: skip
MISTAKES = ("store-file", "store-name", "store-directory", "segment-name", "payload", "mark", "drop", "index-removal",
            "index-file", "segment-removal", "mark-before-payload", "report-before-mark", "report-before-name",
            "punch-before-drop", "name-before-store", "name-before-index", "index-stays-too-long",
            "report-before-drop", "opening", "opening-names", "marks-stay")  # fmt: skip
COMPARED = SUBJECTS


@dataclass(frozen=True)
class Trial:
    name: str
    title: str
    what: str
    must: tuple[str, ...]  # what Ebbtide must give; others are counted
    compared: Callable[[Session, Subject], Count] | None = None  # on every subject
    ours: Callable[[Session], Count] | None = None  # on Ebbtide alone
    native: tuple[str, ...] = ()  # of ebb_trials: its name for the trial, and options
    sanitized: bool = False  # by an ebb_trials with the address sanitizer
    fuzzed: Callable[[Session], dict[str, Any]] | None = None
    least: dict[str, int] = field(default_factory=dict)  # of Ebbtide's counts: of all ("") and of those apart

    def run(self, session: Session, subjects: Callable[[str], Subject], key: str) -> dict[str, Any]:
        if self.native:
            return native.run(session, self.name, self.native, self.sanitized)
        if self.fuzzed:
            return self.fuzzed(session)
        if self.ours is not None:
            subjects("ebbtide")  # or it is missing
            return self.ours(session).as_json()
        assert self.compared is not None
        return self.compared(session, subjects(key)).as_json()

    @property
    def library(self) -> bool:
        """Whether it is made through a library, and not on files alone."""
        return bool(self.compared or self.ours)

    @property
    def keys(self) -> tuple[str, ...]:
        return COMPARED if self.compared else ("ebbtide",)


TRIALS = (
    Trial(
        "kills",
        "kill -9 at every kind of call, and at random moments",
        'A process that writes, three of four at level "storage", is killed by SIGKILL at random moments, and at,'
        " in the midst of and behind each kind of call on its files; the store is opened again. What was reported"
        " durable must be there, and nothing torn is offered.",
        (EXACT, OLDER_EXACT),
        native=("kills",),
        least={"a random moment": 1000} | {call: 20 for call in CALLS},
    ),
    Trial(
        "snapshot_kills",
        "kill -9, with snapshots",
        "The trial above, where half of what is written are snapshots of memory that goes on changing, each leaning on"
        " those before it, and each process goes on from memory that it restored.",
        (EXACT, OLDER_EXACT),
        native=("snapshot_kills",),
        least={"a random moment": 1000} | {call: 20 for call in CALLS},
    ),
    Trial(
        "shared_kills",
        "kill -9, with a shared directory",
        "The first trial, with a local directory and a shared one below it. Every other time the local directory is then"
        " lost with its node: what was reported to be in the shared directory must be there. Otherwise all that was"
        " reported must be in both together, and after the next process has closed them, in the shared one.",
        (EXACT, OLDER_EXACT),
        native=("shared_kills",),
        least={"a random moment": 1000, "the local directory is lost": 500} | {call: 20 for call in CALLS},
    ),
    Trial(
        "node",
        "kill -9 of the processes of a node's pool, and of its agent",
        f"Two processes share a pool, and write, write anew, drop and wait for versions and files, {node.STEPS} steps in"
        " each case. At random moments a process, the agent, both, or all are killed, in the midst of a call or between"
        " two; then the process is started again, and what it finds is compared with a model. OLDER_EXACT: something"
        " that was never reported is missing or older. CLEAR_ERROR: a call named a checkpoint that was lost with an agent"
        " while it passed through it. `python reliability/node.py SEED` plays a case again, as far as the moments agree.",
        node.MUST,
        ours=node.trial,
        least={"": node.CASES},
    ),
    Trial(
        "veloc",
        "Jobs with VELOC's calls: kill -9, a lost disk, damaged files, failing calls",
        "Jobs of four ranks over MPI follow each other in one directory, and each goes on from the newest version that all ranks"
        " have; some directories have checksum files, or a `persistent_interval` of a second. At a random moment a rank or all are"
        " killed, one calls `MPI_Abort`, or all and their node's disk is lost with them; or a file of the newest"
        " version is deleted, cut or flipped by a bit, of one rank, and the disk is lost; or one change to a file fails in one rank,"
        " with ENOSPC or EIO; or a backend runs, and it, the agent of the node's pool, or both with all ranks are killed. In some"
        ' directories ("again") the jobs write one version over and over, or two by turns, as regions or as files of their own. A moment'
        " at which none of that came about is drawn again, and does not count. The next job must find what was"
        " reported durable, the newest that is complete on all ranks where the files alone can say which that is, and its"
        " bytes, of one job on all ranks; no file may have its name before it is whole, and each matches its checksum file."
        " `python reliability/veloc/trial.py SEED`"
        " plays cases again, as far as the moments agree.",
        veloc.MUST,
        ours=veloc.trial,
        least={"": veloc.MOMENTS * len(veloc.KINDS)} | {kind: veloc.MOMENTS for kind in veloc.KINDS},
    ),
    Trial(
        "lending",
        "kill -9 of a process that lends memory, and of those that borrow it",
        'One process lends, and two borrow: one in two of their stores is at level "process", the others are ephemeral. They'
        " write, restore and drop versions, far more than their own caches hold, while the lender may lend more or less. At"
        " random moments the lender, a borrower or both are killed, or the lender is stopped and goes on or is killed then."
        " Every version of a borrower that lives must then have its bytes; what a killed one had reported must be found by"
        " the next; its memory must be lent to others again; and nobody may wait for a lender that is stopped. Ordinary"
        " memory takes the place of a GPU's. `python reliability/lending.py SEED` plays a case again, as far as the moments"
        " agree.",
        lending.MUST,
        ours=lending.trial,
        least={"": lending.KILLS, lending.IN_USE: 100} | {kind: 50 for kind in lending.KINDS},
    ),
    Trial(
        "power",
        "Loss of power",
        "The recorded writes and syncs are replayed into every prefix, and into seeded states in which what"
        " was not synced is lost, torn at 512 bytes, or reordered; of small checkpoints, which share blocks, torn at 4096 bytes with all of the block lost; each is opened, and for some the power goes again"
        " meanwhile. Where two writings of one version are there, the head of the newer one then rots, and the older one"
        " must not come back. In some runs a sync fails, and what was told to be lost must never be offered. Apart: the process is killed first, the next one opens the store and goes on, and then the power"
        ' goes; at level "storage" all that the opening found must outlive that. CLEAR_ERROR may be only before there'
        ' was a store, and at level "process", which promises nothing of power.',
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("power",),
        least={
            "": 10_000,
            "every prefix": 1000,
            "states": 10_000,
            "states, small ones, whole blocks torn": 5000,
            "killed, opened, then states": 1000,
            "killed, opened, then states, process": 1000,
            "states, after a failed sync": 1000,
        },  # fmt: skip
    ),
    Trial(
        "snapshot_power",
        "Loss of power, with snapshots",
        "The trial above, where half of what is written are snapshots of memory that goes on changing, each leaning on"
        " those before it, and each process goes on from memory that it restored. No snapshot is reported durable"
        " before the bytes that it leans on are, also where a sync failed. Apart: a process is killed, and `gc` runs,"
        " which is killed behind each of its changes, or the power goes in its midst or later.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("snapshot_power",),
        least={
            "": 10_000,
            "every prefix": 1000,
            "states": 5_000,
            "killed, opened, then states": 1000,
            "states, after a failed sync": 1000,
            "gc killed": 1000,
            "gc, then states": 1000,
        },  # fmt: skip
    ),
    Trial(
        "mistakes",
        "Loss of power, with one sync or one order left out of the code",
        "Each must turn the trial above red, with each of five seeds: it is EXACT when it does.",
        (EXACT,),
        native=("power", "--without", "all"),
        least={f"red: {mistake}": 5 for mistake in MISTAKES},
    ),
    Trial(
        "shared_power",
        "Loss of power, with a shared directory",
        "A store with a local and a shared directory, of which the local one holds a part. Both lose power at one moment,"
        " or either does and the other goes on. In a third of the states the local directory is then lost with its node."
        " What was reported to be in the shared directory must be found there alone, what was reported durable in both"
        " together; the next process that opens both must send what is missing below before it closes.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("shared_power",),
        least={
            "": 6000,
            "both lose power": 1000,
            "the local one loses power": 1000,
            "the shared one loses power": 1000,
            "the local directory is lost then": 1500,
            "prefixes": 1000,
        },  # fmt: skip
    ),
    Trial(
        "flips",
        "One byte flipped in any file of a store",
        "Half of the flips hit headers, marks and the index. Every checkpoint is read; `verify` must name a"
        " flip that touches a live byte, with the place and the checkpoint.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("flips",),
        least={"": 10_000, "headers, marks and the index": 5000},
    ),
    Trial(
        "truncate",
        "Every length of a small store",
        "Each file of a store cut at every length.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("truncate",),
        least={"": 10_000},
    ),
    Trial(
        "truncate_asan",
        "Every length of a small store, under the address sanitizer",
        "The same, in a program that ends at the first read or write outside.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("truncate",),
        sanitized=True,
        least={"": 10_000},
    ),
    Trial(
        "hostile",
        "Hostile headers",
        "Sizes, counts, offsets, overlaps, names and an index that no program wrote, under checksums that hold."
        " Every byte that comes back is compared with what a second reader, of the format's page alone, finds there.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("hostile",),
        least={"": 1000},
    ),
    Trial(
        "hostile_asan",
        "Hostile headers, under the address sanitizer",
        "The same, in a program that ends at the first read or write outside.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("hostile",),
        sanitized=True,
        least={"": 1000},
    ),
    *(
        Trial(
            f"fuzz_{target}",
            f"libFuzzer on {what}",
            f"{fuzz.SECONDS // 60} minutes of the processor, under the address and the undefined behaviour sanitizers, from the corpus"
            " that is kept. Each run must come to a value that holds or an error by name: counted as CLEAR_ERROR.",
            fuzz.MUST,
            fuzzed=fuzz.trial(target),
            least={"of the processor": fuzz.SECONDS},
        )
        for target, what in (("record", "records"), ("index", "the index"), ("config", "the configuration"))
    ),
    Trial(
        "faults",
        "A fault at every call in turn",
        "ENOSPC, EIO, short writes, a failed sync, injected at the N-th call for every N. The future fails by"
        " name, what is older is intact, and the store goes on when the fault is gone.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("faults",),
        least={"": 1000},
    ),
    Trial(
        "limits",
        "A full tmpfs and a limit on the size of files, in one process",
        "As the system has them; what is older is intact, and the store goes on when there is room.",
        (EXACT, OLDER_EXACT, CLEAR_ERROR),
        native=("limits",),
        least={"a small tmpfs": 20, "RLIMIT_FSIZE, the signal ignored": 20, "RLIMIT_FSIZE, ended by SIGXFSZ": 20},
    ),
    Trial(
        "killed",
        "kill -9 at random moments, whole programs",
        "A program saves step after step and is killed; another restarts and goes on,"
        f" {killed.IN_ONE_DIRECTORY} times in one directory, the newest {killed.KEEP} steps kept. EXACT: the"
        " newest step that was reported durable, or the one that was being saved.",
        killed.MUST,
        compared=killed.trial,
        least={"": 100},
    ),
    Trial(
        "flipped",
        "One byte flipped in the newest of two checkpoints",
        "Half of the flips anywhere in what the newest save added or changed, half at the ends of its files"
        " and in small ones. The restart takes the newest that can be had, and the one before when the library"
        " raises.",
        hurt.MUST,
        compared=hurt.flips,
        least={"": 1000},
    ),
    Trial(
        "cut",
        "A file of the newest of two checkpoints cut short",
        "Each to nothing, to the half, by one byte, or to any length; the restart as above.",
        hurt.MUST,
        compared=hurt.truncations,
        least={"": 200},
    ),
    Trial(
        "disk",
        "A full disk",
        f"Saving until a tmpfs of {full.DISK_MB} MiB is full. Half of the programs end with the error and"
        " another restarts; half are given room and save again, in the same process. EXACT: the newest that"
        " was reported durable, and the next save went well.",
        full.MUST,
        compared=full.disk,
        least={"": 25},
    ),
    Trial(
        "file_limit",
        "A limit on the size of files",
        "The same with RLIMIT_FSIZE, from the second save on.",
        full.MUST,
        compared=full.file_limit,
        least={"": 25},
    ),
    Trial(
        "signals",
        "SIGTERM and SIGINT while checkpoints are being written",
        "By the default action, by a handler that ends the program, and as KeyboardInterrupt. Where the"
        " program leaves its `with` block, all that it wrote is there; of the others, which save step after step,"
        " the newest that was saved, whatever error they ended with.",
        (EXACT,),
        compared=signals.trial,
        least={"": 60},
    ),
    Trial(
        "stalled",
        "A file system that stops answering",
        "The server of a FUSE file system is stopped while a store writes there. `wait(timeout)` and"
        " `close_timeout` end within their time and name what was waited for; when it answers again in time,"
        " everything is drained.",
        (EXACT, CLEAR_ERROR),
        ours=stalled.trial,
        least={"": 40},
    ),
    Trial(
        "unplugged",
        "A shared directory that fails, is full or does not answer",
        "A store writes to a local and a shared directory. The shared one is a FUSE file system whose server is stopped"
        " or killed, or a full disk; or the local one is on a full disk. Meanwhile versions are saved, waited for and, in"
        " every other case, the store is closed; then the directory is there again. Nothing but calls for that directory"
        " is held up; when it is there again all is sent, by this process or the next one, and read from the shared"
        " directory alone.",
        unplugged.MUST,
        ours=unplugged.trial,
        least={"": 400},
    ),
    Trial(
        "writers",
        "Two processes open one directory for writing",
        "One at a time, many at once, and after the first was killed.",
        (EXACT, CLEAR_ERROR),
        ours=access.writers,
        least={"": 90},
    ),
    Trial(
        "strangers",
        "Another user's directory",
        "His directory, his files, and a directory that others may write to.",
        (CLEAR_ERROR,),
        ours=access.strangers,
        least={"": 28},
    ),
    Trial(
        "links",
        "Planted symbolic links",
        "For the directory and each of its files. Never followed: what they lead to is unchanged, or not there.",
        (EXACT, CLEAR_ERROR),
        ours=access.links,
        least={"": 28},
    ),
    Trial(
        "modes",
        "Modes of files and directories",
        "0600 in 0700, under umask 000, while open and after.",
        (EXACT,),
        ours=access.modes,
        least={"": 5},
    ),
    Trial(
        "own",
        "What a program does to its own objects",
        "Each seed draws a store, calls and objects, and what happens to them in the midst of a call and after it: code"
        " of the program that runs while an array is converted, and changes the container, the arrays or the store,"
        " forks, or raises; arrays overwritten as soon as a call has returned; views of a reservation written to after"
        " its commit; targets that cannot be filled; arrays that are more than their bytes; files, directories and the"
        " lock removed, renamed and replaced while the store is open; versions written anew under a reader that has"
        " them in its caches; children that live on past the close or the death of the process that forked them; a"
        " disk that holds what retention keeps and one more. What each call gives is compared with a model; what is"
        " left is verified, opened and read by another process, which must find all that was reported durable and"
        " nothing else. EXACT: no call failed. CLEAR_ERROR: one or more did, each for a reason that the model knows."
        " Every case runs in a process of its own, and `python reliability/own/worker.py SEED` repeats it.",
        own.MUST,
        ours=own.trial,
        least={"": own.CASES} | {theme: 300 for theme in own.THEMES},
    ),
)
