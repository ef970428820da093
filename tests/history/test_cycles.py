"""The search for circles, against the definition: who can be reached from himself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.history.cycles import Read, circles

NAMES = "abcdefg"
GRAPHS = st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)))


@given(GRAPHS)
def test_each_group_of_transactions_that_are_all_after_each_other_has_one_circle(edges: dict[str, set[str]]) -> None:
    reads = {reader: {writer: Read(("t", 0), writer, 1) for writer in sorted(writers - {reader})} for reader, writers in edges.items()}
    after = {name: reached(reads, name) for name in NAMES}
    groups = {frozenset(other for other in after[name] if name in after[other]) for name in NAMES if name in after[name]}
    found = list(circles(reads))
    assert {next(group for group in groups if set(circle) <= group) for circle in found} == groups
    assert len(found) == len(groups)
    for circle in found:
        assert len(set(circle)) == len(circle) > 1
        assert all(writer in reads[reader] for reader, writer in zip(circle, [*circle[1:], circle[0]], strict=True))


def reached(reads: dict[str, dict[str, Read]], start: str) -> set[str]:
    """Those that it is after, by one read or more."""
    found: set[str] = set()
    open_ones = [start]
    while open_ones:
        for writer in reads.get(open_ones.pop(), {}):
            if writer not in found:
                found.add(writer)
                open_ones.append(writer)
    return found
