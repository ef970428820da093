"""The options of a source, checked as far as no broker is needed: when a pipeline is defined, and when Spark makes the source."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.bootstrap import parse_bootstrap
from ottla.spark.lookup import check_selection
from ottla.spark.offsets import ending_bound, falls_back, starting_bound
from ottla.spark.options import STREAM, checked


def reading_options(given: Mapping[str, str], use: str) -> dict[str, str]:
    """Returns the honoured options by the table's own names. KafkaError INVALID_CONFIG where a name or a value is wrong."""
    options = checked(given, use)
    parse_bootstrap(options["kafka.bootstrap.servers"])
    check_selection(options)
    starting_bound(options, is_stream=use == STREAM)
    ending_bound(options)
    falls_back(options)
    return options
