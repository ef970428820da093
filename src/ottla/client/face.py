"""What the clients of ``ottla.aio`` have in common: ``async with``, and what they look like in a log or a debugger."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Protocol, Self

from ottla.client.cluster import Cluster
from ottla.client.failures import DeliveryError
from ottla.client.usable import closed


class _Closing(Protocol):
    async def close(self) -> None: ...


class Face:
    """A client, of which its class is made."""

    _cluster: Cluster

    def __repr__(self) -> str:
        """Returns the client's class, name and brokers, and whether it is open; nothing secret."""
        if "_cluster" not in self.__dict__:  # its settings were refused
            return object.__repr__(self)
        return self._text(f"ottla.aio.{type(self).__name__}", is_closed=self._cluster.is_closed)

    def _text(self, kind: str, *, is_closed: bool) -> str:
        cluster = self._cluster
        return f"<{kind} {cluster.client_id!r} at {cluster.bootstrap_text}, {'closed' if is_closed else 'open'}>"

    def __reduce__(self) -> NoReturn:
        """Refuses a copy, as of ``pickle``."""
        raise not_copied(self)

    async def __aenter__(self) -> Self:
        """Returns the client; INVALID_REQUEST when it is closed."""
        if self._cluster.is_closed:
            raise closed()
        return self

    async def __aexit__(self: _Closing, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes as ``close`` does; a DeliveryError becomes a note of the error that ended the block, where there is one."""
        try:
            await self.close()
        except DeliveryError as failures:
            if error is None:
                raise
            error.add_note(str(failures))


def not_copied(client: object) -> TypeError:
    """Returns the error of a client that is copied or pickled: its connections belong to this process."""
    return TypeError(f"{client!r} cannot be copied or pickled: make a client where it is used, in each process")
