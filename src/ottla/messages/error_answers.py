"""An answer that has an error code, for any request.

Where the code is in an answer is read from the declarations of the messages. An answer that names what was asked, partition by partition,
has an element for each element of the request, whose equal fields are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.messages.api_keys import ApiKey
from ottla.messages.fetch import FetchResponse
from ottla.messages.metadata import MetadataResponse
from ottla.messages.registry import Api
from ottla.wire.schema import FIELDS, Field, Request, Response, Struct

CHANGING_NOTHING: Final = frozenset(
    {
        *(ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS),
        *(ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS),
        *(ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER),
        *(ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.LIST_CONFIG_RESOURCES),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""Their requests may be carried out, and the code put into the answer."""
_OF_ALL: Final[dict[type[Struct], frozenset[ErrorCode]]] = {
    FetchResponse: frozenset(
        {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR}
    ),
    MetadataResponse: frozenset({ErrorCode.REBOOTSTRAP_REQUIRED}),
}
"""Answers whose own code says something of these kinds alone; other codes belong to their elements."""


def refusal(api: Api, version: int, request: Request, code: ErrorCode, message: str | None = None) -> Response:
    """Returns the answer to a request that was not carried out; the message is where the answer has a place for it."""
    response = api.response()
    if isinstance(request, AlterUserScramCredentialsRequest):  # two lists in the request, and one line of the answer for each user
        names = dict.fromkeys(item.name for items in (request.deletions, request.upsertions) for item in items)
        return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(name, code, message) for name in names])
    if "error_code" not in _fields(response, version):
        _mirror(response, request, version)
    place(response, version, code, message)
    return response


def place(struct: Struct, version: int, code: ErrorCode, message: str | None = None) -> bool:
    """Puts the code into the highest place of the answer that can have it; False when there is none."""
    fields = _fields(struct, version)
    own = [name for name in fields if name.endswith("error_code")]
    if own and code in _OF_ALL.get(type(struct), {code}):
        setattr(struct, own[0], int(code))
        if message is not None and "error_message" in fields:
            struct.error_message = message  # type: ignore[attr-defined]
        if "records" in fields:
            struct.records = None  # type: ignore[attr-defined]
        return True
    found = False
    for name, field in fields.items():
        if _is_list_of_structs(field):
            for element in getattr(struct, name) or ():
                found |= place(element, version, code, message)
    return found


def _mirror(made: Struct, asked: Struct, version: int) -> None:
    """Lists of the answer have an element for each one that was asked for."""
    name = next((name for name, field in _fields(made, version).items() if _is_list_of_structs(field) and _bears_code(field.element)), None)
    if name is None:
        return
    element = _fields(made, version)[name].element
    for item in next(_lists(asked, version), ()):
        reflected = element()
        if isinstance(item, Struct):
            for shared in _fields(reflected, version).keys() & _fields(item, version).keys():
                is_kept = shared == "entity" or not isinstance(getattr(item, shared), list)  # of quotas, where both list its parts
                if shared not in ("records", "configs") and is_kept:
                    setattr(reflected, shared, getattr(item, shared))
            _mirror(reflected, item, version)
        else:
            setattr(reflected, _name_of(type(reflected), type(item)), item)
        getattr(made, name).append(reflected)


def _lists(asked: Struct, version: int) -> Iterator[list[Any]]:
    """Yields the request's lists that are not empty, in their order."""
    for name, field in _fields(asked, version).items():
        if field.kind == "array" and getattr(asked, name):
            yield getattr(asked, name)


def _name_of(element: type[Struct], kind: type) -> str:
    """Returns the name of the element's field for what was asked for: the first of that type."""
    return next(name for name, field in FIELDS[element].items() if type(field.default) is kind and not name.endswith("error_code"))


def _bears_code(element: type[Struct]) -> bool:
    return any(
        name.endswith("error_code") or (_is_list_of_structs(field) and _bears_code(field.element))
        for name, field in FIELDS[element].items()
    )


def _is_list_of_structs(field: Field) -> bool:
    return field.kind == "array" and isinstance(field.element, type) and issubclass(field.element, Struct)


def _fields(struct: Struct, version: int) -> dict[str, Field]:
    return {name: field for name, field in FIELDS[type(struct)].items() if field.is_in(version)}
