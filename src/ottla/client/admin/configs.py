"""Configuration of topics, brokers, groups and client-metrics subscriptions, and quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ottla.client.admin.base import AdminBase, error_of, raise_for
from ottla.client.admin.brokers import METADATA_TOPIC
from ottla.client.admin.descriptions import QuotaMatch
from ottla.client.admin.resources import (
    Broker,
    BrokerLoggers,
    ConfigChanges,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigValue,
    alterable,
    entry_of,
    resource_of,
    text_of,
    wire_of,
)
from ottla.client.wrong_calls import listed, mapped, named
from ottla.errors import ErrorCode, KafkaError
from ottla.messages import alter_client_quotas as quotas
from ottla.messages import alter_configs as replacing
from ottla.messages import describe_quorum as quorum
from ottla.messages import incremental_alter_configs as changing
from ottla.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.wire.schema import Request, Response

RESOURCES_MAX = 1_000
"""Of one request."""
_EXACT = 0

R = TypeVar("R", bound=Response)
C = TypeVar("C", bound=ConfigResource)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The user, client or address that has quotas, as pairs of type and name: ``(("user", "alice"), ("client-id", None))``.

Types are user, client-id and ip. A name of None is the default of its type."""


class ConfigAdmin(AdminBase):
    async def describe_configs(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        """Returns every key of the resource, by name: its value, the value's source, synonyms and documentation."""
        kind, name = wire_of(resource)
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], True, True)
        [result] = (await self._ask(resource, request, DescribeConfigsResponse)).results
        raise_for(result.error_code, result.error_message)
        return {found.name: entry_of(found) for found in result.configs}

    async def describe_config_of_topics(self, names: Iterable[str], key: str) -> dict[str, str | None]:
        """Returns the value of one key for each of these topics; topics that no longer exist are left out."""
        values: dict[str, str | None] = {}
        left = named(names, "describe_config_of_topics")
        while left:
            part, left = left[:RESOURCES_MAX], left[RESOURCES_MAX:]
            request = DescribeConfigsRequest([DescribeConfigsResource(ConfigKind.TOPIC.value, name, [key]) for name in part])
            for result in (await self._cluster.ask(None, request, DescribeConfigsResponse)).results:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise_for(result.error_code, _refusal(result))
                for config in result.configs:
                    values[result.resource_name] = config.value
        return values

    async def alter_configs(self, changes: Mapping[C, ConfigChanges], *, validate_only: bool = False) -> None:
        """Sets these keys; other keys of the resources stay as they were. Of one resource all keys are changed, or none.

        ``{Topic("orders"): {"retention.ms": 3_600_000, "cleanup.policy": Append("compact"), "flush.ms": None}}``; None removes a value.
        KafkaError when a resource is refused, with the others that were as notes; the rest is changed.
        """
        problems: list[KafkaError] = []
        for resource, values in mapped(changes, "alter_configs", '{Topic("orders"): {"retention.ms": 3_600_000}}').items():
            kind, name = wire_of(resource)
            configs = [alterable(key, value) for key, value in mapped(values, f"alter_configs of {resource}", '{"flush.ms": 1}').items()]
            request = changing.IncrementalAlterConfigsRequest([changing.AlterConfigsResource(kind, name, configs)], validate_only)
            try:
                [result] = (await self._ask(resource, request, changing.IncrementalAlterConfigsResponse)).responses
                raise_for(result.error_code, result.error_message)
            except KafkaError as error:
                problems.append(error)
        for other in problems[1:]:
            problems[0].add_note(f"and: {other}")
        if problems:
            raise problems[0]

    async def replace_configs(self, resource: ConfigResource, values: Mapping[str, ConfigValue], *, validate_only: bool = False) -> None:
        """Replaces all of the resource's own values by these. KafkaError when one of them is refused."""
        kind, name = wire_of(resource)
        configs = [
            replacing.AlterableConfig(key, text_of(key, value))
            for key, value in mapped(values, "replace_configs", '{"retention.ms": 3_600_000}').items()
        ]
        request = replacing.AlterConfigsRequest([replacing.AlterConfigsResource(kind, name, configs)], validate_only)
        [result] = (await self._ask(resource, request, replacing.AlterConfigsResponse)).responses
        raise_for(result.error_code, result.error_message)

    async def list_config_resources(self, kinds: Iterable[ConfigKind] = ()) -> list[ConfigResource]:
        """Returns each resource that has, or may have, a configuration: of these kinds, or of all."""
        request = ListConfigResourcesRequest([kind.value for kind in listed(kinds, "list_config_resources", "kinds")])
        response = await self._cluster.ask(None, request, ListConfigResourcesResponse)
        raise_for(response.error_code, None)
        return [resource_of(found.resource_type, found.resource_name) for found in response.config_resources]

    async def describe_client_quotas(
        self, wanted: Mapping[str, str | QuotaMatch] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas whose entity matches: ``{"user": "alice", "client-id": QuotaMatch.ANY}``; ``strict`` allows no other type."""
        components = [
            ComponentData(kind, name.value, None) if isinstance(name, QuotaMatch) else ComponentData(kind, _EXACT, name)
            for kind, name in mapped(wanted or {}, "describe_client_quotas", '{"user": "alice"}').items()
        ]
        request = DescribeClientQuotasRequest(components, strict)
        response = await self._cluster.ask(None, request, DescribeClientQuotasResponse)
        raise_for(response.error_code, response.error_message)
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {value.key: value.value for value in entry.values}
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Sets quotas, or removes them where the value is None."""
        example = '{(("user", "alice"),): {"producer_byte_rate": 1e6}}'
        entries = [
            quotas.EntryData(
                [quotas.EntityData(kind, name) for kind, name in _entity(entity, example)],
                [quotas.OpData(*_quota(key, value)) for key, value in mapped(values, f"alter_client_quotas of {entity}", example).items()],
            )
            for entity, values in mapped(changes, "alter_client_quotas", example).items()
        ]
        request = quotas.AlterClientQuotasRequest(entries, validate_only)
        response = await self._cluster.ask(None, request, quotas.AlterClientQuotasResponse)
        return {
            tuple((part.entity_type, part.entity_name) for part in result.entity): error_of(result.error_code, result.error_message)
            for result in response.entries
        }

    async def _ask(self, resource: ConfigResource, request: Request, response_type: type[R]) -> R:
        """Asks the broker itself about its own values; any broker about the others."""
        if not isinstance(resource, Broker | BrokerLoggers) or resource.node_id is None:
            return await self._cluster.ask(None, request, response_type)
        await self._cluster.refresh()
        if isinstance(resource, Broker) and resource.node_id not in self._cluster.nodes and await self._is_controller(resource.node_id):
            return await self._cluster.ask(None, request, response_type)  # no client reaches that one
        return await self._cluster.ask(resource.node_id, request, response_type)

    async def _is_controller(self, node_id: int) -> bool:
        wanted = quorum.DescribeQuorumRequest([quorum.TopicData(METADATA_TOPIC, [quorum.PartitionData(0)])])
        response = await self._cluster.ask(None, wanted, quorum.DescribeQuorumResponse)
        if response.error_code or response.topics[0].partitions[0].error_code:
            return False
        return any(voter.replica_id == node_id for voter in response.topics[0].partitions[0].current_voters)


def _entity(given: object, example: str) -> QuotaEntity:
    """Returns who has quotas, as pairs. TypeError for what is none, such as a name alone."""
    match given:
        case tuple() if given and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
            return given
    raise TypeError(f"{given!r} has no quotas: pairs of type and name are expected, as in {example}")


def _quota(key: str, value: float | None) -> tuple[str, float, bool]:
    """Returns key, number and whether the quota is removed. TypeError for what is no number."""
    if not isinstance(value, int | float | None):
        raise TypeError(f"the quota {key!r} is {value!r}: a number is expected, or None for no quota")
    return key, float(value or 0), value is None


def _refusal(result: DescribeConfigsResult) -> str:
    """Returns why the topic's configuration was not shown, with its name: a broker's text has neither the name nor the right."""
    if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"topic {result.resource_name!r}: to see its configuration takes DESCRIBE_CONFIGS"
    return f"topic {result.resource_name!r}: {result.error_message}" if result.error_message else f"topic {result.resource_name!r}"
