"""tools/googletest.py: each listed test has a result, whatever the others did to their process."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import googletest  # noqa: E402

SOURCE = r"""
#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
TEST(A, passes) {}
TEST(A, crashes) { std::abort(); }
TEST(A, passes_behind_it) {}
TEST(A, hangs) { for (;;) ::sleep(1); }
TEST(A, chats_for_ever) { for (;;) std::puts("on and on"), std::fflush(stdout), ::usleep(10'000); }
TEST(A, leaves) { std::_Exit(0); }
TEST(A, fails) { std::printf("no end of line"); EXPECT_EQ(1, 2); }
TEST(A, skips) { GTEST_SKIP() << "why"; }
TEST(A, ends_badly) { static struct S { ~S() { if (on) ::_exit(23); } bool on = false; } s; s.on = true; }
TEST(A, skips_and_ends_badly) { std::atexit([] { ::_exit(24); }); GTEST_SKIP(); }
TEST(A, fails_and_ends_badly) { std::atexit([] { ::_exit(25); }); FAIL() << "first"; }
TEST(A, leaves_a_child_that_chats) { if (!::fork()) for (;;) std::puts("still here"), std::fflush(stdout), ::usleep(10'000); }
class Suite : public ::testing::Test { protected: static void SetUpTestSuite() { FAIL() << "no suite"; } };
class NoSetUp : public Suite {};
TEST_F(NoSetUp, one) {}
TEST_F(NoSetUp, two) {}
class P : public ::testing::TestWithParam<int> {};
TEST_P(P, of) { EXPECT_NE(GetParam(), 1); }
INSTANTIATE_TEST_SUITE_P(All, P, ::testing::Range(0, 3));
"""
COMES_TO = {
    "A.passes": "passed",
    "A.crashes": "failed",
    "A.passes_behind_it": "passed",
    "A.hangs": "failed",
    "A.leaves": "failed",
    "A.fails": "failed",
    "A.skips": "skipped",
    "A.ends_badly": "failed",
    "A.chats_for_ever": "failed",
    "A.skips_and_ends_badly": "failed",
    "A.fails_and_ends_badly": "failed",
    "A.leaves_a_child_that_chats": "passed",
    "NoSetUp.one": "failed",
    "NoSetUp.two": "failed",
    "All/P.of/0": "passed",
    "All/P.of/1": "failed",
    "All/P.of/2": "passed",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("googletest")
    (folder / "a.cpp").write_text(SOURCE)
    libraries = ["-lgtest", "-lgtest_main", "-lpthread"]
    subprocess.run(["g++", "-std=c++20", folder / "a.cpp", "-o", folder / "a", *libraries], check=True)
    return folder / "a"


# Shuffled, those that end badly run apart: if another test crashes their process first, that end is never reached.
@pytest.mark.parametrize(
    "shuffled, apart", [("0", []), ("0", ["A.crashes", "All/*"]), ("1", ["*ends_badly", "NoSetUp.*"])]
)
def test_a_crash_and_a_hang_are_named_and_lose_no_result(program, apart, shuffled, capsys):
    one = googletest.Program(str(program), [], 1.0, False, apart)
    ended = googletest.run_programs([one], 2, {"GTEST_SHUFFLE": shuffled})
    assert {name: end.verdict for name, end in ended.items()} == {f"a.{name}": of for name, of in COMES_TO.items()}
    said = capsys.readouterr().out
    assert "signal SIGABRT\nFAILED: a.A.crashes" in said
    assert "it was not done in 1 s\nFAILED: a.A.hangs" in said


def test_each_test_is_in_one_shard(program):
    one = googletest.Program(str(program), [], 1.0, False, ["A.h*"])
    shards = googletest.shards_of(one, [f"B.t{i}" for i in range(100)] + ["A.hangs"])
    assert sorted(sum(shards, [])) == sorted([f"B.t{i}" for i in range(100)] + ["A.hangs"])
    assert ["A.hangs"] in shards and max(map(len, shards)) <= googletest.TESTS_A_SHARD


def test_a_program_that_lists_nothing_is_a_failure_and_loses_no_other(program, tmp_path, capsys):
    for name, body in {"silent": "exit 0", "broken": "echo 'cannot open libfoo.so' >&2; exit 127"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    paths = [tmp_path / "silent", tmp_path / "broken", program]
    programs = [googletest.Program(str(path), [], 1.0, False, ["*"]) for path in paths]
    ended = googletest.run_programs(programs, 2, {})
    assert ended.pop("silent.its tests").verdict == ended.pop("broken.its tests").verdict == "failed"
    assert {name: end.verdict for name, end in ended.items()} == {f"a.{name}": of for name, of in COMES_TO.items()}
    assert "cannot open libfoo.so" in capsys.readouterr().out
