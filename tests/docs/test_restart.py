"""The restart programs of docs/durability.md and examples/training.py, killed and run again."""

import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
from scratch import SCRATCH
from test_examples import BLOCKS, ROOT, compiled, require_packages, run


@pytest.fixture
def disk():
    """On a disk: a temporary folder may lie in memory, which is no stable storage."""
    with tempfile.TemporaryDirectory(prefix="restart-", dir=SCRATCH) as directory:
        yield pathlib.Path(directory)


def kill_after(command, lines: int, environment, cwd) -> int:
    """Kills it -9 as soon as it has said that often that a step is durable; gives that step."""
    with subprocess.Popen(command, env=environment, cwd=cwd, stdout=subprocess.PIPE, text=True) as child:
        said = [next(line for line in child.stdout if line.endswith("is durable\n")) for _ in range(lines)]
        child.kill()
        child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    return int(said[-1].split()[1])


def continues_where_it_was_killed(command, environment, disk):
    whole, killed = disk / "whole", disk / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = run(command, environment, cwd=whole).splitlines()[-1]
    steps = [kill_after(command, lines, environment, killed) for lines in (1, 2, 1)]
    assert steps == sorted(set(steps)), "it started over"
    assert run(command, environment, cwd=killed).splitlines()[-1] == expected
    again = run(command, environment, cwd=killed)  # there is nothing left to do
    assert again.splitlines()[-1] == expected and "durable" not in again


@pytest.mark.parametrize("language", ["python", "cpp", "c"])
def test_the_program_of_the_page_continues_where_it_was_killed(language, request, environment, disk):
    (block,) = (
        block
        for block in BLOCKS
        if block.where.startswith("docs/durability.md")
        and block.language == language
        and "continuing after" in block.text
    )
    source = disk / f"restart.{'py' if language == 'python' else language}"
    source.write_text(block.text)
    if language == "python":
        command = [sys.executable, source]
    else:
        command = [compiled(source, request.getfixturevalue("library"), environment, disk)]
    continues_where_it_was_killed(command, environment, disk)


def test_the_training_continues_where_it_was_killed(environment, disk):
    example = ROOT / "examples" / "training.py"
    require_packages(example.read_text())
    continues_where_it_was_killed([sys.executable, example], environment, disk)
