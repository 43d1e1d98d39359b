"""`ebbtide run --defer-fsync`: a program does what it does without it, sooner; every file is on the disk in the end."""

import contextlib
import ctypes
import mmap
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import pytest

import ebbtide

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(ebbtide.__file__).parent
HELPER, LIBRARY = PACKAGE / "ebbtide-defer", PACKAGE / "libebbtide_defer.so"
PROGRAMS = ROOT / "tests" / "defer"
KILLS = 1000 if os.environ.get("EBB_LONG") else 20


@pytest.fixture
def folder():
    """On a disk: a temporary folder may be in memory."""
    scratch = ROOT / "build" / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="defer-", dir=scratch) as directory:
        yield pathlib.Path(directory)


def command(directory, *program, dirty=0):
    """What `ebbtide run` becomes, without Python's own start."""
    return [str(word) for word in (HELPER, directory, dirty, LIBRARY, *program)]


def deferred(directory, *program, dirty=0, **options):
    words = command(directory, *program, dirty=dirty)
    return subprocess.run(words, capture_output=True, text=True, timeout=240, **options)


def calls(done) -> int:
    """How many were deferred, as the closing line says."""
    return int(re.search(r"^ebbtide: run: deferred calls: (\d+); ", done.stderr, re.MULTILINE)[1])


def compiled(name: str, out: pathlib.Path, *flags: str) -> str:
    language = ["gcc"] if name.endswith(".c") else ["g++", "-std=c++20"]
    subprocess.run([*language, "-O1", *flags, PROGRAMS / name, "-o", out, "-ldl"], check=True)
    return str(out)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The test programs: every call, once linked as usual and once against nothing that a library could take over."""
    out = tmp_path_factory.mktemp("programs")
    return {
        "calls": compiled("calls_program.cpp", out / "calls"),
        "fortified": compiled("calls_program.cpp", out / "fortified", "-D_FORTIFY_SOURCE=2"),
        "static": compiled("calls_program.cpp", out / "static", "-static"),
        "sanitized": compiled("calls_program.cpp", out / "sanitized", "-fsanitize=address"),
        "failing": compiled("failing_disk.c", out / "failing.so", "-shared", "-fPIC"),
    }


# --- everyday programs do what they do without it ---------------------------------------------------------------------

SQLITE = """
import pathlib, sqlite3
connection = sqlite3.connect("base", isolation_level=None)
print(connection.execute("pragma journal_mode={mode}").fetchone(), connection.execute("pragma synchronous=extra").fetchall())
connection.execute("create table one(a integer primary key, b blob)")
for step in range(30):
    connection.execute("begin")
    connection.executemany("insert into one(b) values (?)", [(bytes([step]) * 500,)] * 5)
    connection.execute("rollback" if step % 7 == 3 else "commit")
print(connection.execute("select count(*), sum(length(b)), max(a) from one").fetchall())
print(connection.execute("pragma integrity_check").fetchall())
connection.close()
pathlib.Path("base-journal").unlink(missing_ok=True)  # it has a random number
"""

MAPPED = """
import ctypes, mmap, os
with open("mapped", "w+b") as file:
    file.truncate(3 * mmap.PAGESIZE)
    with mmap.mmap(file.fileno(), 0) as memory:
        memory[5:10] = b"hello"
        memory.flush()
        memory.flush(mmap.PAGESIZE, mmap.PAGESIZE)
with mmap.mmap(-1, mmap.PAGESIZE) as memory:
    memory.flush()
libc = ctypes.CDLL(None, use_errno=True)
print(libc.msync(ctypes.c_void_p(mmap.PAGESIZE), ctypes.c_size_t(4096), 4), ctypes.get_errno())
"""

FILES = """
import errno, fcntl, os, socket
fd = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_SYNC, 0o640)
print(fd, os.write(fd, b"x" * 10000), os.fsync(fd), os.fdatasync(fd), os.fstat(fd).st_size)
fcntl.lockf(fd, fcntl.LOCK_EX)
again = os.open("a", os.O_WRONLY | os.O_DSYNC)  # closes nothing that would drop the lock
if os.fork() == 0:
    try:
        fcntl.lockf(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os._exit(7)
    os._exit(0)
print("locked", os.waitstatus_to_exitcode(os.wait()[1]))
os.rename("a", "b"); os.link("b", "c"); os.truncate("c", 5000); os.unlink("b")
gone = os.open("gone", os.O_RDWR | os.O_CREAT); os.write(gone, b"y" * 5000); os.unlink("gone"); os.fsync(gone)
print(os.pread(gone, 3, 100))
os.mkdir("d", 0o750); directory = os.open("d", os.O_RDONLY); os.fsync(directory)
unnamed = os.open("d", os.O_TMPFILE | os.O_RDWR | os.O_SYNC, 0o600)
os.write(unnamed, b"named later"); os.fsync(unnamed); os.link(f"/proc/self/fd/{unnamed}", "d/named")
os.symlink("nowhere", "link")
for bad in ("link", "none/a", "d", ""):
    try:
        print(os.open(bad, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_SYNC))
    except OSError as error:
        print(bad, errno.errorcode[error.errno])
for bad in (99, os.pipe()[0], socket.socket().fileno()):
    try:
        os.fsync(bad)
    except OSError as error:
        print(errno.errorcode[error.errno])
os.sync(); os.utime("c", (1, 2)); os.chmod("c", 0o604)
for i in range(3):
    os.close(i)
low = os.open("low", os.O_WRONLY | os.O_CREAT | os.O_SYNC); os.fsync(low); os.write(3, b"")
assert low == 0
assert os.open("low", os.O_RDONLY) == 1
"""

EVERYDAY = {
    "bash": "echo x 1<> f; exec 5> g; echo one >&5; exec 1>&5; echo two; (ulimit -v 500000; echo three >> g; sync);"
    " (trap '' PIPE; yes | head -1 >> f); cat g >&2; touch -d 2001-02-03 f; sync f",
    "tar": "mkdir in; for i in 1 2 3 4 5; do seq $i 5000 > in/$i; touch -d 200$i-01-01 in/$i; done; ln in/1 in/link;"
    " ln -s 2 in/soft; chmod 600 in/3; tar cf a.tar in; mkdir out; tar xf a.tar -C out; tar df a.tar -C out && echo same;"
    " sync out/in/*; tar cf b.tar -C out in; tar tf b.tar; rm a.tar b.tar",
    "git": "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE='2001-01-01 00:00 +0' GIT_COMMITTER_DATE='2001-01-01 00:00 +0';"
    " git init -q -b main r; cd r; git config user.name a; git config user.email b; git config core.fsync all;"
    " for i in 1 2 3; do seq $i 2000 > $i; git add .; git commit -qm $i; done; git gc -q; git fsck --strict;"
    " git rev-parse HEAD; git status --porcelain; git clone -q . ../s; cd ..; rm -rf r/.git s/.git",
    "make": "printf 'all: p\\n\\t./p > out\\np: p.c\\n\\tcc p.c -o p\\n' > Makefile;"
    " printf '#include <stdio.h>\\nint main() { return puts(\"built\") < 0; }\\n' > p.c;"
    " make -j2; cat out; PATH=$PWD:$PATH p; make; rm p",
    "copies": "seq 100000 > a; cp -p --sparse=always a b; dd if=a of=c bs=64k conv=fsync oflag=sync 2>/dev/null;"
    " dd if=a of=d bs=4096 oflag=direct,dsync 2>/dev/null || cp a d; cmp a b; cmp a c; install -m 600 a e; mv e f;"
    " touch -r Makefile a 2>/dev/null; sort -R a | sort -n | cmp - a; split -n 3 a part; gzip -n part*",
    "unpacked": f"mkdir p; cp {LIBRARY} p/some.so; echo 'import ctypes; ctypes.CDLL(\"./p/some.so\"); print(1)' > x.py;"
    f" {sys.executable} -B x.py; cp /bin/true ./t; ./t; echo $?",
    "setpriv": "setpriv --no-new-privs --inh-caps=-all sh -c 'echo x > a; sync a'; env -i /bin/sh -c 'echo y > b; sync b';"
    " LD_PRELOAD= sh -c 'echo z > c; sync c'; nohup sh -c 'sync c' 2>/dev/null",
    "nested": f"mkdir d; {HELPER} d 0 {LIBRARY} sh -c 'echo x > d/a; sync d/a; echo y > b; sync b; exit 4' 2>/dev/null; echo $?",
    "files": [sys.executable, "-c", FILES],
    "mapped": [sys.executable, "-c", MAPPED],
}
for mode in ("delete", "truncate", "persist", "memory", "wal"):
    EVERYDAY[f"sqlite {mode}"] = [sys.executable, "-c", SQLITE.replace("{mode}", mode)]
if shutil.which("rsync"):
    EVERYDAY["rsync"] = "mkdir a; seq 9999 > a/x; touch -d 2001-01-01 a/x; rsync -a --fsync a/ b/; rsync -ai a/ b/"
if shutil.which("gcore"):
    EVERYDAY["gcore"] = (
        "sleep 60 & gcore -o core $! > /dev/null 2>&1; kill $!; file=$(ls core.*); head -c 4 $file | od -c; rm $file"
    )


def tree(directory: pathlib.Path, times: bool) -> dict[str, tuple]:
    """Every name below it, with its mode, links and bytes; `times`: of files that have one of the past."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        old = status.st_mtime_ns if times and status.st_mtime < 1.1e9 and stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(directory))] = (stat.filemode(status.st_mode), status.st_nlink, content, old)
    return found


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_programs_do_what_they_do_without_it(name, folder):
    program = EVERYDAY[name] if isinstance(EVERYDAY[name], list) else ["bash", "-c", EVERYDAY[name]]
    at = folder / "run"
    outcomes = []
    for words in (program, command(at, *program)):  # in one place, because programs store where they are
        at.mkdir()
        done = subprocess.run(words, cwd=at, capture_output=True, text=True, timeout=240)
        said = [line for line in done.stderr.splitlines() if not line.startswith("ebbtide: run: ")]
        outcomes.append((done.returncode, done.stdout, said, tree(at, True)))
        shutil.rmtree(at)
    assert outcomes[0] == outcomes[1]
    assert "on stable storage" in done.stderr
    if name not in ("tar", "make", "unpacked", "gcore", "setpriv"):  # which sync little or nothing
        assert calls(done) > 0


# --- which calls -----------------------------------------------------------------------------------------------------

SYNCS = ["fsync", "fdatasync", "syncfs", "sync_file_range", "fsync of the directory", "fsync of a copy", "msync",
         "msync of one page"]  # fmt: skip
OPENS = ["open", "open64", "openat", "openat64"]
BELOW = [f"{name} 0" for name in SYNCS] + [f"{name} does not" for name in OPENS] + ["a link to nowhere failed"]
OUTSIDE = [f"{name} 1" for name in SYNCS] + [f"{name} syncs" for name in OPENS] + ["a link to nowhere failed"]


@pytest.mark.parametrize("variant", ["calls", "fortified", "sanitized", "static"])
def test_calls_are_deferred_for_files_below_the_directory_alone(variant, built, folder):
    below, outside = folder / "below", folder / "below-not"
    below.mkdir(), outside.mkdir()
    done = deferred(below, built[variant], below, outside)
    assert done.returncode == 0, done.stderr
    missed = variant == "static"  # syncs as ever
    expected = [*(OUTSIDE if missed else BELOW), "--", *OUTSIDE, "--", f"sync {int(missed)}"]
    assert done.stdout.splitlines() == expected
    assert calls(done) == (0 if missed else len(SYNCS) + len(OPENS) + 1)


class RunMemory(ctypes.Structure):
    """src/defer/run_memory.hpp"""

    _fields_ = (
        ("magic", ctypes.c_uint64), ("device", ctypes.c_uint64), ("length", ctypes.c_size_t),
        ("directory", ctypes.c_char * 1024), ("entry", ctypes.c_void_p), ("owner", ctypes.c_uint32),
        ("full", ctypes.c_uint32), ("beat", ctypes.c_uint32), ("calls", ctypes.c_uint32),
        ("asleep", ctypes.c_uint32), ("everything", ctypes.c_uint32), ("told", ctypes.c_uint64 * 256),
    )  # fmt: skip


@pytest.mark.parametrize("event, reached", [("written", 0), ("died", 1), ("ended", 1), ("stopped", 1)])
def test_a_call_waits_while_too_much_is_dirty_and_its_writer_works(event, reached, built, folder):
    with open(folder / "memory", "w+b") as file:
        file.truncate(ctypes.sizeof(RunMemory))
        memory = RunMemory.from_buffer(mmap.mmap(file.fileno(), 0))
    memory.magic, memory.device, memory.directory = 0x3165646265626265, folder.stat().st_dev, os.fsencode(folder)
    memory.length, memory.owner, memory.full = len(os.fsencode(folder)), os.getpid(), 1
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "EBBTIDE_DEFER": str(folder / "memory")}
    pipe = subprocess.PIPE
    with subprocess.Popen([built["calls"], folder], env=environment, stdin=pipe, stdout=pipe, text=True) as program:
        program.stdin.write("\n")
        program.stdin.close()
        while memory.calls == 0:
            time.sleep(0.001)
        first = memory.beat
        while event != "stopped" and memory.beat < first + 40:  # longer than it would wait for one that is stopped
            assert program.poll() is None
            memory.beat += 1
            time.sleep(0.1)
        if event == "written":
            memory.full = 0
        elif event != "stopped":
            memory.owner = 0 if event == "ended" else os.getpid() | 0x40000000
        assert program.stdout.read() == f"fsync {reached}\n"
        assert memory.told[0] == (folder / "file").stat().st_ino


# --- deaths ----------------------------------------------------------------------------------------------------------


def started(directory, *program, **options):
    pipe = subprocess.PIPE
    return subprocess.Popen(command(directory, *program), stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options)


def test_after_the_writers_death_calls_sync_again(built, folder):
    with started(folder, built["calls"], folder) as run:
        for expected in ("fsync 0\n", "fsync 1\n"):
            run.stdin.write("\n")
            run.stdin.flush()
            assert run.stdout.readline() == expected
            if run.poll() is None:
                run.kill()
                run.wait(timeout=60)


ACTOR = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for step in range(200):
    os.write(fd, b"%06d" % step + b"." * 1000 + b"\\n")
    os.fsync(fd)
    os.write(1, b"%d\\n" % step)
"""


def test_a_kill_loses_nothing_and_stops_nobody(folder):
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    for kill in range(KILLS):
        file, after, victim = folder / f"file{kill}", choose.randrange(200), choose.choice(["program", "writer"])
        with started(folder, sys.executable, "-IS", "-c", ACTOR, file) as run:
            said = []
            for line in run.stdout:
                said.append(int(line))
                if len(said) - 1 == after:
                    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
                    with contextlib.suppress(IndexError, ProcessLookupError):  # it has just ended
                        os.kill(run.pid if victim == "writer" else int(children[0]), signal.SIGKILL)
            lines = file.read_bytes().split(b"\n")
            assert said == list(range(len(said))), (seed, kill)
            assert [int(one[:6]) for one in lines[:-1]] == list(range(len(lines) - 1)), (seed, kill)
            assert all(len(one) == 1006 for one in lines[:-1]) and len(lines) - 1 >= len(said), (seed, kill)
            assert victim == "program" or len(said) == 200, (seed, kill)
            ends = {-9 if victim == "writer" else 137} | ({0} if len(said) == 200 else set())
            assert run.wait(timeout=60) in ends, (seed, kill)
        file.unlink()


# --- the disk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error, name", [(5, "EIO"), (28, "ENOSPC")])
def test_an_error_of_writing_out_names_its_file_and_is_the_exit_status(error, name, built, folder):
    environment = {**os.environ, "LD_PRELOAD": built["failing"], "FAILING_DISK": str(error)}
    script = "mkdir d; echo x > good; echo y > d/one.bad; LD_PRELOAD= sh -c 'echo z > two.bad'; exit 3"
    done = deferred(folder, "sh", "-c", script, env=environment, cwd=folder)
    assert done.returncode == 1
    named = [line for line in done.stderr.splitlines() if "is not on stable storage" in line]
    assert [re.search(r'"(.*)"', line)[1] for line in named] == [f"{folder}/d/one.bad", f"{folder}/two.bad"]
    assert all(name in line for line in named) and "but for those named above" in done.stderr


def test_an_error_of_the_file_system_alone_names_the_directory(built, folder):
    environment = {**os.environ, "LD_PRELOAD": built["failing"], "FAILING_DISK": "5", "FAILING_SYSTEM": "5"}
    done = deferred(folder, "sh", "-c", "echo x > a", env=environment, cwd=folder)
    assert done.returncode == 1 and f'"{folder}" is not on stable storage: EIO' in done.stderr


@pytest.mark.parametrize("kernel", [{}, {"NO_CACHESTAT": "1"}], ids=["cachestat", "growth"])
@pytest.mark.parametrize("told", [True, False])
def test_large_files_are_written_out_early(told, kernel, built, folder):
    log = folder.parent / f"{folder.name}.log"
    environment = {**os.environ, "LD_PRELOAD": built["failing"], "FAILING_DISK": "0", "FAILING_LOG": str(log), **kernel}
    again = "dd if=/dev/zero of=large bs=1M count=20 conv=notrunc" + (",fsync" if told else "") + " 2>&1"
    try:
        done = deferred(folder, "bash", "-c", f"until [ -e {log} ]; do {again}; done", env=environment, cwd=folder)
        assert done.returncode == 0 and log.read_text().splitlines()[0] == f"{folder}/large"
    finally:
        log.unlink(missing_ok=True)


LEASE = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, lambda *_: sys.exit("the lease was broken"))
fd = os.open("leased", os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
while not os.path.exists(sys.argv[1]):  # until the writer has done its round
    os.pwrite(fd, b"x" * 20000000, 0)
    os.fsync(fd)
    with open("large", "r+b" if os.path.exists("large") else "wb") as file:
        file.write(b"x" * 20000000)
        os.fsync(file.fileno())
print(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK)
"""


def test_a_lease_is_not_broken(built, folder):
    log = folder.parent / f"{folder.name}.log"
    environment = {**os.environ, "LD_PRELOAD": built["failing"], "FAILING_DISK": "0", "FAILING_LOG": str(log)}
    (folder / "leased").write_text("")
    while time.time() < (folder / "leased").stat().st_ctime + 2.5:  # the writer opens it only if the run changes it
        time.sleep(0.1)
    try:
        done = deferred(folder, sys.executable, "-c", LEASE, log, env=environment, cwd=folder)
        assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
        assert str(folder / "leased") not in log.read_text().splitlines()
    finally:
        log.unlink(missing_ok=True)


# --- the command -----------------------------------------------------------------------------------------------------


def ebbtide_run(*words):
    program = [sys.executable, "-c", "from ebbtide.cli import main; main()", "run", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


def test_the_command_has_the_programs_exit_status(folder):
    words = ("--defer-fsync", folder, "--dirty", "16MiB", "--", "sh", "-c", f"echo x > {folder}/a; exit 3")
    done = ebbtide_run(*words)
    assert done.returncode == 3 and (folder / "a").read_text() == "x\n"
    assert re.fullmatch(
        rf'ebbtide: run: deferred calls: 0; files on stable storage: 1 \(2 B\), below "{folder}", at '
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, \d+\.\d\d s after the program ended\n",
        done.stderr,
    )


@pytest.mark.parametrize("how, status", [("exit 0", 0), ("exit 200", 200), ("kill -TERM $$", 143), ("kill -9 $$", 137)])
def test_every_exit_status_is_handed_on(how, status, folder):
    assert deferred(folder, "sh", "-c", how).returncode == status


def test_a_signal_reaches_the_program(folder):
    script = "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with started(folder, "sh", "-c", script) as run:
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGTERM)
        assert (run.stdout.read(), run.wait(timeout=60)) == ("got\n", 5)


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--defer-fsync", "{}/none", "--", "true"], 2, "ENOENT (No such file or directory): name a directory"),
        (["--defer-fsync", "{}/file", "--", "true"], 2, "ENOTDIR (Not a directory): name a directory"),
        (["--defer-fsync", "{}", "--dirty", "1KiB", "--", "true"], 2, "--dirty: 1KiB is too small: at least 1MiB"),
        (["--defer-fsync", "{}", "--dirty", "much", "--", "true"], 2, '--dirty="much" is not valid: expected a size'),
        (["--defer-fsync", "{}", "--", "no-such-program"], 127, "no-such-program: ENOENT"),
        (["--defer-fsync", "{}", "--", "{}/file"], 126, "file: EACCES"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(words, status, said, folder):
    (folder / "file").write_text("")
    done = ebbtide_run(*(word.format(folder) for word in words))
    assert done.returncode == status and said in " ".join(done.stderr.split())
