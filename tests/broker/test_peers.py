"""Connections to other nodes: how long one may take to be made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from ottla.broker.metadata.voters import _older
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import PeerConnection
from ottla.broker.peers.introduction import TOLD_MS, Introduced, Introduction, IntroductionError
from ottla.broker.peers.peers import Peers, SetUp
from ottla.consensus.calls import Vote, VoteAnswer
from ottla.consensus.wire_form import from_answer_message, to_message
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.ports import Connection
from ottla.security.client_exchange import Credentials
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.types import Secret

PORT = 9092
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="node-secret" user_node="node-secret";'


class Silent:
    """Takes what comes, and says nothing."""

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        return False

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        pass


def test_each_connection_that_cannot_be_made_is_waited_for_twice_as_long_up_to_a_limit() -> None:
    """As ``socket.connection.setup.timeout.ms`` and its ``max`` of Kafka's (KIP-601)."""

    async def body() -> None:
        simulation = Simulation(1)
        here, there = simulation.machine("here"), simulation.machine("there")
        world, other = here.boot(), there.boot()
        peers = Peers(world, CallerName("peer"), silence_ms_max=60_000, set_up=SetUp(1000, 3000))
        loop = asyncio.get_running_loop()

        async def attempt() -> float:
            began, ended = loop.time(), loop.create_future()
            peers.send(("there", PORT), ApiVersionsRequest(), ended.set_result)
            assert await ended is None
            return loop.time() - began

        simulation.fabric.darken("there")
        found = [await here.run(attempt()) for _ in range(4)]
        assert found == pytest.approx([1, 2, 3, 3], abs=0.01)
        simulation.fabric.heal()
        made: list[Connection] = []

        def accept(connection: Connection) -> Silent:
            made.append(connection)
            return Silent()

        async def connect_and_lose() -> None:
            peers.send(("there", PORT), ApiVersionsRequest(), lambda answer: None)
            while not made:
                await asyncio.sleep(0.01)
            made[0].abort()
            while peers.is_connected(("there", PORT)):
                await asyncio.sleep(0.01)

        await there.run(other.network.listen("there", PORT, accept))
        await here.run(connect_and_lose())
        simulation.fabric.darken("there")
        assert await here.run(attempt()) == pytest.approx(1, abs=0.01), "one was made meanwhile"
        peers.close()

    run(body())


class Written:
    """A connection on which everything is written."""

    peer = "old"

    def __init__(self) -> None:
        self.frames: list[Sequence[bytes]] = []

    def send(self, pieces: Sequence[bytes]) -> None:
        self.frames.append(pieces)


@pytest.mark.parametrize(("version_max", "is_pre", "is_sent"), [(1, True, False), (2, True, True), (1, False, True)])
def test_a_pre_vote_is_not_sent_to_a_voter_that_would_take_it_for_a_vote(version_max: int, is_pre: bool, is_sent: bool) -> None:
    """It counts as willing: nothing was promised by that, and its vote of the epoch is still its own."""
    connection, written, answers = PeerConnection(CallerName("c"), lambda: None), Written(), list[Any]()
    connection._transport = written  # type: ignore[assignment]
    connection._versions = {ApiKey.VOTE: (0, version_max)}
    call = Vote(7, 2, 6, 40, is_pre)
    connection.send(to_message(call), answers.append, 0, _older(call))
    assert bool(written.frames) is is_sent
    found = [from_answer_message(answer) for answer in answers]
    assert found == ([] if is_sent else [VoteAnswer(0, 7, -1, is_granted=True)])


SECURED: Final = {
    "listeners": "CLIENT://broker:9092",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": PLAIN,
}


@pytest.mark.parametrize(("start", "later", "outcomes"), [("right", "wrong", "ny"), ("wrong", "right", "yy"), ("wrong", "worse", "nn")])
def test_a_password_that_was_set_and_is_refused_leaves_the_one_of_the_start(start: str, later: str, outcomes: str) -> None:
    """A node that nobody lets in does not learn that it has a newer one, however often it is started."""
    passwords = {"right": "node-secret"}
    first, second = (Credentials("PLAIN", "node", Secret(passwords.get(name, name))) for name in (start, later))

    async def body() -> None:
        simulation = Simulation(1)
        await SimBroker(simulation, SECURED).start()
        world = simulation.machine("here").boot()
        network = Introduced(world, Introduction(credentials=first, changed=lambda: second))
        for outcome in outcomes * 2 if outcomes != "ny" else "nyy":
            made = network.connect("broker", PORT, lambda transport: Silent())
            if outcome == "y":
                (await made).close()
            else:
                with pytest.raises(IntroductionError, match="authentication failed"):
                    await made

    run(body())


def test_a_node_that_is_not_let_in_says_so_once_in_a_while(capfd: pytest.CaptureFixture[str]) -> None:
    """It tries 24 times a second, and had a line for each: 600 MB a day."""

    async def body() -> None:
        simulation = Simulation(1)
        await SimBroker(simulation, SECURED).start()
        world = simulation.machine("here").boot()
        network = Introduced(world, Introduction(credentials=Credentials("PLAIN", "node", Secret("wrong"))))
        for pause_s in (0, 0, TOLD_MS / 1000):
            await asyncio.sleep(pause_s)  # of the simulation
            with pytest.raises(IntroductionError, match="authentication failed"):
                await network.connect("broker", PORT, lambda transport: Silent())

    run(body())
    assert capfd.readouterr().out.count(" not_introduced ") == 2


def test_what_was_asked_is_answered_though_the_session_of_its_connection_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a change that is passed on to the controller: asked again, it would be made twice. What is asked later goes over another one."""
    given = SECURED | {"connections.max.reauth.ms": "2000"}

    async def body() -> None:
        simulation = Simulation(1)
        broker = SimBroker(simulation, given)
        await broker.start()
        world = simulation.machine("here").boot()
        retire, is_retired = PeerConnection.retire, asyncio.Event()

        def noted(connection: PeerConnection) -> None:
            retire(connection)
            is_retired.set()

        monkeypatch.setattr(PeerConnection, "retire", noted)
        introduction = Introduction(credentials=Credentials("PLAIN", "node", Secret("node-secret")))
        peers = Peers(introduction.over(world), CallerName("peer"), silence_ms_max=60_000)
        address = ("broker", PORT)
        loop = asyncio.get_running_loop()
        began = loop.time()
        made = await peers.ask(address, CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
        assert isinstance(made, CreateTopicsResponse)
        nothing_yet = FetchTopic("t", made.topics[0].topic_id, [FetchPartition(partition_max_bytes=1)])
        long = loop.create_task(peers.ask(address, FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[nothing_yet])))
        await asyncio.wait_for(is_retired.wait(), 3)
        assert peers.is_connected(address)
        assert isinstance(await peers.ask(address, MetadataRequest([])), MetadataResponse)
        assert loop.time() - began < 3
        assert isinstance(await long, FetchResponse)
        assert loop.time() - began > 5
        assert not peers.is_connected(address), "both have ended before their sessions"
        is_retired.clear()
        again = loop.create_task(peers.ask(address, FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[nothing_yet])))
        await asyncio.wait_for(is_retired.wait(), 3)
        peers.drop(address)
        assert await again is None, "a connection that waits for answers is dropped as well"
        peers.close()

    run(body())
