"""The consumer groups of one coordinator: which commands change them, and when members are taken for dead.

All that is durable comes from records. Volatile are the sessions, which start again after a load, and which topics a group has seen: a
heartbeat that finds others looks whether its group's own have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import Heartbeat, HeartbeatResult, JoinGroup, JoinResult, LeaveGroup, LeaveResult, SyncGroup
from ottla.groups.consumer import classic_members
from ottla.groups.consumer.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    ExpireConsumer,
    ExpireRevocation,
    ExpireStep,
    ResolveRegexes,
)
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.descriptions import described
from ottla.groups.consumer.facts import ConsumerFact, ConsumerSeen, GroupAssigned, RegexesSeen, StepDue
from ottla.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.groups.consumer.heartbeats import heartbeat
from ottla.groups.consumer.member import JOINING, LEAVING, LEAVING_FOR_A_WHILE, ConsumerMember, MemberState
from ottla.groups.consumer.targets import subscribed
from ottla.groups.records import fits_record
from ottla.groups.settings import ConsumerGroupSettings
from ottla.machine import Decision, StoredRecord, Timer
from ottla.messages.consumer_group_records import ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey
from ottla.metadata.image import ClusterImage

NOTHING: Final = Decision()
REGEX_REFRESH_MS_MIN: Final = 10_000
"""The shortest time between two looks of a group for topics that its regular expressions match."""


class ConsumerGroups:
    """Changed by ``apply`` and ``apply_fact``. ``image`` is the newest that the coordinator has seen."""

    def __init__(self, settings: ConsumerGroupSettings, image: ClusterImage) -> None:
        self._settings = settings
        self.image = image
        self.table: dict[str, ConsumerGroup] = {}
        self._deadlines: dict[str, dict[str, int]] = {}
        self._steps: dict[tuple[str, str], StepDue] = {}
        self._seen: dict[str, object] = {}  # group id -> the topics of the image that its hash was compared with
        self._regexes_seen: dict[str, tuple[object, int]] = {}  # group id -> topics, and when
        self.deciders: dict[type, Callable[[Any, int], Decision]] = {
            DescribeConsumerGroup: self._describe,
            ExpireConsumer: self._expire,
            ExpireRevocation: self._expire_revocation,
            ExpireStep: self._expire_step,
            ResolveRegexes: self._resolve,
        }

    # -- state --------------------------------------------------------------------------------------------------------

    def apply(self, record: StoredRecord) -> None:
        key: Any = record.key
        if isinstance(key, ConsumerGroupMetadataKey) and record.value is None:
            for known in (self.table, self._deadlines, self._seen, self._regexes_seen):
                known.pop(key.group_id, None)
            return
        group = self.table.get(key.group_id)
        if group is None:
            if record.value is None:
                return
            group = self.table[key.group_id] = ConsumerGroup(key.group_id)
        group.apply(key, record.value)
        if isinstance(key, ConsumerGroupMemberMetadataKey) and record.value is None:
            self._deadlines.get(key.group_id, {}).pop(key.member_id, None)
            self._steps.pop((key.group_id, key.member_id), None)

    def apply_fact(self, fact: ConsumerFact) -> None:
        if isinstance(fact, StepDue):
            self._steps.pop((fact.group_id, fact.member_id), None)
            if fact.deadline_ms is not None:
                self._steps[fact.group_id, fact.member_id] = fact
            return
        self.image = fact.image
        if isinstance(fact, RegexesSeen):
            self._regexes_seen[fact.group_id] = fact.image.topics, fact.at_ms
            return
        self._deadlines.setdefault(fact.group_id, {})[fact.member_id] = fact.deadline_ms
        self._seen[fact.group_id] = fact.image.topics

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Gives each member a new session, and its time again for what it has to give up."""
        for group in list(self.table.values()):
            yield Decision(timers=tuple(self._timers_of(Context(self._settings, self.image, now_ms), group)))

    def dismantle(self) -> Iterator[None]:
        while self.table:
            _, group = self.table.popitem()
            while group.members:
                group.members.popitem()
                yield
            yield

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat(self, command: ConsumerHeartbeat, now_ms: int, base: ConsumerGroup | None = None) -> Decision:
        """Decides a heartbeat; ``base`` is a group that the decision starts with: its records come first."""
        try:
            self._check(command)
            if command.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                return self._leave(command, now_ms)
            return self._heartbeat(command, now_ms, base)
        except KafkaError as error:
            return _answer(command.token, _refused(error))

    def refusal(self, command: ConsumerHeartbeat) -> ConsumerHeartbeatResult | None:
        """Returns the answer to a heartbeat that no group could take; None where one may."""
        try:
            self._check(command)
        except KafkaError as error:
            return _refused(error)
        return None

    def _check(self, command: ConsumerHeartbeat) -> None:
        """Raises INVALID_REQUEST and its like, as Kafka has them."""
        if not command.group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
        if not command.member_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the member id is empty")
        for name, text in (("instance id", command.instance_id), ("rack id", command.rack_id)):
            if text == "":
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {name} is empty; leave it out instead")
        if not all(map(fits_record, (command.group_id, command.member_id, command.regex))):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an id or a regular expression is longer than 32767 bytes")
        if command.member_epoch < LEAVING_FOR_A_WHILE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{command.member_epoch} is no member epoch: it is -2 or more")
        if command.member_epoch == LEAVING_FOR_A_WHILE and command.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "only a member with an instance id leaves for a while (member epoch -2)")
        if command.member_epoch == JOINING:
            if command.rebalance_timeout_ms == -1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the rebalance timeout has to be in the first heartbeat")
            if command.owned is None or command.owned:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a member that joins has no partitions, and has to say so")
            if command.topics is None and command.regex is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the subscription has to be in the first heartbeat: topic names, or a regex")
        if command.assignor is not None and command.assignor not in self._settings.assignors:
            supported = ", ".join(self._settings.assignors)
            raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {command.assignor[:80]!r} is not one of {supported}")

    def _heartbeat(self, command: ConsumerHeartbeat, now_ms: int, base: ConsumerGroup | None) -> Decision:
        group_id = command.group_id
        settings, interval_ms = self._settings, command.assignment_interval_ms
        if interval_ms is not None and interval_ms != settings.assignment_interval_ms:
            settings = replace(settings, assignment_interval_ms=interval_ms)
        context = Context(settings, command.image, now_ms)
        group = base or self.table.get(group_id)
        if group is None:
            if command.member_epoch != JOINING:
                # Kafka's GROUP_ID_NOT_FOUND ends its clients for good; this one has them join again
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} not found")
            group = ConsumerGroup(group_id)
        beat = heartbeat(context, group, command, are_topics_seen=self._seen.get(group_id) is command.image.topics)
        result = msgspec.structs.replace(beat.result, to_resolve=self._to_resolve(context, group, beat.member))
        deadline_ms = now_ms + self._session_ms(context, group_id, beat.member)
        return Decision(
            records=(*(() if base is None else base.records()), *beat.records),
            facts=(ConsumerSeen(group_id, beat.member.member_id, deadline_ms, command.image),),
            timers=(*self._timers_of(context, base), *self._timers(context, group, beat.member, is_revoking=beat.is_revoking)),
            replies=((command.token, result),),
            effects=GroupAssigned.of(beat.records),
        )

    def _to_resolve(self, context: Context, group: ConsumerGroup, member: ConsumerMember) -> tuple[str, ...]:
        """Returns the member's own expression when it is new; all of the group's when topics, or rights, may have changed."""
        if member.regex and member.regex not in group.regexes:
            return (member.regex,)
        if not group.regexes:
            return ()
        topics, at_ms = self._regexes_seen.get(group.group_id, (None, 0))
        age_ms = context.now_ms - at_ms
        is_due = age_ms >= self._settings.regex_refresh_interval_ms or (
            topics is not context.image.topics and age_ms >= REGEX_REFRESH_MS_MIN
        )
        return tuple(sorted(group.regexes)) if is_due or age_ms < 0 else ()

    def _resolve(self, command: ResolveRegexes, now_ms: int) -> Decision:
        """Takes what matches now; other topics than before make a new epoch."""
        group = self.table.get(command.group_id)
        reply = ((command.token, None),)
        if group is None:
            return Decision(replies=reply)
        context = Context(self._settings, command.image, now_ms)
        in_use = {member.regex for member in group.members.values()}
        resolved = {
            regex: ResolvedRegex(topics, command.image.end_offset, now_ms)
            for regex, topics in command.resolved.items()
            if regex in in_use and (regex not in group.regexes or group.regexes[regex].topics != topics)
        }
        records = [group.regex_record(regex, found) for regex, found in resolved.items()]
        if records:
            names = {name for member in group.members.values() for name in member.topics}
            for regex, found in (group.regexes | resolved).items():
                names |= found.topics if regex in in_use else frozenset()
            records.append(group.epoch_record(group.epoch + 1, context.metadata_hash(names)))
        fact = RegexesSeen(group.group_id, command.image, now_ms)
        return Decision(records=tuple(records), facts=(fact,), replies=reply)

    # -- members of the classic protocol ------------------------------------------------------------------------------

    def join(self, command: JoinGroup, group: ConsumerGroup, now_ms: int) -> Decision:
        """Joins a classic member to a group that has members."""
        if not classic_members.supports(group, command.protocol_type, command.protocols):
            return _answer(command.token, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id))
        if not command.member_id and command.requires_known_member_id and command.group_instance_id is None:
            return _answer(command.token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, command.fresh_member_id))
        image = command.image or self.image
        context = Context(self._settings, image, now_ms)
        try:
            is_seen = self._seen.get(group.group_id) is image.topics
            records, member = classic_members.join(context, group, command, are_topics_seen=is_seen)
        except KafkaError as error:
            return _answer(command.token, JoinResult(error.code, command.member_id))
        step = StepDue(group.group_id, member.member_id, now_ms + member.rebalance_timeout_ms, is_sync=True)
        return Decision(
            records=tuple(records),
            facts=(ConsumerSeen(group.group_id, member.member_id, now_ms + command.session_timeout_ms, image), step),
            timers=(*self._timers(context, group, member, is_revoking=False), *step.timers()),
            replies=((command.token, classic_members.joined(member)),),
            effects=GroupAssigned.of(records),
        )

    def sync(self, command: SyncGroup, group: ConsumerGroup, now_ms: int) -> Decision:
        result = classic_members.synced(self.image, group, command)
        if result.error_code:
            return _answer(command.token, result)
        return self._alive(command.token, result, group, command.member_id, now_ms, StepDue(group.group_id, command.member_id, None))

    def beat(self, command: Heartbeat, group: ConsumerGroup, now_ms: int) -> Decision:
        """Takes a classic member's heartbeat: it has to join again whenever it is to take a step."""
        error = classic_members.error_of(group, command.member_id, command.group_instance_id, command.generation_id)
        if error:
            return _answer(command.token, HeartbeatResult(error))
        member, image = group.members[command.member_id], command.image or self.image
        step, code = None, ErrorCode.NONE
        records: tuple[StoredRecord, ...] = ()
        if self._seen.get(group.group_id) is not image.topics:
            metadata_hash = Context(self._settings, image, now_ms).metadata_hash(subscribed(group, group.members.values()))
            if metadata_hash != group.metadata_hash:
                records = (group.epoch_record(group.epoch + 1, metadata_hash),)
        if records or classic_members.has_to_join(group, member):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            if (group.group_id, member.member_id) not in self._steps:
                step = StepDue(group.group_id, member.member_id, now_ms + member.rebalance_timeout_ms)
        return replace(self._alive(command.token, HeartbeatResult(code), group, member.member_id, now_ms, step, image), records=records)

    def _alive(
        self,
        token: int,
        result: Any,
        group: ConsumerGroup,
        member_id: str,
        now_ms: int,
        step: StepDue | None,
        image: ClusterImage | None = None,
    ) -> Decision:
        """Answers; the member's session starts again, and its time for a step starts or ends."""
        member = group.members[member_id]
        context = Context(self._settings, self.image, now_ms)
        seen = ConsumerSeen(group.group_id, member_id, now_ms + self._session_ms(context, group.group_id, member), image or self.image)
        timers = tuple(self._timers(context, group, member, is_revoking=False))
        if step is None:
            return Decision(facts=(seen,), timers=timers, replies=((token, result),))
        return Decision(facts=(seen, step), timers=(*timers, *step.timers()), replies=((token, result),))

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, command: ConsumerHeartbeat, now_ms: int) -> Decision:
        group = self.table.get(command.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {command.group_id} not found")
        member = group.members.get(command.member_id)
        static = group.static_member(command.instance_id)
        if static is not None and static.member_id != command.member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {command.instance_id} belongs to member {static.member_id}")
        if member is None or (command.instance_id is not None and static is None):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {command.member_id} is not in group {command.group_id}")
        result = ConsumerHeartbeatResult(ErrorCode.NONE, None, member.member_id, command.member_epoch)
        if command.member_epoch == LEAVING_FOR_A_WHILE:
            away = msgspec.structs.replace(member, epoch=LEAVING_FOR_A_WHILE, previous_epoch=member.epoch, revoking={})
            return Decision(records=(away.current_record(group.group_id),), replies=((command.token, result),))
        context = Context(self._settings, command.image, now_ms)
        return Decision(records=self._without(context, group, [member]), replies=((command.token, result),))

    def leave(self, command: LeaveGroup, group: ConsumerGroup, now_ms: int) -> Decision:
        """Removes members: those that leave, and any, by name or instance id, for an administrator."""
        gone: dict[str, ConsumerMember] = {}
        results: list[tuple[str, str | None, int]] = []
        for one in command.members:
            static = group.static_member(one.group_instance_id)
            member_id = static.member_id if static is not None and not one.member_id else one.member_id
            code = group.error_of_name(member_id, one.group_instance_id)
            if not code:
                gone[member_id] = group.members[member_id]
            results.append((one.member_id, one.group_instance_id, code))
        records = self._without(Context(self._settings, self.image, now_ms), group, list(gone.values())) if gone else ()
        return Decision(records=records, replies=((command.token, LeaveResult(ErrorCode.NONE, tuple(results))),))

    def _without(self, context: Context, group: ConsumerGroup, gone: list[ConsumerMember]) -> tuple[StoredRecord, ...]:
        """Returns the records that remove these members. The others get a new target with the next heartbeat."""
        records = [record for member in gone for record in group.member_tombstones(member.member_id)]
        removed = {member.member_id for member in gone}
        members = {member_id: member for member_id, member in group.members.items() if member_id not in removed}
        records += group.tombstones_of_unused_regexes(members)
        names = subscribed(group, members.values())
        return (*records, group.epoch_record(group.epoch + 1, context.metadata_hash(names)))

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def _session_ms(self, context: Context, group_id: str, member: ConsumerMember) -> int:
        return context.session_timeout_ms(group_id) if member.classic is None else member.classic.session_timeout_ms

    def _timers_of(self, context: Context, group: ConsumerGroup | None) -> Iterator[Timer]:
        """Yields the timers of all members, as if each had just been heard of."""
        if group is None:
            return
        for member in group.members.values():
            yield from self._timers(context, group, member, is_revoking=member.state is MemberState.UNREVOKED_PARTITIONS)

    def _timers(self, context: Context, group: ConsumerGroup, member: ConsumerMember, *, is_revoking: bool) -> Iterator[Timer]:
        group_id, member_id = group.group_id, member.member_id
        deadline_ms = context.now_ms + self._session_ms(context, group_id, member)
        yield Timer(("session", group_id, member_id), deadline_ms, ExpireConsumer(group_id, member_id))
        if is_revoking:
            due_ms = context.now_ms + max(0, member.rebalance_timeout_ms)
            yield Timer(("revocation", group_id, member_id), due_ms, ExpireRevocation(group_id, member_id, member.epoch))

    def _member(self, group_id: str, member_id: str) -> tuple[ConsumerGroup, ConsumerMember] | None:
        group = self.table.get(group_id)
        return None if group is None or member_id not in group.members else (group, group.members[member_id])

    def _expire(self, command: ExpireConsumer, now_ms: int) -> Decision:
        """Expires the member, unless a heartbeat came while this waited to be decided."""
        found = self._member(command.group_id, command.member_id)
        if found is None or self._deadlines.get(command.group_id, {}).get(command.member_id, 0) > now_ms:
            return NOTHING
        return Decision(records=self._without(Context(self._settings, self.image, now_ms), found[0], [found[1]]))

    def _expire_revocation(self, command: ExpireRevocation, now_ms: int) -> Decision:
        found = self._member(command.group_id, command.member_id)
        if found is None or found[1].epoch != command.member_epoch or found[1].state is not MemberState.UNREVOKED_PARTITIONS:
            return NOTHING
        return Decision(records=self._without(Context(self._settings, self.image, now_ms), found[0], [found[1]]))

    def _expire_step(self, command: ExpireStep, now_ms: int) -> Decision:
        """Removes a classic member that has not joined, or not synced, in its rebalance timeout."""
        found, step = self._member(command.group_id, command.member_id), self._steps.get((command.group_id, command.member_id))
        if found is None or step is None or step.deadline_ms is None or step.deadline_ms > now_ms:
            return NOTHING
        if not step.is_sync and not classic_members.has_to_join(*found):
            return Decision(facts=(StepDue(command.group_id, command.member_id, None),))
        return Decision(records=self._without(Context(self._settings, self.image, now_ms), found[0], [found[1]]))

    # -- administration -----------------------------------------------------------------------------------------------

    def _describe(self, command: DescribeConsumerGroup, now_ms: int) -> Decision:
        group = self.table.get(command.group_id)
        if not command.group_id:
            result = DescribedConsumerGroup(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        elif group is None:
            result = DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} not found.")
        else:
            result = described(Context(self._settings, self.image, now_ms), group)
        return Decision(replies=((command.token, result),))


def _refused(error: KafkaError) -> ConsumerHeartbeatResult:
    return ConsumerHeartbeatResult(error.code, error.message or None)


def _answer(token: int, value: Any) -> Decision:
    return Decision(replies=((token, value),))
