"""When a controller that has just become active takes a process back, of whose predecessor it has seen nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.controller.test_brokers import Cluster, process

from ottla.broker.controller.membership import SILENT_MS, Membership
from ottla.broker.liveness.evidence import Evidence
from ottla.config import BrokerConfig
from ottla.controller.sweeps import Sweep
from ottla.controller.topic_rules import TopicRules
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

BROKER = 4
OLD, NEW, OTHER = 1, 2, 3


class Deciding:
    """An active controller, whose decisions hold at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.replica = self
        self.is_active = True

    @property
    def draft(self) -> ClusterImage:
        return self._cluster.image

    def has_fetched(self, node_id: int) -> bool:
        return False

    def rules(self, image: ClusterImage) -> TopicRules:
        return TopicRules(image)

    async def sweep(self, sweep: Sweep) -> KafkaError | None:
        results = await self.decide(sweep.steps())
        return next((result for result in results if isinstance(result, KafkaError)), None)

    async def decide(self, decisions: Iterable[Any], *, is_followed: bool = True) -> list[Any]:
        results: list[Any] = []
        for decision in decisions:
            try:
                results.append(self._cluster.carry_out(decision(self._cluster.image)))
            except KafkaError as error:
                results.append(error)
        return results


class Address(Evidence):
    """What is found at the broker's address once it has been asked for."""

    def __init__(self, listens: int | None, is_broken: bool | None) -> None:
        super().__init__()
        self._listens = listens
        self._is_broken = is_broken
        self.asked_count = 0

    def is_broken(self, broker_id: int, epoch: int) -> bool | None:
        return self._is_broken

    def ask_address(self, broker: BrokerImage) -> None:
        self.asked_count += 1

    def listens_for(self, broker: BrokerImage) -> bytes | None:
        return bytes([self._listens]) * 16 if self.asked_count and self._listens else None


def connection(*, ends_when_asked: bool = False) -> Any:
    made = SimpleNamespace(is_closed=False)
    made.probe = lambda: setattr(made, "is_closed", ends_when_asked)
    return made


class Knocking:
    """Broker 4 is registered; the controller has just become active."""

    def __init__(self, listens: int | None = NEW, *, is_broken: bool | None = None) -> None:
        self.cluster = Cluster(has_elr=True)
        self.epoch = self.cluster.serve(BROKER, OLD)
        self.address = Address(listens, is_broken)
        world = Simulation(1).machine("controller").boot()
        self.membership = Membership(world, BrokerConfig({"node.id": "1"}), Deciding(self.cluster), "cluster", self.address)  # type: ignore[arg-type]
        self.membership.on_active(1)

    async def knock(self, *, directories: tuple[bytes, ...] = ()) -> ErrorCode:
        """Another process of the broker asks to be registered."""
        new = process(BROKER, NEW)
        request = BrokerRegistrationRequest(
            broker_id=BROKER,
            cluster_id="cluster",
            incarnation_id=new.incarnation_id,
            listeners=[Listener(end.listener, end.host, end.port, end.security_protocol) for end in new.endpoints.values()],
            features=[Feature(name, low, high) for name, (low, high) in new.features.items()],
            log_dirs=list(directories or new.directories),
        )
        return ErrorCode((await self.membership.register(request, connection())).error_code)

    async def beat(self, channel: Any = None) -> None:
        """The process that is registered says that it lives."""
        request = BrokerHeartbeatRequest(broker_id=BROKER, broker_epoch=self.epoch, current_metadata_offset=self.epoch)
        await self.membership.heartbeat(request, channel or connection())


async def is_taken_back_in_time(knocking: Knocking) -> None:
    assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "nothing is known yet"
    assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "the one that is registered may be about to say that it lives"
    await asyncio.sleep(SILENT_MS / 1000)
    assert await knocking.knock() == ErrorCode.NONE
    assert knocking.cluster.image.brokers[BROKER].incarnation_id == bytes([NEW]) * 16


async def is_refused_once_its_predecessor_was_heard(knocking: Knocking) -> None:
    await knocking.knock()
    await asyncio.sleep(SILENT_MS / 1000)
    await knocking.beat()
    assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def is_refused_with_other_directories(knocking: Knocking) -> None:
    """Then no lock says that the earlier process has ended."""
    await knocking.knock()
    await asyncio.sleep(SILENT_MS / 1000)
    assert await knocking.knock(directories=(b"x" * 16,)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert await knocking.knock() == ErrorCode.NONE


@pytest.mark.parametrize("body", [is_taken_back_in_time, is_refused_once_its_predecessor_was_heard, is_refused_with_other_directories])
def test_a_process_that_listens_where_its_predecessor_was_registered(body: Callable[[Knocking], Awaitable[None]]) -> None:
    async def main() -> None:
        knocking = Knocking()
        await body(knocking)
        knocking.membership.on_inactive()

    run(main())


@pytest.mark.parametrize(("listens", "is_broken"), [(None, None), (OLD, None), (OTHER, None), (NEW, False)])
def test_a_process_that_listens_elsewhere_or_has_a_connected_predecessor_is_refused(listens: int | None, is_broken: bool | None) -> None:
    async def main() -> None:
        knocking = Knocking(listens, is_broken=is_broken)
        for _ in range(10):
            assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            await asyncio.sleep(0.32)
        knocking.membership.on_inactive()

    run(main())


def test_no_address_is_asked_for_a_process_with_other_directories() -> None:
    async def main() -> None:
        knocking = Knocking()
        await knocking.knock(directories=(b"x" * 16,))
        assert knocking.address.asked_count == 0
        knocking.membership.on_inactive()

    run(main())


@pytest.mark.parametrize(("listens", "count"), [(NEW, 1), (OTHER, 3), (None, 3)])
def test_an_address_is_asked_until_the_process_is_found_there(listens: int | None, count: int) -> None:
    async def main() -> None:
        knocking = Knocking(listens)
        for _ in range(3):
            assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert knocking.address.asked_count == count
        knocking.membership.on_inactive()

    run(main())


@pytest.mark.parametrize("is_of_a_lost_machine", [False, True])
def test_the_connection_that_the_last_heartbeat_came_on_is_asked(is_of_a_lost_machine: bool) -> None:
    async def main() -> None:
        knocking = Knocking(None, is_broken=True)
        await knocking.beat(connection(ends_when_asked=is_of_a_lost_machine))
        assert await knocking.knock() == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert (await knocking.knock() == ErrorCode.NONE) is is_of_a_lost_machine
        knocking.membership.on_inactive()

    run(main())
