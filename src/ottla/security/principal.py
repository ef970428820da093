"""Who a request is from (KIP-11, KIP-290)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ottla.errors import ErrorCode, KafkaError

USER: Final = "User"


class Principal(Struct, frozen=True):
    """A type and a name, as Kafka writes them: ``User:alice``. ``by_token`` where a delegation token was shown (KIP-48)."""

    kind: str
    name: str
    by_token: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Returns the principal of a text: its type ends at the first colon. INVALID_REQUEST for a part that is missing."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text[:100]!r} is no principal: a type and a name are expected, as in User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Who has not authenticated."""
