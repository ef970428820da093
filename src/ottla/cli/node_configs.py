"""The configuration of the brokers that answer, and what of it has to be the same on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ottla.cli.quorum_voters import VOTERS, voters_in
from ottla.errors import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.sync import Admin

CONFIGS_UNSEEN: Final = "the brokers' configurations (voters, throttles) were not looked at: that takes DESCRIBE_CONFIGS on the cluster"
OTHER_PORTS: Final = (
    "broker {} has other ports in controller.quorum.voters than most ({}): right while controllers move to another listener, "
    "otherwise compare the files of the nodes (`ottla config lint`)"
)


class NodeConfigs(Struct, frozen=True):
    """The values of each broker that answered. ``are_refused`` says that the user may not see some of these."""

    values: Mapping[int, Mapping[str, str | None]]
    are_refused: bool = False

    def other_voters(self, known: Collection[int] = ()) -> dict[int, str]:
        """Returns the lists of voters that have other ids than most; ``known`` are the voters by the quorum's leader, which are right."""
        texts = self._lists()
        if not texts:
            return {}
        ids = {node: frozenset(voters_in(text)) for node, text in texts.items()}
        usual = frozenset(known) or Counter(ids.values()).most_common(1)[0][0]
        return {node: text for node, text in texts.items() if ids[node] != usual}

    def other_ports(self) -> dict[int, str]:
        """Returns the lists of voters that have other ports than most.

        A controller may have two listeners, so nodes may differ while they move from the one to the other. A host may have two names.
        """
        texts = self._lists()
        ports = {node: frozenset((voter, at.rpartition(":")[2]) for voter, at in voters_in(text).items()) for node, text in texts.items()}
        usual = Counter(ports.values()).most_common(1)[0][0] if ports else None
        return {node: text for node, text in texts.items() if ports[node] != usual}

    def _lists(self) -> dict[int, str]:
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
