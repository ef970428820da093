"""The blocking administration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ottla import aio
from ottla.client.options import AdminOptions
from ottla.client.other_keywords import with_hints
from ottla.client.other_methods import with_method_hints
from ottla.client.wrong_calls import with_brokers_first
from ottla.sync.loop_thread import Blocking, blocking


@with_method_hints
@with_hints
class Admin(Blocking[aio.Admin]):
    """Administration; see ``ottla.client.options.AdminOptions`` for the settings."""

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: aio.Admin(bootstrap_servers, **settings))

    create_topics = blocking(aio.Admin.create_topics)
    delete_topics = blocking(aio.Admin.delete_topics)
    list_topics = blocking(aio.Admin.list_topics)
    describe_topic = blocking(aio.Admin.describe_topic)
    describe_cluster = blocking(aio.Admin.describe_cluster)
    offsets_for_times = blocking(aio.Admin.offsets_for_times)
    describe_partitions = blocking(aio.Admin.describe_partitions)
    describe_config_of_topics = blocking(aio.Admin.describe_config_of_topics)
    describe_configs = blocking(aio.Admin.describe_configs)
    create_partitions = blocking(aio.Admin.create_partitions)
    delete_records = blocking(aio.Admin.delete_records)
    elect_leaders = blocking(aio.Admin.elect_leaders)
    alter_partition_reassignments = blocking(aio.Admin.alter_partition_reassignments)
    list_partition_reassignments = blocking(aio.Admin.list_partition_reassignments)
    alter_configs = blocking(aio.Admin.alter_configs)
    replace_configs = blocking(aio.Admin.replace_configs)
    list_config_resources = blocking(aio.Admin.list_config_resources)
    describe_client_quotas = blocking(aio.Admin.describe_client_quotas)
    alter_client_quotas = blocking(aio.Admin.alter_client_quotas)
    alter_replica_log_dirs = blocking(aio.Admin.alter_replica_log_dirs)
    describe_log_dirs = blocking(aio.Admin.describe_log_dirs)
    describe_quorum = blocking(aio.Admin.describe_quorum)
    describe_features = blocking(aio.Admin.describe_features)
    unregister_broker = blocking(aio.Admin.unregister_broker)
    update_features = blocking(aio.Admin.update_features)
    describe_producers = blocking(aio.Admin.describe_producers)
    delete_offsets = blocking(aio.Admin.delete_offsets)
    list_groups = blocking(aio.Admin.list_groups)
    describe_group = blocking(aio.Admin.describe_group)
    delete_groups = blocking(aio.Admin.delete_groups)
    committed_offsets = blocking(aio.Admin.committed_offsets)
    pending_offsets = blocking(aio.Admin.pending_offsets)
    set_offsets = blocking(aio.Admin.set_offsets)
    create_acls = blocking(aio.Admin.create_acls)
    describe_acls = blocking(aio.Admin.describe_acls)
    delete_acls = blocking(aio.Admin.delete_acls)
    list_transactions = blocking(aio.Admin.list_transactions)
    describe_transactions = blocking(aio.Admin.describe_transactions)
    fence_producers = blocking(aio.Admin.fence_producers)
    abort_transaction = blocking(aio.Admin.abort_transaction)
    find_hanging_transactions = blocking(aio.Admin.find_hanging_transactions)
    create_token = blocking(aio.Admin.create_token)
    describe_tokens = blocking(aio.Admin.describe_tokens)
    renew_token = blocking(aio.Admin.renew_token)
    expire_token = blocking(aio.Admin.expire_token)
    describe_users = blocking(aio.Admin.describe_users)
    alter_users = blocking(aio.Admin.alter_users)
    end_hanging_transaction = blocking(aio.Admin.end_hanging_transaction)
