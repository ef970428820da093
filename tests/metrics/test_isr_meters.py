"""Changes of in-sync replicas are counted by what they change."""

from __future__ import annotations

from ottla.metrics import IsrMeters


def test_a_change_counts_as_what_it_is() -> None:
    meters = IsrMeters()
    for old, new, counts in (
        ((1, 2), (1,), (1, 0)),
        ((1,), (1, 2), (1, 1)),
        ((1, 2), (1, 3), (2, 2)),
        ((1, 2), (2, 1), (2, 2)),
    ):
        meters.changed(old, new)
        assert (meters.shrinks, meters.expands) == counts
