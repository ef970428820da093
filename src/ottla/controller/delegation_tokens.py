"""Delegation tokens: what their four APIs decide over an image. Times are of the wall clock, in milliseconds.

Source: KIP-48, KIP-373 (tokens for others), KIP-900 (records).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from ottla.controller.decided import Recorded
from ottla.controller.metadata_versions import LEVELS
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_versions import METADATA_VERSION

TOKENS_SINCE: Final = LEVELS["3.6"]
TOKENS_MAX: Final = 20_000
OF_REQUESTER_MAX: Final = 1000
"""Making tokens needs no right: who makes many leaves others room for theirs."""
RENEWERS_MAX: Final = 100
PRINCIPAL_LENGTH_MAX: Final = 1000
REMOVED_MAX: Final = 1000
"""Of one sweep's decision."""
TIME_MAX: Final = 2**63 - 1


def create_token(
    image: ClusterImage, token_id: str, *, owner: str, requester: str, renewers: Sequence[str], now_ms: int, max_ms: int, renew_ms: int
) -> Recorded:
    """Creates a token, valid for ``renew_ms``, and ``max_ms`` at most."""
    if image.features.get(METADATA_VERSION, TOKENS_SINCE) < TOKENS_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"delegation tokens need metadata.version {TOKENS_SINCE}")
    if len(renewers) > RENEWERS_MAX or max(map(len, (owner, requester, *renewers))) > PRINCIPAL_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a token has {RENEWERS_MAX} renewers at most, of {PRINCIPAL_LENGTH_MAX} characters")
    if any(principal.endswith(":") for principal in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an owner or a renewer without a name")
    if len(image.delegation_tokens) >= TOKENS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {TOKENS_MAX} delegation tokens, as many as a cluster may have")
    if sum(token.requester == requester for token in image.delegation_tokens.values()) >= OF_REQUESTER_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{requester[:100]} has made {OF_REQUESTER_MAX} tokens that have not been removed yet")
    last_ms = min(now_ms + max_ms, TIME_MAX)
    record = DelegationTokenRecord(owner, requester, list(renewers), now_ms, last_ms, min(last_ms, now_ms + renew_ms), token_id)
    return Recorded((record,))


def renew_token(image: ClusterImage, token_id: str | None, asker: str, *, now_ms: int, renew_ms: int) -> Recorded:
    """Renews the token for ``renew_ms`` from now on, not beyond its maximum."""
    token = _found(image, token_id)
    _check_life(token, now_ms)
    _check_asker(token, asker)
    return _until(token, now_ms + renew_ms)


def expire_token(image: ClusterImage, token_id: str | None, asker: str, *, now_ms: int, left_ms: int) -> Recorded:
    """Lets the token expire in ``left_ms`` from now on; it is removed when that is negative, also one that has expired already."""
    token = _found(image, token_id)
    _check_asker(token, asker)
    if left_ms < 0:
        return Recorded((RemoveDelegationTokenRecord(token.token_id),))
    _check_life(token, now_ms)
    return _until(token, now_ms + left_ms)


def remove_expired(image: ClusterImage, now_ms: int) -> Recorded:
    """Removes some of the expired tokens."""
    tokens = image.delegation_tokens.values()
    expired = (token.token_id for token in tokens if min(token.expiration_timestamp, token.max_timestamp) <= now_ms)
    return Recorded(tuple(RemoveDelegationTokenRecord(token_id) for token_id in islice(expired, REMOVED_MAX)))


def is_known_to(token: DelegationTokenRecord, principal: str) -> bool:
    """True when the principal is the token's owner, asked for it, or may renew it."""
    return principal in (token.owner, token.requester) or principal in token.renewers


def _found(image: ClusterImage, token_id: str | None) -> DelegationTokenRecord:
    token = None if token_id is None else image.delegation_tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_life(token: DelegationTokenRecord, now_ms: int) -> None:
    if token.max_timestamp < now_ms or token.expiration_timestamp < now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_asker(token: DelegationTokenRecord, asker: str) -> None:
    if asker != token.owner and asker not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _until(token: DelegationTokenRecord, wanted_ms: int) -> Recorded:
    expires_ms = min(token.max_timestamp, wanted_ms)
    record = DelegationTokenRecord(
        token.owner, token.requester, list(token.renewers), token.issue_timestamp, token.max_timestamp, expires_ms, token.token_id
    )
    return Recorded((record,))
