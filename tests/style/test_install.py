"""What `pip install .` compiles for a user: the package alone, and a warning of a compiler we do not know stops nothing."""

import pathlib
import re

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
