"""What AlterClientQuotas decides, and what DescribeClientQuotas finds."""

from __future__ import annotations

import math

import pytest

from ottla.controller.quotas import alter_quotas, find_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import replay, snapshot_records

EXACT, DEFAULT, ANY = range(3)
A, B = ("user", "a"), ("client-id", "b")


def alter(image: ClusterImage, *entity: tuple[str, str | None], **changes: float | None) -> ClusterImage:
    return replay(image, alter_quotas(image, entity, list(changes.items())).records)


def test_quotas_are_set_changed_and_removed() -> None:
    image = alter(EMPTY_IMAGE, A, B, producer_byte_rate=10.0, request_percentage=0.5)
    assert image.quotas == {(B, A): {"producer_byte_rate": 10.0, "request_percentage": 0.5}}, "an entity has one form"
    image = alter(image, B, A, producer_byte_rate=20.0, request_percentage=None)
    assert image.quotas == {(B, A): {"producer_byte_rate": 20.0}}
    assert alter_quotas(image, [A, B], [("producer_byte_rate", 20.0), ("consumer_byte_rate", None)]).records == ()
    assert alter(image, A, B, producer_byte_rate=None).quotas == {}


def test_defaults_and_addresses_have_quotas_too() -> None:
    image = alter(EMPTY_IMAGE, ("user", None), consumer_byte_rate=1.0, controller_mutation_rate=0.1)
    image = alter(image, ("ip", "192.0.2.1"), connection_creation_rate=2.0**31 - 1)
    image = alter(image, ("ip", None), connection_creation_rate=5.0)
    assert len(image.quotas) == 3
    assert replay(EMPTY_IMAGE, snapshot_records(image)) == image


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ([], {"producer_byte_rate": 1.0}),
        ([A], {"producer_byte_rate": 5e-7}),  # it would be 0
        ([("group", "g")], {"producer_byte_rate": 1.0}),
        ([A, ("user", "c")], {"producer_byte_rate": 1.0}),
        ([A, ("ip", "192.0.2.1")], {"producer_byte_rate": 1.0}),
        ([("ip", "not an address")], {"connection_creation_rate": 1.0}),
        ([("user", "")], {"producer_byte_rate": 1.0}),
        ([("user", "u" * 2000)], {"producer_byte_rate": 1.0}),
        ([A], {"connection_creation_rate": 1.0}),
        ([("ip", None)], {"producer_byte_rate": 1.0}),
        ([A], {"bytes": 1.0}),
        ([A], {"producer_byte_rate": 0.0}),
        ([A], {"producer_byte_rate": -1.0}),
        ([A], {"producer_byte_rate": 1.5}),
        ([A], {"producer_byte_rate": math.nan}),
        ([A], {"request_percentage": math.inf}),
        ([A], {"consumer_byte_rate": 1e300}),
        ([A], {"consumer_byte_rate": 2.0**63}),
        ([A], {"producer_byte_rate": 1000.00001}),
        ([("ip", "192.0.2.1")], {"connection_creation_rate": 0.0}),
        ([("ip", "192.0.2.1")], {"connection_creation_rate": 2.0**31}),
        ([("ip", "192.0.2.1")], {"connection_creation_rate": math.inf}),
    ],
)
def test_what_is_no_quota_is_refused(entity: list[tuple[str, str | None]], changes: dict[str, float]) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_quotas(EMPTY_IMAGE, entity, list(changes.items()))
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert len(refused.value.message) < 300


def test_a_whole_number_may_be_off_by_what_computing_it_takes() -> None:
    """As in Kafka, which allows a millionth."""
    assert alter(EMPTY_IMAGE, A, producer_byte_rate=2.9999999).quotas == {(A,): {"producer_byte_rate": 3.0}}


def test_a_quota_is_not_listed_twice_in_one_entry() -> None:
    with pytest.raises(KafkaError, match="listed twice"):
        alter_quotas(EMPTY_IMAGE, [A], [("producer_byte_rate", 1.0), ("producer_byte_rate", None)])


@pytest.fixture
def image() -> ClusterImage:
    image = EMPTY_IMAGE
    for entity in ([A], [("user", None)], [A, B], [A, ("client-id", None)], [B], [("ip", "192.0.2.1")]):
        key = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        image = alter(image, *entity, **{key: 1.0})
    return image


@pytest.mark.parametrize(
    ("components", "is_strict", "found"),
    [
        ([], False, 6),
        ([], True, 0),
        ([("user", EXACT, "a")], False, 3),
        ([("user", EXACT, "a")], True, 1),
        ([("user", DEFAULT, None)], True, 1),
        ([("user", ANY, None)], True, 2),
        ([("user", ANY, None), ("client-id", ANY, None)], True, 2),
        ([("user", EXACT, "a"), ("client-id", DEFAULT, None)], True, 1),
        ([("client-id", ANY, None)], False, 3),
        ([("ip", ANY, None)], True, 1),
        ([("user", EXACT, "nobody")], False, 0),
    ],
)
def test_filters_find_exact_default_and_any_names(
    image: ClusterImage, components: list[tuple[str, int, str | None]], is_strict: bool, found: int
) -> None:
    assert len(list(find_quotas(image, components, is_strict=is_strict))) == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "a"), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_ask_for_nothing_are_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        list(find_quotas(EMPTY_IMAGE, components, is_strict=False))
    assert refused.value.code == code
