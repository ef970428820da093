"""Topics that keep the newest record of each key: what a user without the right to look at one reads."""

from pathlib import Path

import pytest
from tests.spark.conftest import PROPERTIES

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.spark.compacted_topics import config_of, ensure_compacted
from ottla.spark.lookup import Lookup
from ottla.sync import Acl, Admin, Operation, Permission, ResourceType

GUARDED = PROPERTIES | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def test_a_user_without_the_right_reads_which_one_is_lacking_and_for_which_topic(tmp_path: Path) -> None:
    with BrokerThread(GUARDED | {"log.dirs": str(tmp_path)}) as broker, Admin(broker.bootstrap) as admin:
        lookup = Lookup({"kafka.bootstrap.servers": broker.bootstrap})
        ensure_compacted(lookup, "totals-checkpoint", {"cleanup.policy": "compact"})
        assert config_of(lookup, "totals-checkpoint", "cleanup.policy") == "compact"
        rights = ((Operation.ALL, Permission.ALLOW), (Operation.DESCRIBE_CONFIGS, Permission.DENY))
        admin.create_acls([Acl(ResourceType.TOPIC, "totals-checkpoint", "User:ANONYMOUS", *right) for right in rights])
        with pytest.raises(KafkaError, match="topic 'totals-checkpoint': to see its configuration takes DESCRIBE_CONFIGS") as caught:
            ensure_compacted(lookup, "totals-checkpoint", {"cleanup.policy": "compact"})
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
