"""Brokers and controllers of a cluster: records to images and back. Source: KIP-631, KIP-841 (controlled shutdown), KIP-858, KIP-919."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from ottla.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.metadata.image import BrokerImage, ControllerImage, EndpointImage

FENCED = 1
UNFENCED = -1
"""What a BrokerRegistrationChangeRecord says of ``fenced``; 0 leaves it as it is."""


class _Endpoint(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _Feature(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def endpoints_of(ends: Iterable[_Endpoint]) -> dict[str, EndpointImage]:
    """Returns the endpoints by listener name."""
    return {end.name: EndpointImage(end.name, end.host, end.port, end.security_protocol) for end in ends}


def features_of(features: Iterable[_Feature]) -> dict[str, tuple[int, int]]:
    return {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in features}


def broker_of(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        endpoints=endpoints_of(record.end_points),
        rack=record.rack,
        is_fenced=record.fenced,
        incarnation_id=record.incarnation_id,
        features=features_of(record.features),
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
    )


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """Returns the record of a broker: the inverse of ``broker_of``."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[BrokerEndpoint(end.listener, end.host, end.port, end.security_protocol) for end in _in_order(broker.endpoints)],
        features=[BrokerFeature(name, *levels) for name, levels in sorted(broker.features.items())],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def changed_broker(broker: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    """Returns the broker after the change."""
    cordoned = broker.cordoned_directories if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
    return replace(
        broker,
        is_fenced=record.fenced == FENCED if record.fenced else broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
        directories=tuple(record.log_dirs) or broker.directories,
        cordoned_directories=cordoned,
    )


def controller_of(record: RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(record.controller_id, record.incarnation_id, endpoints_of(record.end_points), features_of(record.features))


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """Returns the record of a controller: the inverse of ``controller_of``."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[ControllerEndpoint(end.listener, end.host, end.port, end.security_protocol) for end in _in_order(controller.endpoints)],
        features=[ControllerFeature(name, *levels) for name, levels in sorted(controller.features.items())],
    )


def _in_order(endpoints: Mapping[str, EndpointImage]) -> list[EndpointImage]:
    return [end for _, end in sorted(endpoints.items())]
