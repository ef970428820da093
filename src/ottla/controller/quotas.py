"""Quotas of clients: what AlterClientQuotas decides over an image, and what DescribeClientQuotas finds in it.

Source: KIP-546 (both APIs), KIP-599 (mutations), KIP-612 (connections).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ClientQuotaRecord
from ottla.messages.metadata_records import QuotaEntity as RecordedEntity
from ottla.metadata.image import CLIENT_ID, CONNECTION_RATE, IP, USER, ClusterImage, QuotaEntity

_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, int | None]] = {CONNECTION_RATE: 2**31 - 1}
"""Key to the largest value; None for those that may be fractions."""
WHOLE_WITHIN: Final = 1e-6
"""So close to a whole number a value counts as one: clients compute rates."""

NAME_LENGTH_MAX: Final = 255


class MatchType(IntEnum):
    """Kafka's numbers for what a filter asks of an entity's name."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def alter_quotas(image: ClusterImage, entity: Sequence[tuple[str, str | None]], changes: Sequence[tuple[str, float | None]]) -> Recorded:
    """Sets the entity's quotas, or removes them where the value is None; KafkaError INVALID_REQUEST says why not."""
    checked = check_entity(entity)
    keys = _IP_KEYS if checked[0][0] == IP else _CLIENT_KEYS
    current = image.quotas.get(checked, {})
    records = []
    names = [RecordedEntity(kind, name) for kind, name in checked]
    if len({key for key, _ in changes}) != len(changes):
        raise _refused("a quota is listed twice")
    for key, value in changes:
        if key not in keys:
            raise _refused(f"{key[:80]!r} is no quota of {' and '.join(kind for kind, _ in checked)}; {', '.join(keys)} are")
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(names, key, 0.0, True))
            continue
        value = _checked_value(key, value, keys[key])
        if current.get(key) != value:
            records.append(ClientQuotaRecord(names, key, value, False))
    return Recorded(tuple(records))


def check_entity(entity: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Returns the entity in its one form: users and client ids alone or together, addresses alone."""
    if not entity:
        raise _refused("an entity must have a user, a client id or an address")
    kinds = [kind for kind, _ in entity]
    unknown = [kind for kind in kinds if kind not in (USER, CLIENT_ID, IP)]
    if unknown:
        raise _refused(f"{unknown[0][:80]!r}: unknown entity type; {USER}, {CLIENT_ID} and {IP} are supported")
    if len(set(kinds)) != len(kinds):
        raise _refused("an entity type is listed twice")
    if IP in kinds and len(kinds) > 1:
        raise _refused("an address cannot be combined with a user or a client id")
    for kind, name in entity:
        if name is not None and not 0 < len(name) <= NAME_LENGTH_MAX:
            raise _refused(f"the name of a {kind} has 1 to {NAME_LENGTH_MAX} characters")
        if kind == IP and name is not None:
            _check_address(name)
    return tuple(sorted(entity, key=lambda pair: pair[0]))


def find_quotas(
    image: ClusterImage, components: Sequence[tuple[str, int, str | None]], *, is_strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Yields the entities that match all components (type, match type, name), in order; with ``is_strict`` without any further type."""
    wanted = {kind: (match, name) for kind, match, name in components}
    if len(wanted) != len(components):
        raise _refused("an entity type is listed twice in the filter")
    for kind, match, name in components:
        if not kind:
            raise _refused("a component of the filter has no entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{kind[:80]!r}: unknown entity type; {USER}, {CLIENT_ID} and {IP} are supported"
            )
        if match not in MatchType.__members__.values() or (match == MatchType.EXACT) != (name is not None):
            raise _refused(f"match type {match} of {kind} and the name {name!r} cannot be combined")
    if IP in wanted and len(wanted) > 1:
        raise _refused("an address cannot be combined with a user or a client id")
    for entity, values in sorted(image.quotas.items(), key=lambda item: [(kind, name or "") for kind, name in item[0]]):
        named = dict(entity)
        if not wanted.keys() <= named.keys() or (is_strict and len(named) != len(wanted)):
            continue
        if all(_fits(named[kind], match, name) for kind, (match, name) in wanted.items()):
            yield entity, values


def _fits(own: str | None, match: int, name: str | None) -> bool:
    if match == MatchType.EXACT:
        return own == name
    return own is None if match == MatchType.DEFAULT else True


def _checked_value(key: str, value: float, largest: int | None) -> float:
    """Returns the value, as a whole number where one is expected and meant."""
    if not value > 0:  # also refuses what is not a number
        raise _refused(f"{key}={value} must be above 0")
    if value == float("inf") or (largest is not None and value > largest):
        raise _refused(f"{key}={value} must be {'finite' if largest is None else f'{largest} at most'}")
    if largest is None:
        return value
    if abs(value - round(value)) > WHOLE_WITHIN or value < 1 - WHOLE_WITHIN:
        raise _refused(f"{key}={value} must be an integer")
    return float(round(value))


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise _refused(f"{name[:80]!r} is not an IP address") from None


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
