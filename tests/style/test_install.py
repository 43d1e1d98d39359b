"""What `pip install .` compiles for a user: the package alone, and a warning of a compiler we do not know stops nothing."""

import os
import pathlib
import re
import subprocess
import sys
import time

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from wheels import building, readme  # noqa: E402

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
OPTIONS = dict(re.findall(r"^option\((\w+) \"[^\"]*\" (\S+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))


def test_a_users_install_builds_the_extension_alone():
    defer = ["ebbtide_defer", "ebbtide-defer"]  # the library and the program of `ebbtide run`
    assert SETTINGS["build"]["targets"] == ["_core", "_models", "ebbtide-agent", *defer]
    assert SETTINGS["install"]["components"] == ["python"], "nothing of the C++ library goes into a wheel"
    assert SETTINGS["cmake"]["define"] == {"EBB_PYTHON": "ON"}
    assert OPTIONS["EBB_TESTS"] == OPTIONS["EBB_BENCHES"] == "OFF"


def test_warnings_are_errors_only_where_tests_are_built():
    assert OPTIONS["EBB_WERROR"] == "${EBB_TESTS}"
    rooms = [path.read_text() for path in ROOT.glob("src/*/CMakeLists.txt")] + [
        (ROOT / "python/CMakeLists.txt").read_text()
    ]
    named = [line for text in rooms for line in text.splitlines() if "-Werror" in line]
    assert all("$<BOOL:${EBB_WERROR}>" in line for line in named), named


def test_the_page_of_a_package_has_no_relative_link():
    page = (ROOT / "README.md").read_text()
    home = "https" + "://example.org/ebbtide"
    assert re.search(r"\]\(docs/", page)
    assert not re.search(r"\]\((?!\w+:)", readme.packaged(page, None))
    absolute = readme.packaged(page, home)
    assert f"]({home}/docs/overview.svg)" in absolute and not re.search(r"\]\((?!\w+:)", absolute)


def test_every_extra_is_named_where_it_is_needed():
    text = (ROOT / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    assert {"plots", "torch", "jax", "seismic", "mpi"} <= set(extras)
    assert not any("matplotlib" in one for one in tomllib.loads(text)["project"]["dependencies"])


def test_what_changed_while_wheels_were_made_is_newer_than_what_was_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "ROOT", tmp_path)
    monkeypatch.setattr(building, "SOURCE", tmp_path / "build/wheels/source")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("build\n")
    (tmp_path / "README.md").write_text("# A package\n")
    source, copy = tmp_path / "module.cpp", tmp_path / "build/wheels/source/module.cpp"
    source.write_text("1")
    building.copy_tree(None)
    compiled = time.time() - 1
    os.utime(copy, (compiled - 60, compiled - 60))
    building.copy_tree(None)
    assert copy.stat().st_mtime < compiled, "what did not change is not compiled again"
    source.write_text("2")
    os.utime(source, (compiled - 30, compiled - 30))  # changed between the copy and the end of the compiler
    building.copy_tree(None)
    assert copy.read_text() == "2" and copy.stat().st_mtime > compiled
