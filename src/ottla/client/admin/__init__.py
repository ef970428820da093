"""Administration: topics, groups, configuration, cluster. Each method answers for each item; one failure spoils no other.

One module for each kind of thing that is administered. Finding brokers and trying again is ``client/cluster.py``'s.
"""

from __future__ import annotations

from ottla.client.admin.acls import Acl, AclAdmin, AclFilter
from ottla.client.admin.brokers import ClusterDescription
from ottla.client.admin.configs import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC, ConfigAdmin
from ottla.client.admin.groups import CommittedOffset, GroupAdmin
from ottla.client.admin.hanging import HangingAdmin, HangingTransaction, Outcome
from ottla.client.admin.tokens import DelegationToken, TokenAdmin
from ottla.client.admin.topics import NewTopic
from ottla.client.admin.transactions import FencedProducer, ListedTransaction, TransactionDescription
from ottla.client.admin.users import UserAdmin, UserChange

__all__ = [
    "RESOURCE_BROKER",
    "RESOURCE_CLIENT_METRICS",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "CommittedOffset",
    "DelegationToken",
    "FencedProducer",
    "HangingTransaction",
    "ListedTransaction",
    "NewTopic",
    "Outcome",
    "TransactionDescription",
    "UserChange",
]


class Admin(HangingAdmin, GroupAdmin, ConfigAdmin, AclAdmin, UserAdmin, TokenAdmin):
    """All of it. Owns its cluster: ``close`` closes the connections."""
