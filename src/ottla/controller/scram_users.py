"""SCRAM credentials of users: what AlterUserScramCredentials decides over an image, and what DescribeUserScramCredentials finds in it.

A user of whom one change is refused has none of the request's changes. Source: KIP-554, KIP-900.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.controller.decided import Recorded
from ottla.controller.metadata_versions import LEVELS
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion
from ottla.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_versions import METADATA_VERSION

# The mechanisms' hashes and bounds; who verifies a proof is ``ottla.security``, which decisions do not import.
_HASHES: Final = {1: "sha256", 2: "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
NAME_LENGTH_MAX: Final = 255
SALT_BYTES_MAX: Final = 255
SCRAM_SINCE: Final = LEVELS["3.5-IV2"]


def alter_credentials(
    image: ClusterImage, user: str, deletions: Sequence[ScramCredentialDeletion], upsertions: Sequence[ScramCredentialUpsertion]
) -> Recorded:
    """Sets and removes one user's credentials; KafkaError with Kafka's code, and nothing is changed."""
    if image.features.get(METADATA_VERSION, SCRAM_SINCE) < SCRAM_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"SCRAM users need metadata.version {SCRAM_SINCE}, the cluster has an older one")
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user's name is not empty")
    if len(user) > NAME_LENGTH_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a user's name has {NAME_LENGTH_MAX} characters at most")
    mechanisms = [*(deletion.mechanism for deletion in deletions), *(upsertion.mechanism for upsertion in upsertions)]
    if any(mechanism not in _HASHES for mechanism in mechanisms):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the mechanism is neither SCRAM-SHA-256 (1) nor SCRAM-SHA-512 (2)")
    if len(set(mechanisms)) != len(mechanisms):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "a user credential cannot be altered twice in the same request")
    if any((user, deletion.mechanism) not in image.scram_credentials for deletion in deletions):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "there is no such credential to delete")
    removed = [RemoveUserScramCredentialRecord(user, deletion.mechanism) for deletion in deletions]
    return Recorded((*removed, *map(_record, upsertions)))


def _record(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
        text = f"{upsertion.iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if not 0 < len(upsertion.salt) <= SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salt has 1 to {SALT_BYTES_MAX} bytes")
    if not 0 < len(upsertion.salted_password) <= SALT_BYTES_MAX:  # Kafka and its clients' tests don't ask for the hash's length
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salted password has 1 to {SALT_BYTES_MAX} bytes")
    return credential_record(
        upsertion.name, upsertion.mechanism, bytes(upsertion.salt), bytes(upsertion.salted_password), upsertion.iterations
    )


def credential_record(user: str, mechanism: int, salt: bytes, salted_password: bytes, iterations: int) -> UserScramCredentialRecord:
    """Returns what is kept of a salted password (RFC 5802)."""
    hash_name = _HASHES[mechanism]
    stored_key = hashlib.new(hash_name, hmac.digest(salted_password, b"Client Key", hash_name)).digest()
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return UserScramCredentialRecord(user, mechanism, salt, stored_key, server_key, iterations)


def users_of(image: ClusterImage) -> list[str]:
    """Returns all users that have credentials, in order."""
    return sorted({name for name, _ in image.scram_credentials})


def credentials_of(image: ClusterImage, user: str) -> Iterator[tuple[int, int]]:
    """Yields mechanism and iterations of each credential."""
    for mechanism in _HASHES:
        record = image.scram_credentials.get((user, mechanism))
        if record is not None:
            yield mechanism, record.iterations
