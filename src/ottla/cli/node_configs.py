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


class NodeConfigs(Struct, frozen=True):
    """The values of each broker that answered. ``are_refused`` says that the user may not see those of some."""

    values: Mapping[int, Mapping[str, str | None]]
    are_refused: bool = False

    def other_voters(self, known: Collection[int] = ()) -> dict[int, str]:
        """Returns the lists of voters that have other ids or ports than most; ``known`` are the voters by the quorum's leader.

        A host may have two names. A broker without a list finds the quorum by ``controller.quorum.bootstrap.servers``. Of lists that are
        equally many those of the known voters are right.
        """
        texts = {node: text for node, found in self.values.items() if (text := found.get(VOTERS))}
        lists = {node: frozenset((voter, at.rpartition(":")[2]) for voter, at in voters_in(text).items()) for node, text in texts.items()}
        if not lists:
            return {}
        counts, ids = Counter(lists.values()), frozenset(known)
        usual = max(counts, key=lambda voters: (not ids or frozenset(voter for voter, _ in voters) == ids, counts[voters]))
        if ids and frozenset(voter for voter, _ in usual) != ids:
            return texts
        return {node: text for node, text in texts.items() if lists[node] != usual}


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
