"""The simulated network: what goes wrong is told apart as real networks tell it apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from ottla.ports import BACKLOG, Connection, World
from ottla.sim.cluster import Simulation
from ottla.sim.connection import RECEIVE_BUFFER_BYTES, SEND_QUEUE_BYTES_MAX
from ottla.sim.loop import run
from ottla.sim.network import CONNECT_SECONDS_MAX, DYING_MS_MAX
from ottla.sim.world import Machine

PORT = 9092


class End:
    """A handler that keeps what it is given; a server's answers each piece with itself."""

    def __init__(self, connection: Connection, *, is_echo: bool = False) -> None:
        self.connection = connection
        self.is_echo = is_echo
        self.data = b""
        self.pieces = 0
        self.drained = 0
        self.ended: list[Exception | None] = []

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        self.data += bytes(data)
        self.pieces += 1
        if self.is_echo:
            self.connection.send([bytes(data)])
        return False

    def on_drain(self) -> None:
        self.drained += 1

    def on_close(self, error: Exception | None) -> None:
        self.ended.append(error)


class Pair:
    """A server that listens and a client that does not, each on a host of its own."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.fabric = self.simulation.fabric
        self.server, self.client = self.simulation.machine("server"), self.simulation.machine("client")
        self.accepted: list[End] = []
        self.worlds = {"client": self.client.boot()}

    async def listen(self, *, backlog: int = BACKLOG, is_echo: bool = True) -> None:
        world = self.server.boot()

        def accept(connection: Connection) -> End:
            self.accepted.append(End(connection, is_echo=is_echo))
            return self.accepted[-1]

        await self.server.run(world.network.listen("", PORT, accept, backlog=backlog))

    @property
    def world(self) -> World:
        return self.worlds["client"]

    async def connect(self) -> End:
        return await connect_to("server", PORT, self.world)

    async def answers(self, end: End) -> bool:
        """Whether an exchange is over within a second."""
        before = len(end.data)
        end.connection.send([b"ping"])
        await asyncio.sleep(1)
        return len(end.data) == before + 4


async def connect_to(host: str, port: int, world: World) -> End:
    made: list[End] = []

    def make(connection: Connection) -> End:
        made.append(End(connection))
        return made[0]

    await world.network.connect(host, port, make)
    return made[0]


def with_pair(body: Callable[[Pair], Awaitable[None]], seed: int = 1, *, listens: bool = True) -> None:
    async def main() -> None:
        pair = Pair(seed)
        if listens:
            await pair.listen()
        await body(pair)

    run(main())


async def seconds_of(awaitable: Awaitable[object]) -> tuple[float, type[BaseException] | None]:
    """How long it took, and the error that it ended with."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        await awaitable
    except OSError as error:
        return loop.time() - begun, type(error)
    return loop.time() - begun, None


async def hangs(pair: Pair) -> bool:
    """Connecting neither succeeds nor fails for ten seconds."""
    try:
        async with asyncio.timeout(10):
            await pair.connect()
    except TimeoutError as error:
        return not error.errno
    return False


def test_a_host_without_a_listener_refuses_at_once() -> None:
    async def body(pair: Pair) -> None:
        seconds, error = await seconds_of(pair.connect())
        assert error is ConnectionRefusedError
        assert seconds < 0.01
        pair.server.boot()
        assert (await seconds_of(pair.connect()))[1] is ConnectionRefusedError

    with_pair(body, listens=False)


def test_an_unknown_name_is_no_host() -> None:
    async def body(pair: Pair) -> None:
        with pytest.raises(OSError, match="nowhere"):
            await pair.world.network.connect("nowhere", PORT, End)

    with_pair(body)


def test_a_dark_host_is_silent_and_says_all_when_it_is_light_again() -> None:
    async def body(pair: Pair) -> None:
        open_before = await pair.connect()
        assert await pair.answers(open_before)
        pair.fabric.darken("server")
        assert not await pair.answers(open_before)
        assert await hangs(pair)
        assert open_before.ended == []
        assert pair.accepted[0].data == b"ping"
        pair.fabric.lighten("server")
        await asyncio.sleep(1)
        assert open_before.data == b"pingping"
        assert await pair.answers(await pair.connect())

    with_pair(body)


def test_a_connect_that_nobody_answers_fails_when_the_kernel_gives_up() -> None:
    async def body(pair: Pair) -> None:
        pair.fabric.darken("server")
        assert await seconds_of(pair.connect()) == (CONNECT_SECONDS_MAX, TimeoutError)

    with_pair(body)


@pytest.mark.parametrize(("source", "target"), [("client", "server"), ("server", "client")])
def test_a_link_cut_one_way_is_silent_in_that_direction_only(source: str, target: str) -> None:
    async def body(pair: Pair) -> None:
        end = await pair.connect()
        assert await pair.answers(end)
        pair.fabric.cut_link(source, target)
        server_end = pair.accepted[0]
        server_end.connection.send([b"news"])
        end.connection.send([b"ping"])
        await asyncio.sleep(1)
        assert end.data == (b"pingnews" if source == "client" else b"ping")
        assert server_end.data == (b"pingping" if source == "server" else b"ping")
        assert await hangs(pair), "a handshake needs both directions"
        assert (end.ended, server_end.ended) == ([], [])
        pair.fabric.join_link(source, target)
        await asyncio.sleep(1)
        assert sorted(end.data) == sorted(b"pingnewsping")
        assert await pair.answers(await pair.connect())

    with_pair(body)


def test_a_link_cut_both_ways_is_silent() -> None:
    async def body(pair: Pair) -> None:
        end = await pair.connect()
        await asyncio.sleep(0.1)
        pair.fabric.cut_link("client", "server")
        pair.fabric.cut_link("server", "client")
        pair.accepted[0].connection.send([b"news"])
        end.connection.send([b"ping"])
        assert await hangs(pair)
        assert (end.data, pair.accepted[0].data) == (b"", b"")
        pair.fabric.heal()
        await asyncio.sleep(1)
        assert sorted(end.data) == sorted(b"newsping")

    with_pair(body)


def test_a_process_that_dies_ends_its_connections_then_resets_new_ones_then_refuses() -> None:
    ends, fates = set(), set()
    for seed in range(60):

        async def body(pair: Pair) -> None:
            end = await pair.connect()
            assert await pair.answers(end)
            pair.server.kill_process()
            fate: list[str] = []
            loop = asyncio.get_running_loop()
            until = loop.time() + 4 * DYING_MS_MAX / 1000
            while loop.time() < until:
                try:
                    late = await pair.connect()
                except ConnectionRefusedError:
                    fate.append("refused")
                    continue
                await asyncio.sleep(0.002)
                fate += [type(error).__name__ for error in late.ended]
            assert len(end.ended) == 1, "it ends within some milliseconds"
            ends.add(type(end.ended[0]))
            fates.add(fate[0])
            assert fate[-1] == "refused"
            assert fate == sorted(fate), "a port that refuses does not accept again"

        with_pair(body, seed)
    assert ends == {type(None), ConnectionResetError}
    assert fates == {"ConnectionResetError", "refused"}


def test_a_process_that_dies_with_unread_data_resets() -> None:
    for seed in range(10):

        async def body(pair: Pair) -> None:
            end = await pair.connect()
            await asyncio.sleep(0.1)
            pair.server.pause_process()
            end.connection.send([b"x" * 100])
            await asyncio.sleep(0.1)
            pair.server.kill_process()
            await asyncio.sleep(0.1)
            assert [type(error) for error in end.ended] == [ConnectionResetError]

        with_pair(body, seed)


def test_an_exit_in_order_refuses_at_once() -> None:
    for seed in range(10):

        async def body(pair: Pair) -> None:
            end = await pair.connect()
            pair.server.end_process()
            assert (await seconds_of(pair.connect()))[1] is ConnectionRefusedError
            await asyncio.sleep(0.01)
            assert end.ended == [None]

        with_pair(body, seed)


def test_a_machine_without_power_is_silent_and_resets_what_it_does_not_know_after_its_boot() -> None:
    async def body(pair: Pair) -> None:
        idle, busy = await pair.connect(), await pair.connect()
        pair.server.cut_power()
        assert not await pair.answers(busy)
        assert await hangs(pair)
        assert (idle.ended, busy.ended) == ([], [])
        await pair.listen()
        await asyncio.sleep(1)
        assert [type(error) for error in busy.ended] == [ConnectionResetError], "it had something to send"
        assert idle.ended == [], "who sends nothing learns nothing"
        assert await pair.answers(await pair.connect())

    with_pair(body)


def test_a_firewall_that_rejects_one_side_refuses_and_resets_that_side_alone() -> None:
    async def body(pair: Pair) -> None:
        other = pair.simulation.machine("other").boot()
        end = await pair.connect()
        pair.fabric.refuse("client", "server")
        seconds, error = await seconds_of(pair.connect())
        assert (seconds < 0.01, error) == (True, ConnectionRefusedError)
        end.connection.send([b"ping"])
        await asyncio.sleep(0.1)
        assert [type(error) for error in end.ended] == [ConnectionResetError]
        assert (pair.accepted[0].data, pair.accepted[0].ended) == (b"", []), "the server has seen nothing"
        assert await pair.answers(await connect_to("server", PORT, other))
        listening = await pair.world.network.listen("", 7000, lambda connection: End(connection, is_echo=True))
        back = await pair.server.run(other.network.connect("client", 7000, End))
        assert not back.is_closed
        await listening.close()

    with_pair(body)


def test_a_paused_process_takes_connections_and_data_and_answers_later() -> None:
    async def main() -> None:
        pair = Pair(1)
        await pair.listen(backlog=2)
        before = await pair.connect()
        assert await pair.answers(before)
        pair.server.pause_process()
        fresh = [await pair.connect(), await pair.connect()]
        await asyncio.sleep(0.01)  # the server's kernel has the last word of the second, too
        assert await hangs(pair), "the backlog is full"
        for end in (before, *fresh):
            assert not await pair.answers(end)
        assert len(pair.accepted) == 1
        pair.server.resume_process()
        await asyncio.sleep(2)
        assert [end.data for end in fresh] == [b"ping", b"ping"]
        assert before.data == b"pingping"
        assert await pair.answers(await pair.connect())

    run(main())


def test_a_kernel_takes_so_much_for_a_paused_process_and_the_rest_waits_at_the_sender() -> None:
    async def main() -> None:
        pair = Pair(1)
        await pair.listen(is_echo=False)
        end = await pair.connect()
        await asyncio.sleep(0.1)
        pair.server.pause_process()
        data = bytes(range(256)) * 2048
        assert len(data) > RECEIVE_BUFFER_BYTES + SEND_QUEUE_BYTES_MAX
        end.connection.send([data])
        await asyncio.sleep(10)
        assert len(data) - 2 * RECEIVE_BUFFER_BYTES < end.connection.unsent_bytes <= len(data) - RECEIVE_BUFFER_BYTES
        assert end.drained == 0
        assert pair.accepted[0].data == b""
        pair.server.resume_process()
        await asyncio.sleep(1)
        assert pair.accepted[0].data == data
        assert (end.connection.unsent_bytes, end.drained) == (0, 1)

    run(main())


def test_what_a_process_sent_before_its_end_arrives_also_when_the_reader_is_paused() -> None:
    async def main() -> None:
        pair = Pair(1)
        await pair.listen(is_echo=False)
        end = await pair.connect()
        await asyncio.sleep(0.1)
        pair.server.pause_process()
        end.connection.send([b"last words"])
        end.connection.close()
        await asyncio.sleep(1)
        assert pair.accepted[0].ended == []
        pair.server.resume_process()
        await asyncio.sleep(1)
        assert (pair.accepted[0].data, pair.accepted[0].ended) == (b"last words", [None])

    run(main())


def test_a_slow_link_takes_its_time_in_one_direction() -> None:
    async def body(pair: Pair) -> None:
        end = await pair.connect()
        pair.fabric.slow_link("client", "server", 300)
        end.connection.send([b"ping"])
        await asyncio.sleep(0.29)
        assert pair.accepted[0].data == b""
        await asyncio.sleep(0.02)
        assert end.data == b"ping"

    with_pair(body)


def test_a_clogged_link_brings_all_at_once_later() -> None:
    async def body(pair: Pair) -> None:
        end = await pair.connect()
        await asyncio.sleep(0.1)
        pair.fabric.clog_link("client", "server", 500)
        for number in range(10):
            end.connection.send([b"%d" % number])
            await asyncio.sleep(0.04)
        assert pair.accepted[0].data == b""
        await asyncio.sleep(0.102)
        assert pair.accepted[0].data == b"0123456789"

    with_pair(body)


def note(arrived: list[str], name: str, data: memoryview) -> bool:
    arrived.append(name + bytes(data).decode())
    return False


def test_connections_overtake_each_other_and_what_one_carries_keeps_its_order() -> None:
    orders = set()
    for seed in range(20):

        async def body(pair: Pair) -> None:
            arrived: list[str] = []
            ends = [await pair.connect() for _ in range(2)]
            await asyncio.sleep(0.1)
            for end, name in zip(pair.accepted, "ab", strict=True):
                end.on_data = partial(note, arrived, name)  # type: ignore[method-assign]
            for number in range(5):
                for end in ends:
                    end.connection.send([b"%d" % number])
            await asyncio.sleep(0.1)
            for name in "ab":
                assert [event for event in arrived if event[0] == name] == [f"{name}{number}" for number in range(5)]
            orders.add("".join(event[0] for event in arrived))

        with_pair(body, seed)
    assert len(orders) > 10


def test_order_is_kept_over_a_cut_that_begins_and_ends_while_data_is_on_its_way() -> None:
    for seed in range(50):

        async def body(pair: Pair) -> None:
            end = await pair.connect()
            await asyncio.sleep(0.1)
            expected = b""
            for number in range(200):
                end.connection.send([b"%d " % number])
                expected += b"%d " % number
                if number % 7 == 3:
                    pair.fabric.cut_link("client", "server")
                elif number % 7 == 5:
                    pair.fabric.join_link("client", "server")
                await asyncio.sleep(0.0004)
            pair.fabric.heal()
            await asyncio.sleep(1)
            assert pair.accepted[0].data == expected

        with_pair(body, seed)


def test_a_connection_breaks_in_the_middle_of_what_was_sent() -> None:
    async def body(pair: Pair) -> None:
        end = await pair.connect()
        await asyncio.sleep(0.1)
        data = bytes(100_000)
        end.connection.send([data])
        await asyncio.sleep(0.0005)
        pair.fabric.break_connections("server")
        await asyncio.sleep(1)
        assert 0 < len(pair.accepted[0].data) < len(data)
        for each in (end, pair.accepted[0]):
            assert [type(error) for error in each.ended] == [ConnectionResetError]
        assert await pair.answers(await pair.connect())

    with_pair(body)


def test_a_connect_that_is_given_up_leaves_no_connection_at_the_server() -> None:
    async def body(pair: Pair) -> None:
        pair.fabric.slow_link("server", "client", 1000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await pair.connect()
        await asyncio.sleep(5)
        assert [len(end.ended) for end in pair.accepted] in ([], [1])

    with_pair(body)


def test_the_same_process_may_connect_to_itself() -> None:
    async def body(pair: Pair) -> None:
        machine: Machine = pair.client

        async def work() -> End:
            await pair.world.network.listen("", 7000, lambda connection: End(connection, is_echo=True))
            return await connect_to("client", 7000, pair.world)

        assert await pair.answers(await machine.run(work()))

    with_pair(body)
