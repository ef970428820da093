"""Every API that ottla has messages for: by key, by name, by request class.

A module of this package that declares an ``XRequest`` and an ``XResponse`` is registered by that.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from msgspec import Struct

from ottla import messages
from ottla.messages.api_keys import ApiKey
from ottla.wire.schema import Request, Response, declaration_of


class Api(Struct, frozen=True):
    """One API: its messages, and the versions they are declared for (both ends inclusive)."""

    key: int
    name: str
    request: type[Request]
    response: type[Response]
    version_min: int
    version_max: int
    flexible: int

    def is_flexible(self, version: int) -> bool:
        """True when requests of this version have header v2."""
        return version >= self.flexible

    def has_flexible_response_header(self, version: int) -> bool:
        return version >= self.flexible and self.key != ApiKey.API_VERSIONS


def _declared() -> Iterator[Api]:
    for info in pkgutil.iter_modules(messages.__path__):
        if info.name == __name__.rpartition(".")[2]:
            continue
        module = vars(import_module(f"{messages.__name__}.{info.name}"))
        for request in [found for found in module.values() if _is_request(found)]:
            name = request.__name__.removesuffix("Request")
            declaration = declaration_of(request)
            low, high = declaration.versions
            yield Api(declaration.code, name, request, module[f"{name}Response"], low, high, declaration.flexible)


def _is_request(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Request) and found is not Request


APIS: Final[Mapping[int, Api]] = {api.key: api for api in sorted(_declared(), key=lambda api: api.key)}
API_OF_REQUEST: Final[Mapping[type[Request], Api]] = {api.request: api for api in APIS.values()}
API_BY_NAME: Final[Mapping[str, Api]] = {api.name: api for api in APIS.values()}
