"""One module for each API: its docstring is the contract, its ``SERVICE`` the declaration that registers it
(``SERVICES``, where one contract is that of several APIs).

A handler touches ``parts.Parts`` and the request's context, and nothing else of the broker. What decides, stores or waits lives in other
rooms; a handler translates between them and the wire.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from ottla.broker.requests.service import Service
from ottla.broker.roles import Role


def _declared() -> Iterator[Service]:
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        if hasattr(module, "SERVICE"):
            yield module.SERVICE
        yield from getattr(module, "SERVICES", ())


_ALL: Final = sorted(_declared(), key=lambda service: service.api.key)

SERVICES: Final[Mapping[Role, Mapping[int, Service]]] = {
    role: {service.api.key: service for service in _ALL if role in service.roles} for role in Role
}
"""By the role of the listener, and by API key."""
