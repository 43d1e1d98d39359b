"""The contents that `--verify` compares: whatever is misplaced must be noticed."""

import numpy as np
import pytest
from ebbtide._machine.content import GUARD, Contents, Landing
from ebbtide._machine.device import Cpu

SIZE = 3 * 4096 + 13


@pytest.fixture(scope="module")
def contents():
    return Contents(Cpu(), rank=0, versions=8, largest=SIZE)


@pytest.fixture
def landing(contents):
    landing = Landing(Cpu(), SIZE)
    landing.at(SIZE)[:] = contents.of(3, SIZE)
    return landing


def test_right_bytes_are_right(contents, landing):
    assert landing.wrong_bytes(contents.of(3, SIZE)) == 0


def test_an_older_version_is_noticed(contents, landing):
    landing.at(SIZE)[:] = contents.of(2, SIZE)
    assert landing.wrong_bytes(contents.of(3, SIZE)) > 0.9 * SIZE


@pytest.mark.parametrize("place", [0, 4095, 4096, SIZE - 14, SIZE - 1])
def test_one_wrong_byte_is_noticed(contents, landing, place):
    landing.at(SIZE)[place] ^= 1
    assert landing.wrong_bytes(contents.of(3, SIZE)) == 1


def test_swapped_pages_are_noticed(contents, landing):
    bytes_ = landing.at(SIZE)
    bytes_[:4096], bytes_[4096:8192] = bytes_[4096:8192].copy(), bytes_[:4096].copy()
    assert landing.wrong_bytes(contents.of(3, SIZE)) > 8000


def test_a_part_of_another_version_at_its_own_place_is_noticed(contents, landing):
    landing.at(SIZE)[4096:8192] = contents.of(4, SIZE)[4096:8192]
    assert landing.wrong_bytes(contents.of(3, SIZE)) > 4000


@pytest.mark.parametrize("place", [GUARD - 1, -GUARD])
def test_a_write_beside_the_target_is_noticed(contents, landing, place):
    landing._memory[place] = 0
    assert landing.wrong_bytes(contents.of(3, SIZE)) == 1


def test_another_ranks_contents_differ(contents):
    other = Contents(Cpu(), rank=1, versions=8, largest=SIZE)
    assert np.count_nonzero(other.of(3, SIZE) != contents.of(3, SIZE)) > 0.9 * SIZE


def test_no_word_occurs_twice():
    words = Contents(Cpu(), rank=0, versions=4, largest=1 << 16).of(0, 1 << 16).view(np.uint64)
    assert len(np.unique(words)) == len(words)


def test_sources_are_read_only(contents):
    with pytest.raises(ValueError, match="read-only"):
        contents.of(0, 8)[0] = 1
