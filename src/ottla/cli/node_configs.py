"""The configuration of the brokers that answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ottla.cli.quorum_voters import VOTERS
from ottla.errors import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.sync import Admin

CONFIGS_UNSEEN: Final = "the brokers' configurations (voters, throttles) were not looked at: that takes DESCRIBE_CONFIGS on the cluster"


class NodeConfigs(Struct, frozen=True):
    """The values of each broker that answered. ``are_refused`` says that the user may not see some of these."""

    values: Mapping[int, Mapping[str, str | None]]
    are_refused: bool = False

    def lists(self) -> dict[int, str]:
        """Returns the list of each broker that has one; others find the quorum by ``controller.quorum.bootstrap.servers``."""
        return {node: text for node, found in self.values.items() if (text := found.get(VOTERS))}


def node_configs(admin: Admin, brokers: Iterable[int]) -> NodeConfigs:
    """Asks each of the brokers; one that does not answer has no values."""
    from ottla.client.admin import Broker

    values: dict[int, Mapping[str, str | None]] = {}
    are_refused = False
    for broker in brokers:
        try:
            values[broker] = {name: entry.value for name, entry in admin.describe_configs(Broker(broker)).items()}
        except OttlaError as error:
            are_refused |= isinstance(error, KafkaError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return NodeConfigs(values, are_refused)
