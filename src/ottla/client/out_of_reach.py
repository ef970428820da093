"""A broker that others have named and that lets no connection come about: its id says more than its address."""

from __future__ import annotations

from typing import Final

from ottla.errors import KafkaError


class BrokerOutOfReach(KafkaError):
    """The cluster answers, and this one of its brokers does not. ``reason`` is the error of the attempt."""

    def __init__(self, node_id: int, reason: KafkaError) -> None:
        super().__init__(reason.code, f"broker {node_id} cannot be reached: {reason.message}")
        self.node_id: Final = node_id
        self.reason: Final = reason
