"""A leader suspects its own log where a follower asks again and again for what it was sent, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.replicas.leading import SUSPECT_COUNT, Leading


@pytest.mark.parametrize(
    ("fetches", "expected"),
    [
        ([(2, 7)] * (SUSPECT_COUNT - 1), []),
        ([(2, 7)] * SUSPECT_COUNT, [7]),
        ([(2, 7)] * 3 * SUSPECT_COUNT, [7]),
        ([(2, offset) for offset in range(4 * SUSPECT_COUNT)], []),
        ([(node, 7) for node in (2, 3) for _ in range(SUSPECT_COUNT - 1)], []),
        ([(2, 7), (3, 7)] * SUSPECT_COUNT, [7, 7]),
        ([(2, 7)] * (SUSPECT_COUNT - 1) + [(2, 8)] + [(2, 7)] * (SUSPECT_COUNT - 1), []),
        ([(2, 7)] * SUSPECT_COUNT + [(2, 8)] + [(2, 9)] * SUSPECT_COUNT, [7, 9]),
    ],
)
def test_what_a_follower_repeats(fetches: list[tuple[int, int]], expected: list[int]) -> None:
    found = list[int]()
    leading = cast("Any", Leading.__new__(Leading))
    leading._sent, leading._partition = {}, None
    leading._replication = SimpleNamespace(on_suspect=lambda partition, offset: found.append(offset))
    for node, offset in fetches:
        leading.sent(node, offset)
    assert found == expected
