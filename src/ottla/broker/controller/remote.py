"""What a broker asks the active controller to decide on its own behalf, when that is another node's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.controller.topics import NewTopic, TopicCreation
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

WAIT_MS_MAX: Final = 10_000
"""A client waits meanwhile."""


class RemoteController:
    """The active controller on another node, reached over the channel on behalf of this broker."""

    def __init__(self, channel: ControllerChannel, broker_id: int) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = -1

    def registered(self, broker_epoch: int) -> None:
        """Takes the epoch that the controller knows this process by."""
        self._broker_epoch = broker_epoch

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[TopicCreation | KafkaError]:
        """Creates topics, one result a topic, in order; NOT_CONTROLLER for each when no controller answers. This node's image lags."""
        wanted = [
            CreatableTopic(
                topic.name,
                topic.partition_count,
                topic.replication_factor,
                [CreatableReplicaAssignment(index, list(nodes)) for index, nodes in topic.assignments.items()],
                [CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
            )
            for topic in topics
        ]
        request = CreateTopicsRequest(wanted, WAIT_MS_MAX)
        answer = await self._channel.ask_until(request, CreateTopicsResponse, _is_decided, timeout_ms=WAIT_MS_MAX)
        if answer is None:
            return [KafkaError(ErrorCode.NOT_CONTROLLER, "no controller answers") for _ in topics]
        results = {result.name: result for result in answer.topics}
        made: list[TopicCreation | KafkaError] = []
        for topic in topics:
            result = results[topic.name]
            if result.error_code:
                made.append(KafkaError(ErrorCode(result.error_code), result.error_message or ""))
            else:
                made.append(TopicCreation(topic.name, result.topic_id, result.num_partitions, result.replication_factor, {}, ()))
        return made

    async def next_producer_ids(self) -> range:
        """Returns ids that no producer ever had. NOT_CONTROLLER when no controller answers."""
        request = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch)
        answer = await self._channel.ask_until(request, AllocateProducerIdsResponse, _is_allocated, timeout_ms=WAIT_MS_MAX)
        if answer is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no controller answers")
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)


def _is_decided(answer: CreateTopicsResponse) -> bool:
    return all(result.error_code != ErrorCode.NOT_CONTROLLER for result in answer.topics)


def _is_allocated(answer: AllocateProducerIdsResponse) -> bool:
    return answer.error_code == ErrorCode.NONE
