"""Every command and every example of the documentation is run.

A fenced block names its language: `python`, `c` and `cpp` blocks are whole programs and must end well; `sh` blocks are
commands, one a line, run at the root of the checkout; other languages are pictures, data or output.
"""

import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
INERT = {"mermaid", "text", "csv", "json", "make", "cmake", "math"}


class Block(NamedTuple):
    where: str  # "README.md:12"
    language: str
    text: str


def blocks_of(page: pathlib.Path) -> list[Block]:
    found, lines = [], page.read_text().splitlines()
    begin = None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin, language = number, line[3:].strip()
        else:
            found.append(Block(f"{page.relative_to(ROOT)}:{begin}", language, "\n".join(lines[begin : number - 1]) + "\n"))
            begin = None
    assert begin is None, f"{page.relative_to(ROOT)}:{begin}: the block is not closed"
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(*languages: str):
    blocks = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", blocks, ids=[block.where for block in blocks])


def run(command, environment, limit=240, **options):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compile_and_run(source: pathlib.Path, library, environment, scratch):
    compiler = ["gcc", "-std=c11"] if source.suffix == ".c" else ["g++", "-std=c++20"]
    program = scratch / "program"
    run([*compiler, "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}", source, "-o", program, f"-L{library}",
         "-lebbtide", f"-Wl,-rpath,{library}", "-lm"], environment)
    return run([program], environment, cwd=scratch)


def test_there_are_pages_and_examples():
    languages = [block.language for block in BLOCKS if block.where.startswith("README.md")]
    assert {"sh", "python", "cpp"} <= set(languages)


def test_every_block_names_a_language_that_is_known():
    assert [b.where for b in BLOCKS if b.language not in {"sh", "python", "c", "cpp"} | INERT] == []


@of("python")
def test_python_block(block, environment, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(block.text)
    run([sys.executable, script], environment, cwd=tmp_path)


@of("c", "cpp")
def test_compiled_block(block, library, environment, tmp_path):
    source = tmp_path / f"example.{block.language}"
    source.write_text(block.text)
    compile_and_run(source, library, environment, tmp_path)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.*")), ids=lambda path: path.name)
def test_example(example, library, environment, tmp_path):
    if example.suffix == ".py":
        run([sys.executable, example], environment, cwd=tmp_path)
    elif example.suffix in (".c", ".cpp"):
        compile_and_run(example, library, environment, tmp_path)
    else:
        assert example.suffix == ".md"


# --- commands ---------------------------------------------------------------------------------------------------------
# What cannot be run as it stands is listed here, each kind with what is checked instead.


def check_make(words, environment):
    """`make test` runs this very test: that the target exists is what can be checked."""
    for target in words[1:]:
        assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"


def check_pip(words, environment):
    """`make build` installs in just this way; what the command names must be there."""
    assert words == ["pip", "install", "."] and (ROOT / "pyproject.toml").exists()


def check_cmake(words, environment):
    """The library's own build and installation is the test `capi_install`: its options must be known."""
    known = "\n".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake"), ROOT / "tools/run_tests.py"])
    for word in words[1:]:
        if word.startswith("-DEBB_"):
            assert word[2:].split("=")[0] in known, f"no option {word}"
    if "--target" in words:
        run(["cmake", "--build", str(ROOT / "build/release"), "--target", words[words.index("--target") + 1], "-n"], environment) \
            if (ROOT / "build/release/CMakeCache.txt").exists() else None


def check_demo(words, environment):
    """The demo in its short form, with the same options."""
    run([*words, "--small"], environment, cwd=ROOT / "build" / "scratch")


RULES = [
    (["make"], check_make),
    (["pip", "install"], check_pip),
    (["cmake"], check_cmake),
    (["ctest"], lambda words, environment: None),  # what it runs is being run
    (["git", "clone"], lambda words, environment: None),  # there is one already: this
    (["sudo", "apt-get"], lambda words, environment: None),  # changes the reader's system
    ([".venv/bin/ebbtide", "demo"], check_demo),
]


def commands():
    for block in BLOCKS:
        if block.language == "sh":
            for offset, line in enumerate(block.text.replace("\\\n", " ").splitlines()):
                words = shlex.split(line, comments=True)
                if words:
                    yield pytest.param(line, words, id=f"{block.where}+{offset}")


@pytest.mark.parametrize("line, words", list(commands()))
def test_command(line, words, environment):
    for prefix, check in RULES:
        if words[: len(prefix)] == prefix:
            resolved = [str(ROOT / words[0]) if words[0].startswith(".venv/") else words[0], *words[1:]]
            (ROOT / "build" / "scratch").mkdir(parents=True, exist_ok=True)
            check(resolved, environment)
            return
    run(["bash", "-euo", "pipefail", "-c", line], environment, cwd=ROOT)


# --- words ------------------------------------------------------------------------------------------------------------


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_files_that_are_named_exist():
    """`src/...`, `tests/...` and the like in backquotes, as ARCHITECTURE.md names them."""
    missing = []
    for page in PAGES:
        for name in re.findall(r"`((?:src|include|tests|tools|docs|python|examples|benches|data|cmake)/[\w./*-]*)`", page.read_text()):
            if not list(ROOT.glob(name.rstrip("/"))):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing


def test_nothing_is_told_of_the_machines_it_was_made_on():
    tell_tale = re.compile(r"/(?:work|root|home|Users)/|\b(?:issue|PR) ?#\d+|\w://")
    told = [f"{page.relative_to(ROOT)}: {match[0]}" for page in PAGES for match in tell_tale.finditer(page.read_text())]
    assert not told
