"""Sizes and times of the command line."""

import pytest
from ebbtide._units import format_size, format_time, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("4GiB", 4 << 30), ("512 MiB", 512 << 20), ("1.5GB", 1_500_000_000), ("2k", 2048), ("0", 0)],
)
def test_sizes(text, count):
    assert parse_size(text) == count


def test_a_count_of_bytes_is_exact():
    assert parse_size("9007199254740993") == 9007199254740993


@pytest.mark.parametrize(("text", "seconds"), [("10ms", 0.01), ("2s", 2.0), ("0.5", 0.5), ("250us", 0.00025)])
def test_times(text, seconds):
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "GiB", "-1", "12zb", "1e3", "4 Gi B", "nan"])
def test_wrong_ones_are_refused_with_what_would_be_right(text):
    with pytest.raises(ValueError, match="such as '128MiB'"):
        parse_size(text)
    with pytest.raises(ValueError, match="such as '10ms'"):
        parse_time(text)


def test_formats():
    assert format_size(4 << 30) == "4 GiB"
    assert format_time(0.0123) == "12.3 ms"
    assert format_time(0) == "0 µs"
