"""A broker registers, says that it lives, and learns what the controller makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.homes.lifecycle import Lifecycle
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.peers.peers import Address
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse, Feature
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

UNFENCED = BrokerHeartbeatResponse(is_fenced=False)


class Controller:
    """Answers in turn, each kind of request with its own answers; the last one again and again."""

    def __init__(self, registrations: list[Any], heartbeats: list[Any]) -> None:
        self._answers: dict[type[Any], list[Any]] = {BrokerRegistrationRequest: registrations, BrokerHeartbeatRequest: heartbeats}
        self.asked: list[Any] = []

    def answer_heartbeats(self, answers: list[Any]) -> None:
        self._answers[BrokerHeartbeatRequest] = answers

    def answer(self, request: type[Any], answers: list[Any]) -> None:
        self._answers[request] = answers

    async def ask(self, request: Any, response_type: type[Any]) -> Any:
        await asyncio.sleep(0.001)
        self.asked.append(request)
        answers = self._answers[type(request)]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def lifecycle(
    controller: Controller, properties: dict[str, str] | None = None, features: Sequence[Feature] = (), **callbacks: Callable[..., Any]
) -> Lifecycle:
    async def follow(delta: ImageDelta) -> None:
        pass

    world = Simulation(1).machine("broker").boot()
    publisher = Publisher(lambda: EMPTY_IMAGE, follow)
    registration = BrokerRegistrationRequest(broker_id=7, features=list(features))
    config = BrokerConfig(properties or {})
    return Lifecycle(world, config, controller, publisher, lambda: registration, **callbacks)  # type: ignore[arg-type]


def in_world(body: Callable[[], Any]) -> None:
    run(body())


def registered(epoch: int) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(broker_epoch=epoch)


def test_a_broker_asks_until_it_is_registered_and_waits_until_it_may_serve() -> None:
    async def body() -> None:
        refusal = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        fenced = BrokerHeartbeatResponse(is_fenced=True)
        controller = Controller([None, refusal, registered(5)], [None, fenced, UNFENCED])
        joined = lifecycle(controller)
        await joined.join()
        assert (joined.broker_epoch, joined.is_fenced) == (5, False)
        assert "another process is registered with this node.id: `ottla broker list` shows its address" in joined.refusal
        assert [type(request) for request in controller.asked] == [BrokerRegistrationRequest] * 3 + [BrokerHeartbeatRequest] * 3

    in_world(body)


def test_a_broker_registers_again_with_a_controller_that_forgot_it() -> None:
    async def body() -> None:
        stale = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        again = asyncio.Event()
        controller = Controller([registered(5), registered(9)], [UNFENCED, stale, UNFENCED])
        joined = lifecycle(controller, on_registered=lambda epoch: again.set() if epoch == 9 else None)
        await joined.join()
        await again.wait()
        assert joined.broker_epoch == 9
        assert joined.is_fenced, "until the next heartbeat"

    in_world(body)


@pytest.mark.parametrize("has_joined", [False, True])
def test_a_refusal_for_good_ends_the_broker_and_not_its_heartbeats_alone(has_joined: bool) -> None:
    async def body() -> None:
        refusal = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        unknown = BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        controller = Controller([registered(5), refusal], [UNFENCED, unknown] if has_joined else [unknown])
        joined = lifecycle(controller, on_failed=failed.set_result)
        if has_joined:
            await joined.join()
        else:
            with pytest.raises(KafkaError, match="refuses this broker"):
                await joined.join()
        assert await failed == "the controller refuses this broker"

    in_world(body)


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_leaves_when_it_may_or_when_no_controller_knows_it(error: ErrorCode) -> None:
    """A broker in ZooKeeper mode whose session ended while it stopped went on to ask for five minutes (seed 2, with disks that fail)."""

    async def body() -> None:
        goes = BrokerHeartbeatResponse(is_fenced=False, should_shut_down=True)
        unknown = BrokerHeartbeatResponse(error_code=error)
        for answers in ([UNFENCED, UNFENCED, goes], [UNFENCED, None], [UNFENCED, unknown]):
            controller = Controller([registered(5)], answers)
            joined = lifecycle(controller)
            await joined.join()
            began = asyncio.get_running_loop().time()
            await joined.leave()
            assert controller.asked[-1].want_shut_down
            assert asyncio.get_running_loop().time() - began < 10, "two intervals of 2 s"

    in_world(body)


def test_a_new_controller_need_not_wait_for_the_next_heartbeat() -> None:
    async def body() -> None:
        controller = Controller([registered(5)], [UNFENCED])
        joined = lifecycle(controller)
        await joined.join()
        began, before = asyncio.get_running_loop().time(), len(controller.asked)
        joined.beat_soon()
        while len(controller.asked) == before:
            await asyncio.sleep(0.001)
        assert asyncio.get_running_loop().time() - began < 0.1, "the interval is 2 s, of the simulated clock"

    in_world(body)


def brokers_image(*, leaving: int | None = None, is_fenced: bool = False, count: int = 3) -> ClusterImage:
    brokers = {node: BrokerImage(node, 5, {}, None, is_fenced=False) for node in range(7, 7 + count)}
    if leaving is not None:
        brokers[leaving] = BrokerImage(leaving, 5, {}, None, is_fenced=is_fenced, in_controlled_shutdown=True)
    return replace(EMPTY_IMAGE, brokers=brokers)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (brokers_image(), range(2)),
        (brokers_image(leaving=8), range(20, 51)),
        (brokers_image(leaving=8, is_fenced=True), range(2)),
        (brokers_image(leaving=7), range(2)),
        (brokers_image(leaving=8, count=100), range(4, 7)),
    ],
    ids=["none leaves", "another leaves", "another has left", "it leaves", "one of a hundred leaves"],
)
def test_heartbeats_come_often_while_another_broker_leaves(image: ClusterImage, expected: range) -> None:
    """It may end once all others are known to have followed its last change, which had taken an interval of 2 s."""

    async def body() -> None:
        controller = Controller([registered(5)], [UNFENCED])
        joined = lifecycle(controller, {"node.id": "7"})
        await joined.join()
        await joined.on_image(ImageDelta(brokers_image(), image))
        before = len(controller.asked)
        await asyncio.sleep(1)  # of simulated time, as below: heartbeats of one second are counted
        assert len(controller.asked) - before in expected
        await joined.on_image(ImageDelta(image, brokers_image()))
        await asyncio.sleep(0.5)
        before = len(controller.asked)
        await asyncio.sleep(1)
        assert len(controller.asked) - before <= 1

    in_world(body)


def test_requests_to_a_silent_controller_are_given_up_once_another_is_elected() -> None:
    async def body() -> None:
        class Silent:
            def send(self, address: Address, request: Any, on_answer: Callable[[Any], None]) -> None:
                asked.append(address)

            def probe(self, address: Address) -> None:
                probed.append(address)

        asked: list[Address] = []
        probed: list[Address] = []
        leaders = [("old", 1)]
        world = Simulation(1).machine("broker").boot()
        channel = ControllerChannel(world, lambda: leaders[-1], Silent())  # type: ignore[arg-type]
        waiting = asyncio.create_task(channel.ask(BrokerHeartbeatRequest(), BrokerHeartbeatResponse))
        await asyncio.sleep(0)
        channel.on_controller()
        await asyncio.sleep(1)
        assert not waiting.done(), "it is still the same one"
        assert probed == [("old", 1)], "or another process of it"
        leaders.append(("new", 2))
        channel.on_controller()
        assert await waiting is None
        assert asked == [("old", 1)]

    in_world(body)


def test_without_controlled_shutdown_a_leaving_broker_sends_nothing() -> None:
    async def body() -> None:
        controller = Controller([registered(5)], [UNFENCED])
        joined = lifecycle(controller, {"controlled.shutdown.enable": "false"})
        await joined.join()
        before = list(controller.asked)
        await joined.leave()
        await asyncio.sleep(60)
        assert controller.asked == before

    in_world(body)


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_broker_ends_whose_failed_log_directory_no_controller_hears_of(is_heard: bool) -> None:
    """Others believe that it leads what lay there (KIP-858)."""

    async def body() -> None:
        controller = Controller([registered(5)], [UNFENCED])
        failed: list[str] = []
        failed_directories: list[bytes] = []
        properties = {"log.dir.failure.timeout.ms": "10000"}
        joined = lifecycle(controller, properties, on_failed=failed.append, failed_directories=lambda: list(failed_directories))
        await joined.join()
        failed_directories.append(b"failed")
        controller.answer_heartbeats([None] * 4 + [UNFENCED if is_heard else None])
        joined.beat_soon()
        await asyncio.sleep(60)
        if is_heard:
            assert not failed
            assert controller.asked[-1].offline_log_dirs == [b"failed"]
        else:
            assert failed == ["no controller has heard of a failed log directory for 10000 ms (log.dir.failure.timeout.ms)"]

    in_world(body)


@pytest.mark.parametrize(
    ("finalized", "text"),
    [
        ([("metadata.version", 30), ("kraft.version", 1)], "kraft.version at level 1"),
        ([("metadata.version", 31), ("x", 2)], "metadata.version at level 31, x at level 2"),
        ([], ""),
    ],
)
def test_a_broker_that_is_refused_for_a_feature_says_which_it_lacks(finalized: list[tuple[str, int]], text: str) -> None:
    async def body() -> None:
        refusal = BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        controller = Controller([refusal], [])
        found = ApiVersionsResponse(finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in finalized])
        controller.answer(ApiVersionsRequest, [found])
        joining = lifecycle(controller, features=[Feature("metadata.version", 7, 30)])
        with pytest.raises(KafkaError) as caught:
            await joining.join()
        why = f": the cluster has {text}, which this broker does not support" if text else ""
        assert caught.value.message.endswith(f"the controller refuses this broker{why}")

    in_world(body)
