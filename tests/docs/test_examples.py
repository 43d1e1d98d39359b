"""Every command and every example of the documentation is run.

Stores are on the GPU if there is one. A `python` block that begins with `# needs a GPU`, and a command with
`--device cuda`, are skipped where there is none (`pytest -m gpu` runs them alone); a block or an example that begins with `# needs torch`, or another package, where that is
not installed.
A fenced block names its language: `python`, `c` and `cpp` blocks are whole programs and must end well; `sh` blocks, and
indented ones, are commands, one a line; other languages are pictures, data or output.
"""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
from scratch import SCRATCH

from ebbtide import _core

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
            found.append(
                Block(f"{page.relative_to(ROOT)}:{begin}", language, "\n".join(lines[begin : number - 1]) + "\n")
            )
            begin = None
    assert begin is None, f"{page.relative_to(ROOT)}:{begin}: the block is not closed"
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(*languages: str):
    blocks = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", [pytest.param(b, id=b.where, marks=marks(b.text)) for b in blocks])


def marks(text: str):
    if text.startswith("# needs a GPU\n"):
        return [pytest.mark.gpu]
    return [pytest.mark.frameworks] if text.startswith("# needs ") else []


def run(command, environment, limit=240, **options):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def require_gpu():
    if not _core.cuda_devices():
        pytest.skip(f"there is no GPU: {_core.cuda_absent_reason()}")


def require_packages(text: str):
    """Those that the first line names: `# needs torch`, `# needs jax, torch`."""
    first = text.partition("\n")[0]
    for name in first.removeprefix("# needs ").split(", ") if re.fullmatch(r"# needs \w+(, \w+)*", first) else ():
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def require_command(text: str):
    """A machine that only tools/gpu-check has prepared has no `ebbtide`: nothing is installed there."""
    if '["ebbtide", ' in text and not INSTALLED.exists():
        pytest.skip("the command ebbtide is not installed")


def compiled(source: pathlib.Path, library, environment, scratch) -> pathlib.Path:
    text = source.read_text()
    veloc = library.parent / "veloc"
    of_veloc = "#include <veloc" in text
    if of_veloc and not (veloc / "libveloc-client.so").exists():
        pytest.skip("libveloc-client is not built: MPI or inih is not installed")
    c, cxx = ("mpicc", "mpicxx") if of_veloc or "ebbtide/mpi.h" in text else ("gcc", "g++")
    compiler = [c, "-std=c11"] if source.suffix == ".c" else [cxx, "-std=c++20", "-DOMPI_SKIP_MPICXX"]  # it warns
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    program = scratch / "program"
    run(
        [
            *compiler,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            f"-I{ROOT / 'include'}",
            source,
            "-o",
            program,
            *([f"-L{veloc}", "-lveloc-client", f"-Wl,-rpath,{veloc}"] if of_veloc else []),
            f"-L{library}",
            "-lebbtide",
            f"-Wl,-rpath,{library}",
            "-lm",
        ],
        environment,
    )
    return program


def compile_and_run(source: pathlib.Path, library, environment, scratch):
    if "veloc.cfg" in source.read_text():
        (place := SCRATCH / f"veloc-{scratch.name}-{os.getpid()}").mkdir()
        (scratch / "veloc.cfg").write_text(f"scratch = {place}\n")
    return run([compiled(source, library, environment, scratch)], environment, cwd=scratch)


def test_there_are_pages_and_examples():
    languages = [block.language for block in BLOCKS if block.where.startswith("README.md")]
    assert {"sh", "python", "cpp"} <= set(languages)


def test_every_block_names_a_language_that_is_known():
    assert [b.where for b in BLOCKS if b.language not in {"sh", "python", "c", "cpp"} | INERT] == []


def test_the_device_of_an_example_is_the_readers(monkeypatch, request):
    monkeypatch.setenv("EBBTIDE_DEVICE", "cpu")  # as the tests of tests/python set it
    assert "EBBTIDE_DEVICE" not in request.getfixturevalue("environment")


@pytest.mark.block
@of("python")
def test_python_block(block, environment, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(block.text)
    require_packages(block.text)
    require_command(block.text)
    if block.text.startswith("# needs a GPU\n"):
        compile(block.text, block.where, "exec")
        require_gpu()
        for name in re.findall(r"^import (torch|cupy)$", block.text, re.MULTILINE):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
    run([sys.executable, script], environment, cwd=tmp_path)


@of("c", "cpp")
def test_compiled_block(block, library, environment, tmp_path):
    source = tmp_path / f"example.{block.language}"
    source.write_text(block.text)
    compile_and_run(source, library, environment, tmp_path)


EXAMPLES = sorted((ROOT / "examples").glob("*.*"))


@pytest.mark.parametrize("example", [pytest.param(e, id=e.name, marks=marks(e.read_text())) for e in EXAMPLES])
def test_example(example, library, environment, tmp_path):
    if example.suffix == ".py":
        require_packages(example.read_text())
        run([sys.executable, example], environment, cwd=tmp_path)
    elif example.suffix in (".c", ".cpp"):
        compile_and_run(example, library, environment, tmp_path)
    else:
        assert example.suffix == ".md"


# --- commands ---------------------------------------------------------------------------------------------------------
# Commands that cannot run as they are, each kind with the check that is made instead.


def check_make(words, environment, cwd):
    """`make test` runs this very test: that the target exists is what can be checked."""
    for target in words[1:]:
        assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
            f"no target {target}"
        )


def check_pip(words, environment, cwd):
    """`make build` installs in just this way; what the command names must be there."""
    assert words == ["pip", "install", "."] and (ROOT / "pyproject.toml").exists()


def check_requirements(words, environment, cwd):
    """Gigabytes of others' libraries are not installed for it: each is named with its version."""
    lines = [line.split("#")[0].strip() for line in (ROOT / words[-1]).read_text().splitlines()]
    assert all("==" in line for line in lines if line)


def check_cmake(words, environment, cwd):
    """The tests `capi_install` and `capi_find_package` build and install; here, that options and rooms are known."""
    known = (ROOT / "CMakeLists.txt").read_text()
    for word in words[1:]:
        if word.startswith("-DEBB_"):
            name, value = word[2:].split("=")
            assert re.search(rf"^(option|set)\({name} ", known, re.MULTILINE), f"no option {name}"
            if name.endswith("ROOMS"):
                assert [room for room in value.split(";") if not (ROOT / "src" / room).is_dir()] == []


def check_demo(words, environment, cwd):
    """The demo in its short form, with the same options; with EBB_LONG as it is written."""
    if "cuda" in words:
        require_gpu()
    run([*words, *([] if os.environ.get("EBB_LONG") else ["--small"])], environment, limit=1800, cwd=cwd)


# The benchmark is run with all options as written, but with less to do.
LESS = {
    "--checkpoints": "8", "--size": "256KiB", "--device-cache": "1MiB", "--host-cache": "1MiB", "--interval": "1ms",
    "--snapshots": "8", "--repeats": "1", "--dir": str(SCRATCH), "--shared": str(SCRATCH), "--disk": "1MiB",
}  # fmt: skip


def check_bench(words, environment, cwd):
    smaller = [LESS.get(before, word) for before, word in zip(["", *words], words)]
    if words[-1] == "shot":  # as much as the machine does in a minute
        smaller += ["--time", "1s", "--dir", str(SCRATCH)]
    run(smaller, environment, cwd=cwd)


def check_paper(words, environment, cwd):
    """That its options and its figure are known; it takes minutes, and tests/python runs it in short."""
    start = words[: words.index("paper") + 1]
    help_text = run([*start, "--help"], environment, cwd=cwd)
    assert not [word for word in words if word.startswith("--") and not re.search(rf"{word}\b", help_text)]
    assert words[len(start)] in run([*start, "--list"], environment, cwd=cwd)


def check_exists(words, environment, cwd):
    """Needs a network, or an idle machine for a quarter of an hour: checks only that the program exists."""
    assert (ROOT / words[0]).exists()


def check_gpu_check(words, environment, cwd):
    """That its options, and stages if it has any, are known; it would be minutes on a GPU."""
    help_text = run([sys.executable, ROOT / words[0], "--help"], environment)
    for word in words[1:]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b", help_text), f"no option {word}"
    for before, word in zip(words, words[1:]):
        if before in ("--only", "--skip"):
            stages = re.search(r"commas between: ([\w\s,]+)", help_text)[1].replace(",", " ").split()
            assert set(word.split(",")) <= set(stages), f"stages are {stages}"


def check_reliability(words, environment, cwd):
    """That its options and trials are known; it takes minutes to hours, and tests/python runs some of it in short."""
    help_text = run([sys.executable, ROOT / words[0], "--help"], environment)
    for before, word in zip(words, words[1:]):
        assert not word.startswith("--") or re.search(rf"{word}\b", help_text), f"no option {word}"
        assert before != "--only" or re.search(rf"these alone: .*\b{word}\b", help_text, re.DOTALL), f"no trial {word}"


def check_store(words, environment, cwd):
    """On a store of that name, which is made for it."""
    assert "run-7" in words
    write = "for step in range(5): store.checkpoint(step, np.full(1000, step))"
    program = f"import ebbtide, numpy as np\nwith ebbtide.open('run-7', durability='process') as store:\n    {write}"
    run([sys.executable, "-c", program], environment, cwd=cwd)
    run(words, environment, cwd=cwd)


def check_sim(words, environment, cwd):
    """As it is written; what it writes goes to a folder of its own."""
    run([str(ROOT / word) if word.startswith("data/") else word for word in words], environment, cwd=cwd)


def check_small_versions(words, environment, cwd):
    """With fewer versions; what it measures goes to a folder of its own."""
    run([str(ROOT / words[0]), "--versions", "20000", "--json", cwd / "measured.json"], environment, cwd=cwd)


def nothing(words, environment, cwd):
    pass


# A machine that only tools/gpu-check has prepared runs the checkout, where nothing is installed.
INSTALLED = pathlib.Path(sys.executable).parent / "ebbtide"
EBBTIDE = [str(INSTALLED)] if INSTALLED.exists() else [sys.executable, "-c", "from ebbtide.cli import main; main()"]

RULES = [
    (["make"], check_make),
    (["pip", "install"], check_pip),
    (["cmake"], check_cmake),
    (["ctest"], nothing),  # what it runs is being run
    (["git", "clone"], nothing),  # there is one already: this
    (["sudo", "apt-get"], nothing),  # changes the reader's system
    (["ebbtide", "demo"], check_demo),
    (["ebbtide", "bench", "paper"], check_paper),
    (["ebbtide", "bench"], check_bench),
    (["ebbtide", "sim"], check_sim),
    (["ebbtide", "plan"], check_sim),
    *((["ebbtide", name], check_store) for name in ("ls", "verify", "export", "gc")),
    (["benches/figures"], check_exists),
    (["tools/gpu-carry"], check_exists),
    (["tools/gpu-check"], check_gpu_check),
    (["reliability/run"], check_reliability),
    (["tools/run_tests.py"], check_gpu_check),
    (["benches/init.py"], check_gpu_check),
    (["benches/state.py"], check_gpu_check),
    (["benches/predicted.py"], check_gpu_check),
    (["benches/small_versions.py"], check_small_versions),
    (["python", "-m", "pip", "install", "-r"], check_requirements),
]


def indented_blocks(page: pathlib.Path):
    """Markdown's older form: lines four spaces in, after an empty line."""
    lines = page.read_text().splitlines()
    inside = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside and line.startswith("    ") and not lines[number - 2].strip():
            block = []
            for following in lines[number - 1 :]:
                if not following.startswith("    "):
                    break
                block.append(following.strip() + "\n")
            yield Block(f"{page.relative_to(ROOT)}:{number}", "sh", "".join(block))


def commands():
    indented = [block for page in PAGES for block in indented_blocks(page)]
    for block in [*BLOCKS, *indented]:
        if block.language == "sh":
            text = re.sub(r"\\\n *", " ", block.text)
            for offset, line in enumerate(text.splitlines()):
                # "[--optional VALUE]" is tried; "[--dir DIRECTORY]", a place for the reader's own, is left out
                line = re.sub(
                    r"\[([^\]]*)\]", lambda match: "" if re.search(r"\b[A-Z]{3,}\b", match[1]) else match[1], line
                )
                words = shlex.split(line, comments=True)
                if words:
                    words[0] = words[0].removeprefix(".venv/bin/")
                    yield pytest.param(
                        words, id=f"{block.where}+{offset}", marks=[pytest.mark.gpu] if "cuda" in words else []
                    )


@pytest.mark.parametrize("words", list(commands()))
def test_command(words, environment, tmp_path):
    for prefix, check in RULES:
        if words[: len(prefix)] == prefix:
            if words[0] == "ebbtide":
                words = [*EBBTIDE, *words[1:]]
            check(words, environment, tmp_path)
            return
    assert not [word for word in words if word.startswith("benches/results/")], "what was measured would be overwritten"
    run(words, environment, cwd=ROOT)


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
        for name in re.findall(
            r"`((?:src|include|tests|tools|docs|python|examples|benches|data|cmake)/[\w./*-]*)`", page.read_text()
        ):
            if not list(ROOT.glob(name.rstrip("/"))) and not list(ROOT.glob(name + ".*")):  # a program by its source
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing


def test_no_page_mentions_the_machines_it_was_made_on():
    tell_tale = re.compile(r"/(?:work|root|home|Users)/|\b(?:issue|PR) ?#\d+|\w://")
    found = [
        f"{page.relative_to(ROOT)}: {match[0]}" for page in PAGES for match in tell_tale.finditer(page.read_text())
    ]
    assert not found
