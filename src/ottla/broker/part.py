"""What a node is made of: a list of parts, in the order of their start.

A part defines what it does at each of these events; most parts handle two or three of them. Each event of the node reaches all parts, in
the order of the list. They stop in the opposite order: a part may rely on earlier parts until it has stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.storage.directory.directory import LogDirectory

log = get_logger(__name__)
P = TypeVar("P", bound="Part")


class Part:
    """A component that lives as long as its node. Each method does nothing unless the part overrides it."""

    async def start(self) -> None:
        """Starts; the earlier parts have started."""

    async def on_image(self, delta: ImageDelta) -> None:
        """Takes a newer image, which the earlier parts follow already."""

    def on_role(self, partition: Any) -> None:
        """Notes that the partition (``Partition``) has changed its role, has started to lead, or was deleted."""

    def on_offline(self) -> None:
        """Notes that a replica of this broker has failed, or may be served again."""

    def on_relocated(self, partition: Any) -> None:
        """Notes that the replica (``Partition``) has moved to another log directory."""

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Notes that the disk of the log directory has failed."""

    def on_controller(self) -> None:
        """Notes that the active controller may be another node's than before."""

    def on_active(self, epoch: int) -> None:
        """Notes that this node's controller is the active one."""

    def on_inactive(self) -> None:
        """Notes that it is no longer the active one."""

    def configure(self) -> None:
        """Applies the broker's dynamic configuration, which has changed."""

    async def stop(self) -> None:
        """Stops; the later parts have stopped."""


class PartList(Part):
    """The parts of one node. The list is made first, so that parts can pass events on to all of them."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._with_roles: list[Part] = []  # a start gives a role to every partition: parts that do nothing then are not called

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def extend(self, *parts: Part) -> None:
        """Adds these after the present parts."""
        self._parts += parts
        self._with_roles += [part for part in parts if type(part).on_role is not Part.on_role]

    def find(self, kind: type[P]) -> P:
        """Returns the one part of that kind; LookupError when there is none."""
        for part in self._parts:
            if isinstance(part, kind):
                return part
        raise LookupError(f"this node has no {kind.__name__}")

    async def start(self) -> None:
        for part in self._parts:
            await part.start()

    async def on_image(self, delta: ImageDelta) -> None:
        """Passes the image to each part. A part that cannot follow keeps no other from it; the first error is raised in the end."""
        await _each(self._parts, lambda part: part.on_image(delta))

    def on_role(self, partition: Any) -> None:
        for part in self._with_roles:
            part.on_role(partition)

    def on_offline(self) -> None:
        for part in self._parts:
            part.on_offline()

    def on_relocated(self, partition: Any) -> None:
        for part in self._parts:
            part.on_relocated(partition)

    def on_directory_failed(self, directory: LogDirectory) -> None:
        for part in self._parts:
            part.on_directory_failed(directory)

    def on_controller(self) -> None:
        for part in self._parts:
            part.on_controller()

    def on_active(self, epoch: int) -> None:
        for part in self._parts:
            part.on_active(epoch)

    def on_inactive(self) -> None:
        for part in self._parts:
            part.on_inactive()

    def configure(self) -> None:
        for part in self._parts:
            part.configure()

    async def stop(self) -> None:
        """Stops each part. A part that cannot stop in order keeps no other from it; the first error is raised in the end."""
        await _each(reversed(self._parts), lambda part: part.stop())


async def _each(parts: Iterable[Part], call: Callable[[Part], Awaitable[None]]) -> None:
    problem: Exception | None = None
    for part in parts:
        try:
            await call(part)
        except Exception as error:
            if problem is not None:
                log.error("part_failed", part=type(part).__name__, exc_info=error)
            problem = problem or error
    if problem is not None:
        raise problem
