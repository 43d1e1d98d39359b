"""What `pip install .` compiles for a user: the package alone, and a warning of a compiler we do not know stops nothing."""

import pathlib
import re
import sys

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from wheels import readme  # noqa: E402

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
OPTIONS = dict(re.findall(r"^option\((\w+) \"[^\"]*\" (\S+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))


def test_a_users_install_builds_the_extension_alone():
    capture = ["ebbtide_capture", "ebbtide-capture"]  # the library and the program of `ebbtide run`
    assert SETTINGS["build"]["targets"] == ["_core", "ebbtide-agent", *capture]
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
