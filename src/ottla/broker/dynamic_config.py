"""The broker's dynamic configuration, as the newest image has it: the first thing that follows an image, since the others read it."""

from __future__ import annotations

from ottla.broker.part import Part
from ottla.config import BrokerConfig
from ottla.metadata.delta import ImageDelta


class DynamicConfig(Part):
    """``node`` is notified of each changed value."""

    def __init__(self, config: BrokerConfig, node: Part) -> None:
        self._config = config
        self._node = node

    async def on_image(self, delta: ImageDelta) -> None:
        image, config = delta.new, self._config
        if config.set_dynamic(own=image.broker_configs(str(config.node_id)), default=image.broker_configs("")):
            self._node.configure()
