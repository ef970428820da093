"""One member of a consumer group, as a machine: what its heartbeats say, and what becomes of it by their answers.

::

    OUT -- join --> JOINING -- answered --> MEMBER
     ^                 | refused              | fenced, unknown, refused; left
     +-----------------+----------------------+

A heartbeat names what is new since the last one that was answered; after one that was not answered it says everything again. The
coordinator answers with what the member is to have. What the member has too much, it gives up first, and it acknowledges that; it takes
the rest afterwards. A member that is OUT has lost its partitions: others may own them before the application knows.
Source: KIP-848, KIP-1082 (the member makes its own id).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by the id of their topic; no topic has none."""
NO_EPOCH: Final = -1
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_FOR_A_WHILE_EPOCH: Final = -2
LOOK_AGAIN_MS: Final = 1_000
"""How often a topic of the assignment that metadata does not have yet is looked for."""
LOST: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""The membership has ended: the member gives up what it has, and joins again."""
_OF_ANOTHER: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


class Standing(Enum):
    """The place that a member has in its group."""

    OUT = auto()
    JOINING = auto()
    MEMBER = auto()


@dataclass(frozen=True, slots=True)
class Identity:
    """The part of a member's heartbeats that never changes."""

    group_id: str
    member_id: str
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    assignor: str | None = None


class ConsumerMember:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.member_id = identity.member_id
        self.standing = Standing.OUT
        self.epoch = NO_EPOCH  # of a MEMBER: > 0
        self.interval_ms = 0  # between heartbeats, as the coordinator said
        self.due_ms = 0  # when the next heartbeat is
        self.owned: Partitions = {}  # what the application has
        self.target: Partitions = {}  # what it is to have, as the coordinator said last
        self.was_lost = False  # a membership, since partitions were last taken
        self.problem: KafkaError | None = None  # for the application; the member is OUT with it
        self.membership = 0  # counts them: what is answered to an earlier one is past
        self._topics: tuple[str, ...] | None = None
        self._regex: str | None = None
        self._has_said_regex = False
        self._is_news = False  # an assignment came with the join; it may be empty
        self._differs = False  # what it has, from what it is to have: asked for with each record of an iteration
        self._unresolved: frozenset[bytes] = frozenset()
        self._look_ms = 0  # when these are looked for
        self._said: dict[str, Any] = {}  # and was answered
        self._asked: dict[str, Any] | None = None  # what the heartbeat under way says; None, too, when its membership has ended
        self.failures = 0  # heartbeats that were not answered, one after the other

    # Called by the consumer

    def subscribe(self, topics: Sequence[str], regex: str | None = None) -> None:
        """Asks for these topics, and for those that the brokers find to match ``regex``."""
        wanted = tuple(sorted(set(topics)))
        if (wanted, regex) != (self._topics, self._regex):
            self._topics, self._regex = wanted, regex
            self.due_ms = 0

    @property
    def needs_regex(self) -> bool:
        """Whether its heartbeats have a regular expression, which version 0 lacks."""
        return self._regex is not None

    def join(self) -> None:
        """Has the next heartbeat join the group. The member owns nothing."""
        assert self.standing is Standing.OUT, "a member joins once"
        self.standing, self.due_ms = Standing.JOINING, 0

    def lose(self) -> None:
        """Ends the membership: it was left, or others have ended it."""
        self.was_lost = self.was_lost or self.standing is Standing.MEMBER
        self.standing, self.epoch = Standing.OUT, NO_EPOCH
        self.owned, self.target, self._unresolved = {}, {}, frozenset()
        self._said, self._asked = {}, None
        self._is_news = self._differs = self._has_said_regex = False
        self.membership += 1

    def end(self) -> None:
        """Forgets the membership and the subscription."""
        self.lose()
        self.was_lost, self.problem = False, None
        self._topics = self._regex = None
        self.failures = 0

    def take_problem(self) -> KafkaError | None:
        """Returns why the group refused the member, once."""
        problem, self.problem = self.problem, None
        return problem

    # Rounds: from what the member has to what it is to have

    def needs_round(self) -> bool:
        """Returns whether the application has partitions to give up or to take, or is to join."""
        if self.standing is Standing.MEMBER:
            return self._is_news or self._differs
        return self.standing is Standing.JOINING or self.problem is not None or self._topics is not None

    def next_round(self) -> Partitions:
        """Returns what the member is to have after the next round: what it may keep, as long as it has more than that."""
        return _common(self.owned, self.target) if _has_more(self.owned, self.target) else self.target

    def leave_out(self, topics: Iterable[bytes], now_ms: int) -> None:
        """Leaves out topics that are not in the metadata, until they were found."""
        self._unresolved, self._look_ms = frozenset(topics), now_ms + LOOK_AGAIN_MS
        self._compare()

    def to_look_for(self, now_ms: int) -> frozenset[bytes]:
        """Returns the topics that are left out, once in a while."""
        return self._unresolved if now_ms >= self._look_ms else frozenset()

    def take(self, partitions: Partitions) -> None:
        """Notes what the application has after a round. The next heartbeat acknowledges it, at once."""
        if self.standing is not Standing.MEMBER:
            return  # lost meanwhile: the next round takes it away
        self.owned, self._is_news, self.was_lost = partitions, False, False
        self._compare()
        if self._has_news():
            self.due_ms = 0

    def _compare(self) -> None:
        available = {topic: indexes for topic, indexes in self.target.items() if topic not in self._unresolved}
        self._differs = available != self.owned

    # Heartbeats

    def heartbeat(self, now_ms: int) -> ConsumerGroupHeartbeatRequest | None:
        """Returns the heartbeat that is due; None when none is, or one is under way."""
        if self.standing is Standing.OUT or self._asked is not None or now_ms < self.due_ms:
            return None
        fresh = {name: value for name, value in self._wanted().items() if self._said.get(name) != value}
        self._asked = fresh
        return self._request(self.epoch if self.standing is Standing.MEMBER else JOINING_EPOCH, fresh)

    def hurry(self) -> None:
        """Has the next heartbeat go out at once."""
        self.due_ms = 0

    def leaving(self) -> ConsumerGroupHeartbeatRequest:
        """Returns the heartbeat that leaves the group; a static member leaves for a while: it may come back and keep its partitions."""
        return self._request(LEAVING_EPOCH if self._identity.instance_id is None else LEAVING_FOR_A_WHILE_EPOCH, {})

    def _request(self, epoch: int, fields: Mapping[str, Any]) -> ConsumerGroupHeartbeatRequest:
        identity = self._identity
        request = ConsumerGroupHeartbeatRequest(identity.group_id, self.member_id, epoch, identity.instance_id)
        for name, value in fields.items():
            setattr(request, name, _listed(value) if name == "topic_partitions" else value)
        return request

    def _wanted(self) -> dict[str, Any]:
        identity = self._identity
        wanted = {
            "rack_id": identity.rack_id,
            "rebalance_timeout_ms": identity.rebalance_timeout_ms,
            "subscribed_topic_names": list(self._topics or ()),
            "subscribed_topic_regex": self._regex if self._regex is not None or not self._has_said_regex else "",
            "server_assignor": identity.assignor,
            "topic_partitions": self.owned,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def _has_news(self) -> bool:
        return any(self._said.get(name) != value for name, value in self._wanted().items())

    def on_answer(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        """Takes an answer without an error to the heartbeat under way."""
        said, self._asked = self._asked, None
        if said is None:
            return
        self._said |= said
        self._has_said_regex = self._has_said_regex or bool(said.get("subscribed_topic_regex"))
        self.failures = 0
        self.member_id = answer.member_id or self.member_id
        self.epoch, self.interval_ms = answer.member_epoch, answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.target = {found.topic_id: frozenset(found.partitions) for found in answer.assignment.topic_partitions if found.partitions}
            self._unresolved = self._unresolved & self.target.keys()
            self._compare()
        if self.standing is Standing.JOINING:
            self.standing, self._is_news = Standing.MEMBER, True
        self.due_ms = now_ms if self._has_news() else now_ms + self.interval_ms

    def on_error(self, error: KafkaError, now_ms: int, *, retry_ms: float) -> None:
        """Takes an error in place of an answer; what may pass is asked again ``retry_ms`` later."""
        if self._asked is None:
            return
        is_member = self.standing is Standing.MEMBER
        if error.code in LOST and is_member:
            self.lose()
        elif error.is_transient or error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.on_silence(now_ms, retry_ms=retry_ms)
        else:
            self.refuse(error)

    def refuse(self, error: KafkaError) -> None:
        """Ends the membership with a problem that the application has to know."""
        self.lose()
        self.problem = error

    def on_silence(self, now_ms: int, *, retry_ms: float) -> None:
        """Notes that the heartbeat under way was not answered: the coordinator may have taken it, or not."""
        self._asked, self._said = None, {}
        self.failures += 1
        self.due_ms = now_ms + int(retry_ms)


def may_leave_after(code: int) -> bool:
    """Returns whether a member that is refused with this code still has a place in the group to give up."""
    return code not in _OF_ANOTHER


def _has_more(owned: Partitions, target: Partitions) -> bool:
    return any(indexes - target.get(topic, frozenset()) for topic, indexes in owned.items())


def _common(owned: Partitions, target: Partitions) -> Partitions:
    shared = {topic: indexes & target.get(topic, frozenset()) for topic, indexes in owned.items()}
    return {topic: indexes for topic, indexes in shared.items() if indexes}


def _listed(partitions: Partitions) -> list[TopicPartitions]:
    return [TopicPartitions(topic, sorted(indexes)) for topic, indexes in sorted(partitions.items())]
