"""A member of a consumer group, as its client has it (KIP-848). Topics have names in place of ids; times are relative to the command.

=====================================================  ==============================================================
``subscribe TOPICS [regex]``                           what it reads: ``orders,bills``, ``-`` for none
``join``                                               the application polls, and the member is OUT
``beat``                                               the heartbeat that is due
``answer EPOCH [TOPIC-PARTITION,...]``                 its answer, with an assignment (``-``: an empty one) or without
``error CODE`` ``silence``                             in place of one
``round`` ``take``                                     what the application is to have; it has it
``missing TOPIC`` ``look`` ``found``                   the metadata lacks the topic; what is looked for; it is there
``problem``                                            what the application's poll raises
``leave`` ``lose`` ``advance MS``
``static ID``                                          another member, which is static
=====================================================  ==============================================================
"""

from __future__ import annotations

from ottla.client.consumer_group.member import ConsumerMember, Identity, Partitions, Standing
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

INTERVAL_MS = 5000
RETRY_MS = 100
FIELDS = {
    "rack_id": "rack",
    "rebalance_timeout_ms": "rebalance timeout",
    "subscribed_topic_names": "topics",
    "subscribed_topic_regex": "regex",
    "server_assignor": "assignor",
    "topic_partitions": "has",
}


class MemberPlayer:
    def __init__(self) -> None:
        self._member = _member(None)
        self._now_ms = 0
        self._taking: Partitions = {}

    def __call__(self, line: str) -> list[str]:
        name, *arguments = line.split()
        out: list[str] = getattr(self, f"_{name}")(*arguments)
        return [*out, *self._state()]

    def _static(self, instance_id: str) -> list[str]:
        self._member = _member(instance_id)
        return []

    def _subscribe(self, topics: str, regex: str | None = None) -> list[str]:
        self._member.subscribe([] if topics == "-" else topics.split(","), regex)
        return []

    def _join(self) -> list[str]:
        self._member.join()
        return []

    def _beat(self) -> list[str]:
        request = self._member.heartbeat(self._now_ms)
        return ["nothing is due"] if request is None else [_said(request)]

    def _answer(self, epoch: str, assignment: str | None = None) -> list[str]:
        found = None if assignment is None else Assignment(_topics(assignment))
        answer = ConsumerGroupHeartbeatResponse(member_epoch=int(epoch), heartbeat_interval_ms=INTERVAL_MS, assignment=found)
        self._member.on_answer(answer, self._now_ms)
        return []

    def _error(self, code: str) -> list[str]:
        self._member.on_error(KafkaError(ErrorCode[code]), self._now_ms, retry_ms=RETRY_MS)
        return []

    def _silence(self) -> list[str]:
        self._member.on_silence(self._now_ms, retry_ms=RETRY_MS)
        return []

    def _round(self) -> list[str]:
        self._taking = self._member.next_round()
        return [f"the application is to have {_text(self._taking)}"]

    def _take(self) -> list[str]:
        self._member.take(self._taking)
        return []

    def _missing(self, topic: str) -> list[str]:
        self._member.leave_out([topic.encode()], self._now_ms)
        self._taking = {known: indexes for known, indexes in self._taking.items() if known != topic.encode()}
        return [f"the application is to have {_text(self._taking)}"]

    def _look(self) -> list[str]:
        return [f"looks for {topic.decode()}" for topic in sorted(self._member.to_look_for(self._now_ms))]

    def _found(self) -> list[str]:
        self._member.leave_out([], self._now_ms)
        return []

    def _leave(self) -> list[str]:
        return [_said(self._member.leaving())]

    def _lose(self) -> list[str]:
        self._member.lose()
        return []

    def _problem(self) -> list[str]:
        problem = self._member.take_problem()
        return ["none" if problem is None else problem.code.name]

    def _advance(self, ms: str) -> list[str]:
        self._now_ms += int(ms)
        return []

    def _state(self) -> list[str]:
        member = self._member
        out = [member.standing.name if member.standing is not Standing.MEMBER else f"MEMBER in epoch {member.epoch}"]
        if member.owned:
            out.append(f"has {_text(member.owned)}")
        if member.was_lost:
            out.append("what the application had is lost")
        if member.problem is not None:
            out.append(f"raises {member.problem.code.name}")
        if member.standing is not Standing.OUT:
            out.append(f"heartbeat in {max(0, member.due_ms - self._now_ms)} ms")
        if member.needs_round():
            out.append("a round is due")
        return ["; ".join(out)]


def _member(instance_id: str | None) -> ConsumerMember:
    return ConsumerMember(Identity("g", "m", 60_000, instance_id, None, "uniform"))


def _topics(text: str) -> list[TopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for partition in [] if text == "-" else text.split(","):
        topic, _, index = partition.rpartition("-")
        found.setdefault(topic.encode(), []).append(int(index))
    return [TopicPartitions(topic, indexes) for topic, indexes in found.items()]


def _text(partitions: Partitions) -> str:
    return ",".join(f"{topic.decode()}-{index}" for topic, indexes in sorted(partitions.items()) for index in sorted(indexes)) or "nothing"


def _said(request: ConsumerGroupHeartbeatRequest) -> str:
    out = [f"heartbeat of {request.member_id} in epoch {request.member_epoch}"]
    if request.instance_id is not None:
        out.append(f"static {request.instance_id}")
    for name, word in FIELDS.items():
        value = getattr(request, name)
        if value is None or value == -1:
            continue
        if name == "topic_partitions":
            value = _text({found.topic_id: frozenset(found.partitions) for found in value})
        elif isinstance(value, list):
            value = ",".join(value) or "none"
        out.append(f"{word} {value!r}" if name == "subscribed_topic_regex" else f"{word} {value}")
    return "; ".join(out)
