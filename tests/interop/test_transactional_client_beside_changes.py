"""The transactional producer while its broker of Apache Kafka 4.3.0 is restarted, and while its features change."""

from __future__ import annotations

import asyncio

import pytest
from bench.peers import Kafka, Peer
from tests.interop.conftest import until_served
from tests.interop.test_transactional_client_on_kafka import PARTITION_COUNT, create, level_of, offsets_of, run, transactional, values_of

from ottla.aio import Admin, CommitOutcomeUnknownError, GroupMetadata, TopicPartition, TransactionAbortableError, UpgradeType


@pytest.mark.parametrize("level", [2, 1])
def test_transactions_go_on_when_their_broker_comes_back(level: int) -> None:
    """Everything is there, the coordinator too; what it was asked when it ended has no answer."""

    async def body(peer: Kafka) -> None:
        topic = await create(peer)
        expected: list[bytes] = []
        async with transactional(peer, topic) as producer:
            await producer.init_transactions()
            for restart in range(3):
                away = asyncio.create_task(asyncio.to_thread(restart_of, peer))
                number = 0
                while not away.done() or number < 5:
                    values = [b"%d-%d-%d" % (restart, number, part) for part in range(PARTITION_COUNT)]
                    number += 1
                    try:
                        async with producer.transaction():
                            for part, value in enumerate(values):
                                await producer.send(topic, value, partition=part)
                            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): len(expected)}, GroupMetadata(topic))
                        expected += values
                    except TransactionAbortableError:
                        continue  # aborted by then
                    except CommitOutcomeUnknownError:
                        await producer.commit_transaction()
                        expected += values
                await away
        assert await values_of(peer, topic) == sorted(expected)
        assert await offsets_of(peer, topic) == {TopicPartition(topic, 0): len(expected) - PARTITION_COUNT}

    with Kafka(transaction_version=level) as peer:
        asyncio.run(until_served(peer.bootstrap))
        run(body(peer))


def restart_of(peer: Kafka) -> None:
    peer.stop()
    peer.start()


def test_the_level_may_change_while_transactions_are_open() -> None:
    """Up, and down again: clients that know the older level go on with it, those that come later have the new one."""

    async def body(peer: Peer) -> None:
        topic = await create(peer)
        expected: list[bytes] = []
        async with Admin(peer.bootstrap) as admin, transactional(peer, "early") as early:
            await early.init_transactions()
            for level, kind in ((2, UpgradeType.UPGRADE), (1, UpgradeType.SAFE_DOWNGRADE), (2, UpgradeType.UPGRADE)):
                await early.begin_transaction()
                await early.send_and_wait(topic, b"early %d" % len(expected), partition=0)
                await admin.update_features({"transaction.version": level}, upgrade_type=kind)
                await early.send_and_wait(topic, b"early too %d" % len(expected), partition=1)
                await early.commit_transaction()
                async with transactional(peer, "late") as late:
                    await late.init_transactions()
                    async with late.transaction():
                        await late.send(topic, b"late %d" % len(expected), partition=0)
                    assert level_of(late) == level
                expected += [b"early %d" % len(expected), b"early too %d" % len(expected), b"late %d" % len(expected)]
        assert await values_of(peer, topic) == sorted(expected)

    with Kafka(transaction_version=0) as peer:
        asyncio.run(until_served(peer.bootstrap))
        run(body(peer))
