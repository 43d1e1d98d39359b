"""`ebbtide run --capture`: a program sees what it would see without it, and every file is whole in the end."""

import contextlib
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import ebbtide

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(ebbtide.__file__).parent
HELPER, LIBRARY = PACKAGE / "ebbtide-capture", PACKAGE / "libebbtide_capture.so"
PAGE = ROOT / "docs" / "capture.md"


@pytest.fixture
def folder():
    """On a disk: a temporary folder may be in memory."""
    scratch = ROOT / "build" / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="capture-", dir=scratch) as directory:
        yield pathlib.Path(directory)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The test programs, by name, compiled."""
    out = tmp_path_factory.mktemp("programs")
    names = ("calls", "random", "actor")
    running = []
    for name in names:
        source = ROOT / "tests" / "capture" / f"{name}_program.cpp"
        flags = ["-std=c++20", "-O1", "-Wno-deprecated-declarations", "-pthread"]
        running.append(subprocess.Popen(["g++", *flags, source, "-o", out / name]))
    assert [one.wait(timeout=300) for one in running] == [0] * len(names)
    return {name: str(out / name) for name in names}


def command(directory, *program, pool=64 << 20, sync="keep"):
    """What `ebbtide run` becomes, without Python's own start."""
    return [str(word) for word in (HELPER, directory, pool, sync, LIBRARY, HELPER, *program)]


def captured(directory, *program, limit=120, pool=64 << 20, sync="keep", **options):
    return subprocess.run(
        command(directory, *program, pool=pool, sync=sync), capture_output=True, timeout=limit, **options
    )


class Running:
    """A captured program that is talked to."""

    def __init__(self, directory, *program, **options):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command(directory, *program, **options), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def _child(self, is_writer: bool) -> int:
        """The process id of the writer, or of the program."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (found,) = (
            int(child)
            for child in children
            if (b"--writer" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()) is is_writer
        )
        return found

    def writer(self) -> int:
        return self._child(True)

    def program(self) -> int:
        return self._child(False)

    def end(self, text="\n") -> tuple[int, str, str]:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self.process.stdin.write(text)
            self.process.stdin.close()
        out, error = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(timeout=60), out, error


def tree(directory: pathlib.Path) -> dict[str, bytes]:
    """Every file and its bytes; records of several processes in any order."""
    files = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            files[str(path.relative_to(directory))] = (
                b"".join(sorted(data.splitlines())) if path.name.startswith("shared") else data
            )
    return files


# --- the same results -------------------------------------------------------------------------------------------------


def test_each_call_does_what_it_does_without_capture(programs, folder):
    names = subprocess.run(
        [programs["calls"], "--list"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(names) > 100
    wrong = []
    for name in names:
        plain, other = folder / "plain", folder / "captured"
        for directory in (plain, other):
            subprocess.run(["rm", "-rf", directory], check=True)
            directory.mkdir()
        expected = subprocess.run([programs["calls"], name, plain], capture_output=True, timeout=60)
        got = captured(other, programs["calls"], name, other)
        if (expected.returncode, expected.stdout) != (got.returncode, got.stdout) or tree(plain) != tree(other):
            wrong.append((name, expected, got))
        elif not re.search(rb"run: [1-9]\d* files? captured", got.stderr):
            wrong.append((name, "nothing was captured", got.stderr))
    assert wrong == []


def test_the_page_lists_what_is_taken_over_and_each_call_has_a_test(programs):
    listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    parts = PAGE.read_text().split("## Calls")[1].split("\n## ")[0].split("\n\n")

    def first_column(heading: str) -> set[str]:
        (table,) = (part for part in parts if part.startswith(f"| {heading}"))
        return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert first_column("taken over") == exported
    tested = subprocess.run([programs["calls"], "--list"], capture_output=True, text=True, check=True).stdout
    assert exported | first_column("left alone") <= set(tested.splitlines())


SEEDS = range(1, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_give_the_same_results(seed, programs, folder):
    operations = str(100_000 if os.environ.get("EBB_LONG") else 5_000)
    plain, other = folder / "plain", folder / "captured"
    plain.mkdir()
    other.mkdir()
    expected = subprocess.run([programs["random"], str(seed), operations, "."], cwd=plain, capture_output=True)
    got = captured(
        other, programs["random"], seed, operations, ".",
        cwd=other, limit=1800, pool=(4, 16, 64)[seed % 3] << 20, sync=("keep", "defer")[seed % 2],
    )  # fmt: skip
    assert (expected.returncode, got.returncode) == (0, 0), got.stderr
    assert expected.stdout == got.stdout
    assert tree(plain) == tree(other)


def test_appended_records_of_several_processes_are_whole(programs, folder):
    done = captured(folder, programs["actor"], "append", folder / "a", 4, 3000, pool=4 << 20)
    assert done.returncode == 0, done.stderr
    records = (folder / "a").read_bytes().splitlines()
    assert sorted(int(record.strip(b".")) for record in records) == list(range(4 * 3000))


def test_shell_tools_and_numpy_work(folder):
    script = folder / "script.py"
    script.write_text(
        "import numpy, os, shutil, subprocess, zipfile\n"
        "a = numpy.arange(300_000)\n"
        "numpy.save('a.npy', a)\n"
        "numpy.savez('a.npz', a=a, b=a[::-1])\n"
        "shutil.copyfile('a.npy', 'b.npy')\n"
        "assert (numpy.load('b.npy') == a).all() and (numpy.load('a.npz')['b'] == a[::-1]).all()\n"
        "assert (numpy.load('a.npy', mmap_mode='r') == a).all()\n"
        "m = numpy.memmap('m', 'i8', 'w+', shape=1000); m[:] = 7; m.flush()\n"
        "subprocess.run('cp a.npy c.npy && dd if=a.npy of=d.npy bs=1000 2>/dev/null && cat a.npy > e.npy', shell=True)\n"
        "subprocess.run('cmp a.npy c.npy && cmp a.npy d.npy && cmp a.npy e.npy', shell=True, check=True)\n"
        "with open('t.txt', 'w') as f: print('text', file=f)\n"
        "os.replace('t.txt', 'u.txt')\n"
        "with open('u.txt', 'a+') as f: f.write('more'); f.seek(0); assert f.read() == 'text\\nmore'\n"
        "subprocess.run('echo one >> u.txt; (echo two; cat a.npy | wc -c; echo three) >> u.txt', shell=True, check=True)\n"
    )
    done = captured(folder, sys.executable, "script.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    files = tree(folder)
    assert files["a.npy"] == files["b.npy"] == files["c.npy"] == files["d.npy"] == files["e.npy"]
    assert len(files["a.npy"]) == 2_400_128 and files["m"] == (7).to_bytes(8, "little") * 1000
    assert files["u.txt"] == b"text\nmoreone\ntwo\n2400128\nthree\n"


def test_a_program_that_was_just_written_runs(folder):
    source = folder / "p.c"
    source.write_text("int main(void) { return 7; }\n")
    done = captured(folder, "sh", "-c", f"gcc -o {folder}/p {source} && {folder}/p")
    assert done.returncode == 7, done.stderr


def test_the_time_of_modification_is_that_of_the_last_write(folder):
    begin = time.time()
    done = captured(folder, "sh", "-c", f"exec 3> {folder}/a; echo x >&3; sleep 1.2; exec 3>&-; date +%s.%N")
    assert begin - 0.1 <= (folder / "a").stat().st_mtime <= float(done.stdout) - 1


# --- deaths -----------------------------------------------------------------------------------------------------------


def is_whole(path: pathlib.Path, records: int) -> bool:
    """Whether these records are in it, and no more than the one that was being written."""
    data = path.read_bytes()
    whole = all(int(data[1000 * i : 1000 * i + 1000].strip(b".\n")) == i for i in range(records))
    return whole and len(data) <= 1000 * (records + 1)


@pytest.mark.parametrize("records", [1, 50, 1500, 6000])
def test_what_a_killed_program_wrote_is_in_the_file(records, programs, folder):
    run = Running(folder, programs["actor"], "records", folder / "a", pool=4 << 20)
    for _ in range(records):
        run.line()
    os.kill(run.program(), signal.SIGKILL)
    code, out, _ = run.end()
    assert code == 128 + signal.SIGKILL
    assert is_whole(folder / "a", records + len(out.splitlines()))


@pytest.mark.parametrize("records", [1, 50, 1500, 6000])
def test_a_killed_writer_loses_nothing(records, programs, folder):
    run = Running(folder, programs["actor"], "records", folder / "a", records, pool=4 << 20)
    for _ in range(records // 2 + 1):
        run.line()
    os.kill(run.writer(), signal.SIGKILL)
    while run.line() != "end":
        pass
    code, _, error = run.end()
    assert code == 0 and "the writer was killed" in error
    assert is_whole(folder / "a", records + 5)


def test_a_program_whose_run_and_writer_were_killed_writes_itself(programs, folder):
    run = Running(folder, programs["actor"], "records", folder / "a", 500)
    while run.line() != "end":
        pass
    program, writer = run.program(), os.pidfd_open(run.writer())
    os.kill(run.process.pid, signal.SIGSTOP)  # so that it does not write what is left
    signal.pidfd_send_signal(writer, signal.SIGKILL)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait(timeout=60)
    assert select.select([writer], [], [], 60)[0], "else the program could end before it"
    os.close(writer)
    watched = os.pidfd_open(program)
    run.process.stdin.write("\n")
    run.process.stdin.flush()
    assert select.select([watched], [], [], 60)[0], "it ends"
    os.close(watched)
    assert is_whole(folder / "a", 505)


def test_a_killed_run_loses_nothing(programs, folder):
    run = Running(folder, programs["actor"], "records", folder / "a", 500)
    while run.line() != "end":
        pass
    program, writer = (os.pidfd_open(pid) for pid in (run.program(), run.writer()))
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait(timeout=60)
    assert select.select([writer], [], [], 60)[0], "the writer ends when all is written"
    assert is_whole(folder / "a", 500)
    run.process.stdin.write("\n")
    run.process.stdin.flush()
    assert select.select([program], [], [], 60)[0]
    assert is_whole(folder / "a", 505)


def test_what_all_the_dead_left_is_written_by_the_next_run(programs, folder):
    run = Running(folder, programs["actor"], "records", folder / "a", 500)
    while run.line() != "end":
        pass
    dead = [run.writer(), run.program(), run.process.pid]
    watched = [os.pidfd_open(pid) for pid in dead]
    os.kill(run.writer(), signal.SIGSTOP)  # it has less than a second to write all; mostly, it has not
    for pid in (run.process.pid, dead[1], dead[0]):
        os.kill(pid, signal.SIGKILL)
    for one in watched:
        assert select.select([one], [], [], 60)[0]
        os.close(one)
    run.process.wait(timeout=60)
    region = pathlib.Path(f"/dev/shm/ebbtide-{os.geteuid()}/capture-{run.process.pid}")
    assert region.exists()
    other = folder / "other"
    other.mkdir()
    assert captured(other, "true").returncode == 0
    assert is_whole(folder / "a", 500) and not region.exists()


# --- errors -----------------------------------------------------------------------------------------------------------


def refuse_writes(run: Running) -> None:
    """Every later write of the writer fails with EFBIG."""
    resource.prlimit(run.writer(), resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_the_next_call_tells_that_an_earlier_write_failed(call, programs, folder):
    run = Running(folder, programs["actor"], "error", folder / "a", call)
    assert run.line() == "ready"
    refuse_writes(run)
    code, out, error = run.end()
    assert out.splitlines() == ["200000", "File too large"]
    assert code == 0 and "not whole" not in error


def test_an_error_that_no_call_could_tell_makes_the_run_fail_and_names_the_file(programs, folder):
    run = Running(folder, programs["actor"], "error", folder / "a", "nothing")
    assert run.line() == "ready"
    refuse_writes(run)
    code, _, error = run.end()
    assert code == 1
    assert f'"{folder}/a"' in error and "EFBIG" in error and "is not whole" in error


def test_a_limit_of_the_file_size_is_what_it_is_without_capture(programs, folder):
    ends = []
    for directory, sent in (folder / "plain", False), (folder / "captured", True):
        directory.mkdir()
        program = ["sh", "-c", f"trap '' XFSZ; ulimit -f 2000; exec {programs['actor']} fill {directory}/a"]
        done = captured(directory, *program) if sent else subprocess.run(program, capture_output=True, timeout=60)
        ends.append((done.returncode, done.stdout, tree(directory)))
    assert ends[0] == ends[1] and b"File too large" in ends[0][1]


@pytest.mark.parametrize("last", ["os.close(fd)", "subprocess.Popen(['sleep', '0'], pass_fds=[fd]).wait()"])
def test_no_disk_space_remains_beyond_the_end_of_a_file(last, folder):
    script = folder / "script.py"
    script.write_text(
        "import os, subprocess\n"
        "fd = os.open('a', os.O_WRONLY | os.O_CREAT)\n"
        "for i in range(300): os.write(fd, b'x' * 10_000)\n"
        "assert os.fstat(fd).st_size == 3_000_000\n"
        "print(os.fstat(fd).st_blocks * 512)\n" + last + "\n"
    )
    done = captured(folder, sys.executable, "script.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3_000_000, "space is allocated before a write returns"
    found = (folder / "a").stat()
    assert found.st_size == 3_000_000 and found.st_blocks * 512 <= 3_000_000 + 8192


def test_a_full_disk_is_told_by_write(programs, folder):
    disk = folder / "disk"
    disk.mkdir()
    inside = " ".join(command(disk, programs["actor"], "fill", disk / "a"))
    script = f"mount -t tmpfs -o size=8m none {disk} || exit 77; {inside} && wc -c < {disk}/a"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    if done.returncode in (1, 77) and "No space" not in done.stdout:
        pytest.skip("no file system can be mounted here: " + done.stderr)
    assert done.returncode == 0, done.stderr
    reason, total, end, size = done.stdout.split("\n")[:4]
    assert reason == "No space left on device" and total == end == size.strip() and int(total) == 8 << 20


# --- what others see --------------------------------------------------------------------------------------------------


def test_fsync_means_what_it_means(programs, folder):
    run = Running(folder, programs["actor"], "sync", folder / "a")
    assert [run.line(), run.line()] == ["3000000", "0"]
    assert (folder / "a").read_bytes() == b"x" * 3_000_000  # this process is not captured
    code, _, error = run.end()
    assert code == 0 and "deferred" not in error


def test_deferred_fsync_is_told_and_done_at_the_end(programs, folder):
    run = Running(folder, programs["actor"], "sync", folder / "a", sync="defer")
    assert [run.line(), run.line()] == ["3000000", "0"]
    code, _, error = run.end()
    assert code == 0 and "1 call of fsync deferred: all files were synced at the end" in error
    assert (folder / "a").read_bytes() == b"x" * 3_000_000


def test_a_new_name_is_that_of_a_whole_file(programs, folder):
    run = Running(folder, programs["actor"], "rename", folder / "a", folder / "b")
    assert [run.line(), run.line()] == ["3000000", "0"]
    assert (folder / "b").read_bytes() == b"x" * 3_000_000
    assert run.end()[0] == 0


# --- the command ------------------------------------------------------------------------------------------------------


def ebbtide_run(*words):
    program = [sys.executable, "-c", "from ebbtide.cli import main; main()", "run", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


def test_the_command_has_the_programs_exit_status(folder):
    done = ebbtide_run("--capture", folder, "--fsync", "defer", "--pool", "16MiB", "--", "sh", "-c",
                       f"echo x > {folder}/a; exit 3")  # fmt: skip
    assert done.returncode == 3 and (folder / "a").read_text() == "x\n"
    assert done.stderr.startswith("ebbtide: run: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("how, status", [("exit 0", 0), ("exit 200", 200), ("kill -TERM $$", 143), ("kill -9 $$", 137)])
def test_every_exit_status_is_handed_on(how, status, folder):
    assert captured(folder, "sh", "-c", how).returncode == status


def test_a_signal_reaches_the_program(folder):
    run = Running(folder, "sh", "-c", "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert run.line() == "ready"
    run.process.send_signal(signal.SIGTERM)
    code, out, _ = run.end()
    assert (code, out) == (5, "got\n")


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--capture", "{}/none", "--", "true"], 2, "is not there: name an existing directory"),
        (["--capture", "{}/file", "--", "true"], 2, "is no directory"),
        (
            ["--capture", "{}", "--pool", "1MiB", "--", "true"],
            2,
            "--pool: 1 MiB is too small: at least 4 MiB is needed",
        ),
        (["--capture", "{}", "--pool", "much", "--", "true"], 2, '--pool="much" is not valid: expected a size'),
        (["--capture", "{}", "--", "no-such-program"], 127, '"no-such-program" cannot be run: ENOENT'),
        (["--capture", "{}", "--fsync", "never", "--", "true"], 2, "never"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(words, status, said, folder):
    (folder / "file").write_text("")
    done = ebbtide_run(*(word.format(folder) for word in words))
    assert done.returncode == status and said in " ".join(done.stderr.split())


def test_nothing_is_left_in_shared_memory(folder):
    def regions():
        return set(pathlib.Path(f"/dev/shm/ebbtide-{os.geteuid()}").glob("capture-*"))

    run = subprocess.Popen(command(folder, "sh", "-c", f"echo x > {folder}/a; exit 1"))
    assert run.wait(timeout=60) == 1
    assert not any(path.name == f"capture-{run.pid}" for path in regions())
