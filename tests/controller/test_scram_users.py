"""Credentials of users: what is recorded, and what is refused with nothing of the user changed."""

from __future__ import annotations

import pytest

from ottla.controller.scram_users import alter_credentials, credentials_of, users_of
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_user_scram_credentials import ScramCredentialDeletion as Deletion
from ottla.messages.alter_user_scram_credentials import ScramCredentialUpsertion as Upsertion
from ottla.messages.metadata_records import FeatureLevelRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import replay
from ottla.security.scram import ScramCredential, ScramMechanism

SALT = b"salt"
KEYS = {1: bytes(range(32)), 2: bytes(range(64))}


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, salt: bytes = SALT, salted: bytes | None = None
) -> Upsertion:
    return Upsertion(name, mechanism, iterations, salt, KEYS.get(mechanism, b"") if salted is None else salted)


def altered(image: ClusterImage, *upsertions: Upsertion, deletions: tuple[Deletion, ...] = ()) -> ClusterImage:
    user = next(change.name for changes in (upsertions, deletions) for change in changes)
    return replay(image, list(alter_credentials(image, user, deletions, upsertions).records))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_what_is_kept_verifies_a_proof(mechanism: ScramMechanism) -> None:
    image = altered(EMPTY_IMAGE, upsertion(mechanism=mechanism.number))
    record = image.scram_credentials["alice", mechanism.number]
    kept = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
    assert kept == ScramCredential.of_salted(mechanism, KEYS[mechanism.number], SALT, 4096)


def test_a_salted_password_of_another_length_than_the_hash_is_kept_as_kafka_does() -> None:
    image = altered(EMPTY_IMAGE, upsertion(mechanism=2, salted=b"my-salted-password"))
    assert list(credentials_of(image, "alice")) == [(2, 4096)]


def test_credentials_are_replaced_and_deleted() -> None:
    image = altered(EMPTY_IMAGE, upsertion(), upsertion(mechanism=2, iterations=16384))
    image = altered(image, upsertion("bob"))
    assert (users_of(image), list(credentials_of(image, "alice"))) == (["alice", "bob"], [(1, 4096), (2, 16384)])
    image = altered(image, upsertion(iterations=8192), deletions=(Deletion("alice", 2),))
    assert (users_of(image), list(credentials_of(image, "alice"))) == (["alice", "bob"], [(1, 8192)])
    image = altered(image, deletions=(Deletion("alice", 1),))
    assert users_of(image) == ["bob"]


@pytest.mark.parametrize(
    ("upsertions", "deletions", "code"),
    [
        ([upsertion("")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a" * 256)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(mechanism=0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion(mechanism=3)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion(iterations=1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=4095)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=16385)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=1_000_000)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salt=b"")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salt=b"x" * 256)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salted=b"")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salted=b"x" * 256)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(), upsertion()], [], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion()], [Deletion("alice", 1)], ErrorCode.DUPLICATE_RESOURCE),
        ([], [Deletion("alice", 2)], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion()], [Deletion("alice", 2)], ErrorCode.RESOURCE_NOT_FOUND),
        ([], [Deletion("alice", -1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_refused_change_of_a_user_refuses_all_changes_of_that_user(
    upsertions: list[Upsertion], deletions: list[Deletion], code: ErrorCode
) -> None:
    image = altered(EMPTY_IMAGE, upsertion())
    user = next(change.name for changes in (upsertions, deletions) for change in changes)
    with pytest.raises(KafkaError) as caught:
        alter_credentials(image, user, deletions, upsertions)
    assert caught.value.code == code


def test_an_old_metadata_version_has_no_users() -> None:
    image = replay(EMPTY_IMAGE, [FeatureLevelRecord("metadata.version", 10)])
    with pytest.raises(KafkaError) as caught:
        altered(image, upsertion())
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
