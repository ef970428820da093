"""Where the cluster is in ZooKeeper, as the configuration says it: servers, chroot, session, ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.broker.homes.zookeeper.tls import tls_of
from ottla.broker.homes.zookeeper.waiting import RETRY_SECONDS
from ottla.config import BrokerConfig
from ottla.coordination import (
    OPEN_ACCESS,
    Access,
    ConnectionLostError,
    CoordinationError,
    NodeExistsError,
    NotAuthorizedError,
    Session,
    SessionExpiredError,
    Tls,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.types import Secret

T = TypeVar("T")

SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Not even to be read by others: they hold credentials."""
OPEN: Final = ("/consumers",)
"""Consumers of the classic kind write there themselves."""
_OWN: Final = (Access("auth", "", "crwda"),)
_READ: Final = (*_OWN, Access("world", "anyone", "r"))


@dataclass(frozen=True, slots=True)
class ZookeeperSettings:
    """``servers`` may end in a chroot, under which everything of the cluster is."""

    servers: str
    session_timeout_ms: int
    connection_timeout_ms: int
    in_flight_max: int
    request_bytes_max: int
    has_acls: bool
    credentials: Sequence[tuple[str, str]]
    tls: Tls | None

    @classmethod
    def of(cls, config: BrokerConfig) -> ZookeeperSettings:
        tls = tls_of(config)
        elsewhere = config["authorizer.zookeeper.url"]
        if elsewhere:
            raise _refused(f"authorizer.zookeeper.url={elsewhere}: ACLs are where the cluster is, at zookeeper.connect; remove it")
        session_ms: int = config["zookeeper.session.timeout.ms"]
        secret: Secret | None = config["ottla.zookeeper.credentials"]
        if config["zookeeper.set.acl"] and secret is None and (tls is None or tls.own is None):
            raise _refused(
                "zookeeper.set.acl=true needs ottla.zookeeper.credentials=user:password, or TLS and a zookeeper.ssl.keystore.location: "
                "without them ZooKeeper knows no owner"
            )
        return cls(
            servers=config["zookeeper.connect"].rstrip("/"),
            session_timeout_ms=session_ms,
            connection_timeout_ms=config["zookeeper.connection.timeout.ms"] or session_ms,
            in_flight_max=config["zookeeper.max.in.flight.requests"],
            request_bytes_max=config["ottla.zookeeper.request.bytes.max"],
            has_acls=config["zookeeper.set.acl"],
            credentials=[] if secret is None else [("digest", secret.reveal())],
            tls=tls,
        )

    def acl_of(self, path: str) -> Sequence[Access]:
        """Returns the access rights of a new znode."""
        if not self.has_acls or _is_below(path, OPEN):
            return OPEN_ACCESS
        return _OWN if _is_below(path, SENSITIVE) else _READ

    async def begin(self, world: World, prepare: Callable[[Session], Awaitable[T]]) -> tuple[Session, T]:
        """Returns the session of a broker that starts, and what it has prepared there, however often the connection is lost on the way.

        KafkaError when ZooKeeper does not answer in time, or refuses the credentials.
        """
        session: Session | None = None
        try:
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                while True:
                    session = await self.session(world)
                    try:
                        if await session.exists("/") is None:
                            await self._make_chroot(world)
                        return session, await prepare(session)
                    except (ConnectionLostError, SessionExpiredError):
                        await session.close()
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            text = f"ZooKeeper at {self.servers} does not answer within {self.connection_timeout_ms} ms (zookeeper.connection.timeout.ms)"
            problem = world.coordination and world.coordination.last_problem
            text += f": {problem}" if problem else ""
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        except ValueError as error:
            raise _refused(f"zookeeper.connect={self.servers}: {error}") from None
        except NotAuthorizedError as error:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"ZooKeeper refuses this broker: {error}") from None
        except CoordinationError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper at {self.servers}: {type(error).__name__} {error}") from error

    async def session(self, world: World) -> Session:
        """Opens a new session, whenever ZooKeeper can be reached."""
        return await self._connect(world, self.servers)

    async def _connect(self, world: World, servers: str) -> Session:
        assert world.coordination is not None, "the world has a ZooKeeper"
        timeout_ms = self.session_timeout_ms
        return await world.coordination.connect(servers, session_timeout_ms=timeout_ms, credentials=self.credentials, tls=self.tls)

    async def _make_chroot(self, world: World) -> None:
        servers, _, chroot = self.servers.partition("/")
        session = await self._connect(world, servers)
        parts = chroot.split("/")
        for count in range(1, len(parts) + 1):
            try:
                await session.create("/" + "/".join(parts[:count]), acl=_READ if self.has_acls else OPEN_ACCESS)
            except NodeExistsError:
                pass
        await session.close()


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
