"""Wrong options end with exit code 2, by name, and in JSON with `--json`; a closed stream changes no exit code."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
from commands_support import DAMAGED, OK, REFUSED, healthy, run

HUGE = str(10**20)
MAIN = "from ebbtide.cli import main; main()"


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["gc", "DIR", "--keep-last", HUGE],
        ["gc", "DIR", "--keep-last", "1", "--keep-every", HUGE],
        ["gc", "DIR", "--keep-last", "9" * 5000],
        ["gc", "DIR", "--keep-last", "-1"],
        ["export", "DIR", "--to", "OUT", "--versions", HUGE],
        ["bench", "shot", "--checkpoints", HUGE],
        ["bench", "shot", "--size", "1", "--checkpoints", str(2**63 - 1)],
        ["bench", "shot", "--ranks", HUGE],
        ["bench", "shot", "--size", HUGE],
        ["bench", "shot", "--size", "1", "--checkpoints", "1", "--device-cache", HUGE],
        ["bench", "shot", "--size", "1", "--checkpoints", "1", "--host-cache", str(2**64 - 1)],
        ["bench", "shot", "--size", "1", "--checkpoints", "1", "--disk", str(2**63)],
        ["bench", "shot", "--size", "1", "--checkpoints", "1", "--interval", "1" + "0" * 30],
        ["bench", "shot", "--size", "1", "--checkpoints", "1", "--interval", "9" * 400],
        ["bench", "trace", "OUT", "--snapshots", HUGE],
        ["bench", "trace", "OUT", "--gpus", HUGE],
        ["bench", "trace", "OUT", "--scale", "1e300"],
        ["bench", "trace", "OUT", "--scale", "nan"],
        ["demo", "--shots", HUGE],
        ["demo", "--small", "--device-cache", HUGE],
        ["demo", "--small", "--host-cache", HUGE],
    ],
    ids=lambda arguments: "-".join(one[:12] for one in arguments if one not in ("DIR", "OUT")),
)
def test_a_number_that_nothing_has_is_a_usage_error(arguments: list[str], tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    places = {"DIR": str(store), "OUT": str(tmp_path / "out")}
    done = run(*(places.get(one, one) for one in arguments))
    assert done.code == REFUSED, done
    assert done.out == ""
    option = next(one for one in reversed(arguments) if one.startswith("--"))
    assert option in done.err
    assert not (tmp_path / "out").exists()


# --- usage errors in JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["ls"], "DIR"),
        (["ls", "DIR", "--nonsense"], "--nonsense"),
        (["verify", "DIR", "other"], "other"),
        (["export", "DIR"], "--to"),
        (["export", "DIR", "--to", "OUT", "--format", "zip"], "--format"),
        (["export", "DIR", "--to", "OUT", "--versions", ""], "--versions"),
        (["export", "DIR", "--to", "OUT", "--versions", "3,,4"], "--versions"),
        (["gc", "DIR", "--keep-last", HUGE], "--keep-last"),
        (["gc", "DIR", "--keep-every", "2"], "--keep-every"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_with_json_a_usage_error_is_one_document(
    arguments: list[str], names: str, first: bool, tmp_path: pathlib.Path
) -> None:
    store = healthy(tmp_path / "store")[0].write()
    places = {"DIR": str(store), "OUT": str(tmp_path / "out")}
    given = [places.get(one, one) for one in arguments]
    if first:
        done = run(given[0], "--json", *given[1:])
    else:
        done = run(*given, "--json")
    assert done.code == REFUSED
    assert list(done.json) == ["error"]
    assert done.json["error"]["reason"] == "invalid_argument"
    assert names in done.json["error"]["message"]
    assert done.err == f"ebbtide: {done.json['error']['message']}\n"
    plain = run(*given)
    assert (plain.code, plain.out) == (REFUSED, "")
    assert names in plain.err


def test_what_only_looks_like_json_is_none(tmp_path: pathlib.Path) -> None:
    """`--json` behind `--` is an argument, and of `doctor` it names a file."""
    for arguments in (["ls", "--", "DIR", "--json"], ["doctor", "--json", "x", "--nonsense"], ["nonsense", "--json"]):
        done = run(*arguments)
        assert (done.code, done.out) == (REFUSED, "")


# --- closed and broken streams ----------------------------------------------------------------------------------------


def shell(redirection: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *words], capture_output=True, timeout=120, check=False
    )


@pytest.mark.parametrize("redirection", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize("damaged", [False, True])
def test_closed_streams_change_no_exit_code(redirection: str, damaged: bool, tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    if damaged:
        writer.segment(2)[records["last"].payload_offset] ^= 1
    store = writer.write()
    before = {path: path.read_bytes() for path in store.iterdir()}
    commands: list[list[object]] = [["verify", store, "--json"]]
    if not damaged:
        commands += [["ls", store], ["export", store, "--to", tmp_path / "out"], ["gc", store, "--dry-run"]]
    for command in commands:
        done = shell(redirection, *command)
        assert done.returncode == (DAMAGED if damaged else OK), (command, done)
        if ">&-" not in redirection.replace("2>&-", "") and "--json" in command:
            assert json.loads(done.stdout)["intact"] is not damaged
        assert b"Traceback" not in done.stderr
    if not damaged:
        assert shell(redirection, "verify", tmp_path / "nowhere").returncode == REFUSED
        assert shell(redirection, "verify", "--nonsense", "--json").returncode == REFUSED
    assert {path: path.read_bytes() for path in store.iterdir() if path in before} == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_reader_that_goes_away_changes_no_exit_code(damaged: bool, tmp_path: pathlib.Path) -> None:
    writer, records = healthy(tmp_path / "store")
    if damaged:
        writer.segment(2)[records["last"].payload_offset] ^= 1
    store = writer.write()
    for options in ([], ["--json"]):
        reader, end = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, "-c", MAIN, "verify", str(store), *options],
                stdout=end, stderr=subprocess.PIPE, timeout=120, check=False,
            )  # fmt: skip
        finally:
            os.close(end)
        assert (done.returncode, done.stderr) == (DAMAGED if damaged else OK, b"")


def test_an_answer_that_cannot_be_written_is_no_answer(tmp_path: pathlib.Path) -> None:
    store = healthy(tmp_path / "store")[0].write()
    for command in (["verify", store], ["ls", store, "--json"], ["gc", store, "--dry-run"]):
        done = shell(">/dev/full", *command)
        assert done.returncode == REFUSED
        assert b"No space left" in done.stderr
        assert b"Traceback" not in done.stderr
