"""docs/from-other-clients.md: its programs do the same before and after, and its tables have every method and setting of the clients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sized
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.cli.pages import DOCS, blocks
from tests.waiting import eventually

from ottla import aio, sync
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.options import AdminSettings, ClusterSettings
from ottla.client.other_methods import OTHER_METHODS
from ottla.client.other_settings import OTHER_SETTINGS
from ottla.client.producer_settings import ProducerSettings
from ottla.runtime.serve import BrokerThread

PAGE: Final = "from-other-clients.md"
PROGRAMS: Final = blocks(PAGE, "python")
METHODS: Final = {
    "Producers": (AIOKafkaProducer, KafkaProducer, ConfluentProducer, "Producer"),
    "Consumers": (AIOKafkaConsumer, KafkaConsumer, ConfluentConsumer, "Consumer"),
    "Administration": (AIOKafkaAdminClient, KafkaAdminClient, AdminClient, "Admin"),
}
"""The classes of the columns of each section's table, and the name of ours."""
SETTINGS: Final[dict[type, list[type]]] = {
    AIOKafkaProducer: [ClusterSettings, ProducerSettings],
    KafkaProducer: [ClusterSettings, ProducerSettings],
    AIOKafkaConsumer: [ClusterSettings, ConsumerSettings, FetchSettings, MembershipSettings],
    KafkaConsumer: [ClusterSettings, ConsumerSettings, FetchSettings, MembershipSettings],
    AIOKafkaAdminClient: [ClusterSettings, AdminSettings],
    KafkaAdminClient: [ClusterSettings, AdminSettings],
}
EQUAL_DEFAULTS: Final = {("client_rack", None, ""), ("acks", -1, "all")}
"""Written in another way, and the same."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with BrokerThread(properties | {"log.dirs": str(tmp_path_factory.mktemp("data"))}) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("number", range(3), ids=["aiokafka", "kafka-python", "confluent-kafka"])
def test_a_program_prints_the_same_before_and_after(number: int, address: str) -> None:
    assert len(PROGRAMS) == 6
    before, after = (text.replace("localhost:9092", address) for text in PROGRAMS[2 * number : 2 * number + 2])
    printed = printed_by(before)
    assert printed == printed_by(re.sub(r'"from-([a-z-]+)"', r'"from_\1"', after))  # from a topic of its own
    assert "b'one'" in printed[-1]


def printed_by(program: str) -> list[str]:
    """The lines that the program prints, with the page's names of topics."""
    lines: list[str] = []
    exec(compile(program, PAGE, "exec"), {"__name__": "__main__", "print": lambda *values: lines.append(" ".join(map(str, values)))})
    return [line.replace("from_", "from-") for line in lines]


def rows(section: str) -> list[list[str]]:
    """The cells of the section's table, without its head."""
    text = (DOCS / PAGE).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)(?:\(\))?`", cell.partition(";")[0])


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


@pytest.mark.parametrize("section", METHODS)
def test_every_method_of_the_clients_is_in_the_tables_and_ours_are_there(section: str) -> None:
    *theirs, ours = METHODS[section]
    table = rows(section)
    for column, kind in enumerate(theirs):
        assert isinstance(kind, type)
        assert {name for row in table for name in named(row[column])} == methods(kind), kind
    for row in table:
        assert row[3] == "-" or row[3].startswith("-;") or named(row[3]), row
        for name in named(row[3]):
            assert hasattr(getattr(aio, str(ours)), name)
            assert hasattr(getattr(sync, str(ours)), name)


@pytest.mark.parametrize("section", METHODS)
def test_every_method_that_ours_do_not_have_has_a_hint(section: str) -> None:
    *theirs, ours = METHODS[section]
    hinted, own = OTHER_METHODS[str(ours)], getattr(aio, str(ours))
    found = {name for kind in theirs if isinstance(kind, type) for name in methods(kind) if not hasattr(own, name)}
    assert found <= hinted.keys()


def defaults(kind: Any) -> dict[str, Any]:
    """The settings of another client's class, with their defaults."""
    if hasattr(kind, "DEFAULT_CONFIG"):
        return dict(kind.DEFAULT_CONFIG)
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {found.name: found.default for found in parameters if found.name not in ("self", "topics")}


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_every_setting_of_the_clients_is_known_refused_with_a_reason_or_on_the_page(kind: type) -> None:
    listed = {name for row in rows("Settings") for name in named(row[0])}
    ours = {name: found.default for part in SETTINGS[kind] for name, found in part.__dataclass_fields__.items()}  # type: ignore[attr-defined]
    missing = {name for name in defaults(kind) if name not in ours and name not in OTHER_SETTINGS and name not in listed}
    assert not missing
    differing = {
        name
        for name, value in defaults(kind).items()
        if name in ours and str(value).lower() != str(ours[name]).lower() and (name, value, ours[name]) not in EQUAL_DEFAULTS
    }
    assert differing - listed <= {"client_id"}


Member = tuple[Callable[[], object], Callable[[], Sized], Callable[[], None]]
"""How a consumer polls, which partitions it has, and how it is closed."""


def kafka_python_member(address: str, group: str) -> Member:
    consumer = KafkaConsumer("shared", bootstrap_servers=address, group_id=group)
    return lambda: consumer.poll(timeout_ms=50), consumer.assignment, consumer.close


def confluent_member(address: str, group: str) -> Member:
    consumer = ConfluentConsumer({"bootstrap.servers": address, "group.id": group})
    consumer.subscribe(["shared"])
    return lambda: consumer.poll(0.05), consumer.assignment, consumer.close


@pytest.mark.parametrize("other", [kafka_python_member, confluent_member])
def test_a_group_has_members_of_ours_and_of_another_client_by_their_default_assignors(
    other: Callable[[str, str], Member], address: str
) -> None:
    with sync.Admin(address) as admin:
        admin.create_topics([sync.NewTopic("shared", 2)])
    poll, assignment, close = other(address, other.__name__)
    try:
        with sync.Consumer(address, group_id=other.__name__) as consumer:
            consumer.subscribe(["shared"])

            def share() -> tuple[int, int]:
                poll()
                consumer.poll(50)
                return len(assignment()), len(consumer.assignment())

            eventually(share, lambda found: found == (1, 1))
    finally:
        close()
