"""Kill -9 of a broker under load, again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.durability.load import (
    GROUP,
    PARTITION_COUNT,
    PAUSE_SECONDS,
    SESSION_TIMEOUT_MS,
    TOPIC,
    ConfluentProducer,
    History,
    HistoryThread,
    Member,
    OwnProducer,
    begin_at_the_beginning,
    check,
    read_all,
)
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.proxy import Proxy
from tests.foreign_clients.wire import RawClient, end_offsets
from tests.worker_thread import JOIN_SECONDS_MAX

from ottla import sync

ACKNOWLEDGED_PER_ROUND = 300
SENT_PER_ROUND = 3_000


@dataclass(frozen=True, slots=True)
class Outcome:
    record_count: int
    lost_answer_count: int  # records that were in the log, not acknowledged, when the broker died
    resumed_count: int  # times that a member was given a partition


def run(directory: Path, *, kill_count: int) -> Outcome:
    """Three producers and a group whose members come and go, while the broker is killed and started again on the same directory and port.

    Every second kill falls between append and acknowledgement: the proxy in front of the broker keeps answers back until
    the log has grown, so that after the restart each producer sends again what is already there.
    """
    history = History()
    lost_answer_count = 0
    with Proxy() as proxy, broker_behind(proxy, directory) as broker:
        with sync.Admin(proxy.bootstrap) as admin:
            assert admin.create_topics([sync.NewTopic(TOPIC, PARTITION_COUNT)]) == {TOPIC: None}
            begin_at_the_beginning(admin)
        producers: list[HistoryThread] = [
            ConfluentProducer(history, "confluent-a", proxy.bootstrap),
            ConfluentProducer(history, "confluent-b", proxy.bootstrap),
            OwnProducer(history, "own", proxy.bootstrap),
        ]
        members = [Member(history, proxy.bootstrap)]
        for worker in [*producers, *members]:
            worker.start()
        for round_number in range(kill_count):
            wait_for_load(history)
            if round_number % 4 >= 2:
                wait_for_group(history, members[-1])
            members.append(Member(history, proxy.bootstrap))
            members[-1].start()  # so the group is in motion
            history.allow(SENT_PER_ROUND)
            if round_number % 2:
                lost_answer_count += let_answers_be_lost(proxy, broker, history)
            confirmed = dict(history.confirmed)
            broker.kill()
            broker.start()
            assert_commits_are_kept(proxy.bootstrap, confirmed)
            members.pop(0).join()
        for producer in producers:
            producer.join()
        log = read_all(proxy.bootstrap)
        history.wait_for("the group reads to the end", lambda: len(history.received) >= len(log))
        for member in members:
            member.join()
    check(history, log)
    return Outcome(len(log), lost_answer_count, history.resumed_count)


def broker_behind(proxy: Proxy, directory: Path) -> BrokerProcess:
    port = proxy.target_port = lasting_port()
    # Small segments: a kill meets closed segments, fresh ones, and ones just begun.
    return BrokerProcess(
        directory,
        port=port,
        log_segment_bytes="65536",
        advertised_listeners=f"PLAINTEXT://{proxy.bootstrap}",
        group_min_session_timeout_ms=str(SESSION_TIMEOUT_MS),
    )


def let_answers_be_lost(proxy: Proxy, broker: BrokerProcess, history: History) -> int:
    """When this returns, the log holds records that are not acknowledged, and will not be before the kill: their number."""
    proxy.mute()
    deadline = time.monotonic() + JOIN_SECONDS_MAX
    with RawClient(broker.port) as client:
        while (count := sum(end_offsets(client, TOPIC, PARTITION_COUNT)) - len(history.acknowledged)) <= 0:
            assert time.monotonic() < deadline, "nothing is appended that is not acknowledged"
    return count


def wait_for_load(history: History) -> None:
    """Records are acknowledged again."""
    history.allow(SENT_PER_ROUND)
    acknowledged = len(history.acknowledged)
    history.wait_for("acknowledgements", lambda: len(history.acknowledged) >= acknowledged + ACKNOWLEDGED_PER_ROUND)


def wait_for_group(history: History, newcomer: Member) -> None:
    """The member that came last has its share of the partitions and reads it: the group has found itself again."""
    deadline = time.monotonic() + JOIN_SECONDS_MAX
    while not newcomer.has_read:
        assert time.monotonic() < deadline, "the group does not go on"
        if len(history.received) >= len(history.acknowledged):  # else there is enough to find for who gets a partition
            history.allow(ACKNOWLEDGED_PER_ROUND)
        with history.changed:
            history.changed.wait(PAUSE_SECONDS)
    history.wait_for("no problem", lambda: True)


def assert_commits_are_kept(bootstrap: str, confirmed: dict[int, int]) -> None:
    """The group is at least where its last confirmed commits were."""
    with sync.Admin(bootstrap) as admin:
        found = admin.committed_offsets(GROUP)
    for partition, offset in confirmed.items():
        if offset:
            assert found[sync.TopicPartition(TOPIC, partition)].offset >= offset
