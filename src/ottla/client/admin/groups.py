"""Consumer groups and the offsets that they have committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.base import AdminBase, by_topic, error_of, raise_for
from ottla.client.admin.descriptions import GroupDescription, GroupListing, GroupMember
from ottla.client.consumer_protocol import decode_assignment
from ottla.client.coordinator import not_committed
from ottla.client.group_membership import PROTOCOL_TYPE
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.positions import ByPartition, PartitionLike, keyed, partitions_of
from ottla.client.wrong_calls import check_name, check_offsets, named, node_ids_of
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from ottla.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.types import TopicPartition

OF_MEMBERS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
"""The answers to a commit without a member, where the group has some."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A commit of a group: the offset to be read next, the leader epoch of the record before it (-1: unknown), and a text."""

    offset: int
    """The offset that is to be read next."""
    leader_epoch: int
    """The leader epoch of the record before it; -1 where it is unknown."""
    metadata: str
    """The text that was committed with it (``OffsetAndMetadata``); empty without one."""


class GroupAdmin(AdminBase):
    """Each group's coordinator is asked: where it has moved, once it is found; while it loads its groups, once it has them.

    What may be repeated is asked of the next coordinator, too, where one hangs or is gone.
    """

    async def list_groups(self, node_ids: Iterable[int] | None = None) -> list[GroupListing]:
        """Returns the groups of every broker, or those that the given ones coordinate. KafkaError where one of them does not answer."""
        wanted = None if node_ids is None else node_ids_of(node_ids, "list_groups")
        groups: list[GroupListing] = []
        for response in (await self._ask_brokers(wanted, ListGroupsRequest(), ListGroupsResponse)).values():
            groups += [GroupListing(each.group_id, each.group_state, each.protocol_type, each.group_type) for each in response.groups]
        return groups

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describes the group: state "Dead" when it is not known. A consumer group (KIP-848) has its epochs and targets, too."""

        async def ask() -> DescribedGroup:
            _, response = await self._ask_coordinator(group_id, DescribeGroupsRequest([group_id]), DescribeGroupsResponse)
            [group] = response.groups
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                group.group_state = "Dead"
            else:
                raise_for(group.error_code, group.error_message)
            return group

        found = await self._until_loaded(ask)
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            consumer_group = await self._consumer_group(group_id)
            if consumer_group is not None:
                return consumer_group
        members = tuple(_member(member, found.protocol_type) for member in found.members)
        return GroupDescription(group_id, found.group_state, found.protocol_type, found.protocol_data, members)

    async def _consumer_group(self, group_id: str) -> GroupDescription | None:
        """Returns None when there is no consumer group of that name, or the cluster knows no consumer groups."""

        async def ask() -> DescribedConsumerGroup | None:
            _, response = await self._ask_coordinator(group_id, ConsumerGroupDescribeRequest([group_id]), ConsumerGroupDescribeResponse)
            [group] = response.groups
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise_for(group.error_code, group.error_message)
            return group

        try:
            found = await self._until_loaded(ask)
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        if found is None:
            return None
        members = tuple(map(_consumer, found.members))
        return GroupDescription(
            group_id, found.group_state, PROTOCOL_TYPE, found.assignor_name, members, "consumer", found.group_epoch, found.assignment_epoch
        )

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        """Deletes groups and their offsets: None for each that was deleted, else why not: NON_EMPTY_GROUP while it has members."""

        async def delete(group_id: str) -> None:
            request = DeleteGroupsRequest([group_id])
            _, response = await self._ask_coordinator(group_id, request, DeleteGroupsResponse, is_repeatable=False)
            for result in response.results:
                raise_for(result.error_code, f"group {result.group_id!r}")

        names = named(group_ids, "delete_groups")
        return await self._of_each(names, lambda name: self._until_loaded(lambda: delete(name)))

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[PartitionLike] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Returns the group's committed offsets; partitions without a commit are left out. All partitions when None.

        Offsets in a transaction that is still open are not committed: ``pending_offsets`` says where there are some. With
        ``require_stable`` they are an error, UNSTABLE_OFFSET_COMMIT: for who continues where a transaction has ended.
        """
        response = await self._offsets(group_id, partitions, require_stable=require_stable)
        codes = {found.error_code for topic in response.topics for found in topic.partitions}
        if ErrorCode.UNSTABLE_OFFSET_COMMIT in codes:
            raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"group {group_id!r} has offsets of a transaction that has not ended")
        return {
            TopicPartition(topic.name, found.partition_index): CommittedOffset(
                found.committed_offset, found.committed_leader_epoch, found.metadata or ""
            )
            for topic in response.topics
            for found in topic.partitions
            if not found.error_code and found.committed_offset >= 0
        }

    async def pending_offsets(self, group_id: str, partitions: Iterable[PartitionLike] | None = None) -> set[TopicPartition]:
        """Returns the partitions whose offsets of the group are in an open transaction: consumers wait for its end.

        Without partitions a broker of Kafka leaves those out for which nothing was committed before: name them there.
        """
        response = await self._offsets(group_id, partitions, require_stable=True)
        return {
            TopicPartition(topic.name, found.partition_index)
            for topic in response.topics
            for found in topic.partitions
            if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        }

    async def _offsets(self, group_id: str, partitions: Iterable[PartitionLike] | None, *, require_stable: bool) -> OffsetFetchResponse:
        wanted = None
        if partitions is not None:
            wanted = [OffsetFetchRequestTopic(topic, indexes) for topic, indexes in by_topic(partitions_of(partitions)).items()]
        # Version 7 names topics, and one group: newer ones name them by id, which a committed topic may have lost.
        request = OffsetFetchRequest(group_id, wanted, [OffsetFetchRequestGroup(group_id)], require_stable)

        async def ask() -> OffsetFetchResponse:
            _, response = await self._ask_coordinator(group_id, request, OffsetFetchResponse, version_max=7)
            raise_for(response.error_code, None)
            return response

        return await self._until_loaded(ask)

    async def set_offsets(
        self, group_id: str, offsets: ByPartition[int | OffsetAndMetadata | CommittedOffset], *, metadata: str = ""
    ) -> None:
        """Sets the empty group's offsets, each with this text. UNKNOWN_MEMBER_ID when it has members.

        UNKNOWN_TOPIC_OR_PARTITION where a partition does not exist.
        An offset may be an ``OffsetAndMetadata``, or what ``committed_offsets`` returns: it has a text of its own.
        """
        topics: dict[str, OffsetCommitRequestTopic] = {}
        wanted = keyed(offsets)
        check_offsets(wanted, "set_offsets", OffsetAndMetadata, CommittedOffset)
        check_name("metadata", metadata)
        if group_id == "":  # a name that the brokers would take, and no consumer can have
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group_id='': the group's name must not be empty")
        for partition, given in wanted.items():
            offset, text = (given, metadata) if isinstance(given, int) else (given.offset, given.metadata)
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, -1, text))
        request = OffsetCommitRequest(group_id, topics=list(topics.values()))

        async def ask() -> None:
            _, response = await self._ask_coordinator(group_id, request, OffsetCommitResponse, version_max=9)
            for answer in response.topics:
                for result in answer.partitions:
                    text = not_committed(answer.name, result.partition_index, group_id, result.error_code)
                    if result.error_code in OF_MEMBERS:
                        text += ": the group has members, which commit for themselves; stop them first"
                    raise_for(result.error_code, text)

        await self._until_loaded(ask)

    async def delete_offsets(self, group_id: str, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, KafkaError | None]:
        """Deletes the group's committed offsets of the partitions. KafkaError for an error of the group."""
        wanted = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in indexes])
            for topic, indexes in by_topic(partitions_of(partitions)).items()
        ]

        async def ask() -> OffsetDeleteResponse:
            _, response = await self._ask_coordinator(group_id, OffsetDeleteRequest(group_id, wanted), OffsetDeleteResponse)
            raise_for(response.error_code, f"group {group_id!r}")
            return response

        response = await self._until_loaded(ask)
        return {
            TopicPartition(topic.name, result.partition_index): error_of(result.error_code, f"{topic.name}-{result.partition_index}")
            for topic in response.topics
            for result in topic.partitions
        }


def _consumer(member: DescribedConsumer) -> GroupMember:
    assigned, target = _places(member.assignment), _places(member.target_assignment)
    return GroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, assigned, target, member.member_epoch)


def _places(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(found.topic_name, index) for found in assignment.topic_partitions for index in found.partitions)


def _member(found: DescribedGroupMember, protocol_type: str) -> GroupMember:
    """Returns a member. Assignments of consumers have partitions; other programs have groups, too (Kafka Connect), with their own bytes."""
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        with contextlib.suppress(DecodeError):  # what a member was assigned is its group's leader's to write
            assignment = tuple(decode_assignment(found.member_assignment))
    return GroupMember(found.member_id, found.group_instance_id, found.client_id, found.client_host, assignment)
