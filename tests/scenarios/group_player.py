"""The group machine behind a transcript. Members have names in place of ids; times are relative to the command.

==================================================  =================================================================
``join NAME [topics=a,b] [static=ID] [known-id]``   JoinGroup; ``known-id``: the client asks for an id first (KIP-394)
``sync NAME [NAME=ASSIGNMENT ...]``                 SyncGroup, with the assignments of a leader
``heartbeat NAME`` ``leave NAME``
``commit NAME TOPIC-PARTITION OFFSET``              OffsetCommit; NAME ``-`` is no member
``fetch``                                           all committed offsets
``describe``
``advance MS``                                      time passes, deadlines are met
``restart``                                         the coordinator is lost; another one reads the log
==================================================  =================================================================
"""

from __future__ import annotations

from typing import Any

from tests.groups.coordinator_runner import Runner, subscription

from ottla.errors import ErrorCode
from ottla.groups.commands import JoinResult, SyncResult
from ottla.groups.records import decode_record


class GroupPlayer:
    def __init__(self) -> None:
        self._runner = Runner()
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._waiting: dict[int, str] = {}  # by token
        self._printed = 0  # records of the log
        self._timers: dict[tuple[str, ...], int] = {}

    def __call__(self, line: str) -> list[str]:
        name, *arguments = line.split()
        out: list[str] = getattr(self, f"_{name}")(*arguments)
        return [*out, *self._answers(), *self._records(), *self._changed_timers()]

    def _join(self, member: str, *options: str) -> list[str]:
        given = dict(option.partition("=")[::2] for option in options)
        topics = given.get("topics", "orders").split(",")
        token = self._runner.join(
            self._ids.get(member, ""),
            fresh=member if member not in self._ids else "",
            instance=given.get("static"),
            protocols=(("range", subscription(*topics)),),
            known_id="known-id" in given,
        )
        self._waiting[token] = member
        return []

    def _sync(self, member: str, *assignments: str) -> list[str]:
        pairs = dict(assignment.split("=") for assignment in assignments)
        by_id = {self._ids[name]: value.encode() for name, value in pairs.items()}
        self._waiting[self._runner.sync(self._ids[member], self._generations[member], by_id)] = member
        return []

    def _heartbeat(self, member: str) -> list[str]:
        return [f"{member}: {_name(self._runner.heartbeat(self._ids[member], self._generations[member]))}"]

    def _leave(self, member: str) -> list[str]:
        result = self._runner.leave((self._ids[member], None))
        return [f"{member}: {_name(result.members[0][2] if result.members else result.error_code)}"]

    def _commit(self, member: str, partition: str, offset: str) -> list[str]:
        topic, _, index = partition.rpartition("-")
        known = {} if member == "-" else {"member_id": self._ids[member], "generation_id": self._generations[member]}
        [code] = self._runner.commit({(topic, int(index)): int(offset)}, **known)  # type: ignore[arg-type]
        return [f"{member}: {_name(code)}"]

    def _fetch(self) -> list[str]:
        return [f"{topic}-{index} at {offset}" for (topic, index), offset in sorted(self._runner.fetch().items())] or ["nothing"]

    def _describe(self) -> list[str]:
        group = self._runner.describe()
        members = [f"{self._name_of(member.member_id)}={member.assignment.decode()!r}" for member in group.members]
        return [" ".join([group.state, group.protocol_name, *members]).strip()]

    def _advance(self, ms: str) -> list[str]:
        self._runner.advance(int(ms))
        return []

    def _restart(self) -> list[str]:
        lost = [self._waiting.pop(token) for token in sorted(self._runner.parked)]
        self._runner.restart()
        return [f"{member}: NOT_COORDINATOR" for member in lost]

    def _answers(self) -> list[str]:
        out = []
        for token, member in sorted(self._waiting.items()):
            if token not in self._runner.answers:
                out.append(f"{member} waits")
                continue
            del self._waiting[token]
            out.append(f"{member}: {self._told(member, self._runner.answers[token])}")
        return out

    def _told(self, member: str, result: Any) -> str:
        if isinstance(result, JoinResult):
            if result.member_id:
                self._ids[member] = result.member_id
            if result.error_code:
                return _name(result.error_code)
            self._generations[member] = result.generation_id
            names = ",".join(self._name_of(other.member_id) for other in result.members)
            role = f"leads {names}" if names else f"follows {self._name_of(result.leader)}"
            return f"generation {result.generation_id}, {result.protocol_name}, {role}"
        assert isinstance(result, SyncResult), "joins and syncs wait"
        return _name(result.error_code) if result.error_code else f"assigned {result.assignment.decode()!r}"

    def _records(self) -> list[str]:
        fresh = self._runner.log[self._printed :]
        self._printed = len(self._runner.log)
        out = []
        for key, value in fresh:
            record = decode_record(key, value)
            assert record is not None
            out.append(f"record {type(record.key).__name__.removesuffix('Key')}{'' if record.value is not None else ' deleted'}")
        return out

    def _changed_timers(self) -> list[str]:
        now = {name: timer.deadline_ms for name, timer in self._runner.timers.items() if name[0] != "offsets"}
        changed = {name: at for name, at in now.items() if self._timers.get(name) != at}
        self._timers = now
        return [
            f"timer {name[0]}{' of ' + self._name_of(name[2]) if len(name) > 2 else ''} in {at - self._runner.now_ms} ms"
            for name, at in sorted(changed.items())
        ]

    def _name_of(self, member_id: str) -> str:
        return next((name for name, known in self._ids.items() if known == member_id), member_id)


def _name(code: int) -> str:
    return ErrorCode(code).name
