"""What tests say of brokers that are crashed on purpose: nothing, for these have much to say."""

from __future__ import annotations

import logging

import structlog


def silence() -> None:
    logging.getLogger("ottla.client").addHandler(logging.NullHandler())  # else Python prints what its clients do not reach
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
