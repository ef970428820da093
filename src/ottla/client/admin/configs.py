"""Configuration of topics, brokers, groups and client-metrics subscriptions, and quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.admin.base import AdminBase, Outcome, error_of, raise_for
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as quotas
from ottla.messages import alter_configs as replacing
from ottla.messages import incremental_alter_configs as changing
from ottla.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.wire.schema import Request, Response

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

RESOURCES_MAX = 1_000
"""Of one request."""

SET, DELETE, APPEND, SUBTRACT = range(4)
EXACT, DEFAULT, ANY = range(3)

R = TypeVar("R", bound=Response)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of type (user, client-id, ip) and name; a name of None is the default of its type."""


class ConfigAdmin(AdminBase):
    async def describe_configs(self, resource_type: int, name: str) -> list[DescribeConfigsResourceResult]:
        """Every key of a topic (2), broker (4), subscription (16) or group (32), with source, synonyms and documentation."""
        request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, None)], True, True)
        [result] = (await self._ask(resource_type, name, request, DescribeConfigsResponse)).results
        raise_for(result.error_code, result.error_message)
        return result.configs

    async def describe_config_of_topics(self, names: Iterable[str], key: str) -> dict[str, str | None]:
        """The value of one key for each of these topics; those that no longer exist are left out."""
        values: dict[str, str | None] = {}
        left = list(names)
        while left:
            part, left = left[:RESOURCES_MAX], left[RESOURCES_MAX:]
            request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, name, [key]) for name in part])
            for result in (await self._cluster.ask(None, request, DescribeConfigsResponse)).results:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise_for(result.error_code, result.error_message)
                for config in result.configs:
                    values[result.resource_name] = config.value
        return values

    async def alter_configs(
        self, resource_type: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
    ) -> None:
        """Single values are changed: (key, SET | DELETE | APPEND | SUBTRACT, value). All of them, or none: KafkaError."""
        configs = [changing.AlterableConfig(*change) for change in changes]
        request = changing.IncrementalAlterConfigsRequest([changing.AlterConfigsResource(resource_type, name, configs)], validate_only)
        [result] = (await self._ask(resource_type, name, request, changing.IncrementalAlterConfigsResponse)).responses
        raise_for(result.error_code, result.error_message)

    async def replace_configs(self, resource_type: int, name: str, values: Mapping[str, str], *, validate_only: bool = False) -> None:
        """The resource has exactly these values of its own, and loses its others. KafkaError when one of them cannot be."""
        configs = [replacing.AlterableConfig(*value) for value in values.items()]
        request = replacing.AlterConfigsRequest([replacing.AlterConfigsResource(resource_type, name, configs)], validate_only)
        [result] = (await self._ask(resource_type, name, request, replacing.AlterConfigsResponse)).responses
        raise_for(result.error_code, result.error_message)

    async def list_config_resources(self, resource_types: Iterable[int] = ()) -> list[tuple[int, str]]:
        """Type and name of each resource that has, or may have, a configuration; of all types when none is named."""
        request = ListConfigResourcesRequest(list(resource_types))
        response = await self._cluster.ask(None, request, ListConfigResourcesResponse)
        raise_for(response.error_code, None)
        return [(found.resource_type, found.resource_name) for found in response.config_resources]

    async def describe_client_quotas(
        self, components: Sequence[tuple[str, int, str | None]] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas whose entity fits every component: (type, EXACT | DEFAULT | ANY, name); with ``strict`` those of no further type."""
        request = DescribeClientQuotasRequest([ComponentData(*component) for component in components], strict)
        response = await self._cluster.ask(None, request, DescribeClientQuotasResponse)
        raise_for(response.error_code, response.error_message)
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {value.key: value.value for value in entry.values}
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, Outcome]:
        """Quotas are set, or removed where the value is None."""
        entries = [
            quotas.EntryData(
                [quotas.EntityData(kind, name) for kind, name in entity],
                [quotas.OpData(key, value or 0.0, value is None) for key, value in values.items()],
            )
            for entity, values in changes.items()
        ]
        request = quotas.AlterClientQuotasRequest(entries, validate_only)
        response = await self._cluster.ask(None, request, quotas.AlterClientQuotasResponse)
        return {
            tuple((part.entity_type, part.entity_name) for part in result.entity): error_of(result.error_code, result.error_message)
            for result in response.entries
        }

    async def _ask(self, resource_type: int, name: str, request: Request, response_type: type[R]) -> R:
        """A broker knows its own values; the others are known to all."""
        if resource_type != RESOURCE_BROKER or not name.isdigit():
            return await self._cluster.ask(None, request, response_type)
        await self._cluster.refresh()
        return await self._cluster.ask(int(name), request, response_type)
