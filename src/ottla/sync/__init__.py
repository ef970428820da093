"""The client for programs without an event loop: each object runs its own, in a thread of its own.

::

    with Producer("localhost:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        print(future.result().offset)

    with Consumer("localhost:9092", group_id="app", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.value)

The methods are those of ``ottla.aio``, with the same arguments, and block until they are done; ``Producer.send`` returns at once with a
``concurrent.futures.Future``. Objects may be used from one thread at a time. Callbacks of a consumer run in the thread that polls, those
of a producer's records and ``on_connectivity`` in the client's own thread.
"""

from __future__ import annotations

from ottla.aio import (
    Acl,
    AclFilter,
    ClusterDescription,
    CommitOutcomeUnknownError,
    ConsumerRecord,
    DeliveryError,
    DeserializationError,
    GroupMetadata,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    ProducerFencedError,
    RecordMetadata,
    TopicMetadata,
    TopicPartition,
    TransactionAbortableError,
    TransactionFatalError,
)
from ottla.sync.admin import Admin
from ottla.sync.consumer import Consumer
from ottla.sync.producer import Producer

__all__ = [
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "CommitOutcomeUnknownError",
    "Consumer",
    "ConsumerRecord",
    "DeliveryError",
    "DeserializationError",
    "GroupMetadata",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "ProducerFencedError",
    "RecordMetadata",
    "TopicMetadata",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionFatalError",
]
