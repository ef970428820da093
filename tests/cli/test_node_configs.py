"""Which brokers have other voters than the rest, as ``ottla cluster health`` compares them."""

from __future__ import annotations

import pytest

from ottla.cli.quorum_lists import other_ports, other_voters

THREE = "1@a:1,2@b:1,3@c:1"


def other(*lists: str, known: tuple[int, ...] = (1, 2, 3)) -> list[int]:
    return sorted(other_voters(dict(enumerate(lists, 1)), known))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((THREE, THREE, THREE), []),
        ((THREE, "3@c:1,1@a:1,2@other:1", THREE), []),
        (("1@a:1,3@c:1", THREE, THREE), [1]),
        ((THREE, "1@a:1,2@b:9,3@c:1", THREE), []),
        ((THREE,), []),
        (("1@a:1,3@c:1", "1@a:1,3@c:1", THREE), [1, 2]),
        (("1@a:1,3@c:1",), [1]),
    ],
)
def test_ids_are_compared_with_those_of_the_leader(lists: tuple[str, ...], expected: list[int]) -> None:
    assert other(*lists) == expected


def test_without_a_leader_most_brokers_are_right() -> None:
    assert other(THREE, "1@a:1", THREE, known=()) == [2]
    assert other() == []


def test_other_ports_are_right_while_controllers_move_to_another_listener() -> None:
    """A round of restarts waits for a healthy cluster after each node."""
    lists = (THREE, "1@a:1,2@b:9,3@c:1", "1@other:1,2@b:1,3@c:1")
    assert list(other_ports(dict(enumerate(lists, 1)))) == [2]
