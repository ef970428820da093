"""Requests of transactions that no client sends: names, epochs, timeouts, partitions, and batches that do not belong there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from tests.foreign_clients.wire import batch_of
from tests.hostile.case import INT_MAX, INT_MIN, LONG_MAX, Case
from tests.hostile.wire_bytes import TOPIC, batch, of_api, request

from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.messages.api_keys import ApiKey
from ottla.messages.describe_producers import DescribeProducersRequest
from ottla.messages.describe_producers import TopicRequest as ProducersTopic
from ottla.messages.describe_transactions import DescribeTransactionsRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.list_transactions import ListTransactionsRequest
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from ottla.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
NAMES = {
    "empty": "",
    "of one character": "t",
    "of 249 bytes": "t" * 249,
    "of 32,767 bytes": "t" * 32_767,
    "with a line": "a\nb",
    "with a nul": "\0",
}
PRODUCERS = {
    "nobody's": (12_345, 0),
    "of id -1": (-1, -1),
    "of id 2**63-1": (LONG_MAX, 0),
    "of the last epochs": (0, 32_766),
    "of epoch 32,767": (0, 32_767),
}
MANY = 100_000
PRODUCE_VERSION = 8


def transactional_ids() -> Iterator[Case]:
    """InitProducerId, and the look-up of coordinators; ``groups_`` has some more."""
    for label, name in NAMES.items():
        yield Case(f"producer id for a name {label}", request(InitProducerIdRequest(name, 1000), 4))
    not_utf8 = b"\x00\x04\xff\xfe\x80\xc3" + struct.pack(">i", 1000)
    yield Case("producer id for a name that is no UTF-8", of_api(ApiKey.INIT_PRODUCER_ID, 1, not_utf8))
    for timeout in (0, -1, INT_MIN, 900_001, INT_MAX):
        yield Case(f"producer id in {timeout} ms", request(InitProducerIdRequest("timeouts", timeout), 4))
    for label, (producer_id, epoch) in PRODUCERS.items():
        known = InitProducerIdRequest("continued", 1000, producer_id, epoch)
        yield Case(f"producer id that continues one {label}", request(known, 4))
        yield Case(
            f"producer id without a name that continues one {label}", request(InitProducerIdRequest(None, 1000, producer_id, epoch), 4)
        )
    yield Case("10,000 times a producer id for one name", lambda: request(InitProducerIdRequest("again", 1000), 4) * 10_000)
    yield Case(
        "a producer id for each of 10,000 names",
        lambda: b"".join(request(InitProducerIdRequest(f"name-{n}", 1000), 4) for n in range(10_000)),
    )


def add(*topics: AddPartitionsToTxnTopic, name: str = "added", producer_id: int = 0, epoch: int = 0) -> bytes:
    return request(AddPartitionsToTxnRequest([], name, producer_id, epoch, list(topics)), 3)


def add_to_many(count: int, *, verify_only: bool) -> bytes:
    topics = [AddPartitionsToTxnTopic(TOPIC, [0])]
    return request(AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(f"n{n}", n, 0, verify_only, topics) for n in range(count)]), 4)


def added_partitions() -> Iterator[Case]:
    for label, name in NAMES.items():
        yield Case(f"add to the transaction of a name {label}", add(AddPartitionsToTxnTopic(TOPIC, [0]), name=name))
    for label, (producer_id, epoch) in PRODUCERS.items():
        yield Case(f"add for a producer {label}", add(AddPartitionsToTxnTopic(TOPIC, [0]), producer_id=producer_id, epoch=epoch))
    yield Case("add nothing", add())
    yield Case("add no partition of a topic", add(AddPartitionsToTxnTopic(TOPIC, [])))
    yield Case("add the same partition twice", add(AddPartitionsToTxnTopic(TOPIC, [0, 0]), AddPartitionsToTxnTopic(TOPIC, [0])))
    yield Case("add unknown topics", add(AddPartitionsToTxnTopic("nobody", [0]), AddPartitionsToTxnTopic(TOPIC, [0, 7, -1, INT_MAX])))
    yield Case("add internal topics", add(*(AddPartitionsToTxnTopic(topic, [0]) for topic in (STATE, OFFSETS, "__cluster_metadata"))))
    yield Case("add 100,000 partitions", lambda: add(AddPartitionsToTxnTopic(TOPIC, list(range(MANY)))))
    yield Case("add of 10,000 topics", lambda: add(*(AddPartitionsToTxnTopic(f"t{n}", [0]) for n in range(10_000))))
    topics = [AddPartitionsToTxnTopic(TOPIC, [0])]
    for verify_only in (False, True):
        one = AddPartitionsToTxnTransaction("nobody", 1, 0, verify_only, topics)
        yield Case(f"a broker's add, verify only {verify_only}, of an unknown name", request(AddPartitionsToTxnRequest([one]), 5))
        yield Case(f"10,000 transactions, verify only {verify_only}", partial(add_to_many, 10_000, verify_only=verify_only))
    twice = [AddPartitionsToTxnTransaction("twice", 1, 0, False, topics)] * 2
    yield Case("the same transaction twice", request(AddPartitionsToTxnRequest(twice), 4))
    for group in ("", "g" * 32_767):
        yield Case(f"add the offsets of a group of {len(group)} bytes", request(AddOffsetsToTxnRequest("n", 0, 0, group), 3))


def ends() -> Iterator[Case]:
    for label, name in NAMES.items():
        yield Case(f"end of the transaction of a name {label}", request(EndTxnRequest(name, 0, 0, committed=True), 4))
    for label, (producer_id, epoch) in PRODUCERS.items():
        for committed in (False, True):
            asked = EndTxnRequest("ended", producer_id, epoch, committed)
            yield Case(f"end of a producer {label}, committed {committed}", request(asked, 5))
    yield Case("10,000 ends", lambda: request(EndTxnRequest("ended", 0, 0, committed=True), 4) * 10_000)


def commit(
    *partitions: TxnOffsetCommitRequestPartition, group: str = "in-transactions", topic: str = TOPIC, generation: int = -1, member: str = ""
) -> bytes:
    asked = TxnOffsetCommitRequest(
        "offsets", group, 0, 0, generation, member, topics=[TxnOffsetCommitRequestTopic(topic, list(partitions))]
    )
    return request(asked, 3)


def offsets_in_transactions() -> Iterator[Case]:
    one = TxnOffsetCommitRequestPartition(0, 1, -1, "")
    for offset in (-1, -2, LONG_MAX):
        yield Case(f"offset {offset}", commit(TxnOffsetCommitRequestPartition(0, offset, -1, "")))
    yield Case("of no group", commit(one, group=""))
    yield Case("of an unknown group with a generation", commit(one, group="unknown", generation=5, member="nobody"))
    yield Case("of another's member", commit(one, member="not-mine"))
    yield Case("of generation 2**31-1", commit(one, generation=INT_MAX))
    yield Case("of an unknown topic", commit(one, topic="nobody"))
    yield Case("of a topic that cannot be", commit(one, topic="../x"))
    yield Case("metadata of 30 KiB", commit(TxnOffsetCommitRequestPartition(0, 1, -1, "m" * 30_000)))
    yield Case("metadata that is null", commit(TxnOffsetCommitRequestPartition(0, 1, -1, None)))
    yield Case("100,000 partitions", lambda: commit(*(TxnOffsetCommitRequestPartition(n, 1, -1, "") for n in range(MANY))))
    yield Case("the same partition 10,000 times", lambda: commit(*([one] * 10_000)))
    yield Case("no partition", commit())


def markers_from_a_client() -> Iterator[Case]:
    def asked(*markers: WritableTxnMarker, version: int = 2) -> bytes:
        return request(WriteTxnMarkersRequest(list(markers)), version)

    for label, topics in {
        "no topic": [], "no partition": [WritableTxnMarkerTopic(TOPIC, [])], "an unknown topic": [WritableTxnMarkerTopic("nobody", [0])],
        "unknown partitions": [WritableTxnMarkerTopic(TOPIC, [7, -1, INT_MAX])],
        "one partition twice": [WritableTxnMarkerTopic(TOPIC, [0, 0])],
        "internal topics": [WritableTxnMarkerTopic(STATE, [0]), WritableTxnMarkerTopic(OFFSETS, [0, 1])],
    }.items():  # fmt: skip
        yield Case(f"marker for {label}", asked(WritableTxnMarker(5, 0, True, topics, 0, 2)))
    here = [WritableTxnMarkerTopic(TOPIC, [0])]
    for label, (producer_id, epoch) in PRODUCERS.items():
        yield Case(f"marker of a producer {label}", asked(WritableTxnMarker(producer_id, epoch, True, here, 0, 0)))
    for epoch in (-1, INT_MIN, INT_MAX):
        yield Case(f"marker of coordinator epoch {epoch}", asked(WritableTxnMarker(6, 0, True, here, epoch, 2)))
    for level in (-1, 3, 127):
        yield Case(f"marker of level {level}", asked(WritableTxnMarker(7, 0, True, here, 0, level)))
    both = [WritableTxnMarker(8, 0, is_committed, here, 0, 0) for is_committed in (True, False)]
    yield Case("a commit and an abort of one producer", asked(*both))
    yield Case("10,000 markers", lambda: asked(*(WritableTxnMarker(1000 + n, 0, True, here, 0, 0) for n in range(10_000)), version=1))
    yield Case(
        "a marker for 100,000 partitions",
        lambda: asked(WritableTxnMarker(9, 0, True, [WritableTxnMarkerTopic(TOPIC, list(range(MANY)))], 0, 2)),
    )


def transactional(records: bytes, *, name: bytes | None, topic: str = TOPIC, acks: int = -1) -> bytes:
    """A produce request with that transactional id."""
    shown = b"\xff\xff" if name is None else struct.pack(">h", len(name)) + name
    place = struct.pack(">ihii", 1, len(topic), 1, 0)
    body = shown + struct.pack(">hi", acks, 1000) + place[:6] + topic.encode() + place[6:] + struct.pack(">i", len(records)) + records
    return of_api(ApiKey.PRODUCE, PRODUCE_VERSION, body)


def transactional_batches() -> Iterator[Case]:
    inside = batch(b"a", attributes=0x10, producer_id=0, producer_epoch=0, base_sequence=0)
    plain = batch_of(b"plain")
    yield Case("in a transaction without an id", transactional(inside, name=None))
    yield Case("no transaction, with an id", transactional(plain, name=b"outside"))
    yield Case("idempotent, with an id", transactional(batch(producer_id=0, producer_epoch=0, base_sequence=0), name=b"outside"))
    yield Case("of a name that nobody has", transactional(inside, name=b"nobody"))
    yield Case("of the empty name", transactional(inside, name=b""))
    yield Case("of a name of 32,767 bytes", lambda: transactional(inside, name=b"n" * 32_767))
    yield Case("of a name that is no UTF-8", transactional(inside, name=b"\xff\xfe"))
    yield Case("sequence 7 first", transactional(batch(attributes=0x10, producer_id=0, producer_epoch=0, base_sequence=7), name=b"x"))
    yield Case("without a producer id", transactional(batch(attributes=0x10), name=b"x"))
    yield Case(
        "of an id that is not given out",
        transactional(batch(attributes=0x10, producer_id=LONG_MAX, producer_epoch=0, base_sequence=0), name=b"x"),
    )
    yield Case("of epoch 32,767", transactional(batch(attributes=0x10, producer_id=0, producer_epoch=32_767, base_sequence=0), name=b"x"))
    yield Case(
        "two batches of two producers",
        transactional(inside + batch(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0), name=b"x"),
    )
    yield Case("a control batch", transactional(batch(attributes=0x30, producer_id=0, producer_epoch=0, base_sequence=-1), name=b"x"))
    for topic in (STATE, OFFSETS):
        yield Case(f"to {topic}", transactional(inside, name=b"x", topic=topic))
    for acks in (0, 1):
        yield Case(f"with acks={acks}", transactional(inside, name=b"x", acks=acks), is_answered=acks != 0)


def inquiries() -> Iterator[Case]:
    for pattern in ("(a+)+$", "(" * 10_000, "a{1,1000}{1,1000}", "[", "(?=a)b", "\\1(a)", "a" * 30_000, "(?:a?){200}a{200}", ""):
        yield Case(f"transactions by {pattern[:20]!r} ({len(pattern)})", request(ListTransactionsRequest([], [], -1, pattern), 2))
    for states in (["Nonsense"], [""], ["s" * 30_000]):
        yield Case(f"transactions in the state {states[0][:10]!r}", request(ListTransactionsRequest(states), 2))
    yield Case("transactions of 100,000 states", lambda: request(ListTransactionsRequest([f"s{n}" for n in range(MANY)]), 2))
    yield Case("transactions of 100,000 producers", lambda: request(ListTransactionsRequest([], list(range(MANY))), 2))
    for duration in (-2, LONG_MAX):
        yield Case(f"transactions older than {duration} ms", request(ListTransactionsRequest([], [], duration), 2))
    yield Case("100,000 described transactions", lambda: request(DescribeTransactionsRequest([f"n{n}" for n in range(MANY)]), 0))
    yield Case("one described 100,000 times", lambda: request(DescribeTransactionsRequest(["n"] * MANY), 0))
    yield Case("producers of 100,000 partitions", lambda: request(DescribeProducersRequest([ProducersTopic(TOPIC, list(range(MANY)))]), 0))
    yield Case("producers of one topic 100,000 times", lambda: request(DescribeProducersRequest([ProducersTopic(TOPIC, [0])] * MANY), 0))
    yield Case(
        "producers of one partition 100,000 times", lambda: request(DescribeProducersRequest([ProducersTopic(TOPIC, [0] * MANY)]), 0)
    )
    yield Case(
        "producers of internal and unknown topics",
        request(DescribeProducersRequest([ProducersTopic(STATE, [0]), ProducersTopic("x", [-1])]), 0),
    )
