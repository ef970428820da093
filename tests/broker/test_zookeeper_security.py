"""ACLs, users and tokens in ZooKeeper while others change them, too: on the simulated service, part by part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.test_zookeeper_home import Service, carried_out, on_service, open_to_all

from ottla.broker.homes.zookeeper.loading import Loader, make_persistent
from ottla.broker.homes.zookeeper.notices import Notices
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.security_notices import SecurityNotices
from ottla.broker.homes.zookeeper.waiting import despite_lost_connections
from ottla.controller.acls import add_acls, remove_acls
from ottla.coordination import Create, MultiFailedError, NoNodeError, Session
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from ottla.metadata import security_znodes, znodes
from ottla.metadata.image import ClusterImage
from ottla.metadata.security_znodes import acl_record, encode_acls

PATH = "/kafka-acl/Topic/t"
NOTICE = f"{security_znodes.LITERAL_CHANGES}/{security_znodes.ACL_CHANGE}"
PATTERN = (int(PatternType.LITERAL), int(ResourceType.TOPIC), "t")


def acl(user: str, name: str = "t", permission: Permission = Permission.ALLOW) -> AccessControlEntryRecord:
    return acl_record((*PATTERN[:2], name), f"User:{user}", "*", Operation.READ, permission)


def data_of(*users: str) -> bytes:
    return encode_acls([(f"User:{user}", "*", Operation.READ, Permission.ALLOW) for user in users])


class Replica:
    """What those who follow the znodes ask of their controller."""

    def __init__(self, reign: Reign) -> None:
        self._applied = reign._applied
        self.committed = reign._applied.reached

    @property
    def draft(self) -> ClusterImage:
        return self._applied.draft


class Active:
    """A controller that is at work: what it decides is written, and what others write is followed. ``async with``."""

    def __init__(self, service: Service, session: Session, node: int = 1) -> None:
        self._service = service
        self._session = session
        self._node = node
        self._tasks: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> Active:
        self.reign = reign = await self._service.reign(self._session, self._node)
        controller: Any = SimpleNamespace(replica=Replica(reign))
        security = SecurityNotices(self._service.world, controller, 10)
        notices = Notices(self._service.world, controller)
        follows = (security.follow_literal_acls, security.follow_prefixed_acls, security.follow_tokens, notices.follow_configs)
        self.carrying = asyncio.ensure_future(reign.carry_out())
        self._tasks = [self.carrying, *(asyncio.ensure_future(despite_lost_connections(follow_of(follow, reign))) for follow in follows)]
        await settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not any(task.done() for task in self._tasks[1:]), "who follows the znodes goes on, whatever is there"
        self.reign.end()
        self.reign._applied.end_own()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def image(self) -> ClusterImage:
        return self.reign._applied.draft

    @property
    def users(self) -> list[str]:
        """Who may read the topic."""
        return sorted(one.principal.removeprefix("User:") for one in self.image.acls.values() if one.resource_name == "t")


def follow_of(follow: Callable[[Reign], Awaitable[None]], reign: Reign) -> Callable[[], Awaitable[None]]:
    return lambda: follow(reign)


async def settled() -> None:
    """Longer than everything that is on its way takes, in simulated time."""
    await asyncio.sleep(5)


async def noticed(session: Session, prefix: str = NOTICE, data: bytes = b"TOPIC:t") -> None:
    await session.multi([Create(prefix, data, is_sequential=True)])


@on_service
async def test_what_a_tool_writes_is_taken_whatever_its_version_is(service: Service) -> None:
    """A znode that was deleted and made again has an older version than what the controller knows."""
    tool = await service.session("tool")
    async with Active(service, await service.session("a")) as active:
        active.reign.append([acl("a")])
        await settled()
        for user in "bcd":
            await tool.set(PATH, data_of("a", user), -1)
            await noticed(tool)
            await settled()
            assert active.users == ["a", user]
        await tool.delete(PATH)
        await noticed(tool)
        await settled()
        assert active.users == []
        for user in "ef":
            await tool.create(PATH, data_of(user))
            await noticed(tool)
            await settled()
            assert active.users == [user]
            await tool.delete(PATH)
        await tool.create(PATH, data_of("g"))
        await settled()
        active.reign.append([acl("h")])
        await settled()
        assert active.users == ["g", "h"]
        assert not active.carrying.done()
    assert {one["principal"] for one in json.loads(service.tree[PATH])["acls"]} == {"User:g", "User:h"}


@on_service
async def test_a_notice_that_comes_before_what_it_is_about(service: Service) -> None:
    tool = await service.session("tool")
    async with Active(service, await service.session("a")) as active:
        active.reign.append([acl("a", "other")])  # so that there are the parents
        await settled()
        await noticed(tool)
        await settled()
        await tool.create(PATH, data_of("b"))
        await settled()
        assert active.users == ["b"]
        await tool.set(PATH, data_of("c"), -1)
        await settled()
        assert active.users == ["c"]


@on_service
async def test_a_change_while_the_connection_is_lost_is_taken_when_it_is_back(service: Service) -> None:
    tool = await service.session("tool")
    async with Active(service, await service.session("a")) as active:
        active.reign.append([acl("a")])
        await settled()
        service.zookeeper.cut("a")
        await tool.set(PATH, data_of("b"), -1)
        await noticed(tool)
        await settled()
        assert active.users == ["a"], "it cannot know"
        service.zookeeper.heal("a")
        await settled()
        assert active.users == ["b"]


@on_service
async def test_a_change_while_there_is_no_controller_is_read_by_the_next_one(service: Service) -> None:
    first, tool = await service.session("a", timeout_ms=2000), await service.session("tool")
    async with Active(service, first) as active:
        active.reign.append([acl("a"), acl("b")])
        active.reign.append([UserScramCredentialRecord("u", 1, b"salt", bytes(32), bytes(32), 4096)])
        await settled()
    service.zookeeper.expire(first.session_id)
    await settled()
    await tool.set(PATH, data_of("a"), -1)  # b has lost its right, without a notice
    await tool.set("/config/users/u", znodes.encode_config({}), -1)
    async with Active(service, await service.session("c"), 2) as active:
        assert active.users == ["a"]
        assert not active.image.scram_credentials


@on_service
async def test_a_controller_that_was_deposed_gives_and_takes_no_rights(service: Service) -> None:
    first, second = await service.session("a"), await service.session("b")
    old = await service.reign(first, 1)
    old.append([acl("a")])
    await carried_out(old)
    await first.delete(znodes.CONTROLLER)
    new = await service.reign(second, 2)
    [acl_id] = old._applied.draft.acls
    token = DelegationTokenRecord("User:a", "User:a", [], 1, 2, 2, "id")
    for record in (acl("mallory"), RemoveAccessControlEntryRecord(acl_id), token):
        old.append([record])
        with pytest.raises(MultiFailedError) as failed:
            await carried_out(old)
        assert failed.value.index == 0
    new.append([acl("b")])
    await carried_out(new)
    assert {one["principal"] for one in json.loads(service.tree[PATH])["acls"]} == {"User:a", "User:b"}
    assert security_znodes.TOKENS not in service.tree


@on_service
async def test_two_writers_of_one_resource_do_not_overwrite_each_other(service: Service) -> None:
    """The controller's write fails, and the next reign starts from what is there."""
    session, tool = await service.session("a"), await service.session("tool")
    reign = await service.reign(session, 1)
    reign.append([acl("a")])
    await carried_out(reign)
    await tool.set(PATH, data_of("a", "b"), -1)
    reign.append([acl("c")])
    with pytest.raises(MultiFailedError, match="BadVersionError"):
        await carried_out(reign)
    await session.delete(znodes.CONTROLLER)
    async with Active(service, session) as active:
        assert active.users == ["a", "b"]
        await tool.delete(PATH)  # by hand
        active.reign.append([acl("c")])
        await settled()
        assert isinstance(active.carrying.exception(), MultiFailedError)
    await session.delete(znodes.CONTROLLER)
    async with Active(service, session) as active:
        assert active.users == []


@on_service
async def test_what_the_controller_is_about_to_write_is_not_taken_for_a_change_of_someone_else(service: Service) -> None:
    """It looks at the znode because of an earlier notice; its own ACLs, which are decided, are not there yet."""
    tool = await service.session("tool")
    session = await service.session("a")
    async with Active(service, session) as active:
        active.reign.append([acl("a")])
        await settled()
        seen: list[list[str]] = []
        for user in "bcdefgh":
            await noticed(tool)
            for _ in range(4):
                active.reign.append([acl(user)])
                await asyncio.sleep(0.001)
                active.reign.append([RemoveAccessControlEntryRecord(acl(user).id)])
                active.reign.append([acl(user)])
                await asyncio.sleep(0.0015)
                seen.append(active.users)
        await settled()
        assert all(found[:1] == ["a"] for found in seen)
        assert active.users == list("abcdefgh")
        assert not active.carrying.done()


@on_service
async def test_damaged_znodes_are_reported_and_open_nothing(service: Service) -> None:
    session, tool = await service.session("a"), await service.session("tool")
    await make_persistent(tool, open_to_all, [*security_znodes.PERSISTENT_OF_ACLS, *security_znodes.PERSISTENT_OF_TOKENS])
    await tool.create("/kafka-acl/Topic/bad", b"nonsense")
    await tool.create(PATH, data_of("a"))
    await tool.create("/kafka-acl/Moon", b"")
    await tool.create("/kafka-acl/Moon/t", data_of("mallory"))
    await tool.create("/delegation_token/tokens/x", b"nonsense")
    await tool.create("/config/users/u", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=a"}}')
    found = await service.read(session)
    assert len(found.known.problems) == 3
    assert not any(name in problem for problem in found.known.problems for name in ("nonsense", "salt=a"))
    async with Active(service, session) as active:
        [bad] = (one for one in active.image.acls.values() if one.resource_name == "bad")
        assert bad.permission_type == Permission.DENY
        assert active.users == ["a"]
        assert not active.image.delegation_tokens
        assert not active.image.scram_credentials
        await tool.set(PATH, b'{"version":2,"acls":[]}', -1)
        await noticed(tool)
        await settled()
        assert active.users == ["*"]
        assert [one.permission_type for one in active.image.acls.values() if one.resource_name == "t"] == [Permission.DENY]


@on_service
async def test_tokens_that_others_make_renew_and_remove_are_taken(service: Service) -> None:
    tool = await service.session("tool")
    prefix = f"{security_znodes.TOKEN_CHANGES}/{security_znodes.TOKEN_CHANGE}"
    await make_persistent(tool, open_to_all, security_znodes.PERSISTENT_OF_TOKENS)

    def token(expires_ms: int) -> DelegationTokenRecord:
        return DelegationTokenRecord("User:a", "User:a", [], 1, 99, expires_ms, "id")

    async with Active(service, await service.session("a")) as active:
        path = security_znodes.token_path("id")
        await tool.create(path, security_znodes.encode_token(token(7)))
        await noticed(tool, prefix, b"id")
        await settled()
        assert active.image.delegation_tokens == {"id": token(7)}
        await tool.set(path, security_znodes.encode_token(token(9)), -1)
        await noticed(tool, prefix, b"id")
        await settled()
        assert active.image.delegation_tokens == {"id": token(9)}
        await tool.delete(path)
        await noticed(tool, prefix, b"id")
        await noticed(tool, prefix, b"\xff")
        await noticed(tool, prefix, b"..")
        await noticed(tool, znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("users/.."))
        await settled()
        assert not active.image.delegation_tokens


@on_service
async def test_a_thousand_resources_are_read_ten_at_a_time(service: Service) -> None:
    session = await service.session("a")
    reign = await service.reign(session, 1)
    reign.append(add_acls(reign._applied.draft, [acl("a", f"t{number}") for number in range(1000)]).records)
    await carried_out(reign)
    waiting = most = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            async def counted(*arguments: Any) -> Any:
                nonlocal waiting, most
                waiting += 1
                most = max(most, waiting)
                try:
                    return await getattr(session, name)(*arguments)
                finally:
                    waiting -= 1

            return counted

    counting: Any = Counting()
    tree = await Loader(counting, 10).cluster()
    assert sum(path.startswith("/kafka-acl/Topic/") for path in tree) == 1000
    assert most == 10
    assert (await service.read(session)).image.acls == reign._applied.draft.acls
    records = remove_acls(reign._applied.draft, list(reign._applied.draft.acls)).records
    reign.append(records)
    await carried_out(reign)
    assert not (await service.read(session)).image.acls


@on_service
async def test_more_acls_of_a_resource_than_a_request_takes_are_refused_and_nothing_is_changed(service: Service) -> None:
    reign = await service.reign(await service.session("a"), 1, bytes_max=2000)
    with pytest.raises(KafkaError) as refused:
        reign.append([acl(f"user-{number}") for number in range(30)])
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    reign.append([acl(f"user-{number}") for number in range(8)])
    with pytest.raises(KafkaError):
        reign.append([acl(f"user-{number}") for number in range(8, 16)])
    renewers = [f"User:{'ü' * 100}"] * 5
    with pytest.raises(KafkaError):
        reign.append([DelegationTokenRecord("User:a", "User:a", renewers, 1, 2, 2, "id")])
    await carried_out(reign)
    assert len(reign._applied.committed.acls) == 8


@on_service
async def test_a_path_that_is_not_there_is_waited_for(service: Service) -> None:
    """A cluster without ACLs has nothing below which a notice could be."""
    tool = await service.session("tool")
    async with Active(service, await service.session("a")) as active:
        with pytest.raises(NoNodeError):
            await tool.children(security_znodes.LITERAL_CHANGES)
        await make_persistent(tool, open_to_all, security_znodes.PERSISTENT_OF_ACLS)
        await tool.create(PATH, data_of("a"))
        await noticed(tool)
        await settled()
        assert active.users == ["a"]
