"""How what `offload` stores is gathered."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from torch_support import torch

from ebbtide.torch import _steps
from ebbtide.torch._steps import Kind, Plan

assert torch
MOST = 100
kinds = st.tuples(st.integers(1, 150), st.sampled_from([-1, 0]), st.sampled_from([0, 0, 0, 7]), st.sampled_from([True] * 9 + [False]))  # fmt: skip


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Kind], list[int]]:
    """What was stored, and asked for in an order that is mostly the reverse: stretches of it are shuffled, some repeat."""
    stored = draw(st.lists(kinds, min_size=1, max_size=40))
    asked: list[int] = []
    left = list(range(len(stored)))
    while left:
        size = draw(st.integers(1, 6))
        asked += draw(st.permutations(left[-size:]))
        del left[-size:]
    for _ in range(draw(st.integers(0, 3))):
        asked.insert(draw(st.integers(0, len(asked))), draw(st.sampled_from(asked)))
    return stored, asked


@given(steps())
def test_groups_are_small_of_one_stream_and_needed_without_anything_between(step: tuple[list[Kind], list[int]]) -> None:
    stored, asked = step
    plan = Plan(stored, asked, MOST)
    starts = [0, *sorted(set(plan.ends))]
    assert starts[-1] == len(stored) and len(starts) == plan.versions + 1
    version_of = {}
    for version, (start, end) in enumerate(itertools.pairwise(starts)):
        members = range(start, end)
        assert plan.ends[start:end] == [end] * len(members)
        version_of |= dict.fromkeys(members, version)
        if len(members) > 1:
            assert sum(stored[one][0] for one in members) <= MOST
            assert {stored[one][1:] for one in members} == {(*stored[start][1:3], True)}
            when = [i for i, one in enumerate(asked) if one in members]
            assert when == list(range(when[0], when[-1] + 1))
    expected = []
    for version, stretch in itertools.groupby(version_of[one] for one in asked):
        single = starts[version + 1] - starts[version] == 1
        expected += [version] * (len(list(stretch)) if single else 1)
    assert plan.order == expected


@given(st.integers(1, 200), st.integers(1, 30))
def test_what_is_small_and_needed_in_reverse_is_gathered(count: int, size: int) -> None:
    plan = Plan([(size, 0, 0, True)] * count, list(range(count))[::-1], MOST)
    each = min(MOST // size, _steps._MOST_MEMBERS)
    assert plan.versions == -(-count // each)
    assert plan.order == list(range(plan.versions))[::-1]
