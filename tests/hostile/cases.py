"""Every bad input by name: what is sent, over a connection of its own.

The table is that of the design's list of bad inputs; groups that need security or several brokers follow with those. Most cases are
one frame, to be answered or punished by the end of the connection.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from tests.hostile import acls, batches, framing, requests, transactions
from tests.hostile.case import Case
from tests.hostile.wire_bytes import RECOMPRESSED


def cases_of_transactions() -> list[Case]:
    """They leave thousands of ids and producers behind, as they may: that is no memory of another case."""
    return _named(
        (
            transactions.transactional_ids, transactions.added_partitions, transactions.ends, transactions.offsets_in_transactions,
            transactions.markers_from_a_client, transactions.transactional_batches, transactions.inquiries,
        )
    )  # fmt: skip


def cases_of_acls() -> list[Case]:
    """For a broker with an authorizer: ACLs are kept, and one that denies something to everybody may be among them."""
    return _named((acls.creations, acls.filters))


@functools.cache
def all_cases() -> list[Case]:
    """The others."""
    groups = (
        framing.frames, framing.headers, framing.api_versions, framing.every_api, framing.arrays_and_strings, framing.tagged_fields,
        batches.record_batches, batches.records_inside, batches.compression, batches.produces,
        requests.fetches, requests.groups_, requests.consumer_groups, requests.offsets, requests.topics, requests.configs,
    )  # fmt: skip
    cases = _named(groups)
    again = [case for group in (batches.records_inside, batches.compression) for case in group(RECOMPRESSED)]
    return cases + [case._replace(name=f"recompressed-{case.name}") for case in again]


def _named(groups: Iterable[Callable[[], Iterator[Case]]]) -> list[Case]:
    """Each with the name of its group in front."""
    return [case._replace(name=f"{group.__name__.rstrip('_')}-{case.name}") for group in groups for case in group()]
