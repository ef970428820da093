"""Who asked for what and was refused: Kafka's authorizer log, and its counts.

Each refusal is a line at INFO of the logger ``kafka.authorizer.logger``, what is allowed one at DEBUG. Of a principal that is refused more
than ``LINES_MAX`` times within a second the rest is counted, and the next line has the count.
"""

from __future__ import annotations

from typing import Final

from ottla.loggers import Chatty
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.ports import Clock
from ottla.security.authorizer import Asker

LOGGER: Final = "kafka.authorizer.logger"
LINES_MAX: Final = 100
PRINCIPALS_MAX: Final = 10_000
WINDOW_MS: Final = 1000

LOG: Final = Chatty(LOGGER)
log = LOG.log


class Audit:
    """The audit log of one authorizer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_ms = 0
        self._denied: dict[str, int] = {}  # in this second, by principal
        self.allowed_count = 0
        self.denied_count = 0

    def tell(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Notes that the operation was allowed."""
        log.debug("authorized", **_fields(asker, operation, resource_type, name, "Allowed"))

    def deny(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Notes that the operation was denied."""
        self.denied_count += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._window_ms >= WINDOW_MS or len(self._denied) >= PRINCIPALS_MAX:
            self._tell_rest()
            self._window_ms = now_ms
        count = self._denied[asker.principal] = self._denied.get(asker.principal, 0) + 1
        if count <= LINES_MAX:
            log.info("authorization_denied", **_fields(asker, operation, resource_type, name, "Denied"))

    def _tell_rest(self) -> None:
        for principal, count in self._denied.items():
            if count > LINES_MAX:
                log.info("authorizations_denied", principal=principal, count=count - LINES_MAX)
        self._denied.clear()


def _fields(asker: Asker, operation: Operation, resource_type: ResourceType, name: str, outcome: str) -> dict[str, str]:
    resource = f"{resource_type.name}:LITERAL:{name[:300]}"
    sentence = f"Principal = {asker.principal} is {outcome} operation = {operation.name} from host = {asker.host} on resource = {resource}"
    return {
        "principal": asker.principal, "host": asker.host, "operation": operation.name, "resource": resource, "sentence": sentence
    }  # fmt: skip
