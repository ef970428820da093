"""The console's pages, their JSON twins, and who is let in: over a broker, without a browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ottla import aio
from ottla.aio import Admin
from ottla.client.admin import PartitionDescription
from ottla.console import app
from ottla.console.app import COOKIE, ConsoleApp
from ottla.console.pages import Pages, Values
from ottla.console.probe import TOPIC, Probe
from ottla.console.processes import Processes
from ottla.console.reading import Lag, worst_lags
from ottla.console.watching import NodeState, Seen, Watcher, changes
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin as SyncAdmin
from ottla.sync import Consumer, NewTopic, Producer
from ottla.types import TopicPartition

TOKEN = "the-token"
LARGE = 9_007_199_254_740_993
"""Not a number that JavaScript has."""
PROPERTIES = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
SECONDS_MAX = 60
PAGES = ["/", "/topics", "/topics/orders", "/topics/orders/messages", "/groups", "/groups/billing", "/brokers"]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Ask = Callable[..., Awaitable[Answer]]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a topic of three records, of which a group has read two."""
    with BrokerThread(PROPERTIES | {"log.dirs": str(tmp_path_factory.mktemp("broker"))}) as broker:
        with SyncAdmin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 1)]) == {"orders": None}
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b'{"id": %d}' % LARGE, key=b"<i>", headers={"trace": b"needle"}).result(SECONDS_MAX)
            producer.send("orders", b"\xff\x00", key=b"binary").result(SECONDS_MAX)
            producer.send("orders", b"x" * 3000).result(SECONDS_MAX)
        with Consumer(broker.bootstrap, group_id="billing") as consumer:
            consumer.commit({TopicPartition("orders", 0): 2})
        yield broker.bootstrap


def play(bootstrap: str, body: Callable[[Ask], Awaitable[None]]) -> None:
    """``body`` asks the console of that broker."""

    async def main() -> None:
        async with Admin(bootstrap) as admin:
            processes, probe = Processes(None), Probe(bootstrap, {})
            watcher = Watcher(admin, processes.states)
            await watcher.look()
            app = ConsoleApp(Pages(bootstrap, {}, admin, watcher, probe, can_kill=False), processes, TOKEN)

            async def ask(path: str, method: str = "GET", **headers: str) -> Answer:
                given = {"host": "127.0.0.1:8080", "cookie": f"{COOKIE}={TOKEN}"} | headers
                place, _, query = path.partition("?")
                scope = {
                    "type": "http", "method": method, "path": place, "raw_path": place.encode(), "query_string": query.encode(),
                    "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
                    "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8080), "client": ("127.0.0.1", 1), "root_path": "",
                }  # fmt: skip
                sent: list[Any] = []
                has_seen = asyncio.Event()

                async def receive() -> dict[str, Any]:
                    """A browser that leaves as soon as it has seen something."""
                    await has_seen.wait()
                    return {"type": "http.disconnect"}

                async def send(message: Any) -> None:
                    sent.append(message)
                    if message.get("body"):
                        has_seen.set()

                await app.starlette(scope, receive, send)
                found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
                return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]).decode())

            async with asyncio.timeout(SECONDS_MAX):
                await body(ask)

    asyncio.run(main())


def test_nothing_is_shown_without_the_token_or_under_a_foreign_name(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        for path in [*PAGES, "/news"]:
            assert (await ask(path, cookie="")).status == 401, path
            assert (await ask(path, cookie=f"{COOKIE}=another")).status == 401, path
            assert (await ask(path, host="evil.example")).status == 421, path
        assert (await ask("/nodes/1/kill", "POST", cookie="")).status == 401
        entered = await ask(f"/topics?token={TOKEN}", cookie="")
        assert (entered.status, entered.headers["location"]) == (303, "./topics")
        assert f"{COOKIE}={TOKEN}" in entered.headers["set-cookie"]
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert "samesite=strict" in entered.headers["set-cookie"].lower()

    play(bootstrap, body)


def test_an_order_comes_from_a_page_of_the_console_and_needs_a_supervisor(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        assert (await ask("/nodes/1/kill", "POST", origin="http://evil.example")).status == 403
        refused = await ask("/nodes/1/kill", "POST", origin="http://127.0.0.1:8080")
        assert refused.status == 409
        assert "ottla cluster start" in refused.json["error"]
        assert (await ask("/nodes/1/kill")).status == 405

    play(bootstrap, body)


def test_each_page_has_relative_addresses_and_loads_nothing_from_elsewhere(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        for path in PAGES:
            page = await ask(path)
            assert page.status == 200, path
            assert 'href="/' not in page.body
            assert "http" not in page.body.replace("http-equiv", "")
            assert "default-src 'self'" in page.headers["content-security-policy"]
            assert "style=" not in page.body, "the policy would leave it out"
            assert (await ask(path, accept="application/json")).headers["content-type"] == "application/json"

    play(bootstrap, body)


def test_what_the_pages_say(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        async def values(path: str) -> Any:
            return (await ask(path, accept="application/json")).json

        cluster = await values("/")
        assert [(node["node_id"], node["broker"], node["is_controller"]) for node in cluster["nodes"]] == [(1, "alive", True)]
        [orders] = [topic for topic in (await values("/topics"))["topics"] if topic["name"] == "orders"]
        assert orders == {
            "name": "orders",
            "partitions": 1,
            "replicas": 1,
            "is_internal": False,
            "worst_lag": 1,
            "worst_group": "billing",
        }
        [partition] = (await values("/topics/orders"))["partitions"]
        assert (partition["leader"], partition["start"], partition["end"]) == (1, 0, 3)
        assert [(group["group_id"], group["lag"]) for group in (await values("/groups"))["groups"]] == [("billing", 1)]
        [read] = (await values("/groups/billing"))["partitions"]
        assert (read["committed"], read["end"], read["lag"]) == (2, 3, 1)
        [directory] = (await values("/brokers"))["directories"]
        assert directory["replicas"] >= 2

    play(bootstrap, body)


def test_a_page_is_sent_again_when_its_lag_has_moved(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LIVE_SECONDS", 0.01)

    async def main() -> None:
        async with Admin(bootstrap) as admin, aio.Producer(bootstrap) as producer:
            assert await admin.create_topics([NewTopic("moving", 1)]) == {"moving": None}
            first = TopicPartition("moving", 0)
            await admin.set_offsets("reader", {first: 0})
            pages = Pages(bootstrap, {}, admin, Watcher(admin, Processes(None).states), Probe(bootstrap, {}), can_kill=False)
            console = ConsoleApp(pages, Processes(None), TOKEN)
            events: asyncio.Queue[str] = asyncio.Queue()
            asked: list[Values] = []

            async def values() -> Values:
                asked.append(await pages.group("reader"))
                return asked[-1]

            async def collect() -> None:
                async for event in console._moves(await values(), values, lambda found: f"lag {found['partitions'][0]['lag']}"):
                    events.put_nowait(event)

            async with asyncio.timeout(SECONDS_MAX):
                collecting = asyncio.create_task(collect())
                assert await events.get() == 'data: "lag 0"\n\n'
                while len(asked) < 5:
                    await asyncio.sleep(0)
                await producer.send_and_wait("moving", b"1")
                assert await events.get() == 'data: "lag 1"\n\n', "looks that found the same were no events"
                console.close()
                await collecting
                assert events.empty()

    asyncio.run(main())


def test_a_browser_that_follows_a_page_gets_it_as_an_event(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        for path in ("/groups/billing", "/topics", "/topics/orders/messages?count=1"):
            page = await ask(path)
            event = await ask(path, accept="text/event-stream")
            assert event.headers["content-type"].startswith("text/event-stream")
            assert event.body == f"data: {json.dumps(page.body)}\n\n"
        assert (await ask("/topics/nope", accept="text/event-stream")).status == 404

    play(bootstrap, body)


def test_messages_are_found_in_key_value_and_headers_and_shown_as_they_are(bootstrap: str) -> None:
    async def body(ask: Ask) -> None:
        async def found(query: str) -> Any:
            return (await ask(f"/topics/orders/messages?{query}", accept="application/json")).json

        newest = await found("count=2")
        assert [one["offset"] for one in newest["messages"]] == [2, 1]
        assert newest["messages"][0]["is_cut"]
        for text in ("needle", "trace", str(LARGE), "%3Ci%3E"):
            [one] = (await found(f"search={text}"))["messages"]
            assert one["offset"] == 0, text
        assert (await found("search=nowhere"))["looked_at"] == 3
        assert (await found("search=binary&form=hex"))["messages"][0]["value"] == "ff 00"
        assert (await found("search=needle&form=json"))["messages"][0]["value"] == f'{{\n  "id": {LARGE}\n}}'
        page = (await ask("/topics/orders/messages?search=needle")).body
        assert str(LARGE) in page
        assert "&lt;i&gt;" in page
        assert "<i>" not in page

    play(bootstrap, body)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *[("/topics/nope", 404), ("/topics/nope/messages", 404), ("/nowhere", 404), ("/static/other.js", 404)],
        *[("/topics/orders/messages?partition=x", 400), ("/topics/orders/messages?count=x", 400), ("/topics/orders/messages?form=x", 400)],
    ],
)
def test_what_is_not_there_or_means_nothing_is_refused(bootstrap: str, path: str, status: int) -> None:
    async def body(ask: Ask) -> None:
        assert (await ask(path)).status == status

    play(bootstrap, body)


def test_the_probe_writes_to_a_topic_of_its_own(bootstrap: str) -> None:
    async def main() -> None:
        probe = Probe(bootstrap, {})
        writing = asyncio.create_task(probe.run())
        async with asyncio.timeout(SECONDS_MAX):
            while probe.dot_count < 3:
                await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert all(dot.error is None and dot.ms > 0 for dot in probe.dots)
        async with Admin(bootstrap) as admin:
            assert TOPIC in await admin.list_topics()

    asyncio.run(main())


def partition(leader: int, epoch: int, in_sync: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(leader, epoch, (1, 2, 3), in_sync)


def test_changes_between_two_looks_are_events() -> None:
    key = TopicPartition("t", 0)
    alive = NodeState(2, "a:1", None, "alive", "serving", 1, is_controller=True)
    dead = NodeState(2, "a:1", None, "fenced", "killed", 0, is_controller=False)
    before = Seen("c", 2, {2: alive}, {key: partition(2, 4, (1, 2, 3))})
    now = Seen("c", 1, {2: dead}, {key: partition(1, 5, (3, 1))})
    assert changes(before, now) == [
        ("node", "process of node 2: killed"),
        ("node", "node 2 is fenced"),
        ("controller", "controller 1 is active"),
        ("leader", "t-0 is led by node 1 in epoch 5"),
        ("isr", "t-0 is in sync on 3,1"),
    ]
    assert not changes(before, before)
    reordered = Seen("c", 2, {2: alive}, {key: partition(2, 4, (3, 2, 1))})
    assert not changes(before, reordered), "an order is no change"


def test_the_worst_lag_of_a_topic_is_that_of_one_group_over_its_partitions() -> None:
    def lag(topic: str, index: int, behind: int) -> Lag:
        return Lag(TopicPartition(topic, index), 0, behind, behind)

    found = {"a": [lag("t", 0, 3), lag("t", 1, 4)], "b": [lag("t", 0, 6), lag("u", 0, 1)]}
    assert worst_lags(found) == {"t": (7, "a"), "u": (1, "b")}
