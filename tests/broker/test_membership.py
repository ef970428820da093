"""The active controller and what it sees of brokers: each sign is acted on once, however often it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import structlog.testing
from tests.controller.test_brokers import Cluster

from ottla.broker.controller.membership import Membership
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import PeerConnection
from ottla.broker.peers.peers import _opened
from ottla.config import BrokerConfig
from ottla.controller.sweeps import Sweep
from ottla.controller.topic_rules import TopicRules
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


class Undecided:
    """An active controller without a majority: nothing is committed until it resigns."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = self.draft = image
        self.replica = self
        self.is_active = True
        self.static_min_isr = 1
        self.decisions: list[asyncio.Future[list[Any]]] = []

    def has_fetched(self, node_id: int) -> bool:
        return False

    def rules(self, image: ClusterImage) -> TopicRules:
        return TopicRules(image)

    async def sweep(self, sweep: Sweep) -> KafkaError | None:
        results = await self.decide(sweep.steps())
        return next((result for result in results if isinstance(result, KafkaError)), None)

    async def decide(self, decisions: Iterable[Any], *, is_followed: bool = True) -> list[Any]:
        for decision in decisions:
            decision(self.draft)
        self.decisions.append(asyncio.get_running_loop().create_future())
        return await self.decisions[-1]


class Neighbourhood(Evidence):
    """Brokers 2 and 3 are dead: whoever is looked at is found dead soon after."""

    def __init__(self, epochs: dict[int, int]) -> None:
        super().__init__()
        self._epochs = epochs
        self.looks = 0

    def check(self, brokers: Iterable[int] | None = None) -> None:
        for broker in self._epochs if brokers is None else brokers:
            if broker in self._epochs:
                self.looks += 1
                asyncio.get_running_loop().call_later(0.007, self.on_dead, broker, self._epochs[broker])


def membership(*, is_own_silent: bool = False, sees: bool = True) -> tuple[Membership, Undecided, Neighbourhood]:
    cluster = Cluster(has_elr=True)
    epochs = {broker: cluster.serve(broker) for broker in (1, 2, 3)}
    controller, evidence = Undecided(cluster.image), Neighbourhood({2: epochs[2], 3: epochs[3]} if sees else {})
    world = Simulation(1).machine("controller").boot()
    made = Membership(world, BrokerConfig({"node.id": "1"}), controller, "cluster", evidence, is_own_silent=is_own_silent)  # type: ignore[arg-type]
    made.completes = False  # there is nothing to complete
    made.on_active(1)
    return made, controller, evidence


def test_a_controller_that_lost_its_majority_acts_once_on_each_sign_until_it_resigns() -> None:
    """Two neighbours, each of whose deaths is a reason to look at the other."""

    async def body() -> None:
        _, controller, evidence = membership()
        with structlog.testing.capture_logs() as events:
            await asyncio.sleep(1)
            assert (len(controller.decisions), evidence.looks) == (2, 4)
            for decision in controller.decisions:
                decision.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "resigned"))
            controller.is_active = False
            await asyncio.sleep(1)
        assert sum(event["event"] == "brokers_not_fenced" for event in events) == 2

    run(body())


def test_a_broker_whose_fencing_failed_is_fenced_at_the_next_sign() -> None:
    async def body() -> None:
        _, controller, evidence = membership()
        await asyncio.sleep(1)
        first = list(controller.decisions)
        for decision in first:
            decision.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "not now"))
        await asyncio.sleep(0.01)
        evidence.check([2])
        await asyncio.sleep(1)
        assert len(controller.decisions) > len(first)

    run(body())


def test_a_stopping_node_acts_on_no_sign() -> None:
    async def body() -> None:
        made, controller, evidence = membership()
        made.on_inactive()
        evidence.check()
        await asyncio.sleep(1)
        assert controller.decisions == []

    run(body())


@pytest.mark.parametrize("is_own_silent", [False, True])
def test_a_lone_broker_waits_for_heartbeats_of_others_and_not_for_its_own(is_own_silent: bool) -> None:
    async def body() -> None:
        made, _, _ = membership(is_own_silent=is_own_silent, sees=False)
        with structlog.testing.capture_logs() as events:
            await asyncio.sleep(3600)
        fenced = sorted(event["broker_id"] for event in events if event["event"] == "broker_fenced" and "session" in event["reason"])
        assert fenced == ([2, 3] if is_own_silent else [1, 2, 3])
        made.on_inactive()

    run(body())


@pytest.mark.parametrize("leads_on", [False, True])
def test_a_controller_that_stood_still_fences_no_broker_before_it_can_have_heard_of_it(leads_on: bool) -> None:
    """Awake after a SIGSTOP it logged that all brokers were fenced, while another led and none was."""

    async def body() -> None:
        made, controller, _ = membership(sees=False)
        clock = made._now_ms
        with structlog.testing.capture_logs() as events:
            await asyncio.sleep(1)
            made._now_ms = lambda: clock() + 20_000  # type: ignore[method-assign]
            await asyncio.sleep(10)
            assert [event["event"] for event in events] == ["controller_stood_still"]
            assert 20_000 <= events[0]["late_ms"] < 21_000
            controller.is_active = leads_on
            await asyncio.sleep(10)
        assert [event["broker_id"] for event in events if event["event"] == "broker_fenced"] == ([1, 2, 3] if leads_on else [])
        made.on_inactive()

    run(body())


def test_a_controller_that_is_late_each_time_fences_all_the_same() -> None:
    async def body() -> None:
        made, _, _ = membership(sees=False)
        clock = made._now_ms
        with structlog.testing.capture_logs() as events:
            made._now_ms = lambda: 3 * clock()  # type: ignore[method-assign]  # each look comes long after it was due
            await asyncio.sleep(60)
        assert [event["broker_id"] for event in events if event["event"] == "broker_fenced"] == [1, 2, 3]
        made.on_inactive()

    run(body())


def test_a_connection_that_is_given_up_because_the_node_stops_is_no_mistake() -> None:
    async def body() -> None:
        for error, count in ((asyncio.CancelledError(), 0), (OSError(), 0), (ValueError(), 1)):
            with structlog.testing.capture_logs() as events:
                _opened(PeerConnection(CallerName("c"), lambda: None), error)
            assert sum(event["event"] == "peer_connection_failed" for event in events) == count

    run(body())
