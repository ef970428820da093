"""A secured cluster: nodes that reach each other and are reached by passwords and TLS alone, while one of them is stopped."""

from __future__ import annotations

import pytest

from ottla import sync
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import History, secure_cluster


@pytest.mark.slow
def test_a_secured_cluster_replicates_lets_users_in_at_each_node_and_refuses_others() -> None:
    with secure_cluster(3, super_users="User:admin") as nodes:
        topic = nodes.topic("orders", replication_factor=3)
        user = nodes.user("billing")
        for node_id in nodes.node_ids:
            login = nodes.for_ottla(user) | {"bootstrap_servers": nodes.bootstrap_of(node_id)}
            with sync.Admin(**login) as admin:
                assert len(admin.describe_cluster().nodes) == 3
            with sync.Admin(nodes.bootstrap_of(node_id)) as stranger, pytest.raises(KafkaError):
                stranger.list_topics()
            with sync.Admin(**login | {"sasl_plain_password": "wrong"}) as wrong, pytest.raises(KafkaError) as refused:
                wrong.list_topics()
            assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with sync.Producer(**nodes.for_ottla(user)) as producer, pytest.raises(KafkaError) as forbidden:
            producer.send_and_wait(topic, b"no right to")
        assert forbidden.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        history = History(nodes.bootstrap, **nodes.client_settings)
        with history.watch(sync.Producer(**nodes.for_ottla())) as producer:
            producer.send_and_wait(topic, b"one")
            nodes.stop(nodes.leader_of(topic))
            producer.send_and_wait(topic, b"two")
        history.check()
        nodes.start_stopped()
