"""What is in ``error_message`` when nothing went wrong: null, empty or NONE, by API and version.

The expectations were read from Apache Kafka 4.3.0's answers to the same requests. aiokafka's own tests hold CreateTopics to null.
"""

from collections.abc import Iterator

import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient

from ottla.errors import ErrorCode
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

NULL = None
EMPTY = ""
METADATA_VERSION = 30  # of Kafka 4.3


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    with BrokerProcess(tmp_path_factory.mktemp("messages")) as broker, RawClient(broker.port) as raw:
        yield raw


def test_a_created_topic_has_a_null_message_in_every_version(client: RawClient) -> None:
    for version in range(2, 8):
        for validate_only in (True, False):
            wanted = CreatableTopic(f"created-{version}", 1, 1)
            [created] = client.ask(CreateTopicsRequest([wanted], validate_only=validate_only), version).topics
            assert (created.error_code, created.error_message) == (ErrorCode.NONE, NULL), f"version {version}"


def test_a_coordinator_that_is_found_is_called_none_up_to_version_3(client: RawClient) -> None:
    for version in range(1, 7):
        answer = client.ask(FindCoordinatorRequest("group", coordinator_keys=["group"]), version)
        found = answer.coordinators[0] if version >= 4 else answer
        text = EMPTY if version >= 4 else "NONE"
        assert (found.error_code, found.error_message) == (ErrorCode.NONE, text), f"version {version}"


def test_a_quorum_and_quotas_that_are_described_have_empty_messages(client: RawClient) -> None:
    quorum = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
    assert (quorum.error_message, quorum.topics[0].partitions[0].error_message) == (EMPTY, EMPTY)
    for version in range(2):
        assert client.ask(DescribeClientQuotasRequest(), version).error_message == EMPTY


def test_features_have_results_of_their_own_before_version_2_and_only_when_all_of_them_moved(client: RawClient) -> None:
    known = FeatureUpdateKey("metadata.version", METADATA_VERSION)
    unknown = FeatureUpdateKey("nonsense", 1)
    for version in range(3):
        moved = client.ask(UpdateFeaturesRequest(1000, [known]), version)
        assert (moved.error_code, moved.error_message) == (ErrorCode.NONE, NULL)
        told = [(result.feature, result.error_code, result.error_message) for result in moved.results]
        assert told == ([("metadata.version", ErrorCode.NONE, "NONE")] if version < 2 else []), f"version {version}"
        refused = client.ask(UpdateFeaturesRequest(1000, [known, unknown]), version)
        assert "nonsense" in refused.error_message
        assert refused.results == [], f"version {version}"
