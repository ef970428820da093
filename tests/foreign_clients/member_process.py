"""A member of a group in a process of its own: kafka-python, which commits after every hundredth record and prints what it did.

Run as ``python -m tests.foreign_clients.member_process BOOTSTRAP TOPIC GROUP``; it goes on until it is killed.
"""

import sys

from kafka import KafkaConsumer

COMMIT_EVERY = 100


def main(bootstrap: str, topic: str, group: str) -> None:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=1000, heartbeat_interval_ms=200, max_poll_records=10,
    )  # fmt: skip
    for count, record in enumerate(consumer, start=1):
        print("got", record.offset, flush=True)
        if count % COMMIT_EVERY == 0:
            consumer.commit()
            print("committed", record.offset + 1, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
