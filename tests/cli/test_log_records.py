"""What is shown of records that brokers keep: decoded where they can be, hidden where they are, or may be, secret."""

from __future__ import annotations

import pytest

from ottla.cli.log_records import HIDDEN, Kind, described, kind_of, line_of
from ottla.groups import records as groups
from ottla.groups.consumer.group import ConsumerGroup
from ottla.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from ottla.metadata.records import encode_record
from ottla.records.iteration import Record

MARK = "marked-secret"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/d/__cluster_metadata-0/0.log", Kind.METADATA),
        ("/d/x/0-0.checkpoint", Kind.METADATA),
        ("/d/__consumer_offsets-49/0.log", Kind.OFFSETS),
        ("/d/__transaction_state-0/0.log", Kind.TRANSACTIONS),
        ("/d/orders-0/0.log", Kind.APPLICATION),
        ("/d/-0/0.log", Kind.APPLICATION),
        ("0.log", Kind.APPLICATION),
    ],
)
def test_a_directory_says_whose_records_it_has(path: str, kind: Kind) -> None:
    assert kind_of(path) is kind


@pytest.mark.parametrize("value", [MARK.encode(), b"", b"\x01", b"\x01\xff\xff\x7f" + MARK.encode(), None])
def test_metadata_that_cannot_be_decoded_is_hidden(value: bytes | None) -> None:
    item = described(Record(0, 0, None, value), Kind.METADATA, show_secrets=False)
    assert (item["value"], "problem" in item) == (HIDDEN, True)
    assert MARK not in line_of(item)


def test_a_secret_is_hidden_unless_it_is_asked_for() -> None:
    secret = Record(0, 0, None, encode_record(ConfigRecord(4, "1", "ssl.keystore.password", MARK)))
    assert described(secret, Kind.METADATA, show_secrets=False)["value"] == HIDDEN
    assert described(secret, Kind.METADATA, show_secrets=True)["value"]["value"] == MARK
    plain = Record(0, 0, None, encode_record(FeatureLevelRecord("metadata.version", 30)))
    found = described(plain, Kind.METADATA, show_secrets=False)
    assert (found["type"], found["value"]) == ("FeatureLevelRecord", {"name": "metadata.version", "feature_level": 30})


def test_no_record_has_a_second_line() -> None:
    item = described(Record(3, 5, b"a\nb\x00", b"\xff\n", (("h\n", None),)), Kind.APPLICATION, show_secrets=False)
    assert line_of(item) == 'offset=3 timestamp_ms=5 key="a\\nb\\u0000" value_base64="/wo=" headers=[{"key":"h\\n","value":null}]'


def test_records_of_consumer_groups_are_decoded() -> None:
    key, value = groups.encode_record(ConsumerGroup("g").epoch_record(7, -5))
    found = described(Record(0, 0, key, value), Kind.OFFSETS, show_secrets=False)
    assert (found["type"], found["key"]) == ("ConsumerGroupMetadata", {"group_id": "g"})
    assert found["value"] == {"epoch": 7, "metadata_hash": -5}
