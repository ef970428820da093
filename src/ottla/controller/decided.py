"""What a decision of the controller returns.

A decision is a function of an image and a request: it reads the image, changes nothing, and returns the records that carry it out, or
raises a KafkaError with Kafka's code. Who runs it appends the records and publishes the image that they make
(``broker``'s active controller): the third shape of a pure machine, beside ``machine.ReplicatedMachine`` and ``replication``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ottla.wire.schema import Stored


class Decided(Protocol):
    """The records, and in some cases more that the caller is to know."""

    @property
    def records(self) -> Sequence[Stored]:
        """None when all is as it was asked to be."""
        ...


class Recorded(Struct, frozen=True):
    """A ``Decided`` that has nothing but its records."""

    records: tuple[Stored, ...]
