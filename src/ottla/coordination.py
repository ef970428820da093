"""A coordination service as the controller's home: a tree of znodes, sessions whose ephemeral znodes end with them, watches.

It is what ZooKeeper promises, and nothing else. Each write is conditional where the caller names a version, and a ``multi`` is done
entirely or not at all. A watch is called at most once, after something may have changed, and whenever the connection is lost: the callee
reads again, and several changes may be one call. When a connection is lost the outcome of the requests on it is unknown
(``ConnectionLostError``): a write may have been done. A session that has expired is over, and its ephemeral znodes with it.

Source: ZooKeeper Programmer's Guide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec import Struct

ANY_VERSION: Final = -1
Watch = Callable[[], None]
"""Called on the loop."""


class CoordinationError(Exception):
    """A request was refused; its path or reason is the text."""


class NoNodeError(CoordinationError):
    """The error of a path without a znode, or without a parent for the new one."""


class NodeExistsError(CoordinationError):
    """The error of a znode that exists already."""


class BadVersionError(CoordinationError):
    """The znode's version differs from the version that the request names."""


class NotEmptyError(CoordinationError):
    """The znode has children, and cannot be deleted."""


class NoChildrenForEphemeralsError(CoordinationError):
    """An ephemeral znode has no children."""


class NotAuthorizedError(CoordinationError):
    """The ACL of the znode does not allow it, or the credentials were refused."""


class ConnectionLostError(CoordinationError):
    """The connection ended before the answer came: the request may have been carried out, or not."""


class SessionExpiredError(CoordinationError):
    """The session is over, by its timeout or because it was closed: nothing more is done in it."""


class MultiFailedError(CoordinationError):
    """None of the operations was carried out, because the one at ``index`` could not be: ``reason``."""

    def __init__(self, index: int, reason: CoordinationError) -> None:
        super().__init__(f"operation {index}: {type(reason).__name__} {reason}")
        self.index = index
        self.reason = reason


class Stat(Struct, frozen=True):
    """The facts about a znode beside its data. ``czxid`` distinguishes two znodes of one path; versions do not."""

    czxid: int
    version: int
    ctime_ms: int
    ephemeral_owner: int  # the session's id; 0 for a persistent znode
    children_count: int


class Access(Struct, frozen=True):
    """An entry of a znode's access list: ``permissions`` are of ``crwda``."""

    scheme: str
    id: str
    permissions: str


OPEN_ACCESS: Final = (Access("world", "anyone", "crwda"),)


class Create(Struct, frozen=True):
    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False
    acl: Sequence[Access] = OPEN_ACCESS


class Set(Struct, frozen=True):
    path: str
    data: bytes
    version: int


class Delete(Struct, frozen=True):
    path: str
    version: int = ANY_VERSION


class Check(Struct, frozen=True):
    """The znode has that version; nothing is changed."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class Session(Protocol):
    """One session. Requests are carried out in the order in which they were made. Every method may raise ConnectionLostError and
    SessionExpiredError; while there is no connection, a request that was not sent yet waits for one."""

    @property
    def session_id(self) -> int: ...

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        ...

    on_connection: Callable[[bool], None]
    """Called when the connection is lost, and when it is back in the same session."""
    on_expired: Callable[[], None]
    """Called once when the session turns out to be over, unless it was closed here."""

    async def create(self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, acl: Sequence[Access] = OPEN_ACCESS) -> None:
        """Creates the znode. NodeExistsError; NoNodeError without a parent; NoChildrenForEphemeralsError."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns the data. NoNodeError, and then nothing is watched. The watch is called when the data changes or the znode is deleted."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """True when the znode exists. The watch is called when it is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns their names, sorted. NoNodeError, and then nothing is watched. The watch is called when a child comes or goes."""
        ...

    async def set(self, path: str, data: bytes, version: int) -> int:
        """Sets the data. Returns the new version. NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes the znode. NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Does all of them, in order, or none: MultiFailedError says which one could not be done."""
        ...

    async def close(self) -> None:
        """Ends the session, and deletes its ephemeral znodes as far as the service can be reached."""
        ...


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings for reaching the service by TLS. The files are PEM."""

    trusted: str | None
    """Certificates of those who may have signed the service's; None: those that the system trusts."""
    own: str | None
    """The private key of this side and its certificates; None for a service that asks for none."""
    own_password: str = field(repr=False)
    versions: tuple[str, str]
    """The lowest and the highest."""
    checks_host: bool
    """Whether the service's certificate has to be of the host that was asked for."""


class Coordination(Protocol):
    """A maker of sessions."""

    @property
    def last_problem(self) -> str | None:
        """Why a connection could not be made last, where more is known than that it could not."""
        ...

    async def connect(
        self, servers: str, *, session_timeout_ms: int, credentials: Sequence[tuple[str, str]] = (), tls: Tls | None = None
    ) -> Session:
        """Opens a new session, once there is a connection; tries until then. ``servers`` is ``host:port,...[/chroot]``.

        ``credentials`` are pairs of scheme and secret ("digest", "user:password"). ValueError for servers that cannot be read,
        INVALID_CONFIG for files of ``tls`` that cannot.
        """
        ...
