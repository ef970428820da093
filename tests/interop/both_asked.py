"""Apache Kafka and ottla, asked the same at once: a request is drawn from its declaration, and the answers are compared field by field.

What each of them names by itself (ids of topics and members) is an ``Id`` in a request, which stands for the one's or the
other's, and in what is compared. Left out are words, times and places: ``UNCOMPARED``.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict
from tests.foreign_clients.wire import RawClient
from tests.interop.drawn_batches import DrawnBatch, batches_in
from tests.waiting import eventually

from ottla.errors import ErrorCode
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.registry import API_OF_REQUEST
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.schema import FIELDS, ZERO_UUID, Field, Request

CLOSED: Final = "the connection was closed"
UNCOMPARED: Final = frozenset(
    {
        *("throttle_time_ms", "error_message", "cluster_id", "port", "leader_epoch", "topic_authorized_operations", "timestamp"),
        *(
            "log_append_time_ms",
            "batch_index_error_message",
            "last_timestamp",
            "transaction_start_time_ms",
            "documentation",
            "finalized_features_epoch",
        ),
    }
)
NAMES: Final = ("name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "partition_index", "index", "partition", "user")
"""By which elements of an array are known: their order is compared of none."""
LENGTHS: Final = (1, 1, 1, 2)
TAGGED_SHARE: Final = 0.3
NULL_SHARE: Final = 0.15
OWN_NUMBERS: Final = ("producer_id", "session_id")
"""Fields of numbers that each of the two gives."""
OF_NOTHING: Final[Mapping[str, Any]] = {"topic": bytes([1]) * 16, "producer": 999_999, "session": 999_999}
Pool = Callable[[random.Random], Any]
Pools = Mapping[str, Pool]


class Id(NamedTuple):
    """Something that each of the two has named by itself."""

    kind: str
    name: str


class Difference(NamedTuple):
    """``path`` as in ``topics.partitions.error_code``."""

    api: str
    path: str
    kafka: Any
    ours: Any


class Known(NamedTuple):
    """A difference that may be, and why. ``path`` is its end; None stands for any value."""

    api: str
    path: str
    kafka: Any
    ours: Any
    why: str

    def is_of(self, found: Difference) -> bool:
        wanted, has = (self.kafka, self.ours), (found.kafka, found.ours)
        return (
            self.api == found.api and found.path.endswith(self.path) and all(one is None or one == other for one, other in zip(wanted, has))
        )


def one_of(*values: Any) -> Pool:
    return lambda rng: rng.choice(values)


def some_of(pool: Pool, *counts: int) -> Pool:
    """Different ones: who asks for one twice is answered once by ottla, so that short requests have no endless answers."""
    return lambda rng: list(dict.fromkeys(pool(rng) for _ in range(rng.choice(counts or LENGTHS))))


def drawn(request: type[Request], version: int, pools: Pools, rng: random.Random) -> Any:
    """A request whose fields are drawn from the pool of their path, or of their name; an element of an array from that of its fields."""
    return _struct(request.__name__.removesuffix("Request"), request, version, pools, rng)


def _struct(path: str, declared: type[Struct], version: int, pools: Pools, rng: random.Random) -> Any:
    given = {}
    for name, found in FIELDS[declared].items():
        if found.is_in(version) and not (found.is_tagged_in(version) and rng.random() >= TAGGED_SHARE):
            given[name] = _value(f"{path}.{name}", found, version, pools, rng)
    return declared(**given)


def _value(path: str, declared: Field, version: int, pools: Pools, rng: random.Random) -> Any:
    pool = pools.get(path) or pools.get(path.rpartition(".")[2])
    if pool is not None and ((value := pool(rng)) is not None or declared.is_nullable_in(version) or declared.kind == "records"):
        return value
    if pool is None and declared.is_nullable_in(version) and rng.random() < NULL_SHARE:
        return None
    match declared.kind:
        case "array":
            is_struct = isinstance(declared.element, type)
            draw = _struct if is_struct else _value
            return _different([draw(path, declared.element, version, pools, rng) for _ in range(rng.choice(LENGTHS))])
        case "struct":
            return _struct(path, declared.element, version, pools, rng)
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return rng.choice(["", "x"])
        case "binary":
            return rng.choice([b"", b"bytes"])
        case "uuid":
            return rng.choice([ZERO_UUID, bytes([7]) * 16])
        case "float64":
            return rng.choice([0.0, 1.0])
    return rng.choice([-1, 0, 1])


def _different(items: list[Any]) -> list[Any]:
    """Those of different names."""
    known = {str([getattr(item, name, None) for name in NAMES] if isinstance(item, Struct) else item): item for item in items}
    return list(known.values())


@dataclass
class Side:
    """One of the two."""

    port: int
    uncompared: frozenset[str] = UNCOMPARED
    user: str | None = None
    ids: dict[Id, Any] = field(default_factory=dict)
    named: dict[Any, Id] = field(default_factory=dict)
    client: RawClient | None = None

    def send(self, request: Request, version: int) -> None:
        if self.client is None:
            self.client = RawClient(self.port)
            if self.user is not None:
                log_in(self.client, self.user)
        self.client.send(self.own(request), version)

    def receive(self) -> Any:
        assert self.client is not None, "a request was sent"
        try:
            return self.client.receive()
        except (AssertionError, ConnectionError):
            self.close()
            return CLOSED

    def close(self) -> None:
        if self.client is not None:
            self.client.socket.close()
            self.client = None

    def learn(self, known: Id, value: Any) -> None:
        self.ids[known], self.named[value] = value, known

    def own(self, value: Any) -> Any:
        """The same, with its own ids in place of ``Id``; what it has none of is an id of nothing."""
        if isinstance(value, Id):
            return self.ids.get(value, OF_NOTHING.get(value.kind, "nobody"))
        if isinstance(value, DrawnBatch):
            return memoryview(value.built(self.own(value.producer)))
        if isinstance(value, list):
            return [self.own(item) for item in value]
        return type(value)(**{name: self.own(found) for name, found in asdict(value).items()}) if isinstance(value, Struct) else value

    def plain(self, value: Any, name: str = "") -> Any:
        """What is compared."""
        if isinstance(value, Struct):
            return {inner: self.plain(found, inner) for inner, found in asdict(value).items() if inner not in self.uncompared}
        if isinstance(value, list):
            return sorted(_joined([self.plain(item, name) for item in value]), key=_order)
        if name == "records":
            return [str(found) for found in batches_in(value, lambda producer: self.named.get(producer, producer))]
        if isinstance(value, int) and name not in OWN_NUMBERS:
            return str(value)
        value = bytes(value) if isinstance(value, memoryview) else value
        return str(self.named.get(value, value.hex() if isinstance(value, bytes) else value)) if value not in (None, "") else ""


def _joined(items: list[Any]) -> list[Any]:
    """One item for each topic: Kafka lists a topic again after another one."""
    topics: dict[str, Any] = {}
    for item in items:
        key = str([item.get(name) for name in NAMES]) if isinstance(item, dict) and "partitions" in item else f"{len(topics)}th"
        if key in topics:
            topics[key] = item | {"partitions": sorted(topics[key]["partitions"] + item["partitions"], key=_order)}
        else:
            topics[key] = item
    return list(topics.values())


def _order(item: Any) -> tuple[str, str]:
    names = [item.get(name) for name in NAMES] if isinstance(item, dict) else item
    return str(names), json.dumps(item, sort_keys=True, default=str)


def log_in(client: RawClient, user: str) -> None:
    """By PLAIN, with the name for a password."""
    client.ask(SaslHandshakeRequest("PLAIN"), 1)
    answer = client.ask(SaslAuthenticateRequest(f"\0{user}\0{user}".encode()), 2)
    assert not answer.error_code, answer


class Both:
    """Kafka, and ottla. ``met`` counts the APIs that were asked with the error codes of Kafka's answers.

    ``unneeded`` are the differences that may be and were not met.
    """

    def __init__(
        self,
        kafka: int,
        ours: int,
        known: Sequence[Known],
        *,
        compared: Collection[str] = (),
        user: str | None = None,
        view: Callable[[Any], Any] = lambda plain: plain,
    ) -> None:
        """Ports, the differences that may be, what is compared of ``UNCOMPARED``, who asks, and what is seen of an answer."""
        self._view = view
        uncompared = UNCOMPARED.difference(compared)
        self.sides = Side(kafka, uncompared, user), Side(ours, uncompared, user)
        self._known = known
        self.met = Counter[tuple[str, str]]()
        self.unneeded = list(known)
        both = [{key.api_key: key for key in self.answers(ApiVersionsRequest(), 0)[at].api_keys} for at in range(2)]
        self._versions = {
            key: (max(low.min_version, both[1][key].min_version), min(low.max_version, both[1][key].max_version))
            for key, low in both[0].items()
            if key in both[1]
        }

    def versions(self, request: type[Request]) -> tuple[int, int]:
        """The first and the last one that both serve, of those that this codec has."""
        api = API_OF_REQUEST[request]
        low, high = self._versions[api.key]
        return max(low, api.version_min), min(high, api.version_max)

    def answers(self, request: Any, version: int) -> tuple[Any, Any]:
        for side in self.sides:
            side.send(request, version)
        kafka, ours = (side.receive() for side in self.sides)
        return kafka, ours

    def settled(self, request: Any, version: int) -> tuple[Any, Any]:
        """The answers of both, asked again while a transaction before is being ended."""
        answers = list(self.answers(request, version))
        for at, side in enumerate(self.sides):

            def again(at: int = at, side: Side = side) -> Any:
                if getattr(answers[at], "error_code", 0) == ErrorCode.CONCURRENT_TRANSACTIONS:
                    side.send(request, version)
                    answers[at] = side.receive()
                return getattr(answers[at], "error_code", 0)

            eventually(again, lambda code: code != ErrorCode.CONCURRENT_TRANSACTIONS)
        return answers[0], answers[1]

    def ask(self, request: Any, version: int, learn: Callable[[Side, Any], None] = lambda side, answer: None) -> Any:
        """Kafka's answer, from which ottla's does not differ, but for what is known; else AssertionError shows the request and both.

        ``learn`` takes the ids from the answer of each of the two, before they are compared.
        """
        api = type(request).__name__.removesuffix("Request")
        kafka, ours = self.settled(request, version)
        for side, answer in zip(self.sides, (kafka, ours)):
            if answer is not CLOSED:
                learn(side, answer)
        plain = self._view(self.sides[0].plain(kafka)), self._view(self.sides[1].plain(ours))
        self.met[api, ",".join(sorted(set(_codes(plain[0]))))] += 1
        unknown = []
        for path, one, other in _differences(*plain):
            found = Difference(api, path, one, other)
            known = next((row for row in self._known if row.is_of(found)), None)
            if known is None:
                unknown.append(found)
            else:
                self.unneeded = [row for row in self.unneeded if row is not known]
        assert not unknown, f"{unknown[0]}\nversion {version}: {request}\nKafka: {kafka}\nottla: {ours}"
        return kafka

    def close(self) -> None:
        for side in self.sides:
            side.close()


def _differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from _differences(one[name], other[name], f"{path}.{name}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for first, second in zip(one, other):
            yield from _differences(first, second, path)
    elif one != other:
        yield path, one, other


def _codes(answer: Any) -> Iterator[str]:
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            yield from _codes(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from _codes(item)
