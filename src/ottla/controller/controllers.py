"""Which controllers a cluster has, active or not: where each can be reached, and which features it supports. Source: KIP-919."""

from __future__ import annotations

from typing import Final

from ottla.controller.decided import Recorded
from ottla.controller.features import METADATA_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage, ControllerImage
from ottla.metadata.members import controller_record

REGISTRATION_SINCE: Final = 15
"""The metadata.version (3.7-IV0) from which on the log may have their records."""


def register_controller(image: ClusterImage, wanted: ControllerImage) -> Recorded:
    """Registers the controller as it describes itself; nothing to record if known so. UNSUPPORTED_VERSION below ``REGISTRATION_SINCE``."""
    level = image.features.get(METADATA_VERSION, 0)
    if level < REGISTRATION_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"controllers register from metadata.version {REGISTRATION_SINCE} on; it is {level}"
        )
    return Recorded(() if image.controllers.get(wanted.controller_id) == wanted else (controller_record(wanted),))
