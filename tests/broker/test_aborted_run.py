"""Aborted transactions in the answers of Fetch, encoded before and in one piece."""

from __future__ import annotations

import pytest

from ottla.broker.fetching.aborted_run import AbortedRun
from ottla.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.storage.segment.transaction_index import START
from ottla.wire.compiler import encode

PAIRS = [(7, 3), (2**63 - 1, 2**40), (0, 0)]


@pytest.mark.parametrize("version", range(4, 19))
def test_a_run_is_encoded_as_the_list_of_its_transactions(version: int) -> None:
    def answer(aborted: list[AbortedTransaction]) -> bytes:
        data = PartitionData(0, 0, 9, aborted_transactions=aborted, records=None)
        return encode(FetchResponse(responses=[FetchableTopicResponse("t", bytes(16), [data])]), version)

    run = AbortedRun(b"".join(START.pack(*pair) for pair in PAIRS), version)
    assert len(run) == len(PAIRS)
    assert answer(run) == answer([AbortedTransaction(*pair) for pair in PAIRS])  # type: ignore[arg-type]  # as a list is sent
