"""The broker's dynamic configuration, as the newest image has it: the first thing that follows an image, since the others read it."""

from __future__ import annotations

from ottla.broker.part import Part
from ottla.config import BrokerConfig
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta

log = get_logger(__name__)


class DynamicConfig(Part):
    """``node`` is notified of each changed value."""

    def __init__(self, config: BrokerConfig, node: Part) -> None:
        self._config = config
        self._node = node
        self._said: set[tuple[str, str, str, str]] = set()

    async def on_image(self, delta: ImageDelta) -> None:
        image, config = delta.new, self._config
        if config.set_dynamic(own=image.broker_configs(str(config.node_id)), default=image.broker_configs("")):
            self._node.configure()
            self._say_what_is_overridden()

    def _say_what_is_overridden(self) -> None:
        """Logs each value of the file that has no effect, once: nothing else says so after a restart with a changed file."""
        found = set(self._config.overridden())
        for name, given, value, way_out in sorted(found - self._said):
            log.warning("config_overridden", key=name, file=given, in_force=value, way_out=way_out)
        self._said = found
