"""Administration: topics, groups, configuration, cluster. Each method answers for each item; one failure spoils no other.

One module for each kind of thing that is administered; ``resources.py`` and ``descriptions.py`` have what methods take and return. Finding
brokers and trying again is ``client/cluster.py``'s.
"""

from __future__ import annotations

from ottla.client.admin.acls import Acl, AclAdmin, AclFilter
from ottla.client.admin.brokers import ClusterDescription, Feature
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.descriptions import (
    ActiveProducer,
    DirectoryReplica,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogDir,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    QuotaMatch,
    Reassignment,
)
from ottla.client.admin.groups import CommittedOffset, GroupAdmin
from ottla.client.admin.hanging import HangingAdmin, HangingTransaction, Outcome
from ottla.client.admin.resources import (
    Append,
    Broker,
    BrokerLoggers,
    ClientMetrics,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Group,
    Subtract,
    Topic,
)
from ottla.client.admin.tokens import DelegationToken, TokenAdmin
from ottla.client.admin.topics import NewTopic, OffsetSpec
from ottla.client.admin.transactions import FencedProducer, ListedTransaction, TransactionDescription
from ottla.client.admin.users import UserAdmin, UserChange
from ottla.client.call_limit import limited
from ottla.messages.update_features import UpgradeType

__all__ = [
    "Acl",
    "AclFilter",
    "ActiveProducer",
    "Admin",
    "Append",
    "Broker",
    "BrokerLoggers",
    "ClientMetrics",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigKind",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "DelegationToken",
    "DirectoryReplica",
    "Feature",
    "FencedProducer",
    "Group",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "ListedTransaction",
    "LogDir",
    "NewTopic",
    "OffsetSpec",
    "Outcome",
    "PartitionDescription",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaMatch",
    "Reassignment",
    "Subtract",
    "Topic",
    "TransactionDescription",
    "UpgradeType",
    "UserChange",
]


@limited
class Admin(HangingAdmin, GroupAdmin, ConfigAdmin, AclAdmin, UserAdmin, TokenAdmin):
    """All of it. Owns its cluster: ``close`` closes the connections."""
