"""The declarations against Kafka's own message definitions, which kafka-python ships: names, order, types, versions, defaults."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kafka.protocol.schemas import load_json
from tests.wire.strategies import CLASSES, name_of

from ottla.wire.schema import DECLARATIONS, FIELDS, VERSION_MAX, Field, Message, Request, Response

KIO_HAS = (
    *(
        "UnregisterBroker",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "ControllerRegistration",
        "AllocateProducerIds",
        "AssignReplicasToDirs",
        "Envelope",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
    ),
    "AlterPartition",
    *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
    *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UpdateRaftVoter"),
)
KINDS = {"bool": "boolean", "bytes": "binary"}
OWN_TAGS = 10_000
"""From here on tags are ottla's own, which others pass over."""


def definition(cls: type[Message]) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = load_json(cls.__name__)
    except FileNotFoundError:
        return None
    return found


DEFINED = [cls for cls in CLASSES if definition(cls) is not None]


def versions(text: str) -> range:
    """``3+``, ``0-4``, ``7``, ``none``"""
    if text == "none":
        return range(0)
    low, _, high = text.partition("-") if "-" in text else (text.rstrip("+"), "", "" if text.endswith("+") else text)
    return range(int(low), (int(high) if high else VERSION_MAX) + 1)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def theirs(fields: list[dict[str, Any]], version: int) -> list[tuple[Any, ...]]:
    """What is in that version: (name, kind, nullable, tag, default, element) of each field."""
    return [_their_field(field, version) for field in fields if version in versions(field["versions"])]


def _their_field(field: dict[str, Any], version: int) -> tuple[Any, ...]:
    kind, element = field["type"], None
    if kind.startswith("[]"):
        element = theirs(field["fields"], version) if "fields" in field else KINDS.get(kind[2:], kind[2:])
        kind = "array"
    elif "fields" in field:
        kind, element = "struct", theirs(field["fields"], version)
    kind = KINDS.get(kind, kind)
    tag = field.get("tag") if version in versions(field.get("taggedVersions", "none")) else None
    is_nullable = version in versions(field.get("nullableVersions", "none"))
    return snake(field["name"]), kind, is_nullable, tag, _their_default(kind, field.get("default")), element


def _their_default(kind: str, text: Any) -> Any:
    if text == "null" or kind in ("struct", "records"):
        return None
    if kind == "boolean":
        return str(text).lower() == "true"
    if kind == "float64":
        return float(text or 0)
    if "int" in kind:
        return int(str(text or 0), 0)
    return {"array": [], "uuid": bytes(16), "binary": b"", "string": text or ""}[kind]


def ours(cls: type, version: int) -> list[tuple[Any, ...]]:
    fields = [_our_field(name, field, version) for name, field in FIELDS[cls].items() if field.is_in(version)]
    return [(*names, tag, default, element) for *names, tag, default, element in fields if tag is None or tag < OWN_TAGS]


def _our_field(name: str, field: Field, version: int) -> tuple[Any, ...]:
    element = field.element
    if element is not None:
        element = element.kind if isinstance(element, Field) else ours(element, version)
    tag = field.tag if field.is_tagged_in(version) else None
    return name, field.kind, field.is_nullable_in(version), tag, field.default, element


def test_every_request_and_response_has_a_definition_to_compare_with() -> None:
    undefined = {cls.__name__ for cls in CLASSES if issubclass(cls, Request | Response)} - {cls.__name__ for cls in DEFINED}
    assert undefined == {f"{name}{kind}" for name in KIO_HAS for kind in ("Request", "Response")}, "kio alone has these (test_oracles.py)"


@pytest.mark.parametrize("cls", DEFINED, ids=name_of)
def test_the_declaration_says_what_kafkas_definition_says(cls: type[Message]) -> None:
    defined = definition(cls)
    assert defined is not None
    declaration = DECLARATIONS[cls]
    low, high = declaration.versions
    assert declaration.code == defined.get("apiKey", -1)
    valid = versions(defined["validVersions"])
    flexible = versions(defined["flexibleVersions"])
    assert declaration.flexible == (flexible.start if flexible else VERSION_MAX)
    common = [version for version in valid if low <= version <= high]
    assert common
    assert low in valid or low == 0
    assert high in valid
    for version in common:
        assert ours(cls, version) == theirs(defined["fields"], version), f"version {version}"
